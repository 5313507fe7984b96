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

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import njit

# As in the exact solver, rounding in a caller's own sum cannot find a budget broken.
_BUDGET_SLACK = 5e-13


@njit(cache=True)
def _greedy_by_density(
    value, cost, load, client, server, limit, taken, used, density, lowest, epsilon, root, picks
):  # fmt: skip
    """One density's greedy; returns the number of picks, the link that broke a budget or -1, and the picks' value.

    The links come in order of falling value, and the marginal value of either f grows with the value. So each link is
    decided once, when the threshold first reaches it (a link that fails the density or the matroid fails for good), and
    one pass over the links does what the publication writes as one pass a threshold.
    """
    used[:] = 0.0
    size = 0
    total = 0.0
    f_here = 0.0
    breaker = -1
    threshold = -1.0
    for j in range(value.size):
        marginal = np.sqrt(total + value[j]) - f_here if root else value[j]
        if marginal < density * load[j]:
            continue
        if threshold < 0.0:
            threshold = marginal
        if marginal < threshold:
            # The first threshold below the marginal value; every later link is worth no more.
            steps = math.ceil(math.log(threshold / max(marginal, 1e-300)) / math.log1p(epsilon))
            threshold *= (1.0 + epsilon) ** (-steps)
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
    return size, breaker, total


def lazy_greedy(
    value: FloatArray,
    cost: FloatArray,
    client: IntArray,
    server: IntArray,
    budget: FloatArray,
    *,
    num_clients: int,
    root: bool,
    epsilon: float,
    rng: Generator,
) -> IntArray:
    r"""Fast Lazy Greedy for P3 (Qu et al. 2021, Eq. 20; Badanidiyuru and Vondrák 2014); see the module.

    .. math:: \max_S f(S) \quad \text{s.t. (10b), (10c), (10d)}, \qquad f(S) = \sqrt{\textstyle\sum_{e \in S} v_e}
              \text{ or } \textstyle\sum_{e \in S} v_e

    Guarantee: at least :math:`1 / ((1 + \varepsilon)(2 + 2M))` of the optimum. Cost: :math:`O(n \log n)` to sort and
    :math:`O(n)` for each of the :math:`O(\varepsilon^{-1} \log n)` densities.

    For P3 itself :func:`~fedroster.optimization.assignment.solve_assignment` is exact (Choice B10); this is the
    paper's algorithm.

    Args:
        value: Value of each link, shape (links,), finite, >= 0; links of value 0 are not considered.
        cost: Cost of each link, shape (links,), finite, >= 0.
        client: Client of each link, shape (links,), from 0 to ``num_clients`` - 1.
        server: Server of each link, shape (links,), from 0 to ``len(budget)`` - 1.
        budget: Budget of each server, shape (servers,), finite, >= 0, kept as in
            :func:`~fedroster.optimization.assignment.solve_assignment`.
        num_clients: Number of clients.
        root: Whether f is the square root (Eq. 19 without its constant 1/M), else the sum (Eq. 8 without it).
        epsilon: Error parameter, in (0, 1].
        rng: Breaks ties between equal values.

    Returns:
        Chosen rows, ascending, shape (chosen,).
    """
    limit = budget * (1.0 + _BUDGET_SLACK)
    rows = rng.permutation(np.flatnonzero((value > 0.0) & (cost <= limit[server])))
    rows = rows[np.argsort(-value[rows], kind="stable")]
    count, servers = rows.shape[0], budget.shape[0]
    if count == 0:
        return rows
    values, costs, clients, purses = value[rows], cost[rows], client[rows], server[rows]
    load = np.divide(costs, budget[purses], out=np.zeros(count), where=budget[purses] > 0.0)
    single = np.sqrt(values) if root else values
    top = float(single.max())
    lowest = epsilon * top / (count * (1.0 + epsilon) * (2.0 + 2.0 * servers))
    densities = (
        top / (1.0 + servers) * (1.0 + epsilon) ** np.arange(math.ceil(math.log(2 * count) / math.log1p(epsilon)) + 1)
    )
    taken, used, picks = np.zeros(num_clients, np.bool_), np.zeros(servers), np.empty(count, np.int64)
    best, links = 0.0, rows[:0]
    for density in densities:
        size, breaker, total = _greedy_by_density(
            values, costs, load, clients, purses, limit, taken, used, float(density), lowest, epsilon, root, picks
        )
        reached = math.sqrt(total) if root else total
        if reached > best:
            best, links = reached, rows[picks[:size]]
        if breaker >= 0 and single[breaker] > best:
            best, links = float(single[breaker]), rows[breaker : breaker + 1]
    return np.sort(links)
