"""State that saves, loads and grows.

A state is a (possibly nested) frozen dataclass of arrays and scalars.  Arrays with one entry for each client are
declared with :func:`per_client`, so that a federation can grow without any code in the policy.  Files are an
uncompressed ``.npz`` with a JSON header, written to a temporary name and renamed; nothing is ever pickled.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import IntArray
from fedroster.core.errors import StateFileError

S = TypeVar("S")

FORMAT = "fedroster-state"
FORMAT_VERSION = 1
_HEADER = "__header__"
_NAMES = "arrays"
_CLIENT_AXIS = "client_axis"


def per_client(*, axis: int = -1) -> Any:
    """Declare a dataclass field as an array with one entry for each client along ``axis``."""
    return dataclasses.field(metadata={_CLIENT_AXIS: axis})


def grow(old: S, fresh: S) -> S:
    """Carry what was learned over into a state for more clients.

    Args:
        old: State for n clients.
        fresh: Initial state of the same policy for n' >= n clients; its arrays are written to.

    Returns:
        ``fresh`` with the first n entries of every per-client array, and everything else, from ``old``.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(fresh):  # type: ignore[arg-type]
        before, after = getattr(old, field.name), getattr(fresh, field.name)
        if dataclasses.is_dataclass(after):
            changes[field.name] = grow(before, after)
        elif _CLIENT_AXIS in field.metadata:
            axis = field.metadata[_CLIENT_AXIS]
            np.moveaxis(after, axis, 0)[: before.shape[axis]] = np.moveaxis(before, axis, 0)
            changes[field.name] = after
        else:
            changes[field.name] = before
    return dataclasses.replace(fresh, **changes)  # type: ignore[type-var]


def reset(state: S, fresh: S, clients: IntArray) -> S:
    """Make some clients unknown again.

    Args:
        state: The state; its arrays are written to.
        fresh: Initial state of the same policy for the same number of clients.
        clients: Indices of the clients to forget.
    """
    for field in dataclasses.fields(state):  # type: ignore[arg-type]
        now, initial = getattr(state, field.name), getattr(fresh, field.name)
        if dataclasses.is_dataclass(now):
            reset(now, initial, clients)
        elif _CLIENT_AXIS in field.metadata:
            axis = field.metadata[_CLIENT_AXIS]
            np.moveaxis(now, axis, 0)[clients] = np.moveaxis(initial, axis, 0)[clients]
    return state


def pack(state: Any, prefix: str = "") -> dict[str, NDArray[Any]]:
    """Flatten a state into named arrays; scalars become arrays without dimensions."""
    arrays: dict[str, NDArray[Any]] = {}
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        name = f"{prefix}{field.name}"
        if dataclasses.is_dataclass(value):
            arrays |= pack(value, f"{name}.")
        else:
            arrays[name] = np.asarray(value)
    return arrays


def unpack(like: S, arrays: Mapping[str, NDArray[Any]], prefix: str = "") -> S:
    """Rebuild a state from :func:`pack`'s arrays.

    Args:
        like: A state of the same policy and problem; gives types and shapes.
        arrays: Named arrays.
        prefix: Common start of the names.

    Raises:
        StateFileError: If an array is missing or has another shape or type.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(like):  # type: ignore[arg-type]
        name, sample = f"{prefix}{field.name}", getattr(like, field.name)
        if dataclasses.is_dataclass(sample):
            values[field.name] = unpack(sample, arrays, f"{name}.")
            continue
        if name not in arrays:
            raise StateFileError(f"the state file holds no {name!r}; it belongs to another policy")
        found, expected = arrays[name], np.asarray(sample)
        if found.dtype != expected.dtype or found.ndim != expected.ndim:
            raise StateFileError(
                f"{name!r} in the state file is {found.dtype} with {found.ndim} dimensions; "
                f"expected {expected.dtype} with {expected.ndim}"
            )
        if _CLIENT_AXIS in field.metadata and found.shape != expected.shape:
            raise StateFileError(f"{name!r} in the state file has shape {found.shape}; expected {expected.shape}")
        values[field.name] = found if isinstance(sample, np.ndarray) else type(sample)(found[()])
    return dataclasses.replace(like, **values)  # type: ignore[type-var]


def is_label_of(label: object, value: object) -> bool:
    """Whether a file that is labelled so belongs to a policy or environment: V=20 and V=20.0 are the same.

    Args:
        label: What :func:`repr` gave when the file was written.
        value: Whose file is wanted.
    """
    return isinstance(label, str) and _WHOLE.sub(r"\1", label) == _WHOLE.sub(r"\1", repr(value))


_WHOLE = re.compile(r"""(?<![\w./'"-])(-?\d+)\.0(?![\w./'"-])""")
"""A whole number that is written as a float, and no part of a text."""


def _create_beside(target: Path) -> tuple[IO[bytes], Path]:
    """Open a new file in the folder of ``target``, with the rights that an ordinary file gets there."""
    while True:
        temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        try:
            return temporary.open("xb"), temporary
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = os.fspath(target)  # what the caller knows by name
            raise


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    """Write a file so that, whatever happens, ``path`` holds the old content or the new one, never a part.

    Args:
        path: File to create or replace.
        write: Writes the content to the open binary file that it is given.

    Raises:
        OSError: If it cannot be written; names ``path``.
    """
    target = Path(path)
    file, temporary = _create_beside(target)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # such as a full disk, which does not say where
            error.filename = os.fspath(target)
        raise


def write_bytes_atomically(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write ``content``, like :func:`write_atomically`."""

    def write(file: IO[bytes]) -> None:
        file.write(content)

    write_atomically(path, write)


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8, like :func:`write_atomically`."""
    write_bytes_atomically(path, text.encode())


def save_arrays(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any], *, kind: str
) -> None:
    """Save named arrays and a JSON header in one file, atomically.

    Args:
        path: File to create or replace.
        arrays: Arrays without Python objects in them.
        header: JSON-able description.
        kind: What the file is; :func:`load_arrays` insists on it.

    Raises:
        StateFileError: If an array holds Python objects.
    """
    for name, array in arrays.items():
        if array.dtype.hasobject:  # NumPy would pickle it, and refuse to load it
            raise StateFileError(f"{name!r} is an array of Python objects; expected numbers, nothing is ever pickled")
    meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": kind, _NAMES: sorted(arrays), **header}
    text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)
    write_atomically(path, lambda file: np.savez(file, **{_HEADER: text}, **arrays))  # type: ignore[arg-type]


def load_arrays(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Load what :func:`save_arrays` saved.

    Args:
        path: The file.
        kind: What the file must be.

    Returns:
        The arrays and the header.

    Raises:
        FileNotFoundError: If there is no such file.
        StateFileError: If the file is damaged, not ours, of another kind or of a newer format.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"no state file at {os.fspath(path)!r}")
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}  # reads all, so that every checksum is verified
        header = dict(json.loads(arrays.pop(_HEADER).tobytes().decode()))
        of_format, of_kind, version = header.get("format"), header.get("kind"), int(header.get("format_version", 0))
    except Exception as error:  # flipped bytes make zipfile and NumPy raise nearly anything
        raise StateFileError(
            f"{os.fspath(path)!r} is damaged or not a fedroster state file ({type(error).__name__}: {error})"
        ) from error
    if of_format != FORMAT or of_kind != kind:
        raise StateFileError(f"{os.fspath(path)!r} is a {of_format} {of_kind}; expected a {FORMAT} {kind}")
    if version > FORMAT_VERSION:
        raise StateFileError(
            f"{os.fspath(path)!r} has format version {version}; this release reads up to {FORMAT_VERSION}"
        )
    if header.pop(_NAMES, None) != sorted(arrays):
        raise StateFileError(f"{os.fspath(path)!r} is damaged: arrays are missing from it")
    return arrays, header
