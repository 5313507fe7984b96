"""Oracles: who will be in time, or how probably, is known.

Qu et al. 2021 (sections IV-A and VI-B 1); :mod:`fedroster.policies.cocs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.checks import check_choice, check_integer, check_number
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import NoState, Stateless
from fedroster.optimization.budgeted import NODE_LIMIT, SOLVERS, UTILITIES, best_links, check_gap, choices_of
from fedroster.policies.cocs import CITATION


@dataclass(frozen=True, slots=True)
class Oracle(Stateless):
    r"""The most updates in time that the budgets can buy, knowing who will be in time (section VI-B 1).

    .. math:: \max_s \sum_{(n,m) \in s} X_{n,m}^t \quad\text{s.t. (10b), (10c), (10d)}

    Guarantee: with the exact solver and gap 0 (the default up to 1,000 choices), no policy has more updates in time in
    any round, and more budget or a later deadline never lowers its utility.  Links that would be late are not chosen.
    Cost: one P2 a round.

    Attributes:
        solver: "exact", or "fast-lazy-greedy" for section V-A's approximation.
        utility: What Fast Lazy Greedy maximises, "linear" or "square-root"; to the exact solver it is the same.
        epsilon: Error parameter of Fast Lazy Greedy, in (0, 1]; 0.3 in section VI-D.
        gap: The exact solver may stop at a proven gap of this size, in [0, 1); None for one by the number of choices, 0
            up to 1,000 (:func:`~fedroster.optimization.budgeted.gap_for`).
        node_limit: The exact solver stops after so many search nodes; 0 for no limit.
    """

    citation: ClassVar[str] = CITATION
    omniscient: ClassVar[bool] = True
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True

    solver: Literal["exact", "fast-lazy-greedy"] = "exact"
    utility: Literal["linear", "square-root"] = "linear"
    epsilon: float = 0.3
    gap: float | None = None
    node_limit: int = NODE_LIMIT

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        check_choice("solver", self.solver, SOLVERS)
        check_choice("utility", self.utility, UTILITIES)
        check_number("epsilon", self.epsilon, above=0.0, most=1.0)
        check_gap(self.gap)
        check_integer("node_limit", self.node_limit, least=0)

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Solve P2 with X for values."""
        truth = context.require_truth("Oracle")
        choices = choices_of(context)
        links, proven = best_links(
            choices,
            truth.in_time[choices.rows].astype(np.float64),
            solver=self.solver,
            utility=self.utility,
            epsilon=self.epsilon,
            gap=self.gap,
            node_limit=self.node_limit,
            rng=rng,
        )
        return Selection(context.round, choices.rows[links], gap=proven)


@dataclass(frozen=True, slots=True)
class OracleP(Stateless):
    r"""The most expected updates in time, knowing the participation probabilities: :math:`s^{opt,t}` of P2 (10).

    .. math:: \max_s \sum_{(n,m) \in s} p_{n,m}(\phi_{n,m}^t) \quad\text{s.t. (10b), (10c), (10d)}

    The optimal policy of the regret (11).  Guarantee: with the exact solver and gap 0 (the default up to 1,000
    choices), no policy that sees no more than contexts has more updates in time in expectation.  Cost: one P2 a round.

    Attributes:
        solver: "exact", or "fast-lazy-greedy" for section V-A's approximation.
        utility: What Fast Lazy Greedy maximises, "linear" or "square-root"; to the exact solver it is the same.
        epsilon: Error parameter of Fast Lazy Greedy, in (0, 1].
        gap: The exact solver may stop at a proven gap of this size, in [0, 1); None for one by the number of choices, 0
            up to 1,000 (:func:`~fedroster.optimization.budgeted.gap_for`).
        node_limit: The exact solver stops after so many search nodes; 0 for no limit.
    """

    citation: ClassVar[str] = CITATION
    omniscient: ClassVar[bool] = True
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True

    solver: Literal["exact", "fast-lazy-greedy"] = "exact"
    utility: Literal["linear", "square-root"] = "linear"
    epsilon: float = 0.3
    gap: float | None = None
    node_limit: int = NODE_LIMIT

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        check_choice("solver", self.solver, SOLVERS)
        check_choice("utility", self.utility, UTILITIES)
        check_number("epsilon", self.epsilon, above=0.0, most=1.0)
        check_gap(self.gap)
        check_integer("node_limit", self.node_limit, least=0)

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Solve P2 with p for values.

        Raises:
            ConfigurationError: If the network computes no probabilities.
        """
        probability = context.require_truth("Oracle-p").participation_probability
        if probability is None:
            raise ConfigurationError(
                "Oracle-p needs participation probabilities, which this network does not compute; "
                "expected Outcome.participation_probability, as HierarchicalNetwork(probabilities=True) gives it"
            )
        choices = choices_of(context)
        links, proven = best_links(
            choices,
            probability[choices.rows],
            solver=self.solver,
            utility=self.utility,
            epsilon=self.epsilon,
            gap=self.gap,
            node_limit=self.node_limit,
            rng=rng,
        )
        return Selection(context.round, choices.rows[links], gap=proven)
