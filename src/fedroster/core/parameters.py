"""Parameters whose types say what they may be: a dataclass of them is checked when it is made."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, ParamSpec, Self, TypeAlias, TypeVar

from fedroster.core.checks import check_choice, check_flag, check_integer, check_number, shown
from fedroster.core.errors import ConfigurationError, meant

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Range:
    """Where a number lies: inclusive ends ``least`` and ``most``, exclusive ones ``above`` and ``below``."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None


Share: TypeAlias = Annotated[float, Range(least=0.0, most=1.0)]
ShareBelowOne: TypeAlias = Annotated[float, Range(least=0.0, below=1.0)]
NotNegative: TypeAlias = Annotated[float, Range(least=0.0)]
Positive: TypeAlias = Annotated[float, Range(above=0.0)]
Natural: TypeAlias = Annotated[int, Range(least=0)]
Count: TypeAlias = Annotated[int, Range(least=1)]
Column: TypeAlias = Annotated[int, Range(least=-1)]
"""A column of the contexts; -1 for none."""


def check_names(call: Callable[..., Any], named: Iterable[str]) -> None:
    """Raise Python's TypeError for a keyword that a call does not know, and say which one may be meant."""
    known = _signature(call).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values())
    if wrong := [name for name in named if name not in known and not takes_any]:
        said = f"{call.__qualname__.removesuffix('.__init__')}() got an unexpected keyword argument {wrong[0]!r}."
        raise TypeError(said + meant(wrong[0], known.keys() - {"self"}))


_signature = functools.cache(inspect.signature)


def suggests(call: Callable[P, R]) -> Callable[P, R]:
    """A function that says which keyword may be meant."""

    @functools.wraps(call)
    def called(*given: P.args, **named: P.kwargs) -> R:
        check_names(call, named)
        return call(*given, **named)

    return called


class Named:
    """A class whose constructor says which keyword may be meant."""

    __slots__ = ()

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Check the names; nothing else is new."""
        check_names(cls.__init__, named)
        return super().__new__(cls)


class Parameters(Named):
    """A frozen dataclass that checks its fields against their types: numbers, texts, flags, choices, tuples."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check every field, and that the upper end ``x_max`` of a range is not below its ``x_min``.

        Raises:
            ConfigurationError: If a parameter is out of its range or of another type.
        """
        kind: Any = type(self)  # hashable, which mypy does not see
        hints = _hints(kind)
        for name, hint in hints.items():
            _check(name, getattr(self, name), hint)
            if (low := name.replace("_max", "_min")) != name and low in hints:
                check_number(name, getattr(self, name), least=getattr(self, low))


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _check(name: str, value: Any, hint: Any) -> None:
    parts, limits = typing.get_args(hint), Range()
    if type(None) in parts:
        if value is None:
            return
        parts = typing.get_args(hint := parts[0])
    if typing.get_origin(hint) is Annotated:
        hint, limits = parts
    if typing.get_origin(hint) is Literal:
        check_choice(name, value, parts)
    elif typing.get_origin(hint) is tuple:
        if not isinstance(value, tuple | list):
            raise ConfigurationError(f"{name} is {shown(value)}; expected a tuple")
        for entry in value:
            _check(f"an entry of {name}", entry, parts[0])
    elif hint is str:
        if not isinstance(value, str):
            raise ConfigurationError(f"{name} is {shown(value)}; expected a text")
    elif hint is bool:
        check_flag(name, value)
    elif hint is int:
        check_integer(name, value, least=limits.least)
    elif hint is float:
        check_number(name, value, least=limits.least, most=limits.most, above=limits.above, below=limits.below)
