"""Checks of parameters, with messages that say what, which value and what was expected."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedroster.core.errors import ConfigurationError


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
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if (
        not is_number
        or not math.isfinite(value)
        or any(end is not None and not holds(float(value), float(end)) for end, _, holds in ends)
    ):
        raise ConfigurationError(f"{name} is {value!r}; expected a finite number {wanted}".rstrip())


def check_integer(name: str, value: int, *, least: float | None = None) -> None:
    """Check that a parameter is an integer that is not too small."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or (least is not None and value < least):
        raise ConfigurationError(f"{name} is {value!r}; expected an integer{'' if least is None else f' >= {least}'}")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Check that a parameter is one of a few words."""
    if value not in choices:
        raise ConfigurationError(f"{name} is {value!r}; expected one of {', '.join(choices)}")


def check_flag(name: str, value: bool) -> None:
    """Check that a parameter is a truth value: the text "false" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigurationError(f"{name} is {value!r}; expected True or False")
