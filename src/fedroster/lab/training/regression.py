"""Softmax regression as a model: PyTorch is needed only by a caller who wants its module."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from fedroster.errors import MissingDependencyError
from fedroster.types import FloatArray

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, slots=True)
class SoftmaxRegression:
    """One linear layer on the flattened image, as a model: called, it makes the torch module."""

    pixels: int
    classes: int

    def __call__(self) -> nn.Module:
        """Make the module."""
        try:
            from torch import nn
        except ImportError as error:
            raise MissingDependencyError.of("torch", "train") from error
        return nn.Sequential(nn.Flatten(), nn.Linear(self.pixels, self.classes))

    @property
    def layout(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each parameter, as the module has them."""
        return {"1.weight": (self.classes, self.pixels), "1.bias": (self.classes,)}

    def draw(self, *, rng: Generator) -> FloatArray:
        """Parameters as the module's own constructor draws them, shape (P,)."""
        # torch's default generator is MT19937, of which a float takes 24 bits.
        bits = np.random.RandomState(int(rng.integers(2**63)) & 0xFFFFFFFF)
        drawn = bits.randint(2**32, size=(self.pixels + 1) * self.classes, dtype=np.uint32) & 0xFFFFFF
        # Both layers are uniform within 1 / sqrt(pixels), which torch computes in two ways.
        bounds = np.array(
            [math.sqrt(3.0) * (math.sqrt(1.0 / 3.0) / math.sqrt(self.pixels)), 1.0 / math.sqrt(self.pixels)]
        )
        bound = np.repeat(bounds.astype(np.float32), [self.pixels * self.classes, self.classes])
        return (drawn * 2.0**-24 * (2.0 * bound).astype(np.float64) - bound).astype(np.float32)
