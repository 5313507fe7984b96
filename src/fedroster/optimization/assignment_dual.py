r"""Lagrangian dual of the assignment problem P2 (paper B, Eq. 10): the bound, and the prices that lead the search.

Pricing the budgets (10b) with :math:`\lambda_m \ge 0` per budget leaves every client to its best link,

.. math::
    L(\lambda) = \sum_m \lambda_m + \sum_n \max\Bigl(0, \max_m (v_{nm} - \lambda_m a_{nm})\Bigr) \ge \mathrm{P2},

with :math:`a_{nm} = c_{nm} / B_m`, the share of the budget that the link uses. L is convex and its minimum is the value
of the linear relaxation, so any prices certify a bound and good prices certify the linear-programming one.

L has kinks. :func:`minimise_dual` smooths the inner maximum with a soft maximum of temperature mu, takes a few
projected Newton steps, cools mu and goes on; each pass over the links also yields the exact L, of which the least is
kept. A dozen or two passes come within 1e-4 of the linear relaxation, for large fleets within 1e-5.

Where the values are nearly equal, P2 nearly counts clients, and the linear relaxation is off by the client it splits.
No decision chooses more clients than :func:`most_clients` and :func:`most_clients_apart` say, K, and this cut
:math:`\sum x \le K` is one more budget: each link uses the share 1 / K of it, its price :math:`\theta` is added and
every value falls by :math:`\theta / K`. Arrays of prices have that price in one more, last entry.

Arrays are client-major: the links of client n are ``first[n]:first[n + 1]``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedroster.core.compiled import njit

# Up to this many servers the Newton system is factorised; above, solved by conjugate gradients.
DENSE_SERVERS = 128
# Newton steps at one temperature, at most.
INNER_STEPS = 12
# exp(-30) is below the rounding of a sum that starts at 1.
NEGLIGIBLE = -30.0


@njit(cache=True)
def most_clients(first: Any, share: Any, server: Any, weight: Any) -> Any:
    """No decision under the budgets chooses more clients than this: the cheapest ones against all budgets pooled.

    Args:
        first: Where each client's links start, shape (clients + 1,).
        share: Cost over budget of each link, shape (links,), in [0, 1].
        server: Server of each link, shape (links,).
        weight: Weight of each budget in the pool, shape (servers,), >= 0; any weights bound.
    """
    num_clients = first.size - 1
    cheapest = np.full(num_clients, np.inf)
    for n in range(num_clients):
        for j in range(first[n], first[n + 1]):
            cheapest[n] = min(cheapest[n], weight[server[j]] * share[j])
    cheapest.sort()
    # Rounding must not cut off a decision.
    room = weight.sum() * (1.0 + 1e-9)
    spent = 0.0
    for n in range(num_clients):
        spent += cheapest[n]
        if spent > room:
            return n
    return num_clients


@njit(cache=True)
def most_clients_apart(share: Any, server_first: Any, server_links: Any) -> Any:
    """No decision under the budgets chooses more clients than this: each server's cheapest links against its own one.

    Where few clients fit a budget, the part of each that stays unused is lost, which :func:`most_clients` pools.

    Args:
        share: Cost over budget of each link, shape (links,), in [0, 1].
        server_first: Where each server's links start, shape (servers + 1,).
        server_links: Links by server, shape (links,).
    """
    total = 0
    for m in range(server_first.size - 1):
        cheapest = share[server_links[server_first[m] : server_first[m + 1]]]
        cheapest.sort()
        spent = 0.0
        for each in cheapest:
            spent += each
            if spent > 1.0 + 1e-9:  # rounding must not cut off a decision
                break
            total += 1
    return total


@njit(cache=True)
def lifted_share(share: Any, size: int, slope: float) -> Any:
    r"""Shares of the budgets as a server sees them that holds ``size`` clients or fewer.

    .. math:: f(a) = \min\Bigl(\frac{1}{k - 1},\ \max\bigl(0,\ \tfrac1k + \alpha (a - \tfrac1k)\bigr)\Bigr)

    is dual feasible for k = ``size`` >= 2 and :math:`\alpha` = ``slope`` >= 1: clients whose shares sum to at most 1
    have :math:`\sum f(a) \le 1`, too, so that every bound by prices holds with f(a) in place of a.  Proof: let q of
    them have f > 0.  If q < k, then :math:`\sum f \le q / (k - 1) \le 1`.  If q >= k, then
    :math:`\sum f \le q / k + \alpha (1 - q / k) = 1 + (\alpha - 1)(1 - q / k) \le 1`.

    Where a budget pays for two or three clients this tells a client that leaves room for two others from one that does
    not, which the linear relaxation takes to be nearly alike.

    Args:
        share: Cost over budget of each link, in [0, 1].
        size: k, at least 2.
        slope: At least 1.
    """
    lifted = np.empty(share.size)
    for j in range(share.size):
        lifted[j] = min(1.0 / (size - 1), max(0.0, 1.0 / size + slope * (share[j] - 1.0 / size)))
    return lifted


@njit(cache=True)
def dual_value(first: Any, value: Any, share: Any, server: Any, price: Any, most: int) -> Any:
    r"""The Lagrangian bound :math:`L(\lambda)` on P2 (paper B, Eq. 10).

    Args:
        first: Where each client's links start, shape (clients + 1,).
        value: Value of each link, shape (links,), > 0.
        share: Cost over budget of each link, shape (links,), in [0, 1].
        server: Server of each link, shape (links,).
        price: Price lambda of each whole budget and, with a cut, that of the cut, >= 0.
        most: No decision has more clients; 0 for no cut.
    """
    total = price.sum()
    fee = price[price.size - 1] / most if most > 0 else 0.0
    for n in range(first.size - 1):
        best = fee
        for j in range(first[n], first[n + 1]):
            best = max(best, value[j] - price[server[j]] * share[j])
        total += best - fee
    return total


@njit(cache=True)
def soft_dual(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    price: Any,
    most: int,
    mu: float,
    chance: Any,
    gradient: Any,
    hessian: Any,
) -> tuple[float, float]:
    r"""Smoothed dual :math:`\sum_m \lambda_m + \mu \sum_n \log(1 + \sum_m e^{(v_{nm} - \lambda_m a_{nm}) / \mu})`.

    Fills ``chance`` with the soft choice of each link (the derivative of the client's term), ``gradient`` and, when it
    is not empty, ``hessian``. Returns the smoothed and the exact dual.
    """
    num_prices = price.size
    dense = hessian.shape[0] == num_prices
    for m in range(num_prices):
        gradient[m] = 1.0
        if dense:
            for k in range(num_prices):
                hessian[m, k] = 0.0
    cut = num_prices - 1
    each = 1.0 / most if most > 0 else 0.0
    fee = each * price[cut]
    soft = price.sum()
    exact = soft
    inverse = 1.0 / mu
    for n in range(first.size - 1):
        start = first[n]
        stop = first[n + 1]
        best = 0.0
        for j in range(start, stop):
            reduced = value[j] - price[server[j]] * share[j] - fee
            chance[j] = reduced
            best = max(best, reduced)
        exact += best
        weight = np.exp(-best * inverse)
        live = 0
        for j in range(start, stop):
            scaled = (chance[j] - best) * inverse
            if scaled > NEGLIGIBLE:
                chance[j] = np.exp(scaled)
                weight += chance[j]
                live += 1
            else:
                chance[j] = 0.0
        soft += best + mu * np.log(weight)
        if live == 0:
            continue
        chosen = 0.0
        for j in range(start, stop):
            if chance[j] == 0.0:
                continue
            chance[j] /= weight
            chosen += chance[j]
            m = server[j]
            gradient[m] -= chance[j] * share[j]
            if dense:
                hessian[m, m] += chance[j] * share[j] * share[j] * inverse
        if most > 0:
            gradient[cut] -= each * chosen
        if dense:
            for j in range(start, stop):
                if chance[j] == 0.0:
                    continue
                use = chance[j] * share[j] * inverse
                for k in range(start, stop):
                    hessian[server[j], server[k]] -= use * chance[k] * share[k]
                if most > 0:
                    hessian[cut, server[j]] += use * each * (1.0 - chosen)
            if most > 0:
                hessian[cut, cut] += each * each * chosen * (1.0 - chosen) * inverse
    return soft, exact


@njit(cache=True)
def newton_step_dense(hessian: Any, ridge: Any, gradient: Any, free: Any, factor: Any, step: Any) -> None:
    """Solve ``(H + diag(ridge)) step = -gradient`` over the free prices by Cholesky; other steps are 0."""
    num_prices = gradient.size
    for k in range(num_prices):
        if not free[k]:
            for i in range(k, num_prices):
                factor[i, k] = 0.0
            factor[k, k] = 1.0
            continue
        pivot = hessian[k, k] + ridge[k]
        for q in range(k):
            pivot -= factor[k, q] * factor[k, q]
        pivot = np.sqrt(max(pivot, 1e-10 * (hessian[k, k] + ridge[k]) + 1e-30))
        factor[k, k] = pivot
        for i in range(k + 1, num_prices):
            if free[i]:
                total = hessian[i, k]
                for q in range(k):
                    total -= factor[i, q] * factor[k, q]
                factor[i, k] = total / pivot
            else:
                factor[i, k] = 0.0
    for i in range(num_prices):
        total = -gradient[i] if free[i] else 0.0
        for q in range(i):
            total -= factor[i, q] * step[q]
        step[i] = total / factor[i, i]
    for i in range(num_prices - 1, -1, -1):
        total = step[i]
        for q in range(i + 1, num_prices):
            total -= factor[q, i] * step[q]
        step[i] = total / factor[i, i]


@njit(cache=True)
def hessian_product(
    first: Any, share: Any, server: Any, most: int, chance: Any, inverse: float, x: Any, out: Any
) -> None:
    """Product of the smoothed dual's Hessian with ``x``, one pass over the links."""
    cut = x.size - 1
    each = 1.0 / most if most > 0 else 0.0
    for m in range(x.size):
        out[m] = 0.0
    for n in range(first.size - 1):
        mean = 0.0
        for j in range(first[n], first[n + 1]):
            mean += chance[j] * (share[j] * x[server[j]] + each * x[cut])
        for j in range(first[n], first[n + 1]):
            if chance[j] != 0.0:
                pull = inverse * chance[j] * (share[j] * x[server[j]] + each * x[cut] - mean)
                out[server[j]] += share[j] * pull
                out[cut] += each * pull


@njit(cache=True)
def newton_step_sparse(
    first: Any,
    share: Any,
    server: Any,
    most: int,
    chance: Any,
    mu: float,
    ridge: Any,
    gradient: Any,
    free: Any,
    step: Any,
) -> None:
    """Solve the same system over the free prices by preconditioned conjugate gradients (many servers)."""
    num_prices = gradient.size
    inverse = 1.0 / mu
    diagonal = ridge + 1e-30
    each = 1.0 / most if most > 0 else 0.0
    for n in range(first.size - 1):
        chosen = 0.0
        for j in range(first[n], first[n + 1]):
            if chance[j] != 0.0:
                chosen += chance[j]
                diagonal[server[j]] += inverse * chance[j] * share[j] * share[j] * (1.0 - chance[j])
        diagonal[num_prices - 1] += inverse * each * each * chosen * (1.0 - chosen)
    residual = np.zeros(num_prices)
    direction = np.zeros(num_prices)
    image = np.empty(num_prices)
    rho = 0.0
    for m in range(num_prices):
        step[m] = 0.0
        if free[m]:
            residual[m] = -gradient[m]
            direction[m] = residual[m] / diagonal[m]
            rho += residual[m] * direction[m]
    target = 1e-4 * rho
    for _ in range(30):
        if rho <= target or rho <= 0.0:
            break
        hessian_product(first, share, server, most, chance, inverse, direction, image)
        curvature = 0.0
        for m in range(num_prices):
            if free[m]:
                image[m] += ridge[m] * direction[m]
                curvature += direction[m] * image[m]
        if curvature <= 0.0:
            break
        length = rho / curvature
        following = 0.0
        for m in range(num_prices):
            if free[m]:
                step[m] += length * direction[m]
                residual[m] -= length * image[m]
                following += residual[m] * residual[m] / diagonal[m]
        for m in range(num_prices):
            if free[m]:
                direction[m] = residual[m] / diagonal[m] + following / rho * direction[m]
        rho = following


@njit(cache=True)
def uniform_price(first: Any, value: Any, share: Any, server: Any, num_servers: int) -> float:
    """One price for all budgets at which the clients' best links use them all: where the Newton steps start."""
    low = 0.0
    high = 0.0
    for j in range(value.size):
        if share[j] > 0.0:
            high = max(high, value[j] / max(share[j], 1e-6))
    trial = 0.3 * high
    for _ in range(16):
        used = 0.0
        for n in range(first.size - 1):
            best = 0.0
            taken = 0.0
            for j in range(first[n], first[n + 1]):
                reduced = value[j] - trial * share[j]
                if reduced > best:
                    best = reduced
                    taken = share[j]
            used += taken
        if used > num_servers:
            low = trial
        else:
            high = trial
            if used > 0.9 * num_servers:
                break
        trial = 0.5 * (low + high) if low > 0.0 else 0.3 * high
    return high


@njit(cache=True)
def minimise_dual(
    first: Any,
    value: Any,
    share: Any,
    server: Any,
    start: Any,
    most: int,
    hot: float,
    cold: float,
    cooling: float,
) -> tuple[Any, float, float]:
    r"""Prices that (nearly) minimise :math:`L(\lambda)`, and L there: within about ``cold`` of the linear relaxation.

    Args:
        first: Where each client's links start, shape (clients + 1,).
        value: Value of each link, shape (links,), > 0.
        share: Cost over budget of each link, shape (links,), in [0, 1].
        server: Server of each link, shape (links,).
        start: Prices to start from, one a server and, with a cut, that of the cut; >= 0.
        most: No decision has more clients, which is the cut; 0 for no cut.
        hot: First temperature, in units of the largest value.
        cold: Last temperature, likewise.
        cooling: Factor between temperatures, in (0, 1).

    Returns:
        ``(prices, L, clients)``, the last the number of clients in the (nearly) best relaxed decision.
    """
    num_prices = start.size
    best_price = np.zeros(num_prices)
    best = dual_value(first, value, share, server, best_price, most)
    scale = value.max()
    price = start.copy()
    trial = np.empty(num_prices)
    gradient = np.empty(num_prices)
    step = np.zeros(num_prices)
    free = np.ones(num_prices, np.bool_)
    chance = np.empty(value.size)
    ridge = np.empty(num_prices)
    size = num_prices if num_prices <= DENSE_SERVERS else 0
    hessian = np.empty((size, size))
    factor = np.empty((size, size))
    mu = hot * scale
    while mu >= cold * scale:
        soft, exact = soft_dual(first, value, share, server, price, most, mu, chance, gradient, hessian)
        if exact < best:
            best = exact
            best_price[:] = price
        for _ in range(INNER_STEPS):
            for m in range(num_prices):
                free[m] = price[m] > 0.0 or gradient[m] < 0.0
                # Where all choices are clear the curvature vanishes: this keeps the step below half the price, and
                # fades with the gradient.
                ridge[m] = 2.0 * abs(gradient[m]) / (price[m] + 0.1 * scale)
            if size:
                newton_step_dense(hessian, ridge, gradient, free, factor, step)
            else:
                newton_step_sparse(first, share, server, most, chance, mu, ridge, gradient, free, step)
            slope = 0.0
            for m in range(num_prices):
                slope += gradient[m] * step[m]
            # The temperature alone blurs the dual by more than this.
            if slope > -1e-2 * mu:
                break
            length = 1.0
            moved = False
            for _ in range(6):
                for m in range(num_prices):
                    trial[m] = max(0.0, price[m] + length * step[m])
                reached, exact = soft_dual(first, value, share, server, trial, most, mu, chance, gradient, hessian)
                if exact < best:
                    best = exact
                    best_price[:] = trial
                if reached < soft + 1e-4 * length * slope:
                    moved = True
                    break
                length *= 0.35
            if not moved:
                break
            price[:] = trial
            soft = reached
        mu *= cooling
    return best_price, best, chance.sum()
