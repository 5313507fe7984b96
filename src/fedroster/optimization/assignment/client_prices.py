r"""Exact search of P2 by client prices, where a budget pays for few clients (Qu et al. 2021, Eq. 10).

With a price :math:`u_n \ge 0` on each client (10d) every server is left with a whole knapsack of its own,

.. math::
    D(u) = \sum_n u_n + \sum_m F_m(1) \ge \mathrm{P2}, \qquad
    F_m(r) = \max \Bigl\{ \sum_n (v_{nm} - u_n) x_n : \sum_n a_{nm} x_n \le r, \ x \in \{0, 1\} \Bigr\},

with :math:`a_{nm} = c_{nm} / B_m`.  Where four clients fit a budget the linear relaxation is off by several percent, as
each server splits one of them, and D at good prices by a few tenths.  Two things follow from such prices:

* :func:`fix_links` leaves out what no better decision uses.  A decision that gives client n to server m is worth at
  most :math:`D(u) - u_n - \sum_k F_k(1) + v_{nm} + F_m^{-n}(1 - a_{nm}) + \sum_{k \ne m} F_k^{-n}(1)`,
  :math:`F^{-n}` being the knapsack without n; one that leaves n out at most
  :math:`D(u) - u_n - \sum_k F_k(1) + \sum_k F_k^{-n}(1)`.
* :func:`search_by_prices` goes depth first through the clients that are left, by falling price, and prunes by
  :math:`\sum_{\text{decided}} v + \sum_{n \ge k} u_n + \sum_m F_{km}(r_m)`, :math:`F_{km}` being the knapsack of the
  undecided clients and :math:`r_m` the room that server m has left.

F is a step function and is kept as one: its undominated points (share used, profit), ascending in both.  Nothing is
rounded until a function has more than :data:`MOST_POINTS`; then points that are close are joined at the smallest share
and the largest profit, so that the bound holds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.optimization.assignment.core import Core
from fedroster.optimization.assignment.links import Links

# Points of a step function, at most; beyond, they are joined within cells of a budget.
MOST_POINTS = 512
JOINED_CELLS = 256
# A room is read as larger by this share of the budget: the same shares in another order may sum to a little more.
ROOM_SLACK = 1e-9


class Functions(NamedTuple):
    """Step functions of each server's knapsack over the core's clients from each one on.

    Attributes:
        used: Share used at each point of all functions.
        profit: Profit there.
        first: Where each function starts.
        stop: Where it stops.
        below: Function of each option's server without its client, shape (options,).
        at: The same with its client, shape (options,).
        top: Each server's function of the whole core, shape (servers,).
    """

    used: FloatArray
    profit: FloatArray
    first: IntArray
    stop: IntArray
    below: IntArray
    at: IntArray
    top: IntArray


@njit(cache=True)
def profit_at(used: FloatArray, profit: FloatArray, start: int, stop: int, room: float) -> float:
    """Largest profit within the room: the last of the points ``start`` to ``stop`` that fits; the first has share 0."""
    low = start
    high = stop
    limit = room + ROOM_SLACK
    while high - low > 1:
        middle = (low + high) // 2
        if used[middle] <= limit:
            low = middle
        else:
            high = middle
    return float(profit[low])


@njit(cache=True)
def add_item(used: FloatArray, profit: FloatArray, start: int, stop: int, share: float, gain: float, end: int) -> int:
    """Write the points of a step function with one more item from ``end`` on; returns where they stop.

    Args:
        used: Shares of all points, with at least ``2 * (stop - start)`` free entries from ``end``.
        profit: Their profits.
        start: Where the function without the item starts.
        stop: Where it stops.
        share: Share of the budget that the item uses.
        gain: Its profit, > 0.
        end: Where to write.
    """
    without = start
    taken = start
    write = end
    best = -1.0
    limit = 1.0 + ROOM_SLACK
    while True:
        plain = used[without] if without < stop else np.inf
        more = used[taken] + share if taken < stop else np.inf
        if more > limit:
            more = np.inf
        if plain == np.inf and more == np.inf:
            break
        if plain <= more:
            at, worth = plain, profit[without]
            without += 1
        else:
            at, worth = more, profit[taken] + gain
            taken += 1
        if worth > best:
            # At the same share the better one counts.
            if write > end and used[write - 1] == at:
                write -= 1
            used[write] = at
            profit[write] = worth
            write += 1
            best = worth
    if write - end <= MOST_POINTS:
        return write
    joined = end
    cell = -1
    for i in range(end, write):
        here = int(used[i] * JOINED_CELLS)
        if here == cell:
            profit[joined - 1] = profit[i]
        else:
            used[joined] = used[i]
            profit[joined] = profit[i]
            joined += 1
            cell = here
    return joined


@njit(cache=True)
def grown(array: FloatArray, size: int) -> FloatArray:
    """The array, or a copy with room for ``size`` entries."""
    if array.size >= size:
        return array
    larger = np.zeros(2 * size)
    for i in range(array.size):
        larger[i] = array[i]
    return larger


@njit(cache=True)
def best_joined(
    used: FloatArray, profit: FloatArray, first: int, last: int, other: int, end: int, room: float
) -> float:
    """Largest profit of two step functions, ``first`` to ``last`` and ``other`` to ``end``, in one room; -1 if none."""
    best = -1.0
    j = end - 1
    limit = room + ROOM_SLACK
    for i in range(first, last):
        while j >= other and used[i] + used[j] > limit:
            j -= 1
        if j < other:
            break
        best = max(best, profit[i] + profit[j])
    return best


@njit(cache=True)
def lists_twice(links: Links) -> bool:
    """Whether some client lists a server twice."""
    first, server, num_servers = links.first, links.server, links.server_first.size - 1
    last = np.full(num_servers, -1, np.int64)
    for n in range(first.size - 1):
        for j in range(first[n], first[n + 1]):
            if last[server[j]] == n:
                return True
            last[server[j]] = n
    return False


@njit(cache=True)
def fix_links(links: Links, client_price: FloatArray, floor: float) -> tuple[float, BoolArray, BoolArray]:
    """Bound by the client prices, and what it rules out; see the module.

    Args:
        links: The links; no client lists a server twice.
        client_price: Prices u, shape (clients,), >= 0.
        floor: Only decisions worth more are of interest.

    Returns:
        ``(D, keep, skip)``: the bound; whether a decision above the floor may use each link; and whether it may leave
        each client out.
    """
    first, value, share, owner = links.first, links.value, links.share, links.owner
    server_first, server_links = links.server_first, links.server_links
    num_servers = server_first.size - 1
    num_clients = first.size - 1
    # What the servers lose without the client, each and all of them, and how server m changes beside a forced link.
    loss = np.zeros(value.size)
    lost = np.zeros(num_clients)
    beside = np.zeros(value.size)
    bound = client_price.sum()
    items = np.empty(value.size, np.int64)
    used = np.empty(4 * MOST_POINTS)
    profit = np.empty(4 * MOST_POINTS)
    for m in range(num_servers):
        count = 0
        for p in range(server_first[m], server_first[m + 1]):
            j = server_links[p]
            if value[j] > client_price[owner[j]]:
                items[count] = j
                count += 1
        # Functions of the last items, then of the first ones.
        tail = np.empty(count + 2, np.int64)
        used[0] = profit[0] = 0.0
        tail[0], tail[1] = 0, 1
        for i in range(count):
            j = items[count - 1 - i]
            need = tail[i + 1] + 2 * (tail[i + 1] - tail[i])
            used, profit = grown(used, need), grown(profit, need)
            gain = value[j] - client_price[owner[j]]
            tail[i + 2] = add_item(used, profit, tail[i], tail[i + 1], share[j], gain, tail[i + 1])
        start, stop = tail[count], tail[count + 1]
        most = profit[stop - 1]
        bound += most
        for p in range(server_first[m], server_first[m + 1]):
            j = server_links[p]
            if value[j] <= client_price[owner[j]]:
                beside[j] = profit_at(used, profit, start, stop, 1.0 - share[j]) - most
        need = stop + 4 * MOST_POINTS
        used, profit = grown(used, need), grown(profit, need)
        head, until = stop, stop + 1
        used[head] = profit[head] = 0.0
        for i in range(count):
            j = items[i]
            rest, end = tail[count - 1 - i], tail[count - i]
            loss[j] = most - best_joined(used, profit, head, until, rest, end, 1.0)
            lost[owner[j]] += loss[j]
            beside[j] = best_joined(used, profit, head, until, rest, end, 1.0 - share[j]) - most
            gain = value[j] - client_price[owner[j]]
            following = add_item(used, profit, head, until, share[j], gain, until)
            for q in range(until, following):
                used[head + q - until] = used[q]
                profit[head + q - until] = profit[q]
            until = head + following - until
    keep = np.empty(value.size, np.bool_)
    skip = np.empty(num_clients, np.bool_)
    for n in range(num_clients):
        without = bound - client_price[n] - lost[n]
        skip[n] = without > floor
        for j in range(first[n], first[n + 1]):
            keep[j] = without + value[j] + beside[j] + loss[j] > floor
    return bound, keep, skip


@njit(cache=True)
def core_functions(core: Core) -> Functions:
    """The step functions of a core."""
    num_options = core.link.size
    # Function 0 is that of no client.
    used = np.zeros(4 * MOST_POINTS)
    profit = np.zeros(4 * MOST_POINTS)
    first = np.zeros(num_options + 1, np.int64)
    stop = np.ones(num_options + 1, np.int64)
    below = np.empty(num_options, np.int64)
    at = np.empty(num_options, np.int64)
    top = np.zeros(core.room.size, np.int64)
    count = 1
    end = 1
    for k in range(core.client.size - 1, -1, -1):
        for i in range(core.first[k], core.first[k + 1]):
            m = core.server[i]
            below[i] = top[m]
            gain = core.value[i] - core.price[k]
            if gain > 0.0:
                start, until = first[top[m]], stop[top[m]]
                need = end + 2 * (until - start)
                used, profit = grown(used, need), grown(profit, need)
                first[count] = end
                end = add_item(used, profit, start, until, core.share[i], gain, end)
                stop[count] = end
                top[m] = count
                count += 1
            at[i] = top[m]
    return Functions(used, profit, first, stop, below, at, top)


@njit(cache=True)
def _worth(functions: Functions, which: int, room: float) -> float:
    """Largest profit of a function within the room."""
    return profit_at(functions.used, functions.profit, functions.first[which], functions.stop[which], room)


@njit(cache=True)
def search_by_prices(
    core: Core, functions: Functions, floor: float, tolerance: float, max_nodes: int
) -> tuple[float, int, bool, IntArray]:
    """Depth-first branch and bound over the core, most promising option first.

    Args:
        core: From :func:`~fedroster.optimization.assignment.core.core_of`, at least one client.
        functions: From :func:`core_functions`.
        floor: Value to beat.
        tolerance: A branch must promise more than ``floor + tolerance``.
        max_nodes: Nodes before it gives up.

    Returns:
        ``(value, nodes, done, pick)``: the best value found, or the floor; whether nothing better is left; and the
        option of each core client or -1, meaningful where the floor was beaten.
    """
    share, below, at = core.share, functions.below, functions.at
    num_core = core.client.size
    # By depth: promising options in order of falling bound (-1 leaves the client out), their bounds, what the
    # knapsacks of the clients below are worth then, their number, the next one to try, the option on the path, the
    # room before it, value collected above, and what the knapsacks from here on are worth.
    children = np.empty(core.link.size + num_core, np.int64)
    child_bound = np.empty(core.link.size + num_core)
    child_sum = np.empty(core.link.size + num_core)
    num_children = np.zeros(num_core, np.int64)
    pointer = np.zeros(num_core, np.int64)
    picked = np.empty(num_core, np.int64)
    best_pick = np.empty(num_core, np.int64)
    before = np.zeros(num_core)
    reached = np.zeros(num_core + 1)
    sums = np.zeros(num_core + 1)
    rest = np.zeros(num_core + 1)
    room = core.room.copy()
    for k in range(num_core - 1, -1, -1):
        rest[k] = rest[k + 1] + core.price[k]
        best_pick[k] = picked[k] = -1
    for m in range(room.size):
        sums[0] += functions.profit[functions.stop[functions.top[m]] - 1]
    k = 0
    nodes = 0
    entering = True
    while k >= 0:
        if entering:
            entering = False
            after = sums[k]
            for i in range(core.first[k], core.first[k + 1]):
                if at[i] != below[i]:
                    left = room[core.server[i]]
                    after += _worth(functions, below[i], left) - _worth(functions, at[i], left)
            start = core.first[k] + k
            count = 0
            promise = reached[k] + rest[k + 1]
            for i in range(core.first[k], core.first[k + 1] + 1):
                nodes += 1
                total = after
                option = -1
                bound = promise + total
                if i < core.first[k + 1]:
                    left = room[core.server[i]]
                    if share[i] > left:
                        continue
                    total += _worth(functions, below[i], left - share[i]) - _worth(functions, below[i], left)
                    bound = promise + core.value[i] + total
                    option = i
                elif not core.can_skip[k]:
                    continue
                if bound <= floor + tolerance:
                    continue
                place = start + count
                while place > start and child_bound[place - 1] < bound:
                    child_bound[place] = child_bound[place - 1]
                    child_sum[place] = child_sum[place - 1]
                    children[place] = children[place - 1]
                    place -= 1
                child_bound[place] = bound
                child_sum[place] = total
                children[place] = option
                count += 1
            num_children[k] = count
            pointer[k] = 0
            picked[k] = -1
        elif picked[k] >= 0:
            room[core.server[picked[k]]] = before[k]
            picked[k] = -1
        if nodes >= max_nodes:
            return floor, nodes, False, best_pick
        place = core.first[k] + k + pointer[k]
        if pointer[k] >= num_children[k] or child_bound[place] <= floor + tolerance:
            k -= 1
            continue
        pointer[k] += 1
        i = children[place]
        total = reached[k]
        if i >= 0:
            before[k] = room[core.server[i]]
            room[core.server[i]] -= share[i]
            picked[k] = i
            total += core.value[i]
        if k == num_core - 1:
            if total > floor + tolerance:
                floor = total
                for q in range(num_core):
                    best_pick[q] = picked[q]
            continue
        sums[k + 1] = child_sum[place]
        k += 1
        reached[k] = total
        entering = True
    return floor, nodes, True, best_pick
