r"""Bounds on P2 by prices of the budgets, and the prices that lead the search (Qu et al. 2021, Eq. 10).

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
"""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.compiled import njit
from fedroster.optimization.assignment.links import Links

# Rounding must not cut off a decision.
_ROUNDING = 1e-9


def _that_fit(share: FloatArray, room: float) -> int:
    """How many of the smallest shares fit the room together."""
    return int(np.searchsorted(np.cumsum(np.sort(share)), room * (1.0 + _ROUNDING), side="right"))


def most_clients(links: Links, weight: FloatArray) -> int:
    """No decision under the budgets chooses more clients than this: the cheapest ones against all budgets pooled.

    Args:
        links: The links, at least one.
        weight: Weight of each budget in the pool, shape (servers,), >= 0; any weights bound.
    """
    cheapest = np.minimum.reduceat(weight[links.server] * links.share, links.first[:-1])
    return _that_fit(cheapest, float(weight.sum()))


def most_clients_apart(links: Links) -> int:
    """No decision under the budgets chooses more clients than this: each server's cheapest links against its own one.

    Where few clients fit a budget, the part of each that stays unused is lost, which :func:`most_clients` pools.
    """
    by_server = np.split(links.share[links.server_links], links.server_first[1:-1])
    return sum(_that_fit(share, 1.0) for share in by_server)


def lifted_share(share: FloatArray, size: int, slope: float) -> FloatArray:
    r"""Shares of the budgets as a server sees them that holds ``size`` clients or fewer.

    .. math:: f(a) = \min\Bigl(\frac{1}{k - 1},\ \max\bigl(0,\ \tfrac1k + \alpha (a - \tfrac1k)\bigr)\Bigr)

    is dual feasible for k = ``size`` >= 2 and :math:`\alpha` = ``slope`` >= 1: clients whose shares sum to at most 1
    have :math:`\sum f(a) \le 1`, too, so that every bound by prices holds with f(a) in place of a.  Proof: let q of
    them have f > 0.  If q < k, then :math:`\sum f \le q / (k - 1) \le 1`.  If q >= k, then
    :math:`\sum f \le q / k + \alpha (1 - q / k) = 1 + (\alpha - 1)(1 - q / k) \le 1`.

    Where a budget pays for two or three clients this distinguishes a client that leaves room for two others from one
    that does not, which the linear relaxation takes to be nearly alike.
    """
    return np.clip(1.0 / size + slope * (share - 1.0 / size), 0.0, 1.0 / (size - 1))


def client_prices(links: Links, price: FloatArray) -> FloatArray:
    r"""What each client is worth at the budgets' prices, :math:`u_n = \max(0, \max_m (v_{nm} - \lambda_m a_{nm}))`."""
    best = np.maximum.reduceat(links.value - price[links.server] * links.share, links.first[:-1])
    return np.maximum(best, 0.0)


def dual_value(links: Links, price: FloatArray, most: int) -> float:
    r"""The Lagrangian bound :math:`L(\lambda)` on P2.

    Args:
        links: The links, at least one.
        price: Price lambda of each whole budget and, with a cut, that of the cut, >= 0.
        most: No decision has more clients; 0 for no cut.
    """
    fee = float(price[-1]) / most if most > 0 else 0.0
    return float(price.sum() + np.maximum(client_prices(links, price) - fee, 0.0).sum())


@njit(cache=True)
def uniform_price(links: Links) -> float:
    """One price for all budgets at which the clients' best links use them all: where the Newton steps start."""
    first, value, share = links.first, links.value, links.share
    num_servers = links.server_first.size - 1
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
def soft_dual(
    links: Links, price: FloatArray, most: int, mu: float, chance: FloatArray, gradient: FloatArray, hessian: FloatArray
) -> tuple[float, float]:
    r"""Smoothed dual :math:`\sum_m \lambda_m + \mu \sum_n \log(1 + \sum_m e^{(v_{nm} - \lambda_m a_{nm}) / \mu})`.

    Fills ``chance`` with the soft choice of each link (the derivative of the client's term), ``gradient`` and
    ``hessian``. Returns the smoothed and the exact dual.
    """
    first, value, share, server = links.first, links.value, links.share, links.server
    num_prices = price.size
    soft = 0.0
    for m in range(num_prices):
        soft += price[m]
        gradient[m] = 1.0
        for k in range(num_prices):
            hessian[m, k] = 0.0
    exact = soft
    cut = num_prices - 1
    each = 1.0 / most if most > 0 else 0.0
    fee = each * price[cut]
    inverse = 1.0 / mu
    for n in range(first.size - 1):
        start = first[n]
        stop = first[n + 1]
        best = 0.0
        for j in range(start, stop):
            chance[j] = value[j] - price[server[j]] * share[j] - fee
            best = max(best, chance[j])
        exact += best
        weight = np.exp(-best * inverse)
        live = 0
        for j in range(start, stop):
            scaled = (chance[j] - best) * inverse
            # exp(-30) is below the rounding of a sum that starts at 1.
            if scaled > -30.0:
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
            hessian[m, m] += chance[j] * share[j] * share[j] * inverse
        for j in range(start, stop):
            if chance[j] == 0.0:
                continue
            use = chance[j] * share[j] * inverse
            for k in range(start, stop):
                hessian[server[j], server[k]] -= use * chance[k] * share[k]
            if most > 0:
                hessian[cut, server[j]] += use * each * (1.0 - chosen)
        if most > 0:
            gradient[cut] -= each * chosen
            hessian[cut, cut] += each * each * chosen * (1.0 - chosen) * inverse
    return soft, exact


@njit(cache=True)
def newton_step(
    hessian: FloatArray, ridge: FloatArray, gradient: FloatArray, free: BoolArray, factor: FloatArray, step: FloatArray
) -> None:
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
def minimise_dual(links: Links, start: FloatArray, most: int) -> tuple[FloatArray, float, float]:
    r"""Prices that (nearly) minimise :math:`L(\lambda)`, and L there: within about 2e-4 of the linear relaxation.

    Args:
        links: The links, at least one.
        start: Prices to start from, one a server and, with a cut, that of the cut; >= 0.
        most: No decision has more clients, which is the cut; 0 for no cut.

    Returns:
        ``(prices, L, clients)``, the last the number of clients in the (nearly) best relaxed decision.
    """
    num_prices = start.size
    scale = 0.0
    best = 0.0  # L where all prices are 0
    for n in range(links.first.size - 1):
        largest = 0.0
        for j in range(links.first[n], links.first[n + 1]):
            largest = max(largest, links.value[j])
        best += largest
        scale = max(scale, largest)
    best_price = np.zeros(num_prices)
    price = start.copy()
    trial = np.empty(num_prices)
    gradient = np.empty(num_prices)
    step = np.zeros(num_prices)
    ridge = np.empty(num_prices)
    free = np.ones(num_prices, np.bool_)
    chance = np.empty(links.value.size)
    hessian = np.empty((num_prices, num_prices))
    factor = np.empty((num_prices, num_prices))
    # Temperatures in units of the largest value: 0.03, then a fifth of the one before, down to 2e-4.
    mu = 0.03 * scale
    while mu >= 2e-4 * scale:
        soft, exact = soft_dual(links, price, most, mu, chance, gradient, hessian)
        if exact < best:
            best = exact
            for m in range(num_prices):
                best_price[m] = price[m]
        for _ in range(12):
            for m in range(num_prices):
                free[m] = price[m] > 0.0 or gradient[m] < 0.0
                # Where all choices are clear the curvature vanishes: this keeps the step below half the price, and
                # fades with the gradient.
                ridge[m] = 2.0 * abs(gradient[m]) / (price[m] + 0.1 * scale)
            newton_step(hessian, ridge, gradient, free, factor, step)
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
                reached, exact = soft_dual(links, trial, most, mu, chance, gradient, hessian)
                if exact < best:
                    best = exact
                    for m in range(num_prices):
                        best_price[m] = trial[m]
                if reached < soft + 1e-4 * length * slope:
                    moved = True
                    break
                length *= 0.35
            if not moved:
                break
            for m in range(num_prices):
                price[m] = trial[m]
            soft = reached
        mu *= 0.2
    clients = 0.0
    for j in range(chance.size):
        clients += chance[j]
    return best_price, best, clients
