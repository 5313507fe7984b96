"""Stopping, saving, loading and going on equals playing through, in this process and in a fresh one."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedroster.core.protocols import AnyEnvironment, AnyPolicy
from fedroster.core.state import pack
from fedroster.simulation import Round, load_checkpoint, save_checkpoint, simulate
from fedroster.testing.values import require, same_arrays

# Runs in a fresh interpreter: loads the checkpoint, goes on, prints what was chosen and how long it took.
_RESUME = """
import base64, importlib, importlib.util, json, pickle, sys

task = json.loads(sys.stdin.read())
sys.path[:] = task["path"]
for name, file in task["modules"]:
    try:
        importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
policy, environment = pickle.loads(base64.b64decode(task["values"]))

from fedroster.simulation import load_checkpoint, simulate

start = load_checkpoint(task["file"], policy=policy, environment=environment, seed=task["seed"])
played = simulate(policy, environment, rounds=task["num_rounds"], seed=task["seed"], start=start)
print(json.dumps([[r.number, r.selection.links.tolist(), r.time_s.hex()] for r in played]))
"""


def trace(rounds: Sequence[Round]) -> list[list[Any]]:
    """What was chosen in each round, and how long it took to the last bit."""
    return [[r.number, r.selection.links.tolist(), r.time_s.hex()] for r in rounds]


def check_resume(policy: AnyPolicy, environment: AnyEnvironment, folder: Path) -> None:
    """Check that stopping, saving, loading and going on equals playing through, here and in a fresh process.

    A class of a script or a notebook, which another interpreter cannot import, is checked here only.
    """
    seed, half, end = 5, 7, 16
    file = folder / "checkpoint.npz"
    through = list(simulate(policy, environment, rounds=end, seed=seed))
    *_, last = simulate(policy, environment, rounds=half, seed=seed)
    save_checkpoint(file, last, policy=policy, environment=environment, seed=seed)
    expected = trace(through[half:])
    start = load_checkpoint(file, policy=policy, environment=environment, seed=seed)
    resumed = list(simulate(policy, environment, rounds=end, seed=seed, start=start))
    require(trace(resumed) == expected, "the resumed run differs from the uninterrupted one")
    for name in ("policy_state", "environment_state"):
        left = pack(getattr(resumed[-1], name))
        right = pack(getattr(through[-1], name))
        require(same_arrays(left, right), f"{name} differs after resuming")
    names = [type(value).__module__ for value in (policy, environment)]
    if "__main__" in names:
        return
    modules = [(name, getattr(sys.modules.get(name), "__file__", "") or "") for name in names]
    task = {
        "path": sys.path,
        "modules": modules,
        "values": base64.b64encode(pickle.dumps((policy, environment))).decode(),
        "file": str(file),
        "seed": seed,
        "num_rounds": end,
    }
    done = subprocess.run([sys.executable, "-c", _RESUME], input=json.dumps(task), capture_output=True, text=True)
    require(done.returncode == 0, f"resuming in a fresh process failed:\n{done.stderr}")
    require(
        json.loads(done.stdout.splitlines()[-1]) == expected,
        "the run resumed in a fresh process differs from the uninterrupted one",
    )
