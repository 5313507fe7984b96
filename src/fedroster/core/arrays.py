"""Array types that are used in every signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
ImageArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
StatusArray: TypeAlias = NDArray[np.uint8]
Model: TypeAlias = Mapping[str, NDArray[Any]]
"""A trained model, or several stacked: arrays by name."""
