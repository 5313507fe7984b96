"""A selector that follows the lines of a log, and decides again what they say."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedroster.core.checks import shown
from fedroster.core.errors import FairnessWarning, FedrosterError, LogFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import as_labelled, is_label_of
from fedroster.folder.chain import Line, read_snapshot
from fedroster.folder.events import (
    Asked,
    BegunLine,
    Decided,
    Event,
    Joined,
    Left,
    Set,
    Snapshot,
    StartSaid,
    Told,
)
from fedroster.folder.lines import event_of
from fedroster.record.simulated import KIND, SimulatedBooks
from fedroster.selector import KINDS, Selector, begun, in_state, state_of
from fedroster.selector.members import Members


class Books(Protocol):
    """What books events: a selector, or the policy of a simulation."""

    def decide(self, asked: Asked, /, *, explain: bool) -> Decided:
        """Decide a round without booking it."""
        ...

    def apply(self, event: Event, /) -> Event:
        """Book an event, and return it as it was booked."""
        ...


DIGITS = 1e-6
"""Relative difference up to which numbers differ by their last digits, as on another processor."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the log and the policy.

    Attributes:
        line: Number of the line.
        round: Its round.
        what: Names of what differs, such as ``chosen``.
        by: Largest relative difference of the numbers that differ; infinite where more than numbers do.
    """

    line: int
    round: int
    what: tuple[str, ...]
    by: float


class Following:
    """Takes the lines of a log, one after the other: ``books`` are what they have led to, None before the first."""

    def __init__(self, policy: AnyPolicy, folder: Path, *, verify: bool = False) -> None:
        """Begin with nothing; to ``verify``, the policy decides again, and each line is compared with what it says."""
        self._policy = policy
        self._folder = folder
        self._verify = verify
        self.before: Callable[[Books, Decided], None] = lambda books, decided: None  # it is booked
        self.books: Books | None = None
        self._members = Members()
        self.num_decided = self.num_unknown = 0
        self.differences: list[Difference] = []

    def take(self, line: Line) -> bool:
        """Take a line that was not taken back.

        Returns:
            Whether the lines before have led to the state that it goes on from.

        Raises:
            LogFileError: If it says what cannot be.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FairnessWarning)
                return self._take(line)
        except LogFileError as error:
            raise type(error)(f"line {line.number}: {error}") from error
        except (FedrosterError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise LogFileError(f"line {line.number} cannot be booked: {shown(error, str)}") from error

    def _take(self, line: Line) -> bool:
        event = event_of(line.content, self._members)
        is_led_to = True
        if isinstance(event, Set) and event.policy:
            self._policy = as_labelled(event.policy, self._policy)
        elif isinstance(event, BegunLine):
            if not is_label_of(event.policy, self._policy):
                raise LogFileError(f"the log is of {shown(event.policy, str)}; expected {self._policy!r}")
            if event.start is not None:
                is_led_to = self._start(line, event, event.start)
            elif self.books is None:
                self.books = (SimulatedBooks if event.of == KIND else begun)(self._policy, event)
        if self.books is None:
            raise LogFileError("no line before it says which policy decides")
        if isinstance(event, Decided):
            self.before(self.books, event)
            if self._verify:
                own = self.books.decide(event.asked, explain=True)
                self._compare(line, own, event)
                event = replace(event, found=own.found if event.asked.known else None)
        booked = self.books.apply(event)
        if isinstance(event, Told) and isinstance(booked, Told) and self._verify:
            self._differ(line, event.round, {"learned_s": (booked.learned_s, event.learned_s)})
        if isinstance(event, Joined | Left):
            self._members.book(event)
        return is_led_to

    def _start(self, line: Line, said: BegunLine, start: StartSaid) -> bool:
        """Go on from a state that is kept beside the log; whether it is the one to which the lines have led."""
        if said.follows and not self._verify and self.books is not None:
            return True
        header, arrays = read_snapshot(self._folder, start)
        if self._verify and isinstance(self.books, Selector):
            by = _apart_states(state_of(self.books), (header, arrays))
            if 0.0 < by <= DIGITS:
                self.differences.append(Difference(line.number, said.round, ("start",), by))
            if by <= DIGITS:
                return True
        self.books = in_state(KINDS[start.kind], (header, arrays), self._policy)
        self._members = members_in((header, arrays))
        return False

    def _compare(self, line: Line, own: Decided, told: Decided) -> None:
        """Hold a decision against what the policy decides."""
        names = [*_KNOWN, *_DECIDED] if told.asked.known else _KNOWN
        for name in ("expected_s", "owed"):  # of the cohort alone, where the other one has no more
            mine, other = getattr(own, name), getattr(told, name)
            if mine is not None and other is not None and other.shape == told.chosen.shape != mine.shape:
                own = replace(own, **{name: mine[told.chosen]})
        self.num_decided += told.asked.known
        self.num_unknown += not told.asked.known
        self._differ(line, told.round, {name: (getattr(own, name), getattr(told, name)) for name in names})

    def _differ(self, line: Line, round: int, values: Mapping[str, tuple[Any, Any]]) -> None:
        apart = {name: by for name, (own, told) in values.items() if (by := _apart(own, told))}
        if apart:
            by = max((by for name, by in apart.items() if name != "state" or len(apart) == 1), default=0.0)
            self.differences.append(Difference(line.number, round, tuple(apart), by))


def members_in(state: Snapshot) -> Members:
    """The members of a selector in a state."""
    members = Members()
    members.unpack(*state)
    return members


_KNOWN = ("round", "capacity", "places", "excluded", "busy", "owed", "state")
_DECIDED = ("not_begun", "chosen", "links", "servers", "features", "believed", "expected_s", "weights")


def _apart_states(one: Snapshot, other: Snapshot) -> float:
    """How far two states are apart, whatever they say of files: 0 for bit for bit, infinite if not by numbers alone."""
    (header, arrays), (told, given) = one, other
    mine = {name: value for name, value in json.loads(json.dumps(header)).items() if name != "place"}
    if arrays.keys() != given.keys() or mine != {name: told[name] for name in mine if name in told}:
        return np.inf
    if any(array.dtype != given[name].dtype for name, array in arrays.items()):
        return np.inf
    return max((_apart(np.asarray(array), given[name]) for name, array in arrays.items()), default=0.0)


def _apart(own: Any, told: Any) -> float:
    """How far two values are apart: 0 where they are the same bit for bit, infinite where more than numbers differ."""
    if isinstance(own, Mapping) and isinstance(told, Mapping):
        names = own.keys() | told.keys()
        none = np.zeros(0, np.int64)
        return max((_apart(own.get(name, none), told.get(name, none)) for name in names), default=0.0)
    if not isinstance(own, np.ndarray) or not isinstance(told, np.ndarray):
        return 0.0 if own is told or (type(own) is type(told) and own == told) else np.inf
    if own.shape != told.shape:
        return np.inf
    if own.dtype.kind != "f":
        return 0.0 if np.array_equal(own, told) else np.inf
    differs = ~((own == told) | (np.isnan(own) & np.isnan(told)))
    own, told = own[differs], told[differs]
    with np.errstate(all="ignore"):
        by = np.abs(own - told) / np.maximum(np.abs(own), np.abs(told))
    return float(by.max(initial=0.0)) if np.isfinite(by).all() else np.inf
