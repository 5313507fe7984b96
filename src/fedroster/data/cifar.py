"""CIFAR-10's batches, in the binary and in the Python version.

A file whose digest is the published one has the published form: nothing is checked here again.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.core.errors import DataFileError

SHAPE = (3, 32, 32)


class _Reader(pickle.Unpickler):
    """Makes NumPy arrays, and nothing else."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in {
            ("numpy", "dtype"),
            ("numpy", "ndarray"),
            ("numpy.core.multiarray", "_reconstruct"),
        }:
            raise DataFileError(f"a batch of CIFAR-10 asks for {module}.{name}; expected NumPy's arrays")
        return super().find_class(module, name)


def read_binary_batch(batch: bytes | memoryview) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a batch of the binary version: for each image one byte of label, then 3,072 of pixels.

    Returns:
        Images, shape (samples, 3, 32, 32), and labels, shape (samples,): read-only views.
    """
    records = np.frombuffer(batch, np.uint8).reshape(-1, 1 + 3072)
    return records[:, 1:].reshape(-1, *SHAPE), records[:, 0]


def read_python_batch(batch: bytes | memoryview) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read a batch of the Python version, as Python 2 pickled it: a dictionary with images and labels.

    Returns:
        Images, shape (samples, 3, 32, 32), and labels, shape (samples,).
    """
    fields = _Reader(io.BytesIO(batch), encoding="bytes").load()
    return fields[b"data"].reshape(-1, *SHAPE), np.array(fields[b"labels"], np.uint8)
