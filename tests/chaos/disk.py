"""Saves that cannot succeed: a full disk, a limit of size, a read-only folder.  The old file stays good."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from chaos.children import fork, leftovers, wait
from chaos.play import content, flat, history, play, state_of
from chaos.rows import Row

_NOBODY = 65534


def run(size: float, seed: int) -> list[Row]:
    limited, full, closed = (
        Row("saves beyond RLIMIT_FSIZE"),
        Row("saves on a full disk"),
        Row("saves where they may not"),
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        _limited(limited, Path(folder), max(4, round(80 * size)), seed)
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "chaos", folder]
        if shutil.which("mount") and subprocess.run(mount, capture_output=True).returncode == 0:
            try:
                _full(full, Path(folder), max(4, round(80 * size)), seed)
            finally:
                subprocess.run(["umount", folder], check=False)
        else:
            full.note = "not tried: this machine mounts no file systems"
    with tempfile.TemporaryDirectory() as folder:
        _closed(closed, Path(folder), seed)
    return [limited.done(), full.done(), closed.done()]


def _attempt(row: Row, selector: Any, path: Path, case: str) -> bool:
    """Save into a place where it may fail; returns whether it did."""
    folder = path.parent
    before = content(path) if path.is_file() else None
    row.tries += 1
    begin = time.perf_counter()
    failed = False
    state = state_of(selector)
    try:
        selector.save(path)
    except OSError as error:
        failed = True
        if str(path) not in str(error):
            row.fault(f"the error does not name the file: {error}, {case}")
    except Exception as error:
        failed = True
        row.error(error, case)
    row.timed(begin)
    if failed and before is not None and content(path) != before:
        row.lose(1, f"the old file is damaged, {case}")
    if not failed and content(path) != state:
        row.lose(1, f"it says that it saved, and did not, {case}")
    with contextlib.suppress(OSError):
        litter = leftovers(folder)
        if litter:
            row.fault(f"litter: {litter}, {case}")
    return failed


def _limited(row: Row, folder: Path, tries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    selector = history(flat("rbcs-f:V=5,beta=0.1"), seed, 30)
    path = folder / "state.npz"
    selector.save(path)
    whole = path.stat().st_size
    failed = 0
    for number in range(tries):
        play(selector, seed, 100 + number)
        limit = int(rng.integers(0, whole + 200))
        reader, writer = os.pipe()

        def work(limit: int = limit, writer: int = writer) -> None:
            state = Row("")
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            twin_state = state_of(selector)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                selector.save(path)
                how = b"s"
            except OSError as error:
                how = b"f" if str(path) in str(error) else b"n"
            except Exception:
                how = b"r"
            del state, twin_state
            os.write(writer, how)

        before = content(path)
        row.tries += 1
        begin = time.perf_counter()
        code = wait(fork(work))
        os.close(writer)
        how = os.read(reader, 1)
        os.close(reader)
        row.timed(begin)
        failed += how != b"s"
        if code or how == b"r":
            row.fault(f"limit {limit} of {whole}: exit status {code}, {how!r}")
        if how == b"n":
            row.fault(f"limit {limit}: the error does not name the file")
        if how != b"s" and content(path) != before:
            row.lose(1, f"limit {limit}: the old file is damaged")
        litter = leftovers(folder)
        if litter:
            row.fault(f"limit {limit}: litter {litter}")
    row.note = f"{failed} failed as they must"


def _full(row: Row, folder: Path, tries: int, seed: int) -> None:
    selector = history(flat("rbcs-f:V=5,beta=0.1"), seed, 30)
    path, filler = folder / "state.npz", folder / "filler"
    selector.save(path)
    failed = 0
    for number in range(tries):
        play(selector, seed, 200 + number)
        filler.unlink(missing_ok=True)
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        with contextlib.suppress(OSError), filler.open("wb") as out:
            out.write(b"x" * max(0, free - number * 512))
        failed += _attempt(row, selector, path, f"{number * 512} bytes free")
    row.note = f"{failed} failed as they must"


def _closed(row: Row, folder: Path, seed: int) -> None:
    selector = history(flat("floor"), seed, 10)
    inside = folder / "closed"
    inside.mkdir()
    selector.save(inside / "state.npz")
    inside.chmod(0o500)
    folder.chmod(0o755)
    places = [inside / "state.npz", inside / "new.npz", folder / "missing" / "state.npz", inside]
    failures = 0
    for place in places:
        reader, writer = os.pipe()

        def work(place: Path = place, writer: int = writer) -> None:
            if os.geteuid() == 0:
                os.seteuid(_NOBODY)
            try:
                selector.save(place)
                os.write(writer, b"saved")
            except OSError as error:
                os.write(writer, b"named" if str(place) in str(error) else str(error).encode())
            except Exception as error:
                os.write(writer, f"raw {type(error).__name__}: {error}".encode())

        row.tries += 1
        begin = time.perf_counter()
        wait(fork(work))
        os.close(writer)
        how = os.read(reader, 1000).decode()
        os.close(reader)
        row.timed(begin)
        failures += how == "named"
        if how != "named":
            row.fault(f"{place.relative_to(folder)}: {how or 'the process died'}")
    inside.chmod(0o700)
    if leftovers(inside):
        row.fault("litter in a read-only folder")
    row.note = f"{failures} failed as they must"
