r"""Client selection as an assignment of clients to edge servers: P2 (paper B, Eq. 10), P3 (Eq. 20) and exploration.

.. math::
    \max_x \sum_{(n, m)} v_{nm} x_{nm} \quad \text{s.t.} \quad
    \sum_n c_{nm} x_{nm} \le B_m \ \forall m, \qquad \sum_m x_{nm} \le 1 \ \forall n, \qquad x \in \{0, 1\}

over the links (n, m) of the round: one knapsack a server (10b), coverage by listing only usable links (10c), one
server a client (10d). NP-hard; :func:`solve_assignment` proves the optimum at the paper's sizes in well under a
millisecond, and certifies a gap at any size. Everything else composes it:

* :func:`solve_square_root` for P3, whose optimum is P2's (Choice B10);
* :func:`maximise_cardinality` for (14) and (15);
* :func:`solve_exploration` for a round of Algorithm 1: exploration case (i) by (14), case (ii) by (15)-(17), else (18).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedroster.core.compiled import njit
from fedroster.core.errors import InvalidInputError
from fedroster.optimization.assignment_dual import (
    dual_value,
    lifted_share,
    minimise_dual,
    most_clients,
    most_clients_apart,
    uniform_price,
)
from fedroster.optimization.assignment_knapsacks import (
    core_functions,
    core_of,
    fix_links,
    lists_twice,
    price_search_state,
    search_by_prices,
)
from fedroster.optimization.assignment_search import (
    CELLS,
    FINE_CELLS,
    KNAPSACK_ITEMS,
    NEIGHBOURHOOD_CLIENTS,
    anneal_exchanges,
    apply_core,
    build_core,
    compact,
    greedy_fill,
    group_by_server,
    improve_neighbourhoods,
    option_arrays,
    refill_servers,
    search_core,
    search_state,
    tabulate_knapsacks,
    tighten_client_prices,
    value_step,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: A decision's cost on a server is at most ``budget * (1 + BUDGET_TOLERANCE)``, in any order of summation.
BUDGET_TOLERANCE = 1e-12
#: Differences of the total value below this share of it are rounding: "optimal" is proved to this precision.
VALUE_TOLERANCE = 1e-11
# What the search itself allows; the rest is left to the rounding of the caller's own sum.
_SEARCH_TOLERANCE = 5e-13
# Temperatures of the dual, in units of the largest value: from the first to the last, by the factor.
_HOT, _COLD, _COOLING = 0.03, 2e-4, 0.2
# Nodes between two looks at the clock, of the first exact search, and of one neighbourhood or knapsack.
_NODES_PER_LOOK = 50_000
_FIRST_NODES = 40_000
_NEIGHBOURHOOD_NODES = 3_000
_KNAPSACK_NODES = 30_000
# Polyak step factors of the decomposition bound.
_LONG_STEP, _SHORT_STEP = 0.3, 0.02
# The same where few clients fit a budget, the number of steps, and the search nodes of one knapsack there.
_FULL_STEP, _PRICING_STEPS, _PRICING_NODES = 1.0, 60, 1_000
# Where that is: clients a budget in the linear relaxation, and links, at most; and nodes of the first search by prices.
_FEW_CLIENTS, _PRICED_LINKS = 8.0, 5_000
_PRICED_NODES = 200_000
# Clients a budget up to which shares are lifted, by which slopes, and the gap from which on.
_LIFTED_CLIENTS, _SLOPES, _WIDE_GAP = 6, (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0), 0.03
# Useless steps after which that bound is left alone.
_PATIENCE = 16
# Largest core whose knapsack tables are built at once, in table entries (256 MiB).
_TABLE_ENTRIES = 32_000_000
# Most servers in a neighbourhood.
_WIDEST = 3
# Share of a budget, at its price, that filling one server may leave unused to end its search early.
_SPARE = 1e-3
# Weight of the decomposition's client prices in every other refill.
_TRUST = 0.5
# Annealing: last temperature over first, first temperature and window of links, in units of the largest value.
_COOLED, _COOL, _EXCHANGE_WINDOW = 0.08, 0.005, 0.1
_FIRST_MOVES, _MOST_MOVES = 50_000, 800_000
# Clients in a core that is worth an exact search before, or instead of, more neighbourhood search.
_SMALL_CORE = 120
# Under a limit, neighbourhood search goes on when this much exact search has not closed the gap.
_LARGE_CORE = 400
_SECOND_NODES = 400_000
_LAST_NODES = 5_000_000
# No limit to speak of.
_MOST_NODES = 2**62
# A step, or a cycle of them, that leaves more than this share of the gap was in vain.
_HOPELESS = 0.98
# Largest instance whose budgets are pooled for a bound, and the nodes spent on it; beyond, the steps on the
# decomposition bound take a quarter of the nodes that are left, at most.
_POOLED_LINKS = 100_000
_POOLED_NODES = 100_000


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


@dataclass(frozen=True, slots=True)
class ExplorationResult:
    """The decision of one round of COCS (paper B, Algorithm 1, lines 6-15).

    Attributes:
        links: Chosen rows, ascending, shape (chosen,).
        explored: Chosen rows whose hypercube is under-explored, ascending.
        exploited: Chosen rows that fill what budget is left, ascending.
        case: ``"all"`` (case (i), Eq. 14), ``"part"`` (case (ii), Eqs. 15-17) or ``"none"`` (exploitation, Eq. 18).
        first_stage: Certificate of (14) or (15), whose value counts links; empty for ``"none"``.
        second_stage: Certificate of (17) or (18), whose value sums ``value``; empty for ``"all"``.
    """

    links: IntArray
    explored: IntArray
    exploited: IntArray
    case: str
    first_stage: AssignmentResult
    second_stage: AssignmentResult


@njit(cache=True)
def first_fault(value: Any, cost: Any, client: Any, server: Any, budget: Any, num_clients: int) -> tuple[int, int]:
    """``(kind, row)`` of the first bad entry; kind 0 when there is none."""
    for m in range(budget.size):
        if not (budget[m] >= 0.0 and budget[m] < np.inf):
            return 1, m
    for j in range(value.size):
        if not (value[j] >= 0.0 and value[j] < np.inf):
            return 2, j
        if not (cost[j] >= 0.0 and cost[j] < np.inf):
            return 3, j
        if client[j] < 0 or client[j] >= num_clients:
            return 4, j
        if server[j] < 0 or server[j] >= budget.size:
            return 5, j
    return 0, 0


def _floats(name: str, values: ArrayLike) -> FloatArray:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} has shape {array.shape}, expected one dimension")
    return array


def _indices(name: str, values: ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidInputError(f"{name} has dtype {array.dtype}, expected integers")
    if array.ndim != 1:
        raise InvalidInputError(f"{name} has shape {array.shape}, expected one dimension")
    return np.ascontiguousarray(array, dtype=np.int64)


def check_links(
    value: ArrayLike, cost: ArrayLike, client: ArrayLike, server: ArrayLike, budget: ArrayLike, num_clients: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]:
    """The arguments as contiguous arrays, checked.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected; the message names array, entry and row.
    """
    values, costs, budgets = _floats("value", value), _floats("cost", cost), _floats("budget", budget)
    clients, servers = _indices("client", client), _indices("server", server)
    if not values.size == costs.size == clients.size == servers.size:
        raise InvalidInputError(
            f"value, cost, client and server have {values.size}, {costs.size}, {clients.size} and {servers.size} rows, "
            "expected one each per link"
        )
    if num_clients < 0:
        raise InvalidInputError(f"num_clients is {num_clients}, expected at least 0")
    kind, row = first_fault(values, costs, clients, servers, budgets, num_clients)
    if kind == 1:
        raise InvalidInputError(f"budget is {budgets[row]} at server {row}, expected a finite number of at least 0")
    if kind == 2:
        raise InvalidInputError(f"value is {values[row]} at row {row}, expected a finite number of at least 0")
    if kind == 3:
        raise InvalidInputError(f"cost is {costs[row]} at row {row}, expected a finite number of at least 0")
    if kind == 4:
        raise InvalidInputError(
            f"client is {clients[row]} at row {row}, expected 0 to num_clients - 1 = {num_clients - 1}"
        )
    if kind == 5:
        raise InvalidInputError(f"server is {servers[row]} at row {row}, expected 0 to {budgets.size - 1}")
    return values, costs, clients, servers, budgets


def _result(links: IntArray, values: FloatArray, bound: float, *, proved: bool) -> AssignmentResult:
    value = float(values[links].sum())
    if proved or bound - value <= VALUE_TOLERANCE * bound:
        return AssignmentResult(links, value, value, 0.0, True)
    return AssignmentResult(links, value, bound, (bound - value) / bound, False)


def _nothing() -> AssignmentResult:
    return AssignmentResult(np.empty(0, np.int64), 0.0, 0.0, 0.0, True)


class _Search:
    """One instance under search: the incumbent ``chosen``, its value ``total`` and the upper ``bound``."""

    def __init__(
        self,
        value: FloatArray,
        cost: FloatArray,
        client: IntArray,
        server: IntArray,
        budget: FloatArray,
        num_clients: int,
        rng: np.random.Generator | None,
    ) -> None:
        num_servers = budget.size
        if rng is None:
            visit = np.arange(value.size)
            client_rank = np.arange(num_clients)
            server_rank = np.arange(num_servers)
            seed = 0x9E3779B97F4A7C15
        else:
            # Renumbering everything at random makes ties fall at random, whatever the kernels do with low indices.
            visit = rng.permutation(value.size)
            client_rank = rng.permutation(num_clients)
            server_rank = rng.permutation(num_servers)
            seed = int(rng.integers(1, 2**63))
        allowed = budget * (1.0 + _SEARCH_TOLERANCE)
        self.first, self.value, self.share, self.server, self.row = compact(
            value, cost, client, server, allowed, visit, client_rank, server_rank
        )
        # Costs are shares of their budgets and the values are scaled to about 1, exactly, by a power of two.
        self.exponent = int(np.frexp(self.value.max())[1]) if self.value.size else 0
        if abs(self.exponent) > 64:
            self.value = np.ldexp(self.value, -self.exponent)
        else:
            self.exponent = 0
        self.random = np.array([seed], dtype=np.uint64)
        self.table = np.empty((0, 0, 0))
        self.fine_table = np.empty((0, 0, 0))
        self.nodes = 0
        self.effort = _Effort(None, None)
        self.turn = 0
        self.pooled = False
        self.moves = _FIRST_MOVES
        self.refilled = 0
        self.annealed = 0
        if self.value.size == 0:
            self.step = self.total = self.bound = 0.0
            return
        num_clients = self.first.size - 1
        self.room = np.empty(num_servers)
        self.room[server_rank] = allowed
        start = np.full(num_servers, uniform_price(self.first, self.value, self.share, self.server, num_servers))
        self.price, self.bound, self.clients = minimise_dual(
            self.first, self.value, self.share, self.server, start, 0, _HOT, _COLD, _COOLING
        )
        self.step = value_step(self.value)
        self.chosen, self.used = greedy_fill(self.first, self.value, self.share, self.server, self.price)
        self.server_first, self.server_links, self.owner = group_by_server(self.first, self.server, num_servers)
        self.slot = np.full(num_clients, -1, np.int64)
        self.outside = np.full(num_servers, -1, np.int64)
        self.total = float(self.value[self.chosen[self.chosen >= 0]].sum())
        self.lower_bound_to(self.bound)

    def lower_bound_to(self, bound: float) -> None:
        """Take a new upper bound; one on multiples of a step is rounded down to a multiple."""
        self.bound = min(self.bound, bound)
        if self.step > 0.0:
            self.bound = self.step * float(np.floor(self.bound / self.step * (1.0 + 1e-12) + 1e-9))

    def adopt(self, rows: IntArray) -> None:
        """Make the chosen ``rows`` (all usable) the incumbent."""
        link_of_row = np.full(int(max(self.row.max(), rows.max())) + 1, -1, np.int64)
        link_of_row[self.row] = np.arange(self.row.size)
        links = link_of_row[rows]
        self.chosen[:] = -1
        self.chosen[self.owner[links]] = links
        self.used[:] = np.bincount(self.server[links], weights=self.share[links], minlength=self.price.size)
        self.total = float(self.value[links].sum())

    def upper_bound(self) -> float:
        """The bound in the caller's unit."""
        return float(np.ldexp(self.bound, self.exponent))

    def rows(self) -> IntArray:
        """The incumbent's rows, ascending."""
        if self.value.size == 0:
            return np.empty(0, np.int64)
        rows: IntArray = np.sort(self.row[self.chosen[self.chosen >= 0]])
        return rows

    def closed(self, gap: float) -> bool:
        """Whether the incumbent is within the gap of the bound."""
        return self.bound - self.total <= max(gap, VALUE_TOLERANCE) * self.bound

    def margin(self, gap: float) -> float:
        """What a better decision must gain to be of interest: the gap asked for, the values' step, or rounding."""
        by_gap = self.total * gap / (1.0 - gap) if gap < 1.0 else np.inf
        return float(max(by_gap, self.step * (1.0 - 1e-6), 1e-12 * self.total))

    def improve(self, gap: float, width: int, rounds: int) -> int:
        """``rounds`` of neighbourhood search; returns the number of improvements."""
        if self.table.size == 0:
            self.table = np.empty((NEIGHBOURHOOD_CLIENTS + 1, _WIDEST, CELLS + 1))
        self.total, improvements, nodes = improve_neighbourhoods(
            self.first,
            self.value,
            self.share,
            self.server,
            self.owner,
            self.server_first,
            self.server_links,
            self.price,
            self.chosen,
            self.used,
            self.total,
            self.bound * (1.0 - max(gap, VALUE_TOLERANCE)),
            self.step * (1.0 - 1e-6),
            width,
            rounds,
            self.turn,
            _NEIGHBOURHOOD_NODES,
            self.random,
            self.slot,
            self.outside,
            self.table,
        )
        self.nodes += nodes
        self.turn += rounds
        return int(improvements)

    def _fine(self) -> None:
        if self.fine_table.size == 0:
            self.fine_table = np.empty((KNAPSACK_ITEMS + 1, 1, FINE_CELLS + 1))
            self.window = np.full(self.price.size, 0.03 * self.value.max())
            self.bound_window = self.window.copy()
            best = np.zeros(self.first.size - 1)
            np.maximum.at(best, self.owner, self.value - self.price[self.server] * self.share)
            self.client_price = best
            self.best_client_price = best.copy()
            self.polyak = _LONG_STEP
            self.tired = -1
            # The decomposition's own bound, which other bounds may lie below.
            self.priced = float(np.finfo(np.float64).max)

    def _step_prices(self, bound: float, step: float, rounds: int, knapsack_nodes: int, most_nodes: int) -> float:
        """``rounds`` of subgradient steps on the client prices from a bound of theirs; returns the new bound."""
        tightened, self.polyak, nodes = tighten_client_prices(
            self.value,
            self.share,
            self.server,
            self.owner,
            self.server_first,
            self.server_links,
            self.price,
            self.client_price,
            self.best_client_price,
            bound,
            self.total,
            step,
            rounds,
            knapsack_nodes,
            most_nodes,
            self.bound_window,
            self.fine_table,
        )
        self.nodes += nodes
        return float(tightened)

    def tighten(self, gap: float, width: int, rounds: int) -> int:
        """``rounds`` of subgradient steps on the decomposition bound, while they help; returns 0."""
        self._fine()
        if self.tired >= _PATIENCE:
            return 0
        first = self.tired < 0
        if first:
            # Ten long steps show whether the bound is far off (few clients fit a budget); otherwise short ones.
            rounds = max(rounds, 10)
        most_nodes = self.effort.quarter_of(_MOST_NODES, self.nodes) if self.value.size > _POOLED_LINKS else _MOST_NODES
        knapsack_nodes = _NEIGHBOURHOOD_NODES if first else _KNAPSACK_NODES
        bound = self._step_prices(self.bound, self.polyak, rounds, knapsack_nodes, most_nodes)
        # Tired when steps close less than a thousandth of the gap each.
        useful = self.bound - bound > 1e-3 * rounds * (self.bound - self.total)
        if first and not useful:
            self.polyak = _SHORT_STEP
            self.client_price[:] = self.best_client_price
        self.tired = 0 if first or useful else self.tired + rounds
        self.lower_bound_to(bound)
        return 0

    def prices_lead(self) -> bool:
        """Whether few clients fit a budget, so that prices of clients say more than prices of budgets."""
        num_servers = self.price.size
        return (
            num_servers > 1
            and self.value.size <= _PRICED_LINKS
            and self.clients <= _FEW_CLIENTS * num_servers
            and not lists_twice(self.first, self.server, num_servers)
        )

    def price_clients(self, rounds: int) -> None:
        """``rounds`` of subgradient steps as long as can be, for where the linear relaxation is far off."""
        self._fine()
        bound = self._step_prices(self.priced, _FULL_STEP, rounds, _PRICING_NODES, _MOST_NODES)
        self.tired = 0
        self.priced = bound
        self.lower_bound_to(bound * (1.0 + 1e-12))

    def prove_by_prices(self, gap: float, max_nodes: int, effort: _Effort, largest: int) -> bool:
        """Exact search by the client prices, until done, ``max_nodes`` or the end of the effort; whether it is done.

        A core of more than ``largest`` clients is not begun.
        """
        margin = self.margin(gap)
        bound, keep, skip = fix_links(
            self.first,
            self.value,
            self.share,
            self.server,
            self.owner,
            self.server_first,
            self.server_links,
            self.best_client_price,
            self.total + margin,
        )
        self.lower_bound_to(bound * (1.0 + 1e-12))
        client, core_first, core_link, possible = core_of(self.first, self.value, keep, skip, self.best_client_price)
        done = not possible
        if not done and client.size <= largest:
            links = self.value, self.share, self.server, self.best_client_price
            functions = core_functions(client, core_first, core_link, *links, self.price.size)
            state = price_search_state(core_first)
            best_pick = np.full(client.size, -1, np.int64)
            room = np.ones(self.price.size)
            floor = self.total
            spent = 0
            while not done and spent < max_nodes and not effort.over(self.nodes):
                floor, nodes, done = search_by_prices(
                    client,
                    core_first,
                    core_link,
                    *links,
                    skip,
                    functions,
                    floor,
                    margin,
                    effort.share_of(min(_NODES_PER_LOOK, max_nodes - spent), self.nodes),
                    room,
                    state,
                    best_pick,
                )
                spent += nodes
                self.nodes += nodes
            if floor > self.total:
                held = best_pick[best_pick >= 0]
                self.chosen[:] = -1
                self.chosen[self.owner[held]] = held
                self.used[:] = np.bincount(self.server[held], weights=self.share[held], minlength=self.price.size)
                self.total = float(self.value[held].sum())
        if done:
            self.lower_bound_to(self.total + margin)
        return done

    def count_clients(self) -> None:
        """Bound by the linear relaxation with the cut on the number of clients, where that cuts anything off."""
        most = min(
            *(most_clients(self.first, self.share, self.server, weight) for weight in (self.room, self.price)),
            most_clients_apart(self.share, self.server_first, self.server_links),
        )
        # The relaxed number of clients is known to about 0.1.
        if self.clients < most - 0.1:
            return
        start = np.append(self.price, 0.0)
        _, bound, _ = minimise_dual(self.first, self.value, self.share, self.server, start, most, _HOT, _COLD, _COOLING)
        self.lower_bound_to(bound * (1.0 + 1e-12))

    def lift(self) -> None:
        """Bound by prices of lifted shares, where few clients fit a budget; see :func:`lifted_share`.

        Prices are sought on the clients that may matter, and bound whatever the others are worth.
        """
        num_servers = self.price.size
        size = int(np.ceil(self.clients / num_servers))
        if not 2 <= size <= _LIFTED_CLIENTS:
            return
        most, share = self.first.size, self.share
        for slope in _SLOPES:
            lifted = lifted_share(self.share, size, slope)
            allowed = most_clients(self.first, lifted, self.server, np.ones(num_servers))
            if allowed < most:
                most, share = allowed, lifted
        price = uniform_price(self.first, self.value, share, self.server, num_servers)
        best = np.maximum.reduceat(self.value - price * share, self.first[:-1])
        near = np.argsort(-best, kind="stable")[: 4 * most]
        keep = np.zeros(best.size, np.bool_)
        keep[near] = True
        links = keep[self.owner]
        first = np.concatenate(([0], np.cumsum(np.diff(self.first)[keep])))
        start = np.full(num_servers, price)
        for cut in (0, most):
            if cut:
                start = np.append(start, 0.0)
            part = self.value[links], share[links], self.server[links]
            start, _, _ = minimise_dual(first, *part, start, cut, _HOT, _COLD, _COOLING)
            bound = dual_value(self.first, self.value, share, self.server, start, cut)
            self.lower_bound_to(bound * (1.0 + 1e-9))

    def surrogate(self, gap: float, width: int, rounds: int) -> int:
        """Bound by one pooled knapsack, the budgets summed at their prices; returns 0.

        It keeps a whole number of clients where the linear relaxation splits one over all servers, which decides when
        the servers are alike (equal values and costs of a client everywhere).
        """
        if self.pooled or self.price.size == 1 or self.value.size > _POOLED_LINKS or not self.price.sum() > 0.0:
            return 0
        self.pooled = True
        pool = _Search(
            self.value,
            self.price[self.server] * self.share,
            self.owner,
            np.zeros(self.value.size, np.int64),
            np.array([self.price.sum()]),
            self.first.size - 1,
            None,
        )
        pool.improve(0.0, 1, 1)
        pool.refill(0.0, 1, 1)
        pool.prove(0.0, _POOLED_NODES, _Effort(None, _POOLED_NODES), _LARGE_CORE)
        self.nodes += pool.nodes
        self.lower_bound_to(pool.bound * (1.0 + 1e-12))
        return 0

    def refill(self, gap: float, width: int, rounds: int) -> int:
        """``rounds`` of emptying and refilling servers; returns the number of improvements."""
        self._fine()
        self.refilled += 1
        self.total, improvements, nodes = refill_servers(
            self.first,
            self.value,
            self.share,
            self.server,
            self.owner,
            self.server_first,
            self.server_links,
            self.price,
            self.best_client_price,
            _TRUST if self.refilled % 2 == 0 else 0.0,
            self.chosen,
            self.used,
            self.total,
            self.bound * (1.0 - max(gap, VALUE_TOLERANCE)),
            width,
            rounds,
            _SPARE,
            _NEIGHBOURHOOD_NODES,
            self.random,
            self.outside,
            self.window,
            self.fine_table,
        )
        self.nodes += nodes
        return int(improvements)

    def alike(self) -> bool:
        """Whether the clients have many links nearly as good as their best one: at least 5 for each client chosen."""
        reduced = self.value - self.price[self.server] * self.share
        best = np.maximum(np.maximum.reduceat(reduced, self.first[:-1]), 0.0)
        near = best[self.owner] - reduced <= _EXCHANGE_WINDOW * self.value.max()
        return bool(near.sum() >= 5 * (self.chosen >= 0).sum())

    def anneal(self, gap: float, width: int, rounds: int) -> int:
        """``rounds`` of annealing by exchanges, the warmer ones ``width`` times as hot; returns the improvements."""
        scale = float(self.value.max())
        found = 0
        for _ in range(rounds):
            self.annealed += 1
            heat = _COOL * scale * (width if self.annealed % 2 == 0 else 1)
            self.total, improvements = anneal_exchanges(
                self.first,
                self.value,
                self.share,
                self.server,
                self.owner,
                self.server_first,
                self.price,
                self.chosen,
                self.total,
                self.bound * (1.0 - max(gap, VALUE_TOLERANCE)),
                _EXCHANGE_WINDOW * scale,
                heat,
                _COOLED * heat,
                self.moves,
                self.random,
            )
            self.nodes += self.moves // 16
            self.moves = min(2 * self.moves, _MOST_MOVES) if improvements else max(self.moves // 2, _FIRST_MOVES)
            if improvements:
                held = self.chosen[self.chosen >= 0]
                self.used[:] = np.bincount(self.server[held], weights=self.share[held], minlength=self.price.size)
            found += improvements
        return int(found)

    def prove(self, gap: float, max_nodes: int, effort: _Effort, largest: int) -> bool:
        """Exact search of the core, until done, ``max_nodes`` or the end of the effort; returns whether it is done.

        A core of more than ``largest`` clients, or with tables beyond memory, is not begun.
        """
        margin = self.margin(gap)
        room = np.ones(self.price.size)
        num_links = self.value.size
        everywhere = np.arange(self.price.size)
        status, _, base, core_first, core_link, core_price, can_skip, fixed_link, core_client, dropped = build_core(
            np.arange(num_links),
            num_links,
            self.value,
            self.share,
            self.server,
            self.owner,
            self.price,
            everywhere,
            room,
            self.total + margin,
            self.chosen,
            num_links,
            self.slot,
        )
        num_core = core_client.size
        best_pick = np.full(num_core, -1, np.int64)
        done = True
        if status == 0:
            pass
        elif num_core == 0:
            if base > self.total:
                apply_core(core_client, core_link, best_pick, fixed_link, dropped, self.owner, self.chosen)
                self.total = base
        elif num_core > largest or (num_core + 1) * room.size * (CELLS + 1) > _TABLE_ENTRIES:
            return False
        else:
            option_server, option_value, option_share, option_cells = option_arrays(
                core_link, self.value, self.share, self.server, everywhere, room, CELLS
            )
            table = np.empty((num_core + 1, room.size, CELLS + 1))
            tabulate_knapsacks(core_first, option_server, option_value, option_cells, core_price, table)
            floor = start = self.total - base
            state = search_state(core_first, room.size)
            spent = 0
            done = False
            while not done and spent < max_nodes and not effort.over(self.nodes):
                floor, nodes, done = search_core(
                    core_first,
                    option_server,
                    option_value,
                    option_share,
                    core_price,
                    can_skip,
                    room,
                    table,
                    floor,
                    margin,
                    np.inf,
                    effort.share_of(min(_NODES_PER_LOOK, max_nodes - spent), self.nodes),
                    state,
                    best_pick,
                )
                spent += nodes
                self.nodes += nodes
            if floor > start:
                apply_core(core_client, core_link, best_pick, fixed_link, dropped, self.owner, self.chosen)
                self.total = base + floor
        if done:
            self.lower_bound_to(self.total + margin)
        return done


class _Effort:
    """The limits of a search: a deadline and a number of nodes, either of which may be absent."""

    def __init__(self, time_limit_s: float | None, node_limit: int | None) -> None:
        self.deadline = None if time_limit_s is None else time.perf_counter() + time_limit_s
        self.node_limit = node_limit
        self.limited = time_limit_s is not None or node_limit is not None

    def over(self, nodes: int) -> bool:
        """Whether nothing is left after ``nodes`` nodes."""
        if self.node_limit is not None and nodes >= self.node_limit:
            return True
        return self.deadline is not None and time.perf_counter() >= self.deadline

    def share_of(self, wanted: int, nodes: int) -> int:
        """``wanted`` nodes, or what the limit leaves of them."""
        return wanted if self.node_limit is None else min(wanted, self.node_limit - nodes)

    def quarter_of(self, wanted: int, nodes: int) -> int:
        """``wanted`` nodes, or a quarter of what the limit leaves."""
        return wanted if self.node_limit is None else min(wanted, max(0, self.node_limit - nodes) // 4)


def _run(search: _Search, gap: float, effort: _Effort) -> bool:
    """Search until the gap is closed or the effort is over; returns whether the gap is proved."""
    if search.closed(gap) or effort.over(search.nodes):
        return search.closed(gap)
    if search.prove(gap, _FIRST_NODES, effort, _SMALL_CORE):
        return True
    search.effort = effort
    search.count_clients()
    num_servers = search.price.size
    few = max(2, num_servers // 5)
    # Where a gap will do, the steps below come to it sooner than a proof.
    prices_lead = gap == 0.0 and search.prices_lead()
    if prices_lead:
        search.improve(gap, 1, num_servers)
        search.refill(gap, min(10, num_servers), few)
        search.price_clients(_PRICING_STEPS)
        if search.closed(gap) or search.prove_by_prices(gap, _PRICED_NODES, effort, _LARGE_CORE):
            return True
    # Annealing leads where many links are nearly equal.
    early = 5 if search.alike() else 0
    # (search, its width, rounds): refilling repairs what is far off, annealing and neighbourhoods polish.
    steps = (
        (search.improve, 1, num_servers),
        (search.refill, min(10, num_servers), 2 * few),
        (search.anneal, 4, early),
        (search.tighten, 1, 1),
        (search.refill, min(10, num_servers), few),
        (search.tighten, 1, 20),
        (search.refill, min(10, num_servers), few),
        (search.refill, min(7, num_servers), few),
        (search.improve, 1, num_servers),
        (search.refill, min(4, num_servers), 2 * few),
        (search.improve, min(2, num_servers), max(4, num_servers // 2)),
        (search.tighten, 1, 20),
        (search.refill, min(10, num_servers), num_servers),
        (search.refill, min(7, num_servers), num_servers),
        (search.refill, min(5, num_servers), num_servers),
        (search.anneal, 4, 1),
        (search.improve, min(3, num_servers), num_servers),
        (search.surrogate, 1, 1),
    )
    # What closed less than a fiftieth of the gap rests for a cycle, then for two, four, ...
    rest = [1] * len(steps)
    due = [0] * len(steps)
    idle = 0
    cycle = 0
    # Where a gap will do, a number of nodes is what the search may cost, not what it should.
    gives_up = gap > 0.0 and effort.node_limit is not None and effort.deadline is None
    hopeless = 0
    while not search.closed(gap) and not effort.over(search.nodes):
        gained = 0
        left_open = search.bound - search.total
        for i, (step, width, left) in enumerate(steps):
            if due[i] > cycle:
                continue
            before = search.bound - search.total
            # Without a deadline the steps are not cut by the clock, so that the same call gives the same decision.
            rounds = left if effort.deadline is None else 1
            while left > 0 and not effort.over(search.nodes) and not search.closed(gap):
                rounds = min(rounds, left)
                began = time.perf_counter()
                gained += step(gap, width, rounds)
                left -= rounds
                # Look at the clock every millisecond or so, however large the neighbourhoods are.
                pace = max((time.perf_counter() - began) / rounds, 1e-6)
                rounds = max(1, min(64, int(1e-3 / pace)))
            if search.bound - search.total > _HOPELESS * before:
                rest[i] = min(2 * rest[i], 8)
            else:
                rest[i] = 1
            due[i] = cycle + rest[i]
        cycle += 1
        if cycle == 1 and search.bound - search.total > _WIDE_GAP * search.bound:
            search.lift()
        # A second exact search, now from a good decision; it may not eat up a small limit.
        if cycle == 2:
            if prices_lead:
                search.price_clients(_PRICING_STEPS)
            prove = search.prove_by_prices if prices_lead else search.prove
            if prove(gap, effort.quarter_of(_SECOND_NODES, search.nodes), effort, _LARGE_CORE):
                return True
        hopeless = hopeless + 1 if search.bound - search.total > _HOPELESS * left_open else 0
        if gives_up and hopeless == 2:
            break
        idle = 0 if gained else idle + 1
        if idle == 2:
            largest, nodes = (_LARGE_CORE, _LAST_NODES) if effort.limited else (_MOST_NODES, _MOST_NODES)
            prove = search.prove_by_prices if prices_lead else search.prove
            if prove(gap, nodes, effort, largest):
                return True
        if idle >= 2 and not effort.limited:
            break
    return search.closed(gap)


def _check_effort(time_limit_s: float | None, gap: float, node_limit: int | None) -> None:
    if not 0.0 <= gap <= 1.0:
        raise InvalidInputError(f"gap is {gap}, expected a number from 0 to 1")
    if time_limit_s is not None and not time_limit_s >= 0.0:
        raise InvalidInputError(f"time_limit_s is {time_limit_s}, expected None or at least 0 seconds")
    if node_limit is not None and node_limit < 0:
        raise InvalidInputError(f"node_limit is {node_limit}, expected None or at least 0")


def solve_assignment(
    value: ArrayLike,
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    *,
    num_clients: int,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    rng: np.random.Generator | None = None,
    node_limit: int | None = None,
) -> AssignmentResult:
    r"""The decision of greatest value under the budgets, one server a client: P2 (paper B, Eq. 10), with a proof.

    .. math:: \max \sum v x \ \text{s.t.} \ \sum_n c_{nm} x_{nm} \le B_m, \ \sum_m x_{nm} \le 1, \ x \in \{0, 1\}

    Links that add nothing (value 0) or cost more than their budget are never chosen. A client may list a server twice.

    Args:
        value: Value of each link (P2: its participation probability), shape (links,), finite, >= 0.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,), from 0 to ``num_clients`` - 1.
        server: Server of each link, shape (links,), from 0 to ``len(budget)`` - 1.
        budget: Budget of each server, shape (servers,), finite, >= 0. A budget counts as kept when
            ``sum(cost) <= budget * (1 + 1e-12)``; no decision breaks it.
        num_clients: Number of clients, those in reach of nobody included.
        time_limit_s: Stop after this many seconds, with the gap reached. Not reproducible; ``node_limit`` is.
        gap: Stop at a proven gap of this size, in [0, 1]; 0 asks for the optimum.
        rng: Breaks ties at random, evenly over clients, servers and rows; without it, ties fall by row order.
        node_limit: Stop after about this many search nodes; with ``gap`` above 0 and no time limit also when two
            cycles of searches one after the other close less than a fiftieth of what is left of the gap.

    Returns:
        The decision and its certificate. Without limits the gap asked for is reached, which for large instances and a
        gap near 0 can take for ever, as P2 is NP-hard; and beyond about 250,000 ambiguous clients times servers the
        exact search is not begun and the gap of the neighbourhood search is returned.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    _check_effort(time_limit_s, gap, node_limit)
    effort = _Effort(time_limit_s, node_limit)
    arrays = check_links(value, cost, client, server, budget, num_clients)
    search = _Search(*arrays, num_clients, rng)
    proved = _run(search, gap, effort)
    return _result(search.rows(), arrays[0], search.upper_bound(), proved=proved and gap == 0.0)


def solve_square_root(
    value: ArrayLike,
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    *,
    num_clients: int,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    rng: np.random.Generator | None = None,
    node_limit: int | None = None,
) -> AssignmentResult:
    r"""P3 (paper B, Eq. 20): :func:`solve_assignment` for the utility :math:`\sqrt{\sum v x}` (Eq. 19).

    The root is increasing, so P2's optimum is P3's (Choice B10). ``value``, ``upper_bound`` and ``gap`` (asked for and
    returned) are those of the root. (19)'s factor 1/M scales every utility alike and is left to the caller.

    Args:
        value: Value of each link, shape (links,), finite, >= 0.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,).
        server: Server of each link, shape (links,).
        budget: Budget of each server, shape (servers,), finite, >= 0.
        num_clients: Number of clients.
        time_limit_s: Stop after this many seconds.
        gap: Stop at a proven gap of the root of this size, in [0, 1].
        rng: Breaks ties at random.
        node_limit: Stop after about this many search nodes.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    _check_effort(time_limit_s, gap, node_limit)
    result = solve_assignment(
        value,
        cost,
        client,
        server,
        budget,
        num_clients=num_clients,
        time_limit_s=time_limit_s,
        # 1 - (1 - g)^2, without its rounding near 0.
        gap=gap * (2.0 - gap),
        rng=rng,
        node_limit=node_limit,
    )
    root, bound = float(np.sqrt(result.value)), float(np.sqrt(result.upper_bound))
    return replace(result, value=root, upper_bound=bound, gap=(bound - root) / bound if bound > 0.0 else 0.0)


def maximise_cardinality(
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    *,
    num_clients: int,
    tie_value: ArrayLike | None = None,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    rng: np.random.Generator | None = None,
    node_limit: int | None = None,
) -> AssignmentResult:
    r"""As many links as the budgets allow, one server a client: :math:`\max |s|` (paper B, Eqs. 14 and 15).

    The number is P2 with every value 1, proved the same way. Among decisions of that number, ``tie_value`` asks for one
    of great total value; that part is a search of bounded effort, not a proof.

    Args:
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,).
        server: Server of each link, shape (links,).
        budget: Budget of each server, shape (servers,), finite, >= 0.
        num_clients: Number of clients.
        tie_value: Value of each link, shape (links,), finite, >= 0; without it, ties fall by ``rng``.
        time_limit_s: Stop after this many seconds.
        gap: Stop at a proven gap of the number of this size, in [0, 1].
        rng: Breaks ties at random.
        node_limit: Stop after about this many search nodes.

    Returns:
        The decision; ``value`` and ``upper_bound`` count links.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    _check_effort(time_limit_s, gap, node_limit)
    effort = _Effort(time_limit_s, node_limit)
    costs = _floats("cost", cost)
    ones = np.ones(costs.size)
    ties = ones if tie_value is None else _floats("tie_value", tie_value)
    ties, costs, clients, servers, budgets = check_links(ties, costs, client, server, budget, num_clients)
    search = _Search(ones, costs, clients, servers, budgets, num_clients, rng)
    proved = _run(search, gap, effort)
    rows = search.rows()
    if tie_value is not None and rows.size > 0 and not effort.over(search.nodes):
        # All tie values together weigh less than half a link.
        weight = 0.5 / max(float(ties.max()) * min(rows.size + 1, num_clients), 1e-300)
        finer = _Search(1.0 + weight * ties, costs, clients, servers, budgets, num_clients, rng)
        if finer.total < 1.0 * rows.size:
            finer.adopt(rows)
        finer.nodes = search.nodes
        if not finer.prove(0.0, _FIRST_NODES, effort, 120) and not effort.over(finer.nodes):
            for width in range(1, min(3, budgets.size) + 1):
                finer.improve(0.0, width, 2 * budgets.size)
        rows = finer.rows()
    return _result(rows, ones, search.upper_bound(), proved=proved and gap == 0.0)


def solve_exploration(
    value: ArrayLike,
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    under_explored: ArrayLike,
    *,
    num_clients: int,
    tie_by_value: bool = True,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    rng: np.random.Generator | None = None,
    node_limit: int | None = None,
) -> ExplorationResult:
    r"""The decision of a round of COCS (paper B, Algorithm 1, lines 6-15).

    A link (n, m) is under-explored when client n is in :math:`\mathcal N_m^{ue}` (13), explored otherwise
    (:math:`\mathcal N_m^{ed}`). Clients without a link in this round have no say in which case holds.

    * Case (i), every client has an under-explored link: as many under-explored links as possible (14).
    * Case (ii), some have one: first as many under-explored links as possible (15); then what each budget has left (16)
      goes to explored links of clients not yet used, by P2 with the estimates as values (17). (17b), that only servers
      that can still afford somebody choose, follows from the budgets.
    * No link is under-explored: P2 with the estimates (18), with (10d) too (Choice B7).

    Deviations: (14) as printed counts all links (10c) of the clients, explored ones too, so that a round could spend
    its budget without exploring anything, against the text ("select as many clients that have under-explored ESs") and
    Lemma 1, which counts on every such round raising a counter that is short; here (14) counts under-explored links, so
    it is (15) without a second stage. For (14) as printed, call :func:`maximise_cardinality` on all links. The client
    chosen in the first stage stays with its server in the second, by (15d). Which of the decisions with most links is
    taken is not said; ``tie_by_value`` takes one of great estimated value, otherwise ``rng`` decides.

    Args:
        value: Estimated participation probability of each link, shape (links,), finite, >= 0.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,).
        server: Server of each link, shape (links,).
        budget: Budget of each server, shape (servers,), finite, >= 0.
        under_explored: Whether each link is under-explored, shape (links,), bool.
        num_clients: Number of clients.
        tie_by_value: Whether the estimates break ties in the first stage.
        time_limit_s: Stop each stage after this many seconds.
        gap: Stop each stage at a proven gap of this size, in [0, 1].
        rng: Breaks ties at random.
        node_limit: Stop each stage after about this many search nodes.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    values, costs, clients, servers, budgets = check_links(value, cost, client, server, budget, num_clients)
    under = np.asarray(under_explored)
    if under.dtype != np.bool_ or under.shape != values.shape:
        raise InvalidInputError(
            f"under_explored has dtype {under.dtype} and shape {under.shape}, expected bool and {values.shape}"
        )
    first = second = _nothing()
    explored = exploited = first.links
    left = budgets
    usable = ~under
    case = "none"
    if under.any():
        rows = np.flatnonzero(under)
        first = maximise_cardinality(
            costs[rows],
            clients[rows],
            servers[rows],
            budgets,
            num_clients=num_clients,
            tie_value=values[rows] if tie_by_value else None,
            time_limit_s=time_limit_s,
            gap=gap,
            rng=rng,
            node_limit=node_limit,
        )
        first = replace(first, links=rows[first.links])
        explored = first.links
        present = np.zeros(num_clients, np.bool_)
        present[clients] = True
        short = np.zeros(num_clients, np.bool_)
        short[clients[under]] = True
        case = "all" if np.array_equal(present, short) else "part"
        spent = np.bincount(servers[explored], weights=costs[explored], minlength=budgets.size)
        left = np.maximum(budgets - spent, 0.0)
        taken = np.zeros(num_clients, np.bool_)
        taken[clients[explored]] = True
        usable &= ~taken[clients]
    if case != "all":
        rows = np.flatnonzero(usable)
        second = solve_assignment(
            values[rows],
            costs[rows],
            clients[rows],
            servers[rows],
            left,
            num_clients=num_clients,
            time_limit_s=time_limit_s,
            gap=gap,
            rng=rng,
            node_limit=node_limit,
        )
        second = replace(second, links=rows[second.links])
        exploited = second.links
    return ExplorationResult(np.sort(np.concatenate((explored, exploited))), explored, exploited, case, first, second)
