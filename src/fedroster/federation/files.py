"""Files of a running federation: everything that its next decision depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedroster.core.errors import StateFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import is_label_of, load_arrays, save_arrays
from fedroster.federation.failures import Failures
from fedroster.federation.guard import Guard
from fedroster.federation.learner import Learner
from fedroster.federation.members import Members
from fedroster.federation.rounds import OpenRounds


def save_books(
    path: str | os.PathLike[str],
    settings: Mapping[str, Any],
    books: tuple[Learner, Members, OpenRounds, Failures, Guard],
    *,
    kind: str,
) -> None:
    """Save what a selector was constructed with and what it keeps, atomically and without pickles."""
    header: dict[str, Any] = dict(settings)
    arrays: dict[str, Any] = {}
    for book in books:
        more, values = book.pack()
        header |= more
        arrays |= values
    save_arrays(path, arrays, header, kind=kind)


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
    except (KeyError, TypeError, IndexError) as error:
        raise StateFileError(f"{os.fspath(path)!r} lacks a part of a {kind} ({error!r})") from error
