r"""Theorems and bounds of the policies: functions that readers, studies and tests call, and no policy does.

Drift, queues and regret of RBCS-F: Huang et al. 2021, appendices A and D, Theorems 2 to 4.  Regret of COCS: Qu et al.
2021, Theorems 2 and 4.  Debts of partial pooling: docs/explanation/partial-pooling.md.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.problem import RoundContext
from fedroster.optimization.budgeted import Choices, choices_of


def lyapunov_drift(before: FloatArray, after: FloatArray) -> float:
    r"""Realised drift :math:`\mathcal L(\Theta(t+1)) - \mathcal L(\Theta(t))`; its conditional mean is Eq. 9.

    Args:
        before: Z_t, shape (clients,).
        after: Z_{t+1}, shape (clients,).
    """
    # Factored: the difference of two large sums of squares would lose what is asked for.
    return 0.5 * float(np.dot(after - before, after + before))


def drift_plus_cost_bound(before: FloatArray, served: IntArray, *, beta: float, V: float, round_time_s: float) -> float:
    r"""Theorem 2's bound on (10): :math:`\Gamma + \sum_n Z_{t,n}(\beta - x_{t,n}) + V f` (Eq. 11).

    :math:`\Gamma = N(1+\beta^2)/2`, and Z is ``before`` the round.  Holds for every realisation, not only in
    expectation.
    """
    gamma = before.shape[0] * (1.0 + beta * beta) / 2.0
    return float(gamma + beta * before.sum() - before[served].sum() + V * round_time_s)


def backlog_bound(num_clients: int, beta: float, V: float, max_time_s: float, rounds: int) -> float:
    r"""Bound on the root of the summed squared queues after T rounds, from (53) (Huang et al. 2021, appendix D).

    :math:`\sqrt{\sum_n Z_{T,n}^2} \le \sqrt{2T(\Gamma + V \tau_{\max})}`, with a bound on every estimated exchange
    time.  The paper drops V's term in (56) by comparing with the optimal policy; what is kept here needs no such
    comparison.
    """
    gamma = num_clients * (1.0 + beta * beta) / 2.0
    return math.sqrt(2.0 * rounds * (gamma + V * max_time_s))


def rbcs_f_regret_as_printed(
    rounds: int,
    *,
    num_clients: int,
    beta: float,
    V: float,
    max_time_s: float,
    noise: float,
    feature_norm: float,
    coefficient_norm: float,
    delta: float,
    ridge: float,
) -> float:
    r"""Theorem 3's bound on RBCS-F's time-average regret (Huang et al. 2021, Eq. 24), for lambda >= 1.

    It does not hold with the proof's K, a bound on mean times: (46) applies a bound for one client, Lemma 3, to the
    slowest clients of the rounds, which change.  docs/explanation/errors-in-the-papers.md has a counterexample.
    :func:`rbcs_f_regret` takes its place under the conditions that it names.

    .. math::
        R(T) \le \frac{N(1+\beta^2)}{2V} + \zeta_T \sqrt{\frac{6 \log(1 + T L^2/3\lambda)}{T}},\qquad
        \zeta_T = \max\{K, 1\} \max\Bigl\{2R\sqrt{3\log\tfrac{1+TL^2/\lambda}{\delta}} + \sqrt\lambda S,\ 1\Bigr\}

    Deviations: as printed in (24), where :math:`2\alpha_T` appears without the factor 2 on its second term.
    """
    inner = 2.0 * noise * math.sqrt(3.0 * math.log((1.0 + rounds * feature_norm**2 / ridge) / delta))
    zeta = max(max_time_s, 1.0) * max(inner + math.sqrt(ridge) * coefficient_norm, 1.0)
    learning = zeta * math.sqrt(6.0 * math.log(1.0 + rounds * feature_norm**2 / (3.0 * ridge)) / rounds)
    return num_clients * (1.0 + beta**2) / (2.0 * V) + learning


def rbcs_f_regret(
    rounds: int,
    *,
    num_clients: int,
    cohort_size: int,
    num_features: int,
    beta: float,
    V: float,
    max_time_s: float,
    noise: float,
    feature_norm: float,
    coefficient_norm: float,
    delta: float,
    ridge: float,
) -> float:
    r"""A bound on RBCS-F's expected time-average regret, in place of Theorem 3's (Huang et al. 2021).

    The regret is that of the mean times, :math:`\frac1T \sum_t \mathbb E[\max_{n \in S_t} \tau^*_{t,n} - \max_{n \in
    S^*_t} \tau^*_{t,n}]`.  RBCS-F runs with Lemma 1's schedule at delta / N, and its lower bounds are cut at K.

    Condition: given all that happened before a round, S* serves each client with probability beta or more in it.  It is
    enough that contexts and availability are drawn independently in each round, whatever was decided before, and that
    S* chooses by them alone.  A rate over the whole run is not enough, and contexts with the cold flag, as in the
    paper's own network, depend on past decisions: there, nothing is proved.

    .. math::
        R(T) \le \frac{N(1+\beta^2)}{2V}
        + \zeta_T \sqrt{\frac{2 N D \log(1 + m T L^2 / (N D \lambda))}{T}} + 2 \delta K, \qquad
        \zeta_T = \max\{K, 1\} \max\Bigl\{2R\sqrt{D \log\tfrac{N (1+TL^2/\lambda)}{\delta}} + 2\sqrt\lambda S,\ 1\Bigr\}

    Each client has a potential of its own, so there is a factor N under the root.  The proof is in
    docs/explanation/errors-in-the-papers.md.

    Args:
        rounds: T >= 1.
        num_clients: N.
        cohort_size: m.
        num_features: D.
        beta: Guaranteed rate.
        V: Weight of time, > 0.
        max_time_s: K, a bound on every mean exchange time, seconds.
        noise: R, the noise is conditionally R-sub-Gaussian.
        feature_norm: L >= ||c||.
        coefficient_norm: S >= ||theta*||.
        delta: In (0, 1).
        ridge: lambda > 0.
    """
    length = num_clients * num_features
    width = noise * math.sqrt(num_features * math.log(num_clients * (1.0 + rounds * feature_norm**2 / ridge) / delta))
    zeta = max(max_time_s, 1.0) * max(2.0 * (width + math.sqrt(ridge) * coefficient_norm), 1.0)
    potential = 2.0 * length * math.log(1.0 + cohort_size * rounds * feature_norm**2 / (length * ridge))
    return num_clients * (1.0 + beta**2) / (2.0 * V) + zeta * math.sqrt(potential / rounds) + 2.0 * delta * max_time_s


def delta_regret(best: FloatArray, own: FloatArray, *, share: float) -> FloatArray:
    r"""The delta-regret after each round, :math:`\sum_t \delta \mu^{opt}_t - \sum_t \mu_t` (Qu et al. 2021, Eq. 21).

    Args:
        best: Utility of the optimal decision in each round, shape (..., rounds).
        own: Utility of the policy's decision, shape (..., rounds).
        share: The share of the optimum that the solver is sure to reach, in (0, 1];
            :math:`1 / ((1+\epsilon)(2+2M))` for Fast Lazy Greedy (Lemma 3), 1 for the regret (11).

    Deviations: (21) has :math:`1/\delta` with a delta above 1, as in the sentence before it; the sentence after it says
    :math:`\delta = 1/((1+\epsilon)(2+2M))`, which is the share that is meant, and with which (21) as printed would ask
    for more than the optimum.
    """
    check_number("share", share, above=0.0, most=1.0)
    regret: FloatArray = (share * best - own).cumsum(axis=-1)
    return regret


def cocs_regret(
    rounds: int,
    *,
    num_clients: int,
    num_servers: int,
    budget: float,
    least_cost: float,
    holder_constant: float,
    holder: float = 1.0,
    approximation: float = 1.0,
) -> float:
    r"""Theorem 2's bound on COCS's expected regret (Qu et al. 2021, Eq. 11).

    Divided by delta it is Theorem 4's bound on the delta-regret (21).

    .. math::
        \mathbb E[R(T)] \le \frac{4N^2MB}{c^{\min}}
        \Bigl(T^{\frac{2\alpha+2}{3\alpha+2}} \log T + T^{\frac{2}{3\alpha+2}}\Bigr)
        + \frac{NMB}{c^{\min}} \Bigl(\sum_{k=1}^{B/c^{\min}} \binom Nk\Bigr) \frac{\pi^2}{3}
        + \Bigl(3L2^{\frac\alpha2} + \frac{2 + L2^{\frac\alpha2}}{(2\alpha+2)/(3\alpha+2)}\Bigr)
        \frac{NMB}{c^{\min}} T^{\frac{2\alpha+2}{3\alpha+2}}

    Holds for D = 2, :math:`K(t) = t^z \log t` and :math:`h_T = \lceil T^{1/(3\alpha+2)} \rceil` with
    :math:`z = 2\alpha/(3\alpha+2)`, and for the linear utility, divided by M as in (8).

    Args:
        rounds: T >= 1.
        num_clients: N.
        num_servers: M.
        budget: B of each server.
        least_cost: c^min, the least cost of a link, > 0.
        holder_constant: L of Assumption 1, >= 0.
        holder: alpha of Assumption 1, > 0.
        approximation: delta of Theorem 4, the share of the optimum that the solver reaches, in (0, 1];
            :math:`1 / ((1+\epsilon)(2+2M))` for Fast Lazy Greedy (Lemma 3), 1 for Theorem 2.

    Returns:
        The bound; infinite where the number of decisions overflows.

    Raises:
        ConfigurationError: If an argument is out of its range.

    Deviations: as printed; the appendix has :math:`2 + 2L2^{\alpha/2}` in the last term (57).  Theorem 4 prints only
    the dominant order; its proof divides the worst loss of a round, and so every term, by delta (60), (64).
    """
    for name, count in (("rounds", rounds), ("num_clients", num_clients), ("num_servers", num_servers)):
        check_integer(name, count, least=1)
    check_number("budget", budget, least=0.0)
    check_number("least_cost", least_cost, above=0.0)
    check_number("holder_constant", holder_constant, least=0.0)
    check_number("holder", holder, above=0.0)
    check_number("approximation", approximation, above=0.0, most=1.0)
    most = int(min(budget / least_cost * (1.0 + 1e-12), num_clients))
    decisions = 0
    for size in range(1, most + 1):
        decisions += math.comb(num_clients, size)
        if decisions > sys.float_info.max:
            return math.inf
    order = (2.0 * holder + 2.0) / (3.0 * holder + 2.0)
    growth = math.pow(rounds, order)
    per_round = num_clients * num_servers * budget / least_cost
    smooth = holder_constant * math.pow(2.0, holder / 2.0)
    exploring = 4.0 * num_clients * (growth * math.log(rounds) + math.pow(rounds, 2.0 / (3.0 * holder + 2.0)))
    wrong = decisions * math.pi**2 / 3.0
    rough = (3.0 * smooth + (2.0 + smooth) / order) * growth
    return per_round * (exploring + wrong + rough) / approximation


def debt_bound(
    rounds: int, *, num_clients: int, cohort: int, beta: float, V: float, slack: float = 0.0, gap: float = 0.0
) -> float:
    r"""Most participations that any client can be owed after T rounds, whatever happens in them.

    .. math:: Q_n(T) \le \sqrt{2 T (\Gamma + V U)},\qquad \Gamma = \tfrac12 (N \beta^2 + U),

    if in every round some lottery over feasible decisions chooses every reachable client with probability at least
    :math:`\beta`.  If it does so with :math:`\beta + \epsilon` and everyone is always reachable, then at all times

    .. math:: Q_n \le \sqrt{S^2 + 2 (\Gamma + V U)},\qquad S = (\Gamma + V U) / \epsilon.

    Args:
        rounds: T >= 0.
        num_clients: N >= 1.
        cohort: U, most clients that the budgets can pay for in one round, >= 0.
        beta: Guaranteed rate, in [0, 1].
        V: Weight of an expected update against a participation owed, >= 0.
        slack: epsilon, >= 0; 0 for the first bound.
        gap: Largest gap g that ``PartialPooling.decide`` proved in these rounds, in [0, 1): 0 for optima.  Slack
            shrinks to :math:`(1-g)(\beta+\epsilon) - \beta`; with a gap and no slack nothing is promised.

    Returns:
        The smaller of the bounds that hold; infinite if none does.
    """
    drift = 0.5 * (num_clients * beta * beta + cohort) + V * cohort
    left = (1.0 - gap) * (beta + slack) - beta
    if left < 0.0:
        return math.inf
    bound = math.sqrt(2.0 * rounds * drift)
    return bound if left == 0.0 else min(bound, math.sqrt((drift / left) ** 2 + 2.0 * drift))


def feasible_rates(context: RoundContext) -> tuple[float, float]:
    r"""Between which numbers the largest rate lies that a round can offer to all of its reachable clients at once.

    A lottery over decisions chooses link (n, m) with a probability :math:`y_{nm}`.  It has
    :math:`\sum_n c_{nm} y_{nm} \le B_m`, :math:`\sum_m y_{nm} \le 1`, and at most a cohort in all: the largest rate
    under these alone is the upper end.  With as many clients a server as it can pay for even if they are the most
    expensive, :math:`\sum_n y_{nm} \le k_m`, every such y belongs to a lottery (flows with integral limits have
    integral vertices): the largest rate under these is the lower end.

    Args:
        context: A round's context.

    Returns:
        Lower and upper end; 1 and 1 if no client is reachable.
    """
    choices = choices_of(context)
    if not choices.rows.shape[0]:
        return 1.0, 1.0
    use = np.minimum(choices.cost / np.maximum(choices.budget[choices.purse], 1e-300), 1.0)
    # As many as fit even if they are the most expensive; one at least, by the definition of a choice.
    fits = np.ones(choices.budget.shape[0])
    for purse in range(fits.shape[0]):
        highest = np.sort(choices.cost[choices.purse == purse])[::-1]
        fits[purse] = max(int(np.count_nonzero(np.cumsum(highest) <= choices.budget[purse])), 1)
    return _largest_rate(choices, 1.0 / fits[choices.purse]), _largest_rate(choices, use)


def _largest_rate(choices: Choices, use: FloatArray) -> float:
    """The largest beta with sum_m y >= beta for all clients, sum of use times y <= 1 for all servers, sum of y <= m."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    links, servers = choices.rows.shape[0], choices.budget.shape[0]
    client, row = np.unique(choices.client, return_inverse=True)
    column, clients = np.arange(links), client.shape[0]
    # Rows: a server's capacity; a client is on one link at most; beta - sum_m y <= 0; places.
    # The last variable is beta.
    entries = np.concatenate((use, np.ones(links), -np.ones(links), np.ones(clients), np.ones(links)))
    last = servers + clients
    rows = (
        choices.purse,
        servers + row,
        last + row,
        last + np.arange(clients),
        np.full(links, last + clients),
    )
    at_column = np.concatenate((column, column, column, np.full(clients, links), column))
    matrix = csr_matrix((entries, (np.concatenate(rows), at_column)), shape=(last + clients + 1, links + 1))
    limit = np.concatenate((np.ones(servers + clients), np.zeros(clients), [float(choices.cohort_size)]))
    goal = np.zeros(links + 1)
    goal[-1] = -1.0
    found = linprog(goal, A_ub=matrix, b_ub=limit, bounds=(0.0, 1.0), method="highs")
    return float(found.x[-1])
