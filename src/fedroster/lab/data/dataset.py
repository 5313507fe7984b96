"""A labelled data set in memory."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.parts import ImageArray
from fedroster.types import IntArray


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images and labels, divided into training and test.

    Images x have the shape (samples, channels, height, width), are in [0, 1] and of single precision; labels y are 0,
    1, ..., shape (samples,).
    """

    name: str
    train_x: ImageArray
    train_y: IntArray
    test_x: ImageArray
    test_y: IntArray
    num_classes: int
