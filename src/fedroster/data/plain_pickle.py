"""Pickles of plain values and NumPy's plain scalars, read without running a pickle's code.

The steps of a file are looked at first: one that plain values do not need is refused.  Then :mod:`pickle` builds the
values.  The few names that a file may mention stand for something here, so nothing of a file is imported or called: it
can do no more than fail to be read.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np

from fedroster.core.errors import DataFileError

_CONTAINERS = "}]t\x85\x86\x87R"
_STEPS = _CONTAINERS + ".(aesu)N\x88\x89KMJG\x8a\x8bX\x8c\x8dUTCB\x8eqr\x94hjc\x93b\x80\x95"
"""Steps of protocols 2 to 5 that plain values need, by the codes in :mod:`pickle`."""
_FREE, _BYTES_EACH = 10_000, 8  # containers that any file may have, and bytes that each further one needs
_GREATEST = 2**61 - 1  # the modulus of Python's hash of integers: beyond it, all keys can be made to collide
_TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")


def _text(value: Any) -> Any:
    """A text, which Python 2 writes as bytes; anything else as it is."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Name:
    """What a file calls something of a module; the file cannot change it."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __call__(self, *given: Any) -> Any:
        return self._made(*given)

    def __setstate__(self, state: object) -> None:
        raise ValueError("a state fits no NumPy type")


class _Type:
    """A NumPy type that is announced, and whose byte order follows."""

    def __init__(self, code: object, *_: object) -> None:
        self._code, self._order = _text(code), "<"
        if self._code not in _TYPES:
            raise ValueError(f"it asks for the NumPy type {self._code!r}; expected one of plain numbers")

    def __setstate__(self, state: Any) -> None:
        if _text(state[1]) not in ("<", ">", "|", "="):
            raise ValueError("a state fits no NumPy type")
        self._order = _text(state[1])

    @property
    def kind(self) -> np.dtype[Any]:
        kind: np.dtype[Any] = np.dtype(self._order + self._code)
        return kind


def _scalar(announced: Any, content: Any) -> Any:
    if len(content) != announced.kind.itemsize:
        raise ValueError(f"a {announced.kind} has {len(content)} bytes")
    return np.frombuffer(content, announced.kind)[0].item()


def _bytes(text: Any, encoding: Any) -> bytes:
    """Protocol 2 writes bytes so: as a text in Latin-1."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("it asks for another encoding than Latin-1")
    return text.encode("latin-1")


_NAMES = {
    ("numpy", "dtype"): _Name(_Type),
    ("numpy._core.multiarray", "scalar"): _Name(_scalar),
    ("_codecs", "encode"): _Name(_bytes),
}


class _Reader(pickle._Unpickler):
    """The standard library's own in Python, whose steps can be added to: keys of tuples can be made to collide."""

    dispatch: ClassVar[Any] = dict(pickle._Unpickler.dispatch)

    def _set_item(self: Any) -> None:
        _check_keys(self.stack[-2:-1])
        self.load_setitem()

    def _set_items(self: Any) -> None:
        _check_keys(self.stack[::2])
        self.load_setitems()

    dispatch[pickle.SETITEM[0]], dispatch[pickle.SETITEMS[0]] = _set_item, _set_items

    def find_class(self, module: str, name: str, /) -> Any:
        found = _NAMES.get((module.replace("numpy.core.", "numpy._core."), name))
        if found is None:
            raise ValueError(f"it asks for {module}.{name}; expected plain containers and NumPy's numbers")
        return found


def _check_keys(keys: Any) -> None:
    for key in keys:
        if not isinstance(key, str | int | bytes):
            raise ValueError(f"a key is {type(key).__name__}")


def _check_steps(content: bytes) -> None:
    containers = 0
    steps: Any = pickletools.genops(content)
    for number, (step, value, place) in enumerate(steps):
        if number == 0 and (step.name != "PROTO" or value not in (2, 3, 4, 5)):
            raise ValueError("it does not start as protocols 2 to 5 do")
        if step.code not in _STEPS:
            raise ValueError(f"step {step.name} at byte {place} is not allowed")
        if step.name in ("LONG1", "LONG4") and abs(value) >= _GREATEST:
            raise ValueError(f"the integer at byte {place} has 61 bits or more")
        if step.name == "LONG_BINPUT" and value > _FREE + len(content):
            raise ValueError(f"step {step.name} at byte {place} takes place {value}, beyond the length of the file")
        containers += step.code in _CONTAINERS
        if containers > _FREE + len(content) // _BYTES_EACH:
            raise ValueError("it asks for more containers than its length can fill")
        if step.name == "STOP" and place + 1 != len(content):
            raise ValueError("something follows its end: it is not a single value")


def read_plain_pickle(content: bytes, *, name: str) -> Any:
    """Read a pickle of protocols 2 to 5 that holds plain containers, numbers, texts, and NumPy scalars.

    Args:
        content: The file.
        name: What messages call it.

    Returns:
        Its value; NumPy scalars become Python's numbers, and what Python 2 calls a string becomes bytes.

    Raises:
        DataFileError: If the file is truncated, or asks for anything else: no code of it is executed.
    """
    try:
        _check_steps(content)
        return _Reader(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # flipped bytes make pickle and NumPy raise nearly anything
        raise DataFileError(f"{name} is truncated, or not a pickle of plain values: {error}") from error
