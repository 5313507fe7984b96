"""The observer that keeps a federation in a folder: lines that are never changed, and states."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from fedroster.core.checks import check_choice, check_flag, check_integer, path_of, shown
from fedroster.core.errors import ConfigurationError, LogFileError, StateFileError
from fedroster.core.ids import ClientId, ClientSlots
from fedroster.core.locks import FolderLock
from fedroster.core.sources import code
from fedroster.core.state import load_arrays, remove_leftovers, save_arrays
from fedroster.folder.chain import (
    Line,
    Writer,
    files_of,
    first_line_of,
    lines_of,
    name_of_log,
    newest_start,
    standing,
    write_snapshot,
)
from fedroster.folder.events import (
    BegunLine,
    Decided,
    Event,
    Joined,
    Left,
    Noted,
    Observer,
    Set,
    Snapshot,
    Told,
)
from fedroster.folder.lines import (
    AnyLine,
    DecidedLine,
    UndoneLine,
    event_of,
    hashed,
    hidden,
    line_of,
)
from fedroster.folder.settings import RulesSaid

_logger = logging.getLogger(__name__)

_LEAST_BYTES = 4096
_STATE_ROUNDS = 100  # after which a restart need not book what came before
_OPEN_IT = "expected Selector.open, which begins with the newest state"
_STATE = re.compile(r"(state|snapshot)-(\d{12})\.npz")


class Record:
    """Keeps everything that happens to a selector in a folder: its log, and now and then its whole state.

    Example:
        >>> import tempfile
        >>> from fedroster import Floor, Record, Selector
        >>> folder = tempfile.mkdtemp()
        >>> selector = Selector(Floor(), cohort_size=1, clients=["a", "b"], observers=[Record(folder)])
        >>> cohort = selector.select()
        >>> from fedroster.record import Log
        >>> len(Log(folder).rounds)
        1

    A decision is on the disk before it is booked, so a log is never behind what clients received.  Answers are written
    before they are learned, and are on the disk with the next line.  The state is kept at each start, at the beginning
    of each file and every 100 rounds, so that a restart books the lines after it alone; and after a decision whose
    booking reads more than its line holds.

    Attributes:
        folder: The folder of the log.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        contexts: bool = True,
        key: bytes | None = None,
        rotate_bytes: int = 2**24,
        on_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        """Begin a log, or go on with one.

        Args:
            folder: Its folder, which is made, and held against a second writer.
            contexts: Whether to keep the contexts of all clients.  Without them the log is smaller, and cannot be
                verified to the last decision.
            key: Secret of at least 16 bytes, by which ids are replaced by hashes wherever they are kept; None keeps
                ids as they are.
            rotate_bytes: Size at which a file is closed and the next one begins; each day has files of its own.
            on_error: Whether a decision that cannot be written, as on a full disk, ends the call, and the decision is
                not taken, or is only warned of; the log then goes on from a copy of the selector's state, and says that
                lines are missing.

        Raises:
            ConfigurationError: If an argument is out of its range.
            InUseError: If another process holds the folder.
            LogFileError: If the newest file is damaged beyond a torn last line, which is cut off, or the log was begun
                with another key.
        """
        check_flag("contexts", contexts)
        check_integer("rotate_bytes", rotate_bytes, least=_LEAST_BYTES)
        check_choice("on_error", on_error, ("raise", "warn"))
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigurationError(f"key is a {type(key).__name__}; expected at least 16 secret bytes, or None")
        self.folder, self._key = Path(path_of(folder)), key
        self._mark = key is not None and hashed(key, "")  # what the log says of the key
        self._contexts, self._on_error = bool(contexts), on_error
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.folder)
        try:
            remove_leftovers(self.folder)
            self._writer = Writer(self.folder, rotate_bytes=int(rotate_bytes))
            self._log = name_of_log(self.folder)
            begun = next((each.content for each in self._newest_lines() if isinstance(each.content, BegunLine)), None)
            if begun is not None and begun.hashed not in (self._mark, key is not None):
                raise LogFileError(f"{os.fspath(self.folder)!r} was begun with another key or none; expected its own")
        except BaseException:
            self._lock.release()
            raise
        self._began: BegunLine  # as it stands now, from begin() on
        self._is_closed = False
        self._is_ours = False  # whether the log has a line of this selector
        self._unbooked: int | None = None
        self._has_gap = self._owes_state = False
        self._hashes: set[ClientId] = set()  # that stand for members whose ids have not been said
        self._tried: Line | None = None  # the last line that was to be booked again
        self._is_level: bool | None = None  # whether all lines were; None if none was to be

    def close(self) -> None:
        """Close the log, and let others have its folder; what happens from now on is not kept."""
        self._is_closed = True
        self._writer.close()
        self._lock.release()

    def __reduce__(self) -> Any:
        """Refuse to be copied: two writers would spoil one log."""
        raise ConfigurationError("a record cannot be copied: a log has one writer")

    @property
    def place(self) -> dict[str, Any] | None:
        """The last line's number and digest, which log it is of, and whether what came after it is missing."""
        if not self._writer.number:
            return None
        return {"line": self._writer.number, "digest": self._writer.digest, "log": self._log, "gap": self._has_gap}

    def alias(self, client: ClientId) -> ClientId:
        """What the log has in place of an id."""
        return client if self._key is None or client in self._hashes else hashed(self._key, client)

    def drop_before(self, round: int) -> list[str]:
        """Remove the oldest files: those without a round from a number on, and before a file that begins with a state.

        The log then begins with that state, which no line leads to any more; :func:`~fedroster.record.verify` says so.

        Args:
            round: The first round that stays.

        Returns:
            Names of the files that were removed.
        """
        check_integer("round", round, least=1)
        keep = newest_start(files := files_of(self.folder), round)
        first = first_line_of(files[keep]) if files else 0
        states = sorted(file for number, file in self._states() if number < first - 1)
        dropped = [*files[:keep], *states]
        for file in dropped:  # the oldest first: what a kill leaves begins later
            file.unlink()
        return [file.name for file in dropped]

    # ---------------------------------------------------------------- what is there

    def _states(self) -> list[tuple[int, Path]]:
        """Kept states, the newest first, and the number of the last line before each."""
        found = ((_STATE.fullmatch(file.name), file) for file in self.folder.iterdir())
        return sorted(((int(match[2]), file) for match, file in found if match), reverse=True)

    def _newest_lines(self) -> Iterator[Line]:
        """The lines of the newest file; the first says how it begins."""
        return lines_of(self.folder, start=max(map(first_line_of, files_of(self.folder)), default=1))

    def beginning(self, rules: RulesSaid, *, has_state: bool) -> BegunLine:
        """How the log begins; with a key, and a state that has what was decided under other rules, with its last ones.

        A hash of rules may stand for ``rules``.

        Raises:
            LogFileError: If it has a hash of other rules.
        """
        said = next(lines_of(self.folder)).content
        for line in standing(self._newest_lines()) if self._key and has_state else ():
            if isinstance(line.content, BegunLine | Set):
                said = replace(said, settings=line.content.settings)
        named = self._named(said, None, [rules])
        if not isinstance(named, BegunLine):
            raise LogFileError(f"{os.fspath(self.folder)!r} begins with a {type(named).__name__}; expected a beginning")
        return named

    def newest(self, kind: str) -> Snapshot | None:
        """The newest state that is kept, whose header has its place in the log; None for none.

        Raises:
            LogFileError: If it is of another log.
        """
        for _, file in self._states():
            try:
                arrays, header = load_arrays(file, kind=kind)
            except StateFileError as error:
                _logger.warning("a kept state is passed over: %s", error)
                continue
            if not isinstance(place := header.get("place"), dict) or place.get("gap"):
                continue
            number, digest = self._place_of(place)
            if number <= self._writer.number:
                try:
                    self._after(number, digest)
                except LogFileError:
                    continue
            self._hashes = set(header["ids"] if self._key else ())
            return header, arrays
        return None

    def _keep_state(self) -> None:
        """Keep the state after the last line, in place of the one before."""
        header, arrays = self._state(self.place)
        self._writer.sync()
        file = self.folder / f"state-{self._writer.number:012}.npz"
        save_arrays(file, arrays, header, kind=self._began.of, private=True)
        for old in self.folder.glob("state-*.npz"):
            if old != file:
                old.unlink()
        self._owes_state = False

    # ---------------------------------------------------------------- events

    def before(self, event: Event) -> None:
        """Write an event that is about to be booked; of a beginning, :meth:`begin` is told.

        Raises:
            OSError: If it cannot be written, unless that is only to be warned of.
        """
        if self._is_closed or isinstance(event, BegunLine):
            return
        try:
            self._write(event)
        except OSError as error:
            if self._on_error == "raise":
                raise
            self._has_gap = True
            _logger.warning("round %d is not in the log: %s", self._began.round, error)

    def __call__(self, event: Event, selector: Any) -> None:
        """Note that an event is booked."""
        if self._is_closed:
            return
        self._unbooked = None
        if isinstance(event, Decided):
            self._began.round = event.round
            asked = event.asked
            more = asked.given and not self._contexts and asked.slot.size > event.chosen.size
            self._owes_state |= (more and self._reads_all) or event.round % _STATE_ROUNDS == 0
            if self._owes_state and not self._has_gap:
                self._keep_state()
        elif isinstance(event, Set):
            policy = event.policy or self._began.policy
            self._know(replace(self._began, policy=policy, settings=event.settings))

    def _write(self, event: Set | Joined | Left | Decided | Told | Noted) -> None:
        if not self._is_ours and self._writer.number:
            raise LogFileError(
                f"{os.fspath(self.folder)!r} holds the log of {self._writer.number} lines, and this selector is "
                "new; expected an empty folder, or Selector.open"
            )
        if self._unbooked is not None:
            self._writer.append(UndoneLine(of=self._unbooked))
            self._unbooked = None  # whatever fails from here on: a line is taken back once
        if self._has_gap:
            self._begun(follows=False)
        elif not self._is_ours:
            self._begun(has_start=False)
        elif self._writer.is_full:
            self._begun()
        self._has_gap = False
        if self._owes_state or (self._key and isinstance(event, Set)):
            self._keep_state()
        if isinstance(event, Joined | Left):
            event = replace(event, clients=tuple(map(self.alias, event.clients)))
        line = line_of(event, contexts=self._contexts, key=self._key)
        if isinstance(line, DecidedLine):
            line.by = self._by
        # Answers come to the disk with the next line: a killed process loses none, a power cut the last ones.
        self._writer.append(line, sync=event.is_synced if isinstance(event, Noted) else not isinstance(event, Told))
        self._unbooked = self._writer.number

    def _know(self, began: BegunLine) -> None:
        """Take the policy and the settings under which decisions are made from now on."""
        self._began = began
        made = f"{began.policy} {hidden(began.settings, self._key)} {began.code} {sorted(self._code.items())}"
        self._by = hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()[:16]

    # ---------------------------------------------------------------- beginnings

    def begin(
        self,
        began: BegunLine,
        place: Any,
        snapshot: Callable[[], Snapshot],
        *,
        is_new: bool,
        reads_all: bool,
        policy_code: Mapping[str, str],
    ) -> None:
        """Take a selector: a new one writes with its first event, one that goes on writes now.

        Args:
            began: What it is, and what it follows.
            place: The place of the log to which it was rebuilt, unless it has booked what :meth:`missing` gave.
            snapshot: Gives its whole state, at any later time too.
            is_new: Whether it has neither members nor rounds.
            reads_all: Whether booking a decision reads the contexts of all clients.
            policy_code: As :func:`~fedroster.core.sources.code_of` gives it.
        """
        if self._is_closed:
            return
        self._snapshot = snapshot
        self._reads_all = reads_all
        self._code = policy_code
        self._know(replace(began, code=code(), contexts=self._contexts, hashed=self._mark))
        self._is_ours = False
        if is_new:
            return
        follows, self._is_level = self._is_level, None
        if follows is None and (follows := self._writer.number > 0):
            follows = all(isinstance(each.content, BegunLine) for each in self._after(*self._place_of(place)))
        for number, file in self._states():
            if number > self._writer.number or (file.name.startswith("state") and not follows):
                file.unlink()  # it does not count any more
        self._begun(follows=follows)

    def _place_of(self, place: Any) -> tuple[int, str]:
        """Number and digest of the last line that a selector's file knows.

        Raises:
            LogFileError: If it knows none of this log.
        """
        known = isinstance(place, dict) and type(place.get("line")) is int and isinstance(place.get("digest"), str)
        if not known or (place["line"] and place.get("log") != self._log):
            knows = f"that of another federation, up to line {place['line']}" if known else "none"
            raise LogFileError(
                f"{os.fspath(self.folder)!r} holds a log of {self._writer.number} lines, and the file of this "
                f"selector knows {knows}; expected an empty folder, or the log that it was saved beside"
            )
        return place["line"], place["digest"]

    def _after(self, number: int, digest: str) -> Iterator[Line]:
        """The lines after one that a selector's file knows, or that was dropped with the lines before it."""
        lines = lines_of(self.folder, start=max(number, 1))
        first = next(lines, None)
        if first is not None and (first.number, first.digest) == (number, digest):
            return lines
        if first is not None and (first.number, first.before) == (number + 1, digest):
            return itertools.chain([first], lines)
        raise LogFileError(
            f"line {number} of the log in {os.fspath(self.folder)!r} is not the one that the selector's file "
            "knows: it is the log of another federation, or was changed"
        )

    def missing(self, place: Any, members: ClientSlots, rules: Callable[[], Iterable[RulesSaid]]) -> Iterator[Event]:
        """The events after a place, for a selector that is loaded and lacks them, each when the one before is booked.

        Args:
            place: What the selector's file says of this log; None before its first line.
            members: The members before each event.
            rules: Gives rules that a hash may stand for.

        Raises:
            LogFileError: If it is a place of another log, no line leads on from there, a line cannot be read, or rules
                are hidden and not at hand.
        """
        self._is_level = False
        if not self._writer.number:
            return
        lines = lines_of(self.folder)
        if place is not None:
            number, digest = self._place_of(place)
            if number > self._writer.number:
                _logger.warning("the log ends before the selector's file, at line %d", self._writer.number)
                return
            if place.get("gap") and number == self._writer.number:
                return
            if place.get("gap"):
                raise LogFileError("the log goes on after a gap, in which the selector's file was saved; " + _OPEN_IT)
            lines = self._after(number, digest)
        begins = place and place.get("begins")
        for line in standing(lines):
            said, self._tried = self._named(line.content, members, rules()), line
            if isinstance(said, BegunLine) and said.start is not None and not said.follows and not begins:
                raise LogFileError(f"line {line.number} goes on from a state to which no line leads; " + _OPEN_IT)
            yield event_of(said, members)
            begins = False
        self._is_level = not begins

    def take_back(self) -> bool:
        """Take back the line that could not be booked again, if it is the last, of which no state knows.

        A state is kept before such a decision is acknowledged.
        """
        last = self._writer.number
        if self._tried is None or self._tried.number != last or any(number >= last for number, _ in self._states()):
            return False
        self._writer.append(UndoneLine(of=last))
        self._is_level = True
        return True

    def _named(self, said: AnyLine, members: ClientSlots | None, rules: Iterable[RulesSaid]) -> AnyLine:
        """What a line says, with the ids and rules that its hashes stand for; raises where it is none of ``rules``."""
        if self._key is None:
            return said
        if isinstance(said, BegunLine | Set) and said.settings.rules.digest:
            for each in rules:
                if hidden(named := replace(said.settings, rules=each), self._key) == said.settings:
                    return replace(said, settings=named)
            raise LogFileError(f"line {said.line} has a hash of rules; expected the same rules, as rules=")
        if isinstance(said, Joined | Left) and members is not None:
            ids = {self.alias(client): client for client in members.ids if client is not None}
            self._hashes |= set(said.clients) - ids.keys()
            return replace(said, clients=tuple(ids.get(client, client) for client in said.clients))
        return said

    def _begun(self, *, has_start: bool = True, follows: bool = True) -> None:
        """Write which policy decides, and from which state, to which the lines before lead or not."""
        began = self._began
        writer = self._writer
        start = None
        if has_start:
            place = {"line": writer.number, "digest": writer.digest, "log": self._log, "begins": not follows}
            start = write_snapshot(self.folder, writer.number, began.of, self._state(place))
        settings, follows = hidden(began.settings, self._key), has_start and follows
        writer.append(replace(began, settings=settings, start=start, follows=follows, repaired=writer.repaired))
        self._log = self._log or self._writer.digest
        self._is_ours, self._unbooked = True, None
        self._writer.repaired = 0

    def _state(self, place: Any) -> Snapshot:
        """The selector's state without names if there is a key, and the place of the log that has led to it."""
        header, arrays = self._snapshot()
        header |= {"place": place, "log": self._log}
        if self._key is not None:
            header["ids"] = [None if client is None else self.alias(client) for client in header["ids"]]
            if self._began.settings.rules.name_clients:
                header["settings"] |= {"rules": {}}
        return header, arrays


class Observers:
    """The observers of one selector.  A copy of the selector has none: two writers would spoil one log.

    Attributes:
        record: The record among them; None for none.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        """Look on from now on.

        Raises:
            ConfigurationError: If one cannot be called, or there are two records.
        """
        self._observers = tuple(observers) if isinstance(observers, Iterable) else (observers,)
        for observer in self._observers:
            if not callable(observer):
                raise ConfigurationError(f"an observer is {shown(observer)}; expected a callable of event and selector")
        records = [each for each in self._observers if isinstance(each, Record)]
        if len(records) > 1:
            raise ConfigurationError(f"{len(records)} records are among the observers; expected one")
        self.record = records[0] if records else None

    def __reduce__(self) -> tuple[type[Observers], tuple[()]]:
        """Copy nothing."""
        return Observers, ()

    def __iter__(self) -> Iterator[Observer]:
        """One after the other."""
        return iter(self._observers)

    def after(self, event: Event, selector: Any) -> None:
        """Tell of an event that is booked."""
        for observer in self._observers:
            try:
                observer(event, selector)
            except Exception:  # rounds go on without their dashboards
                _logger.exception("an observer failed: %s", type(observer).__name__)
