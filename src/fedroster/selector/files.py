"""Files of a running federation: everything that its next decision depends on."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from fedroster.core.checks import shown
from fedroster.core.errors import InUseError, StateFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import is_label_of, load_arrays, remove_leftovers, save_arrays, stamp_of

_PATIENCE_S = 10.0  # a save takes a fraction of it


class Book(Protocol):
    """A part of what a selector keeps."""

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: entries of the header, and arrays."""
        ...

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave."""
        ...


class Generations:
    """Which generation of each file a selector knows, so that it never replaces what another one has written.

    A copy knows as much as its original, and has a name of its own from its first save on.
    """

    def __init__(self) -> None:
        """Begin without a file."""
        self._writer, self._number = "", 0
        self._known: dict[str, set[str]] = {}

    def has_read(self, path: str) -> None:
        """Remember the generation of a file that was loaded."""
        found = stamp_of(path)
        self._known[os.path.realpath(path)] = set() if found is None else {found}

    @contextmanager
    def next(self, path: str, *, replace: bool, is_held: bool = False) -> Iterator[str]:
        """Hold a file while its next generation is written, whose stamp this gives.

        Args:
            path: The file.
            replace: Whether to replace what another writer has left.
            is_held: Whether the caller holds the file's folder: then a file that is known is not looked at again.

        Raises:
            InUseError: If another writer holds the file, or has written it since this one read or wrote it.
        """
        target = Path(os.path.realpath(path))
        known = self._known.get(os.fspath(target), set())
        is_ours = is_held and bool(known)
        with nullcontext() if is_ours or not target.parent.is_dir() else _held(target):
            if not (is_ours or replace) and target.is_file() and stamp_of(target) not in known:
                raise InUseError(
                    f"{path!r} holds a state that this selector has neither loaded nor saved: another selector has "
                    "written it; expected a selector that was loaded from it, another path, or replace=True"
                )
            if not is_ours:
                remove_leftovers(target.parent, target.name)
            self._writer = self._writer or secrets.token_hex(8)
            self._number += 1
            stamp = f"{self._writer} {self._number}"
            self._known[os.fspath(target)] = known | {stamp}  # whether or not an error comes after the file is there
            yield stamp
            self._known[os.fspath(target)] = {stamp}

    def __deepcopy__(self, memo: object) -> Generations:
        """A copy with a name of its own."""
        copy = Generations()
        copy._known = {path: set(stamps) for path, stamps in self._known.items()}
        return copy


@contextmanager
def _held(target: Path) -> Iterator[None]:
    """Hold a file against other writers, for as long as it takes to write it."""
    lock = FileLock(target.parent / f".{target.name}.lock", timeout=_PATIENCE_S, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise InUseError(f"{os.fspath(target)!r} is being written by another process; expected one writer") from error
    except NotImplementedError:  # a file system without locks
        yield
        return
    except OSError as error:
        error.filename = os.fspath(target)
        raise
    try:
        yield
    finally:
        lock.release()


def save_books(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    books: Iterable[Book],
    *,
    kind: str,
    stamp: str,
    append: bool = False,
) -> None:
    """Save what a selector was constructed with and what it keeps, atomically and without pickles."""
    header, arrays = packed(settings, books)
    save_arrays(path, arrays, header, kind=kind, stamp=stamp, append=append, private=True)


def packed(settings: Mapping[str, Any], books: Iterable[Book]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the arrays of a file."""
    header: dict[str, Any] = dict(settings)
    arrays: dict[str, Any] = {}
    for book in books:
        more, values = book.pack()
        header |= more
        arrays |= values
    return header, arrays


def distinct(pairs: Any) -> dict[Any, Any]:
    """A mapping that a header keeps as pairs, because their order counts.

    Raises:
        StateFileError: If a name is there twice.
    """
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise StateFileError(f"{shown(pairs)} in the state file has a name twice")
    return mapping


@contextmanager
def opened(
    path: str | os.PathLike[str], policy: AnyPolicy, *, kind: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Header and arrays of a file; a part that turns out to be missing is an error of the file.

    Raises:
        FileNotFoundError: If there is no such file.
        StateFileError: If the file is damaged, foreign, or belongs to another policy.
    """
    arrays, header = load_arrays(path, kind=kind)
    if not is_label_of(header.get("policy"), policy):
        raise StateFileError(
            f"{os.fspath(path)!r} belongs to {header.get('policy')}; expected {policy!r}, the same policy "
            "with the same parameters (a release with other parameters cannot read it)"
        )
    try:
        yield header, arrays
    except StateFileError as error:
        raise StateFileError(f"{os.fspath(path)!r}: {error}") from error
    except (KeyError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise StateFileError(f"{os.fspath(path)!r} is no {kind} ({shown(error)})") from error
