"""The files of a log, and states that are kept beside it.

A line is a JSON object on one line of UTF-8.  It holds its number, from 1 on, and the SHA-256 digest of the line before
it (of no bytes for the first).  A file is named after its first line; when it is full, or the day is over, the chain
goes on in the next one.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedroster.core.errors import InUseError, LogFileError
from fedroster.core.outside import plain
from fedroster.core.state import BINARY, load_arrays, save_arrays, sync_file, sync_folder
from fedroster.folder.events import BegunLine, Snapshot, StartSaid
from fedroster.folder.lines import FIRST, AnyLine, UndoneLine, decoded, encoded

_log = logging.getLogger(__name__)

_NAME = re.compile(r"rounds-(\d{12})\.jsonl")
LONGEST_LINE = 2**28
"""Bytes of a line at most: a round of a million clients, with contexts of ten numbers, takes half of it."""
_sync = getattr(os, "fdatasync", sync_file)  # the content and its length, and not when it was changed


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log: its number, from 1, the digest of the line before it, its own, and at which byte it begins."""

    number: int
    before: str
    digest: str
    content: AnyLine
    file: Path
    offset: int


def files_of(folder: Path) -> list[Path]:
    """The files of a log, in order.

    Raises:
        FileNotFoundError: If there is no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {os.fspath(folder)!r} with a log")
    return sorted(file for file in folder.iterdir() if _NAME.fullmatch(file.name) and file.is_file())


def first_line_of(file: Path) -> int:
    """Number of a file's first line, by its name."""
    match = _NAME.fullmatch(file.name)
    return int(match[1]) if match else 0


def newest_start(files: list[Path], round: int) -> int:
    """Place of the newest file that begins with a state of before a round; 0 if none does."""
    found = 0
    for place, file in enumerate(files):
        said = next((parse(text, file, at).content for at, text, _ in raw_lines(file)), None)
        if isinstance(said, BegunLine) and said.start is not None and said.round < round:
            found = place
    return found


def raw_lines(file: Path, offset: int = 0) -> Iterator[tuple[int, bytes, bool]]:
    """Offset and bytes of each line of a file, and whether it has an end; bounded in memory.

    Raises:
        LogFileError: If a line is too long.
    """
    with file.open("rb") as stream:
        stream.seek(offset)
        while text := stream.readline(LONGEST_LINE + 1):
            ended = text.endswith(b"\n")
            if not ended and len(text) > LONGEST_LINE:
                raise LogFileError(f"{file.name!r} has a line of more than {LONGEST_LINE:,} bytes at {offset}")
            yield offset, text[:-1] if ended else text, ended
            offset += len(text)


def parse(text: bytes, file: Path, offset: int) -> Line:
    """Read a line.

    Raises:
        LogFileError: If it is no line of a log.
    """
    try:
        content = decoded(text)
    except LogFileError as error:
        raise LogFileError(f"{file.name!r} has no line of a log at byte {offset}: {error}") from error
    return Line(content.line, content.before, hashlib.sha256(text).hexdigest(), content, file, offset)


def lines_of(folder: Path, *, start: int = 1, after: Line | None = None) -> Iterator[Line]:
    """The lines of a log from one on; what a killed writer has left of a last line is passed over.

    In place of ``start``, ``after`` is a line that was read before: nothing before it is read again.

    Raises:
        LogFileError: If a line is damaged, or is not the one that the chain expects.
    """
    files = files_of(folder)
    start = start if after is None else after.number
    skipped = sum(first_line_of(file) <= start for file in files[1:])
    last: Line | None = None
    for place, file in enumerate(files[skipped:], start=skipped):
        for offset, text, ended in raw_lines(file, after.offset if after is not None and place == skipped else 0):
            if not ended:
                if place < len(files) - 1:
                    raise LogFileError(f"{file.name!r} ends in the middle of a line, and is not the newest file")
                return
            line = parse(text, file, offset)
            _check(line, last, begins_chain=place == 0 and offset == 0, begins_file=offset == 0)
            if after is not None and last is None and line.digest != after.digest:
                raise LogFileError(f"line {after.number} was changed after it was read")
            last = line
            if line.number >= start + (after is not None):
                yield line


def standing(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines that were not taken back by the one after them.

    Raises:
        LogFileError: If a line takes back another one than the line before.
    """
    held: Line | None = None
    for line in lines:
        if isinstance(line.content, UndoneLine):
            if held is None or line.content.of != held.number:
                raise LogFileError(f"line {line.number} takes back line {line.content.of}, not the line before")
            held = None
            continue
        if held is not None:
            yield held
        held = line
    if held is not None:
        yield held


def torn_bytes(folder: Path) -> int:
    """Length of what a killed writer has left of a last line."""
    newest = files_of(folder)[-1:]
    return sum(len(text) for file in newest for _, text, ended in raw_lines(file) if not ended)


def _check(line: Line, last: Line | None, *, begins_chain: bool, begins_file: bool) -> None:
    """Hold a line against the one before it."""
    where = f"line {line.number} at byte {line.offset} of {line.file.name!r}"
    if begins_file and line.number != first_line_of(line.file):
        raise LogFileError(f"{where} is the first of a file that is named after line {first_line_of(line.file)}")
    is_start = isinstance(line.content, BegunLine) and line.content.start is not None  # what came before was dropped
    if begins_chain and (line.number, line.before) != (1, FIRST) and not is_start:
        raise LogFileError(f"the log begins with {where}; expected line 1: what came before is missing")
    if last is None:
        return
    if line.number != last.number + 1:
        raise LogFileError(f"{where} follows line {last.number}: lines are missing, or were moved")
    if line.before != last.digest:
        raise LogFileError(
            f"{where} holds {line.before[:16]}... as the digest of line {last.number}, which is {last.digest[:16]}...: "
            "one of the two was changed"
        )


class Writer:
    """Appends lines; what is synced is on the disk when :meth:`append` returns, with all lines before it.

    It knows number and digest of the last line, and how many bytes of a torn one were cut off when it was opened.
    """

    def __init__(self, folder: Path, *, rotate_bytes: int, sync: bool = True) -> None:
        """Open a log to go on with it, or begin one; the folder must be held by its caller.

        Raises:
            LogFileError: If the newest file is damaged beyond a torn last line.
        """
        self.folder = folder
        self._rotate_bytes = rotate_bytes
        self._sync = sync
        self.number = 0
        self.digest = FIRST
        self.repaired = 0
        self._file: int | None = None
        self._process = os.getpid()
        self._read(files_of(folder))

    def _read(self, files: list[Path]) -> None:
        """Find the last line, and cut off what a killed writer has left after it."""
        for file in reversed(files):
            last: Line | None = None
            for offset, text, ended in raw_lines(file):
                if not ended:
                    self.repaired = len(text)
                    _log.warning("%s ended in the middle of a line: %d bytes are cut off", plain(str(file)), len(text))
                    os.truncate(file, offset)
                    break
                line = parse(text, file, offset)
                if last is not None:
                    _check(line, last, begins_chain=False, begins_file=False)
                last = line
            if last is not None:
                self.number, self.digest = last.number, last.digest
                self._open(file)
                return
            file.unlink()  # made, and killed before its first line

    def append(self, content: AnyLine, *, sync: bool | None = None) -> None:
        """Write a line, which gets its number and the digest of the line before it.

        Raises:
            LogFileError: If its reader would refuse it, or another program wrote, cut, moved or replaced the file.
            InUseError: If this process is a fork of the one that opened the log.
            OSError: If it cannot be written; then the log is as it was.
        """
        content.line, content.before = self.number + 1, self.digest
        text = encoded(content)
        if len(text) > LONGEST_LINE:
            raise LogFileError(f"a line has {len(text):,} bytes; a log holds lines of {LONGEST_LINE:,} at most")
        if os.getpid() != self._process:
            raise InUseError(
                f"the log in {os.fspath(self.folder)!r} was opened by process {self._process}, and this is its fork "
                f"{os.getpid()}; expected a log of its own"
            )
        if self._file is not None and self.is_full and not isinstance(content, UndoneLine):  # beside what it takes back
            self._check_file(self._file)
            self.close()
        file = self._open(self.folder / f"rounds-{self.number + 1:012}.jsonl") if self._file is None else self._file
        self._write(file, text + b"\n", sync=self._sync if sync is None else sync)
        self.number, self.digest = self.number + 1, hashlib.sha256(text).hexdigest()

    @property
    def is_full(self) -> bool:
        """Whether the next line begins a file: this one has its size, or the day is over."""
        day = time.strftime("%Y-%m-%d", time.gmtime())
        return self._file is not None and (day != self._day or self._size >= self._rotate_bytes)

    def sync(self) -> None:
        """Bring all lines to the disk."""
        if self._file is not None:
            _sync(self._file)

    def _open(self, file: Path) -> int:
        is_new = not file.exists()
        self._file = number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | BINARY, 0o600)
        found = os.fstat(number)
        self._path = file
        self._size = found.st_size
        self._is_torn = False
        self._day = time.strftime("%Y-%m-%d", time.gmtime(found.st_mtime))
        if is_new:
            sync_folder(self.folder)
        return number

    def _check_file(self, number: int) -> None:
        """Refuse to write where another program has written, or into what is not the log any more."""
        found = os.fstat(number)
        if not self._path.exists() or not os.path.samestat(self._path.stat(), found):
            raise LogFileError(f"{os.fspath(self._path)!r} was moved, removed or replaced while it was written")
        if self._is_torn and found.st_size > self._size:
            os.ftruncate(number, self._size)  # what a write of ours has left
        elif found.st_size != self._size:
            raise LogFileError(
                f"{os.fspath(self._path)!r} has {found.st_size:,} bytes; expected {self._size:,}: another program has "
                "written into it, or cut it"
            )
        self._is_torn = False

    def _write(self, file: int, text: bytes, *, sync: bool) -> None:
        self._check_file(file)
        try:
            left = memoryview(text)
            while left:
                left = left[os.write(file, left) :]
            if sync:
                _sync(file)
        except BaseException as error:
            self._is_torn = True
            with suppress(OSError):  # else before the next line, or when the log is opened again
                os.ftruncate(file, self._size)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = os.fspath(self.folder)
            raise
        self._size += len(text)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None


def digest_of(file: Path) -> str:
    """SHA-256 of what a file holds."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_snapshot(folder: Path, number: int, kind: str, snapshot: Snapshot) -> StartSaid:
    """Keep a state, readable by its owner alone, beside the line that is the last one in it; what the next one says."""
    header, arrays = snapshot
    file = folder / f"snapshot-{number:012}.npz"
    save_arrays(file, arrays, header, kind=kind, private=True)
    return StartSaid(kind=kind, file=file.name, sha256=digest_of(file))  # type: ignore[arg-type]


def read_snapshot(folder: Path, start: StartSaid) -> Snapshot:
    """The state of which a line tells.

    Raises:
        LogFileError: If it is missing, or is not the one that the log knows.
    """
    file = folder / start.file
    if not file.is_file():
        raise LogFileError(f"the log goes on from {start.file!r}, which is not beside it")
    if digest_of(file) != start.sha256:
        raise LogFileError(f"{start.file!r} was changed: its digest is not the one in the log")
    arrays, header = load_arrays(file, kind=start.kind)
    return header, arrays


def name_of_log(folder: Path) -> str:
    """Digest of the first line that a log ever had, by which states know it; empty before its first line.

    Raises:
        LogFileError: If that line was dropped, and the state from which the log goes on is not there.
    """
    line = next(lines_of(folder), None)
    if line is None or line.number == 1:
        return "" if line is None else line.digest
    start = line.content.start if isinstance(line.content, BegunLine) else None
    return "" if start is None else str(read_snapshot(folder, start)[0].get("log", ""))
