r"""Fast Lazy Greedy for P3 (Qu et al. 2021, Sec. V-A): density thresholds under knapsacks and a matroid.

Badanidiyuru and Vondrák, *Fast algorithms for maximizing submodular functions*, SODA 2014, the algorithm for a p-system
and d knapsacks, which Qu et al. 2021 uses with p = 1 (a client serves one server) and d = M (one budget a server).
With costs in units of their budgets, f monotone submodular, f(∅) = 0 and :math:`W = \max_e f(\{e\})`:

.. code-block:: text

    for each density rho = W/(p+d), (1+eps) W/(p+d), ... up to 2 n W/(p+d)
        S <- empty,  tau <- max { f(e) : f(e) / cost(e) >= rho }
        while tau >= the smallest threshold
            for each e with f(S+e)-f(S) >= tau, (f(S+e)-f(S)) / cost(e) >= rho and S+e independent
                S <- S+e
                if S breaks a budget: candidates are S without e, and {e} alone; next rho
            tau <- tau / (1+eps)
        candidate is S
    return the best candidate

.. math:: f(S) \ge \frac{f(S^*)}{(1 + \varepsilon)(p + 2d + 1)} = \frac{f(S^*)}{(1 + \varepsilon)(2 + 2M)}
          \qquad \text{(Lemma 3)}

The statement above follows the publication's scheme (density guess, falling threshold, the two parts of a set that
breaks a budget); it was reconstructed, and its grid ends and stopping threshold were not compared with the printed
text. The guarantee does not rest on that: it was derived again for exactly these steps. The usual smallest threshold,
:math:`\varepsilon W / n`, loses a further :math:`\varepsilon W`, which the constant above does not cover for large d;
here it is :math:`\varepsilon W / (n (1 + \varepsilon)(p + 2d + 1))`, so that the guarantee holds as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedroster.core.compiled import njit
from fedroster.core.errors import InvalidInputError
from fedroster.optimization.assignment import check_links

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Utility of a set of rows, given as an ascending array: monotone, submodular, 0 for the empty set.
Utility = Callable[[IntArray], float]

# As in the exact solver, rounding in a caller's own sum cannot find a budget broken.
_BUDGET_SLACK = 5e-13


@dataclass(frozen=True, slots=True)
class LazyGreedyResult:
    """A decision of Fast Lazy Greedy.

    Attributes:
        links: Chosen rows, ascending, shape (chosen,).
        utility: f of the chosen rows.
        guarantee: Share of the optimum that f reaches at least, 1 / ((1 + eps)(2 + 2M)).
        num_evaluations: Marginal values that were computed.
    """

    links: IntArray
    utility: float
    guarantee: float
    num_evaluations: int


@njit(cache=True)
def greedy_by_density(
    value: Any,
    cost: Any,
    load: Any,
    client: Any,
    server: Any,
    limit: Any,
    taken: Any,
    used: Any,
    density: float,
    lowest: float,
    epsilon: float,
    root: bool,
    picks: Any,
) -> tuple[int, int, float, int]:
    """One density's greedy for f the sum of values or (``root``) its square root.

    The links come in order of falling value, and the marginal value of either f grows with the value. So each link is
    decided once, when the threshold first reaches it (a link that fails the density or the matroid fails for good), and
    one pass over the links does what the publication writes as one pass a threshold.

    Args:
        value: Values, falling, shape (links,).
        cost: Cost of each link.
        load: Cost in units of its budget.
        client: Client of each link.
        server: Server of each link.
        limit: Budget of each server, with the slack for rounding.
        taken: Scratch, one entry a client, all False on entry and on return.
        used: Scratch, one entry a server.
        density: The density rho.
        lowest: The smallest threshold.
        epsilon: Threshold step.
        root: Whether f is the square root.
        picks: Set to the chosen positions.

    Returns:
        ``(size, breaker, total, evaluations)``: number of picks, the position of the link that broke a budget (-1 if
        none did) and is not among the picks, sum of the picks' values, number of marginal values computed.
    """
    used[:] = 0.0
    size = 0
    total = 0.0
    f_here = 0.0
    evaluations = 0
    breaker = -1
    threshold = -1.0
    for j in range(value.size):
        marginal = np.sqrt(total + value[j]) - f_here if root else value[j]
        evaluations += 1
        if marginal < density * load[j]:
            continue
        if threshold < 0.0:
            threshold = marginal
        if marginal < threshold:
            # The first threshold below the marginal value; every later link is worth no more.
            threshold *= (1.0 + epsilon) ** (
                -math.ceil(math.log(threshold / max(marginal, 1e-300)) / math.log1p(epsilon))
            )
            if threshold < lowest:
                break
        if taken[client[j]]:
            continue
        m = server[j]
        if used[m] + cost[j] > limit[m]:
            breaker = j
            break
        used[m] += cost[j]
        taken[client[j]] = True
        picks[size] = j
        size += 1
        total += value[j]
        f_here = np.sqrt(total) if root else total
    for i in range(size):
        taken[client[picks[i]]] = False
    return size, breaker, total, evaluations


def _densities(top: float, num_links: int, num_servers: int, epsilon: float) -> FloatArray:
    count = math.ceil(math.log(2 * num_links) / math.log1p(epsilon)) + 1
    return np.asarray(top / (1.0 + num_servers) * (1.0 + epsilon) ** np.arange(count), dtype=np.float64)


def _greedy_by_density_oracle(
    utility: Utility,
    rows: IntArray,
    single: FloatArray,
    cost: FloatArray,
    load: FloatArray,
    client: IntArray,
    server: IntArray,
    limit: FloatArray,
    density: float,
    lowest: float,
    epsilon: float,
) -> tuple[list[int], int, int]:
    """One density's greedy for any utility; ``single`` holds f of each link alone, and bounds its marginal value."""
    picks: list[int] = []
    here = 0.0
    evaluations = 0
    bound = single.copy()
    free = np.ones(client.max() + 1, np.bool_)
    used = np.zeros(limit.size)
    alive = single >= density * load
    if not alive.any():
        return picks, -1, 0
    threshold = float(single[alive].max())
    while threshold >= lowest:
        # Marginal values only fall, so a link below the threshold by its last one needs no look (lazy evaluation).
        for j in np.flatnonzero(alive & (bound >= threshold)):
            if not free[client[j]]:
                alive[j] = False
                continue
            marginal = float(utility(np.sort(rows[np.array([*picks, j], dtype=np.int64)]))) - here
            evaluations += 1
            bound[j] = marginal
            if marginal < density * load[j]:
                alive[j] = False
                continue
            if marginal < threshold:
                continue
            if used[server[j]] + cost[j] > limit[server[j]]:
                return picks, int(j), evaluations
            used[server[j]] += cost[j]
            free[client[j]] = False
            alive[j] = False
            picks.append(int(j))
            here += marginal
        remaining = bound[alive]
        if remaining.size == 0:
            break
        threshold /= 1.0 + epsilon
    return picks, -1, evaluations


def lazy_greedy(
    value: ArrayLike,
    cost: ArrayLike,
    client: ArrayLike,
    server: ArrayLike,
    budget: ArrayLike,
    *,
    num_clients: int,
    utility: Literal["sqrt", "sum"] | Utility = "sqrt",
    epsilon: float = 0.1,
    rng: np.random.Generator | None = None,
) -> LazyGreedyResult:
    r"""Fast Lazy Greedy for P3 (Qu et al. 2021, Eq. 20; Badanidiyuru and Vondrák 2014); see the module.

    .. math:: \max_S f(S) \quad \text{s.t. (10b), (10c), (10d)}, \qquad f(S) = \sqrt{\textstyle\sum_{e \in S} v_e}
              \text{ by default}

    Guarantee: at least :math:`1 / ((1 + \varepsilon)(2 + 2M))` of the optimum. Cost: :math:`O(n \log n)` to sort and
    :math:`O(n)` for each of the :math:`O(\varepsilon^{-1} \log n)` densities for the built-in utilities;
    :math:`O(n \varepsilon^{-2} \log^2 n)` evaluations for a callable.

    For P3 itself :func:`~fedroster.optimization.assignment.solve_assignment` is exact (Choice B10); this is the
    paper's algorithm, and works for any monotone submodular utility.

    Args:
        value: Value of each link, shape (links,), finite, >= 0; a callable utility may ignore it, but links of value 0
            are not considered.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,), from 0 to ``num_clients`` - 1.
        server: Server of each link, shape (links,), from 0 to ``len(budget)`` - 1.
        budget: Budget of each server, shape (servers,), finite, >= 0, kept as in
            :func:`~fedroster.optimization.assignment.solve_assignment`.
        num_clients: Number of clients.
        utility: ``"sqrt"`` (Eq. 19 without its constant 1/M), ``"sum"`` (Eq. 8 likewise), or a function of an ascending
            array of rows that is monotone and submodular with f(empty) = 0.
        epsilon: Error parameter, in (0, 1].
        rng: Breaks ties between equal values at random; without it they fall by row order.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected.
    """
    if not 0.0 < epsilon <= 1.0:
        raise InvalidInputError(f"epsilon is {epsilon}, expected more than 0 and at most 1")
    if not callable(utility) and utility not in ("sqrt", "sum"):
        raise InvalidInputError(f"utility is {utility!r}, expected 'sqrt', 'sum' or a function of rows")
    values, costs, clients, servers, budgets = check_links(value, cost, client, server, budget, num_clients)
    num_servers = budgets.size
    guarantee = 1.0 / ((1.0 + epsilon) * (2.0 + 2.0 * num_servers))
    limit = budgets * (1.0 + _BUDGET_SLACK)
    rows = np.flatnonzero((values > 0.0) & (costs <= limit[servers]))
    if rng is not None:
        rows = rng.permutation(rows)
    rows = rows[np.argsort(-values[rows], kind="stable")]
    if rows.size == 0:
        return LazyGreedyResult(np.empty(0, np.int64), 0.0, guarantee, 0)
    value_, cost_, client_, server_ = values[rows], costs[rows], clients[rows], servers[rows]
    load = np.divide(cost_, budgets[server_], out=np.zeros(rows.size), where=budgets[server_] > 0.0)
    if callable(utility):
        single = np.array([float(utility(rows[j : j + 1])) for j in range(rows.size)])
        evaluations = rows.size
    else:
        single = np.sqrt(value_) if utility == "sqrt" else value_
        evaluations = 0
    top = float(single.max())
    best_links = rows[:0]
    best = 0.0
    if top <= 0.0:
        return LazyGreedyResult(np.empty(0, np.int64), 0.0, guarantee, evaluations)
    lowest = epsilon * top / (rows.size * (1.0 + epsilon) * (2.0 + 2.0 * num_servers))
    taken = np.zeros(num_clients, np.bool_)
    used = np.zeros(num_servers)
    picks = np.empty(rows.size, np.int64)
    for density in _densities(top, rows.size, num_servers, epsilon):
        if callable(utility):
            chosen, breaker, spent = _greedy_by_density_oracle(
                utility, rows, single, cost_, load, client_, server_, limit, float(density), lowest, epsilon
            )
            links = np.sort(rows[np.array(chosen, dtype=np.int64)])
            reached = float(utility(links)) if links.size else 0.0
        else:
            size, breaker, total, spent = greedy_by_density(
                value_,
                cost_,
                load,
                client_,
                server_,
                limit,
                taken,
                used,
                float(density),
                lowest,
                epsilon,
                utility == "sqrt",
                picks,
            )
            links = rows[picks[:size]]
            reached = math.sqrt(total) if utility == "sqrt" else total
        evaluations += spent
        if reached > best:
            best, best_links = reached, np.sort(links)
        if breaker >= 0 and single[breaker] > best:
            best, best_links = float(single[breaker]), rows[breaker : breaker + 1]
    return LazyGreedyResult(best_links, best, guarantee, evaluations)
