"""Runs inside NVIDIA FLARE and pfl whose processes are killed at any moment, and which are started again."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from chaos.rows import Row, time_is_up

_HOME = Path(__file__).parents[2]
_KILLS = 3
_LIMIT_S = 240.0
_ROUNDS = 12
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
            if time_is_up():
                break
            begin = time.perf_counter()
            row.tries += 1
            with tempfile.TemporaryDirectory() as folder:
                kills += one(row, python, Path(folder), random.Random(seed + number))
            row.timed(begin)
        row.note = f"{kills} kills"
        if row.tries and not kills:
            row.fault("no process was killed: each had ended before")
    return [row.done() for row in rows]


def _lives(row: Row, command: list[str], where: Path, rng: random.Random, begun: Path) -> tuple[int, str]:
    """Start a command, kill its whole session at any moment after ``begun`` is there, and let the last life end.

    Returns:
        How often it was killed, and what the last life said.
    """
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(_HOME / "src"), str(where)])}
    kills = 0
    for life in range(_KILLS + 1):
        with tempfile.TemporaryFile("w+") as said:
            child = subprocess.Popen(
                command, cwd=where, env=env, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
            deadline = time.monotonic() + _LIMIT_S
            while child.poll() is None and not begun.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            left_s = rng.uniform(0.0, 3.0) if life < _KILLS else _LIMIT_S
            try:
                code = child.wait(left_s)
            except subprocess.TimeoutExpired:
                code = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            said.seek(0)
            told = said.read()
        if code == 0:
            return kills, told
        if code is not None or life >= _KILLS:
            row.fault(f"life {life + 1} ended with {code}: {told[-150:]}".replace("\n", " / "))
            return kills, ""
        kills += 1
    return kills, ""


def _flare(row: Row, python: Path, out: Path, rng: random.Random) -> int:
    """Rounds are numbered on, no site trains that was not chosen, and the record verifies."""
    script = _FLARE.replace("OUT", str(out))
    kills, said = _lives(row, [str(python), "-c", script], _HOME / "examples" / "nvflare", rng, out / "rounds.jsonl")
    if not said:
        return kills
    lines = (out / "rounds.jsonl").read_text().splitlines()
    numbers = [json.loads(line)["round"] for line in lines if line.endswith("}")]
    if sorted(set(numbers)) != list(range(1, _ROUNDS + 1)):
        row.lose(1, f"rounds {numbers}; expected 1 to {_ROUNDS}")
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
        return [str(python), "examples/pfl/digits.py", "floor", "--rounds", "40", "--out", str(out / folder)]

    _, whole = _lives(row, command("whole"), _HOME, random.Random(), out / "never")
    kills, said = _lives(row, command("killed"), _HOME, rng, out / "killed" / "floor" / "checkpoint")
    last = [text.strip().splitlines()[-1:] for text in (whole, said)]
    if last[0] != last[1]:
        row.lose(1, f"ends with {last[1]}; expected {last[0]}")
    return kills
