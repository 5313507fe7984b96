"""CIFAR-10's batches, in the binary and in the Python version; the latter is read without running a pickle's code."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedroster.core.errors import DataFileError
from fedroster.data.plain_pickle import read_plain_pickle

CHANNELS, HEIGHT, WIDTH = 3, 32, 32
PIXELS = CHANNELS * HEIGHT * WIDTH


def read_binary_batch(batch: tuple[str, bytes | memoryview]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a batch of the binary version: for each image one byte of label, then 3,072 of pixels.

    Args:
        batch: Name and content of the file.

    Returns:
        Images, shape (samples, 3, 32, 32), and labels, shape (samples,): read-only views.

    Raises:
        DataFileError: If the length is not that of whole records.
    """
    name, content = batch
    if len(content) == 0 or len(content) % (1 + PIXELS):
        raise DataFileError(
            f"{name} is truncated or no CIFAR-10 batch: it has {len(content)} bytes; "
            f"expected whole records of {1 + PIXELS}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + PIXELS)
    return records[:, 1:].reshape(-1, CHANNELS, HEIGHT, WIDTH), records[:, 0]


def read_python_batch(batch: tuple[str, bytes | memoryview]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a batch of the Python version, as Python 2 pickled it: a dictionary with images and labels.

    Args:
        batch: Name and content of the file.

    Returns:
        Images, shape (samples, 3, 32, 32), and labels, shape (samples,).

    Raises:
        DataFileError: If it is not such a batch.
    """
    name, content = batch
    fields = read_plain_pickle(bytes(content), name=name)
    if not isinstance(fields, dict):
        raise DataFileError(f"{name} is no CIFAR-10 batch: it holds a {type(fields).__name__}; expected a dictionary")
    pixels, labels = fields.get(b"data"), fields.get(b"labels")
    held = f"it holds {', '.join(map(repr, fields)) or 'nothing'}"
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise DataFileError(f"{name} has no 'data' of bytes of shape (samples, {PIXELS}); {held}")
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise DataFileError(f"{name} has no list of integers 'labels'; {held}")
    if len(labels) != pixels.shape[0]:
        raise DataFileError(f"{name} holds {len(labels)} labels; expected {pixels.shape[0]}, one for each image")
    outside = next((row for row, label in enumerate(labels) if not 0 <= label <= 255), None)
    if outside is not None:
        raise DataFileError(f"{name}: the label of sample {outside} is {labels[outside]}; expected a byte")
    return pixels.reshape(-1, CHANNELS, HEIGHT, WIDTH), np.array(labels, np.uint8)
