"""A log as arrays: the available clients and their contexts, the cohorts, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroster.errors import InvalidInputError
from fedroster.parts import StatusArray
from fedroster.record import OPEN
from fedroster.types import BoolArray, FloatArray, IntArray, Status

LEAST_ROUNDS = 20
"""Shorter logs tell too little."""

_MOST_VALUES = 300_000_000  # rounds x clients x features: 2.4 GB


@dataclass(frozen=True, slots=True)
class History:
    """The rounds of a log with one server.

    Attributes:
        at_s: When each round began, shape (rounds,), seconds.
        round_s: How long each took, shape (rounds,), seconds; NaN where it is not known.
        deadline_s: Deadline of each, shape (rounds,), seconds; infinite for none.
        places: Largest cohort of each, shape (rounds,).
        members: Whether each client was a member, shape (rounds, clients).
        available: Whether each client could be chosen, shape (rounds, clients).
        features: Contexts, shape (rounds, clients, D); NaN where they are not known.
        round: Round of each exchange, an index, ascending, shape (exchanges,).
        client: Its client.
        status: How it ended; exchanges without an end are left out.
        time_s: Its time, seconds; NaN where none was measured.
    """

    at_s: FloatArray
    round_s: FloatArray
    deadline_s: FloatArray
    places: IntArray
    members: BoolArray
    available: BoolArray
    features: FloatArray
    round: IntArray
    client: IntArray
    status: StatusArray
    time_s: FloatArray

    @property
    def num_rounds(self) -> int:
        """Rounds T."""
        return int(self.at_s.shape[0])

    @property
    def num_clients(self) -> int:
        """Clients N that were ever members."""
        return int(self.available.shape[1])

    @property
    def num_features(self) -> int:
        """Length D of a context."""
        return int(self.features.shape[2])

    @property
    def timed(self) -> BoolArray:
        """Exchanges whose time was measured."""
        measured: BoolArray = np.isfinite(self.time_s) & (self.time_s > 0.0)
        return measured

    @property
    def missed(self) -> BoolArray:
        """Exchanges that gave no update in time."""
        missed: BoolArray = self.status != Status.COMPLETED
        return missed

    @property
    def chosen(self) -> BoolArray:
        """Whether each client was chosen, shape (rounds, clients)."""
        found = np.zeros(self.available.shape, np.bool_)
        found[self.round, self.client] = True
        return found


def read_history(rounds: Sequence[Any], *, num_clients: int) -> History:
    """Take the rounds of a log (:class:`~fedroster.record.LoggedRound`) apart.

    Raises:
        InvalidInputError: If the log has several servers, is too short, or too large to be kept in memory.
    """
    count = len(rounds)
    if count < LEAST_ROUNDS:
        raise InvalidInputError(f"the log has {count} rounds; expected at least {LEAST_ROUNDS} for a replay")
    contexts = next((one.contexts for one in rounds if one.contexts is not None), None)
    width = 0 if contexts is None else int(contexts.shape[1])
    if count * num_clients * max(width, 1) > _MOST_VALUES:
        raise InvalidInputError(
            f"the log has {count:,} rounds of {num_clients:,} clients; expected at most {_MOST_VALUES:,} contexts"
        )
    shape = (count, num_clients)
    members, available = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    features = np.full((*shape, width), np.nan)
    parts: list[tuple[IntArray, IntArray, StatusArray, FloatArray]] = []
    for index, one in enumerate(rounds):
        if one.servers is not None and np.any(np.asarray(one.servers) != 0):
            raise InvalidInputError("the log is of a federation with several servers; expected one server for a replay")
        if one.excluded.get("busy") is not None and len(one.excluded["busy"]):
            raise InvalidInputError("rounds of the log overlap; a replay knows rounds one after the other only")
        present = one.available.shape[0]
        members[index, :present] = one.members
        available[index, :present] = one.available
        for slots in one.excluded.values():
            available[index, slots] = False
        if one.contexts is not None and width:
            features[index, :present] = one.contexts
        told = one.status != OPEN
        parts.append((np.full(int(told.sum()), index), one.chosen[told], one.status[told], one.exchange_time_s[told]))
    return History(
        at_s=np.array([one.at_s for one in rounds], np.float64),
        round_s=np.array([np.nan if one.round_s is None else one.round_s for one in rounds], np.float64),
        deadline_s=np.array([np.inf if one.deadline_s is None else one.deadline_s for one in rounds], np.float64),
        places=np.array([one.cohort_size for one in rounds], np.int64),
        members=members,
        available=available,
        features=features,
        round=np.concatenate([part[0] for part in parts]),
        client=np.concatenate([part[1] for part in parts]).astype(np.int64),
        status=np.concatenate([part[2] for part in parts]),
        time_s=np.concatenate([part[3] for part in parts]),
    )
