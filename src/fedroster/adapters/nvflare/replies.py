"""Which replies of FLARE's clients can be aggregated: each is compared with the model that was sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

from fedroster.core.errors import InvalidInputError
from fedroster.engine.replies import Judge, Numbers, check_values, check_weight, named, wrong_with

WEIGHT = "num-examples"
"""Metric by which a reply is weighed; of an ``FLModel`` it is ``meta["NUM_STEPS_CURRENT_ROUND"]``."""


@dataclass(frozen=True, slots=True)
class Update:
    """A model, or what a client returned for one.

    Attributes:
        arrays: Arrays by name.
        metrics: Metrics by name, among them the weight where it is told.
        is_difference: Whether its arrays are differences from the model that was sent.
    """

    arrays: Mapping[str, Any]
    metrics: Mapping[str, object] = field(default_factory=dict)
    is_difference: bool = False

    @property
    def numbers(self) -> dict[str, Numbers]:
        """Its arrays as NumPy has them."""
        return {str(name): np.asarray(array) for name, array in self.arrays.items()}

    def base(self, sent: Update) -> dict[str, Numbers]:
        """What its arrays are compared with: the model that was sent, or zeros for differences from it."""
        model = sent.numbers
        if self.is_difference:
            return {key: np.zeros_like(array) for key, array in model.items()}
        return model

    @property
    def num_bits(self) -> float:
        """Size of its arrays, bit."""
        return 8.0 * sum(int(getattr(array, "nbytes", 8)) for array in self.arrays.values())


CheckUpdate = Callable[[Update, Update], str | None]
"""Given what was sent and what came back, says what is wrong with the latter, or None."""


def read_update(value: object) -> Update:
    """Read a model or a reply.

    Args:
        value: An ``FLModel``, a mapping of names to arrays, or a pair of one and a mapping of metrics.

    Raises:
        InvalidInputError: If it is something else.
    """
    if isinstance(value, FLModel):
        metrics = dict(value.metrics or {})
        steps = (value.meta or {}).get(FLMetaKey.NUM_STEPS_CURRENT_ROUND)
        if steps is not None:
            metrics[WEIGHT] = steps
        arrays = value.params if isinstance(value.params, Mapping) else {}
        return Update(arrays, metrics, value.params_type == ParamsType.DIFF)
    metrics = {}
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], Mapping):
        value, metrics = value
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"it is a {type(value).__name__}; expected an FLModel, arrays by name, or a pair of these and metrics"
        )
    return Update(value, metrics)


def check_update(sent: Update, reply: Update) -> str | None:
    """Say what no aggregation can use; None when there is nothing.

    Arrays must hold finite numbers and have the names, shapes and kinds of numbers that were sent; lists are none.
    Metrics that are numbers, or arrays of them, must be finite and real, and the weight above 0.
    """
    if set(reply.arrays) != set(sent.arrays):
        return f"its arrays are {named(reply.arrays)}; expected {named(sent.arrays)}"
    for name, array in reply.arrays.items():
        try:
            wrong = check_values(np.asarray(array), np.asarray(sent.arrays[name]))
            if wrong is None and isinstance(array, list | tuple) and not isinstance(sent.arrays[name], list | tuple):
                wrong = "is a list; expected an array"
        except Exception as error:  # what a client sends may be anything
            wrong = f"cannot be read ({type(error).__name__}: {error})"
        if wrong is not None:
            return f"array {str(name)[:80]!r} {wrong}"
    for name, value in reply.metrics.items():
        if not isinstance(value, int | float | complex | np.number | np.ndarray):
            continue
        if np.iscomplexobj(value) or not np.isfinite(value).all():
            return f"metric {str(name)[:80]!r} is {str(value)[:80]}; expected finite real numbers"
    wrong = check_weight(reply.metrics.get(WEIGHT, 1))
    return None if wrong is None else f"its weight {WEIGHT!r} {wrong}"


def counted(weight: Any) -> float:
    """What a reply counts in an average, by its weight; 1 where that is none, as FLARE has it."""
    return float(weight) if check_weight(weight) is None else 1.0


class UpdateCheck(Judge[Update]):
    """Everything that an update must be before it is aggregated; FLARE adds all up as what the first calls itself."""

    differs = "it is a difference, or has arrays as metrics, where others are models, or have numbers, or the reverse"

    def __init__(self, check: CheckUpdate | None) -> None:
        """Judge by a check."""
        super().__init__(check, _pairs, lambda it: it.metrics.get(WEIGHT), _form)

    def read(self, sent: Update, reply: object) -> tuple[Update, str | None]:
        """Read a reply, and say what is wrong with it; None when nothing is."""
        try:
            update = read_update(reply)
        except Exception as error:  # what a client sends may be anything
            return Update({}), None if self.check is None else str(error)
        return update, wrong_with(self.check, sent, update)


def _form(update: Update) -> tuple[bool, frozenset[tuple[object, object]]]:
    """Whether it is a difference, and its metrics that are arrays: among numbers they make FLARE's mean one."""
    shapes = {name: getattr(value, "shape", ()) for name, value in update.metrics.items()}
    return update.is_difference, frozenset((name, shape) for name, shape in shapes.items() if shape)


def _pairs(sent: Update, reply: Update) -> list[tuple[Numbers, Numbers]]:
    """The arrays of a reply, and before each what was sent for it."""
    base = reply.base(sent)
    return [(base[key], array) for key, array in reply.numbers.items() if key in base]
