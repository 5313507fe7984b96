"""What rules say of a client by its name, however the name is written."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fedroster.core.errors import UnknownNameError
from fedroster.core.ids import ClientId, look_of

if TYPE_CHECKING:
    from fedroster.rules.rules import Rules

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
                near = difflib.get_close_matches(tag, tags, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise UnknownNameError(f"tag {tag!r} is in no table of tags.{hint} Known: {', '.join(tags) or 'none'}.")
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
