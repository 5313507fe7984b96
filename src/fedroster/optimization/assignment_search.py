r"""Search kernels of the assignment problem P2 (paper B, Eq. 10): greedy start, exact core search, neighbourhoods.

The exact search keeps, by reduced costs, only the *core*: the clients whose choice can still matter. With prices
:math:`\lambda` of the budgets and :math:`u_n = \max(0, \max_m (v_{nm} - \lambda_m a_{nm}))` of the clients, it goes
depth first through the clients in order of falling :math:`u_n` and prunes by the Lagrangian decomposition bound

.. math::
    \sum_{\text{decided}} v + \sum_{n \ge k} u_n + \sum_m F_{km}(r_m),

where :math:`F_{km}(r)` is the best profit :math:`\sum (v_{nm} - u_n)` of the undecided clients :math:`n \ge k` in a
single knapsack of the room r that server m has left. F is tabulated once, on a grid of the room, costs rounded down,
so the bound holds and a node costs one table look-up a server. It is far tighter than the linear relaxation where a
budget holds a handful of clients, which is the paper's case.

Large instances are improved by neighbourhoods (free the clients of a few servers, solve that small problem exactly), by
refilling servers one after the other, and, where values are nearly equal, by annealing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedroster.core.compiled import njit

# Cells of the grid of each server's room, on which the knapsack bounds are tabulated.
CELLS = 128
# The same when a single server is filled.
FINE_CELLS = 512
# Grid costs are rounded down and rooms up by this share of a cell, so rounding never cuts off a decision.
CELL_SLACK = 1e-6
# Clients in the core of one neighbourhood, and items in that of one server's knapsack.
NEIGHBOURHOOD_CLIENTS = 96
KNAPSACK_ITEMS = 384


# So many links looked at cost as much as a search node, where everybody is in reach of many servers.
LOOKS_PER_NODE = 64


@njit(cache=True)
def compact(
    value: Any, cost: Any, client: Any, server: Any, limit: Any, visit: Any, client_rank: Any, server_rank: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Client-major copy of the links that a decision may use: value above 0 and cost within the budget.

    Rows are taken in the order of ``visit`` and clients and servers are renumbered by their ranks, so that random
    permutations here make every later tie-break random. Clients without a usable link vanish.

    Returns:
        ``(first, value, share, server, row)``; ``share`` is the cost over the limit of its budget, 0 for free links.
    """
    count = np.zeros(client_rank.size + 1, np.int64)
    total = 0
    for j in range(value.size):
        if value[j] > 0.0 and cost[j] <= limit[server[j]]:
            count[client_rank[client[j]] + 1] += 1
            total += 1
    num_clients = 0
    for n in range(client_rank.size):
        if count[n + 1] > 0:
            num_clients += 1
    first = np.empty(num_clients + 1, np.int64)
    first[0] = 0
    filled = 0
    for n in range(client_rank.size):
        size = count[n + 1]
        count[n + 1] = first[filled]
        if size > 0:
            first[filled + 1] = first[filled] + size
            filled += 1
    new_value = np.empty(total)
    share = np.empty(total)
    new_server = np.empty(total, np.int64)
    row = np.empty(total, np.int64)
    for i in range(value.size):
        j = visit[i]
        bound = limit[server[j]]
        if value[j] > 0.0 and cost[j] <= bound:
            place = count[client_rank[client[j]] + 1]
            count[client_rank[client[j]] + 1] += 1
            new_value[place] = value[j]
            share[place] = cost[j] / bound if bound > 0.0 else 0.0
            new_server[place] = server_rank[server[j]]
            row[place] = j
    return first, new_value, share, new_server, row


@njit(cache=True)
def group_by_server(first: Any, server: Any, num_servers: int) -> tuple[Any, Any, Any]:
    """Server-major index: ``(server_first, server_links, owner)``, owner being the client of each link."""
    server_first = np.zeros(num_servers + 1, np.int64)
    for j in range(server.size):
        server_first[server[j] + 1] += 1
    for m in range(num_servers):
        server_first[m + 1] += server_first[m]
    place = server_first[:-1].copy()
    server_links = np.empty(server.size, np.int64)
    owner = np.empty(server.size, np.int64)
    for n in range(first.size - 1):
        for j in range(first[n], first[n + 1]):
            owner[j] = n
            server_links[place[server[j]]] = j
            place[server[j]] += 1
    return server_first, server_links, owner


@njit(cache=True)
def value_step(value: Any) -> Any:
    """The least value if every value is a whole multiple of it (0/1 participation, counting), else 0."""
    step = value.min()
    for j in range(value.size):
        multiple = value[j] / step
        if multiple > 1e6 or abs(multiple - np.rint(multiple)) > 1e-12 * multiple:
            return 0.0
    return step


@njit(cache=True)
def greedy_fill(first: Any, value: Any, share: Any, server: Any, price: Any) -> tuple[Any, Any]:
    """A feasible start: links in order of value over priced cost, the clients' best links before all others.

    Returns:
        ``(chosen, used)``: the link of each client or -1, and the share used of each budget.
    """
    num_clients = first.size - 1
    chosen = np.full(num_clients, -1, np.int64)
    used = np.zeros(price.size)
    owner = np.empty(value.size, np.int64)
    candidate = np.empty(value.size, np.int64)
    key = np.empty(value.size)
    count = 0
    for n in range(num_clients):
        best = 0.0
        link = -1
        for j in range(first[n], first[n + 1]):
            owner[j] = n
            reduced = value[j] - price[server[j]] * share[j]
            if reduced > best:
                best = reduced
                link = j
        if link >= 0:
            candidate[count] = link
            key[count] = -value[link] / (price[server[link]] * share[link] + 1e-300)
            count += 1
    for position in np.argsort(key[:count], kind="mergesort"):
        j = candidate[position]
        if used[server[j]] + share[j] <= 1.0:
            used[server[j]] += share[j]
            chosen[owner[j]] = j
    count = 0
    for j in range(value.size):
        if chosen[owner[j]] < 0 and used[server[j]] + share[j] <= 1.0:
            candidate[count] = j
            # A budget whose price is 0 has room; there the value alone decides.
            key[count] = -value[j] / (price[server[j]] * share[j] + 1e-3 * value[j] + 1e-300)
            count += 1
    for position in np.argsort(key[:count], kind="mergesort"):
        j = candidate[position]
        if chosen[owner[j]] < 0 and used[server[j]] + share[j] <= 1.0:
            used[server[j]] += share[j]
            chosen[owner[j]] = j
    return chosen, used


@njit(cache=True)
def build_core(
    links: Any,
    num_links: int,
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    price: Any,
    local_server: Any,
    room: Any,
    floor: float,
    chosen: Any,
    max_clients: int,
    slot: Any,
) -> tuple[int, float, float, Any, Any, Any, Any, Any, Any, Any]:
    """Reduced-cost fixing: the clients whose choice can still lead above ``floor``, and what is fixed for the others.

    Args:
        links: The links of the problem (first ``num_links`` entries).
        num_links: Number of links in the problem.
        value: Value of each link of the instance.
        share: Cost over budget of each link.
        server: Server of each link.
        owner: Client of each link.
        price: Price of each whole budget.
        local_server: Number of each server within the problem, -1 outside it.
        room: Room of each server of the problem; what the fixed clients use is taken off.
        floor: Only values above this are of interest.
        chosen: Current link of each client; clients left out for size keep it.
        max_clients: Largest core; a core cut to this size makes the search heuristic.
        slot: Scratch, one entry a client, all -1 on entry and on return.

    Returns:
        ``(status, bound, base, core_first, core_link, core_price, can_skip, fixed_link, core_client, dropped)``; status
        is 0 when nothing above the floor exists, 1 for an exact core, 2 for one cut to size. ``dropped`` lists the
        clients that no decision above the floor uses.
    """
    clients = np.empty(num_links, np.int64)
    num_clients = 0
    for i in range(num_links):
        n = owner[links[i]]
        if slot[n] < 0:
            slot[n] = num_clients
            clients[num_clients] = n
            num_clients += 1
    best = np.zeros(num_clients)
    for i in range(num_links):
        j = links[i]
        k = slot[owner[j]]
        best[k] = max(best[k], value[j] - price[server[j]] * share[j])
    bound = 0.0
    for m in range(local_server.size):
        if local_server[m] >= 0:
            bound += price[m]
    for k in range(num_clients):
        bound += best[k]
    slack = bound - floor
    # Options that survive, and by how little the client's second choice falls behind its first.
    size = np.zeros(num_clients, np.int64)
    lead = np.full(num_clients, np.inf)
    top = np.full(num_clients, -1, np.int64)
    for i in range(num_links):
        j = links[i]
        k = slot[owner[j]]
        loss = best[k] - (value[j] - price[server[j]] * share[j])
        if loss < slack:
            size[k] += 1
            if top[k] < 0 and loss <= 0.0:
                top[k] = j
            else:
                lead[k] = min(lead[k], loss)
    status = 1
    free = np.zeros(num_clients, np.bool_)
    num_free = 0
    for k in range(num_clients):
        if best[k] < slack and top[k] >= 0:
            lead[k] = min(lead[k], best[k])
        free[k] = size[k] > 1 or (size[k] == 1 and best[k] < slack)
        if free[k]:
            num_free += 1
    if num_free > max_clients:
        status = 2
        order = np.argsort(np.where(free, lead, np.inf), kind="mergesort")
        for i in range(max_clients, num_clients):
            free[order[i]] = False
        num_free = max_clients
    fixed_link = np.full(num_clients, -1, np.int64)
    dropped = np.full(num_clients, -1, np.int64)
    num_fixed = 0
    num_dropped = 0
    base = 0.0
    tiny = 1e-13 * room
    if slack <= 0.0:
        status = 0
    for k in range(num_clients):
        if status == 0 or free[k]:
            continue
        n = clients[k]
        link = -1
        if status == 2:
            link = chosen[n]
            if link >= 0 and local_server[server[link]] < 0:
                link = -1
        elif best[k] >= slack:
            link = top[k]
            if link < 0:
                status = 0
                break
        if link >= 0:
            m = local_server[server[link]]
            room[m] -= share[link]
            base += value[link]
            fixed_link[num_fixed] = link
            num_fixed += 1
        else:
            dropped[num_dropped] = n
            num_dropped += 1
    for m in range(room.size):
        if room[m] < 0.0:
            # The clients that every better decision must use do not fit: there is none.
            if room[m] < -tiny[m]:
                status = 0
            room[m] = 0.0
    # Deep decisions should matter least: clients in order of falling price.
    key = np.empty(num_free)
    core = np.empty(num_free, np.int64)
    count = 0
    for k in range(num_clients):
        if free[k]:
            key[count] = -best[k]
            core[count] = k
            count += 1
    order = np.argsort(key, kind="mergesort")
    total = 0
    place = np.full(num_clients, -1, np.int64)
    core_first = np.zeros(num_free + 1, np.int64)
    core_price = np.empty(num_free)
    core_client = np.empty(num_free, np.int64)
    can_skip = np.empty(num_free, np.bool_)
    for i in range(num_free):
        k = core[order[i]]
        place[k] = i
        core_price[i] = best[k]
        core_client[i] = clients[k]
        can_skip[i] = best[k] < slack or status == 2
        total += size[k]
        core_first[i + 1] = total
    core_link = np.empty(total, np.int64)
    filled = np.zeros(num_free, np.int64)
    for i in range(num_links):
        j = links[i]
        k = slot[owner[j]]
        at = place[k]
        reduced = value[j] - price[server[j]] * share[j]
        if at < 0 or best[k] - reduced >= slack:
            continue
        # Insertion sort: a client's best option is tried first.
        i_end = core_first[at] + filled[at]
        while i_end > core_first[at]:
            before = core_link[i_end - 1]
            if value[before] - price[server[before]] * share[before] >= reduced:
                break
            core_link[i_end] = before
            i_end -= 1
        core_link[i_end] = j
        filled[at] += 1
    for k in range(num_clients):
        slot[clients[k]] = -1
    return (
        status,
        bound,
        base,
        core_first,
        core_link,
        core_price,
        can_skip,
        fixed_link[:num_fixed],
        core_client,
        dropped[:num_dropped],
    )


@njit(cache=True)
def tabulate_knapsacks(
    core_first: Any, option_server: Any, option_value: Any, option_cells: Any, core_price: Any, table: Any
) -> None:
    """Fill ``table[k, m, r]``: best profit of the core's clients k, k+1, ... in r cells of server m's room."""
    num_core = core_first.size - 1
    num_servers = table.shape[1]
    cells = table.shape[2]
    for m in range(num_servers):
        for r in range(cells):
            table[num_core, m, r] = 0.0
    for k in range(num_core - 1, -1, -1):
        for m in range(num_servers):
            for r in range(cells):
                table[k, m, r] = table[k + 1, m, r]
        for j in range(core_first[k], core_first[k + 1]):
            profit = option_value[j] - core_price[k]
            if profit <= 0.0:
                continue
            here = table[k, option_server[j]]
            after = table[k + 1, option_server[j]]
            taken = option_cells[j]
            for r in range(cells - taken):
                here[r + taken] = max(here[r + taken], after[r] + profit)


@njit(cache=True)
def search_state(core_first: Any, num_servers: int) -> tuple[Any, Any, Any, Any, Any, Any, Any, Any, Any]:
    """Where :func:`search_core` starts: at the root, nothing picked.

    Returns:
        ``(depth, children, child_bound, num_children, pointer, picked, used, used_before, reached)``: the current
        depth (one entry, -1 before the root is expanded); each core client's promising options in order of falling
        bound, -1 for leaving it out; their bounds and number; the next one to try; the option on the path; used room of
        each server; used room before the option on the path, to undo without rounding; value collected above a depth.
    """
    num_core = core_first.size - 1
    size = core_first[num_core] + num_core
    return (
        np.full(1, -1, np.int64),
        np.empty(size, np.int64),
        np.empty(size),
        np.zeros(num_core, np.int64),
        np.zeros(num_core, np.int64),
        np.full(num_core, -1, np.int64),
        np.zeros(num_servers),
        np.zeros(num_core),
        np.zeros(num_core + 1),
    )


@njit(cache=True)
def search_core(
    core_first: Any,
    option_server: Any,
    option_value: Any,
    option_share: Any,
    core_price: Any,
    can_skip: Any,
    room: Any,
    table: Any,
    floor: float,
    tolerance: float,
    enough: float,
    max_nodes: int,
    state: Any,
    best_pick: Any,
) -> tuple[float, int, bool]:
    """Depth-first branch and bound over the core, most promising option first; resumable.

    Args:
        core_first: Where each core client's options start, shape (core + 1,).
        option_server: Server of each option, numbered within the problem.
        option_value: Value of each option.
        option_share: Share of its budget that each option uses.
        core_price: Price u of each core client.
        can_skip: Whether the client may be left out.
        room: Room of each server.
        table: Knapsack bounds from :func:`tabulate_knapsacks`.
        floor: Value to beat.
        tolerance: A branch must promise more than ``floor + tolerance``.
        enough: The search ends when it has found this much.
        max_nodes: Nodes before the search pauses.
        state: From :func:`search_state`, kept between calls.
        best_pick: Best options found, untouched when nothing beats the floor.

    Returns:
        ``(floor, nodes, done)``, the floor being the best value found.
    """
    depth, children, child_bound, num_children, pointer, picked, used, used_before, reached = state
    num_core = core_first.size - 1
    num_servers = room.size
    top_cell = table.shape[2] - 1
    scale = np.zeros(num_servers)
    cell = np.zeros(num_servers, np.int64)
    for m in range(num_servers):
        if room[m] > 0.0:
            scale[m] = top_cell / room[m]
        cell[m] = min(top_cell, int((room[m] - used[m]) * scale[m] + CELL_SLACK))
    rest = np.zeros(num_core + 1)
    for k in range(num_core - 1, -1, -1):
        rest[k] = rest[k + 1] + core_price[k]
    k = depth[0]
    nodes = 0
    entering = k < 0
    if entering:
        k = 0
    while k >= 0:
        if entering:
            entering = False
            # Bounds of all options; the promising ones sorted by insertion.
            start = core_first[k] + k
            count = 0
            promise = reached[k] + rest[k + 1]
            for m in range(num_servers):
                promise += table[k + 1, m, cell[m]]
            for j in range(core_first[k], core_first[k + 1] + 1):
                nodes += 1
                if j < core_first[k + 1]:
                    m = option_server[j]
                    filled = used[m] + option_share[j]
                    if filled > room[m]:
                        continue
                    after = min(top_cell, int((room[m] - filled) * scale[m] + CELL_SLACK))
                    bound = promise + option_value[j] + table[k + 1, m, after] - table[k + 1, m, cell[m]]
                    option = j
                elif can_skip[k]:
                    bound = promise
                    option = -1
                else:
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
            m = option_server[picked[k]]
            used[m] = used_before[k]
            cell[m] = min(top_cell, int((room[m] - used[m]) * scale[m] + CELL_SLACK))
            picked[k] = -1
        if nodes >= max_nodes:
            depth[0] = k
            return floor, nodes, False
        at = core_first[k] + k + pointer[k]
        if pointer[k] >= num_children[k] or child_bound[at] <= floor + tolerance:
            k -= 1
            continue
        pointer[k] += 1
        j = children[at]
        total = reached[k]
        if j >= 0:
            m = option_server[j]
            used_before[k] = used[m]
            used[m] += option_share[j]
            cell[m] = min(top_cell, int((room[m] - used[m]) * scale[m] + CELL_SLACK))
            picked[k] = j
            total += option_value[j]
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
    depth[0] = -2
    return floor, nodes, True


@njit(cache=True)
def option_arrays(
    core_link: Any, value: Any, share: Any, server: Any, local_server: Any, room: Any, top_cell: int
) -> tuple[Any, Any, Any, Any]:
    """``(server, value, share, cells)`` of the core's options; cells are costs on the grid, rounded down."""
    size = core_link.size
    option_server = np.empty(size, np.int64)
    option_value = np.empty(size)
    option_share = np.empty(size)
    option_cells = np.empty(size, np.int64)
    for i in range(size):
        j = core_link[i]
        m = local_server[server[j]]
        option_server[i] = m
        option_value[i] = value[j]
        option_share[i] = share[j]
        if share[j] > room[m]:
            # Never fits: beyond the grid.
            option_cells[i] = top_cell + 1
        elif room[m] > 0.0:
            option_cells[i] = max(0, int(share[j] * (top_cell / room[m]) - CELL_SLACK))
        else:
            option_cells[i] = 0
    return option_server, option_value, option_share, option_cells


@njit(cache=True)
def apply_core(
    core_client: Any, core_link: Any, best_pick: Any, fixed_link: Any, dropped: Any, owner: Any, chosen: Any
) -> None:
    """Write a core's best decision, and what was fixed around it, into ``chosen``."""
    for i in range(dropped.size):
        chosen[dropped[i]] = -1
    for i in range(fixed_link.size):
        chosen[owner[fixed_link[i]]] = fixed_link[i]
    for i in range(core_client.size):
        chosen[core_client[i]] = core_link[best_pick[i]] if best_pick[i] >= 0 else -1


@njit(cache=True)
def draw(random: Any, size: int) -> int:
    """A number below ``size`` from the xorshift state ``random`` (one uint64)."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return int((x >> np.uint64(11)) % np.uint64(size))


@njit(cache=True)
def draw_unit(random: Any) -> float:
    """A number in (0, 1) from the same state."""
    return (draw(random, 1 << 30) + 0.5) / (1 << 30)


@njit(cache=True)
def join_group(
    first: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    server_links: Any,
    group: Any,
    rank: Any,
    random: Any,
) -> int:
    """Fill ``group`` up from its first server by random servers that share clients with its members.

    ``rank`` numbers the members and is -1 elsewhere. Returns the size, less than asked for where servers stand alone.
    """
    size = 1
    rank[group[0]] = 0
    attempt = 0
    while size < group.size and attempt < 8 * group.size:
        attempt += 1
        anchor = group[draw(random, size)]
        degree = server_first[anchor + 1] - server_first[anchor]
        if degree == 0:
            break
        n = owner[server_links[server_first[anchor] + draw(random, degree)]]
        other = server[first[n] + draw(random, first[n + 1] - first[n])]
        if rank[other] < 0:
            rank[other] = size
            group[size] = other
            size += 1
    return size


@njit(cache=True)
def improve_neighbourhoods(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    server_links: Any,
    price: Any,
    chosen: Any,
    used: Any,
    total: float,
    enough: float,
    tolerance: float,
    width: int,
    rounds: int,
    start: int,
    max_nodes: int,
    random: Any,
    slot: Any,
    local_server: Any,
    table: Any,
) -> tuple[float, int, int]:
    """Free the clients of ``width`` servers, solve that problem, keep the better decision; ``rounds`` times.

    With ``width`` 1 the servers take turns from ``start``; otherwise a random server is joined by servers that share
    clients with it. Servers outside the neighbourhood keep their clients.

    Returns:
        ``(total, improvements, nodes)``.
    """
    num_servers = price.size
    improvements = 0
    nodes = 0
    group = np.empty(width, np.int64)
    links = np.empty(server.size, np.int64)
    for turn in range(rounds):
        if total >= enough:
            break
        group[0] = (start + turn) % num_servers if width == 1 else draw(random, num_servers)
        size = join_group(first, server, owner, server_first, server_links, group, local_server, random)
        count = 0
        current = 0.0
        for i in range(size):
            for p in range(server_first[group[i]], server_first[group[i] + 1]):
                j = server_links[p]
                held = chosen[owner[j]]
                if held >= 0 and local_server[server[held]] < 0:
                    continue
                links[count] = j
                count += 1
                if held == j:
                    current += value[j]
        room = np.ones(size)
        floor = current + max(tolerance, 1e-12 * current)
        status, _, base, core_first, core_link, core_price, can_skip, fixed_link, core_client, dropped = build_core(
            links,
            count,
            value,
            share,
            server,
            owner,
            price,
            local_server,
            room,
            floor,
            chosen,
            NEIGHBOURHOOD_CLIENTS,
            slot,
        )
        if status > 0:
            num_core = core_client.size
            best_pick = np.full(num_core, -1, np.int64)
            found = floor - base
            if num_core == 0:
                if base > floor:
                    found = base
                    floor = base - 1.0
            else:
                view = table[: num_core + 1, :size, :]
                option_server, option_value, option_share, option_cells = option_arrays(
                    core_link, value, share, server, local_server, room, table.shape[2] - 1
                )
                tabulate_knapsacks(core_first, option_server, option_value, option_cells, core_price, view)
                found, spent, _ = search_core(
                    core_first,
                    option_server,
                    option_value,
                    option_share,
                    core_price,
                    can_skip,
                    room,
                    view,
                    floor - base,
                    0.0,
                    np.inf,
                    max_nodes,
                    search_state(core_first, size),
                    best_pick,
                )
                nodes += spent
            if found > floor - base:
                apply_core(core_client, core_link, best_pick, fixed_link, dropped, owner, chosen)
                gained = 0.0
                for i in range(size):
                    m = group[i]
                    used[m] = 0.0
                    for p in range(server_first[m], server_first[m + 1]):
                        j = server_links[p]
                        if chosen[owner[j]] == j:
                            used[m] += share[j]
                            gained += value[j]
                total += gained - current
                improvements += 1
        nodes += 1
        for i in range(size):
            local_server[group[i]] = -1
    return total, improvements, nodes


@njit(cache=True)
def fill_server(
    share: Any,
    profit: Any,
    count: int,
    price: float,
    half: float,
    spare: float,
    bounding: bool,
    max_nodes: int,
    table: Any,
    picks: Any,
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
        bounding: Whether the bound matters: the next window is then as wide as the priced bound was off, which makes
            the search exact. Otherwise it keeps the search short.
        max_nodes: Search nodes.
        table: Scratch of :func:`tabulate_knapsacks` for one server.
        picks: Set to whether each item is chosen.

    Returns:
        ``(profit of the choice, bound on any choice, half to use next time, nodes)``.
    """
    upper = price
    for p in range(count):
        picks[p] = False
        upper += max(0.0, profit[p] - price * share[p])
    largest = table.shape[0] - 1
    room = 1.0
    num_core = 0
    whole = False
    for _ in range(16):
        room = 1.0
        num_core = 0
        for p in range(count):
            reduced = profit[p] - price * share[p]
            if reduced > half:
                room -= share[p]
            elif reduced >= -half:
                num_core += 1
        if room < 0.0:
            half *= 1.4
        elif num_core > largest and not whole:
            half *= 0.7
        else:
            whole = num_core <= largest
            break
        # Once room ran out, the window only grows, and a core cut to size ends the search for it.
        whole = whole or room < 0.0
    # Counted again: the last widening above may have moved the window after its count.
    core = np.empty(count, np.int64)
    key = np.empty(count)
    num_core = 0
    total = 0.0
    room = 1.0
    for p in range(count):
        reduced = profit[p] - price * share[p]
        if reduced > half:
            picks[p] = True
            total += profit[p]
            room -= share[p]
        elif reduced >= -half:
            core[num_core] = p
            key[num_core] = -abs(reduced)
            num_core += 1
    if room < 0.0:
        picks[:count] = False
        return 0.0, upper, half, 0
    priced = upper
    following = half * (0.85 if num_core > 28 else 1.15)
    exact = num_core <= largest
    if num_core == 0:
        if bounding:
            following = max(1.2 * (priced - total), 1e-4 * priced)
        return total, max(total, priced - half), following, 0
    order = np.argsort(key[:num_core], kind="mergesort")
    skip = max(0, num_core - largest)
    num_core -= skip
    option_value = np.empty(num_core)
    option_share = np.empty(num_core)
    option_cells = np.empty(num_core, np.int64)
    top_cell = table.shape[2] - 1
    cells = top_cell / room if room > 0.0 else 0.0
    for k in range(num_core):
        p = core[order[skip + k]]
        option_value[k] = profit[p]
        option_share[k] = share[p]
        fits = share[p] <= room
        option_cells[k] = max(0, int(share[p] * cells - CELL_SLACK)) if fits else top_cell + 1
    core_first = np.arange(num_core + 1)
    no_price = np.zeros(num_core)
    option_server = np.zeros(num_core, np.int64)
    view = table[: num_core + 1]
    tabulate_knapsacks(core_first, option_server, option_value, option_cells, no_price, view)
    best_pick = np.full(num_core, -1, np.int64)
    found, nodes, done = search_core(
        core_first,
        option_server,
        option_value,
        option_share,
        no_price,
        np.ones(num_core, np.bool_),
        np.full(1, room),
        view,
        -1.0,
        0.0,
        upper - total - spare,
        max_nodes,
        search_state(core_first, 1),
        best_pick,
    )
    if exact:
        proved = done and found < priced - total - spare
        upper = min(upper, max(total + (max(found, 0.0) if proved else view[0, 0, top_cell]), priced - half))
    total += max(found, 0.0)
    if bounding:
        following = max(1.2 * (priced - total), 1e-4 * priced)
    for k in range(num_core):
        if best_pick[k] >= 0:
            picks[core[order[skip + k]]] = True
    return total, upper, following, nodes


@njit(cache=True)
def tighten_client_prices(
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    server_links: Any,
    price: Any,
    client_price: Any,
    best_price: Any,
    bound: float,
    target: float,
    step: float,
    rounds: int,
    max_nodes: int,
    most_nodes: int,
    window: Any,
    table: Any,
) -> tuple[float, float, int]:
    r"""Subgradient steps on the decomposition bound, which is tighter than the linear relaxation.

    .. math:: D(u) = \sum_n u_n + \sum_m \max \Bigl\{ \sum_n (v_{nm} - u_n) x_n : \sum_n c_{nm} x_n \le B_m,
              x \in \{0, 1\} \Bigr\} \ge \mathrm{P2}, \qquad u \ge 0

    prices the clients instead of the budgets and leaves whole knapsacks. A client that d servers want pulls its price
    by 1 - d. (A client that lists a server twice counts as two there, which can only raise the bound.)

    Args:
        value: Value of each link.
        share: Cost over budget of each link.
        server: Server of each link.
        owner: Client of each link.
        server_first: Where each server's links start in ``server_links``.
        server_links: Links by server.
        price: Price of each whole budget.
        client_price: Prices u of the clients, moved in place.
        best_price: The prices of the best bound, kept up.
        bound: Best bound so far.
        target: Value that the bound cannot fall below: the incumbent's.
        step: Polyak step factor.
        rounds: Number of steps.
        max_nodes: Search nodes for one knapsack.
        most_nodes: No further step begins after so many nodes in all.
        window: As in :func:`fill_server`, one a server.
        table: Scratch of :func:`fill_server`.

    Returns:
        ``(bound, step, nodes)``.
    """
    num_servers = price.size
    largest = 0
    for m in range(num_servers):
        largest = max(largest, server_first[m + 1] - server_first[m])
    pool = np.empty(largest, np.int64)
    pool_share = np.empty(largest)
    profit = np.empty(largest)
    picks = np.empty(largest, np.bool_)
    pull = np.empty(client_price.size)
    heading = np.zeros(client_price.size)
    nodes = 0
    stale = 0
    for _ in range(rounds):
        if nodes > most_nodes:
            break
        total = 0.0
        for n in range(client_price.size):
            total += client_price[n]
            pull[n] = 1.0
        for m in range(num_servers):
            count = 0
            for p in range(server_first[m], server_first[m + 1]):
                j = server_links[p]
                gain = value[j] - client_price[owner[j]]
                if gain > 0.0:
                    pool[count] = j
                    pool_share[count] = share[j]
                    profit[count] = gain
                    count += 1
            _, upper, window[m], spent = fill_server(
                pool_share, profit, count, price[m], window[m], 1e-5 * price[m], True, max_nodes, table, picks
            )
            nodes += spent + 1
            total += upper
            for p in range(count):
                if picks[p]:
                    pull[owner[pool[p]]] -= 1.0
        if total < bound - 1e-7 * bound:
            bound = total
            best_price[:] = client_price
            stale = 0
        else:
            stale += 1
            if stale >= 5:
                stale = 0
                step *= 0.6
                client_price[:] = best_price
                heading[:] = 0.0
        # Deflect by the last direction where the two oppose, against zigzags.
        against = 0.0
        length = 0.0
        for n in range(client_price.size):
            # At price 0 a client that nobody wants stays there.
            if client_price[n] <= 0.0 and pull[n] > 0.0:
                pull[n] = 0.0
            against += pull[n] * heading[n]
            length += heading[n] * heading[n]
        deflection = max(0.0, -1.5 * against / length) if length > 0.0 else 0.0
        norm = 0.0
        for n in range(client_price.size):
            heading[n] = pull[n] + deflection * heading[n]
            norm += heading[n] * heading[n]
        if norm == 0.0 or total <= target:
            break
        length = step * (total - target) / norm
        for n in range(client_price.size):
            client_price[n] = max(0.0, client_price[n] - length * heading[n])
    return bound, step, nodes


@njit(cache=True)
def refill_servers(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    server_links: Any,
    price: Any,
    client_price: Any,
    trust: float,
    chosen: Any,
    used: Any,
    total: float,
    enough: float,
    width: int,
    rounds: int,
    spare: float,
    max_nodes: int,
    random: Any,
    rank: Any,
    window: Any,
    table: Any,
) -> tuple[float, int, int]:
    """Empty ``width`` servers and fill them one after the other, keep the better decision; ``rounds`` times.

    The server in turn chooses among all clients that are free, each at its value less what it may be worth to the
    servers still to come (its reduced value there, or its price in the decomposition bound): so it fills its budget
    almost to the last bit with clients it may have at little loss, and only the last server has to live with what
    remains. That is what exchanges between two servers cannot do when costs are large beside the room that is left.

    Args:
        first: Where each client's links start.
        value: Value of each link.
        share: Cost over budget of each link.
        server: Server of each link.
        owner: Client of each link.
        server_first: Where each server's links start in ``server_links``.
        server_links: Links by server.
        price: Price of each whole budget.
        client_price: Price of each client, from :func:`tighten_client_prices`.
        trust: Weight of that price against the reduced value, in [0, 1].
        chosen: Link of each client or -1; improved in place.
        used: Share used of each budget; kept in step.
        total: Value of ``chosen``.
        enough: Stop at this value.
        width: Servers emptied at a time.
        rounds: How many times.
        spare: Share of a budget, at its price, that may stay unused to end a search early.
        max_nodes: Search nodes for one server.
        random: State of :func:`draw`.
        rank: Scratch, one entry a server, all -1 on entry and on return.
        window: Reduced values within this are undecided, one a server; adapted to keep the cores small.
        table: Scratch of :func:`tabulate_knapsacks` for one server.

    Returns:
        ``(total, improvements, nodes)``.
    """
    num_servers = price.size
    group = np.empty(width, np.int64)
    before = np.empty(width)
    largest = 0
    for m in range(num_servers):
        largest = max(largest, server_first[m + 1] - server_first[m])
    pool = np.empty(largest, np.int64)
    profit = np.empty(largest)
    pool_share = np.empty(largest)
    picks = np.empty(largest, np.bool_)
    old_clients = np.empty(first.size - 1, np.int64)
    old_links = np.empty(first.size - 1, np.int64)
    improvements = 0
    nodes = 0
    for _ in range(rounds):
        if total >= enough:
            break
        group[0] = draw(random, num_servers)
        size = join_group(first, server, owner, server_first, server_links, group, rank, random)
        num_old = 0
        lost = 0.0
        for i in range(size):
            m = group[i]
            before[i] = used[m]
            used[m] = 0.0
            for p in range(server_first[m], server_first[m + 1]):
                j = server_links[p]
                if chosen[owner[j]] == j:
                    old_clients[num_old] = owner[j]
                    old_links[num_old] = j
                    num_old += 1
                    lost += value[j]
        for i in range(num_old):
            chosen[old_clients[i]] = -1
        gained = 0.0
        for i in range(size):
            m = group[i]
            rank[m] = -1
            count = 0
            looks = 0
            for p in range(server_first[m], server_first[m + 1]):
                j = server_links[p]
                n = owner[j]
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
                if count > 0 and owner[pool[count - 1]] == n:
                    last = pool[count - 1]
                    if profit[count - 1] - price[m] * share[last] >= gain - price[m] * share[j]:
                        continue
                    count -= 1
                pool[count] = j
                pool_share[count] = share[j]
                profit[count] = gain
                count += 1
            _, _, window[m], spent = fill_server(
                pool_share, profit, count, price[m], window[m], spare * price[m], False, max_nodes, table, picks
            )
            nodes += spent + looks // LOOKS_PER_NODE
            used_here = 0.0
            for p in range(count):
                if picks[p]:
                    j = pool[p]
                    chosen[owner[j]] = j
                    used_here += share[j]
                    gained += value[j]
            used[m] = used_here
        nodes += 1
        for i in range(size):
            rank[group[i]] = -1
        if gained > lost + 1e-12 * total:
            total += gained - lost
            improvements += 1
            continue
        for i in range(size):
            m = group[i]
            used[m] = before[i]
            for p in range(server_first[m], server_first[m + 1]):
                j = server_links[p]
                if chosen[owner[j]] == j:
                    chosen[owner[j]] = -1
        for i in range(num_old):
            chosen[old_clients[i]] = old_links[i]
    return total, improvements, nodes


@njit(cache=True)
def _join(server_first: Any, m: int, n: int, member: Any, size: Any, place: Any) -> None:
    """Client n joins the list of those that server m holds."""
    place[n] = server_first[m] + size[m]
    member[place[n]] = n
    size[m] += 1


@njit(cache=True)
def _leave(server_first: Any, m: int, n: int, member: Any, size: Any, place: Any) -> None:
    """Client n leaves that list; its last entry fills the hole."""
    size[m] -= 1
    last = member[server_first[m] + size[m]]
    member[place[n]] = last
    place[last] = place[n]


@njit(cache=True)
def anneal_exchanges(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    owner: Any,
    server_first: Any,
    price: Any,
    chosen: Any,
    total: float,
    enough: float,
    window: float,
    hot: float,
    cold: float,
    moves: int,
    random: Any,
) -> tuple[float, int]:
    """Simulated annealing by exchanges that keep every budget; ``chosen`` becomes the best decision met.

    A move gives a client another link, or none. Where the link's budget lacks the room, a random client of that server
    makes it and takes its best link elsewhere that fits, or none. A loss is accepted as by Metropolis. A move takes
    tens of nanoseconds, and nearly equal values leave many decisions in reach: there this beats exact neighbourhoods.

    Args:
        first: Where each client's links start.
        value: Value of each link.
        share: Cost over budget of each link.
        server: Server of each link.
        owner: Client of each link.
        server_first: Number of links of the servers before each one.
        price: Price of each whole budget.
        chosen: Link of each client or -1; improved in place.
        total: Value of ``chosen``.
        enough: Stop at this value.
        window: Links whose reduced value is further than this below the client's best one are left out.
        hot: First temperature, > 0.
        cold: Last temperature, > 0.
        moves: Number of moves.
        random: State of :func:`draw`.

    Returns:
        ``(total, improvements)``.
    """
    num_clients = first.size - 1
    # What a move may pick: links, and -1 - n for leaving client n out.
    option = np.empty(value.size + num_clients, np.int64)
    num_options = 0
    held = chosen.copy()
    used = np.zeros(price.size)
    member = np.empty(value.size, np.int64)
    size = np.zeros(price.size, np.int64)
    place = np.empty(num_clients, np.int64)
    for n in range(num_clients):
        best = 0.0
        for j in range(first[n], first[n + 1]):
            best = max(best, value[j] - price[server[j]] * share[j])
        start = num_options
        for j in range(first[n], first[n + 1]):
            if held[n] == j or best - (value[j] - price[server[j]] * share[j]) <= window:
                option[num_options] = j
                num_options += 1
        if held[n] < 0 or best <= window:
            option[num_options] = -1 - n
            num_options += 1
        j = held[n]
        if j >= 0:
            used[server[j]] += share[j]
        if num_options - start < 2:
            num_options = start
        elif j >= 0:
            _join(server_first, server[j], n, member, size, place)
    improvements = 0
    best_total = total
    cooling = (cold / hot) ** (256.0 / max(moves, 256))
    temperature = hot
    for move in range(moves if num_options > 0 else 0):
        if move % 256 == 255:
            temperature *= cooling
            if best_total >= enough:
                break
        pick = option[draw(random, num_options)]
        n = owner[pick] if pick >= 0 else -1 - pick
        old = held[n]
        if pick == old or (pick < 0 and old < 0):
            continue
        gain = -value[old] if old >= 0 else 0.0
        evicted = -1
        refuge = -1
        if pick >= 0:
            gain += value[pick]
            m = server[pick]
            over = used[m] + share[pick] - 1.0
            if old >= 0 and server[old] == m:
                over -= share[old]
            if over > 0.0:
                if size[m] == 0:
                    continue
                evicted = member[server_first[m] + draw(random, size[m])]
                if evicted == n or share[held[evicted]] < over:
                    continue
                found = 0.0
                for j in range(first[evicted], first[evicted + 1]):
                    if value[j] <= found or server[j] == m:
                        continue
                    load = used[server[j]] + share[j]
                    if old >= 0 and server[old] == server[j]:
                        load -= share[old]
                    if load <= 1.0:
                        found = value[j]
                        refuge = j
                gain += found - value[held[evicted]]
        if gain <= temperature * np.log(draw_unit(random)):
            continue
        if evicted >= 0:
            used[m] -= share[held[evicted]]
            _leave(server_first, m, evicted, member, size, place)
            held[evicted] = -1
        if old >= 0:
            used[server[old]] -= share[old]
            _leave(server_first, server[old], n, member, size, place)
            held[n] = -1
        if pick >= 0:
            used[m] += share[pick]
            _join(server_first, m, n, member, size, place)
            held[n] = pick
        if refuge >= 0:
            used[server[refuge]] += share[refuge]
            _join(server_first, server[refuge], evicted, member, size, place)
            held[evicted] = refuge
        total += gain
        if total > best_total + 1e-10 * best_total:
            # Sums anew: a million moves would carry their rounding into the budgets.
            used[:] = 0.0
            total = 0.0
            for k in range(num_clients):
                j = held[k]
                if j >= 0:
                    used[server[j]] += share[j]
                    total += value[j]
            if used.max() <= 1.0 and total > best_total:
                best_total = total
                chosen[:] = held
                improvements += 1
    return best_total, improvements
