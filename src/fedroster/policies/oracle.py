"""Oracles: who will be in time, or how probably, is known.

Qu et al. 2021 (sections IV-A and VI-B 1); :mod:`fedroster.policies.cocs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Outcome, RoundContext
from fedroster.core.protocols import Draws, NoState, Stateless
from fedroster.optimization.budgeted import Choices, SolverOptions
from fedroster.policies.cocs import CITATION


@dataclass(frozen=True, slots=True)
class Oracle(SolverOptions, Stateless):
    r"""The most updates in time that the budgets can buy, knowing who will be in time (section VI-B 1).

    .. math:: \max_s \sum_{(n,m) \in s} X_{n,m}^t \quad\text{s.t. (10b), (10c), (10d)}

    Guarantee: where :attr:`~fedroster.core.problem.Selection.gap` is 0, no policy has more updates in time in that
    round, and more budget or a later deadline never lowers its utility.  The search stops early beyond 1,000 choices,
    where by default a small gap will do, and after ``node_limit`` nodes; then the decision may lack the share of
    updates that the selection's gap says.  Links that would be late are not chosen.  Cost: one P2 a round.

    Its options are those of :class:`~fedroster.optimization.budgeted.SolverOptions`.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    omniscient: ClassVar[bool] = True
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True

    def values(self, state: NoState, choices: Choices, context: RoundContext) -> FloatArray:
        """What the truth says of each choice, shape (choices,)."""
        return self.worth(context.require_truth(type(self).__name__))[choices.rows]

    def worth(self, truth: Outcome) -> FloatArray:
        """What each link is worth, X, shape (links,)."""
        return truth.in_time.astype(np.float64)


@dataclass(frozen=True, slots=True)
class OracleP(Oracle):
    r"""The most expected updates in time, knowing the participation probabilities: :math:`s^{opt,t}` of P2 (10).

    .. math:: \max_s \sum_{(n,m) \in s} p_{n,m}(\phi_{n,m}^t) \quad\text{s.t. (10b), (10c), (10d)}

    The optimal policy of the regret (11).  Guarantee: where the selection's gap is 0, no policy that sees no more than
    contexts has more updates in time in expectation; where the search stopped early, as :class:`Oracle`'s may, none has
    more than the gap allows.  Cost: one P2 a round.

    Its options are those of :class:`~fedroster.optimization.budgeted.SolverOptions`.
    """

    def worth(self, truth: Outcome) -> FloatArray:
        """What each link is worth, p, shape (links,).

        Raises:
            ConfigurationError: If the network knows no probabilities.
        """
        if truth.participation_probability is None:
            raise ConfigurationError(
                "Oracle-p needs participation probabilities, which this network does not know; "
                "expected Outcome.participation_probability, as HierarchicalNetwork gives it"
            )
        return truth.participation_probability()
