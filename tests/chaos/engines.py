"""Runs inside NVIDIA FLARE and pfl whose processes are killed at any moment, and which are started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from chaos.rows import Row

_HOME = Path(__file__).parents[2]
_KILLS = 3
_LIMIT_S = 240.0
_ROUNDS = 12
_ITERATIONS = 40
_MARK = "FEDROSTER_CHAOS_LIFE"  # in the environment of all processes of a life
_FLARE = f"""
import run
from nvflare.recipe import SimEnv
out = run.Path("OUT")
recipe = run.make_recipe(out, {_ROUNDS}, 0.1)
recipe.execute(SimEnv(num_clients=6, num_threads=6, workspace_root=str(out / "workspace")))
print(run.table(out))
"""


def run(size: float, seed: int) -> list[Row]:
    rows = [
        Row("NVIDIA FLARE: server and sites of a simulated job are killed together and started again"),
        Row("pfl: a training is killed and started again, beside one that never stopped"),
    ]
    for row, name, one in zip(rows, ("nvflare", "pfl"), (_flare, _pfl), strict=True):
        python = _HOME / ".venv" / name / "bin" / "python"
        if not python.exists():
            row.note = f"not tried: {name} is not installed (.ci/{name} makes an environment with it)"
            continue
        kills = 0
        for number in range(max(1, round(10 * size))):
            begin = time.perf_counter()
            row.tries += 1
            with tempfile.TemporaryDirectory() as folder:
                kills += one(row, python, Path(folder), random.Random(seed + number))
            row.timed(begin)
        row.note = f"{kills} kills"
        if row.tries and not kills:
            row.fault("no process was killed: each had ended before")
    return [row.done() for row in rows]


def _end(mark: str) -> None:
    """Kill all processes that a life has started, also those that made a session of their own, as FLARE's do."""
    found = True
    while found:
        found = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(_MARK) == mark:
                    process.kill()
                    found = True


def _lives(
    row: Row, command: list[str], where: Path, done: Callable[[], int], pauses: Iterable[int], rng: random.Random
) -> tuple[int, str]:
    """Start a command again and again; kill each life some time inside a round, and let the last one end.

    Args:
        row: What goes wrong is booked there.
        command: What each life runs.
        where: Its folder.
        done: How many rounds are over; it is asked every millisecond.
        pauses: A life is killed in the round after this many of its own.
        rng: Draws when in that round.

    Returns:
        How often it was killed, and what the last life said.
    """
    kills = 0
    for pause in (*pauses, None):
        mark = f"{where} {kills} {rng.random()}"
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(_HOME / "src"), str(where)]), _MARK: mark}
        with tempfile.TemporaryFile("w+") as said:
            child = subprocess.Popen(command, cwd=where, env=env, stdout=said, stderr=subprocess.STDOUT)
            deadline, begin, took_s, before = time.monotonic() + _LIMIT_S, time.monotonic(), 0.0, done()
            seen = before
            while child.poll() is None and time.monotonic() < deadline and (pause is None or seen < before + pause):
                time.sleep(0.001)
                if (now := done()) > seen:
                    seen, took_s, begin = now, time.monotonic() - begin, time.monotonic()
            if pause is not None:
                time.sleep(rng.uniform(0.0, took_s if pause > 1 else 0.5))
            code = child.poll()
            _end(mark)
            child.wait()
            said.seek(0)
            told = said.read()
        if code == 0:
            return kills, told
        if code is not None or pause is None or seen < before + pause:
            row.fault(f"life {kills + 1} ended with {code}: {told[-150:]}".replace("\n", " / "))
            return kills, ""
        kills += 1
    return kills, ""


def _rounds(path: Path) -> list[int]:
    """Numbers of the rounds of an example's log; a last line that is being written is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line)["round"] for line in lines if line.endswith("\n")]


def _flare(row: Row, python: Path, out: Path, rng: random.Random) -> int:
    """Rounds are numbered on, no site trains that was not chosen, and the record verifies."""
    script, log = _FLARE.replace("OUT", str(out)), out / "rounds.jsonl"
    pauses = [rng.randint(1, 3) for _ in range(_KILLS)]
    kills, said = _lives(
        row, [str(python), "-c", script], _HOME / "examples" / "nvflare", lambda: len(_rounds(log)), pauses, rng
    )
    if not said:
        return kills
    numbers = _rounds(log)
    # The round in which a life ended is played by the next one, and may be written by both.
    if sorted(set(numbers)) != list(range(1, _ROUNDS + 1)) or numbers != sorted(numbers):
        row.lose(1, f"rounds {numbers}; expected 1 to {_ROUNDS}, in order")
    if "was not chosen" in said:
        row.fault(f"a site trained that was not chosen: {said[-200:]}".replace("\n", " / "))
    command = [str(python), "-m", "fedroster", "log", "verify", str(out / "record")]
    verified = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(_HOME / "src")}, capture_output=True, text=True
    )
    if verified.returncode:
        row.fault(f"log verify: {verified.stdout[-200:]}{verified.stderr[-100:]}".replace("\n", " / "))
    return kills


def _pfl(row: Row, python: Path, out: Path, rng: random.Random) -> int:
    """As many iterations, and the same accuracy and counts, as a training that never stopped."""

    def command(folder: str) -> list[str]:
        return [
            str(python),
            "examples/pfl/digits.py",
            "floor",
            "--rounds",
            str(_ITERATIONS),
            "--out",
            str(out / folder),
        ]

    kept = out / "killed" / "floor"

    def done() -> int:
        """The newest snapshot's number, which begins with 0; none while a snapshot takes another one's place."""
        numbers = [-1]
        with contextlib.suppress(FileNotFoundError):
            numbers += [int(path.stem.rsplit("-", 1)[1]) for path in kept.glob("*/*/fedroster-network-*.npz")]
        return 1 + max(numbers)

    _, whole = _lives(row, command("whole"), _HOME, lambda: 0, (), rng)
    kills, said = _lives(row, command("killed"), _HOME, done, [rng.randint(1, 10) for _ in range(_KILLS)], rng)
    last = [text.strip().splitlines()[-1:] for text in (whole, said)]
    if last[0] != last[1]:
        row.lose(1, f"ends with {last[1]}; expected {last[0]}")
    return kills
