"""Reads a log: its rounds, the selector that wrote it, and whether it is what it says."""

from __future__ import annotations

import bisect
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.catalogue import policy_of_label
from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.checks import shown
from fedroster.core.errors import FedrosterError, LogFileError, UnknownNameError
from fedroster.core.ids import ClientId
from fedroster.core.problem import Status
from fedroster.core.protocols import AnyPolicy, missing_signals
from fedroster.folder.arrays import unpack_ints
from fedroster.folder.chain import (
    Line,
    files_of,
    lines_of,
    name_of_log,
    parse,
    raw_lines,
    read_snapshot,
    standing,
    torn_bytes,
)
from fedroster.folder.events import BegunLine, Decided, Joined, Left, Observer, Set, Told
from fedroster.folder.lines import (
    FIRST,
    OPEN,
    AnyLine,
    DecidedLine,
    ToldLine,
    UndoneLine,
    event_of,
    read_told,
)
from fedroster.record.following import Following, members_in
from fedroster.selector import Selector, go_on
from fedroster.selector.members import Members

_EPOCH_S = 1e8  # a simulation's clock begins at 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRound(Decided):
    """A round as it is in the log: the decision, whose beliefs are of all slots, and what came of it.

    Attributes:
        members: Which slots' clients were members, shape (slots,).
        contexts: Contexts as the caller told them, shape (slots, D), NaN where none; None where they are not kept, or
            links to edge servers have them.
        status: How each exchange ended (:class:`~fedroster.types.Status`), shape (k,); 255 while nothing is known.
        exchange_time_s: Times as they were told, shape (k,), seconds; NaN where none was.
        learned_s: Times as the policy learned them, in the same form.
        round_s: How long the round took by the server's clock, seconds; NaN where it is not known.
        line: Number of the decision's line.
        rules: Rules in force (:meth:`~fedroster.Rules.as_table`); empty for none, a digest where ids are hashed.
    """

    members: BoolArray
    contexts: FloatArray | None
    status: StatusArray
    exchange_time_s: FloatArray
    learned_s: FloatArray
    round_s: float
    line: int
    rules: Mapping[str, Any]

    @property
    def used_s(self) -> float:
        """Time until the last update that was used, seconds; NaN without one."""
        times_s = self.exchange_time_s[self.status == Status.COMPLETED]
        return float(np.fmax.reduce(times_s, initial=math.nan))

    @property
    def available(self) -> BoolArray:
        """Which slots' clients were available, shape (slots,)."""
        return self.seen

    @property
    def at(self) -> str:
        """When it was decided, as people read it: date and time in UTC (Z), or seconds of a simulation."""
        if self.at_s < _EPOCH_S:
            return f"{self.at_s:,.0f} s"
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(self.at_s))


class _Place:
    """Where a round's line is, and what was reported of the round."""

    def __init__(self, line: Line, round: int, chosen: IntArray, changes: int, rules: Mapping[str, Any]) -> None:
        self.rules = rules
        self.line = line.number
        self.file = line.file
        self.offset = line.offset
        self.changes = changes
        self.round = round
        self.chosen = chosen.astype(np.int32)
        self.status = np.full(chosen.shape, OPEN, np.uint8)
        self.time_s = np.full(chosen.shape, math.nan)
        self.learned_s = np.full(chosen.shape, math.nan)
        self.round_s = math.nan

    def answer(self, answer: Told) -> None:
        """Note what was reported."""
        told = answer.feedback
        if not np.isin(told.client, self.chosen).all():
            raise LogFileError(f"a client answers round {self.round} that was not chosen in it")
        order = np.argsort(self.chosen)
        found = order[np.searchsorted(self.chosen[order], told.client)]
        self.status[found] = told.status
        self.time_s[found], self.learned_s[found] = told.exchange_time_s, answer.learned_s
        if answer.round_s is not None and math.isnan(self.round_s):  # later ones are of stragglers
            self.round_s = answer.round_s


class _Memberships:
    """The members at each time: changes one after the other."""

    def __init__(self, folder: Path) -> None:
        """Begin without changes."""
        self._folder = folder
        self.changes: list[Line] = []
        self._done, self._members = 0, Members()

    def at(self, count: int | None = None) -> Members:
        """The members after so many changes, or after all; cheapest when it is asked for in order."""
        count = len(self.changes) if count is None else count
        if count < self._done:
            self._done, self._members = 0, Members()
        for line in self.changes[self._done : count]:
            try:
                self._book(line.content)
            except (FedrosterError, TypeError, ValueError, LookupError) as error:
                raise LogFileError(f"line {line.number}: {shown(error, str)}") from error
        self._done = count
        return self._members

    def _book(self, said: AnyLine) -> None:
        if isinstance(said, BegunLine) and said.start is not None:
            self._members = members_in(read_snapshot(self._folder, said.start))
        elif isinstance(event := event_of(said, self._members), Joined | Left):
            self._members.book(event)


class Log:
    """The log in a folder, as it is now; a line that a killed writer has left half written is passed over.

    Example:
        >>> import tempfile
        >>> from fedroster import Floor, Record, Selector
        >>> folder = tempfile.mkdtemp()
        >>> selector = Selector(Floor(), cohort_size=1, clients=["a", "b"], observers=[Record(folder)])
        >>> cohort = selector.select()
        >>> selector.observe(cohort.round, times_s={cohort.clients[0]: 2.0})
        >>> log = Log(folder)
        >>> [float(round.exchange_time_s[0]) for round in log.rounds]
        [2.0]

    Attributes:
        folder: The folder.
        header: What the log says of itself in its first line.
        head: Digest of its last line, to be kept elsewhere: it proves that nothing was cut off or rewritten.
        num_lines: How many lines it has.
        torn: Bytes of a last line that is not whole.
        rounds: Its rounds; each is read when it is asked for.
        changes_policy: Whether it has another policy, of the same class, in force from some round on.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Read a log from its first line to its last, keeping what was reported, and where the rounds are.

        Raises:
            FileNotFoundError: If there is no log.
            LogFileError: If a line is damaged, missing, or not the one that the next one knows.
        """
        self.folder = Path(folder)
        self.head = FIRST
        self.num_lines = 0
        self.torn = torn_bytes(self.folder)
        self._places: list[_Place] = []
        self._memberships = _Memberships(self.folder)
        self._rules: Mapping[str, Any] = {}
        self._tells_losses = self.changes_policy = False
        self._last: Line | None = None
        self.rounds: Sequence[LoggedRound] = _LoggedRounds(self._places, self._memberships)
        self.read_on()
        if self._last is None:
            if self.torn:
                raise LogFileError(
                    f"the log in {os.fspath(folder)!r} has {self.torn} bytes of its first line and no more"
                )
            raise FileNotFoundError(f"no log in {os.fspath(folder)!r}: {len(files_of(self.folder))} files, no line")

    def read_on(self) -> list[int] | None:
        """Read what was written since, and nothing that was read before.

        Returns:
            The rounds that were decided or answered since, in order; None where what was read no longer holds, because
            its last line was taken back or a process began from an earlier state: make a new ``Log`` then.

        Raises:
            LogFileError: As when a log is made.
        """
        begins = self._last is None
        found: set[int] = set()
        held: Line | None = None
        for line in lines_of(self.folder, after=self._last):
            is_undone = isinstance(line.content, UndoneLine)
            if self._last is None:
                self.header, self._begins = _header(line), line.number
            elif not begins and (self._jumps(line) or (is_undone and held is None)):
                return None
            self._last = line
            self.head = line.digest
            self.num_lines = line.number
            if held is not None and not is_undone:
                found.add(self._keep(held))
            held = None if is_undone else line
        if held is not None:
            found.add(self._keep(held))
        return sorted(found - {0})

    def _jumps(self, line: Line) -> bool:
        """Whether a line goes on from a state to which the lines before it, if there are any, do not lead."""
        said = line.content
        if not isinstance(said, BegunLine) or said.start is None:
            return False
        return not said.follows or line.number == self._begins

    def _keep(self, line: Line) -> int:
        """Keep what a line says; the round that it is about, and 0 for none that is in the log."""
        memberships, said = self._memberships, line.content
        if isinstance(said, BegunLine | Set):
            self._rules = said.settings.rules.table
            self.changes_policy |= isinstance(said, Set) and bool(said.policy)
        try:
            if isinstance(said, Joined | Left):
                memberships.changes.append(line)
            elif isinstance(said, BegunLine) and self._jumps(line):
                while self._places and self._places[-1].round > said.round:  # decided, and lost before it was saved
                    self._places.pop()
                memberships.changes.append(line)
            elif isinstance(said, DecidedLine):
                capacity = memberships.at().capacity
                chosen = unpack_ints(said.chosen, below=capacity, most=capacity, order="distinct")
                place = _Place(line, said.round, chosen, len(memberships.changes), self._rules)
                if self._places and place.round <= self._places[-1].round:
                    raise LogFileError(f"round {place.round} follows round {self._places[-1].round}")
                self._places.append(place)
                return place.round
            elif isinstance(said, ToldLine):
                self._tells_losses |= said.loss is not None or said.signature is not None
                answer = read_told(said, memberships.at().capacity)
                if (number := self._number_of(answer.round)) >= 0:  # else it was decided before the log began
                    self._places[number].answer(answer)
                    return answer.round
        except LogFileError as error:
            raise LogFileError(f"line {line.number}: {error}") from error
        return 0

    @property
    def lacks(self) -> str:
        """What its policy learns from and was never told, in a sentence; empty for nothing, or a foreign policy."""
        try:
            policy = policy_of_label(self.header.policy)
        except FedrosterError:
            return ""
        found = missing_signals(policy, losses=self._tells_losses, contexts=True, deadline=True)
        return f"The policy learns from {' and '.join(found)}, and none were told." if found and self.rounds else ""

    @property
    def ids(self) -> list[ClientId | None]:
        """Id of each slot at the end of the log; None for one that is free."""
        return self._ids_after(None)

    def ids_at(self, round: int) -> list[ClientId | None]:
        """Id of each slot in a round."""
        return self._ids_after(self.memberships_at(round))

    def _ids_after(self, changes: int | None) -> list[ClientId | None]:
        members = self._memberships.at(changes)
        return [*members.ids, *[None] * (members.capacity - len(members.ids))]

    def memberships_at(self, round: int) -> int:
        """How many times clients had joined or left before a round: where it is the same, so are :meth:`ids_at`."""
        return self._places[self._place(round)].changes

    def _number_of(self, round: int) -> int:
        """How many rounds are before one; -1 if the log has none of this number."""
        number = bisect.bisect_left(self._places, round, key=lambda place: place.round)
        return number if self._places[number : number + 1] and self._places[number].round == round else -1

    def _place(self, round: int) -> int:
        if (number := self._number_of(round)) < 0:
            known = f"{self._places[0].round}..{self._places[-1].round}" if self._places else "none"
            raise UnknownNameError(f"round {round} is not in the log; expected one of {known}")
        return number

    def find(self, round: int) -> LoggedRound:
        """A round by its number.

        Raises:
            UnknownNameError: If the log has no such round.
        """
        return self.rounds[self._place(round)]

    def selector(self, policy: AnyPolicy, *, observers: Iterable[Observer] = ()) -> Selector:
        """Rebuild the selector that wrote the log: its next decisions equal those of the original.

        Args:
            policy: The policy; a log never says which code to run.
            observers: As for :class:`~fedroster.Selector`; with a :class:`~fedroster.Record` of the same folder it goes
                on in the same log.

        Raises:
            LogFileError: If the log is of another policy, of a simulation, or its lines lead to another state than they
                tell, as those of some policies do where contexts are not kept.
        """
        if self.header.of == "simulation":
            raise LogFileError("the log is of a simulation, which has no selector; run fedroster simulate again")
        following = Following(policy, self.folder)
        for line in standing(lines_of(self.folder)):
            following.take(line)
        if not isinstance(following.books, Selector):
            raise LogFileError("no line of the log says which policy decides")
        place = {"line": self.num_lines, "digest": self.head, "log": name_of_log(self.folder)}
        return go_on(following.books, observers, place, {})


class _LoggedRounds(Sequence[LoggedRound]):
    """Rounds that are read when they are asked for; cheapest one after the other."""

    def __init__(self, places: list[_Place], memberships: _Memberships) -> None:
        self._places, self._memberships = places, memberships

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return _LoggedRounds(self._places[index], self._memberships)
        place = self._places[index]
        offset, text, _ = next(raw_lines(place.file, place.offset), (place.offset, b"", False))
        line = parse(text, place.file, offset)
        members = self._memberships.at(place.changes)
        decided = event_of(line.content, members)
        if line.number != place.line or not isinstance(decided, Decided):
            raise LogFileError(f"line {place.line} of {place.file.name!r} is another one now: the log was changed")
        here = members.here.copy()
        asked = decided.asked
        contexts = None
        if asked.members is not None:  # a simulation's: which of the joined clients are away
            here &= asked.members
        if asked.known and asked.links is None:
            contexts = np.full((decided.capacity, asked.rows.shape[1]), np.nan)
            contexts[asked.slot] = asked.rows
        said = {each.name: getattr(decided, each.name) for each in fields(decided)}
        return LoggedRound(
            **said | {name: _by_slot(said[name], decided) for name in ("expected_s", "owed")},
            members=here,
            contexts=contexts,
            status=place.status.copy(),
            exchange_time_s=place.time_s.copy(),
            learned_s=place.learned_s.copy(),
            round_s=float(place.round_s),
            line=place.line,
            rules=place.rules,
        )


def _by_slot(values: FloatArray | None, decided: Decided) -> FloatArray | None:
    """Values by slot; where only those of the cohort are kept, NaN for all others."""
    if values is None or values.shape[0] == decided.capacity:
        return values
    of_slots = np.full(decided.capacity, math.nan)
    of_slots[decided.chosen] = values
    return of_slots


def _header(line: Line) -> BegunLine:
    begun = line.content
    if not isinstance(begun, BegunLine):
        raise LogFileError(f"the log begins with a {type(begun).__name__}; expected the line that begins a log")
    if not 0 <= begun.settings.seed < 2**4096:
        raise LogFileError(f"seed is {shown(begun.settings.seed)}; expected a number in 0..2^4096")
    return begun
