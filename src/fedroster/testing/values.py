"""Comparisons that the contracts share: of states, rounds and policies as values."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.core.checks import shown
from fedroster.core.problem import Outcome
from fedroster.core.state import pack, unpack


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
