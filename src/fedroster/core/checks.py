"""Checks of parameters, with messages that say what, which value and what was expected."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.outside import plain

_LARGEST_INTEGER = 2**63
_SHOWN = 200  # characters of a value that a message shows


def shown(value: object, how: Callable[[Any], str] = repr) -> str:
    """A value as a message shows it: short, whatever it is; some numbers and objects cannot be written at all.

    Args:
        value: The value.
        how: Writes it.
    """
    try:
        text = plain(how(value))
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def real(value: object) -> float:
    """A real number as a float; NaN for anything that is none, or too great for a float."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def check_number(
    name: str,
    value: float,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
) -> None:
    """Check that a parameter is a finite number, >= ``least``, <= ``most``, > ``above`` and < ``below``.

    Raises:
        ConfigurationError: If it is not; names the parameter, its value and the range.
    """
    ends = [(least, ">= ", float.__ge__), (most, "<= ", float.__le__), (above, "> ", float.__gt__)]
    ends.append((below, "< ", float.__lt__))
    wanted = " and ".join(f"{sign}{end:g}" for end, sign, _ in ends if end is not None)
    number = real(value)
    if not math.isfinite(number) or any(end is not None and not holds(number, float(end)) for end, _, holds in ends):
        share = f" ({number:g} % is {number / 100.0:g})" if most == 1.0 and 1.0 < number <= 100.0 else ""
        raise ConfigurationError(f"{name} is {shown(value)}; expected a finite number {wanted}".rstrip() + share)


def check_integer(name: str, value: int, *, least: float | None = None) -> None:
    """Check that a parameter is an integer that is not too small."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or (least is not None and value < least):
        wanted = "" if least is None else f" >= {least}"
        raise ConfigurationError(f"{name} is {shown(value)}; expected an integer{wanted}")
    if value >= _LARGEST_INTEGER:
        raise ConfigurationError(f"{name} is {shown(value)}; expected an integer below 2^63")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a parameter is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise ConfigurationError(f"{name} is {shown(value)}; expected one of {', '.join(choices)}")


def check_flag(name: str, value: bool) -> None:
    """Check that a parameter is a truth value: the text "false" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigurationError(f"{name} is {shown(value)}; expected True or False")


def path_of(path: object) -> str:
    """A path as a text.

    Raises:
        InvalidInputError: If it is no path.
    """
    if not isinstance(path, str | bytes | os.PathLike) or "\0" in (text := os.fsdecode(path)):
        raise InvalidInputError(f"path is {shown(path)}; expected the path of a file")
    return text


def counted(number: int, what: str) -> str:
    """A number of things, such as "1 seed" and "3 policies"."""
    some = what if number == 1 else f"{what[:-1]}ies" if what.endswith("cy") else f"{what}s"
    return f"{number:,} {some}"
