"""Arrays in lines: exact, and bounded in memory."""

import base64
import json
import zlib

import msgspec
import numpy as np
import pytest

from fedroster.errors import LogFileError
from fedroster.folder import arrays


def through(value, kind):
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


@pytest.mark.parametrize("size", [0, 1, 8, 64, 65, 1000])
def test_arrays_come_back_bit_for_bit(size):
    rng = np.random.default_rng(size)
    floats = rng.normal(size=size) * 10.0 ** rng.integers(-300, 300, size)
    floats[: size // 3] = np.nan
    if size == 8:  # JSON knows no infinity
        floats[-2:] = -np.inf, np.inf
    ints, bits = rng.integers(0, 2**31, size), rng.random(size) < 0.5

    again = through(arrays.packed(floats), arrays.Floats)
    np.testing.assert_array_equal(arrays.unpack_floats(again, size), floats)
    again = through(arrays.packed(ints), arrays.Ints)
    np.testing.assert_array_equal(arrays.unpack_ints(again, below=2**31, most=size), ints)
    again = through(arrays.packed(bits), arrays.Bits)
    np.testing.assert_array_equal(arrays.unpack_bits(again, size), bits)


def z(raw):
    return base64.b64encode(zlib.compress(raw)).decode()


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "all",
        [1, 2],
        {"n": 100},
        {"n": 100, "z": 5},
        {"n": 100, "z": "!!"},
        {"n": 100, "z": z(b"x")},
        {"n": 10**12, "z": z(b"")},
        {"n": 100, "z": z(b"\0" * 10**6)},
        {"n": 100, "z": base64.b64encode(b"x").decode()},
        {"n": 100, "z": z(b"\0" * 800), "all": 1.0},
        ["x"] * 100,
        [10**400] * 100,
        {"n": 100, "z": z(b"\0" * 800) + "AAAA"},
    ],
    ids=range(15),
)
def test_what_is_no_array_of_so_many_floats_is_refused(value):
    text = json.dumps(value)
    with pytest.raises((LogFileError, msgspec.ValidationError)):
        arrays.unpack_floats(msgspec.json.decode(text, type=arrays.Floats), 100)


@pytest.mark.parametrize("value", [None, [-1], [5], [1.5], [True], [0, 0], [0] * 9, {"n": 9, "z": z(b"\0" * 36)}])
def test_integers_are_held_against_their_range(value):
    text = json.dumps(value)
    with pytest.raises((LogFileError, msgspec.ValidationError)):
        arrays.unpack_ints(msgspec.json.decode(text, type=arrays.Ints), below=5, most=8, order="distinct")
