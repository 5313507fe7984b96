"""Arrays as values of JSON, and back: a hostile line takes no more memory than its reader allows it.

A short array is a list of numbers, NaN written as null.  A long one is ``{"n": entries, "z": text}``: deflated bytes in
base64, of packed bits, of 4-byte integers, or of 8-byte floats, little-endian.  A float array of one value is
``{"n": entries, "all": value}``.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import LogFileError

_SHORT = 64  # entries that a person may read
_LEVEL = 1  # of deflate: the folder's files are compressed again when they are full
_LARGEST_INT = 2**31 - 1


def pack_bits(values: BoolArray) -> Any:
    """Truth values as bits."""
    return {"n": int(values.shape[0]), "z": _deflated(np.packbits(values))}


def pack_ints(values: IntArray) -> Any:
    """Integers in 0..2^31-1."""
    if values.shape[0] <= _SHORT:
        return values.tolist()
    return {"n": int(values.shape[0]), "z": _deflated(values.astype("<i4"))}


def pack_floats(values: FloatArray) -> Any:
    """Floats, bit for bit, in the order of rows."""
    flat = np.ascontiguousarray(values, "<f8").ravel()
    if flat.shape[0] <= _SHORT:
        if not np.isinf(flat).any():  # JSON knows no infinity, and one NaN only
            return [None if math.isnan(value) else value for value in flat.tolist()]
    elif math.isfinite(flat[0]) and flat[0] == flat[-1] and bool((flat == flat[0]).all()):
        return {"n": int(flat.shape[0]), "all": float(flat[0])}
    return {"n": int(flat.shape[0]), "z": _deflated(flat)}


def _deflated(values: NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(values.tobytes(), _LEVEL)).decode()


def unpack_bits(value: Any, entries: int) -> BoolArray:
    """Truth values; this many are expected."""
    raw = _inflated(value, entries, (entries + 7) // 8)
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=entries).astype(np.bool_)


def unpack_ints(value: Any, *, below: int, most: int, order: Literal["any", "distinct"] = "any") -> IntArray:
    """Integers in ``0..below - 1``, at most this many."""
    if isinstance(value, list):
        if not all(type(entry) is int and 0 <= entry <= _LARGEST_INT for entry in value):
            raise LogFileError(f"integers are {shown(value)}; expected 0..{below - 1}")
        found = np.array(value, np.int64)
    else:
        entries = _entries(value, most)
        found = np.frombuffer(_inflated(value, entries, 4 * entries), "<i4").astype(np.int64)
    if found.shape[0] > most or (found.shape[0] and (found.min() < 0 or found.max() >= below)):
        raise LogFileError(f"{found.shape[0]} integers up to {found.max(initial=0)}; expected {most} below {below}")
    if order == "distinct" and np.unique(found).shape[0] != found.shape[0]:
        raise LogFileError("a slot is named twice")
    return found


def unpack_floats(value: Any, entries: int) -> FloatArray:
    """Floats; this many are expected."""
    if isinstance(value, list):
        numbers = [math.nan if entry is None else entry for entry in value]
        if len(numbers) != entries or not all(type(entry) in (int, float) for entry in numbers):
            raise LogFileError(f"floats are {shown(value)}; expected {entries} numbers")
        try:
            return np.array(numbers, np.float64)
        except OverflowError as error:
            raise LogFileError(f"floats are {shown(value)}; expected numbers that a float can hold") from error
    if isinstance(value, dict) and "all" in value:
        if type(value["all"]) not in (int, float) or _entries(value, entries) != entries:
            raise LogFileError(f"floats are {shown(value)}; expected {entries} of one number")
        return np.full(entries, float(value["all"]))
    return np.frombuffer(_inflated(value, entries, 8 * entries), "<f8").astype(np.float64)


def _entries(value: Any, most: int) -> int:
    entries = value.get("n") if isinstance(value, dict) else None
    if type(entries) is not int or not 0 <= entries <= most:
        raise LogFileError(f"an array has {shown(entries)} entries; expected 0..{most}")
    return entries


def _inflated(value: Any, entries: int, size: int) -> bytes:
    """The bytes of a long array, which are as many as expected: more are never made."""
    text = value.get("z") if isinstance(value, dict) else None
    if not isinstance(text, str) or _entries(value, entries) != entries:
        raise LogFileError(f"an array is {shown(value)}; expected {entries} entries, deflated and in base64")
    try:
        inflating = zlib.decompressobj()
        raw = inflating.decompress(base64.b64decode(text, validate=True), size + 1)
        whole = inflating.eof and not inflating.unused_data
    except (ValueError, binascii.Error, zlib.error) as error:
        raise LogFileError(f"an array cannot be inflated ({shown(error, str)})") from error
    if len(raw) != size or not whole:
        raise LogFileError(f"an array has {len(raw)} bytes or more; expected {size}")
    return raw
