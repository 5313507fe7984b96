"""CIFAR-10's batches, in both forms."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster.core.errors import DataFileError
from fedroster.data.cifar import read_binary_batch, read_python_batch
from published import binary_batch, python_batch, samples

IMAGES, LABELS = samples(7, (3, 32, 32), 0)


@pytest.mark.parametrize(
    ("read", "content"),
    [(read_binary_batch, binary_batch(IMAGES, LABELS)), (read_python_batch, python_batch(IMAGES, LABELS))],
    ids=["binary", "python"],
)
def test_both_forms_hold_the_same(read, content):
    for form in (content, memoryview(content)):
        images, labels = read(form)
        np.testing.assert_array_equal(images, IMAGES)
        np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize(
    "asked", [b"os\nsystem", b"builtins\neval", b"numpy\nfromfile", b"numpy.core.multiarray\nscalar"]
)
def test_a_batch_makes_arrays_and_nothing_else(asked):
    """Batches are read after their digest was compared: this is the second line of defence."""
    with pytest.raises(
        DataFileError, match=f"asks for {asked.decode().replace(chr(10), '.')}; expected NumPy's arrays"
    ):
        read_python_batch(b"\x80\x02c" + asked + b"\nX\x04\0\0\0true\x85R.")
