"""Fuzzed calls on selectors: whatever is wrong is refused by an error of ours, and has changed nothing."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import time
from typing import Any

import numpy as np

from chaos.play import SERVERS, arrays_of, contexts_of, differences, every, history, play, state_of
from chaos.rows import Row
from fedroster import EdgeSelector
from fedroster.core.errors import FedrosterError
from fedroster.core.problem import Status

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 10**400, -(10**400), 10**5000, 2**63, 2**64, 1.0, 0.0, -0.0, -1.5, 1e308, 5e-324,
    math.nan, math.inf, -math.inf, "", "c1", "unknown", "\x00", "x" * 5000, "\ud800", b"c1", b"", (), [], {}, set(),
    (1, 2), ["c1"], ["c1", "c1"], ["c1", "c2"], [None], [["c1"]], {"c1": 1.0}, {"c1": None}, {"c1": "fast"},
    {"c1": 10**400}, {None: 1.0}, {1: 1.0}, {b"c1": 1.0}, {"c1": [1.0]}, {"c1": [1.0, 2.0]}, {"c1": [math.nan, 1.0]},
    {"c1": [-1.0, 1.0]}, {"c1": [1.0, 2.0, 3.0]}, object(), int, len, range(3), iter(["c1"]), 1j, np.nan,
    np.float32(1.5), np.int64(3), np.uint8(200), np.bool_(True), np.datetime64("2020-01-01"), np.array(1.0),
    np.array([]), np.ones(3), np.ones((2, 2)), np.ones((12, 2)), np.ones((2, 3, 4)), np.full((12, 2), np.nan),
    np.array(["c1"]), np.array([None]),
    np.array(["c1", 2], object), np.ones((12, 2), np.complex128), np.zeros((0, 2)), np.ones(12, bool), Status.FAILED,
    decimal.Decimal(1), fractions.Fraction(1, 3), datetime.timedelta(seconds=1), bytearray(b"c1"), memoryview(b"c1"),
    frozenset(["c1"]), {"c1": Status.FAILED}, {"c1": 3}, {"c1": ["north"]}, {"c1": "west"}, [["north"]], slice(3), ...,
)  # fmt: skip


def run(size: float, seed: int) -> list[Row]:
    row = Row("fuzzed calls of Selector and EdgeSelector")
    rng = np.random.default_rng(seed)
    federations = every()
    tries = max(1500, round(20_000 * size))
    refused = accepted = selectors = 0
    kinds: dict[str, int] = {}
    while row.tries < tries:
        policy, make = federations[selectors % len(federations)]
        selectors += 1
        selector = history(make(policy, seed=selectors), seed + selectors, int(rng.integers(3, 25)))
        known = holes(selector)
        state = state_of(selector)
        for _ in range(50):
            if rng.random() < 0.3:  # something that is right goes on working
                try:
                    play(selector, seed, int(rng.integers(2**40)))
                except Exception as error:
                    if not isinstance(error, FedrosterError) or "cannot be met" not in str(error):
                        row.error(error, f"a call that is right, after fuzzed ones, {policy}")
                        break
                state = state_of(selector)
            name, arguments = _call(selector, rng)
            row.tries += 1
            begin = time.perf_counter()
            error: Exception | None = None
            try:
                _do(selector, name, arguments)
            except FedrosterError as own:
                refused += 1
                error = own
            except Exception as raw:
                kinds[type(raw).__name__] = kinds.get(type(raw).__name__, 0) + 1
                row.error(raw, f"{policy}: {name}({_shown(arguments)})")
                error = raw
            else:
                accepted += 1
            row.timed(begin)
            try:
                after = state_of(selector)
            except Exception as broken:
                row.error(broken, f"save after {name}({_shown(arguments)})")
                break
            if error is not None and after != state:
                row.fault(f"{policy}: {name}({_shown(arguments)}) raised and changed {differences(after, state)}")
            state = after
            if found := holes(selector) - known:
                row.fault(f"{policy}: NaN in {sorted(found)} after {name}({_shown(arguments)})")
                break
    row.note = f"{refused} refused, {accepted} accepted, {selectors} selectors of {len(federations)} policies"
    if kinds:
        row.note += f"; raw: {kinds}"
    return [row.done()]


def holes(selector: Any) -> set[str]:
    """Arrays of the state with NaN in them."""
    return {
        name
        for name, values in arrays_of(state_of(selector)).items()
        if values.dtype.kind == "f" and np.isnan(values).any()
    }


def _shown(arguments: dict[str, Any]) -> str:
    parts = []
    for name, value in arguments.items():
        try:
            parts.append(f"{name}={value!r}"[:60])
        except Exception:
            parts.append(f"{name}=<{type(value).__name__}>")
    return ", ".join(parts).replace("\n", " ")


def _call(selector: Any, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """A call with arguments of which one or two are odd."""

    def odd() -> Any:
        return ODD[rng.integers(len(ODD))]

    def spoiled(mapping: dict[Any, Any]) -> Any:
        how = rng.random()
        if how < 0.4 or not mapping:
            return odd()
        key = list(mapping)[rng.integers(len(mapping))]
        if how < 0.8:
            return mapping | {key: odd()}
        other = odd()
        return {(other if k == key and _is_hashable(other) else k): v for k, v in mapping.items()}

    contexts = contexts_of(selector, rng)
    is_edge = isinstance(selector, EdgeSelector)
    name = str(rng.choice(["select", "select", "observe", "observe", "observe", "join", "leave", "set", "ask", "make"]))
    if name == "select":
        arguments: dict[str, Any] = {"contexts": contexts}
        words = ["contexts", "clients", "available"] + (["servers", "prices"] if is_edge else [])
        for word in rng.choice(words, int(rng.integers(1, 3)), replace=False):
            near = {client: ["north"] for client in contexts}
            right = {"contexts": contexts, "servers": near, "prices": dict.fromkeys(contexts, 1.0)}
            arguments[str(word)] = spoiled(right[word]) if word in right else odd()
        return name, arguments
    if name == "observe":
        waiting = selector.open_rounds()
        number: Any = sorted(waiting)[rng.integers(len(waiting))] if waiting else 1
        cohort = waiting.get(number, ())
        times_s: Any = dict.fromkeys(cohort, 1.0)
        arguments = {"round": number, "times_s": times_s}
        words = ["round", "times_s", "late", "dropped", "failed", "status", "losses", "squared_losses", "num_samples"]
        words += ["round_s", "costs", "unlearned", "again"]
        for word in rng.choice(words, int(rng.integers(1, 3)), replace=False):
            mapped = word in ("times_s", "losses", "squared_losses", "num_samples", "costs", "status")
            arguments[str(word)] = spoiled(dict(times_s)) if mapped else odd()
        return name, arguments
    if name == "join":
        return name, {"clients": odd() if rng.random() < 0.5 else ["new", odd()]}
    if name == "leave":
        return name, {"clients": odd() if rng.random() < 0.5 else [*selector.clients[:1], odd()], "forget": odd()}
    if name == "set":
        return name, {"longest_s": odd()}
    if name == "ask":
        return name, {"contexts": spoiled(dict(contexts)), "of": odd()}
    words = ["cohort_size", "num_features", "seed", "clients", "patience_rounds", "longest_s", "guarded"]
    words += ["longest_absence", *(["budgets"] if is_edge else [])]
    return name, {str(rng.choice(words)): odd()}


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _do(selector: Any, name: str, arguments: dict[str, Any]) -> None:
    if name == "set":
        selector.longest_s = arguments["longest_s"]
    elif name == "ask":
        selector.expected_times_s(arguments["contexts"])
        selector.participation(arguments["of"])
    elif name == "make":
        usual: dict[str, Any] = {"cohort_size": 2, "num_features": 2, "clients": ["a", "b"]}
        usual |= {"budgets": SERVERS} if isinstance(selector, EdgeSelector) else {}
        made = type(selector)(selector.policy, **usual | arguments)
        made.select({client: [1.0] * (made.num_features or 2) for client in made.clients})
        state_of(made)  # what is accepted can be saved
    else:
        getattr(selector, name)(**arguments)
