"""The handwritten digits that ship inside scikit-learn: 1,797 images of 8 x 8 pixels, ten classes, no download."""

from __future__ import annotations

import numpy as np

from fedroster.errors import MissingDependencyError
from fedroster.lab.data.dataset import Dataset
from fedroster.types import Streams


def load_digits() -> Dataset:
    """Load the digits, with a fifth of every class held out for testing."""
    try:
        from sklearn import datasets
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("scikit-learn", "train") from error
    bunch = datasets.load_digits()
    images = (bunch.images / 16.0).astype(np.float32)[:, None]
    labels = bunch.target.astype(np.int64)
    rng = Streams(0).at("test-split")
    held_out = np.zeros(labels.shape[0], np.bool_)
    for label in range(10):
        rows = rng.permutation(np.flatnonzero(labels == label))
        held_out[rows[: round(0.2 * rows.shape[0])]] = True
    return Dataset(
        name="digits",
        train_x=images[~held_out],
        train_y=labels[~held_out],
        test_x=images[held_out],
        test_y=labels[held_out],
        num_classes=10,
    )
