"""A labelled data set in memory."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.parts import ImageArray
from fedroster.types import IntArray


@dataclass(frozen=True, slots=True)
class Dataset:
    """Images and labels, divided into training and test.

    Attributes:
        name: Name.
        train_x: Images, shape (samples, channels, height, width), in [0, 1], single precision.
        train_y: Labels, shape (samples,), 0, 1, ...
        test_x: As ``train_x``.
        test_y: As ``train_y``.
        num_classes: Number of classes.
    """

    name: str
    train_x: ImageArray
    train_y: IntArray
    test_x: ImageArray
    test_y: IntArray
    num_classes: int
