r"""What is owed: virtual queues and their drift (paper A, section 4.3, appendices A and D)."""

from __future__ import annotations

import math

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_number
from fedroster.core.compiled import njit
from fedroster.core.errors import ConfigurationError, InfeasibleError
from fedroster.core.problem import ProblemSpec

_GRID = 2.0**-32


def check_flat(name: str, spec: ProblemSpec) -> None:
    """Refuse a hierarchical federation.

    Args:
        name: Name of the policy.
        spec: The problem.

    Raises:
        ConfigurationError: If there is more than one server.
    """
    if spec.num_servers != 1:
        raise ConfigurationError(f"{name} selects for one server; this federation has {spec.num_servers}")


def snap_rate(rate: float) -> float:
    """Round a rate to a multiple of 2^-32, at most 1.2e-10 away.

    Queues then hold exact binary fractions: clients that are owed the same compare equal whatever their histories, and
    sums do not depend on their order.  With 0.15 itself, rounding noise would decide ties instead of the generator.
    """
    return float(round(rate / _GRID)) * _GRID


def check_rate(rate: float, *, num_clients: int, cohort_size: int) -> None:
    r"""Check that a participation rate can be met at all: :math:`N \beta \le m` (Choice A6).

    Args:
        rate: beta.
        num_clients: N.
        cohort_size: m.

    Raises:
        ConfigurationError: If beta is not in [0, 1].
        InfeasibleError: If the clients are owed more places than a round has.
    """
    check_number("beta", rate, least=0.0, most=1.0)
    if num_clients * rate > cohort_size * (1 + 1e-9):
        raise InfeasibleError(
            f"beta = {rate} cannot be met: {num_clients} clients x {rate} = {num_clients * rate:g} places "
            f"a round are owed, and a round has cohort_size = {cohort_size}; "
            f"expected beta <= {cohort_size / num_clients:.4g} or cohort_size >= {math.ceil(num_clients * rate - 1e-9)}"
        )


def empty_queues(spec: ProblemSpec) -> FloatArray:
    """Queues before the first round, Z = 0, shape (clients,) (Algorithm 2, line 2)."""
    return np.zeros(spec.num_clients)


@njit(cache=True, nogil=True)
def _arrive(backlog, arrival, members):  # type: ignore[no-untyped-def]
    if members.shape[0] == 0:
        for n in range(backlog.shape[0]):
            backlog[n] += arrival
    else:
        for n in range(backlog.shape[0]):
            backlog[n] += arrival if members[n] else 0.0


_EVERYONE = np.empty(0, np.bool_)


def queue_step(
    backlog: FloatArray, *, arrival: float, served: IntArray, members: BoolArray | None = None
) -> FloatArray:
    r"""One step of the virtual queues, :math:`Z_n \gets [Z_n + \beta - x_n]^+` (paper A, (6)).

    The queues of unavailable clients grow too (Choice A6).

    Args:
        backlog: Queue lengths Z, shape (clients,), rounds owed, >= 0; overwritten.
        arrival: Guaranteed participation rate beta, in [0, 1].
        served: Indices of the clients that were chosen (x = 1), each once.
        members: Clients in the federation, shape (clients,); the queues of others rest.  None for all.

    Returns:
        ``backlog``.
    """
    _arrive(backlog, arrival, _EVERYONE if members is None else members)
    # Only a chosen client can fall below zero.
    backlog[served] = np.maximum(backlog[served] - 1.0, 0.0)
    return backlog


def lyapunov(backlog: FloatArray) -> float:
    r"""Lyapunov function :math:`\mathcal L(\Theta) = \tfrac12 \sum_n Z_n^2` (paper A, (8))."""
    return 0.5 * float(np.dot(backlog, backlog))


def lyapunov_drift(before: FloatArray, after: FloatArray) -> float:
    r"""Realised drift :math:`\mathcal L(\Theta(t+1)) - \mathcal L(\Theta(t))`; its conditional mean is paper A's (9).

    Args:
        before: Z_t, shape (clients,).
        after: Z_{t+1}, shape (clients,).
    """
    # Factored: the difference of two large sums of squares would lose what is asked for.
    return 0.5 * float(np.dot(after - before, after + before))


def drift_plus_cost(before: FloatArray, after: FloatArray, *, penalty: float, round_time_s: float) -> float:
    r"""Realised drift plus cost, :math:`\Delta(\Theta(t)) + V f(S_t, \tau_t)` (paper A, (10)).

    Args:
        before: Z_t, shape (clients,).
        after: Z_{t+1}, shape (clients,).
        penalty: V >= 0.
        round_time_s: f, paper A's (1), seconds.
    """
    return lyapunov_drift(before, after) + penalty * round_time_s


def drift_plus_cost_bound(
    before: FloatArray, served: IntArray, *, rate: float, penalty: float, round_time_s: float
) -> float:
    r"""Theorem 2's bound on (10): :math:`\Gamma + \sum_n Z_{t,n}(\beta - x_{t,n}) + V f` (paper A, (11)).

    :math:`\Gamma = N(1+\beta^2)/2`.  Holds for every realisation, not only in expectation.

    Args:
        before: Z_t, shape (clients,).
        served: Indices of the chosen clients.
        rate: beta.
        penalty: V >= 0.
        round_time_s: f, paper A's (1), seconds.
    """
    gamma = before.shape[0] * (1.0 + rate * rate) / 2.0
    return float(gamma + rate * before.sum() - before[served].sum() + penalty * round_time_s)


def backlog_bound(num_clients: int, rate: float, penalty: float, max_time_s: float, rounds: int) -> float:
    r"""Bound on the root of the summed squared queues after T rounds, from (53) (paper A, appendix D).

    :math:`\sqrt{\sum_n Z_{T,n}^2} \le \sqrt{2T(\Gamma + V \tau_{\max})}`.  The paper drops V's term in (56) by
    comparing with the optimal policy; what is kept here needs no such comparison.

    Args:
        num_clients: N.
        rate: beta, feasible with slack.
        penalty: V >= 0.
        max_time_s: A bound on every estimated exchange time, seconds.
        rounds: T.
    """
    gamma = num_clients * (1.0 + rate * rate) / 2.0
    return math.sqrt(2.0 * rounds * (gamma + penalty * max_time_s))
