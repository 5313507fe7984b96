"""Pickles of plain values and arrays, read without running a pickle's code.

A pickle is a program for a small stack machine.  This machine knows the steps that containers, numbers, texts and
NumPy's plain arrays need, and compares the names in a file with the few that it allows; nothing is imported, looked up
or called, so a file can do no more than fail to be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from fedroster.core.errors import DataFileError

_GREATEST_KEY = 2**61 - 1  # the modulus of Python's hash of integers
_FREE, _BYTES_EACH = 10_000, 8  # containers that any file may have, and bytes that each further one needs


class _Mark(Enum):
    MARK = auto()


class _Name(Enum):
    """The only names that a file may mention; they stand for themselves."""

    SCALAR = auto()
    TYPE = auto()
    RECONSTRUCT = auto()
    ARRAY = auto()
    BYTES = auto()


_NAMES = {
    (b"numpy", b"dtype"): _Name.TYPE,
    (b"numpy", b"ndarray"): _Name.ARRAY,
    (b"_codecs", b"encode"): _Name.BYTES,  # how protocol 2 writes bytes: as a text in Latin-1
    **{(b"numpy.%s.multiarray" % core, b"scalar"): _Name.SCALAR for core in (b"core", b"_core")},
    **{(b"numpy.%s.multiarray" % core, b"_reconstruct"): _Name.RECONSTRUCT for core in (b"core", b"_core")},
}
_TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")


@dataclass(eq=False, slots=True)
class _Type:
    """A NumPy type that is announced, and whose byte order follows."""

    code: str
    order: str = "<"

    @property
    def kind(self) -> np.dtype[Any]:
        return np.dtype(self.order + self.code)


def _text(value: Any) -> Any:
    """A text, which Python 2 writes as bytes; anything else as it is."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


@dataclass(slots=True)
class _Machine:
    """Position and stack.

    Attributes:
        content: The file.
        position: Of the next step, bytes.
        stack: What is being built.
        memo: What the file may come back to.
        containers: How many were made: each takes more memory than the byte that asks for it.
    """

    content: bytes
    position: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    containers: int = 0

    def run(self) -> Any:
        """Take steps until the end of the file.

        Returns:
            The one value that the file describes.

        Raises:
            EOFError: If the file ends in the middle.
            ValueError: If it takes a step that is not allowed, or is malformed.
        """
        content, size = self.content, len(self.content)
        while self.position < size:
            step = content[self.position : self.position + 1]
            self.position += 1
            if step == b".":
                (result,) = self.stack
                if self.position != size:
                    raise ValueError("something follows its end: it is not a single value")
                return result
            if step not in _STEPS:
                raise ValueError(f"step {step!r} is not allowed")
            _STEPS[step](self)
        raise EOFError

    def take(self, size: int) -> bytes:
        """The next bytes of the file."""
        piece = self.content[self.position : self.position + size]
        if len(piece) < size:
            raise EOFError
        self.position += size
        return piece

    def number(self, layout: str) -> Any:
        """The next number of the file."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def line(self) -> bytes:
        """The file up to the end of the line."""
        end = self.content.find(b"\n", self.position)
        if end < 0:
            raise EOFError
        piece, self.position = self.content[self.position : end], end + 1
        return piece

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def contain(self, value: Any) -> None:
        """Put a container on the stack."""
        self.containers += 1
        if self.containers > _FREE + len(self.content) // _BYTES_EACH:
            raise ValueError("it asks for more containers than its length can fill")
        self.stack.append(value)

    def remember(self, key: int) -> None:
        """Keep what is on top of the stack."""
        self.memo[key] = self.stack[-1]

    def above_mark(self) -> list[Any]:
        """Take everything above the topmost mark from the stack, and the mark."""
        place = len(self.stack) - 1
        while self.stack[place] is not _Mark.MARK:
            if place == 0:
                raise ValueError("there is no mark")
            place -= 1
        items = self.stack[place + 1 :]
        del self.stack[place:]
        return items

    def top(self, count: int) -> tuple[Any, ...]:
        """Take the topmost values from the stack."""
        if count > len(self.stack):
            raise ValueError("the stack is too short")
        items = tuple(self.stack[-count:])
        del self.stack[-count:]
        return items

    def extend(self, items: list[Any]) -> None:
        """Append to the list on top of the stack."""
        if not isinstance(self.stack[-1], list):
            raise ValueError("items are appended to something that is not a list")
        self.stack[-1].extend(items)

    def assign(self, items: list[Any]) -> None:
        """Add keys and values to the dictionary on top of the stack."""
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise ValueError("keys and values do not fit a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | bytes):
                raise ValueError(f"a key is {type(key).__name__}")
            if isinstance(key, int) and abs(key) >= _GREATEST_KEY:  # beyond it, all keys can be made to collide
                raise ValueError("a key is an integer of 61 bits or more")
            self.stack[-1][key] = value

    def name(self, module: bytes, name: bytes) -> None:
        """Put what the file calls something of a module on the stack."""
        found = _NAMES.get((module, name))
        if found is None:
            asked = b".".join((module, name)).decode("utf-8", "replace")
            raise ValueError(
                f"it asks for {asked}; expected plain containers and NumPy's numbers, nothing of it is executed"
            )
        self.push(found)

    def name_on_stack(self) -> None:
        """The same, of texts on the stack."""
        module, name = self.top(2)
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name is no text")
        self.name(module.encode(), name.encode())

    def call(self) -> None:
        """What the file calls a call: a type, a scalar, an array that is filled later, or bytes; nothing is called."""
        match self.top(2):
            case (_Name.TYPE, (code, *_)) if _text(code) in _TYPES:
                self.push(_Type(_text(code)))
            case (_Name.SCALAR, (_Type() as announced, bytes() as content)):
                if len(content) != announced.kind.itemsize:
                    raise ValueError(f"a {announced.kind} has {len(content)} bytes")
                self.push(np.frombuffer(content, announced.kind)[0].item())
            case (_Name.RECONSTRUCT, (_Name.ARRAY, (0,), b"b")):
                self.contain(np.empty(0, np.uint8))
            case (_Name.BYTES, (str() as text, "latin1")):
                self.push(text.encode("latin-1"))
            case _:
                raise ValueError("it asks for something other than a NumPy scalar or array")

    def fill(self) -> None:
        """What the file calls a state: the byte order of a type, or shape, type and content of an array."""
        (state,) = self.top(1)
        target = self.stack[-1]
        match state:
            case (int(), order, *_) if isinstance(target, _Type) and _text(order) in ("<", ">", "|", "="):
                target.order = _text(order)
            case (1, tuple() as shape, _Type() as announced, False, bytes() as content) if isinstance(
                target, np.ndarray
            ):
                values = np.frombuffer(content, announced.kind).reshape(shape)
                filled: Any = (1, values.shape, values.dtype, False, content)
                target.__setstate__(filled)
            case _:
                raise ValueError("a state fits no NumPy type or array")


_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"}": lambda m: m.contain({}),
    b"]": lambda m: m.contain([]),
    b")": lambda m: m.push(()),
    b"(": lambda m: m.push(_Mark.MARK),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"J": lambda m: m.push(m.number("<i")),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    b"\x8b": lambda m: m.push(int.from_bytes(m.take(m.number("<I")), "little", signed=True)),
    b"X": lambda m: m.push(m.take(m.number("<I")).decode()),
    b"\x8c": lambda m: m.push(m.take(m.number("<B")).decode()),
    b"\x8d": lambda m: m.push(m.take(m.number("<Q")).decode()),
    b"U": lambda m: m.push(m.take(m.number("<B"))),
    b"T": lambda m: m.push(m.take(m.number("<I"))),
    b"C": lambda m: m.push(m.take(m.number("<B"))),
    b"B": lambda m: m.push(m.take(m.number("<I"))),
    b"\x8e": lambda m: m.push(m.take(m.number("<Q"))),
    b"t": lambda m: m.contain(tuple(m.above_mark())),
    b"\x85": lambda m: m.contain(m.top(1)),
    b"\x86": lambda m: m.contain(m.top(2)),
    b"\x87": lambda m: m.contain(m.top(3)),
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"h": lambda m: m.push(m.memo[m.number("<B")]),
    b"j": lambda m: m.push(m.memo[m.number("<I")]),
    b"a": lambda m: m.extend(list(m.top(1))),
    b"e": lambda m: m.extend(m.above_mark()),
    b"s": lambda m: m.assign(list(m.top(2))),
    b"u": lambda m: m.assign(m.above_mark()),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"\x93": lambda m: m.name_on_stack(),
    b"R": lambda m: m.call(),
    b"b": lambda m: m.fill(),
    b"\x95": lambda m: m.number("<Q"),  # the size of a frame
}
"""Steps of protocols 2 to 5 that plain values need."""


def read_plain_pickle(content: bytes, *, name: str) -> Any:
    """Read a pickle of protocols 2 to 5 that holds plain containers, numbers, texts, and NumPy scalars and arrays.

    Args:
        content: The file.
        name: What messages call it.

    Returns:
        Its value; NumPy scalars become Python's numbers, and what Python 2 calls a string becomes bytes.

    Raises:
        DataFileError: If the file is truncated, or asks for anything else: no code of it is executed.
    """
    machine = _Machine(content)
    try:
        if machine.take(1) != b"\x80" or machine.number("<B") not in (2, 3, 4, 5):
            raise ValueError("it does not start as protocols 2 to 5 do")
        return machine.run()
    except EOFError as error:
        raise DataFileError(f"{name} is truncated: it ends after {len(content)} bytes in the middle") from error
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, MemoryError) as error:
        raise DataFileError(f"{name} is not a pickle of plain values: at byte {machine.position}: {error}") from error
