"""A cohort within limits that is still the policy's own choice.

If what the policy chooses freely keeps all limits, it is the cohort.  If not, the cohort is put together of several
questions to the same policy, each about a part of the clients and of the places:

1. The least numbers: of each group the policy chooses as many as it must have, among the group alone.
2. The rest, by descending priority: the policy chooses among all that are left.  Where it takes more of a group than
   there is room for, it is asked which of them, the group is closed, and the places that became free are filled again.
3. The least cohort: if the policy wants fewer clients than that, the missing ones are drawn at random.

Each answer is checked as any decision is, so that no policy can break a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import counted
from fedroster.core.errors import RoundNotBegunError
from fedroster.core.problem import RoundContext, Selection

Ask = Callable[[RoundContext], Selection]
"""Asks the policy, and checks what it decides."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one cohort keeps, beside the clients that are at work already."""

    least: dict[str, int]  # number of each group, by name, in the order of the groups' numbers
    room: IntArray  # how many more clients each group has room for, shape (groups,)
    need: IntArray  # how many more each must have
    group: IntArray  # of each slot's client, -1 for none, shape (slots,)
    priority: IntArray  # of each slot's client
    least_cohort: int  # number of clients, with those at work
    at_work: int
    causes: Callable[[int], str]  # why clients of a group, or with -1 of all, cannot take part; empty if not known


class _Draft:
    """A cohort that is being put together."""

    def __init__(self, ask: Ask, context: RoundContext, limits: Limits, rng: Generator) -> None:
        self._ask = ask
        self._rng = rng
        self._context = context
        self._client = np.arange(context.num_links) if context.client is None else context.client
        self._group = limits.group[self._client]
        self.priority = limits.priority[self._client]
        self.free = context.available.copy()  # rows that can still be taken, apart from their group's limit
        self.links = np.zeros(0, np.int64)
        self.drawn: FloatArray | None = None  # of every row, as soon as an answer says it
        self.places, self._budget = context.cohort_size, context.budget
        self.room, self.need = limits.room, limits.need

    def pool(self, rank: int | None, number: int | None = None) -> BoolArray:
        """Rows that can still be taken, of a priority and a group; None for any."""
        rows = self.free & (np.append(self.room, 1)[self._group] > 0)  # the last is of those in no group, -1
        if rank is not None:
            rows &= self.priority == rank
        return rows if number is None else rows & (self._group == number)

    def num_clients(self) -> int:
        """How many clients can be taken, whatever the number of their links."""
        return int(np.count_nonzero(np.bincount(self._client[self.free])))

    def counts(self, links: IntArray) -> IntArray:
        """How many rows are of each group."""
        groups = self._group[links]
        return np.bincount(groups[groups >= 0], minlength=self.room.shape[0])

    def choice(self, pool: BoolArray, places: int) -> IntArray:
        """The policy's own choice of at most this many rows of a pool; of one that wants more, some are drawn."""
        if places <= 0 or not pool.any():
            return np.zeros(0, np.int64)
        asked = replace(self._context, available=pool, cohort_size=places, budget=self._budget)
        answer = self._ask(asked)
        links = answer.links
        if answer.drawn is not None:
            self.drawn = np.ones(self.free.shape[0]) if self.drawn is None else self.drawn
            self.drawn[links] = answer.drawn
        if links.shape[0] > places:
            links = np.sort(self._rng.choice(links, size=places, replace=False))
        return links

    def take(self, links: IntArray) -> None:
        """Put rows into the cohort."""
        self.links = np.concatenate((self.links, links))
        self.places -= links.shape[0]
        self.free &= ~np.isin(self._client, self._client[links])
        counts = self.counts(links)
        self.room, self.need = self.room - counts, np.maximum(self.need - counts, 0)
        context = self._context
        if self._budget is not None and context.cost is not None:
            server = np.zeros(links.shape[0], np.int64) if context.server is None else context.server[links]
            spent = np.bincount(server, weights=context.cost[links], minlength=self._budget.shape[0])
            self._budget = np.maximum(self._budget - spent, 0.0)

    def draw(self, pool: BoolArray, places: int) -> None:
        """Take rows of a pool at random, as far as limits and budgets allow."""
        cost, server = self._context.cost, self._context.server
        for link in self._rng.permutation(np.flatnonzero(pool)):
            if places <= 0:
                return
            group, spent = self._group[link], 0 if server is None else server[link]
            affordable = self._budget is None or cost is None or cost[link] <= self._budget[spent]
            if self.free[link] and (group < 0 or self.room[group] > 0) and affordable:
                self.take(np.array([link]))
                places -= 1

    def closed(self, links: IntArray) -> IntArray:
        """Rows of a choice that its groups have room for: of a group with too many, those that the policy prefers."""
        kept = [links[self._group[links] < 0]]
        for number, count in enumerate(self.counts(links).tolist()):
            if count:
                mine = links[self._group[links] == number]
                if count > (room := int(self.room[number])):
                    pool = np.zeros(self.free.shape[0], np.bool_)
                    pool[mine] = True
                    mine = self.choice(pool, room)
                kept.append(mine)
        return np.sort(np.concatenate(kept))

    def keeps(self, links: IntArray, least: int) -> bool:
        """Whether a free choice keeps all limits, of which one is a least number of rows."""
        counts, ranks = self.counts(links), self.priority[self.free]
        if not least <= links.shape[0] <= self.places or (counts > self.room).any() or (counts < self.need).any():
            return False
        return not ranks.shape[0] or bool(ranks.min() == ranks.max())


def compose(ask: Ask, context: RoundContext, limits: Limits, *, rng: Generator) -> Selection:
    """Ask a policy for a cohort within limits.

    Raises:
        RoundNotBegunError: If a least number is impossible; names the causes.
    """

    def refuse(what: str, number: int = -1) -> NoReturn:
        raise RoundNotBegunError(f"round {context.round} is not begun: {what}{limits.causes(number)}")

    cohort = _Draft(ask, context, limits, rng)
    least = max(limits.least_cohort - limits.at_work, 0)
    expected = f"expected least_cohort = {limits.least_cohort}"
    if (reach := cohort.num_clients()) < least:
        refuse(f"{counted(reach + limits.at_work, 'client')} can take part; {expected}")
    free = ask(context)
    if cohort.keeps(free.links, least):
        return free
    ranks = np.unique(cohort.priority[context.available])[::-1].tolist()
    for number, (name, wanted) in enumerate(limits.least.items()):
        if not cohort.need[number]:
            continue
        for rank in ranks:
            places = min(int(cohort.need[number]), cohort.places)
            cohort.take(cohort.choice(cohort.pool(rank, number), places))
        cohort.draw(cohort.pool(None, number), min(int(cohort.need[number]), cohort.places))
        if lacks := int(cohort.need[number]):
            missing = f"group {name!r} lacks {counted(lacks, 'client')} that can take part"
            refuse(f"{missing}; expected at least {wanted} in a cohort", number)
    for rank in ranks:
        is_open = True
        while is_open and cohort.places:
            choice = cohort.choice(cohort.pool(rank), cohort.places)
            kept = cohort.closed(choice)
            cohort.take(kept)
            is_open = 0 < kept.shape[0] < choice.shape[0]
    for rank in ranks:
        cohort.draw(cohort.pool(rank), min(least - cohort.links.shape[0], cohort.places))
    if cohort.links.shape[0] < least:
        refuse(f"its limits leave places for {counted(cohort.links.shape[0], 'client')}; {expected}")
    links = np.sort(cohort.links)
    return Selection(context.round, links, drawn=None if cohort.drawn is None else cohort.drawn[links])
