r"""Better decisions and a tighter bound from whole knapsacks, one server at a time.

:func:`fill_server` solves one server's knapsack. :func:`refill_servers` empties servers and fills them one after the
other: the search that finds good decisions where the exact search gives up. :func:`step_prices` moves prices
:math:`u_n \ge 0` of the clients (10d), which leave every server a knapsack of its own,

.. math:: D(u) = \sum_n u_n + \sum_m \max \Bigl\{ \sum_n (v_{nm} - u_n) x_n : \sum_n a_{nm} x_n \le 1,
          \ x \in \{0, 1\} \Bigr\} \ge \mathrm{P2},

a bound that is tighter than the linear relaxation, most of all where few clients fit a budget.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.optimization.assignment.core import Core, search_core, tabulate_knapsacks
from fedroster.optimization.assignment.links import Links

#: State of the generator: one entry.
RandomState: TypeAlias = NDArray[np.uint64]
# Cells of the grid of one server's room.
CELLS = 513
# So many links looked at cost as much as a search node, where each client is in reach of many servers.
_LOOKS_PER_NODE = 64


@njit(cache=True)
def draw(random: RandomState, size: int) -> int:
    """A number below ``size`` from the xorshift state ``random`` (one uint64)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(size))


@njit(cache=True)
def _window(
    share: FloatArray, profit: FloatArray, count: int, price: float, half: float, most: int
) -> tuple[float, float, int, float]:
    """The half width at which the clear items fit, with at most ``most`` undecided ones where that can be.

    Returns:
        ``(half, room, undecided, bound)``: room that the clear items leave, and the bound by the server's price.
    """
    bound = price
    for p in range(count):
        bound += max(0.0, profit[p] - price * share[p])
    whole = False
    for attempt in range(16):
        room = 1.0
        num_core = 0
        for p in range(count):
            reduced = profit[p] - price * share[p]
            if reduced > half:
                room -= share[p]
            elif reduced >= -half:
                num_core += 1
        if attempt == 15 or (room >= 0.0 and (whole or num_core <= most)):
            break  # what is returned belongs to this half
        # Once room ran out, the window only grows, and a core cut to size ends the search for it.
        whole = whole or room < 0.0
        half *= 1.4 if room < 0.0 else 0.7
    return half, room, num_core, bound


@njit(cache=True)
def fill_server(
    share: FloatArray,
    profit: FloatArray,
    count: int,
    price: float,
    half: float,
    spare: float,
    widen: float,
    max_nodes: int,
    table: FloatArray,
    picks: BoolArray,
) -> tuple[float, float, float, int]:
    """One server's knapsack over the first ``count`` items: a good or best choice, and a bound.

    Items whose profit less their priced cost is further than ``half`` from 0 are decided by its sign; the others are
    searched. The choice is the best one whenever it comes within ``half`` of the priced bound.

    Args:
        share: Share of the budget that each item uses.
        profit: Profit of each item, > 0.
        count: Number of items.
        price: Price of the whole budget.
        half: Half the window of undecided items.
        spare: Stop this close to the priced bound.
        widen: The next window is this many times as wide as the priced bound was off, which makes the search exact for
            1 or more; 0 for a window that keeps the search short.
        max_nodes: Search nodes.
        table: Scratch, shape (items + 1, 1, CELLS) where so many undecided items are to be searched.
        picks: Set to whether each item is chosen.

    Returns:
        ``(profit of the choice, bound on any choice, half to use next time, nodes)``.
    """
    most = table.shape[0] - 1
    half, room, num_core, priced = _window(share, profit, count, price, half, most)
    for p in range(count):
        picks[p] = False
    if room < 0.0:
        return 0.0, priced, half, 0
    following = half * (0.85 if num_core > 28 else 1.15)
    exact = num_core <= most
    num_core = min(num_core, most)
    undecided = np.empty(num_core, np.int64)
    clear = np.empty(num_core)
    end = 0
    total = 0.0
    for p in range(count):
        reduced = profit[p] - price * share[p]
        if reduced > half:
            picks[p] = True
            total += profit[p]
        elif reduced >= -half and (end < num_core or abs(reduced) <= clear[end - 1]):
            # The least clear ones, by insertion; of equal ones the last comes first.
            place = min(end, num_core - 1)
            while place > 0 and clear[place - 1] >= abs(reduced):
                undecided[place], clear[place] = undecided[place - 1], clear[place - 1]
                place -= 1
            undecided[place], clear[place] = p, abs(reduced)
            end = min(end + 1, num_core)
    upper = priced
    nodes = 0
    if num_core == 0:
        upper = max(total, priced - half)
    else:
        item = np.empty(num_core, np.int64)
        value = np.empty(num_core)
        size = np.empty(num_core)
        first = np.empty(num_core + 1, np.int64)
        for k in range(num_core):
            item[k] = undecided[num_core - 1 - k]
            value[k] = profit[item[k]]
            size[k] = share[item[k]]
            first[k] = k
        first[num_core] = num_core
        at_once = np.zeros(num_core, np.int64)
        left = np.empty(1)
        left[0] = room
        core = Core(item, first, np.zeros(num_core), np.ones(num_core, np.bool_), item, at_once, value, size, left)
        tabulate_knapsacks(core, table)
        found, nodes, done, pick = search_core(core, table, -1.0, 0.0, priced - total - spare, max_nodes)
        if exact:
            proved = done and found < priced - total - spare
            upper = min(upper, max(total + (max(found, 0.0) if proved else table[0, 0, -1]), priced - half))
        total += max(found, 0.0)
        for k in range(num_core):
            if pick[k] >= 0:
                picks[item[k]] = True
    if widen > 0.0:
        following = max(widen * (priced - total), 1e-4 * priced)
    return total, upper, following, nodes


@njit(cache=True)
def _join_group(links: Links, group: IntArray, rank: IntArray, random: RandomState) -> int:
    """Fill ``group`` up from its first server by random servers that share clients with its members.

    ``rank`` numbers the members and is -1 elsewhere. Returns the size, less than asked for where servers stand alone.
    """
    size = 1
    rank[group[0]] = 0
    attempt = 0
    while size < group.size and attempt < 8 * group.size:
        attempt += 1
        anchor = group[draw(random, size)]
        degree = links.server_first[anchor + 1] - links.server_first[anchor]
        if degree == 0:
            break
        n = links.owner[links.server_links[links.server_first[anchor] + draw(random, degree)]]
        other = links.server[links.first[n] + draw(random, links.first[n + 1] - links.first[n])]
        if rank[other] < 0:
            rank[other] = size
            group[size] = other
            size += 1
    return size


@njit(cache=True)
def _pool(
    links: Links,
    m: int,
    price: FloatArray,
    client_price: FloatArray,
    trust: float,
    chosen: IntArray,
    rank: IntArray,
    pool: IntArray,
    profit: FloatArray,
    pool_share: FloatArray,
) -> tuple[int, int]:
    """What server m may choose from, and each link's value less what its client is worth to the servers to come.

    Returns:
        ``(count, looks)``: entries of ``pool``, ``profit`` and ``pool_share``, and links that were looked at.
    """
    first, value, share, server = links.first, links.value, links.share, links.server
    count = 0
    looks = 0
    for p in range(links.server_first[m], links.server_first[m + 1]):
        j = links.server_links[p]
        n = links.owner[j]
        if chosen[n] >= 0:
            continue
        other = 0.0
        looks += first[n + 1] - first[n]
        for q in range(first[n], first[n + 1]):
            if rank[server[q]] >= 0:
                reduced = value[q] - price[server[q]] * share[q]
                other = max(other, reduced + trust * (client_price[n] - reduced))
        gain = value[j] - other
        if gain <= 0.0:
            continue
        # A client that lists this server twice stands for its better row; its rows are neighbours here.
        if count > 0 and links.owner[pool[count - 1]] == n:
            last = pool[count - 1]
            if profit[count - 1] - price[m] * share[last] >= gain - price[m] * share[j]:
                continue
            count -= 1
        pool[count] = j
        pool_share[count] = share[j]
        profit[count] = gain
        count += 1
    return count, looks


@njit(cache=True)
def refill_servers(
    links: Links,
    price: FloatArray,
    client_price: FloatArray,
    trust: float,
    chosen: IntArray,
    total: float,
    enough: float,
    width: int,
    rounds: int,
    max_nodes: int,
    random: RandomState,
    window: FloatArray,
    table: FloatArray,
) -> tuple[float, int]:
    """Empty ``width`` servers and fill them one after the other, keep the better decision; ``rounds`` times.

    The server in turn chooses among all clients that are free, each at its value less what it may be worth to the
    servers still to come (its reduced value there, or its price in the decomposition bound): so it fills its budget
    almost to the last bit with clients it may have at little loss, and only the last server has to live with what
    remains. That is what exchanges between two servers cannot do when costs are large beside the room that is left.

    Args:
        links: The links.
        price: Price of each whole budget.
        client_price: Price of each client, from :func:`step_prices`.
        trust: Weight of that price against the reduced value, in [0, 1].
        chosen: Link of each client or -1; improved in place.
        total: Value of ``chosen``.
        enough: Stop at this value.
        width: Servers emptied at a time.
        rounds: How many times.
        max_nodes: Search nodes for one server.
        random: State of :func:`draw`.
        window: Reduced values within this are undecided, one a server; adapted to keep the cores small.
        table: Scratch of :func:`fill_server`.

    Returns:
        ``(total, nodes)``.
    """
    num_servers = price.size
    group = np.empty(width, np.int64)
    rank = np.empty(num_servers, np.int64)
    largest = 0
    for m in range(num_servers):
        rank[m] = -1
        largest = max(largest, links.server_first[m + 1] - links.server_first[m])
    pool = np.empty(largest, np.int64)
    profit = np.empty(largest)
    pool_share = np.empty(largest)
    picks = np.empty(largest, np.bool_)
    old = np.empty(chosen.size, np.int64)
    new = np.empty(chosen.size, np.int64)
    nodes = 0
    for _ in range(rounds):
        if total >= enough:
            break
        group[0] = draw(random, num_servers)
        size = _join_group(links, group, rank, random)
        num_old = 0
        lost = 0.0
        for i in range(size):
            for p in range(links.server_first[group[i]], links.server_first[group[i] + 1]):
                j = links.server_links[p]
                if chosen[links.owner[j]] == j:
                    chosen[links.owner[j]] = -1
                    old[num_old] = j
                    num_old += 1
                    lost += links.value[j]
        gained = 0.0
        num_new = 0
        for i in range(size):
            m = group[i]
            rank[m] = -1
            count, looks = _pool(links, m, price, client_price, trust, chosen, rank, pool, profit, pool_share)
            # A thousandth of a budget may stay unused.
            _, _, window[m], spent = fill_server(
                pool_share, profit, count, price[m], window[m], 1e-3 * price[m], 0.0, max_nodes, table, picks
            )
            nodes += spent + looks // _LOOKS_PER_NODE
            for p in range(count):
                if picks[p]:
                    chosen[links.owner[pool[p]]] = pool[p]
                    gained += links.value[pool[p]]
                    new[num_new] = pool[p]
                    num_new += 1
        nodes += 1
        # An equal decision is taken, too: where only clients count, it leads on.
        if gained > lost + 1e-12 * total or gained == lost:
            total += gained - lost
            continue
        for i in range(num_new):
            chosen[links.owner[new[i]]] = -1
        for i in range(num_old):
            chosen[links.owner[old[i]]] = old[i]
    return total, nodes


@njit(cache=True)
def step_prices(
    links: Links,
    price: FloatArray,
    client_price: FloatArray,
    best_price: FloatArray,
    bound: float,
    target: float,
    step: float,
    rounds: int,
    max_nodes: int,
    most_nodes: int,
    window: FloatArray,
    table: FloatArray,
) -> tuple[float, float, int]:
    r"""Subgradient steps on the decomposition bound D(u); see the module.

    A client that d servers want pulls its price by 1 - d. (A client that lists a server twice counts as two there,
    which can only raise the bound.)

    Args:
        links: The links.
        price: Price of each whole budget.
        client_price: Prices u of the clients, moved in place.
        best_price: The prices of the best bound, kept up.
        bound: Best bound so far.
        target: Value that the bound cannot fall below: the incumbent's.
        step: Polyak step factor.
        rounds: Number of steps.
        max_nodes: Search nodes for one knapsack.
        most_nodes: No further step begins after this many nodes in all.
        window: As in :func:`fill_server`, one a server.
        table: Scratch of :func:`fill_server`.

    Returns:
        ``(bound, step, nodes)``.
    """
    num_servers = price.size
    num_clients = client_price.size
    largest = 0
    for m in range(num_servers):
        largest = max(largest, links.server_first[m + 1] - links.server_first[m])
    pool = np.empty(largest, np.int64)
    pool_share = np.empty(largest)
    profit = np.empty(largest)
    picks = np.empty(largest, np.bool_)
    pull = np.empty(num_clients)
    heading = np.zeros(num_clients)
    nodes = 0
    stale = 0
    for _ in range(rounds):
        if nodes > most_nodes:
            break
        total = 0.0
        for n in range(num_clients):
            total += client_price[n]
            pull[n] = 1.0
        for m in range(num_servers):
            count = 0
            for p in range(links.server_first[m], links.server_first[m + 1]):
                j = links.server_links[p]
                gain = links.value[j] - client_price[links.owner[j]]
                if gain > 0.0:
                    pool[count] = j
                    pool_share[count] = links.share[j]
                    profit[count] = gain
                    count += 1
            _, upper, window[m], spent = fill_server(
                pool_share, profit, count, price[m], window[m], 1e-5 * price[m], 1.2, max_nodes, table, picks
            )
            nodes += spent + 1
            total += upper
            for p in range(count):
                if picks[p]:
                    pull[links.owner[pool[p]]] -= 1.0
        if total < bound - 1e-7 * bound:
            bound = total
            for n in range(num_clients):
                best_price[n] = client_price[n]
            stale = 0
        else:
            stale += 1
            if stale >= 10:
                stale = 0
                step *= 0.6
                for n in range(num_clients):
                    client_price[n] = best_price[n]
                    heading[n] = 0.0
        # Deflect by the last direction where the two oppose, against zigzags.
        against = 0.0
        length = 0.0
        for n in range(num_clients):
            # At price 0 a client that no server wants stays there.
            if client_price[n] <= 0.0 and pull[n] > 0.0:
                pull[n] = 0.0
            against += pull[n] * heading[n]
            length += heading[n] * heading[n]
        deflection = max(0.0, -1.5 * against / length) if length > 0.0 else 0.0
        norm = 0.0
        for n in range(num_clients):
            heading[n] = pull[n] + deflection * heading[n]
            norm += heading[n] * heading[n]
        if norm == 0.0 or total <= target:
            break
        length = step * (total - target) / norm
        for n in range(num_clients):
            client_price[n] = max(0.0, client_price[n] - length * heading[n])
    return bound, step, nodes
