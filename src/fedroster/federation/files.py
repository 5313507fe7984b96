"""Files of a running federation: everything that its next decision depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fedroster.core.errors import StateFileError
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import is_label_of, load_arrays, save_arrays
from fedroster.federation.learner import Learner
from fedroster.federation.members import Members
from fedroster.federation.rounds import OpenRounds


@dataclass(frozen=True, slots=True)
class Books:
    """All that a selector keeps.

    Attributes:
        members: Who belongs.
        rounds: What is awaited.
        learner: What was learned.
    """

    members: Members
    rounds: OpenRounds
    learner: Learner

    def save(self, path: str | os.PathLike[str], settings: Mapping[str, Any], *, kind: str) -> None:
        """Save everything, atomically and without pickles.

        Args:
            path: File to create or replace.
            settings: What the selector is constructed with beyond what the books know.
            kind: What the file is.
        """
        header = {**settings, **self.learner.header(), **self.rounds.header(), "ids": self.members.ids}
        arrays = self.learner.arrays() | self.members.arrays() | self.rounds.arrays(self.learner.spec.num_features)
        save_arrays(path, arrays, header, kind=kind)

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Take back what :meth:`save` wrote."""
        self.learner.restore(header, arrays)
        self.members.restore(header["ids"], arrays)
        self.rounds.restore(header, arrays)


@contextmanager
def opened(
    path: str | os.PathLike[str], policy: AnyPolicy, *, kind: str
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Header and arrays of a file; a part that turns out to be missing is an error of the file.

    Args:
        path: The file.
        policy: Whose file it must be.
        kind: What it must be.

    Raises:
        FileNotFoundError: If there is no such file.
        StateFileError: If the file is damaged, foreign, or belongs to another policy.
    """
    arrays, header = load_arrays(path, kind=kind)
    if not is_label_of(header.get("policy"), policy):
        raise StateFileError(
            f"{os.fspath(path)!r} belongs to {header.get('policy')}; expected {policy!r}, and a file that this release "
            "wrote if only parameters differ that it has no more"
        )
    try:
        yield header, arrays
    except (KeyError, TypeError, IndexError) as error:
        raise StateFileError(f"{os.fspath(path)!r} lacks a part of a {kind} ({error!r})") from error
