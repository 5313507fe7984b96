"""Whether a log is what it says: an unbroken chain without holes, and decisions that are those of its policy.

Who follows a log books its lines one after the other, and may have the policy decide again what they say.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedroster.core.checks import shown
from fedroster.core.errors import FairnessWarning, FedrosterError, LogFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.sources import code
from fedroster.core.state import as_labelled, is_label_of
from fedroster.folder.chain import Line, files_of, lines_of, read_snapshot, standing, torn_bytes
from fedroster.folder.events import (
    Asked,
    BegunLine,
    Decided,
    Event,
    Joined,
    Left,
    NotKeptError,
    Set,
    Snapshot,
    StartSaid,
    Told,
)
from fedroster.folder.lines import DecidedLine, UndoneLine, event_of
from fedroster.record.simulated import KIND, SimulatedBooks
from fedroster.selector import KINDS, Selector, begun, in_state, state_of
from fedroster.selector.members import Members

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


@dataclass(frozen=True, slots=True)
class Start:
    """A state that the log goes on from, and that the line before has not led to.

    Attributes:
        line: Number of the line that says so.
        after: Last round of the lines before; 0 for none.
        round: Last round of the state.
    """

    line: int
    after: int
    round: int

    def __str__(self) -> str:
        """What it means."""
        first, last = sorted((self.after, self.round))
        rounds = f"round {last}" if last == first + 1 else f"rounds {first + 1} to {last}"
        how = "lines are missing"
        if self.round > self.after:
            how = f"{rounds} {'is' if last == first + 1 else 'are'} missing"
        elif self.round < self.after:
            how = f"{rounds} {'does' if last == first + 1 else 'do'} not count any more"
        state = f"a copy of a state at round {self.round}, which is not verified"
        return f"{how}: from line {self.line} it goes on from {state}"


@dataclass(slots=True)
class Verified:
    """What was found in a log.

    Attributes:
        policy: The policy that it names; empty if it cannot be read.
        seed: Its seed.
        num_files: Files that were read.
        num_lines: Lines whose digest the next line holds, or that is the last.
        num_rounds: Decisions among them.
        first_round: The first of them; 0 without any.
        last_round: The last of them.
        num_not_begun: Rounds that could not begin.
        undone: Numbers of lines that were taken back.
        starts: States from which the log goes on, and which the line before has not led to.
        allowed: Whether these are allowed.
        head: Digest of the last line.
        torn: Bytes of a last line that is not whole.
        flaw: What is wrong with the chain, or cannot be booked; empty if nothing is.
        anchor: Number of the line that has the digest that was asked for; 0 if none has, None if none was asked for.
        num_decided: Decisions that the policy made again.
        num_unknown: Decisions that it could not make, without contexts.
        unverified: Why no decision was made again; empty if they were.
        differences: Where the policy decides otherwise, or a line differs from what a record would write.
        same_code: Whether the log was written by this code of fedroster.
    """

    policy: str = ""
    seed: int = 0
    num_files: int = 0
    num_lines: int = 0
    num_rounds: int = 0
    first_round: int = 0
    last_round: int = 0
    num_not_begun: int = 0
    undone: tuple[int, ...] = ()
    starts: tuple[Start, ...] = ()
    allowed: bool = False
    head: str = ""
    torn: int = 0
    flaw: str = ""
    anchor: int | None = None
    num_decided: int = 0
    num_unknown: int = 0
    unverified: str = ""
    differences: tuple[Difference, ...] = ()
    same_code: bool = True

    @property
    def largest(self) -> float:
        """Largest relative difference of numbers; infinite where more than numbers differ, 0 without differences."""
        return max((each.by for each in self.differences), default=0.0)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was found: chain and anchor are there, no state is unverified, decisions are the policy's.

        Last digits of numbers may differ (``largest`` is at most ``DIGITS``), as they do on another processor.
        """
        is_led_to = self.allowed or not self.starts
        return not self.flaw and self.largest <= DIGITS and self.anchor != 0 and is_led_to


def _read(folder: Path, head: str | None, found: Verified) -> Iterator[Line]:
    """The lines of a log, and what all of them say of themselves."""
    for line in lines_of(folder):
        said = line.content
        found.head, found.num_lines = line.digest, line.number
        if line.digest == head:
            found.anchor = line.number
        if isinstance(said, BegunLine):
            found.same_code &= said.code == code()
            found.policy, found.seed = said.policy, said.settings.seed
        elif isinstance(said, UndoneLine):
            found.undone += (said.of,)
        yield line


def verify(
    folder: str | os.PathLike[str],
    policy: AnyPolicy | None,
    *,
    head: str | None = None,
    allow_gaps: bool = False,
    why_not: str = "no policy was named",
) -> Verified:
    """Follow the chain of a log, and let its policy decide again.

    The chain shows that no line before the last was changed, removed or moved.  It cannot show that lines at the end
    were cut off, or that the whole log was rewritten by a person who can compute digests: only a digest that was kept
    elsewhere can (``head``).

    Args:
        folder: Folder of the log.
        policy: The policy that the log names; None to follow the chain alone.
        head: Digest of a last line that was kept elsewhere; None for none.
        allow_gaps: Whether a log may have holes, and go on from states to which no line has led.
        why_not: Why there is no policy.

    Raises:
        FileNotFoundError: If there is no log.
    """
    files = files_of(Path(folder))
    if not files:
        raise FileNotFoundError(f"no log in {os.fspath(folder)!r}")
    by = None if policy is None else Following(policy, Path(folder), verify=True)
    found = Verified(
        num_files=len(files),
        allowed=allow_gaps,
        anchor=None if head is None else 0,
        unverified="" if by is not None else why_not,
    )
    last = 0
    try:
        for line in standing(_read(Path(folder), head, found)):
            said, is_led_to = line.content, False
            if by is not None and not found.unverified:
                try:
                    is_led_to = by.take(line)
                except NotKeptError as error:
                    found.unverified = str(error)
            if isinstance(said, BegunLine) and said.start is not None:
                goes_on = bool(found.unverified) and said.round == last > 0
                if not is_led_to and not goes_on:
                    found.starts += (Start(line.number, last, said.round),)
                    last = said.round
            elif isinstance(said, DecidedLine):
                found.num_rounds += 1
                found.num_not_begun += bool(said.not_begun)
                found.first_round = found.first_round or said.round
                found.last_round = last = said.round
        found.torn = torn_bytes(Path(folder))
    except LogFileError as error:
        found.flaw = str(error)
    if by is not None:
        found.num_decided, found.num_unknown = by.num_decided, by.num_unknown
        found.differences = tuple(by.differences)
        if not found.unverified and by.num_unknown and not by.num_decided:
            found.unverified = "the log has no contexts of clients outside the cohorts"
    return found


# -------------------------------------------------------------------- deciding again


class Books(Protocol):
    """What books events: a selector, or the policy of a simulation."""

    def decide(self, asked: Asked, /, *, explain: bool) -> Decided:
        """Decide a round without booking it."""
        ...

    def apply(self, event: Event, /) -> Event:
        """Book an event, and return it as it was booked."""
        ...


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
