"""Random selection: the vanilla scheme of federated averaging (paper A, section 6.1.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedroster.core.problem import RoundContext, Selection
from fedroster.policies.stateless import NoState, Stateless


@dataclass(frozen=True, slots=True)
class Uniform(Stateless):
    r"""Every set of :math:`\min\{m, \sum_n I_n\}` available clients is equally likely.

    Guarantee: under equal availability p each client's rate is the same in
    expectation, E[min(m, available)] / N.  Cost: O(N).
    """

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw without replacement."""
        rows = np.flatnonzero(context.available)
        if rows.shape[0] > context.cohort_size:
            rows = rng.choice(rows, size=context.cohort_size, replace=False, shuffle=False)
            rows.sort()
        return Selection(context.round, rows)
