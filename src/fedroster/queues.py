r"""What is owed: virtual queues (Huang et al. 2021, section 4.3)."""

from __future__ import annotations

import math

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_number
from fedroster.core.errors import InfeasibleError
from fedroster.core.problem import ProblemSpec

_GRID = 2.0**-32


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
            f"a round are owed, and a round has cohort_size = {cohort_size}; "
            f"expected beta <= {cohort_size / num_clients:.4g} or cohort_size >= {math.ceil(num_clients * beta - 1e-9)}"
        )


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
