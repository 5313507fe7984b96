r"""What is owed: virtual queues (Huang et al. 2021, section 4.3)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_number
from fedroster.core.errors import InfeasibleError
from fedroster.core.problem import ProblemSpec, RoundContext

_GRID = 2.0**-32
_JUDGED_ROUNDS = 50  # before a client's rate is held against a promise

AVAILABILITY_PERIOD = 64
"""Rounds between two looks at which clients are available too rarely."""


def snap_rate(beta: float) -> float:
    """Round a rate to a multiple of 2^-32, at most 1.2e-10 away.

    Queues then hold exact binary fractions: clients that are owed the same compare equal whatever their histories, and
    sums do not depend on their order.  With 0.15 itself, rounding noise would decide ties instead of the generator.
    """
    return float(round(beta / _GRID)) * _GRID


def check_rate(beta: float, *, num_clients: int, cohort_size: int) -> None:
    r"""Check that a participation rate can be met at all: :math:`N \beta \le m` (Choice A6).

    Raises:
        ConfigurationError: If beta is not in [0, 1].
        InfeasibleError: If the clients are owed more places than a round has.
    """
    check_number("beta", beta, least=0.0, most=1.0)
    if num_clients * beta > cohort_size * (1 + 1e-9):
        raise InfeasibleError(
            f"beta = {beta} cannot be met: {num_clients} clients x {beta} = {num_clients * beta:g} places "
            f"a round are owed, and a round has cohort_size = {cohort_size}; expected "
            f"beta <= {cohort_size / num_clients:.10g} or cohort_size >= {math.ceil(num_clients * beta - 1e-9)}"
        )


def falls_short(chosen: ArrayLike, rounds: ArrayLike, *, beta: float) -> BoolArray:
    """Which clients take part more than a tenth less often than promised; those of fewer than 50 rounds are not judged.

    Args:
        chosen: Participations of each, shape (clients,).
        rounds: Rounds that the promise counts, same shape.
        beta: Promised participation rate, in [0, 1].
    """
    rounds = np.asarray(rounds)
    return (rounds >= _JUDGED_ROUNDS) & (np.asarray(chosen) < 0.9 * beta * rounds)


def seen_too_rarely(seen: IntArray, present: IntArray, *, beta: float) -> BoolArray:
    """Which clients are available too rarely to be chosen at a rate (Choice A6), shape (clients,).

    Args:
        seen: Rounds in which each was available, shape (clients,).
        present: Rounds in which each was a member, shape (clients,); fewer than 64 say nothing.
        beta: The rate.
    """
    # Three standard deviations below the rate, so that chance alone hardly ever names one.
    margin = 3.0 * np.sqrt(beta * (1.0 - beta) * np.maximum(present, 1))
    rare: BoolArray = (present >= AVAILABILITY_PERIOD) & (seen < beta * present - margin)
    return rare


def empty_queues(spec: ProblemSpec) -> FloatArray:
    """Queues before the first round, Z = 0, shape (clients,) (Algorithm 2, line 2)."""
    return np.zeros(spec.num_clients)


def queue_step(backlog: FloatArray, *, beta: float, served: IntArray, members: BoolArray | None = None) -> FloatArray:
    r"""One step of the virtual queues, :math:`Z_n \gets [Z_n + \beta - x_n]^+` (Huang et al. 2021, Eq. 6).

    ``backlog``, rounds owed, is overwritten and returned; the clients of ``served`` have x = 1.  The queues of
    unavailable clients grow too (Choice A6), those of clients that are no ``members`` rest.
    """
    np.add(backlog, beta, out=backlog, where=True if members is None else members)
    # Only a chosen client can fall below zero.
    backlog[served] = np.maximum(backlog[served] - 1.0, 0.0)
    return backlog


def debt_step(debt: FloatArray, own_debt: FloatArray, context: RoundContext, *, beta: float, served: IntArray) -> None:
    r"""One step of FLOOR's debts, :math:`d_n \gets d_n + \beta - x_n`, which may be negative.

    Args:
        debt: Debts over all rounds of the clients' membership, shape (clients,), participations; overwritten.
        own_debt: Debts over the rounds in which each client was available, same shape.
        context: The round's context.
        beta: Guaranteed participation rate, in [0, 1].
        served: Indices of the clients that were chosen (x = 1), each once.
    """
    rows = np.flatnonzero(context.available)
    there = context.clients_of(rows)
    np.add(debt, beta, out=debt, where=True if context.members is None else context.members)
    np.add.at(own_debt, there if context.members is None else there[context.members[there]], beta)
    debt[served] -= 1.0
    own_debt[served] -= 1.0
