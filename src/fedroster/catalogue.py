"""Policies and scenarios by name, with parameters as text: what the command line and the studies speak.

A policy is written ``name:parameter=value,...``, such as ``rbcs-f:V=20,beta=0.1``; one that no entry point names is
written with its module, ``my_package.MyPolicy:parameter=value``, and one around another with a slash before it,
``participation-weights/rbcs-f:V=20``.  A scenario is a name such as ``rbcs-f/table-1``.

Other packages add policies through the entry point group ``fedroster.policies`` and scenarios through
``fedroster.scenarios``.  What is made is imported when it is asked for: names and lines cost nothing to look up.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import os
import re
import sys
import typing
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

from fedroster.core.citation import in_short
from fedroster.core.errors import ConfigurationError, FedrosterError, PluginWarning, UnknownNameError

if TYPE_CHECKING:
    from fedroster.core.protocols import AnyEnvironment, AnyPolicy

AUTOMATIC = "auto"
"""How None is written, for a parameter that a policy then sets by itself."""

REFERENCE = "random"
"""The policy that every comparison tests the others against, if it takes part and no other is named."""

DEFAULT_SCENARIO = "rbcs-f/table-1"
"""Where policies are compared if no scenario is named."""

RBCS_F = "Huang et al. 2021, doi:10.1109/TPDS.2020.3040887"
COCS = "Qu et al. 2021, arXiv:2112.00925"
OURS = "fedroster"


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be made by name, and what commands do with it by default.

    Attributes:
        made: A frozen dataclass, whose fields are the parameters; or its path.
        summary: One line.
        source: Where it is published; empty for what the BibTeX in its class attribute ``citation`` says.
        optimal: Policy that the regret is measured against; empty for none.  This and all that follow are for scenarios
            only.
        yardstick: Policy whose updates in time the others are given as a share of; empty for none.
        rounds: Rounds T of a comparison with training.
        untrained_rounds: Rounds T of a comparison without training.
        settings: Parameters that a comparison changes, as text.
        policies: What `simulate` plays, as text.
        compared: What a comparison in this scenario alone compares, as text; empty for all policies that can run.
    """

    made: Callable[..., Any] | str
    summary: str
    source: str = ""
    optimal: str = ""
    yardstick: str = ""
    rounds: int = 200
    untrained_rounds: int = 200
    settings: Mapping[str, str] = field(default_factory=dict)
    policies: tuple[str, ...] = (REFERENCE, "round-robin", "oort")
    compared: tuple[str, ...] = ()

    @property
    def make(self) -> Callable[..., Any]:
        """What is made, imported where it must be."""
        if not isinstance(self.made, str):
            return self.made
        module, _, name = self.made.rpartition(".")
        return cast("Callable[..., Any]", getattr(importlib.import_module(module), name))

    @property
    def origin(self) -> str:
        """Where it is published: authors, year and link."""
        return self.source or in_short(getattr(self.make, "citation", ""))

    @property
    def is_ours(self) -> bool:
        """Whether comparisons are about it by default; policies only."""
        return self.origin == OURS

    def parameters(self) -> dict[str, Any]:
        """Names and defaults of the parameters."""
        return {field.name: _default(field) for field in dataclasses.fields(self.make)}  # type: ignore[arg-type]


def _default(field: dataclasses.Field[Any]) -> Any:
    """A field's default, of a policy inside as text; None for one that must be given."""
    if field.default is not dataclasses.MISSING:
        return field.default
    found = None if field.default_factory is dataclasses.MISSING else field.default_factory()
    return policy_text(found) if found is not None and field.name == "policy" else found


def _policy(name: str, summary: str) -> Entry:
    return Entry(f"fedroster.policies.{name}", summary)


POLICIES: Mapping[str, Entry] = {
    "rbcs-f": _policy("RBCSF", "Lyapunov queues and a contextual bandit: short rounds, guaranteed rates"),
    "floor": _policy("Floor", "every client's share at every moment: urgent clients first, the rest by price; no V"),
    "by-speed": _policy("BySpeed", "draws by speed, for free places with an update memory"),
    "random": _policy("Uniform", "uniform among the available clients, within budgets"),
    "fedcs": _policy("FedCS", "all clients expected in time, as adapted by Huang et al. 2021; knows the true means"),
    "fedcs-greedy": _policy("FedCSGreedy", "greedy uploads within a deadline, as published; knows the true means"),
    "dirichlet": _policy("Dirichlet", "fixed random probabilities, Dir(gamma_2), to study unfairness"),
    "p3": _policy("OmniscientP3", "RBCS-F's problem with the true means: regret is measured against it"),
    "cocs": _policy("COCS", "contextual bandit over client-server pairs: most updates in time for the budgets"),
    "oracle": _policy("Oracle", "knows which updates will be in time"),
    "oracle-p": _policy("OracleP", "knows the probability of every update to be in time"),
    "cucb": _policy("CUCB", "UCB over a pool of whole decisions, as published"),
    "linucb": _policy("LinUCB", "LinUCB over a pool of whole decisions, as published"),
    "cucb-pairs": _policy("CUCBPairs", "UCB per client-server pair, the solver chooses"),
    "linucb-pairs": _policy("LinUCBPairs", "LinUCB per client-server pair, the solver chooses"),
    "partial-pooling": _policy("PartialPooling", "one curve over contexts, and deviations; rates with beta"),
    "oort": _policy("Oort", "exploits great losses on fast clients, explores by speed, paced"),
    "power-of-choice": _policy("PowerOfChoice", "of d random candidates those of greatest last known loss (rpow-d)"),
    "tifl": _policy("TiFL", "cohorts from one tier of equally fast clients"),
    "e3cs": _policy("E3CS", "exponential weights for clients that answer in time, with a fairness quota"),
    "cs-ucb": _policy("CSUCB", "UCB on times, with fairness queues"),
    "participation-weights": _policy("ParticipationWeights", "FedAU's weights around any policy"),
    "afl": _policy("AFL", "draws that grow with the clients' losses, some at random"),
    "refl": _policy("REFL", "first the clients that will be there least"),
    "pisces": _policy("Pisces", "free places to useful clients whose updates come fresh"),
    "f3ast": _policy("F3AST", "the turns that reduce the variance most; weights p / r"),
    "clustered-sampling": _policy("ClusteredSampling", "unbiased draws by sample size, one from each urn"),
    "fedcor": _policy("FedCor", "reduces the losses of all most, as they correlate; asks all"),
    "optimal-client-sampling": _policy("OptimalClientSampling", "large updates are sent, with unbiased weights"),
    "divfl": _policy("DivFL", "clients whose updates stand for those of all"),
    "hics-fl": _policy("HiCSFL", "clusters of clients by label balance, as the output bias tells"),
    "round-robin": _policy("RoundRobin", "clients chosen longest ago first"),
    "size-weighted": _policy("SizeWeighted", "with probabilities proportional to the clients' samples"),
}
"""Our policies by name."""


def _edge(name: str, summary: str) -> Entry:
    return Entry(
        f"fedroster.networks.hierarchical.{name}",
        summary,
        COCS,
        optimal="oracle",
        yardstick="oracle-p",
        untrained_rounds=1000,
        policies=("cocs", "partial-pooling", REFERENCE),
    )


SCENARIOS: Mapping[str, Entry] = {
    DEFAULT_SCENARIO: Entry(
        "fedroster.networks.flat.FlatNetwork",
        "40 clients of four classes, one server, linear exchange times",
        RBCS_F,
        untrained_rounds=500,
        policies=("rbcs-f:V=20", REFERENCE, "fedcs:deadline_s=3"),
        compared=("floor", "rbcs-f:V=5", "rbcs-f:V=20", "rbcs-f:V=50", REFERENCE, "fedcs:deadline_s=3", "p3:V=20"),
    ),
    "rbcs-f/volatile": Entry(
        "fedroster.networks.volatile.VolatileNetwork",
        "the same, and clients vanish and return at random, between rounds and in them",
        OURS,
        untrained_rounds=500,
        policies=("floor", "rbcs-f:V=20", REFERENCE),
    ),
    "rbcs-f/patterns": Entry(
        "fedroster.networks.patterns.PatternedNetwork",
        "the same, under one of ten availability patterns of the field: by data, by label, by time",
        "arXiv:2205.06730, arXiv:2409.17446, arXiv:2211.13975",
        untrained_rounds=500,
        policies=("floor", "f3ast", REFERENCE),
    ),
    "cocs/mnist": _edge("HierarchicalNetwork", "50 clients, 3 edge servers, a small model, every pair in reach"),
    "cocs/cifar-10": _edge("HierarchicalCifar10", "the same with a large model"),
    "cocs/mnist-geometric": _edge("GeometricMnist", "moving clients, coverage that changes, a small model"),
    "cocs/cifar-10-geometric": _edge("GeometricCifar10", "the same with a large model"),
    "hidden/mnist": replace(
        _edge("HierarchicalNetwork", "cocs/mnist with failures that no context explains"),
        made="fedroster.networks.hidden_causes.HiddenCauses",
        source=OURS,
        optimal="oracle-p",
    ),
}
"""The reference networks by name; the laboratory's come by an entry point, as those of other packages do."""


@cache
def policies() -> Mapping[str, Entry]:
    """All policies by name, plug-ins included."""
    return _with_plugins(POLICIES, "fedroster.policies")


@cache
def scenarios() -> Mapping[str, Entry]:
    """All scenarios by name, plug-ins included."""
    return _with_plugins(SCENARIOS, "fedroster.scenarios")


_RESERVED = {"fedroster.policies": ":,=/", "fedroster.scenarios": ":,="}
"""What stands between names and parameters in texts, by group."""


def _with_plugins(own: Mapping[str, Entry], group: str) -> dict[str, Entry]:
    """Our own entries and those of other packages; one that is broken is left out, and costs the others nothing."""
    found = dict(own)
    for point in entry_points(group=group):
        is_taken, reserved = point.name in found, _RESERVED[group]
        if is_taken or set(point.name) & set(reserved):
            why = "is taken" if is_taken else f"has one of {reserved!r}"
            _warn(f"{point.value} is left out of {group}: the name {point.name!r} {why}")
            continue
        try:
            with redirect_stdout(sys.stderr):  # what it prints is no result of ours
                loaded = point.load()
            summary = (loaded.__doc__ or "").strip().partition("\n")[0]
            found[point.name] = loaded if isinstance(loaded, Entry) else Entry(loaded, summary, point.value)
            if not str(found[point.name].made).startswith("fedroster."):  # ours is imported when asked for
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
    name = _name(text)
    if name in _SESSION:
        return _SESSION[name]
    other = re.fullmatch(r"([^\s(]+)[\s(]+(.*?)\)?", name)
    if other and (known := _known_as(other[1], policies())):
        raise UnknownNameError(f"unknown policy {text!r}. Did you mean '{known}:{other[2]}'?")
    if "." in name and name not in policies():
        return _outside(name)
    return _find("policy", name, policies())


def _name(text: str) -> str:
    return text.partition("/")[0].partition(":")[0].strip()


def _parted(text: str) -> tuple[str, str, str]:
    """Name, parameters and, of a policy around another, the text of the one inside; else empty."""
    is_around = "policy" in find_policy(text).parameters()
    outside, _, inside = text.partition("/") if is_around else (text, "", "")
    if "/" in outside.partition(":")[0]:
        raise ConfigurationError(f"policy {text!r} has one inside; expected {_name(text)!r}, which goes around none")
    return _name(outside), outside.partition(":")[2], inside.strip()


def entries_of(text: str) -> list[Entry]:
    """The entry of a policy, and those of the policies inside it."""
    inside = _parted(text)[2]
    return [find_policy(text), *(entries_of(inside) if inside else ())]


def is_of_this_session(text: str) -> bool:
    """Whether a policy, or one inside, is of a class that no other process can import."""
    return any(entry in _SESSION.values() for entry in entries_of(text))


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
        name, tail, inside = _parted(policy)
        known = find_policy(name).parameters()
        parts = [part.partition("=") for part in tail.split(",")]
        tail = ",".join("".join((_known_as(first.strip(), known) or first, *rest)) for first, *rest in parts)
        return _joined(_known_as(name, policies()) or name, tail, policy_text(inside) if inside else "")
    from fedroster.core.protocols import check_policy

    check_policy(policy)
    made: Any = type(policy)
    name = next((known for known, entry in policies().items() if entry.make is made), "") or _name_of(made)
    try:
        values = {known: (getattr(policy, known), default) for known, default in find_policy(name).parameters().items()}
        inner, _ = values.pop("policy", (None, None))
        given = ",".join(f"{known}={_written(value)}" for known, (value, usual) in values.items() if value != usual)
        text = _joined(name, given, "" if inner is None else policy_text(inner))
        if make_policy(text) == policy:
            return text
    except (FedrosterError, TypeError, ValueError):
        pass
    raise ConfigurationError(
        f"policy {policy!r} cannot be written as text; expected a frozen dataclass whose parameters are numbers, "
        "words, or tuples of them"
    )


def policy_texts(policies: typing.Sequence[str | AnyPolicy], besides: str = "") -> list[str]:
    """Texts of policies; what is called ``besides`` stays as it is.

    Raises:
        ConfigurationError: As :func:`policy_text`, or if one text would be that of two classes of this session.
    """
    texts = [besides if policy == besides else policy_text(policy) for policy in policies]
    for policy, text in zip(policies, texts, strict=True):
        if not isinstance(policy, str) and make_policy(text) != policy:
            raise ConfigurationError(f"two classes of policies are called {_name(text)}; expected names of their own")
    return texts


def _joined(name: str, tail: str, inside: str) -> str:
    return name + (f":{tail}" if tail else "") + (f"/{inside}" if inside else "")


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
        where = "; Python looks in the folders of PYTHONPATH" if isinstance(error, ModuleNotFoundError) else ""
        raise UnknownNameError(f"policy {path!r} cannot be imported ({error}{where})") from error
    return entry


def make_policy(text: str) -> AnyPolicy:
    """Make a policy from its text.

    Args:
        text: ``name`` or ``name:parameter=value,...``, and the same of a policy inside after a slash.

    Raises:
        UnknownNameError: If there is no such policy or parameter; names the nearest.
        ConfigurationError: If a value is malformed or out of range.
    """
    name, tail, inside = _parted(text)
    entry = find_policy(text)
    given = [_setting(part, f"policy {text!r}") for part in tail.split(",") if part.strip()]
    given += [("policy", inside)] if inside else []
    policy: AnyPolicy = _make(entry, _distinct(given), f"parameter of policy {name}")
    return policy


def scenario_text(text: str) -> str:
    """A scenario's text with the name as the catalogue writes it; UnknownNameError if there is none."""
    find_scenario(text)
    return _known_as(text, scenarios())


def policy_of_label(label: str) -> AnyPolicy:
    """Make a policy of the catalogue from what Python writes of it, as logs and state files do; runs no code.

    Args:
        label: Such as ``Floor(beta=0.15, slack=2)``.

    Raises:
        UnknownNameError: If it is none of the catalogue's.
        ConfigurationError: If a parameter is out of its range.
    """
    from fedroster.core.checks import shown

    try:
        if len(label) > _LONGEST_LABEL:
            raise ValueError("too long")
        node = ast.parse(label, mode="eval").body
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
            raise ValueError("not a call with named parameters")
        name = node.func.id
        given = {
            str(each.arg): policy_of_label(ast.unparse(each.value))
            if isinstance(each.value, ast.Call)
            else ast.literal_eval(each.value)
            for each in node.keywords
        }
        known = {entry.make.__name__: entry.make for entry in [*policies().values()][::-1]}
        if name not in known:
            raise UnknownNameError.of("policy class", name, known)
        policy: AnyPolicy = known[name](**given)
        return policy
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        if isinstance(error, FedrosterError):
            raise
        raise UnknownNameError(
            f"{shown(label, str)!r} is not written as a policy of the catalogue; expected --policy NAME:P=V,..."
        ) from error


_LONGEST_LABEL = 10_000


def find_scenario(text: str) -> Entry:
    """Return the entry of a scenario by its name."""
    known, colon, settings = text.partition(":")
    if colon and known in scenarios():
        raise UnknownNameError(f"unknown scenario {text!r}. Did you mean {known!r} with --set {settings}?")
    return _find("scenario", text, scenarios())


def make_scenario(text: str, settings: Mapping[str, str] | None = None) -> AnyEnvironment:
    """Make a scenario's environment.

    Args:
        text: Its name.
        settings: Parameters to override, as text.

    Raises:
        UnknownNameError: If there is no such scenario or parameter; names the nearest.
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
    if name == "policy":
        return make_policy(value)
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
    if hint is str and value.startswith("~") and os.path.expanduser(value) == value:  # noqa: PTH111 (Path raises an error)
        raise ConfigurationError(f"{name} is {value!r}; expected a file, and there is no such home")
    read, words = _READ.get(hint, (str, ""))
    try:
        return read(value)
    except (ValueError, KeyError):
        said = "; parameters are separated by commas" if "=" in value else ""
        with suppress(ValueError):
            said = said or f"; {value} is {float(value.removesuffix('%')) / 100.0:g}"
        raise ConfigurationError(f"{name} is {value!r}; expected {words}{said}") from None


_READ: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    bool: (lambda value: {"true": True, "false": False}[value.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}
