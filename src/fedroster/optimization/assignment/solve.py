r"""P2 (Qu et al. 2021, Eq. 10), solved with a proof; docs/explanation/assignment.md explains how.

.. math::
    \max_x \sum_{(n, m)} v_{nm} x_{nm} \quad \text{s.t.} \quad
    \sum_n c_{nm} x_{nm} \le B_m \ \forall m, \qquad \sum_m x_{nm} \le 1 \ \forall n, \qquad x \in \{0, 1\}

over the links (n, m) of the round: one knapsack a server (10b), coverage by listing only usable links (10c), one
server a client (10d). NP-hard; :func:`solve_assignment` proves the optimum at the paper's sizes in well under a
millisecond, and certifies a gap at any size. With every value 1 it is (14) and (15), which count.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import InvalidInputError
from fedroster.optimization.assignment.client_prices import core_functions, fix_links, lists_twice, search_by_prices
from fedroster.optimization.assignment.core import build_core, core_of, greedy_fill, search_core, tabulate_knapsacks
from fedroster.optimization.assignment.links import check_links, compact, value_step
from fedroster.optimization.assignment.refill import CELLS, refill_servers, step_prices
from fedroster.optimization.assignment.relaxation import (
    client_prices,
    dual_value,
    lifted_share,
    minimise_dual,
    most_clients,
    most_clients_apart,
    uniform_price,
)

#: Differences of the total value below this share of it are rounding: "optimal" is proved to this precision.
VALUE_TOLERANCE = 1e-11
#: Search nodes by default, a tenth of a second or more: a bound that is the same on every machine.
NODE_LIMIT = 2_000_000
# Cells of the grid of each server's room in the exact search, and entries of its table at most (256 MiB).
_CELLS = 129
_TABLE_ENTRIES = 32_000_000
# Clients in a core that is worth an exact search at once, and later.
_SMALL_CORE = 120
_LARGE_CORE = 400


@dataclass(frozen=True, slots=True)
class AssignmentResult:
    """A decision and its certificate.

    Attributes:
        links: Chosen rows, ascending, shape (chosen,).
        value: Sum of the chosen links' values.
        upper_bound: No decision is worth more than this; equals ``value`` when the optimum is proved.
        gap: ``(upper_bound - value) / upper_bound``, 0 when the bound is 0.
        is_optimal: Whether ``value`` is proved to be the optimum (to the relative precision VALUE_TOLERANCE).
    """

    links: IntArray
    value: float
    upper_bound: float
    gap: float
    is_optimal: bool


def _result(links: IntArray, values: FloatArray, bound: float) -> AssignmentResult:
    value = float(values[links].sum())
    if bound - value <= VALUE_TOLERANCE * bound:
        return AssignmentResult(links, value, value, 0.0, True)
    return AssignmentResult(links, value, bound, (bound - value) / bound, False)


class Search:
    """One instance under search: the incumbent ``chosen``, its value ``total`` and the upper ``bound``."""

    def __init__(
        self,
        value: FloatArray,
        cost: FloatArray,
        client: IntArray,
        server: IntArray,
        budget: FloatArray,
        *,
        num_clients: int,
        gap: float = 0.0,
        node_limit: int = 0,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Compact the links, bound by prices of the budgets, and fill greedily; for the arguments see above."""
        num_servers = budget.size
        if rng is None:
            order = np.arange(value.size), np.arange(num_clients), np.arange(num_servers)
            seed = 0x9E3779B97F4A7C15
        else:
            # Renumbering everything at random makes ties fall at random, whatever the kernels do with low indices.
            order = rng.permutation(value.size), rng.permutation(num_clients), rng.permutation(num_servers)
            seed = int(rng.integers(1, 2**63))
        # A decision's cost is at most budget * (1 + 1e-12) in any order of summation: half of it is the search's.
        allowed = budget * (1.0 + 5e-13)
        self.links, self.row = compact(value, cost, client, server, allowed, *order)
        # Costs are shares of their budgets and the values are scaled to about 1, exactly, by a power of two.
        self.exponent = int(np.frexp(self.links.value.max())[1]) if self.row.size else 0
        if abs(self.exponent) > 64:
            self.links = self.links._replace(value=np.ldexp(self.links.value, -self.exponent))
        else:
            self.exponent = 0
        self.gap = gap
        self.limit = node_limit or 2**62
        self.nodes = 0
        self.total = self.bound = self.step = 0.0
        self.random = np.array([seed], dtype=np.uint64)
        self.refilled = 0
        self.patience = 16
        if self.row.size == 0:
            return
        self.room = np.empty(num_servers)
        self.room[order[2]] = allowed
        start = np.full(num_servers, uniform_price(self.links))
        self.price, self.bound, self.clients = minimise_dual(self.links, start, 0)
        # The decomposition's own bound, which other bounds may lie below, and Polyak's step factor for it.
        self.priced: float = self.bound
        self.polyak = 0.0
        self.step = value_step(self.links.value)
        self.chosen = greedy_fill(self.links, self.price)
        self.total = float(self.links.value[self.chosen[self.chosen >= 0]].sum())
        self.lower_bound_to(self.bound)

    def lower_bound_to(self, bound: float) -> None:
        """Take a new upper bound; one on multiples of a step is rounded down to a multiple."""
        self.bound = min(self.bound, bound)
        if self.step > 0.0:
            self.bound = self.step * float(np.floor(self.bound / self.step * (1.0 + 1e-12) + 1e-9))

    def _take(self, links: IntArray) -> None:
        self.chosen[:] = -1
        self.chosen[self.links.owner[links]] = links
        self.total = float(self.links.value[links].sum())

    def upper_bound(self) -> float:
        """The bound in the caller's unit."""
        return float(np.ldexp(self.bound, self.exponent))

    def rows(self) -> IntArray:
        """The incumbent's rows, ascending."""
        if self.row.size == 0:
            return np.empty(0, np.int64)
        rows: IntArray = np.sort(self.row[self.chosen[self.chosen >= 0]])
        return rows

    def ended(self) -> bool:
        """Whether the incumbent is within the gap of the bound, or the nodes are spent."""
        return self.nodes >= self.limit or self.bound - self.total <= max(self.gap, VALUE_TOLERANCE) * self.bound

    def margin(self) -> float:
        """What a better decision must gain to be of interest: the gap asked for, the values' step, or rounding."""
        by_gap = self.total * self.gap / (1.0 - self.gap) * (1.0 - 1e-9) if self.gap < 1.0 else np.inf
        # Less than a step by what lower_bound_to may round up, also where a total has millions of steps.
        by_step = self.step * (1.0 - 1e-6) - 2e-12 * self.total
        return float(max(by_gap, by_step, 1e-12 * self.total))

    def prove(self, max_nodes: int, largest: int) -> bool:
        """Exact search of the core by the budgets' prices; returns whether nothing better is left.

        A core of more than ``largest`` clients, or with tables beyond memory, is not begun.
        """
        margin = self.margin()
        done, base, fixed, core = build_core(self.links, self.price, self.total + margin)
        if not done:
            done = True
        elif core.client.size == 0:
            if base > self.total:
                self._take(fixed)
        else:
            shape = core.client.size + 1, core.room.size, _CELLS
            if core.client.size > largest or math.prod(shape) > _TABLE_ENTRIES:
                return False
            table = np.empty(shape)
            tabulate_knapsacks(core, table)
            floor = self.total - base
            nodes = min(max_nodes, self.limit - self.nodes)
            found, nodes, done, pick = search_core(core, table, floor, margin, np.inf, nodes)
            self.nodes += nodes
            if found > floor:
                self._take(np.concatenate((fixed, core.link[pick[pick >= 0]])))
        if done:
            self.lower_bound_to(self.total + margin)
        return bool(done)

    def prove_by_prices(self, max_nodes: int, largest: int) -> bool:
        """The same by the clients' prices."""
        margin = self.margin()
        bound, keep, skip = fix_links(self.links, self.best_client_price, self.total + margin)
        self.lower_bound_to(bound * (1.0 + 1e-12))
        usable = np.logical_or.reduceat(keep, self.links.first[:-1])
        # A client that can neither be used nor be left out says that there is nothing better.
        done = not (usable | skip).all() or not usable.any()
        room = np.ones(self.price.size)
        core = core_of(self.links, keep, skip, self.best_client_price, np.zeros(keep.size), room)
        if not done and core.client.size <= largest:
            nodes = min(max_nodes, self.limit - self.nodes)
            floor = self.total
            found, nodes, done, pick = search_by_prices(core, core_functions(core), floor, margin, nodes)
            self.nodes += nodes
            if found > floor:
                self._take(core.link[pick[pick >= 0]])
        if done:
            self.lower_bound_to(self.total + margin)
        return bool(done)

    def count_clients(self) -> None:
        """Bound by the linear relaxation with the cut on the number of clients, where that cuts anything off."""
        pooled = (most_clients(self.links, weight) for weight in (self.room, self.price))
        most = min(*pooled, most_clients_apart(self.links))
        # The relaxed number of clients is known to about 0.1.
        if self.clients >= most - 0.1:
            _, bound, _ = minimise_dual(self.links, np.append(self.price, 0.0), most)
            self.lower_bound_to(bound * (1.0 + 1e-12))

    def lift(self) -> None:
        """Bound by prices of lifted shares, where few clients fit a budget; see :func:`lifted_share`.

        Prices are sought on the clients that may matter, and bound whatever the others are worth.
        """
        links, num_servers = self.links, self.price.size
        few = int(self.clients / num_servers)
        sizes = [size for size in (few, few + 1) if 2 <= size <= 6]
        if not sizes:
            return
        most, share = links.first.size, links.share
        for size, slope in itertools.product(sizes, (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0)):
            lifted = lifted_share(links.share, size, slope)
            allowed = most_clients(links._replace(share=lifted), np.ones(num_servers))
            if allowed < most:
                most, share = allowed, lifted
        whole = links._replace(share=share)
        start = np.full(num_servers, uniform_price(whole))
        best = np.maximum.reduceat(links.value - start[0] * share, links.first[:-1])
        near = np.zeros(best.size, np.bool_)
        near[np.argsort(-best, kind="stable")[: 4 * most]] = True
        kept = near[links.owner]
        part = whole._replace(
            first=np.concatenate(([0], np.cumsum(np.diff(links.first)[near]))),
            value=links.value[kept],
            share=share[kept],
            server=links.server[kept],
        )
        for cut in (0, most):
            start, _, _ = minimise_dual(part, np.append(start, 0.0) if cut else start, cut)
            bound = dual_value(whole, start, cut) * (1.0 + 1e-9)
            self.lower_bound_to(bound)
            if not cut and bound < self.priced:
                self.priced = bound
                self.client_price[:] = self.best_client_price[:] = client_prices(whole, start)

    def begin_knapsacks(self) -> None:
        """What refilling and the steps on client prices keep from one call to the next."""
        links = self.links
        self.table = np.empty((384 + 1, 1, CELLS))  # searches the 384 least clear clients of a server
        self.window = np.full(self.price.size, 0.03 * links.value.max())
        self.bound_window = self.window.copy()
        self.client_price = client_prices(links, self.price)
        self.best_client_price = self.client_price.copy()

    def refill(self, width: int, rounds: int) -> None:
        """``rounds`` of emptying and refilling servers, every other call at the clients' prices."""
        self.refilled += 1
        self.total, nodes = refill_servers(
            self.links,
            self.price,
            self.best_client_price,
            0.5 if self.refilled % 2 == 0 else 0.0,
            self.chosen,
            self.total,
            self.bound * (1.0 - max(self.gap, VALUE_TOLERANCE)),
            min(width, self.price.size),
            rounds,
            3_000,
            self.random,
            self.window,
            self.table,
        )
        self.nodes += nodes

    def tighten(self, rounds: int) -> None:
        """``rounds`` of subgradient steps on the clients' prices."""
        if self.patience <= 0:
            return
        before, first = self.priced, self.polyak == 0.0
        self.priced, self.polyak, nodes = step_prices(
            self.links,
            self.price,
            self.client_price,
            self.best_client_price,
            self.priced,
            self.total,
            0.3 if first else self.polyak,
            rounds,
            3_000,
            # Steps are expensive where all links of a large network compete: they take a quarter of the nodes left.
            max(0, self.limit - self.nodes) // 4,
            self.bound_window,
            self.table,
        )
        self.nodes += nodes
        useful = before - self.priced > 1e-3 * rounds * (self.priced - self.total)
        if first and not useful:
            # Long steps lose more than they gain where many clients fit a budget.
            self.polyak = 0.02
            self.client_price[:] = self.best_client_price
        elif not first:
            self.patience = 16 if useful else self.patience - rounds
        self.lower_bound_to(self.priced * (1.0 + 1e-12))

    def few_clients_fit(self) -> bool:
        """Whether prices of clients say more than prices of budgets: at most twelve clients a budget."""
        few = self.price.size > 1 and self.clients <= 12.0 * self.price.size and self.row.size <= 5_000
        return few and not lists_twice(self.links)

    def run(self) -> None:
        """Search until the gap is closed or the nodes are spent."""
        if self.ended() or self.prove(40_000, _SMALL_CORE):
            return
        self.count_clients()
        self.begin_knapsacks()
        num_servers = self.price.size
        few = max(2, num_servers // 5)
        prove = self.prove
        self.refill(10, few)
        if self.bound - self.total > 0.03 * self.bound:
            self.lift()
        # Where a gap will do, the cycles below come to it sooner than a proof.
        if self.gap == 0.0 and self.few_clients_fit():
            prove = self.prove_by_prices
            self.tighten(60)
            if self.ended() or prove(200_000, _LARGE_CORE):
                return
        nodes = 5_000_000
        hopeless = 0
        cycle = 0
        while not self.ended():
            before = self.total
            left_open = self.bound - self.total
            for width in (10, 10, 7, 4):
                self.refill(width, 2 * few)
            if self.ended():
                break
            self.tighten(20)
            # An exact search from a good decision; later with all nodes that are left, or ever more without a limit.
            left = max(0, self.limit - self.nodes)
            if cycle == 1 or (cycle > 1 and self.total == before and self.gap == 0.0 and self.nodes > left // 3):
                if prove == self.prove_by_prices:
                    self.tighten(60)
                if prove(min(400_000, left // 4) if cycle == 1 else min(nodes, left), _LARGE_CORE):
                    return
                nodes *= 2 if cycle > 1 else 1
            cycle += 1
            hopeless = hopeless + 1 if self.bound - self.total > 0.98 * left_open else 0
            if self.gap > 0.0 and hopeless == 12:
                break


def _check_effort(gap: float, node_limit: int) -> None:
    if not 0.0 <= gap <= 1.0:
        raise InvalidInputError(f"gap is {gap}, expected a number from 0 to 1")
    if node_limit < 0:
        raise InvalidInputError(f"node_limit is {node_limit}, expected at least 0")


def solve_assignment(
    value: ArrayLike,
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    *,
    num_clients: int,
    gap: float = 0.0,
    rng: np.random.Generator | None = None,
    node_limit: int = NODE_LIMIT,
) -> AssignmentResult:
    r"""The decision of greatest value under the budgets, one server a client: P2, with a proof.

    .. math:: \max \sum v x \ \text{s.t.} \ \sum_n c_{nm} x_{nm} \le B_m, \ \sum_m x_{nm} \le 1, \ x \in \{0, 1\}

    Links that add nothing (value 0) or cost more than their budget are never chosen. A client may list a server twice.
    The root is increasing, so the decision is the optimum of P3 (Eq. 20), too (Choice B10).

    Args:
        value: Value of each link (P2: its participation probability), shape (links,), finite, >= 0.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,), from 0 to ``num_clients`` - 1.
        server: Server of each link, shape (links,), from 0 to ``len(budget)`` - 1.
        budget: Budget of each server, shape (servers,), finite, >= 0. A budget counts as kept when
            ``sum(cost) <= budget * (1 + 1e-12)``; no decision breaks it.
        num_clients: Number of clients, those out of reach included.
        gap: Stop at a proven gap of this size, in [0, 1]; 0 asks for the optimum. With a gap above 0 the search also
            stops when several cycles one after the other close less than a fiftieth of what is left of it.
        rng: Breaks ties at random, evenly over clients, servers and rows; without it, ties fall by row order.
        node_limit: Stop after about this many search nodes, with the gap reached; 0 for no limit. P2 is NP-hard:
            without a limit the proof of an optimum can take for ever.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    _check_effort(gap, node_limit)
    arrays = check_links(value, cost, client, server, budget, num_clients)
    search = Search(*arrays, num_clients=num_clients, gap=gap, node_limit=node_limit, rng=rng)
    search.run()
    return _result(search.rows(), arrays[0], search.upper_bound())
