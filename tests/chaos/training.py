"""SIGKILL of a comparison with training: the same command goes on, and ends as one that nothing disturbed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from chaos.rows import Row

_OFTEN = """
import fedroster.lab.trials.trial as trial
from fedroster.__main__ import main
trial._CHECKPOINT_EVERY_S = 0.1  # seconds between checkpoints: a run of seconds has some
main()
"""
_MEASURED = ("decision_s", "seconds", "wall_s")  # parts of names of what a clock measured


def run(size: float, seed: int) -> list[Row]:
    row = Row("SIGKILL of a comparison that trains on digits, until it has ended")
    rng = random.Random(seed)
    runs, rounds, policies = (2, 60, "random,oort") if size >= 0.1 else (1, 60, "random")
    kills = halves = 0
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        calm = Path(folder) / "calm"
        code, said = _start(calm, policies, rounds, None)
        usual_s = time.perf_counter() - begin
        if code:
            row.fault(f"a run that nothing disturbed ended with {code}: {said[-200:]}")
            return [row.done()]
        expected = _results(calm)
        for attempt in range(runs):
            row.tries += 1
            begin = time.perf_counter()
            place = Path(folder) / f"killed-{attempt}"
            ended = None
            for life in range(6 if size >= 0.1 else 2):
                limit_s = rng.uniform(0.3, 1.1) * usual_s
                ended, said = _start(place, policies, rounds, limit_s, at_checkpoint=life % 3 != 2)
                kills += ended is None
                halves += len(list(place.rglob("*.checkpoint.npz")))
                if ended is not None:
                    break
            if ended is None:
                ended, said = _start(place, policies, rounds, None)
            if ended:
                row.lose(1, f"after {kills} kills it ended with {ended}: {said[-200:]}")
                continue
            found = _results(place)
            unlike = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
            if unlike:
                row.fault(f"after kills these differ: {unlike[:5]}")
            litter = [path.name for path in place.rglob("*.tmp")]
            if litter:
                row.fault(f"{len(litter)} temporary files stay: {litter[:3]}")
            row.timed(begin)
    row.note = f"{kills} kills, {halves} of them while a run was half done and had a checkpoint"
    return [row.done()]


def _start(
    place: Path, policies: str, rounds: int, limit_s: float | None, *, at_checkpoint: bool = False
) -> tuple[int | None, str]:
    """Run the command; None if it was killed at its limit."""
    command = [sys.executable, "-c", _OFTEN, "compare", "--task", "digits", "--policies", policies, "--seeds"]
    command += ["0-1", "--rounds", str(rounds), "--clients", "20", "--workers", "1", "--out", str(place)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    if limit_s is None:
        said, _ = process.communicate()
        return process.returncode, said
    begin = time.monotonic()
    while process.poll() is None:  # at a time of its own, or soon after a checkpoint
        if at_checkpoint and list(place.rglob("*.checkpoint.npz")):
            time.sleep(0.01 * limit_s % 1.0)
            break
        if not at_checkpoint and time.monotonic() - begin > limit_s:
            break
        time.sleep(0.02)
    if process.poll() is not None:
        said, _ = process.communicate()
        return process.returncode, said
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return None, ""


def _results(place: Path) -> dict[str, bytes]:
    """Arrays of every run, without what a clock measured."""
    found = {}
    for path in sorted((place / "trials").glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                if name != "__header__" and not any(part in name for part in _MEASURED):
                    found[f"{path.stem}/{name}"] = arrays[name].tobytes()
    return found
