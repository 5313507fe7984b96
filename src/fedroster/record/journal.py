"""The observer that keeps the log of a federation."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from fedroster.core.checks import check_choice, check_flag, check_integer, shown
from fedroster.core.errors import ConfigurationError, LogFileError
from fedroster.core.protocols import draws
from fedroster.core.sources import code, code_of
from fedroster.core.state import save_arrays
from fedroster.federation.events import Began, Decided, Event, Ruled
from fedroster.federation.files import packed
from fedroster.federation.locks import FolderLock
from fedroster.record.chain import Line, Writer, lines_of
from fedroster.record.lines import FORMAT, VERSION, hashed
from fedroster.record.rebuild import Rebuild, content_of, follow, settings_of, sign_of
from fedroster.selector import Selector
from fedroster.version import __version__

_log = logging.getLogger(__name__)

_LEAST_BYTES = 4096


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

        Raises:
            ConfigurationError: If an argument is out of its range.
            InUseError: If another process holds the folder.
            LogFileError: If the newest file is damaged beyond a torn last line, which is cut off.
        """
        check_flag("contexts", contexts)
        check_integer("rotate_bytes", rotate_bytes, least=_LEAST_BYTES)
        check_choice("on_error", on_error, ("raise", "warn"))
        if key is not None and (not isinstance(key, bytes) or len(key) < 16):
            raise ConfigurationError(f"key is a {type(key).__name__}; expected at least 16 secret bytes, or None")
        if not isinstance(folder, str | os.PathLike):
            raise ConfigurationError(f"folder is {shown(folder)}; expected the path of a folder")
        self._folder, self._key = Path(folder), key
        self._contexts, self._on_error = bool(contexts), on_error
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self._folder)
        try:
            self._writer = Writer(self._folder, rotate_bytes=int(rotate_bytes))
        except BaseException:
            self._lock.release()
            raise
        self._settings: dict[str, Any] | None = None  # as the log knows them; None before the first line
        self._by, self._sign = "", None
        self._unbooked: int | None = None
        self._has_gap = False

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

    # ---------------------------------------------------------------- events

    def before(self, event: Event, selector: Selector) -> None:
        """Write an event that is about to be booked.

        Raises:
            OSError: If it cannot be written, unless that is only to be warned of.
        """
        if isinstance(event, Began):
            if event.round or event.place is not None:
                self._resume(selector, event.place, catch_up=event.catch_up)
            return
        if isinstance(event, Ruled):  # they stand in the log before the next event
            return
        if self._settings is None and self._writer.number:
            raise LogFileError(
                f"{os.fspath(self._folder)!r} holds the log of {self._writer.number} lines, and this selector is new; "
                "expected an empty folder, or a selector that is loaded (Selector.load, Log.selector)"
            )
        try:
            self._write(event, selector)
        except OSError as error:
            if self._on_error == "raise":
                raise
            self._has_gap = True
            _log.warning("round %d is not in the log: %s", selector.round, error)

    def __call__(self, event: Event, selector: Selector) -> None:
        """Note that an event is booked."""
        self._unbooked = None

    def _write(self, event: Event, selector: Selector) -> None:
        if self._has_gap:
            self._know(selector)
            start = self._snapshot(selector)
            self._writer.append("gap", {"round": selector.round, "start": start, "settings": self._settings})
            self._has_gap = False
        elif self._unbooked is not None:
            self._writer.append("undone", {"of": self._unbooked})
        self._unbooked = None
        if self._settings is None:
            self._begin(selector)
        elif self._sign != sign_of(selector):
            self._know(selector)
            self._writer.append("settings", {"settings": self._settings})
        kind, content = content_of(event, selector, contexts=self._contexts, key=self._key)
        if isinstance(event, Decided):
            content["by"] = self._by
        # Answers come to the disk with the next line: a killed process loses none, a power cut the last ones.
        self._writer.append(kind, content, sync=kind != "told")
        self._unbooked = self._writer.number

    def _naming(self, selector: Selector) -> Callable[[Line], Line | None]:
        """What gives a line the rules and ids of a selector for their hashes; None where it does not know an id."""
        if self._key is None:
            return lambda line: line
        hidden, rules = self._settings_of(selector).get("rules"), selector.rules.as_table()
        ids = {hashed(self._key, client): client for client in selector._members.ids if client is not None}

        def named(line: Line) -> Line | None:
            content = dict(line.content)
            if "rules" in (settings := content.get("settings", {})) and settings["rules"] == hidden:
                content["settings"] = settings | {"rules": rules}
            if line.kind in ("joined", "left"):
                if not ids.keys() >= set(content["clients"]):
                    return None
                content["clients"] = [ids[client] for client in content["clients"]]
            return replace(line, content=content)

        return named

    def _settings_of(self, selector: Selector) -> dict[str, Any]:
        """Settings as the log may have them: rules that name clients are hidden where ids are."""
        settings = settings_of(selector)
        if self._key is not None and selector.rules.name_clients:
            settings["rules"] = {"digest": hashed(self._key, repr(settings["rules"]))}
        return settings

    def _know(self, selector: Selector) -> None:
        self._settings, self._sign = self._settings_of(selector), sign_of(selector)
        of_policy, settings = sorted(code_of(type(selector.policy)).items()), sorted(self._settings.items())
        made = f"{selector.policy!r} {settings} {code()} {of_policy}"
        self._by = hashlib.sha256(made.encode(errors="surrogatepass")).hexdigest()[:16]

    # ---------------------------------------------------------------- beginnings

    def _begin(self, selector: Selector, *, start: dict[str, str] | None = None, redone: int = 0) -> None:
        """Write which policy decides, and from which state."""
        self._know(selector)
        line = {
            "format": FORMAT,
            "version": VERSION,
            "of": selector._KIND,
            "fedroster": __version__,
            "code": code(),
            "policy": repr(selector.policy),
            "draws": draws(selector.policy),
            "settings": self._settings,
            "num_features": selector.num_features,
            "contexts": self._contexts,
            "hashed": self._key is not None,
            "round": selector.round,
            "start": start,
            "redone": redone,
            "repaired": self._writer.repaired,
        }
        self._writer.append("begun", line)

    def _resume(self, selector: Selector, place: Any, *, catch_up: bool) -> None:
        """Go on with a selector that is loaded: book what its file lacks, or say that the log lacks something."""
        known = isinstance(place, dict) and type(place.get("line")) is int and isinstance(place.get("digest"), str)
        number, digest = (place["line"], place["digest"]) if known else (0, "")
        start, redone = None, 0
        if not self._writer.number:
            start = self._snapshot(selector)
        elif not known:
            raise LogFileError(
                f"{os.fspath(self._folder)!r} holds a log, and the file of this selector knows of none; "
                "expected an empty folder"
            )
        elif number > self._writer.number or place.get("gap"):
            _log.warning("the log ends before the selector's file, at line %d", self._writer.number)
            start = self._snapshot(selector)
        else:
            missing = self._missing(number, digest)
            redone = self._redo(selector, missing, catch_up=catch_up)
            start = None if redone == len(missing) else self._snapshot(selector)
        self._begin(selector, start=start, redone=redone)
        self._unbooked = None

    def _missing(self, number: int, digest: str) -> list[Line]:
        """The lines after one that a selector's file knows."""
        lines = list(lines_of(self._folder, start=max(number, 1)))
        known = next((line for line in lines if line.number == number), None)
        if known is None or known.digest != digest:
            raise LogFileError(
                f"line {number} of the log in {os.fspath(self._folder)!r} is not the one that the selector's file "
                "knows: it is the log of another federation, or was changed"
            )
        return lines[1:]

    def _redo(self, selector: Selector, missing: list[Line], *, catch_up: bool) -> int:
        """Book what the log has and the selector's file lacks; returns how many lines could be booked."""
        if all(line.kind == "begun" for line in missing):
            return len(missing)
        if not catch_up:
            return 0
        now, file = settings_of(selector), selector._book.file
        before = [line for line in lines_of(self._folder) if "settings" in line.content]
        held, named = [line for line in before if line.number < missing[0].number][-1], self._naming(selector)
        rebuild = Rebuild(selector.policy, self._folder, selector=selector)
        done = 0
        selector._book.file = None
        try:
            follow(selector, (named(held) or held).content["settings"])  # what held when they were written
            for done, line in enumerate(map(named, missing)):
                if line is None or line.content.get("start") is not None:
                    rebuild.finish()
                    return done
                rebuild.take(line)
            rebuild.finish()
            _log.warning("%d lines of the log were not in the selector's file; they are booked", len(missing))
            return len(missing)
        except LogFileError:
            _log.exception("the log from line %d on cannot be booked again", missing[0].number)
            return done
        finally:
            follow(selector, now)
            selector._book.file = file

    def _snapshot(self, selector: Selector) -> dict[str, str]:
        """Keep the selector's state beside the log: what came before is not in it."""
        header, arrays = packed(selector._settings(), selector._books)
        if "rules" in header:
            hides = self._key is not None and selector.rules.name_clients
            header["rules"] |= {"path": None} | ({"in_force": {}} if hides else {})
        if self._key is not None:
            header["ids"] = [None if client is None else hashed(self._key, client) for client in header["ids"]]
        file = self._folder / f"start-{self._writer.number + 1:012}.npz"
        save_arrays(file, arrays, header, kind=selector._KIND)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        return {"kind": selector._KIND, "file": file.name, "sha256": digest}
