"""The error tree.

Every error that fedroster raises on purpose derives from :class:`FedrosterError` and, beside it, from the builtin that
a caller would expect.  A message says what is wrong, which value was met and what was expected.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from fedroster.core.outside import plain


def how_to_install(extra: str) -> str:
    """What brings the packages of an extra, for a copy of the repository and for an installed wheel.

    Args:
        extra: Such as "train".
    """
    repository = Path(__file__).parents[3]
    if (repository / "pyproject.toml").is_file():
        return f"run pip install '.[{extra}]' in {os.fspath(repository)}"
    from importlib.metadata import distributions

    listed = (each for found in distributions(name="fedroster") for each in found.requires or ())
    needed = dict.fromkeys(each.partition(";")[0].strip() for each in listed if f"extra == '{extra}'" in each)
    return f"run pip install {shlex.join(needed or [f'fedroster[{extra}]'])}"  # it need not be on an index itself


def meant(name: str, known: Iterable[str]) -> str:
    """The question whether another name is meant, one that begins so or is nearest; empty if none is near."""
    folded = {each.casefold(): each for each in known}  # "V" is near "v"
    begun = [each for each in folded if name and each.startswith(f"{name.casefold()}-")]
    near = begun or difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.5)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""


class _Plain:
    """Its message may hold what others chose, and is safe to show (:func:`~fedroster.core.outside.plain`)."""

    def __str__(self) -> str:
        return plain(super().__str__())


class FedrosterError(_Plain, Exception):
    """Root of all errors that fedroster raises on purpose."""


class ConfigurationError(FedrosterError, ValueError):
    """A parameter of a policy, scenario or experiment is out of its range."""


class InfeasibleError(ConfigurationError):
    """The parameters are each in range, yet together they ask for something impossible."""


class InvalidInputError(FedrosterError, ValueError):
    """A context, time or other value from outside is malformed."""


class UnknownNameError(FedrosterError, LookupError):
    """A policy, scenario, parameter or client of that name does not exist."""

    @classmethod
    def of(cls, kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """Build the error for ``name``, naming the nearest of ``known``.

        Args:
            kind: What was looked for, such as "policy".
            name: The name that was not found.
            known: The names that exist.
        """
        names = sorted(known)
        return cls(f"unknown {kind} {name!r}.{meant(name, names)} Known: {', '.join(names) or 'none'}.")


class FeedbackError(FedrosterError, ValueError):
    """Feedback names an unknown round, an unselected client, or comes twice."""


class SelectionError(FedrosterError, RuntimeError):
    """A policy returned a decision that breaks a hard constraint."""


class RoundNotBegunError(FedrosterError, RuntimeError):
    """The rules do not let a round begin, because too few clients can take part; nothing was booked."""


class StateFileError(FedrosterError, ValueError):
    """A state file is damaged, foreign, or belongs to another configuration."""


class LogFileError(FedrosterError, ValueError):
    """A log of decisions is damaged, or not what it should be."""


class InUseError(FedrosterError, RuntimeError):
    """A file or folder is held by another writer."""


class FolderError(FedrosterError, OSError):
    """The folder of a run cannot be written any more: its disk is full, or it is gone."""


class PausedError(FedrosterError, TimeoutError):
    """The time was up before everything was done; what is done is kept, and the same call goes on."""

    @classmethod
    def of(cls, done: int, total: int, what: str = "runs") -> PausedError:
        """Build the error for ``done`` finished runs of ``total``."""
        return cls(f"the time is up: {done} of {total} {what} are done; run the same command again to go on")


class WorkerLostError(FedrosterError, RuntimeError):
    """A worker process was killed and its run is not done; what is done is kept."""


class DataFileError(FedrosterError, ValueError):
    """A file of a data set is damaged, or not the published one."""


class MissingDataError(FedrosterError, FileNotFoundError):
    """A data set is not where it was looked for."""


class DownloadError(FedrosterError, ConnectionError):
    """A file could not be downloaded."""


class MissingDependencyError(FedrosterError, ImportError):
    """An optional dependency is needed and not installed."""

    @classmethod
    def of(cls, module: str, extra: str) -> MissingDependencyError:
        """Build the error for a missing ``module`` that ``extra`` would bring."""
        return cls(f"this needs the package {module!r}, which is not installed: {how_to_install(extra)}")


class FairnessWarning(_Plain, UserWarning):
    """The guaranteed participation rate cannot be met with what is observed."""


class PluginWarning(_Plain, UserWarning):
    """A policy or scenario of another package cannot be used."""
