"""CIFAR-10's batches, in both forms."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.errors import DataFileError
from fedroster.data.cifar import read_binary_batch, read_python_batch
from published import binary_batch, python_batch, samples, short_bytes

IMAGES, LABELS = samples(7, (3, 32, 32), 0)
PYTHON = python_batch(IMAGES, LABELS)


def test_binary():
    images, labels = read_binary_batch(("batch", binary_batch(IMAGES, LABELS)))
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("content", [b"", binary_batch(IMAGES, LABELS)[:-1], b"\0" * 3072])
def test_binary_of_a_wrong_length(content):
    with pytest.raises(DataFileError, match=f"batch is truncated or no CIFAR-10 batch: it has {len(content)} bytes"):
        read_binary_batch(("batch", content))


def test_python():
    images, labels = read_python_batch(("batch", PYTHON))
    np.testing.assert_array_equal(images, IMAGES)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("size", [0, 1, 3, 20, 100, 5000, len(PYTHON) - 1])
def test_python_truncated(size):
    with pytest.raises(DataFileError, match=f"batch is truncated: it ends after {size} bytes"):
        read_python_batch(("batch", PYTHON[:size]))


def python(data=b"N", labels=b"]", more=b""):
    return b"\x80\x02}(" + short_bytes(b"data") + data + short_bytes(b"labels") + labels + more + b"u."


def array(rows, columns, content):
    head = PYTHON[PYTHON.index(b"cnumpy.core") : PYTHON.index(b"(K\x01M")]
    kind = PYTHON[PYTHON.index(b"cnumpy\ndtype") : PYTHON.index(b"\x89T")]
    shape = b"(K\x01K" + bytes((rows,)) + b"M" + struct.pack("<H", columns) + b"\x86"
    return head + shape + kind + b"\x89T" + struct.pack("<I", len(content)) + content + b"tb"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (python(), "has no 'data' of bytes of shape"),
        (python(array(2, 5, bytes(10))), "has no 'data' of bytes of shape"),
        (python(array(2, 3072, bytes(100))), "cannot reshape"),
        (python(array(2, 3072, bytes(6144)), b"N"), "has no list of integers 'labels'"),
        (python(array(2, 3072, bytes(6144)), b"]NaNa"), "has no list of integers 'labels'"),
        (python(array(2, 3072, bytes(6144)), b"]K\x01a"), "holds 1 labels; expected 2"),
        (python(array(1, 3072, bytes(3072)), b"]M\x00\x01a"), "label of sample 0 is 256"),
        (python(array(2, 3072, bytes(6144)).replace(b"u1", b"i1"), b"]K\x01aK\x02a"), "has no 'data' of bytes"),
        (b"\x80\x02}.", "it holds nothing"),
        (b"\x80\x02].", "it holds a list; expected a dictionary"),
        (b"\x80\x02}Q.", "step b'Q' is not allowed"),
    ],
)
def test_python_malformed(content, message):
    with pytest.raises(DataFileError, match=message):
        read_python_batch(("batch", content))


def test_a_good_batch_passes_where_malformed_ones_fail():
    images, labels = read_python_batch(("batch", python(array(2, 3072, bytes(6144)), b"]K\x01aK\x02a")))
    assert images.shape == (2, 3, 32, 32)
    assert labels.tolist() == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=4), st.integers(0, 10**6))
def test_damage_gives_one_kind_of_error(changes, cut):
    content = bytearray(python_batch(IMAGES[:1], LABELS[:1]))
    for place, value in changes:
        content[place] = value
    with contextlib.suppress(DataFileError):
        read_python_batch(("batch", bytes(content[: max(cut % (2 * len(content)), 1)])))
