"""A log as arrays: the available clients and their contexts, the cohorts, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedroster import FailureRules
from fedroster.errors import InvalidInputError
from fedroster.lab.replay.playing import BARE, Exchanges, PlayedRound
from fedroster.parts import ClientId, StatusArray
from fedroster.record import OPEN, BegunLine, Log, LoggedRound
from fedroster.types import BoolArray, FloatArray, IntArray, Status

LEAST_ROUNDS = 20
"""Shorter logs tell too little."""

_LEAST_LOST = 5  # rounds with a dropped client, before their ends say anything
_MOST_VALUES = 300_000_000  # rounds x clients x features: 2.4 GB


@dataclass(frozen=True, slots=True)
class History:
    """The rounds of a log with one server.

    Attributes:
        ids: Ids of all clients that were ever members; arrays of clients are in this order.
        policy: The policy that wrote it, as text.
        options: What its selector was made with, except sizes, seed and rules.
        rules: Rules in force in each round, as tables.
        begun: Whether each round could begin, shape (rounds,).
        at_s: When each round began, shape (rounds,), seconds.
        round_s: How long each took, shape (rounds,), seconds; NaN where it is not known.
        deadline_s: Deadline of each, shape (rounds,), seconds; infinite for none.
        cohort_size: Largest cohort.
        members: Whether each client was a member, shape (rounds, clients).
        available: Whether each client was available, whatever the rules say, shape (rounds, clients).
        features: Contexts, shape (rounds, clients, D); NaN where they are not known.
        round: Round of each exchange, an index, ascending, shape (exchanges,).
        client: Its client.
        status: How it ended; exchanges without an end are left out.
        time_s: Its time, seconds; NaN where none was measured.
        flaw: Why other policies cannot be played in it; empty if they can.
    """

    ids: tuple[ClientId, ...]
    policy: str
    options: Mapping[str, Any]
    rules: tuple[Mapping[str, Any], ...]
    begun: BoolArray
    at_s: FloatArray
    round_s: FloatArray
    deadline_s: FloatArray
    cohort_size: int
    members: BoolArray
    available: BoolArray
    features: FloatArray
    round: IntArray
    client: IntArray
    status: StatusArray
    time_s: FloatArray
    flaw: str = ""

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
        return np.isfinite(self.time_s) & (self.time_s > 0.0)

    @property
    def lasted_s(self) -> FloatArray:
        """How long each round took, shape (rounds,), seconds: its slowest exchange where the length is not known."""
        return np.where(np.isfinite(self.round_s), self.round_s, self.slowest_s)

    @property
    def slowest_s(self) -> FloatArray:
        """The slowest measured exchange of each round, at most its deadline, shape (rounds,), seconds; 0 for none."""
        longest, timed = np.zeros(self.num_rounds), self.timed
        np.maximum.at(longest, self.round[timed], self.time_s[timed])
        return np.minimum(longest, self.deadline_s)

    @property
    def lost(self) -> BoolArray:
        """Exchanges without an answer, shape (exchanges,)."""
        return self.status >= Status.DROPPED

    @property
    def played(self) -> list[PlayedRound]:
        """The rounds as they would stand if they had been played again."""
        ends = np.searchsorted(self.round, np.arange(self.num_rounds + 1))
        return [
            PlayedRound(
                at_s=float(self.at_s[index]),
                members=self.members[index],
                chosen=self.client[first:last],
                exchanges=Exchanges(self.time_s[first:last], ~self.lost[first:last]),
                length_s=float(self.lasted_s[index]),
                status=self.status[first:last],
                begun=bool(self.begun[index]),
            )
            for index, (first, last) in enumerate(pairwise(ends.tolist()))
        ]

    @property
    def chosen(self) -> BoolArray:
        """Whether each client was chosen, shape (rounds, clients)."""
        found = np.zeros(self.available.shape, np.bool_)
        found[self.round, self.client] = True
        return found


def read_history(log: Log) -> History:
    """Take a log apart; InvalidInputError if it has no rounds, or no round had a member."""
    rounds, header = log.rounds, log.header
    count = len(rounds)
    if not count:
        raise InvalidInputError("the log has no rounds")
    column_of: dict[ClientId, int] = {}
    columns = []
    width = 0
    changes = -1
    here = np.zeros(0, np.int64)
    flaw = ""
    for one in rounds:
        if log.memberships_at(one.round) != changes:
            changes, ids = log.memberships_at(one.round), log.ids_at(one.round)
            of_slot = [-1 if each is None else column_of.setdefault(each, len(column_of)) for each in ids]
            here = np.array(of_slot, np.int64)
        columns.append(here)
        width = width if one.contexts is None else int(one.contexts.shape[1])
        flaw = flaw or _unknown_kind(one, is_hashed=bool(header.hashed))
    num_clients = len(column_of)
    if header.num_servers != 1 or header.of == "edge-selector":
        flaw = f"the log is of a federation with {header.num_servers} servers; a replay knows one server only"
    elif count < LEAST_ROUNDS:
        flaw = f"the log has {count} rounds; expected at least {LEAST_ROUNDS} for a replay"
    elif count * num_clients * max(width, 1) > _MOST_VALUES:
        flaw = f"the log has {count:,} rounds of {num_clients:,} clients; expected at most {_MOST_VALUES:,} contexts"
    width = 0 if flaw else width
    shape = (count, num_clients)
    members, available = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
    features = np.full((*shape, width), np.nan)
    parts: list[tuple[IntArray, IntArray, StatusArray, FloatArray]] = []
    for index, (one, column) in enumerate(zip(rounds, columns, strict=True)):
        known = column >= 0
        members[index, column[known]] = one.members[known]
        available[index, column[known]] = one.available[known]
        if one.contexts is not None and width:
            features[index, column[known]] = one.contexts[known]
        told = one.status != OPEN
        chosen = column[one.chosen[told]]
        parts.append((np.full(chosen.shape, index), chosen, one.status[told], one.exchange_time_s[told]))
    if not members.any():
        raise InvalidInputError("no round of the log has a member")
    history = History(
        ids=tuple(column_of),
        policy=header.policy_text or header.policy,
        options=BARE if header.of == "simulation" else _options(header),
        rules=tuple(one.rules for one in rounds),
        begun=np.array([not one.not_begun for one in rounds]),
        at_s=np.array([one.at_s for one in rounds], np.float64),
        round_s=np.array([one.round_s for one in rounds], np.float64),
        deadline_s=np.array([one.deadline_s for one in rounds], np.float64),
        cohort_size=header.settings.cohort_size,
        members=members,
        available=available & members,
        features=features,
        round=np.concatenate([part[0] for part in parts]),
        client=np.concatenate([part[1] for part in parts]).astype(np.int64),
        status=np.concatenate([part[2] for part in parts]),
        time_s=np.concatenate([part[3] for part in parts]),
        flaw=flaw,
    )
    return history if flaw or header.of == "simulation" else _with_deadline(history)


def _unknown_kind(one: LoggedRound, *, is_hashed: bool) -> str:
    """Why a replay does not know such rounds; empty if it does."""
    if len(one.excluded.get("busy", ())) or one.asked.places is not None:
        return "rounds of the log overlap; a replay knows rounds one after the other only"
    if is_hashed and one.rules:
        return "the log has hashes in place of names, and hides the rules that its rounds kept"
    return ""


def _with_deadline(history: History) -> History:
    """The deadline that a federation's answers show, or why none fits them.

    A log of a federation does not tell of deadlines.  If clients were late, it lies between the longest time that was
    in time and the shortest that was not.  Clients that were late and count as dropped have no time: nothing then tells
    how slow they are, and slow clients look fast.
    """
    time_s, completed = history.time_s, history.status == Status.COMPLETED
    late = history.status == Status.LATE
    longest_s = float(time_s[completed & history.timed].max(initial=0.0))
    if late.any():
        earliest_s = float(time_s[late & history.timed].min(initial=np.inf))
        if earliest_s < longest_s:
            flaw = (
                f"clients were late after {earliest_s:.3g} s in one round, and in time after {longest_s:.3g} s in "
                "another: rounds did not end at a deadline, or when all had answered"
            )
            return replace(history, flaw=flaw)
        shown_s = history.round_s[np.unique(history.round[late])]
        known_s = shown_s[np.isfinite(shown_s)]
        middle_s = float(np.median(known_s)) if known_s.shape[0] else 0.5 * (longest_s + earliest_s)
        deadline_s = min(max(middle_s, longest_s), earliest_s)
        return replace(history, deadline_s=np.full(history.num_rounds, deadline_s))
    return replace(history, flaw=_late_as_dropped(history, longest_s))


def _late_as_dropped(history: History, longest_s: float) -> str:
    """Why dropped clients seem to have been late; empty if they do not."""
    has_lost = np.zeros(history.num_rounds, np.bool_)
    has_lost[history.round[history.lost]] = True
    lasted_s = history.round_s[has_lost & np.isfinite(history.round_s)]
    if np.count_nonzero(has_lost) < _LEAST_LOST:
        return ""
    typical_s = float(np.median(lasted_s)) if lasted_s.shape[0] else 0.0
    is_even = lasted_s.shape[0] >= _LEAST_LOST and np.mean(np.abs(lasted_s / max(typical_s, 1e-9) - 1.0) < 0.02) > 0.8
    if is_even and 0.8 * typical_s < longest_s < 1.02 * typical_s:
        return (
            f"rounds with a dropped client ended after {typical_s:.3g} s, and no answer took longer: clients that were "
            "late count as dropped, and nothing tells how slow they are"
        )
    came = np.bincount(history.round[history.status == Status.COMPLETED], minlength=history.num_rounds)[has_lost]
    if has_lost[history.chosen.any(axis=1)].mean() > 0.9 and np.mean(came == np.median(came)) > 0.8:
        return (
            f"nearly every round ended with {int(np.median(came))} answers, and its other clients count as dropped: "
            "nothing tells how slow these are"
        )
    return ""


def _options(header: BegunLine) -> dict[str, Any]:
    """Of what a log's selector was made with, what holds for any policy."""
    names = ("patience_rounds", "longest_s", "guarded", "longest_absence")
    settings = header.settings
    return {name: getattr(settings, name) for name in names} | {"failures": FailureRules(*settings.failures)}
