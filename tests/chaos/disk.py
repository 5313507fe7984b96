"""Saves that cannot succeed: a full disk, a limit of size, a read-only folder.  The old file stays good."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
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


def _how(selector: Any, path: Path) -> str:
    """What comes of a save: "saved", "named" where it fails with the file's name, or what is wrong."""
    try:
        selector.save(path)
    except OSError as error:
        return "named" if str(path) in str(error) else f"the error does not name the file: {error}"
    except Exception as error:
        return f"raw {type(error).__name__}: {error}"
    return "saved"


def _how_in_a_child(selector: Any, path: Path, prepare: Callable[[], None]) -> str:
    """The same in a process of its own, to which something is done before."""
    reader, writer = os.pipe()

    def work() -> None:
        prepare()
        os.write(writer, _how(selector, path).encode())

    code = wait(fork(work))
    os.close(writer)
    with os.fdopen(reader) as told:
        return told.read() or f"the process died with {code}"


def _attempt(row: Row, selector: Any, path: Path, save: Callable[[], str], case: str) -> bool:
    """Save into a place where it may fail; returns whether it did."""
    before = path.read_bytes() if path.is_file() else None
    row.tries += 1
    begin = time.perf_counter()
    how = save()
    row.timed(begin)
    if how not in ("saved", "named"):
        row.fault(f"{how}, {case}")
    if how != "saved" and before is not None and path.read_bytes() != before:
        row.lose(1, f"the old file is damaged, {case}")
    if how == "saved" and content(path) != state_of(selector):
        row.lose(1, f"it says that it saved, and did not, {case}")
    with contextlib.suppress(OSError):
        if litter := leftovers(path.parent):
            row.fault(f"litter: {litter}, {case}")
    return how != "saved"


def _limited(row: Row, folder: Path, tries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    selector = history(flat("rbcs-f:V=5,beta=0.1"), seed, 30)
    path = folder / "state.npz"
    selector.save(path)
    whole = path.stat().st_size
    failed = 0
    for number in range(tries):
        play(selector, seed, 100 + number)
        limits = int(rng.integers(0, 2 * whole)), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        save = partial(_how_in_a_child, selector, path, limit)
        if _attempt(row, selector, path, save, f"limit {limits[0]} of {whole}"):
            failed += 1
        else:  # another process has written the file: the selector goes on from there
            selector = type(selector).load(path, selector.policy)
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
        failed += _attempt(row, selector, path, partial(_how, selector, path), f"{number * 512} bytes free")
    row.note = f"{failed} failed as they must"


def _closed(row: Row, folder: Path, seed: int) -> None:
    selector = history(flat("floor"), seed, 10)
    inside = folder / "closed"
    inside.mkdir()
    selector.save(inside / "state.npz")
    inside.chmod(0o500)
    folder.chmod(0o755)
    places = [inside / "state.npz", inside / "new.npz", folder / "missing" / "state.npz", inside]
    failed = 0

    def give_up_rights() -> None:
        if os.geteuid() == 0:
            os.seteuid(_NOBODY)

    for place in places:
        case = str(place.relative_to(folder))
        if _attempt(row, selector, place, partial(_how_in_a_child, selector, place, give_up_rights), case):
            failed += 1
        else:
            row.fault(f"it was saved, {case}")
    inside.chmod(0o700)
    row.note = f"{failed} failed as they must"
