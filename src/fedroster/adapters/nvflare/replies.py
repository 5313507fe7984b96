"""Which replies of FLARE's clients can be aggregated: each is compared with the model that was sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel

from fedroster.core.errors import InvalidInputError
from fedroster.engine.replies import ArrayForm, check_array, check_weight, named

WEIGHT = "num-examples"
"""Metric by which a reply is weighed; of an ``FLModel`` it is ``meta["NUM_STEPS_CURRENT_ROUND"]``."""


@dataclass(frozen=True, slots=True)
class Update:
    """A model, or what a client returned for one.

    Attributes:
        arrays: Arrays by name.
        metrics: Metrics by name, among them the weight where it is told.
    """

    arrays: Mapping[str, Any]
    metrics: Mapping[str, object] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
        """Its arrays as NumPy has them."""
        return {str(name): np.asarray(array) for name, array in self.arrays.items()}

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
        return Update(value.params if isinstance(value.params, Mapping) else {}, metrics)
    metrics = {}
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[1], Mapping):
        value, metrics = value
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"it is a {type(value).__name__}; expected an FLModel, arrays by name, or a pair of these and metrics"
        )
    return Update(value, metrics)


def check_update(sent: Update, reply: Update) -> str | None:
    """Look for what no aggregation can use.

    Arrays must hold finite numbers and have the names, shapes and kinds of numbers that were sent.  Metrics that are
    numbers must be finite, and the weight above 0.

    Returns:
        What is wrong; None when nothing is.
    """
    if set(reply.arrays) != set(sent.arrays):
        return f"its arrays are {named(reply.arrays)}; expected {named(sent.arrays)}"
    for name, array in reply.arrays.items():
        try:
            values = np.asarray(array)
            wanted = np.asarray(sent.arrays[name])
        except Exception as error:  # what a client sends may be anything
            return f"array {str(name)[:80]!r} cannot be read ({type(error).__name__}: {error})"
        forms = [ArrayForm(each.shape, each.dtype.name) for each in (values, wanted)]
        wrong = check_array(forms[0], forms[1], lambda values=values: values)  # type: ignore[misc]
        if wrong is not None:
            return f"array {str(name)[:80]!r} {wrong}"
    for name, value in reply.metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"metric {str(name)[:80]!r} is {value}; expected a finite number"
    wrong = check_weight(reply.metrics[WEIGHT]) if WEIGHT in reply.metrics else None
    return None if wrong is None else f"its weight {WEIGHT!r} {wrong}"
