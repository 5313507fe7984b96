r"""Greedy start and exact search of P2 by prices of the budgets (Qu et al. 2021, Eq. 10).

The exact search keeps, by reduced costs, only the *core*: the clients whose choice can still matter. With prices
:math:`\lambda` of the budgets and :math:`u_n = \max(0, \max_m (v_{nm} - \lambda_m a_{nm}))` of the clients, it goes
depth first through the clients in order of falling :math:`u_n` and prunes by the Lagrangian decomposition bound

.. math::
    \sum_{\text{decided}} v + \sum_{n \ge k} u_n + \sum_m F_{km}(r_m),

where :math:`F_{km}(r)` is the best profit :math:`\sum (v_{nm} - u_n)` of the undecided clients :math:`n \ge k` in a
single knapsack of the room r that server m has left. F is tabulated once, on a grid of the room, costs rounded down,
so the bound holds and a node costs one table look-up a server. It is far tighter than the linear relaxation where a
budget holds a handful of clients, which is the size of the paper's networks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.optimization.assignment.links import Links, firsts
from fedroster.optimization.assignment.relaxation import client_prices

# Grid costs are rounded down and rooms up by this share of a cell, so rounding never cuts off a decision.
_CELL_SLACK = 1e-6


class Core(NamedTuple):
    """A problem for :func:`search_core`: clients by falling price, and their options, the best one first.

    Attributes:
        client: The clients, shape (core,).
        first: Where each one's options start, shape (core + 1,).
        price: Price u of each, shape (core,).
        can_skip: Whether each may be left out, shape (core,).
        link: Link of each option, shape (options,).
        server: Its server, shape (options,).
        value: Its value, shape (options,).
        share: Share of the budget that it uses, shape (options,).
        room: Room of each server, shape (servers,).
    """

    client: IntArray
    first: IntArray
    price: FloatArray
    can_skip: BoolArray
    link: IntArray
    server: IntArray
    value: FloatArray
    share: FloatArray
    room: FloatArray


@njit(cache=True)
def _take(links: Links, order: IntArray, used: FloatArray, chosen: IntArray) -> None:
    """Take links in this order while the budgets and one server a client allow."""
    for j in order:
        n, m = links.owner[j], links.server[j]
        if chosen[n] < 0 and used[m] + links.share[j] <= 1.0:
            used[m] += links.share[j]
            chosen[n] = j


@np.errstate(over="ignore")
def greedy_fill(links: Links, price: FloatArray) -> IntArray:
    """A feasible start, the link of each client or -1: by value over priced cost, clients' best links before others."""
    value, share, server, owner = links.value, links.share, links.server, links.owner
    cost = price[server] * share
    chosen, used = np.full(links.first.size - 1, -1), np.zeros(price.size)
    reduced = value - cost
    best = np.flatnonzero((reduced > 0.0) & (reduced == client_prices(links, price)[owner]))
    best = best[firsts(owner[best])]
    _take(links, best[np.argsort(-value[best] / (cost[best] + 1e-300), kind="stable")], used, chosen)
    rest = np.flatnonzero((chosen[owner] < 0) & (used[server] + share <= 1.0))
    # A budget whose price is 0 has room; there the value alone decides.
    key = -value[rest] / (cost[rest] + 1e-3 * value[rest] + 1e-300)
    _take(links, rest[np.argsort(key, kind="stable")], used, chosen)
    return chosen


def core_of(
    links: Links,
    keep: BoolArray,
    skip: BoolArray,
    client_price: FloatArray,
    worth: FloatArray,
    room: FloatArray,
) -> Core:
    """The clients with links to ``keep``, by falling price, and these links, those of greatest ``worth`` first."""
    client = np.flatnonzero(np.logical_or.reduceat(keep, links.first[:-1]))
    client = client[np.argsort(-client_price[client], kind="stable")]
    place = np.empty(client_price.size, np.int64)
    place[client] = np.arange(client.size)
    link = np.flatnonzero(keep)
    at = place[links.owner[link]]
    order = np.lexsort((-worth[link], at))
    link = link[order]
    first = np.searchsorted(at[order], np.arange(client.size + 1))
    options = link, links.server[link], links.value[link], links.share[link]
    return Core(client, first, client_price[client], skip[client], *options, room)


def build_core(links: Links, price: FloatArray, floor: float) -> tuple[bool, float, IntArray, Core]:
    """Reduced-cost fixing: the clients whose choice can still lead above ``floor``, and what is fixed for the others.

    Returns:
        ``(possible, base, fixed, core)``: whether anything above the floor may exist; value and links of the clients
        that every better decision gives the same link; the others that a better decision may use.
    """
    reduced = links.value - price[links.server] * links.share
    best = client_prices(links, price)
    slack = float(np.cumsum(np.concatenate((price, best)))[-1]) - floor
    near = best[links.owner] - reduced < slack
    # Without a second choice, and not to be left out, a client is fixed.
    is_fixed = (np.add.reduceat(near, links.first[:-1], dtype=np.int64) == 1) & (best >= slack)
    fixed = np.flatnonzero(near & is_fixed[links.owner])
    room = np.ones(price.size)
    np.subtract.at(room, links.server[fixed], links.share[fixed])
    # Where the clients that every better decision must use do not fit, there is none.
    possible = slack > 0.0 and bool((room >= -1e-13).all())
    core = core_of(links, near & ~is_fixed[links.owner], best < slack, best, reduced, np.maximum(room, 0.0))
    return possible, float(links.value[fixed].sum()), fixed, core


@njit(cache=True)
def tabulate_knapsacks(core: Core, table: FloatArray) -> None:
    """Best profit of clients k, k+1, ... in r cells of server m's room, at ``[k, m, r]``.

    Args:
        core: The core.
        table: Shape (> core, servers, cells), counting the empty cell; filled.
    """
    num_core = core.client.size
    num_servers, cells = table.shape[1], table.shape[2]
    for m in range(num_servers):
        for r in range(cells):
            table[num_core, m, r] = 0.0
    for k in range(num_core - 1, -1, -1):
        for m in range(num_servers):
            for r in range(cells):
                table[k, m, r] = table[k + 1, m, r]
        for i in range(core.first[k], core.first[k + 1]):
            profit = core.value[i] - core.price[k]
            m = core.server[i]
            if profit <= 0.0 or core.share[i] > core.room[m]:
                continue
            taken = 0
            if core.room[m] > 0.0:
                taken = max(0, int(core.share[i] * ((cells - 1) / core.room[m]) - _CELL_SLACK))
            for r in range(cells - taken):
                table[k, m, r + taken] = max(table[k, m, r + taken], table[k + 1, m, r] + profit)


@njit(cache=True)
def search_core(
    core: Core, table: FloatArray, floor: float, tolerance: float, enough: float, max_nodes: int
) -> tuple[float, int, bool, IntArray]:
    """Depth-first branch and bound over the core, most promising option first.

    Args:
        core: The core, at least one client.
        table: Filled by :func:`tabulate_knapsacks`.
        floor: Value to beat.
        tolerance: A branch must promise more than ``floor + tolerance``.
        enough: The search ends when it has found this much.
        max_nodes: Nodes before it gives up.

    Returns:
        ``(value, nodes, done, pick)``: the best value found, or the floor; whether nothing better is left; and the
        option of each core client or -1, meaningful where the floor was beaten.
    """
    num_core = core.client.size
    num_servers = core.room.size
    room, share, cells = core.room, core.share, table.shape[2]
    # By depth: promising options in order of falling bound (-1 leaves the client out), their bounds and number, the
    # next one to try, the option on the path, what was used before it (to undo without rounding), and the value above.
    children = np.empty(core.link.size + num_core, np.int64)
    child_bound = np.empty(core.link.size + num_core)
    num_children = np.zeros(num_core, np.int64)
    pointer = np.zeros(num_core, np.int64)
    picked = np.empty(num_core, np.int64)
    best_pick = np.empty(num_core, np.int64)
    used_before = np.zeros(num_core)
    reached = np.zeros(num_core + 1)
    used = np.zeros(num_servers)
    scale = np.zeros(num_servers)
    cell = np.zeros(num_servers, np.int64)
    for m in range(num_servers):
        if room[m] > 0.0:
            scale[m] = (cells - 1) / room[m]
            cell[m] = cells - 1
    rest = np.zeros(num_core + 1)
    for k in range(num_core - 1, -1, -1):
        rest[k] = rest[k + 1] + core.price[k]
        best_pick[k] = picked[k] = -1
    k = 0
    nodes = 0
    entering = True
    while k >= 0:
        if entering:
            entering = False
            # Bounds of all options; the promising ones sorted by insertion.
            start = core.first[k] + k
            count = 0
            promise = reached[k] + rest[k + 1]
            for m in range(num_servers):
                promise += table[k + 1, m, cell[m]]
            for j in range(core.first[k], core.first[k + 1] + 1):
                nodes += 1
                option = -1
                bound = promise
                if j < core.first[k + 1]:
                    m = core.server[j]
                    filled = used[m] + share[j]
                    if filled > room[m]:
                        continue
                    after = min(cells - 1, int((room[m] - filled) * scale[m] + _CELL_SLACK))
                    bound = promise + core.value[j] + table[k + 1, m, after]
                    bound -= table[k + 1, m, cell[m]]
                    option = j
                elif not core.can_skip[k]:
                    continue
                if bound <= floor + tolerance:
                    continue
                at = start + count
                while at > start and child_bound[at - 1] < bound:
                    child_bound[at] = child_bound[at - 1]
                    children[at] = children[at - 1]
                    at -= 1
                child_bound[at] = bound
                children[at] = option
                count += 1
            num_children[k] = count
            pointer[k] = 0
            picked[k] = -1
        elif picked[k] >= 0:
            m = core.server[picked[k]]
            used[m] = used_before[k]
            cell[m] = min(cells - 1, int((room[m] - used[m]) * scale[m] + _CELL_SLACK))
            picked[k] = -1
        if nodes >= max_nodes:
            return floor, nodes, False, best_pick
        at = core.first[k] + k + pointer[k]
        if pointer[k] >= num_children[k] or child_bound[at] <= floor + tolerance:
            k -= 1
            continue
        pointer[k] += 1
        j = children[at]
        total = reached[k]
        if j >= 0:
            m = core.server[j]
            used_before[k] = used[m]
            used[m] += share[j]
            cell[m] = min(cells - 1, int((room[m] - used[m]) * scale[m] + _CELL_SLACK))
            picked[k] = j
            total += core.value[j]
        if k == num_core - 1:
            if total > floor + tolerance:
                floor = total
                for i in range(num_core):
                    best_pick[i] = picked[i]
                if floor >= enough:
                    break
            continue
        k += 1
        reached[k] = total
        entering = True
    return floor, nodes, True, best_pick
