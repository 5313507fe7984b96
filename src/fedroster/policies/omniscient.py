"""P3 with the true mean times: the optimal policy of a regret (Choice A8).

Huang et al. 2021 (23); :mod:`fedroster.policies.rbcs_f`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import NotNegative, Share
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Draws
from fedroster.core.state import per_client
from fedroster.optimization.drift_plus_penalty import least_drift_plus_penalty
from fedroster.policies.rbcs_f import CITATION, KeepsQueues
from fedroster.queues import empty_queues


@dataclass(frozen=True, slots=True)
class OmniscientState:
    """The queues; nothing needs to be learned.

    Attributes:
        backlog: Virtual queues Z, shape (clients,), rounds owed.
    """

    backlog: FloatArray = per_client(least=0.0, most=2.0**53)


@dataclass(frozen=True, slots=True)
class OmniscientP3(KeepsQueues):
    r"""Least drift plus penalty under the true mean times: RBCS-F with nothing left to learn.

    .. math:: \min_S V \max_{n \in S} c_{t,n}^\top \theta_n^* - \sum_{n \in S} Z_{t,n} \quad\text{(P3, (13))}

    Regret (23) is printed against this policy with the same V.  Guarantee: as RBCS-F's, by queues of its own.  Cost: P4
    in a few passes over the clients.

    Attributes:
        V: Weight of time against fairness, >= 0.
        beta: Guaranteed participation rate, in [0, 1].
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    reads: ClassVar[str] = "system"
    omniscient: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True

    V: NotNegative = 20.0
    beta: Share = 0.15

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> OmniscientState:
        """Owe nothing."""
        return OmniscientState(empty_queues(spec))

    def select(self, state: OmniscientState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Solve P3."""
        expected_s = context.require_truth("the omniscient P3").expected_time_s
        time_s = np.where(context.available, expected_s, np.inf)
        backlog = state.backlog if context.client is None else state.backlog[context.client]
        links = least_drift_plus_penalty(time_s, backlog, penalty=self.V, cohort_size=context.cohort_size, rng=rng)
        return Selection(context.round, links)
