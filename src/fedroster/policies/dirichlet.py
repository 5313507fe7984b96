"""Selection with Dirichlet probabilities.

Huang et al. 2021 (section 6.2.2; :mod:`fedroster.policies.rbcs_f`) vary fairness by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import Positive
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ForOneServer
from fedroster.core.state import per_client
from fedroster.optimization.ranking import greatest
from fedroster.policies.rbcs_f import CITATION


@dataclass(frozen=True, slots=True)
class DirichletState:
    """The probabilities, drawn once.

    Attributes:
        log_weight: Logarithm of each client's weight, up to a common constant, shape (clients,).
    """

    log_weight: FloatArray = per_client(least=-math.inf)


def log_gamma_variates(shape: float, size: int, *, rng: Generator) -> FloatArray:
    r"""Logarithms of Gamma(shape, 1) variates, exact where the variates themselves underflow.

    :math:`\log G_a = \log G_{a+1} + \log(U)/a` with U uniform on (0, 1].

    Args:
        shape: a > 0.
        size: How many.
        rng: Draws them.
    """
    return np.log(rng.standard_gamma(shape + 1.0, size)) + np.log1p(-rng.random(size)) / shape


@dataclass(frozen=True, slots=True)
class Dirichlet(ForOneServer):
    r"""Draws clients without replacement with probabilities :math:`q' \sim \mathrm{Dir}(\gamma_2 \mathbf 1)`.

    A small gamma_2 favours a few clients, a large one approaches random selection.  q' is drawn once for a run.
    Given q', a cohort is the first m of an exponential race with rates q' (Efraimidis and Spirakis 2006), which is
    successive sampling without replacement among the available clients.

    Guarantee: none; it is the control for unfairness.  Cost: O(N).

    Attributes:
        gamma_2: Concentration, > 0.
    """

    citation: ClassVar[str] = CITATION
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "drawn"

    gamma_2: Positive = 1.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> DirichletState:
        """Draw q': normalised Gamma variates are Dirichlet, and normalising is not needed."""
        return DirichletState(log_gamma_variates(self.gamma_2, spec.num_clients, rng=rng))

    def select(self, state: DirichletState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Let the available clients race."""
        weight = state.log_weight if context.client is None else state.log_weight[context.client]
        race = np.log(rng.standard_exponential(context.num_links)) - weight
        rows = np.flatnonzero(context.available)
        return Selection(context.round, rows[greatest(-race[rows], context.cohort_size, rng=rng)])
