"""Policies and scenarios by name, with parameters as text: what the command line and the studies speak.

A policy is written ``name:parameter=value,...``, such as ``rbcs-f:V=20,beta=0.1``; one that no entry point names is
written with its module, ``my_package.MyPolicy:parameter=value``.  A scenario is a name such as
``rbcs-f/table-1``, optionally with its version, ``rbcs-f/table-1@1``: a version's defaults never change.

Other packages add policies through the entry point group ``fedroster.policies`` and scenarios through
``fedroster.scenarios``.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
import typing
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import fedroster.policies as our
from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError, FedrosterError, PluginWarning, UnknownNameError
from fedroster.core.protocols import AnyEnvironment, AnyPolicy, check_policy
from fedroster.environment.flat import FlatNetwork
from fedroster.environment.hidden_causes import HiddenCauses
from fedroster.environment.hierarchical import (
    GeometricCifar10,
    GeometricMnist,
    HierarchicalCifar10,
    HierarchicalNetwork,
)
from fedroster.environment.volatile import VolatileNetwork
from fedroster.names import POLICIES, SCENARIOS
from fedroster.traces.network import TraceNetwork

AUTOMATIC = "auto"
"""How None is written, for a parameter that a policy then sets by itself."""

REFERENCE = "random"
"""The policy that every comparison tests the others against, if it takes part and no other is named."""

DEFAULT_SCENARIO = "rbcs-f/table-1"
"""Where policies are compared if no scenario is named."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be made by name, and what commands do with it by default.

    Attributes:
        make: A frozen dataclass; its fields are the parameters.
        summary: One line.
        source: Where it is published.
        is_ours: Whether comparisons are about it by default; policies only.
        version: Grows when defaults change; this and all that follow are for scenarios only.
        optimal: Policy that the regret is measured against; empty for none.
        yardstick: Policy whose updates in time the others are given as a share of; empty for none.
        num_rounds: Rounds T of a comparison with training.
        untrained_rounds: Rounds T of a comparison without training.
        settings: Parameters that a comparison changes, as text.
        policies: What `simulate` plays, as text.
        compared: What a comparison in this scenario alone compares, as text; empty for all policies that can run.
    """

    make: Callable[..., Any]
    summary: str
    source: str
    is_ours: bool = field(default=False, kw_only=True)
    version: int = 1
    optimal: str = ""
    yardstick: str = ""
    num_rounds: int = 200
    untrained_rounds: int = 200
    settings: Mapping[str, str] = field(default_factory=dict)
    policies: tuple[str, ...] = (REFERENCE, "round-robin", "oort")
    compared: tuple[str, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """Names and defaults of the parameters."""
        return {field.name: _default(field) for field in dataclasses.fields(self.make)}  # type: ignore[arg-type]


def _default(field: dataclasses.Field[Any]) -> Any:
    """A field's default; None for one that must be given."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


_POLICIES: dict[str, Entry] = {
    name: Entry(getattr(our, made), summary, source, is_ours=name in ("floor", "partial-pooling"))
    for name, (made, summary, source) in POLICIES.items()
}

_EDGE = Entry(
    HierarchicalNetwork,
    *SCENARIOS["cocs/mnist"],
    optimal="oracle",
    yardstick="oracle-p",
    untrained_rounds=1000,
    policies=("cocs", "partial-pooling", REFERENCE),
)


def _edge(name: str, make: Callable[..., Any]) -> Entry:
    summary, source = SCENARIOS[name]
    return replace(_EDGE, make=make, summary=summary, source=source)


_SCENARIOS: dict[str, Entry] = {
    DEFAULT_SCENARIO: Entry(
        FlatNetwork,
        *SCENARIOS[DEFAULT_SCENARIO],
        untrained_rounds=500,
        policies=("rbcs-f:V=20", REFERENCE, "fedcs:deadline_s=3"),
        compared=("floor", "rbcs-f:V=5", "rbcs-f:V=20", "rbcs-f:V=50", REFERENCE, "fedcs:deadline_s=3", "p3:V=20"),
    ),
    "rbcs-f/volatile": Entry(
        VolatileNetwork,
        *SCENARIOS["rbcs-f/volatile"],
        untrained_rounds=500,
        policies=("floor", "rbcs-f:V=20", REFERENCE),
    ),
    "cocs/mnist": _EDGE,
    "cocs/cifar-10": _edge("cocs/cifar-10", HierarchicalCifar10),
    "cocs/mnist-geometric": _edge("cocs/mnist-geometric", GeometricMnist),
    "cocs/cifar-10-geometric": _edge("cocs/cifar-10-geometric", GeometricCifar10),
    "hidden/mnist": replace(_edge("hidden/mnist", HiddenCauses), optimal="oracle-p"),
    # A week of rounds, one every half hour: every policy meets every device as often as every other does, whatever its
    # rounds take, and a device that is available for 3 % of the time has ten chances.
    "traces/devices": Entry(
        TraceNetwork,
        *SCENARIOS["traces/devices"],
        num_rounds=336,
        untrained_rounds=336,
        settings={"round_interval_s": "1800"},
    ),
}


@cache
def policies() -> Mapping[str, Entry]:
    """All policies by name, plug-ins included."""
    return _with_plugins(_POLICIES, "fedroster.policies")


@cache
def scenarios() -> Mapping[str, Entry]:
    """All scenarios by name, plug-ins included."""
    return _with_plugins(_SCENARIOS, "fedroster.scenarios")


_RESERVED = ":,=@"
"""What stands between names and parameters in texts."""


def _with_plugins(own: Mapping[str, Entry], group: str) -> dict[str, Entry]:
    """Our own entries and those of other packages; one that is broken is left out, and costs the others nothing."""
    found = dict(own)
    for point in entry_points(group=group):
        if point.name in found:
            _warn(f"{point.value} is left out of {group}: the name {point.name!r} is taken")
            continue
        if set(point.name) & set(_RESERVED):
            _warn(f"{point.value} is left out of {group}: the name {point.name!r} has one of {_RESERVED!r}")
            continue
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no result of ours
                loaded = point.load()
            summary = (loaded.__doc__ or "").strip().partition("\n")[0]
            found[point.name] = loaded if isinstance(loaded, Entry) else Entry(loaded, summary, point.value)
            found[point.name].parameters()
        except (Exception, SystemExit) as error:  # the module is not ours and may raise anything when imported
            found.pop(point.name, None)
            _warn(f"{point.value} is left out of {group}: {point.name!r} cannot be loaded ({error!r})")
    return found


_SESSION: dict[str, Entry] = {}
"""Policies of classes that no other process can import, by the name of the class."""


def _known_as(name: str, known: typing.Iterable[str]) -> str:
    """A name as it is written among ``known``, where its case does not matter; empty where it is not there."""
    names = list(known)
    if name in names:
        return name
    found = [one for one in names if one.casefold() == name.casefold()]
    return found[0] if len(found) == 1 else ""


def _find(kind: str, name: str, known: Mapping[str, Entry]) -> Entry:
    if not (found := _known_as(name, known)):
        raise UnknownNameError.of(kind, name, known)
    return known[found]


def _warn(text: str) -> None:
    warnings.warn(text, PluginWarning, stacklevel=2)


def find_policy(text: str) -> Entry:
    """Return the entry of a policy from ``name`` or ``name:parameter=value,...``."""
    name = text.partition(":")[0].strip()
    if name in _SESSION:
        return _SESSION[name]
    if "." in name and name not in policies():
        return _outside(name)
    return _find("policy", name, policies())


def is_of_this_session(text: str) -> bool:
    """Whether a policy is of a class that no other process can import."""
    return text.partition(":")[0].strip() in _SESSION


def policy_text(policy: str | AnyPolicy) -> str:
    """A policy as text, which :func:`make_policy` reads.

    A class that no entry point names is written with its module; one of the main program, a notebook or a function by
    its own name, which this process alone understands.

    Args:
        policy: A policy, or a text, whose names are then written as the catalogue writes them.

    Raises:
        UnknownNameError: If there is no policy of that name.
        ConfigurationError: If it is no policy, or has a parameter that has no text.
    """
    if isinstance(policy, str):
        name, colon, tail = policy.partition(":")
        known = find_policy(name).parameters()
        parts = [part.partition("=") for part in tail.split(",")]
        tail = ",".join("".join((_known_as(first.strip(), known) or first, *rest)) for first, *rest in parts)
        return f"{_known_as(name.strip(), policies()) or name.strip()}{colon}{tail}"
    check_policy(policy)
    made: Any = type(policy)
    name = next((known for known, entry in policies().items() if entry.make is made), "") or _name_of(made)
    try:
        values = {known: (getattr(policy, known), default) for known, default in find_policy(name).parameters().items()}
        given = ",".join(f"{known}={_written(value)}" for known, (value, usual) in values.items() if value != usual)
        text = f"{name}:{given}" if given else name
        if make_policy(text) == policy:
            return text
    except (FedrosterError, TypeError, ValueError):
        pass
    raise ConfigurationError(
        f"policy {policy!r} cannot be written as text; expected a frozen dataclass whose parameters are numbers, "
        "words, or tuples of them"
    )


def _name_of(made: type[Any]) -> str:
    """The path of a class that another process can import; else its name, which is then known in this process."""
    module, name = made.__module__, made.__qualname__
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is made:
        return f"{module}.{name}"
    _SESSION[made.__name__] = Entry(made, (made.__doc__ or "").strip().partition("\n")[0], "this session")
    return made.__name__


def _written(value: Any) -> str:
    """A parameter as :func:`make_policy` reads it."""
    if value is None:
        return AUTOMATIC
    if isinstance(value, tuple):
        return "/".join(map(_written, value)) or "()"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _outside(path: str) -> Entry:
    """The entry of a class that no entry point names, by where it can be imported from."""
    module, _, name = path.rpartition(".")
    try:
        entry = Entry(getattr(importlib.import_module(module), name), path, path)
        entry.parameters()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise UnknownNameError(f"policy {path!r} cannot be imported ({error})") from error
    return entry


def make_policy(text: str) -> AnyPolicy:
    """Make a policy from its text.

    Args:
        text: ``name`` or ``name:parameter=value,...``.

    Raises:
        UnknownNameError: If there is no such policy or parameter; names the nearest.
        ConfigurationError: If a value is malformed or out of range.
    """
    name, _, tail = text.partition(":")
    entry = find_policy(text)
    settings = _distinct(_setting(part, f"policy {text!r}") for part in tail.split(",") if part.strip())
    policy: AnyPolicy = _make(entry, settings, f"parameter of policy {name}")
    return policy


def scenario_text(text: str) -> str:
    """A scenario's text with the name as the catalogue writes it; UnknownNameError if there is none."""
    find_scenario(text)
    name, at, version = text.partition("@")
    return f"{_known_as(name, scenarios())}{at}{version}"


def policy_of_label(label: str) -> AnyPolicy:
    """Make a policy of the catalogue from what Python writes of it, as logs and state files do; runs no code.

    Args:
        label: Such as ``Floor(beta=0.15, slack=2)``.

    Raises:
        UnknownNameError: If it is none of the catalogue's.
        ConfigurationError: If a parameter is out of its range.
    """
    try:
        if len(label) > _LONGEST_LABEL:
            raise ValueError("too long")
        node = ast.parse(label, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
            raise ValueError("not a call with named parameters")
        name = node.func.id
        made: Any = next((entry.make for entry in policies().values() if entry.make.__name__ == name), None)
        if made is None:
            raise UnknownNameError.of("policy class", name, [entry.make.__name__ for entry in policies().values()])
        policy: AnyPolicy = made(**{str(each.arg): ast.literal_eval(each.value) for each in node.keywords})
        return policy
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, FedrosterError):
            raise
        raise UnknownNameError(
            f"{shown(label, str)!r} is not written as a policy of the catalogue; expected --policy NAME:P=V,..."
        ) from error


_LONGEST_LABEL = 10_000


def find_scenario(text: str) -> Entry:
    """Return the entry of a scenario from ``name`` or ``name@version``."""
    name, _, version = text.partition("@")
    entry = _find("scenario", name, scenarios())
    if version and version != str(entry.version):
        raise UnknownNameError.of(f"version of scenario {name}", version, [str(entry.version)])
    return entry


def make_scenario(text: str, settings: Mapping[str, str] | None = None) -> AnyEnvironment:
    """Make a scenario's environment.

    Args:
        text: ``name`` or ``name@version``.
        settings: Parameters to override, as text.

    Raises:
        UnknownNameError: If there is no such scenario, version or parameter; names the nearest.
        ConfigurationError: If a value is malformed or out of range.
    """
    environment: AnyEnvironment = _make(find_scenario(text), settings or {}, f"parameter of scenario {text}")
    return environment


def parse_settings(parts: typing.Iterable[str]) -> dict[str, str]:
    """Read ``name=value`` texts; each name comes once."""
    return _distinct(_setting(part, f"setting {part!r}") for part in parts)


def _distinct(pairs: typing.Iterable[tuple[str, str]]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in pairs:
        if name in settings:
            raise ConfigurationError(f"setting {name!r} is given twice; expected once")
        settings[name] = value
    return settings


def _setting(part: str, where: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ConfigurationError(f"{where}: {part!r} is not of the form name=value")
    return name.strip(), value.strip()


def _make(entry: Entry, settings: Mapping[str, str], kind: str) -> Any:
    known = entry.parameters()
    for name in settings:
        if not _known_as(name, known):
            raise UnknownNameError.of(kind, name, known)
    settings = _distinct((_known_as(name, known), value) for name, value in settings.items())
    for one in dataclasses.fields(entry.make):  # type: ignore[arg-type]
        if one.default is one.default_factory is dataclasses.MISSING and one.name not in settings:
            raise ConfigurationError(f"{kind} {one.name!r} has no default; expected {one.name}=value")
    hints = typing.get_type_hints(entry.make)
    return entry.make(**{name: _convert(name, value, hints[name]) for name, value in settings.items()})


def _convert(name: str, value: str, hint: Any) -> Any:
    """Read a value as its parameter's type.

    Entries of a tuple are separated by ``/``, ``()`` is the empty one, and None is written ``auto``.
    """
    parts = typing.get_args(hint)
    if type(None) in parts:
        if value == AUTOMATIC:
            return None
        try:
            return _convert(name, value, parts[0])
        except ConfigurationError as error:
            raise ConfigurationError(f"{error} or {AUTOMATIC}") from None
    if typing.get_origin(hint) is tuple:
        if value == "()":
            return ()
        return tuple(_convert(name, part, parts[0]) for part in value.split("/"))
    try:
        if hint is bool:
            return {"true": True, "false": False}[value.lower()]
        if hint is int:
            return int(value)
        if hint is float:
            return float(value)
    except (ValueError, KeyError):
        raise ConfigurationError(f"{name} is {value!r}; expected {_WORDS[hint]}") from None
    return value


_WORDS: Mapping[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
