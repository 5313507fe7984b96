"""Arrays as values of JSON, and back: a hostile line takes no more memory than its reader allows it.

A short array is a list of numbers, NaN written as null.  A long one is ``{"n": entries, "z": text}``: deflated bytes in
base64, of packed bits, of 4-byte integers, or of 8-byte floats, little-endian.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import LogFileError

MOST_NUMBERS = 2**26
"""Numbers of one array at most: contexts of a million clients with 60 features."""

_SHORT = 64  # entries that a person may read
_LEVEL = 1  # of deflate
_LARGEST_INT = 2**31 - 1


class Long(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A long array: its number of entries, and deflated bytes in base64."""

    n: Annotated[int, Meta(ge=0, le=MOST_NUMBERS)]
    z: str


Slot: TypeAlias = Annotated[int, Meta(ge=0, le=_LARGEST_INT)]
Ints: TypeAlias = list[Slot] | Long
Floats: TypeAlias = list[float | None] | Long
Bits: TypeAlias = Long


def packed(value: Any) -> Any:
    """An array as JSON has it, floats bit for bit in the order of rows; what is none stays as it is."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.kind == "b":
        return _long(value.shape[0], np.packbits(value))
    is_float = value.dtype.kind == "f"
    flat = np.ascontiguousarray(value, "<f8" if is_float else "<i4").ravel()
    if flat.size > _SHORT or (is_float and np.isinf(flat).any()):  # JSON knows no infinity, and one NaN only
        return _long(flat.size, flat)
    return [None if math.isnan(each) else each for each in flat.tolist()]


def _long(entries: int, values: NDArray[Any]) -> Long:
    if entries > MOST_NUMBERS:
        raise LogFileError(f"an array has {entries:,} numbers; a line holds {MOST_NUMBERS:,} at most")
    return Long(int(entries), base64.b64encode(zlib.compress(values.tobytes(), _LEVEL)).decode())


def unpack_bits(value: Bits, entries: int) -> BoolArray:
    """Truth values; this many are expected."""
    raw = _inflated(value, entries, (entries + 7) // 8)
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=entries).astype(np.bool_)


def unpack_ints(value: Ints, *, below: int, most: int, order: Literal["any", "distinct"] = "any") -> IntArray:
    """Integers in ``0..below - 1``, at most this many."""
    if isinstance(value, list):
        found = np.array(value, np.int64)
    else:
        if value.n > most:
            raise LogFileError(f"an array has {value.n} entries; expected at most {most}")
        found = np.frombuffer(_inflated(value, value.n, 4 * value.n), "<i4").astype(np.int64)
    if found.size > most or (found.size and (found.min() < 0 or found.max() >= below)):
        raise LogFileError(f"{found.size} integers up to {found.max(initial=0)}; expected {most} below {below}")
    if order == "distinct" and np.unique(found).size != found.size:
        raise LogFileError("a slot is named twice")
    return found


def unpack_floats(value: Floats, entries: int) -> FloatArray:
    """Floats; this many are expected."""
    if length_of(value) != entries:
        raise LogFileError(f"floats are {length_of(value)}; expected {entries} numbers")
    if isinstance(value, list):
        return np.array([math.nan if entry is None else entry for entry in value], np.float64)
    return np.frombuffer(_inflated(value, entries, 8 * entries), "<f8").astype(np.float64)


def length_of(value: Ints | Floats) -> int:
    """How many entries an array says that it has."""
    return len(value) if isinstance(value, list) else value.n


def _inflated(value: Long, entries: int, size: int) -> bytes:
    """The bytes of a long array, which are as many as expected: more are never made."""
    if value.n != entries:
        raise LogFileError(f"an array is {shown(value)}; expected {entries} entries, deflated and in base64")
    try:
        inflating = zlib.decompressobj()
        raw = inflating.decompress(base64.b64decode(value.z, validate=True), size + 1)
        whole = inflating.eof and not inflating.unused_data
    except (ValueError, binascii.Error, zlib.error) as error:
        raise LogFileError(f"an array cannot be inflated ({shown(error, str)})") from error
    if len(raw) != size or not whole:
        raise LogFileError(f"an array has {len(raw)} bytes or more; expected {size}")
    return raw
