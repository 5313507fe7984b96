"""Rules that go before every policy: which clients may take part, how many of each group, and how often.

A policy never sees a client that a rule keeps out, so it cannot choose it.  Rules speak of the names under which a
federation knows its clients, never of what a client says of itself.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from fedroster.core.checks import check_integer, check_number, path_of, shown
from fedroster.core.errors import ConfigurationError, FedrosterError, UnknownNameError
from fedroster.core.ids import ClientId, checked_ids, look_of
from fedroster.core.parameters import Named
from fedroster.core.units import seconds_of
from fedroster.rules.feasible import flaws, impossible

TAG = "tag:"


class Names:
    """Says by which entry of a list a client is named."""

    def __init__(self, entries: Iterable[str], tags: Mapping[str, tuple[str, ...]]) -> None:
        """Read names, patterns and tags once.

        Raises:
            UnknownNameError: If a tag is used that is not among ``tags``.
        """
        self._exact: dict[str, str] = {}
        patterns: list[tuple[str, str]] = []
        for entry in entries:
            tag = entry.removeprefix(TAG) if entry.startswith(TAG) else None
            if tag is not None and tag not in tags:
                raise UnknownNameError.of("tag", tag, tags)
            for name in (entry,) if tag is None else tags[tag]:
                self._exact.setdefault(look_of(name), entry)
                if any(mark in name for mark in "*?["):
                    patterns.append((look_of(name), entry))
        self._entries = [entry for _, entry in patterns]
        self._pattern = (
            re.compile("|".join(f"({fnmatch.translate(name)})" for name, _ in patterns)) if patterns else None
        )

    def entries(self, look: str) -> list[str]:
        """The first entry with a client's whole name, and the first whose pattern it matches, as far as there are."""
        match = None if self._pattern is None else self._pattern.match(look)
        pattern = None if match is None else self._entries[(match.lastindex or 1) - 1]
        return [entry for entry in (self._exact.get(look), pattern) if entry is not None]

    def entry(self, look: str) -> str | None:
        """The entry that names a client: the first with its whole name, else the first pattern; None if none does."""
        return next(iter(self.entries(look)), None)


class Lists:
    """The rules that name clients, read once."""

    def __init__(self, rules: Rules) -> None:
        """Read them; raises as :class:`Names` does."""
        tags = rules.tags
        self._allow = None if rules.allow is None else Names(rules.allow, tags)
        self._deny = Names(rules.deny, tags)
        self._groups = [(name, Names(group.clients, tags)) for name, group in rules.groups.items()]
        self._priorities = rules.priorities
        self._ranked = Names(sorted(rules.priorities, key=lambda name: -rules.priorities[name]), tags)

    def judge(self, client: ClientId) -> tuple[str, int, int]:
        """Why a client may not take part, empty if it may; its group, -1 for none; its priority."""
        look = look_of(client)
        mine = [number for number, (_, group) in enumerate(self._groups) if group.entry(look) is not None]
        reason = ""
        if (denied := self._deny.entry(look)) is not None:
            reason = f"denied by {denied!r}"
        elif self._allow is not None and self._allow.entry(look) is None:
            reason = "not on the allow list"
        elif len(mine) > 1:
            reason = "named by the groups " + " and ".join(repr(self._groups[number][0]) for number in mine)
        ranks = [self._priorities[entry] for entry in self._ranked.entries(look)]
        return reason, mine[0] if mine else -1, max(ranks, default=0)


_LARGEST_FILE = 4_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Group(Named):
    """Clients with a least and a greatest number in each cohort.

    Attributes:
        clients: Names, patterns or tags.
        least: Least number in a cohort, >= 0; a round with fewer is not begun.
        most: Greatest number in a cohort, >= ``least``; None for no limit.
    """

    clients: tuple[str, ...]
    least: int = 0
    most: int | None = None

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a number is out of its range, or no client is named.
        """
        object.__setattr__(self, "clients", _names("clients of a group", self.clients))
        if not self.clients:
            raise ConfigurationError("a group names no clients; expected names, patterns or tags")
        check_integer("least of a group", self.least, least=0)
        if self.most is not None:
            check_integer("most of a group", self.most, least=max(self.least, 0))


@dataclass(frozen=True, slots=True)
class Rules(Named):
    """Which clients may take part, for any policy.

    Example:
        >>> from fedroster import Rules, Selector, Uniform
        >>> rules = Rules(allow=["hospital-*"], deny=["hospital-c"])
        >>> clients = ["hospital-a", "hospital-b", "hospital-c", "laptop"]
        >>> selector = Selector(Uniform(), cohort_size=4, clients=clients, rules=rules)
        >>> selector.select().clients
        ('hospital-a', 'hospital-b')
        >>> selector.excluded()
        {'hospital-c': "denied by 'hospital-c'", 'laptop': 'not on the allow list'}

    Clients are named by their whole name, by a pattern with ``*``, ``?`` and ``[...]``, or by ``tag:`` and a tag.
    Numbers that are ids are compared as text.

    Attributes:
        allow: Clients that may take part; None for all.
        deny: Clients that may not, even if they are allowed.
        tags: Clients of each tag, by name or pattern.
        groups: Groups, by name, each a :class:`Group` or a mapping of its attributes.  A client is in one group at
            most; one that several groups name does not take part.
        priorities: Clients that go before others, by name, pattern or tag: the policy first chooses among those with
            the highest number, then fills the remaining places from the next.  0 for clients that are not named. If a
            client has several numbers, the highest counts.
        least_cohort: Least number of clients in a cohort, >= 0; a round with fewer does not begin.
        most_participations: Most participations of a client in all, >= 0; None for no limit.
        most_per_window: Most participations of a client in any ``window`` consecutive rounds, >= 1; None for no limit.
        window: Rounds, >= 1, or a time by the selector's clock, such as ``"90min"``, ``"56h"``, ``"7d"`` or ``"2w"``;
            given if and only if ``most_per_window`` is.
        least_separation: Rounds from one participation of a client to its next, >= 1: one that took part in round t
            may take part again in round t + ``least_separation``.  A time such as ``"2d"`` is ``least_separation_s``.
        least_separation_s: Seconds from one participation of a client to its next, >= 0, by the selector's clock.
    """

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: Mapping[str, Group] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    least_cohort: int = 0
    most_participations: int | None = None
    most_per_window: int | None = None
    window: int | str | None = None
    least_separation: int | str = 1
    least_separation_s: float = 0.0

    def __post_init__(self) -> None:
        """Check every rule, and bring names into one form.

        Raises:
            ConfigurationError: If a rule is malformed or out of its range.
            UnknownNameError: If a tag that no client bears is used.
        """
        keep = object.__setattr__
        if self.allow is not None:
            keep(self, "allow", _names("allow", self.allow))
        keep(self, "deny", _names("deny", self.deny))
        tags = {str(name): _names(f"tag {name!r}", value) for name, value in _mapping("tags", self.tags).items()}
        keep(self, "tags", tags)
        groups = {str(name): _group(str(name), value) for name, value in _mapping("groups", self.groups).items()}
        keep(self, "groups", groups)
        keep(self, "priorities", {str(name): value for name, value in _mapping("priorities", self.priorities).items()})
        for name, value in self.priorities.items():
            check_integer(f"priority of {name!r}", value, least=-(2**63))
        check_number("least_separation_s", self.least_separation_s, least=0.0)
        least = {"least_cohort": 0, "most_participations": 0, "most_per_window": 1, "window": 1, "least_separation": 1}
        for limit in least:
            value = getattr(self, limit)
            if limit in ("window", "least_separation") and isinstance(value, str):
                _seconds(limit, value)
            elif value is not None or limit.startswith("least"):
                check_integer(limit, value, least=least[limit])
                keep(self, limit, int(value))
        if isinstance(self.least_separation, str):
            if self.least_separation_s:
                raise ConfigurationError(
                    "least_separation is a time, and so is least_separation_s; expected one of them"
                )
            keep(self, "least_separation_s", _seconds("least_separation", self.least_separation))
            keep(self, "least_separation", 1)
        if (self.most_per_window is None) != (self.window is None):
            raise ConfigurationError(
                f"most_per_window is {self.most_per_window} and window is {self.window}; expected both or neither"
            )
        Lists(self)
        for name, entries in tags.items():
            if any(entry.startswith(TAG) for entry in entries):
                raise ConfigurationError(f"tag {name!r} holds another tag; expected names and patterns of clients")

    @property
    def name_clients(self) -> bool:
        """Whether any rule depends on a client's name."""
        return self.allow is not None or bool(self.deny or self.groups or self.priorities)

    @property
    def has_least(self) -> bool:
        """Whether there is a least number, without which a round does not begin."""
        return self.least_cohort > 0 or any(group.least for group in self.groups.values())

    @property
    def window_s(self) -> float | None:
        """Length of the window, seconds; None for one of rounds, or none."""
        return _seconds("window", self.window) if isinstance(self.window, str) else None

    @property
    def longest_rounds(self) -> int:
        """Rounds after which a participation keeps a client out no more, but for times and totals; 1 for the next."""
        return max(self.window if isinstance(self.window, int) else 1, int(self.least_separation))

    def check(
        self,
        members: Iterable[ClientId],
        *,
        cohort_size: int | None = None,
        beta: float = 0.0,
        availability: float | Mapping[ClientId, float] = 1.0,
        round_s: float | None = None,
    ) -> tuple[str, ...]:
        """Say what these members cannot meet together, with the arithmetic; empty if nothing is known to be impossible.

        Example:
            >>> from fedroster import Rules
            >>> groups = {land: {"clients": [f"{land}-*"], "least": 2} for land in ("de", "fr")}
            >>> rules = Rules(groups=groups, most_per_window=3, window=7)
            >>> said = rules.check([f"{land}-{number}" for land in ("de", "fr") for number in range(3)])
            >>> print(said[0])  # doctest: +ELLIPSIS
            some rounds cannot begin: group 'de' has 3 clients, each at most 0.429 times a round ...

        Args:
            members: Ids.
            cohort_size: Largest number of clients in a round; None if it is not known.
            beta: Participation rate that the policy promises, in [0, 1].
            availability: Share of the rounds in which a client is there, in [0, 1]; of all, or by id (1 for others).
            round_s: Time from one round to the next, seconds; None leaves out windows and separations in time.

        Raises:
            ConfigurationError: If a number is out of its range.
            InvalidInputError: If a member is no id, or named twice.
        """
        if cohort_size is not None:
            check_integer("cohort_size", cohort_size, least=1)
        if round_s is not None:
            check_number("round_s", round_s, above=0.0)
        ids, lists = checked_ids(members), Lists(self)
        judged = [(client, *lists.judge(client)) for client in ids]
        allowed = [(client, group, priority) for client, why, group, priority in judged if not why]
        of_each = availability if isinstance(availability, Mapping) else dict.fromkeys(ids, availability)
        there = [of_each.get(client, 1.0) for client, _, _ in allowed]
        check_number("beta", beta, least=0.0, most=1.0)
        for each in there:
            check_number("availability", each, least=0.0, most=1.0)
        found = flaws(
            self,
            beta=beta,
            cohort_size=cohort_size,
            group=np.array([group for _, group, _ in allowed], np.int64),
            priority=np.array([priority for _, _, priority in allowed], np.int64),
            availability=np.array(there, np.float64),
            num_members=len(ids),
            round_s=round_s,
        )
        never = "" if cohort_size is None else impossible(self, cohort_size)
        return tuple(filter(None, (never, *found.values())))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rules:
        """Read the rules of a TOML file whose keys are the attributes, once; ``selector.rules = Rules.load(path)``.

        Args:
            path: A regular file of at most 4 MB.

        Raises:
            ConfigurationError: If it cannot be read, holds no rule, or a rule is malformed; names the file.
        """
        try:
            path = path_of(path)
            flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for its writer
            with os.fdopen(os.open(path, flags), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ConfigurationError("it is no regular file")
                text = file.read(_LARGEST_FILE + 1)
            if len(text) > _LARGEST_FILE:
                raise ConfigurationError(f"it has more than {_LARGEST_FILE:,} bytes")
            if not (table := tomllib.loads(text.decode())):  # perhaps it is being written: it must not admit all
                raise ConfigurationError('it holds no rule; expected at least one, such as allow = ["*"]')
            return cls.from_table(table)
        except (OSError, FedrosterError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigurationError(f"{shown(path)} holds no rules that can be used: {shown(error, str)}") from error

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Rules:
        """Make rules of a mapping from attributes to values, as :meth:`as_table` gives them.

        Args:
            table: The mapping.

        Raises:
            ConfigurationError: If a rule is malformed.
            UnknownNameError: If something is no rule.
        """
        known = [each.name for each in fields(cls)]
        for name in _mapping("rules", table):
            if name not in known:
                raise UnknownNameError.of("rule", name, known)
        return cls(**table)

    def as_table(self) -> dict[str, Any]:
        """The rules that differ from none, as plain values."""
        none, table = (
            json.loads(json.dumps(asdict(each), default=np.generic.item))  # NumPy's numbers as Python's
            for each in (Rules(), self)
        )
        for group in table["groups"].values():
            if group["most"] is None:
                del group["most"]
        return {name: value for name, value in table.items() if value != none[name]}


def _seconds(name: str, text: str) -> float:
    return seconds_of(name, text, expected="rounds, or ")


def _names(what: str, names: object) -> tuple[str, ...]:
    """Names of clients as text."""
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable) or getattr(names, "ndim", 1) != 1:
        raise ConfigurationError(f"{what} is {shown(names)}; expected a list of names, patterns or tags")
    entries = list(names)
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, str | int) or entry == "":
            raise ConfigurationError(f"{what} holds {shown(entry)}; expected a name, a pattern or a tag")
    return tuple(map(str, entries))


def _mapping(what: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str | int) and name != "" for name in value):
        raise ConfigurationError(f"{what} are {shown(value)}; expected a table with names")
    return value


def _group(name: str, value: object) -> Group:
    if isinstance(value, Group):
        return value
    known = [each.name for each in fields(Group)]
    for key in _mapping(f"group {name!r}", value):
        if key not in known:
            raise UnknownNameError.of(f"attribute of group {name!r}", key, known)
    try:
        return Group(**value)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigurationError(f"group {name!r} has no clients; expected clients = [...]") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"group {name!r}: {error}") from error
