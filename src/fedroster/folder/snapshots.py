"""States that are kept beside a log, from which it goes on."""

from __future__ import annotations

from pathlib import Path

from fedroster.core.errors import LogFileError
from fedroster.core.state import load_arrays, save_arrays
from fedroster.folder.chain import digest_of, lines_of
from fedroster.folder.events import Snapshot
from fedroster.folder.lines import BegunLine, StartSaid


def write_snapshot(folder: Path, number: int, kind: str, snapshot: Snapshot) -> StartSaid:
    """Keep a state beside a log, readable by its owner alone.

    Args:
        folder: The log's folder.
        number: Number of the last line that the state has in it.
        kind: Kind of the selector.
        snapshot: Header and arrays.

    Returns:
        What a line says of it.
    """
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
