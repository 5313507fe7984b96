"""RBCS-F: reputation-based client selection with fairness (Algorithm 2).

T. Huang, W. Lin, W. Wu, L. He, K. Li and A. Y. Zomaya, "An Efficiency-Boosting Client Selection Scheme for Federated
Learning with Fairness Guarantee", IEEE Transactions on Parallel and Distributed Systems 2021,
doi:10.1109/TPDS.2020.3040887.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.checks import check_number
from fedroster.core.parameters import NotNegative, Positive, Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, Draws, ForOneServer
from fedroster.core.state import per_client
from fedroster.estimation.ridge import RidgeState, alpha_schedule, lower_bounds, observe, rescale, ridge_init
from fedroster.optimization.drift_plus_penalty import explained, least_drift_plus_penalty
from fedroster.queues import check_rate, empty_queues, queue_step, snap_rate

CITATION = """@article{huang2021rbcsf,
  author  = {Huang, Tiansheng and Lin, Weiwei and Wu, Wentai and He, Ligang and Li, Keqin and Zomaya, Albert Y.},
  title   = {An Efficiency-Boosting Client Selection Scheme for Federated Learning with Fairness Guarantee},
  journal = {IEEE Transactions on Parallel and Distributed Systems},
  year    = {2021},
  doi     = {10.1109/TPDS.2020.3040887}
}"""


@dataclass(frozen=True, slots=True)
class RBCSFState:
    """What RBCS-F knows: 80 bytes a client for the paper's three features.

    Attributes:
        ridge: What is believed about each client's exchange time.
        backlog: Virtual queues Z, shape (clients,), rounds owed.
    """

    ridge: RidgeState
    backlog: FloatArray = per_client(least=0.0, most=2.0**53)


class KeepsQueues(ForOneServer):
    """A policy for one server with the queues of a guaranteed rate in its state's ``backlog``."""

    __slots__ = ()

    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    beta: float

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, and a beta that cannot be met."""
        ForOneServer.check(self, spec)
        check_rate(self.beta, num_clients=spec.num_clients, cohort_size=spec.cohort_size)

    def commit(self, state: Any, context: RoundContext, selection: Selection, /) -> Any:
        """Step the queues (6): Algorithm 2, line 14."""
        served = context.clients_of(selection.links)
        queue_step(state.backlog, beta=snap_rate(self.beta), served=served, members=context.members)
        return state

    def backlog(self, state: Any, /) -> FloatArray:
        """Virtual queues Z, shape (clients,), rounds owed."""
        return np.asarray(state.backlog)


@dataclass(frozen=True, slots=True)
class RBCSF(KeepsQueues):
    r"""Short rounds in the long run, with a guaranteed participation rate for every client.

    Each round (Algorithm 2): estimate every exchange time optimistically by ridge regression on its context (19),
    choose the cohort of least :math:`V \max_{n \in S} \bar\tau_n - \sum_{n \in S} Z_n` (P4, (21)), then let the
    queues grow by beta and serve the chosen ones (6).

    Guarantee: if beta can be met at all, the queues are mean-rate stable for every V (Theorem 4), so each client's
    long-term rate is at least beta; after T rounds it is at least :math:`\beta - Z_{T,n}/T`.  The
    time-average regret is bounded by :func:`~fedroster.bounds.rbcs_f_regret` where contexts and availability do not
    depend on past decisions, against policies that keep the rate in every round; Theorem 3's does
    not hold as proved (docs/explanation/errors-in-the-papers.md).

    Cost per round: O(N D^2) for the estimates, P4 in a few passes over the clients.

    Attributes:
        V: Weight of time against fairness, >= 0.  Larger is faster and fair only later.
        beta: Guaranteed participation rate, in [0, 1]; ``num_clients * beta <= cohort_size``.
        alpha: Exploration factor when ``schedule`` is "constant", >= 0 (Choice A4).
        ridge: Regularisation lambda of the regression, > 0.
        schedule: "constant", or "lemma-1" for alpha_t from R, L, S, delta and lambda.
        R: The noise is conditionally R-sub-Gaussian, seconds.
        L: Bound on the norm of a context.
        S: Bound on the norm of a client's coefficients.
        delta: Probability with which the confidence bound may fail, in (0, 1).

    Deviations: (19)'s clamp is used (Choice A3); queues are kept for unavailable clients too (Choice A6); beta is
    rounded to a multiple of 2^-32 (:func:`~fedroster.queues.snap_rate`).
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    refuses_first: ClassVar[bool] = True

    V: NotNegative = 20.0
    beta: Share = 0.15
    alpha: NotNegative = 0.1
    ridge: Positive = 1.0
    schedule: Literal["constant", "lemma-1"] = "constant"
    R: NotNegative = 0.0
    L: NotNegative = 0.0
    S: NotNegative = 0.0
    delta: Annotated[float, Range(above=0.0, below=1.0)] = 0.05

    def __post_init__(self) -> None:
        """Check the ranges, and that lemma 1 has what it needs."""
        KeepsQueues.__post_init__(self)
        if self.schedule == "lemma-1":
            for name in ("R", "L", "S"):
                check_number(f"{name} (needed by schedule = lemma-1)", getattr(self, name), above=0.0)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> RBCSFState:
        """Algorithm 2, lines 1 to 3."""
        ridge = ridge_init(spec.num_clients, spec.num_features, ridge=self.ridge)
        return RBCSFState(ridge=ridge, backlog=empty_queues(spec))

    def alpha_at(self, round: int) -> float:
        """Exploration factor alpha_t of a round."""
        if self.schedule == "constant":
            return self.alpha
        return alpha_schedule(
            round, noise=self.R, feature_norm=self.L, coefficient_norm=self.S, delta=self.delta, ridge=self.ridge
        )

    def select(self, state: RBCSFState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Algorithm 2, lines 5 to 11."""
        time_s, backlog = self._known(state, context)
        links = least_drift_plus_penalty(time_s, backlog, penalty=self.V, cohort_size=context.cohort_size, rng=rng)
        return Selection(context.round, links)

    def _known(self, state: RBCSFState, context: RoundContext) -> tuple[FloatArray, FloatArray]:
        """Optimistic times (19), infinite where a link is not available, and queues of all links."""
        alpha, there, client = self.alpha_at(context.round), context.available, context.client
        time_s = lower_bounds(state.ridge, context.features, alpha=alpha, available=there, client=client)
        return time_s, state.backlog if client is None else state.backlog[client]

    def explain(self, state: RBCSFState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """What it was owed, or the length of the round."""
        rows, own, chosen = of_client(context, selection, client)
        row = int(rows[own][0])
        time_s, backlog = self._known(state, context)
        reason, owed, most_s = explained(
            time_s, backlog, row, selection.links, penalty=self.V, cohort_size=context.cohort_size
        )
        limits = turning("owed", backlog[row], owed, chosen=chosen, favours="more")
        if (least_s := time_s[row]) > 0.0 < most_s:  # the estimate is that much above the bound that counts, (19)
            (mean_s,) = self.expected_times_s(state, np.array([client]), context.features[[row]])
            limits += turning("expected_s", mean_s, most_s + mean_s - least_s, chosen=chosen, favours="less")
        return Because("owed" if reason == "price" else reason, limits)

    def update(self, state: RBCSFState, feedback: Feedback, /) -> RBCSFState:
        """Algorithm 2, lines 15 and 16: the estimates.  Drop-outs and failures teach nothing about times."""
        observe(state.ridge, feedback.client, feedback.features, feedback.exchange_time_s)
        return state

    def rescale(self, state: RBCSFState, clients: IntArray, factor: FloatArray, /) -> RBCSFState:
        """Multiply the observed times of some clients."""
        rescale(state.ridge, clients, factor, ridge=self.ridge)
        return state

    def expected_times_s(self, state: RBCSFState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Estimates of the ridge regression (17), shape (k,), seconds; 0 for a client that was never measured."""
        return lower_bounds(state.ridge, features, alpha=0.0, client=clients)
