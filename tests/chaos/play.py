"""A federation that plays itself: every operation follows from a seed, its number and the selector's own words."""

from __future__ import annotations

import copy
import io
import itertools
import json
import os
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fedroster import EdgeSelector, Selector
from fedroster.catalogue import POLICIES, make_policy

warnings.simplefilter("ignore")  # of promises that cannot be kept

SERVERS = {"north": 2.0, "south": 3.0}

_numbers = itertools.count()
_folder = tempfile.TemporaryDirectory(prefix="chaos-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
_CHANGING = ("generation",)  # entries of a header that differ from save to save


def flat(policy: str, *, num_clients: int = 12, **options: Any) -> Selector:
    options = {"cohort_size": 3, "num_features": 2, "patience_rounds": 6} | options
    return Selector(make_policy(policy), clients=[f"c{n}" for n in range(num_clients)], **options)


def edge(policy: str, *, num_clients: int = 12, **options: Any) -> EdgeSelector:
    options = {"cohort_size": 3, "num_features": 2, "patience_rounds": 6} | options
    clients = [f"c{n}" for n in range(num_clients)]
    return EdgeSelector(make_policy(policy), budgets=SERVERS, clients=clients, **options)


def every() -> list[tuple[str, Any]]:
    """Every policy that does not need a simulation, in the selector that it is made for."""
    live = [name for name in POLICIES if not make_policy(name).omniscient]
    made = [(name, edge if getattr(make_policy(name), "needs_limits", False) else flat) for name in live]
    return [*made, ("random", edge)]


def contexts_of(selector: Selector, rng: np.random.Generator) -> dict[Any, list[float]]:
    here = [client for client in selector.clients if rng.random() < 0.85]
    return {client: rng.uniform(0.05, 1.0, selector.num_features or 2).tolist() for client in here}


def play(selector: Selector, seed: int, number: int) -> object:
    """Operation ``number`` of a federation: a round, its feedback, a client that comes or goes."""
    rng = np.random.default_rng([seed, number])
    kind = rng.random()
    members = selector.clients
    if kind < 0.45 or not members:
        contexts = contexts_of(selector, rng)
        if isinstance(selector, EdgeSelector):
            near = {client: [name for name in SERVERS if rng.random() < 0.7] for client in contexts}
            cohort = selector.select(contexts, servers=near)
            return cohort.clients, cohort.servers
        return selector.select(contexts).clients
    if kind < 0.85:
        waiting = selector.open_rounds()
        if not waiting:
            return selector.round
        round_ = sorted(waiting)[rng.integers(len(waiting))]
        told = [client for client in waiting[round_] if rng.random() < 0.8]
        outcomes = rng.choice(4, len(told), p=[0.8, 0.1, 0.05, 0.05])
        status = [("times_s", "late", "dropped", "failed")[outcome] for outcome in outcomes]
        timed = [client for client, how in zip(told, status, strict=True) if how in ("times_s", "late")]
        times_s = {client: float(rng.lognormal(0.0, 0.5)) for client in timed}
        lists = {
            name: [client for client, how in zip(told, status, strict=True) if how == name]
            for name in ("late", "dropped", "failed")
        }
        losses = {client: float(rng.random()) for client in timed} if rng.random() < 0.5 else None
        selector.observe(round_, times_s=times_s, losses=losses, **lists)
        return round_
    if kind < 0.92 or len(members) < 5:
        known = [f"c{n}" for n in range(40)]
        absent = [client for client in known if client not in members]
        selector.join([absent[rng.integers(len(absent))]] if absent else [])
    else:
        selector.leave([members[rng.integers(len(members))]], forget=bool(rng.random() < 0.4))
    return len(selector.clients)


def history(selector: Any, seed: int, length: int) -> Any:
    for number in range(length):
        play(selector, seed, number)
    return selector


def scratch(suffix: str = ".npz") -> Path:
    """A path in memory that was never used before."""
    return Path(_folder.name) / f"{os.getpid()}-{next(_numbers)}{suffix}"


def content(path: Path) -> dict[str, Any]:
    """What a state file holds, by name, as bytes; the header without what differs from save to save."""
    with zipfile.ZipFile(path) as archive:
        parts: dict[str, Any] = {info.filename: archive.read(info) for info in archive.infolist()}
    raw = parts.pop("__header__.npy")
    header = json.loads(raw[raw.index(b"\n") + 1 :])
    parts["header"] = {name: value for name, value in header.items() if name not in _CHANGING}
    return parts


def state_of(selector: Any) -> dict[str, Any]:
    """Everything that a selector would save; equal for selectors in the same state."""
    path = scratch()
    try:
        selector.save(path)
        return content(path)
    finally:
        path.unlink(missing_ok=True)


def differences(left: dict[str, Any], right: dict[str, Any]) -> str:
    names = [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]
    if names == ["header"]:
        a, b = left["header"], right["header"]
        return "header " + ", ".join(name for name in sorted({*a, *b}) if a.get(name) != b.get(name))
    return ", ".join(names)[:120]


def arrays_of(state: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a state by name."""
    return {
        name.removesuffix(".npy"): np.load(io.BytesIO(data), allow_pickle=False)
        for name, data in state.items()
        if name != "header"
    }


def twin(selector: Any) -> Any:
    """A copy that shares nothing."""
    return copy.deepcopy(selector)
