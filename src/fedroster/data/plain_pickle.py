"""Pickles of plain values, read without running a pickle's code.

A pickle is a program for a small stack machine.  This machine knows the steps that containers, numbers and texts need,
and compares the names in a file with the few that it allows; nothing is imported, looked up or called, so a file can do
no more than fail to be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np

from fedroster.core.errors import DataFileError

_GREATEST_KEY = 2**61 - 1  # the modulus of Python's hash of integers
_FREE, _BYTES_EACH = 10_000, 8  # containers that any file may have, and bytes that each further one needs


class _Mark(Enum):
    MARK = auto()


@dataclass(slots=True)
class Machine:
    """Position and stack; what a file may name, call and fill is decided by a subclass.

    Attributes:
        content: The file.
        position: Of the next step, bytes.
        stack: What is being built.
        memo: What the file may come back to.
        containers: How many were made: each takes more memory than the byte that asks for it.
    """

    keys: ClassVar[tuple[type, ...]] = (str, int, bytes)
    """Types that a key of a dictionary may have."""

    content: bytes
    position: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    containers: int = 0

    def run(self, steps: Mapping[bytes, Callable[[Machine], None]]) -> Any:
        """Take steps until the end of the file.

        Args:
            steps: What each step does, by the byte that stands for it.

        Returns:
            The one value that the file describes.

        Raises:
            EOFError: If the file ends in the middle.
            ValueError: If it takes any other step, or is malformed.
        """
        content, size = self.content, len(self.content)
        while self.position < size:
            step = content[self.position : self.position + 1]
            self.position += 1
            if step == b".":
                (result,) = self.stack
                if self.position != size:
                    raise ValueError("something follows its end: it is no single dictionary")
                return result
            if step not in steps:
                raise ValueError(f"step {step!r} is not allowed")
            steps[step](self)
        raise EOFError

    def take(self, size: int) -> bytes:
        """The next bytes of the file."""
        piece = self.content[self.position : self.position + size]
        if len(piece) < size:
            raise EOFError
        self.position += size
        return piece

    def skip(self, size: int) -> None:
        """Pass over bytes of the file."""
        self.take(size)

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
            raise ValueError("items are appended to what is no list")
        self.stack[-1].extend(items)

    def assign(self, items: list[Any]) -> None:
        """Add keys and values to the dictionary on top of the stack."""
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise ValueError("keys and values do not fit a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, self.keys):
                raise ValueError(f"a key is {type(key).__name__}")
            if isinstance(key, int) and abs(key) >= _GREATEST_KEY:  # beyond it, all keys can be made to collide
                raise ValueError("a key is an integer of 61 bits or more")
            self.stack[-1][key] = value

    def name(self, module: bytes, name: bytes) -> None:
        """What the file calls something of a module; refused here."""
        raise ValueError(f"it asks for {_text(module)}.{_text(name)}; expected plain containers and numbers")

    def call(self) -> None:
        """What the file calls a call; refused here."""
        raise ValueError("it asks for a call; expected plain containers and numbers")

    def fill(self) -> None:
        """What the file calls a state; refused here."""
        raise ValueError("it sets a state; expected plain containers and numbers")


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else repr(name)


PROTOCOL_2: dict[bytes, Callable[[Machine], None]] = {
    b"}": lambda m: m.contain({}),
    b"]": lambda m: m.contain([]),
    b"(": lambda m: m.push(_Mark.MARK),
    b"N": lambda m: m.push(None),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"J": lambda m: m.push(m.number("<i")),
    b"U": lambda m: m.push(m.take(m.number("<B"))),
    b"T": lambda m: m.push(m.take(m.number("<I"))),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"t": lambda m: m.contain(tuple(m.above_mark())),
    b"\x85": lambda m: m.contain(m.top(1)),
    b"\x86": lambda m: m.contain(m.top(2)),
    b"\x87": lambda m: m.contain(m.top(3)),
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"h": lambda m: m.push(m.memo[m.number("<B")]),
    b"j": lambda m: m.push(m.memo[m.number("<I")]),
    b"a": lambda m: m.extend(list(m.top(1))),
    b"e": lambda m: m.extend(m.above_mark()),
    b"s": lambda m: m.assign(list(m.top(2))),
    b"u": lambda m: m.assign(m.above_mark()),
    b"R": lambda m: m.call(),
    b"b": lambda m: m.fill(),
}
"""Steps of Python 2's protocol 2, as far as containers, small numbers, byte strings and arrays need them."""


def _named_on_stack(machine: Machine) -> None:
    module, name = machine.top(2)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a name is no text")
    machine.name(module.encode(), name.encode())


PROTOCOL_5: dict[bytes, Callable[[Machine], None]] = PROTOCOL_2 | {
    b")": lambda m: m.push(()),
    b"\x88": lambda m: m.push(True),
    b"G": lambda m: m.push(m.number(">d")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("<B")), "little", signed=True)),
    b"\x8b": lambda m: m.push(int.from_bytes(m.take(m.number("<I")), "little", signed=True)),
    b"X": lambda m: m.push(m.take(m.number("<I")).decode()),
    b"\x8c": lambda m: m.push(m.take(m.number("<B")).decode()),
    b"\x8d": lambda m: m.push(m.take(m.number("<Q")).decode()),
    b"C": lambda m: m.push(m.take(m.number("<B"))),
    b"B": lambda m: m.push(m.take(m.number("<I"))),
    b"\x8e": lambda m: m.push(m.take(m.number("<Q"))),
    b"\x93": _named_on_stack,
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"\x95": lambda m: m.skip(8),  # the size of a frame
}
"""Steps of protocols 2 to 5 that plain values need."""


class _Name(Enum):
    """The only names that :func:`read_plain_pickle` allows; they stand for themselves."""

    SCALAR = "multiarray.scalar"
    TYPE = "numpy.dtype"
    BYTES = "codecs.encode"


_NAMES = {
    (b"numpy.core.multiarray", b"scalar"): _Name.SCALAR,
    (b"numpy._core.multiarray", b"scalar"): _Name.SCALAR,
    (b"numpy", b"dtype"): _Name.TYPE,
    (b"_codecs", b"encode"): _Name.BYTES,  # how protocol 2 writes bytes: as a text in Latin-1
}
_TYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")


@dataclass(eq=False, slots=True)
class _Type:
    """A NumPy type that is announced, and whose byte order follows."""

    code: str
    order: str = "<"


class _PlainMachine(Machine):
    """Allows NumPy's scalars beside plain values."""

    __slots__ = ()

    def name(self, module: bytes, name: bytes) -> None:
        found = _NAMES.get((module, name))
        if found is None:
            raise ValueError(
                f"it asks for {_text(module)}.{_text(name)}; expected plain containers and NumPy scalars, "
                "nothing of it is executed"
            )
        self.push(found)

    def call(self) -> None:
        name, arguments = self.top(2)
        if name is _Name.TYPE and isinstance(arguments, tuple) and arguments[:1] and arguments[0] in _TYPES:
            self.push(_Type(arguments[0]))
        elif (
            name is _Name.SCALAR
            and isinstance(arguments, tuple)
            and len(arguments) == 2
            and isinstance(arguments[0], _Type)
            and isinstance(arguments[1], bytes)
        ):
            kind = np.dtype(arguments[0].order + arguments[0].code)
            if len(arguments[1]) != kind.itemsize:
                raise ValueError(f"a {kind} has {len(arguments[1])} bytes")
            self.push(np.frombuffer(arguments[1], kind)[0].item())
        elif (
            name is _Name.BYTES
            and isinstance(arguments, tuple)
            and len(arguments) == 2
            and isinstance(arguments[0], str)
            and arguments[1] == "latin1"
        ):
            self.push(arguments[0].encode("latin-1"))
        else:
            raise ValueError("it asks for something else than a NumPy scalar")

    def fill(self) -> None:
        (state,) = self.top(1)
        target = self.stack[-1]
        if (
            not isinstance(target, _Type)
            or not isinstance(state, tuple)
            or len(state) < 2
            or state[1] not in ("<", ">", "|", "=")
        ):
            raise ValueError("a state does not fit a NumPy type")
        target.order = state[1]


def read_plain_pickle(content: bytes, *, name: str) -> Any:
    """Read a pickle of protocols 2 to 5 that holds plain containers, numbers, texts and NumPy scalars.

    Args:
        content: The file.
        name: What messages call it.

    Returns:
        Its value; NumPy scalars become Python's numbers.

    Raises:
        DataFileError: If the file is truncated, or asks for anything else: no code of it is executed.
    """
    machine = _PlainMachine(content)
    try:
        if machine.take(1) != b"\x80" or machine.number("<B") not in (2, 3, 4, 5):
            raise ValueError("it does not start as protocols 2 to 5 do")
        return machine.run(PROTOCOL_5)
    except EOFError as error:
        raise DataFileError(f"{name} is truncated: it ends after {len(content)} bytes in the middle") from error
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, MemoryError) as error:
        raise DataFileError(f"{name} is no pickle of plain values: at byte {machine.position}: {error}") from error
