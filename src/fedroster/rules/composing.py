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

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, IntArray
from fedroster.core.errors import RoundNotBegunError
from fedroster.core.problem import RoundContext, Selection

Ask = Callable[[RoundContext], Selection]
"""Asks the policy, and checks what it decides."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a cohort, counting the clients that already work.

    Attributes:
        names: Name of each group.
        least: Least number of each group, shape (groups,).
        most: Greatest number of each group, shape (groups,).
        group: Group of each slot's client, -1 for none, shape (slots,).
        priority: Priority of each slot's client, shape (slots,).
        least_cohort: Least number of clients.
        busy: Whether each slot's client is at work already, shape (slots,).
    """

    names: tuple[str, ...]
    least: IntArray
    most: IntArray
    group: IntArray
    priority: IntArray
    least_cohort: int
    busy: BoolArray

    @property
    def bind(self) -> bool:
        """Whether there is any limit."""
        return bool(self.names) or self.least_cohort > 0 or bool(self.priority.any())


class _Cohort:
    """A cohort that is being put together."""

    def __init__(self, ask: Ask, context: RoundContext, limits: Limits, rng: Generator) -> None:
        self._ask = ask
        self._rng = rng
        self._context = context
        self._client = np.arange(context.num_links) if context.client is None else context.client
        self._group = limits.group[self._client]
        self._limits = limits
        self.free = context.available.copy()  # rows that can still be taken, apart from their group's limit
        self.links = np.zeros(0, np.int64)
        self.places = context.cohort_size
        at_work = np.bincount(limits.group[limits.busy] + 1, minlength=limits.most.shape[0] + 1)[1:]
        self.room = np.maximum(limits.most - at_work, 0)
        self.need = np.maximum(limits.least - at_work, 0)
        self._budget = context.budget
        self.priority = limits.priority[self._client]

    def pool(self, rows: BoolArray) -> BoolArray:
        """Rows of a part whose client can still be taken, and whose group has room."""
        grouped = self._group >= 0
        has_room = np.ones(rows.shape[0], np.bool_)
        has_room[grouped] = self.room[self._group[grouped]] > 0
        return rows & self.free & has_room

    def of_group(self, number: int) -> BoolArray:
        """Rows of a group."""
        return np.asarray(self._group == number)

    def num_clients(self, rows: BoolArray) -> int:
        """How many clients some rows are of."""
        if self._context.client is None:
            return int(np.count_nonzero(rows))
        return int(np.unique(self._client[rows]).shape[0])

    def choice(self, pool: BoolArray, places: int) -> IntArray:
        """The policy's own choice of at most this many rows of a pool; of one that wants more, some are drawn."""
        if places <= 0 or not pool.any():
            return np.zeros(0, np.int64)
        asked = replace(self._context, available=pool, cohort_size=places, budget=self._budget)
        links = self._ask(asked).links
        if links.shape[0] > places:
            links = np.sort(self._rng.choice(links, size=places, replace=False))
        return links

    def take(self, links: IntArray) -> None:
        """Put rows into the cohort."""
        self.links = np.concatenate((self.links, links))
        self.places -= links.shape[0]
        self.free &= ~np.isin(self._client, self._client[links])
        groups = self._group[links]
        counts = np.bincount(groups[groups >= 0], minlength=self.room.shape[0])
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
        for number in np.unique(self._group[links]):
            if number >= 0:
                mine = links[self._group[links] == number]
                room = int(self.room[number])
                if mine.shape[0] > room:
                    pool = np.zeros(self.free.shape[0], np.bool_)
                    pool[mine] = True
                    mine = self.choice(pool, room)
                kept.append(mine)
        return np.sort(np.concatenate(kept))


def _keeps(cohort: _Cohort, links: IntArray, context: RoundContext, limits: Limits) -> bool:
    """Whether a free choice keeps all limits."""
    client = np.arange(context.num_links) if context.client is None else context.client
    group = limits.group[client[links]]
    counts = np.bincount(group[group >= 0], minlength=cohort.room.shape[0])
    if links.shape[0] > cohort.places or (counts > cohort.room).any() or (counts < cohort.need).any():
        return False
    if links.shape[0] + np.count_nonzero(limits.busy) < limits.least_cohort:
        return False
    ranks = cohort.priority[context.available]
    return not ranks.shape[0] or bool(ranks.min() == ranks.max())


def compose(ask: Ask, context: RoundContext, limits: Limits, *, rng: Generator) -> Selection:
    """Ask a policy for a cohort within limits.

    Raises:
        RoundNotBegunError: If a least number is impossible.
    """
    if not limits.bind:
        return ask(context)
    cohort = _Cohort(ask, context, limits, rng)
    reach = cohort.num_clients(context.available) + int(np.count_nonzero(limits.busy))
    if reach < limits.least_cohort:
        raise RoundNotBegunError(
            f"round {context.round} is not begun: {reach} clients can take part; expected least_cohort = "
            f"{limits.least_cohort}"
        )
    free = ask(context)
    if _keeps(cohort, free.links, context, limits):
        return free
    ranks = np.unique(cohort.priority[context.available])[::-1]
    for number in np.flatnonzero(cohort.need).tolist():
        for rank in ranks:
            wanted = min(int(cohort.need[number]), cohort.places)
            part = cohort.pool(cohort.of_group(number) & (cohort.priority == rank))
            if wanted:
                cohort.take(cohort.choice(part, wanted))
        cohort.draw(cohort.pool(cohort.of_group(number)), min(int(cohort.need[number]), cohort.places))
        if cohort.need[number]:
            raise RoundNotBegunError(
                f"round {context.round} is not begun: group {limits.names[number]!r} lacks {int(cohort.need[number])} "
                f"clients that can take part; expected at least {int(limits.least[number])} in a cohort"
            )
    for rank in ranks:
        is_open = True
        while is_open and cohort.places:
            part = cohort.pool(cohort.priority == rank)
            choice = cohort.choice(part, cohort.places)
            kept = cohort.closed(choice)
            cohort.take(kept)
            is_open = 0 < kept.shape[0] < choice.shape[0]
    missing = limits.least_cohort - int(np.count_nonzero(limits.busy)) - cohort.links.shape[0]
    for rank in ranks:
        cohort.draw(cohort.pool(cohort.priority == rank), min(missing, cohort.places))
        missing = limits.least_cohort - int(np.count_nonzero(limits.busy)) - cohort.links.shape[0]
    if missing > 0:
        raise RoundNotBegunError(
            f"round {context.round} is not begun: its limits leave places for {cohort.links.shape[0]} clients; "
            f"expected least_cohort = {limits.least_cohort}"
        )
    return Selection(context.round, np.sort(cohort.links))
