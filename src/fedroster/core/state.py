"""State that saves, loads and grows.

A state is a (possibly nested) frozen dataclass of arrays and scalars.  Arrays with one entry for each client are
declared with :func:`per_client`, so that a federation can grow without any code in the policy.  Files are an
uncompressed ``.npz`` with a JSON header, written to a temporary name and renamed; nothing is ever pickled.

A file is believed as far as it can be checked: :func:`unpack` compares types and shapes with a fresh state, holds
values against the ranges that the fields declare, and asks a state with a method ``flaw(spec)`` what is wrong with it.
Compiled code never meets an index that was not looked at.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import glob
import json
import math
import os
import re
import secrets
import stat
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import StateFileError
from fedroster.core.problem import ProblemSpec

try:
    import fcntl
except ImportError:  # Windows: there, an open file cannot be removed
    fcntl = None  # type: ignore[assignment]

S = TypeVar("S")

FORMAT = "fedroster-state"
FORMAT_VERSION = 1
_HEADER = "__header__"
_NAMES = "arrays"
_CLIENT_AXIS, _RANGE, _SIZED, _FIXED = "client_axis", "range", "sized", "fixed"
_LONGEST_LABEL = 10_000
BINARY = getattr(os, "O_BINARY", 0)
_LIVES_S = 3600.0  # a writer without locks at most
_LARGEST, _LARGEST_WHOLE = float(np.finfo(np.float64).max), 2**52


def per_client(*, axis: int = -1, **checks: Any) -> Any:
    """Declare a dataclass field as an array with one entry for each client along ``axis``.

    Args:
        axis: The clients' axis.
        **checks: What :func:`kept` takes.
    """
    return dataclasses.field(metadata={_CLIENT_AXIS: axis, **kept(**checks).metadata})


def kept(
    least: float | None = None,
    most: float | Literal["round"] = math.inf,
    *,
    infinite: bool = False,
    sized: bool = False,
    fixed: bool = False,
) -> Any:
    """Declare what a file may hold in a field of a state.

    Args:
        least: Least value; ``-math.inf`` for any finite number, None if values are not checked at all.
        most: Greatest value; "round" for a round that has begun.  Integers are at most 2^52 if nothing is said.
        infinite: Whether values may also be plus infinity.
        sized: Whether the array has its own length, as against that of a fresh state.
        fixed: Whether the value is that of every fresh state.
    """
    named = {_RANGE: (least, most, infinite)} if least is not None else {}
    return dataclasses.field(metadata={**named, _SIZED: sized, _FIXED: fixed})


def is_fixed(field: dataclasses.Field[Any]) -> bool:
    """Whether a field has the value of every fresh state for as many servers and features."""
    return bool(field.metadata.get(_FIXED))


def check_values(name: str, values: NDArray[Any], least: float, most: float, *, infinite: bool = False) -> None:
    """Check numbers of a file, of which ``infinite`` ones may also be plus infinity.

    Raises:
        StateFileError: If one is out of range or no number.
    """
    if not values.size or values.dtype.kind == "b":
        return
    top = most if most < math.inf else _LARGEST_WHOLE if values.dtype.kind in "iu" else _LARGEST
    top = math.inf if infinite else top
    low, high = values.min(), values.max()  # both are NaN if a value is
    if not (low >= max(least, -_LARGEST) and high <= top):
        raise StateFileError(
            f"{name!r} in the state file has values from {low} to {high}; expected {max(least, -_LARGEST):g} to {top:g}"
        )


def take(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    dtype: type[np.generic],
    shape: tuple[int | None, ...],
    least: float = 0,
    most: float = math.inf,
) -> Any:
    """An array of a file that is what it must be; None in its shape is for any length.

    Raises:
        StateFileError: If it is missing, or anything else.
    """
    if name not in arrays:
        raise StateFileError(f"the state file holds no {name!r}")
    found = arrays[name]
    fits = found.ndim == len(shape) and all(each in (None, found.shape[axis]) for axis, each in enumerate(shape))
    if found.dtype != np.dtype(dtype) or not fits:
        raise StateFileError(
            f"{name!r} in the state file is {found.dtype} of shape {found.shape}; expected {np.dtype(dtype)} of {shape}"
        )
    check_values(name, found, least, most)
    return found


def whole(header: Mapping[Any, Any], name: str | int, least: int, most: int = 2**52) -> int:
    """A whole number of a file's header that is in its range.

    Raises:
        StateFileError: If it is missing, no whole number, or out of range.
    """
    value = header.get(name)
    if type(value) is not int or not least <= value <= most:
        raise StateFileError(f"{name} in the state file is {shown(value)}; expected an integer in {least}..{most}")
    return value


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


def unpack(
    like: S,
    arrays: Mapping[str, NDArray[Any]],
    prefix: str = "",
    *,
    spec: ProblemSpec | None = None,
    round: int | None = None,
) -> S:
    """Rebuild a state from :func:`pack`'s arrays.

    Args:
        like: A fresh state of the same policy for as many servers and features, and any number of clients.
        arrays: Named arrays.
        prefix: Common start of the names.
        spec: What the state must be made for; None for what ``like`` is made for.
        round: The last round that was begun; None if rounds in the state are not checked.

    Raises:
        StateFileError: If an array is missing, has another shape or type, or values that it cannot have.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(like):  # type: ignore[arg-type]
        name, sample = f"{prefix}{field.name}", getattr(like, field.name)
        if dataclasses.is_dataclass(sample):
            values[field.name] = unpack(sample, arrays, f"{name}.", spec=spec, round=round)
            continue
        if name not in arrays:
            raise StateFileError(f"the state file holds no {name!r}; it belongs to another policy")
        found = arrays[name]
        _check_field(name, found, np.asarray(sample), field.metadata, None if spec is None else spec.num_clients, round)
        values[field.name] = found if isinstance(sample, np.ndarray) else type(sample)(found[()])
    state = dataclasses.replace(like, **values)  # type: ignore[type-var]
    flaw = state.flaw(spec) if spec is not None and hasattr(state, "flaw") else None
    if flaw:
        raise StateFileError(f"{type(state).__name__} in the state file is impossible: {flaw}")
    return state


def _check_field(
    name: str,
    found: NDArray[Any],
    sample: NDArray[Any],
    declared: Mapping[str, Any],
    num_clients: int | None,
    round: int | None,
) -> None:
    """Hold an array of a file against the same one of a fresh state, and against what its field declares."""
    if found.dtype != sample.dtype or found.ndim != sample.ndim:
        raise StateFileError(
            f"{name!r} in the state file is {found.dtype} with {found.ndim} dimensions; "
            f"expected {sample.dtype} with {sample.ndim}"
        )
    wanted = list(sample.shape)
    if _CLIENT_AXIS in declared and num_clients is not None:
        wanted[declared[_CLIENT_AXIS]] = num_clients
    is_checked = _CLIENT_AXIS in declared or _RANGE in declared or declared.get(_FIXED)
    if is_checked and not declared.get(_SIZED) and found.shape != tuple(wanted):
        raise StateFileError(f"{name!r} in the state file has shape {found.shape}; expected {tuple(wanted)}")
    if declared.get(_FIXED) and not np.array_equal(found, sample):
        raise StateFileError(f"{name!r} in the state file is {found}; expected {sample}, as the policy says")
    if _RANGE in declared:
        least, most, infinite = declared[_RANGE]
        most = (math.inf if round is None else round) if most == "round" else most
        check_values(name, found, least, most, infinite=infinite)


def is_label_of(label: object, value: object) -> bool:
    """Whether a file that is labelled so belongs to a policy or environment: V=20 and V=20.0 are the same.

    Args:
        label: What :func:`repr` gave when the file was written.
        value: Whose file is wanted.
    """
    return isinstance(label, str) and _WHOLE.sub(r"\1", label) == _WHOLE.sub(r"\1", repr(value))


def as_labelled(label: str, value: S) -> S:
    """A policy with the parameters that a label gives it: its class is that of the one at hand.

    Args:
        label: What :func:`repr` gave.
        value: A policy, which a label is never trusted to make.

    Raises:
        StateFileError: If the label is of another class, or its parameters are no literals.
    """
    if is_label_of(label, value):
        return value
    try:
        call = ast.parse(label, mode="eval").body if len(label) <= _LONGEST_LABEL else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != type(value).__name__ or call.args:
            raise ValueError("it is of another class")
        named = {
            str(each.arg): as_labelled(ast.unparse(each.value), getattr(value, str(each.arg)))
            if isinstance(each.value, ast.Call)  # a policy inside
            else ast.literal_eval(each.value)
            for each in call.keywords
        }
        found = dataclasses.replace(value, **named)  # type: ignore[type-var]
    except (AttributeError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        raise StateFileError(f"it is of {shown(label, str)}, not of {value!r} ({shown(error, str)})") from error
    if not is_label_of(label, found):
        raise StateFileError(f"it is of {shown(label, str)}, not of {found!r}")
    return found


_WHOLE = re.compile(r"""(?<![\w./'"-])(-?\d+)\.0(?![\w./'"-])""")
"""A whole number that is written as a float, and no part of a text."""


def _create_beside(target: Path, *, private: bool) -> tuple[IO[bytes], Path]:
    """Open a new file in the folder of ``target``, with its rights, or those that an ordinary file gets there.

    While it is written it is locked, so that others can tell it from the leftover of a killed writer.
    """
    while True:
        temporary = target.parent / f".{target.name}.{secrets.token_hex(4)}.tmp"
        try:
            rights = 0o600 if private else 0o666
            file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, rights), "wb")
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = os.fspath(target)  # what the caller knows by name
            raise
        if _is_locked(file) and temporary.exists():
            with contextlib.suppress(OSError):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            return file, temporary
        file.close()


def _is_locked(file: IO[bytes]) -> bool:
    """Lock an open file for as long as it is open; whether nothing else had locked it."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def remove_leftovers(folder: Path, name: str = "") -> None:
    """Remove what writers that were killed have left in a folder; nothing of writers that live.

    Args:
        folder: The folder; it need not exist.
        name: Name of the file that they wrote; empty for any file.
    """
    for leftover in folder.glob(f".{glob.escape(name) or '*'}.????????.tmp"):
        with contextlib.suppress(OSError), leftover.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif time.time() - os.fstat(file.fileno()).st_mtime < _LIVES_S:
                continue
            else:
                file.close()  # Windows removes no open file
            leftover.unlink()


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[IO[bytes]], object], *, private: bool = False
) -> None:
    """Write a file so that, whatever happens, ``path`` holds the old content or the new one, never a part.

    It keeps the rights of the old file, a link stays one, and the new content is on the disk when this returns.

    Args:
        path: File to create or replace.
        write: Writes the content to the open binary file that it is given.
        private: Whether a new file is readable by its owner alone.

    Raises:
        OSError: If it cannot be written; names ``path``.
    """
    target = Path(os.path.realpath(path))
    file, temporary = _create_beside(target, private=private)
    try:
        with file:
            write(file)
            file.flush()
            sync_file(file.fileno())
            if fcntl is None:
                file.close()  # Windows gives an open file no other name
            _rename(temporary, target)
        sync_folder(target.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # such as a full disk, which does not say where
            error.filename = os.fspath(path)
        raise


def _rename(file: Path, target: Path) -> None:
    """Rename a file; on Windows one cannot be replaced while another program reads it."""
    for wait_s in (0.01, 0.1, 1.0):
        try:
            file.replace(target)
            return
        except PermissionError:
            if fcntl is not None:
                raise
            time.sleep(wait_s)
    file.replace(target)


def sync_file(number: int) -> None:
    """Bring an open file to the disk; what macOS's fsync does ends in the cache of the drive."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if fcntl is None or full is None:
        os.fsync(number)
    else:
        fcntl.fcntl(number, full)


def sync_folder(folder: Path) -> None:
    """Write to the disk that a file has a new name; some systems cannot."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def write_bytes_atomically(path: str | os.PathLike[str], content: bytes | memoryview, *, private: bool = False) -> None:
    """Write ``content``, like :func:`write_atomically`."""
    write_atomically(path, lambda file: file.write(content), private=private)


def write_text_atomically(path: str | os.PathLike[str], text: str, *, private: bool = False) -> None:
    """Write ``text`` as UTF-8, like :func:`write_atomically`."""
    write_bytes_atomically(path, text.encode(), private=private)


def save_arrays(
    path: str | os.PathLike[str],
    arrays: Mapping[str, NDArray[Any]],
    header: Mapping[str, Any],
    *,
    kind: str,
    private: bool = False,
) -> None:
    """Save named arrays and a JSON header in one file, atomically.

    Args:
        path: File to create or replace.
        arrays: Arrays without Python objects in them.
        header: JSON-able description.
        kind: What the file is; :func:`load_arrays` insists on it.
        private: Whether a new file is readable by its owner alone.

    Raises:
        StateFileError: If an array holds Python objects.
    """
    for name, array in arrays.items():
        if array.dtype.hasobject:  # NumPy would pickle it, and refuse to load it
            raise StateFileError(f"{name!r} is an array of Python objects; expected numbers, nothing is ever pickled")
    meta = {"format": FORMAT, "format_version": FORMAT_VERSION, "kind": kind, _NAMES: sorted(arrays), **header}
    text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), np.uint8)

    def write(file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in {_HEADER: text, **arrays}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)

    write_atomically(path, write, private=private)


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
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"no state file at {os.fspath(path)!r}")
    try:
        with file.open("rb") as raw, zipfile.ZipFile(raw) as archive:
            arrays = {name: _member(archive, name) for name in _members(archive, file.stat().st_size)}
        header = dict(json.loads(arrays.pop(_HEADER).tobytes().decode()))
        of_format, of_kind, version = header.get("format"), header.get("kind"), int(header.get("format_version", 0))
    except Exception as error:  # flipped bytes make zipfile and NumPy raise nearly anything
        why = f"{type(error).__name__}: {shown(error, str)}"
        raise StateFileError(f"{os.fspath(path)!r} is damaged or not a fedroster state file ({why})") from error
    if of_format != FORMAT or of_kind != kind:
        raise StateFileError(
            f"{os.fspath(path)!r} is a {shown(of_format, str)} {shown(of_kind, str)}; expected a {FORMAT} {kind}"
        )
    if version > FORMAT_VERSION:
        raise StateFileError(
            f"{os.fspath(path)!r} has format version {shown(version)}; this release reads up to {FORMAT_VERSION}"
        )
    if header.pop(_NAMES, None) != sorted(arrays):
        raise StateFileError(f"{os.fspath(path)!r} is damaged: arrays are missing from it")
    return arrays, header


def _members(archive: zipfile.ZipFile, size: int) -> list[str]:
    """Names of the arrays of a file, once it is clear that they take no more memory than it takes on a disk."""
    members = archive.infolist()
    names = [member.filename.removesuffix(".npy") for member in members]
    if len(set(names)) != len(names) or _HEADER not in names:
        raise ValueError("it has no header, or one name twice")
    stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
    if not stored or sum(member.file_size for member in members) > size:
        raise ValueError("it claims to hold more than it does")
    return names


def _member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of a file, whose header must match the bytes of the file."""
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](stream)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"{name} holds Python objects, or has a negative length")
        if stream.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{name} has {member.file_size} bytes, which is not what its header says")
    with archive.open(member) as stream:
        array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read()  # to its end, so that its checksum is verified
    return array
