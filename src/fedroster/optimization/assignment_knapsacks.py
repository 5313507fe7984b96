r"""Exact search of the assignment problem P2 (paper B, Eq. 10) by client prices, where a budget pays for few clients.

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

from typing import Any

import numpy as np

from fedroster.core.compiled import njit

# Points of a step function, at most; beyond, they are joined within cells of a budget.
MOST_POINTS = 512
JOINED_CELLS = 256
# A room is read as larger by this share of the budget: the same shares in another order may sum to a little more.
ROOM_SLACK = 1e-9


@njit(cache=True)
def profit_at(used: Any, profit: Any, start: int, stop: int, room: float) -> float:
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
def add_item(used: Any, profit: Any, start: int, stop: int, share: float, gain: float, end: int) -> int:
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
def grown(array: Any, size: int) -> Any:
    """The array, or a copy with room for ``size`` entries."""
    if array.size >= size:
        return array
    larger = np.empty(2 * size)
    larger[: array.size] = array
    return larger


@njit(cache=True)
def best_joined(used: Any, profit: Any, first: int, last: int, other: int, end: int, room: float) -> float:
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
def lists_twice(first: Any, server: Any, num_servers: int) -> bool:
    """Whether some client lists a server twice."""
    last = np.full(num_servers, -1, np.int64)
    for n in range(first.size - 1):
        for j in range(first[n], first[n + 1]):
            if last[server[j]] == n:
                return True
            last[server[j]] = n
    return False


@njit(cache=True)
def fix_links(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    server_links: Any,
    client_price: Any,
    floor: float,
) -> tuple[float, Any, Any]:
    """Bound by the client prices, and what it rules out; see the module.

    Args:
        first: Where each client's links start, shape (clients + 1,); no client lists a server twice.
        value: Value of each link, shape (links,), > 0.
        share: Cost over budget of each link, shape (links,), in [0, 1].
        server: Server of each link, shape (links,).
        owner: Client of each link, shape (links,).
        server_first: Where each server's links start in ``server_links``, shape (servers + 1,).
        server_links: Links by server, shape (links,).
        client_price: Prices u, shape (clients,), >= 0.
        floor: Only decisions worth more are of interest.

    Returns:
        ``(D, keep, skip)``: the bound; whether a decision above the floor may use each link; and whether it may leave
        each client out.
    """
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
def core_of(first: Any, value: Any, keep: Any, skip: Any, client_price: Any) -> tuple[Any, Any, Any, bool]:
    """The clients that a better decision may use, by falling price, and their links.

    Returns:
        ``(client, core_first, core_link, possible)``; ``possible`` is false where a client can neither be used nor be
        left out, so that there is no better decision.
    """
    num_clients = first.size - 1
    client = np.empty(num_clients, np.int64)
    key = np.empty(num_clients)
    count = 0
    links = 0
    for n in range(num_clients):
        size = 0
        for j in range(first[n], first[n + 1]):
            size += keep[j]
        if size > 0:
            client[count] = n
            key[count] = -client_price[n]
            count += 1
            links += size
        elif not skip[n]:
            return client[:0], np.zeros(1, np.int64), client[:0], False
    client = client[:count][np.argsort(key[:count], kind="mergesort")]
    core_first = np.zeros(count + 1, np.int64)
    core_link = np.empty(links, np.int64)
    end = 0
    for k in range(count):
        for j in range(first[client[k]], first[client[k] + 1]):
            if keep[j]:
                core_link[end] = j
                end += 1
        core_first[k + 1] = end
    return client, core_first, core_link, True


@njit(cache=True)
def core_functions(
    client: Any, core_first: Any, core_link: Any, value: Any, share: Any, server: Any, client_price: Any, servers: int
) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
    """Step functions of each server's knapsack over the core's clients from each one on.

    Returns:
        ``(used, profit, function_first, function_stop, below, at, top)``: the points of all functions; where each
        starts and stops; for each option of the core the function of its server without and with its client; and each
        server's function of the whole core.
    """
    num_options = core_link.size
    # Function 0 is that of no client.
    used = np.zeros(4 * MOST_POINTS)
    profit = np.zeros(4 * MOST_POINTS)
    function_first = np.zeros(num_options + 1, np.int64)
    function_stop = np.ones(num_options + 1, np.int64)
    below = np.empty(num_options, np.int64)
    at = np.empty(num_options, np.int64)
    top = np.zeros(servers, np.int64)
    count = 1
    end = 1
    for k in range(client.size - 1, -1, -1):
        for i in range(core_first[k], core_first[k + 1]):
            j = core_link[i]
            m = server[j]
            below[i] = top[m]
            gain = value[j] - client_price[client[k]]
            if gain > 0.0:
                start, stop = function_first[top[m]], function_stop[top[m]]
                need = end + 2 * (stop - start)
                used, profit = grown(used, need), grown(profit, need)
                function_first[count] = end
                end = add_item(used, profit, start, stop, share[j], gain, end)
                function_stop[count] = end
                top[m] = count
                count += 1
            at[i] = top[m]
    return used, profit, function_first, function_stop, below, at, top


@njit(cache=True)
def search_by_prices(
    client: Any,
    core_first: Any,
    core_link: Any,
    value: Any,
    share: Any,
    server: Any,
    client_price: Any,
    skip: Any,
    functions: Any,
    floor: float,
    tolerance: float,
    max_nodes: int,
    room: Any,
    state: Any,
    best_pick: Any,
) -> tuple[float, int, bool]:
    """Depth-first branch and bound over the core, most promising option first; resumable.

    Args:
        client: The core's clients, by falling price, shape (core,).
        core_first: Where each one's options start, shape (core + 1,).
        core_link: Link of each option.
        value: Value of each link.
        share: Cost over budget of each link.
        server: Server of each link.
        client_price: Prices u of all clients.
        skip: Whether each of all clients may be left out.
        functions: From :func:`core_functions`.
        floor: Value to beat.
        tolerance: A branch must promise more than ``floor + tolerance``.
        max_nodes: Nodes before the search pauses.
        room: What each server has left, kept between calls; all 1 at first.
        state: From :func:`price_search_state`, kept between calls.
        best_pick: Best link of each core client or -1, untouched when nothing beats the floor.

    Returns:
        ``(floor, nodes, done)``, the floor being the best value found.
    """
    used, profit, function_first, function_stop, below, at, top = functions
    depth, child, child_bound, child_sum, num_children, pointer, picked, before, reached, sums = state
    num_core = client.size
    rest = np.zeros(num_core + 1)
    for k in range(num_core - 1, -1, -1):
        rest[k] = rest[k + 1] + client_price[client[k]]
    k = depth[0]
    nodes = 0
    entering = k < 0
    if entering:
        k = 0
        sums[0] = 0.0
        for m in range(room.size):
            sums[0] += profit[function_stop[top[m]] - 1]
        if num_core == 0:
            depth[0] = -2
            return floor, 0, True
    while k >= 0:
        if entering:
            entering = False
            after = sums[k]
            for i in range(core_first[k], core_first[k + 1]):
                if at[i] != below[i]:
                    left = room[server[core_link[i]]]
                    after += profit_at(used, profit, function_first[below[i]], function_stop[below[i]], left)
                    after -= profit_at(used, profit, function_first[at[i]], function_stop[at[i]], left)
            start = core_first[k] + k
            count = 0
            promise = reached[k] + rest[k + 1]
            for i in range(core_first[k], core_first[k + 1] + 1):
                nodes += 1
                total = after
                if i < core_first[k + 1]:
                    j = core_link[i]
                    left = room[server[j]]
                    if share[j] > left:
                        continue
                    lower, upper = function_first[below[i]], function_stop[below[i]]
                    total += profit_at(used, profit, lower, upper, left - share[j])
                    total -= profit_at(used, profit, lower, upper, left)
                    bound = promise + value[j] + total
                elif skip[client[k]]:
                    j = -1
                    bound = promise + total
                else:
                    continue
                if bound <= floor + tolerance:
                    continue
                place = start + count
                while place > start and child_bound[place - 1] < bound:
                    child_bound[place] = child_bound[place - 1]
                    child_sum[place] = child_sum[place - 1]
                    child[place] = child[place - 1]
                    place -= 1
                child_bound[place] = bound
                child_sum[place] = total
                child[place] = j
                count += 1
            num_children[k] = count
            pointer[k] = 0
            picked[k] = -1
        elif picked[k] >= 0:
            room[server[picked[k]]] = before[k]
            picked[k] = -1
        if nodes >= max_nodes:
            depth[0] = k
            return floor, nodes, False
        place = core_first[k] + k + pointer[k]
        if pointer[k] >= num_children[k] or child_bound[place] <= floor + tolerance:
            k -= 1
            continue
        pointer[k] += 1
        j = child[place]
        total = reached[k]
        if j >= 0:
            before[k] = room[server[j]]
            room[server[j]] -= share[j]
            picked[k] = j
            total += value[j]
        if k == num_core - 1:
            if total > floor + tolerance:
                floor = total
                best_pick[:] = picked
            continue
        sums[k + 1] = child_sum[place]
        k += 1
        reached[k] = total
        entering = True
    depth[0] = -2
    return floor, nodes, True


@njit(cache=True)
def price_search_state(core_first: Any) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any, Any]:
    """Where :func:`search_by_prices` starts: at the root, nothing picked.

    Returns:
        ``(depth, child, child_bound, child_sum, num_children, pointer, picked, before, reached, sums)``: the current
        depth (one entry, -1 before the root is expanded); each core client's promising links in order of falling bound,
        -1 for leaving it out; their bounds, what the knapsacks of the clients below are worth then, and their number;
        the next one to try; the link on the path; the room before it; value collected above a depth; and what the
        knapsacks from a depth on are worth.
    """
    num_core = core_first.size - 1
    size = core_first[num_core] + num_core
    return (
        np.full(1, -1, np.int64),
        np.empty(size, np.int64),
        np.empty(size),
        np.empty(size),
        np.zeros(num_core, np.int64),
        np.zeros(num_core, np.int64),
        np.full(num_core, -1, np.int64),
        np.zeros(num_core),
        np.zeros(num_core + 1),
        np.zeros(num_core + 1),
    )
