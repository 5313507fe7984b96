"""Comparisons that the contracts share: of states, rounds and policies as values, and of a run that was resumed."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.core.checks import shown
from fedroster.core.problem import Outcome
from fedroster.core.protocols import AnyEnvironment, AnyPolicy
from fedroster.core.state import pack, unpack
from fedroster.simulation import Round, load_checkpoint, save_checkpoint, simulate


def require(holds: bool, message: str) -> None:
    """Raise an ``AssertionError`` if something does not hold."""
    if not holds:
        raise AssertionError(message)


def same_arrays(left: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]) -> bool:
    """Whether two sets of named arrays are equal bit for bit."""
    return list(left) == list(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left.values(), right.values(), strict=True)
    )


def check_fields(state: Any) -> None:
    """Check that a state is a dataclass of arrays and numbers."""
    require(
        dataclasses.is_dataclass(state) and not isinstance(state, type),
        f"init returned {shown(state)}; expected a dataclass of arrays and numbers, with per_client() for an entry "
        "for each client",
    )
    for name, value, _ in fields(state):
        require(
            isinstance(value, np.ndarray | np.generic | bool | int | float),
            f"{name} of the state is {shown(value)}; expected an array or a number",
        )


def frozen_pack(state: Any) -> dict[str, NDArray[Any]]:
    """What :func:`pack` gives, copied so that later rounds cannot change it."""
    return {name: array.copy() for name, array in pack(state).items()}


def copy_state(state: Any) -> Any:
    """A copy that later rounds cannot change."""
    return unpack(state, frozen_pack(state))


def fields(state: Any) -> Iterator[tuple[str, Any, int | None]]:
    """Name, value and client axis of every leaf of a state."""
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{field.name}.{name}", leaf, axis) for name, leaf, axis in fields(value))
        else:
            yield field.name, value, field.metadata.get("client_axis")


def relabelled(state: Any, order: NDArray[np.int64]) -> Any:
    """The state after client ``order[i]`` has been renamed to i."""
    arrays = frozen_pack(state)
    for name, value, axis in fields(state):
        if axis is not None:
            arrays[name] = np.array(np.take(value, order, axis=axis), order="C")
    return unpack(state, arrays)


def select_rows(outcome: Outcome, rows: NDArray[np.int64]) -> Outcome:
    """What would happen on some links."""
    probability = outcome.participation_probability
    return dataclasses.replace(
        outcome,
        exchange_time_s=outcome.exchange_time_s[rows],
        expected_time_s=outcome.expected_time_s[rows],
        expected_upload_s=outcome.expected_upload_s[rows],
        responds=outcome.responds[rows],
        participation_probability=None if probability is None else lambda: probability()[rows],
    )


class Poison:
    """Stands for the truth, which must not be looked at."""

    def __getattribute__(self, name: str) -> Any:
        """Fail."""
        raise AssertionError(f"a policy that is not declared omniscient read context.truth.{name}")


def check_value(value: Any, again: Any, kind: str) -> None:
    """Check that a policy or environment is a value: frozen, comparable, hashable, picklable, printable."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    require(parameters is not None and parameters.frozen, f"{type(value).__name__} is not a frozen dataclass")
    require(value == again and hash(value) == hash(again), f"two equal {kind} values differ or hash differently")
    require(pickle.loads(pickle.dumps(value)) == value, f"the {kind} does not survive pickling")
    require(
        repr(value) == repr(again) and " at 0x" not in repr(value),
        f"repr is {value!r}; expected a text that names the {kind} in every process: checkpoints are labelled with it",
    )


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
