"""The observer that keeps the log of a federation."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from fedroster.core.checks import check_choice, check_flag, check_integer, shown
from fedroster.core.errors import ConfigurationError, LogFileError
from fedroster.core.ids import Roster
from fedroster.core.locks import FolderLock
from fedroster.core.sources import code
from fedroster.core.state import save_arrays
from fedroster.folder.chain import Line, Writer, lines_of, standing
from fedroster.folder.events import Began, Decided, Event, Joined, Left, Noted, Set, Told
from fedroster.folder.lines import (
    AnyLine,
    BegunLine,
    DecidedLine,
    GapLine,
    JoinedLine,
    LeftLine,
    SettingsLine,
    Start,
    UndoneLine,
    began_of,
    event_of,
    hashed,
    line_of,
    settings_said,
)
from fedroster.folder.snapshots import read_snapshot, write_snapshot
from fedroster.version import __version__

_log = logging.getLogger(__name__)

_LEAST_BYTES = 4096
_STATE = "state.npz"
_ANY = {"cohort_size": 1, "seed": 0}  # settings around rules


class Record:
    """Keeps an append-only log of every decision and all feedback of a selector.

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
    before they are learned, and are on the disk with the next line.  A loaded selector
    continues the same log. If a process was killed between log and file, the selector first books what the file lacks.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        contexts: bool = True,
        key: bytes | None = None,
        rotate_bytes: int = 2**24,
        on_error: Literal["raise", "warn"] = "raise",
        state_rounds: int = 0,
    ) -> None:
        """Open or begin a log, and hold its folder.

        Args:
            folder: Folder of the log; it is made if it does not exist.
            contexts: Whether to keep the contexts of all clients, which verifying the decisions takes; those of the
                cohort are kept in any case.
            key: Secret of at least 16 bytes: ids stand in the log as their HMAC-SHA-256; None for the ids themselves.
            rotate_bytes: Size at which a file is closed and compressed, and a new one begun; so it is when a day (UTC)
                ends.
            on_error: Whether a line that cannot be written ends the call, and the decision is not taken, or is only
                warned of; the log then goes on from a copy of the selector's state, and says that lines are missing.
            state_rounds: Every so many rounds the selector's whole state is kept beside the log, so that a restart
                books the lines after it alone; 0 for never.  It holds ids as they are.

        Raises:
            ConfigurationError: If an argument is out of its range.
            InUseError: If another process holds the folder.
            LogFileError: If the newest file is damaged beyond a torn last line, which is cut off.
        """
        check_flag("contexts", contexts)
        check_integer("rotate_bytes", rotate_bytes, least=_LEAST_BYTES)
        check_choice("on_error", on_error, ("raise", "warn"))
        check_integer("state_rounds", state_rounds, least=0)
        if state_rounds and key is not None:
            raise ConfigurationError("a kept state holds ids as they are; expected state_rounds = 0 with a key")
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigurationError(f"key is a {type(key).__name__}; expected at least 16 secret bytes, or None")
        if not isinstance(folder, str | os.PathLike):
            raise ConfigurationError(f"folder is {shown(folder)}; expected the path of a folder")
        self._folder, self._key = Path(folder), key
        self._contexts, self._on_error, self._state_rounds = bool(contexts), on_error, int(state_rounds)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self._folder)
        try:
            self._writer = Writer(self._folder, rotate_bytes=int(rotate_bytes))
        except BaseException:
            self._lock.release()
            raise
        self._began: Began | None = None
        self._settings: Mapping[str, Any] = {}  # of the selector, now
        self._round = 0
        self._by = ""
        self._is_ours = False  # whether the log has a line of this selector
        self._unbooked: int | None = None
        self._has_gap = False
        self._caught: tuple[int, str] | None = None  # number and digest of the last line that was booked again
        self._redone = 0

    def close(self) -> None:
        """Close the log, and let others have its folder."""
        self._writer.close()
        self._lock.release()

    @property
    def folder(self) -> Path:
        """The folder of the log."""
        return self._folder

    def __reduce__(self) -> Any:
        """Refuse to be copied: two writers would spoil one log."""
        raise ConfigurationError("a record cannot be copied: a log has one writer")

    @property
    def place(self) -> dict[str, Any] | None:
        """The last line's number and digest, and whether what came after it is missing."""
        if not self._writer.number:
            return None
        return {"line": self._writer.number, "digest": self._writer.digest, "gap": self._has_gap}

    # ---------------------------------------------------------------- what is there

    @property
    def state(self) -> Path | None:
        """The file with the newest state that was kept; None without any."""
        file = self._folder / _STATE
        return file if file.is_file() else None

    def beginning(self) -> tuple[Began, Path | None]:
        """How the log begins, and the file of the state that it begins from, if there is one.

        Raises:
            LogFileError: If it has no first line, or hashes in place of ids.
        """
        said = next(lines_of(self._folder)).content
        if not isinstance(said, BegunLine) or said.hashed:
            raise LogFileError(f"{os.fspath(self._folder)!r} has hashes in place of ids; expected a log with ids")
        began = began_of(said)
        if said.start is not None:
            read_snapshot(self._folder, said.start)
        return began, None if said.start is None else self._folder / said.start.file

    def _keep_state(self) -> None:
        began = self._known()
        if began.snapshot is not None:
            header, arrays = began.snapshot()
            save_arrays(self._folder / _STATE, arrays, header, kind=began.kind, private=True)

    # ---------------------------------------------------------------- events

    def before(self, event: Event, selector: Any) -> None:
        """Write an event that is about to be booked.

        Raises:
            OSError: If it cannot be written, unless that is only to be warned of.
        """
        if isinstance(event, Began):
            self._begin(event)
            return
        try:
            self._write(event)
        except OSError as error:
            if self._on_error == "raise":
                raise
            self._has_gap = True
            _log.warning("round %d is not in the log: %s", self._round, error)

    def __call__(self, event: Event, selector: Any) -> None:
        """Note that an event is booked."""
        self._unbooked = None
        if isinstance(event, Decided):
            self._round = event.round
            if self._state_rounds and event.round % self._state_rounds == 0 and not self._has_gap:
                self._keep_state()
        elif isinstance(event, Set):
            self._know(event.settings)

    def _write(self, event: Set | Joined | Left | Decided | Told | Noted) -> None:
        if not self._is_ours and self._writer.number:
            raise LogFileError(
                f"{os.fspath(self._folder)!r} holds the log of {self._writer.number} lines, and this selector is "
                "new; expected an empty folder, or a selector that is loaded (Selector.load, Log.selector)"
            )
        if self._has_gap and self._is_ours:
            settings = settings_said(self._settings, self._key)
            self._writer.append(GapLine(round=self._round, start=self._snapshot(), settings=settings))
        elif not self._is_ours:
            self._begun(start=self._snapshot() if self._has_gap else None)
        elif self._unbooked is not None:
            self._writer.append(UndoneLine(of=self._unbooked))
        self._has_gap, self._unbooked = False, None
        line = line_of(event, contexts=self._contexts, key=self._key)
        if isinstance(line, DecidedLine):
            line.by = self._by
        # Answers come to the disk with the next line: a killed process loses none, a power cut the last ones.
        self._writer.append(line, sync=not isinstance(event, Told))
        self._unbooked = self._writer.number

    def _know(self, settings: Mapping[str, Any]) -> None:
        """Take the settings under which decisions are made from now on."""
        began = self._known()
        self._settings = settings
        said = settings_said(settings, self._key)
        made = f"{began.policy} {said} {code()} {sorted(began.code.items())}"
        self._by = hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()[:16]

    def _known(self) -> Began:
        if self._began is None:
            raise LogFileError("no selector has begun in this record; expected Selector(..., observers=[record])")
        return self._began

    # ---------------------------------------------------------------- beginnings

    def _begin(self, event: Began) -> None:
        """Take a selector: a new one writes with its first event, one that goes on writes now."""
        self._began, self._round = event, event.round
        self._know(event.settings)
        self._is_ours = False
        if not event.round and event.place is None:
            return
        self._begun(start=None if self._is_known(event.place) else self._snapshot(event.place))

    def _is_known(self, place: Any) -> bool:
        """Whether a selector that was at a place of the log knows all of it.

        Raises:
            LogFileError: If it is a place of another log.
        """
        if not self._writer.number:
            return False
        number, digest = self._place_of(place) if self._caught is None else self._caught
        if number > self._writer.number or (self._caught is None and place.get("gap")):
            _log.warning("the log ends before the selector's file, at line %d", self._writer.number)
            return False
        return all(isinstance(line.content, BegunLine) for line in self._after(number, digest))

    def _place_of(self, place: Any) -> tuple[int, str]:
        """Number and digest of the last line that a selector's file knows."""
        known = isinstance(place, dict) and type(place.get("line")) is int and isinstance(place.get("digest"), str)
        if not known:
            raise LogFileError(
                f"{os.fspath(self._folder)!r} holds a log, and the file of this selector knows of none; "
                "expected an empty folder"
            )
        return place["line"], place["digest"]

    def _after(self, number: int, digest: str) -> Iterator[Line]:
        """The lines after one that a selector's file knows."""
        lines = lines_of(self._folder, start=max(number, 1))
        known = next(lines, None)
        if known is None or (known.number, known.digest) != (number, digest):
            raise LogFileError(
                f"line {number} of the log in {os.fspath(self._folder)!r} is not the one that the selector's file "
                "knows: it is the log of another federation, or was changed"
            )
        return lines

    def missing(self, place: Any, members: Roster, rules: Callable[[], Mapping[str, Any]]) -> Iterator[Event]:
        """The events after a place, for a selector that is loaded and lacks them.

        Ids and rules stand in the log as hashes if it has a key; it ends before one that the selector does not know.

        Args:
            place: What the selector's file says of this log; None before its first line.
            members: The members before each event.
            rules: Gives the rules before each event, by :meth:`~fedroster.Rules.as_table`.

        Yields:
            Each event when the one before is booked.

        Raises:
            LogFileError: If it is a place of another log, or a line cannot be read.
        """
        if not self._writer.number:
            return
        lines = lines_of(self._folder)
        if place is not None:
            known = self._place_of(place)
            if known[0] > self._writer.number or place.get("gap"):
                return
            lines = self._after(*known)
        for line in standing(lines):
            said = self._named(line.content, members, rules())
            if said is None or getattr(said, "start", None) is not None:
                return
            yield event_of(said, members)
            self._caught, self._redone = (line.number, line.digest), self._redone + 1

    def _named(self, said: AnyLine, members: Roster, rules: Mapping[str, Any]) -> AnyLine | None:
        """What a line says with the ids and rules that its hashes stand for; None where they are not known."""
        if self._key is None:
            return said
        if isinstance(said, BegunLine | GapLine | SettingsLine) and said.settings.rules.digest:
            hidden, told = (settings_said({**_ANY, "rules": rules}, key).rules for key in (self._key, None))
            return replace(said, settings=replace(said.settings, rules=told)) if hidden == said.settings.rules else None
        if isinstance(said, JoinedLine | LeftLine):
            ids = {hashed(self._key, client): client for client in members.ids if client is not None}
            if not ids.keys() >= set(said.clients):
                return None
            return replace(said, clients=[ids[str(client)] for client in said.clients])
        return said

    def _begun(self, *, start: Start | None = None) -> None:
        """Write which policy decides, and from which state."""
        began = self._known()
        line = BegunLine(
            of=began.kind,  # type: ignore[arg-type]
            fedroster=__version__,
            code=code(),
            policy=began.policy,
            settings=settings_said(self._settings, self._key),
            num_features=began.num_features,
            draws=began.draws,
            contexts=self._contexts,
            hashed=self._key is not None,
            round=self._round,
            start=start,
            redone=self._redone,
            repaired=self._writer.repaired,
        )
        self._writer.append(line)
        self._is_ours, self._unbooked = True, None

    def _snapshot(self, place: Any = None) -> Start:
        """Keep the selector's state beside the log, and the place of the log that has led to it, if one has."""
        began = self._known()
        if began.snapshot is None:
            raise LogFileError("the selector gives no copy of its state")
        header, arrays = began.snapshot()
        header["place"] = place
        if self._key is not None:
            header["ids"] = [None if client is None else hashed(self._key, client) for client in header["ids"]]
        if "rules" in header:
            hidden = settings_said(self._settings, self._key).rules.digest
            header["rules"] |= {"in_force": {}} if hidden else {}
        return write_snapshot(self._folder, self._writer.number, began.kind, (header, arrays))
