"""What is measured on a run, whatever the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedroster.bounds import drift_plus_cost_bound, lyapunov_drift
from fedroster.parts import pack
from fedroster.queues import queue_step, snap_rate
from fedroster.simulation import Round
from fedroster.types import BoolArray, FloatArray, IntArray, Status


def jain_index(values: FloatArray | IntArray) -> float:
    r"""Jain's fairness index, :math:`(\sum_n x_n)^2 / (N \sum_n x_n^2)`, in [1/N, 1]; 1 when all are equal.

    All zeros are perfectly equal, too.  Values are >= 0, shape (clients,).
    """
    x = np.asarray(values, np.float64)
    squares = float(np.dot(x, x))
    return float(x.sum()) ** 2 / (x.shape[0] * squares) if squares > 0.0 else 1.0


LEAST_CHANCES = 10
"""Clients that were available in fewer rounds than this have no participation per available round worth a number."""


@dataclass(frozen=True, slots=True)
class Participation:
    """How often clients took part, against how often they could.

    A client that is rarely available cannot take part often, whatever the policy does; so rates are also taken over the
    rounds in which the client was available.

    Attributes:
        min_participation_rate: Least share of all rounds in which a client was chosen.
        least_served: Mean, over the tenth of the clients that have least of it, of the share of its available rounds in
            which a client was chosen; clients with fewer than :data:`LEAST_CHANCES` available rounds are left out.
        lowest_served: The least of these shares: one client's.
        share_with_rate: Share of the clients that were chosen in at least beta of all rounds.
        share_served: Share of the clients that were chosen in at least beta of all rounds or, if they were available in
            fewer rounds than that, in all of these; clients that never were are left out.
        never_chosen: Share of the clients that were available and never chosen.
        jain_index: Jain's index of how often clients were chosen.
        jain_available: Jain's index of the shares that ``least_served`` is about.
    """

    min_participation_rate: float
    least_served: float
    lowest_served: float
    share_with_rate: float
    share_served: float
    never_chosen: float
    jain_index: float
    jain_available: float


def participation(chosen: IntArray, available: IntArray, *, num_rounds: int, rate: float) -> Participation:
    """Measure which clients took part, from how often each was chosen and available, both of shape (clients,)."""
    owed = rate * num_rounds * (1.0 - 1e-12)  # a rate that is met exactly is met
    present = available > 0
    # In a run too short for that many chances, every client that was ever available counts.
    counted = available >= LEAST_CHANCES
    counted = counted if counted.any() else present
    share = np.sort(chosen[counted] / available[counted])
    tenth = share[: math.ceil(share.shape[0] / 10)]
    return Participation(
        min_participation_rate=float(chosen.min()) / num_rounds,
        least_served=float(tenth.mean()) if tenth.shape[0] else 0.0,
        lowest_served=float(tenth[0]) if tenth.shape[0] else 0.0,
        share_with_rate=float((chosen >= owed).mean()),
        share_served=float((chosen >= np.minimum(owed, available))[present].mean()) if present.any() else 1.0,
        jain_index=jain_index(chosen),
        jain_available=jain_index(share) if share.shape[0] else 1.0,
        never_chosen=float((chosen == 0)[present].mean()) if present.any() else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The course of one trial.

    Attributes:
        round_time_s: Time of each round, shape (rounds,), seconds.
        decision_s: Time that the policy took to decide and to learn in each round, shape (rounds,), seconds: on this
            machine and this once, so the only numbers that differ when the trial is run again.
        cohort_size: Clients chosen in each round, shape (rounds,).
        participants: Updates in time in each round, the utility of Qu et al. 2021, Eq. 7, summed over servers (Choice
            B8), shape (rounds,).
        mean_backlog: Mean length of the queues (Huang et al. 2021, Eq. 6) at the measured rate after each round, shape
            (rounds,).
        bound_margin: How far each round's drift plus cost stays below their bound (Eq. 11), shape (rounds,).
        spent: Price of each round's cohort, shape (rounds,).
        budget: All servers' budgets together in each round, shape (rounds,); NaN where nothing has a price.
        exploring: 1 for rounds in which the policy explored, for policies that tell, shape (rounds,).
        gap: Proven gap of each round's decision (:attr:`~fedroster.types.Selection.gap`), shape (rounds,); NaN
            where none is proven.
        lacking: After each round t, the most participations that a client lacks of floor(beta t) at the measured rate,
            shape (rounds,); below 0 where all have more.
        lacking_available: The same of floor(beta A), A being the rounds so far in which the client was available.
        accuracy: Test accuracy after each round, shape (rounds,), in [0, 1]; NaN where no model was tested.
        test_loss: Test loss after each round, shape (rounds,); NaN where no model was tested.
        refused: Updates that were refused in each round, shape (rounds,).
        chosen: How often each client was chosen, shape (clients,).
        available: How often each client was available and, where it has a price, some server in its reach could pay it,
            shape (clients,).
    """

    round_time_s: FloatArray
    decision_s: FloatArray
    cohort_size: IntArray
    participants: IntArray
    mean_backlog: FloatArray
    bound_margin: FloatArray
    spent: FloatArray
    budget: FloatArray
    exploring: IntArray
    gap: FloatArray
    lacking: FloatArray
    lacking_available: FloatArray
    accuracy: FloatArray
    test_loss: FloatArray
    refused: IntArray
    chosen: IntArray
    available: IntArray

    @classmethod
    def unplayed(cls, num_clients: int, num_rounds: int) -> Self:
        """A run of which nothing is measured yet: counts are 0, the rest is NaN."""

        def empty(name: str, kind: object) -> NDArray[Any]:
            size = num_clients if name in ("chosen", "available") else num_rounds
            return np.zeros(size, np.int64) if kind == "IntArray" else np.full(size, np.nan)

        return cls(**{field.name: empty(field.name, field.type) for field in fields(cls)})

    @property
    def num_rounds(self) -> int:
        """Number of rounds T."""
        return int(self.round_time_s.shape[0])

    @property
    def missed(self) -> IntArray:
        """Chosen clients whose update was late or never came, in each round, shape (rounds,)."""
        return self.cohort_size - self.participants

    @property
    def budget_used(self) -> FloatArray:
        """Share of all budgets that each round's cohort cost, shape (rounds,); NaN where nothing has a price."""
        return np.divide(self.spent, self.budget, out=np.zeros(self.num_rounds), where=self.budget != 0.0)

    @property
    def tested(self) -> IntArray:
        """Rounds after which the model was tested, ascending, shape (tests,)."""
        return np.flatnonzero(np.isfinite(self.accuracy)) + 1

    @property
    def tests(self) -> tuple[FloatArray, FloatArray]:
        """Simulated time of each test, seconds, and its accuracy, each of shape (tests,)."""
        at = self.tested - 1
        return self.round_time_s.cumsum()[at], self.accuracy[at]


def crossing(at: FloatArray | IntArray, values: FloatArray, target: float) -> float:
    """Where a course first reaches a target, on a straight line between two tests; infinite where it never does.

    Without the line a difference smaller than the distance of two tests would read as none at all.

    Args:
        at: Ascending places > 0 of the tests, in rounds or seconds, shape (tests,).
        values: What was measured there, shape (tests,); 0 before the first test.
        target: What is to be reached, > 0.
    """
    reached: BoolArray = values >= target
    if not reached.any():
        return math.inf
    place = int(reached.argmax())
    before, below = (float(at[place - 1]), float(values[place - 1])) if place else (0.0, 0.0)
    return before + (float(at[place]) - before) * (target - below) / (float(values[place]) - below)


_GRAIN = 1e-6  # the rate lies on a grid: 0.15 x 20 rounds are three, not a little less


class Recorder:
    """Measures rounds as they pass.

    The queues (Huang et al. 2021, Eq. 6) are kept here, at the rate that is asked for: so it is known of every policy
    what it would owe.

    Attributes:
        run: What is measured so far; the rest is as :meth:`Run.unplayed` leaves it.
    """

    def __init__(self, num_clients: int, num_rounds: int, *, rate: float) -> None:
        """Start before round 1; ``rate`` is beta."""
        self.run = Run.unplayed(num_clients, num_rounds)
        self._rate = snap_rate(rate)
        self._backlog = np.zeros(num_clients)
        self._explored = 0

    def records(self) -> dict[str, NDArray[Any]]:
        """Everything that was measured so far, to save it."""
        return pack(self.run) | {"backlog": self._backlog}

    def restore(self, records: Mapping[str, NDArray[Any]]) -> None:
        """Go on after what :meth:`records` returned."""
        for name, values in self.records().items():
            values[:] = records[name]
        self._explored = int(self.run.exploring.sum())

    def add(self, played: Round, *, accuracy: float = math.nan, test_loss: float = math.nan, refused: int = 0) -> None:
        """Measure one round; accuracy and loss are NaN where no model was tested after it."""
        run = self.run
        row = played.number - 1
        context = played.context
        clients = context.clients_of(played.selection.links)
        before = self._backlog.copy()
        queue_step(self._backlog, beta=self._rate, served=clients, members=context.members)
        # V f stands on both sides of Eq. 11 and drops out.
        bound = drift_plus_cost_bound(before, clients, beta=self._rate, V=0.0, round_time_s=0.0)
        run.bound_margin[row] = bound - lyapunov_drift(before, self._backlog)
        run.mean_backlog[row] = self._backlog.mean()
        run.round_time_s[row] = played.time_s
        run.decision_s[row] = played.decision_s
        run.cohort_size[row] = clients.shape[0]
        run.participants[row] = np.count_nonzero(played.feedback.status == Status.COMPLETED)
        run.gap[row] = math.nan if played.selection.gap is None else played.selection.gap
        explored = int(getattr(played.policy_state, "exploring_rounds", 0))
        run.exploring[row], self._explored = explored - self._explored, explored
        run.accuracy[row], run.test_loss[row], run.refused[row] = accuracy, test_loss, refused
        run.chosen[clients] += 1
        usable = context.available
        run.spent[row] = 0.0
        if context.cost is not None:
            run.spent[row] = context.cost[played.selection.links].sum()
            if context.budget is not None:
                run.budget[row] = context.budget.sum()
                usable = usable & (context.cost <= context.budget[0 if context.server is None else context.server])
        there = usable if context.client is None else context.client[usable]
        run.available[there] = run.available[there] + 1  # once for a client with several links
        run.lacking[row] = math.floor(self._rate * played.number + _GRAIN) - int(run.chosen.min())
        run.lacking_available[row] = (np.floor(self._rate * run.available + _GRAIN) - run.chosen).max()
