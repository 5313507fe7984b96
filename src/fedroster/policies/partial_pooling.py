"""Partial pooling: learned from all links together, with guaranteed rates if they are asked for.

A policy of this project; no paper has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.citation import SOFTWARE
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Natural, NotNegative, Positive, Share, ShareBelowOne
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import Defaults, Draws
from fedroster.core.state import per_client
from fedroster.estimation.probit import ProbitState, begin_round, learn, predict, probit_init
from fedroster.estimation.slots import table_flaw, tag_flaw
from fedroster.optimization.budgeted import Choices, ExactOptions, choices_of
from fedroster.queues import check_rate, empty_queues, queue_step, snap_rate

_MOST_INTERVALS = 64  # the covariance grows with their square


@dataclass(frozen=True, slots=True)
class PartialPoolingState:
    """What is believed, and what is owed.

    Attributes:
        belief: The models.
        backlog: Q, participations owed to each client, shape (clients,), >= 0; zeros without a guarantee.
    """

    belief: ProbitState
    backlog: FloatArray = per_client(least=0.0, most=2.0**53)

    def flaw(self, spec: ProblemSpec) -> str:
        """What is impossible about it in a federation; empty if nothing is."""
        belief = self.belief
        slots, models, rows = belief.key.shape[0], belief.log_weight.shape[0], belief.new_tag.shape[0]
        sizes = {"pair_round": (slots,), "pair_mean": (slots, models), "pair_variance": (slots, models)}
        sizes |= dict.fromkeys(("new_round", "new_server", "new_success"), (rows,))
        sizes["new_features"] = rows, spec.num_features
        for name, shape in sizes.items():
            if getattr(belief, name).shape != shape:
                return f"{name} has shape {getattr(belief, name).shape}; expected {shape}"
        if belief.sample.shape[1] != spec.num_features:
            return f"sample has shape {belief.sample.shape}"
        if (belief.new_tag >= belief.num_tags).any() or (belief.new_server >= spec.num_servers).any():
            return "an observation is of a tag or server that was never given"
        if (belief.num_knots > belief.knot.shape[1]).any() or belief.log_weight.max() - belief.log_weight.min() > 1e6:
            return "there are more knots than intervals, or weights beyond any"
        spread = np.sqrt(np.diagonal(belief.covariance, axis1=1, axis2=2).clip(0.0, 100.0)) + 1e-9
        if (np.abs(belief.covariance) > spread[:, :, None] * spread[:, None] * (1.0 + 1e-6)).any():
            return "a covariance is none"
        own = belief.variance * (1.0 + 1e-6)
        deviations = belief.server_variance.T, belief.client_variance.T, belief.pair_variance
        if any((variance > own).any() for variance in deviations):
            return "a deviation is less certain than before anything was learned"
        inner = np.arange(1, belief.knot.shape[1]) < belief.num_knots[:, None]
        if (np.diff(belief.knot, axis=1) <= 0.0)[inner].any():
            return "knots do not ascend"
        return table_flaw(belief.key, belief.num_pairs) or tag_flaw(
            belief.tag, belief.num_tags, belief.key, spec.num_servers
        )


@dataclass(frozen=True, slots=True)
class PartialPooling(ExactOptions, Defaults):
    r"""As many updates in time as the budgets buy, learned from all links together; optionally a rate for every client.

    Each round:

    1. Take :math:`\hat p_{n,m}`, the probability of an update in time, from one curve over contexts that all links
       share and from the deviations of the client, the server and the pair, as far as data supports them
       (:mod:`fedroster.estimation.probit`).
    2. Solve P2, :math:`\max_s \sum_{(n,m) \in s} (V \hat p_{n,m} + Q_n)` under (10b), (10c), (10d); without a
       guarantee, Q = 0 and V = 1.
    3. Queues: :math:`Q_n \gets [Q_n + \beta r_n - x_n]^+`, where r says whether the client could be chosen at all and
       x whether it was; in free places as many of them as a cohort has are one round.
    4. Learn from what comes back: a chosen link's update was in time, or not.

    There is no exploration: contexts change every round and the curve is common, so each decision teaches about all
    links, and an optimistic index mostly costs more than it finds.

    Guarantee: for the utility none is proven; what is measured stands in the documentation.  The models' mixture
    predicts as well as the best of them (:mod:`fedroster.estimation.probit`).  The rates are
    guaranteed on every sample path, whatever is believed, where the budgets allow them in every round: :math:`\sum_t
    x_n \ge \beta \sum_t r_n - Q_n(T)`, with Q within :func:`~fedroster.bounds.debt_bound` if the rate is feasible, for
    which :func:`~fedroster.bounds.feasible_rates` gives a sufficient and a necessary condition.  What counts is the gap
    that was proven: 0 by default up to 1,000 choices, and beyond, or where ``node_limit`` ended the search, what
    the selection says.  Whether the budgets allow beta depends on prices, which only contexts tell: ``check``
    refuses only what no prices allow.

    Cost per round: O(links) for the probabilities and one P2.  Memory: the pairs that were observed.

    Attributes:
        beta: Share of the rounds in which a client is reachable that it takes part in, in [0, 1]; 0 for no guarantee.
            0 is the default, since it has the most updates and suits every federation (N beta <= m).  Where a model is
            trained, take 0.05 or m / 2N: the fewer clients' updates are used, the less it learns.
        V: Participations owed that weigh as much as one sure update, >= 0: the greater, the more utility and the
            longer the queues.  Used with ``beta`` only.
        variances: Variances of the deviations, one model for each and for each memory, beside one without deviations.
        memories: Rounds within which deviations are forgotten, 0 for never.
        intervals: Intervals on each axis of the curve, in [0, 64]; 1 for straight lines, 0 for no contexts.
        share: Share of the models' weights that is spread evenly each round, in [0, 1).
        gap, node_limit: How P2 is solved (:class:`~fedroster.optimization.budgeted.ExactOptions`).
    """

    citation: ClassVar[str] = SOFTWARE
    draws: ClassVar[Draws] = "never"
    reads: ClassVar[str] = "system"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "worth"

    beta: Share = 0.0
    V: NotNegative = 5.0
    variances: tuple[Positive, ...] = (0.1, 1.0)
    memories: tuple[NotNegative, ...] = (0.0, 30.0)
    intervals: Natural = 8
    share: ShareBelowOne = 1e-3

    def __post_init__(self) -> None:
        """Check the ranges, and that there are memories where there are variances."""
        ExactOptions.__post_init__(self)
        if bool(self.variances) != bool(self.memories):
            raise ConfigurationError(
                f"variances are {self.variances} and memories {self.memories}; expected both, or () and () for "
                "one model without deviations"
            )
        if self.intervals > _MOST_INTERVALS:
            raise ConfigurationError(f"intervals is {self.intervals}; expected at most {_MOST_INTERVALS}")

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse a rate that more clients are owed than a cohort may have."""
        check_rate(self.beta, num_clients=spec.num_clients, cohort_size=spec.cohort_size)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> PartialPoolingState:
        """Know nothing, owe nothing."""
        models = [(0.0, math.inf)]
        models += [(variance, memory or math.inf) for memory in self.memories for variance in self.variances]
        variance, memory = zip(*models, strict=True)
        belief = probit_init(
            spec.num_clients,
            spec.num_servers,
            spec.num_features,
            intervals=self.intervals,
            variance=variance,
            memory=memory,
        )
        return PartialPoolingState(belief, empty_queues(spec))

    def values(self, state: PartialPoolingState, choices: Choices, context: RoundContext) -> FloatArray:
        r"""What each choice is worth, :math:`V \hat p + Q`, or :math:`\hat p` without a guarantee, shape (choices,)."""
        features = context.features[choices.rows]
        probability = predict(state.belief, choices.client, choices.server, features, round=context.round)
        return self.V * probability + state.backlog[choices.client] if self.beta else probability

    def commit(self, state: PartialPoolingState, context: RoundContext, selection: Selection, /) -> PartialPoolingState:
        """Let a round pass, and step the queues."""
        choices = choices_of(context)
        client: IntArray = context.clients_of(selection.links)
        features = context.features[context.available]
        belief = begin_round(state.belief, client, features, round=context.round, share=self.share)
        if self.beta:
            reachable = np.zeros(state.backlog.shape[0], np.bool_)  # within a budget on some available link
            reachable[choices.client] = True if context.members is None else context.members[choices.client]
            queue_step(state.backlog, beta=snap_rate(self.beta), served=client, members=reachable)
        return replace(state, belief=belief)

    def update(self, state: PartialPoolingState, feedback: Feedback, /) -> PartialPoolingState:
        """Learn whether each update was in time; drop-outs and errors were not."""
        success = feedback.status == Status.COMPLETED
        told = feedback.client, feedback.server, feedback.features, success
        return replace(state, belief=learn(state.belief, *told, round=feedback.round))

    def backlog(self, state: PartialPoolingState, /) -> FloatArray:
        """Participations owed, Q, shape (clients,); zeros without a guarantee."""
        return state.backlog
