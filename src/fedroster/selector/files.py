"""Files of a running federation: everything that its next decision depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fedroster.core.arrays import IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import InUseError, StateFileError
from fedroster.core.state import remove_leftovers
from fedroster.folder.events import Noted

_PATIENCE_S = 10.0  # a save takes a fraction of it


class Notes:
    """Numbers of clients that an engine keeps beside a selector; see :class:`~fedroster.folder.events.Noted`."""

    def __init__(self) -> None:
        """Begin without notes."""
        self._by_name: dict[str, tuple[int, dict[int, float]]] = {}

    def of(self, name: str) -> tuple[int, dict[int, float]]:
        """The round in which something was noted last, and the numbers by slot; 0 and none if it never was."""
        return self._by_name.get(name, (0, {}))

    def book(self, note: Noted, round: int) -> None:
        """Book a note."""
        before = {} if note.of_all else self.of(note.name)[1]
        self._by_name[note.name] = round, {**before, **note.by_slot}

    def forget(self, slots: IntArray) -> None:
        """Forget what was noted of some clients."""
        for _, by_slot in self._by_name.values():
            for slot in slots.tolist():
                by_slot.pop(slot, None)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header."""
        notes = [[name, round, [*by_slot.items()]] for name, (round, by_slot) in self._by_name.items()]
        return {"notes": notes}, {}

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave."""
        for name, round, pairs in header["notes"]:
            numbers = {int(slot): value for slot, value in pairs}
            if not all(isinstance(value, int | float) and 0 <= slot < header["capacity"] for slot, value in pairs):
                raise StateFileError(f"notes {shown(name)} in the state file are no numbers of clients")
            self._by_name[str(name)] = int(round), numbers


class SavedFiles:
    """Which files a selector has loaded or saved, so that it never replaces what another one has written."""

    def __init__(self) -> None:
        """Begin without a file."""
        self._known: dict[str, object] = {}

    def has_read(self, path: str) -> None:
        """Remember a file that was loaded or saved."""
        self._known[os.path.realpath(path)] = _identity(Path(path))

    @contextmanager
    def replacing(self, path: str, *, replace: bool) -> Iterator[None]:
        """Hold a file while it is written; ``replace`` also what another writer has left.

        Raises:
            InUseError: If another writer holds the file, or has written it since this one read or wrote it.
        """
        target = Path(os.path.realpath(path))
        with _held(target):
            there = _identity(target)
            if not replace and there is not None and there != self._known.get(os.fspath(target)):
                raise InUseError(
                    f"{path!r} holds a state that this selector has neither loaded nor saved: another selector has "
                    "written it; expected a selector that was loaded from it, another path, or replace=True"
                )
            remove_leftovers(target.parent, target.name)
            try:
                yield
            finally:  # an error may come after the file is there
                if _identity(target) != there:
                    self.has_read(path)


def _identity(file: Path) -> object:
    """What every file that was ever written at a place has of its own; None if there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Hold a file against other writers, for as long as it takes to write it."""
    lock = FileLock(target.parent / f".{target.name}.lock", timeout=_PATIENCE_S, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise InUseError(f"{os.fspath(target)!r} is being written by another process; expected one writer") from error
    except NotImplementedError:  # a file system without locks
        yield
        return
    except OSError as error:
        error.filename = os.fspath(target)
        raise
    try:
        yield
    finally:
        lock.release()
