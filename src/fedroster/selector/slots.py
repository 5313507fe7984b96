"""What is kept of each client of a running federation: arrays with an entry for each slot, which grow together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.state import grow, per_client, reset

_TYPES: dict[Any, Any] = {"BoolArray": np.bool_, "IntArray": np.int64, "FloatArray": np.float64}


@dataclass
class Slots:
    """What is kept of each slot's client, shape (slots,).

    Attributes:
        here: Whether the client is a member.
        cold: Whether it did not take part in the last round, the s of Huang et al. 2021.
        chosen: Rounds in which it was chosen.
        trained: Rounds in which it answered, in time or late.
        used: Rounds in which it answered in time.
        present: Rounds that began while it was a member and did not pause.
        due: The same, where ``cohort_size`` places that are filled one by one are one round: what a rate counts.
        seen: Rounds in which it was available.
        capped: How many of its times were cut to the longest.
        chosen_before: ``chosen`` when the policy began to promise what it promises now.
        due_before: ``due`` at that time.
        last_round: The last round in which it took part; 0 for none.
        last_s: When that was, by the time that rules count, seconds.
        failed: Times that it failed in a row.
        paused_until: The last round in which it pauses for that.
        away: Rounds of absence in a row.
        reports: Times that it reported; without the first when there is a second.
        mean_s: Their mean over the last reports, seconds.
        context_error: Discounted sum of squared errors of what was expected under its contexts, in units of its mean.
        own_error: The same of its mean time.
        told: Rounds that its cohort reported in full, and whose length is known.
        contradicted: Those of them that took longer than all reported times.
        costs: Costs that were measured.
        cost: Their mean over the last ones.
    """

    here: BoolArray = per_client()
    cold: BoolArray = per_client()
    chosen: IntArray = per_client(least=0, most="round")
    trained: IntArray = per_client(least=0, most="round")
    used: IntArray = per_client(least=0, most="round")
    present: IntArray = per_client(least=0, most="round")
    due: IntArray = per_client(least=0, most="round")
    seen: IntArray = per_client(least=0, most="round")
    capped: IntArray = per_client(least=0, most="round")
    chosen_before: IntArray = per_client(least=0, most="round")
    due_before: IntArray = per_client(least=0, most="round")
    last_round: IntArray = per_client(least=0, most="round")
    last_s: FloatArray = per_client(least=0.0)
    failed: IntArray = per_client(least=0, most="round")
    paused_until: IntArray = per_client(least=0)
    away: IntArray = per_client(least=0, most="round")
    reports: FloatArray = per_client(least=0.0)
    mean_s: FloatArray = per_client(least=0.0)
    context_error: FloatArray = per_client(least=0.0)
    own_error: FloatArray = per_client(least=0.0)
    told: FloatArray = per_client(least=0.0)
    contradicted: FloatArray = per_client(least=0.0)
    costs: FloatArray = per_client(least=0.0)
    cost: FloatArray = per_client(least=0.0)

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return int(self.here.shape[0])

    def become(self, other: Slots) -> None:
        """Take over all arrays."""
        for each in fields(Slots):
            setattr(self, each.name, getattr(other, each.name))

    def grow(self, capacity: int) -> None:
        """Make room for more clients; with less than there is, nothing changes."""
        if capacity > self.capacity:
            self.become(grow(self, blank(capacity)))

    def reset(self, slots: IntArray) -> None:
        """Make some clients unknown again."""
        reset(self, blank(self.capacity), slots)


def blank(capacity: int) -> Slots:
    """Slots without clients."""
    arrays = {each.name: np.zeros(capacity, _TYPES[each.type]) for each in fields(Slots)}
    return Slots(**arrays | {"cold": np.ones(capacity, np.bool_)})
