"""FedAU: weights from how often each client took part, around any policy.

S. Wang and M. Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging", ICLR
2024, arXiv:2306.03401.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, Parameters
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import AnyPolicy, Estimates, check_policy
from fedroster.core.state import per_client
from fedroster.policies.uniform import Uniform

CITATION = """@inproceedings{wang2024lightweight,
  author    = {Wang, Shiqiang and Ji, Mingyue},
  title     = {A Lightweight Method for Tackling Unknown Participation Statistics in Federated Averaging},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year      = {2024},
  eprint    = {2306.03401},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class ParticipationState:
    """What the policy inside has learned, and the intervals between each client's participations, shape (clients,).

    Attributes:
        inner: State of the policy inside.
        total: Rounds in all complete intervals.
        intervals: Their number.
        gap: Rounds since the last interval was complete, the present one included once it is booked.
        absent: Rounds since the client was a member, K at most; K for one that never was.
    """

    inner: Any
    total: FloatArray = per_client(least=0.0)
    intervals: IntArray = per_client(least=0, most="round")
    gap: IntArray = per_client(least=0, most="round")
    absent: IntArray = per_client(least=0)


@dataclass(frozen=True, slots=True)
class ParticipationWeights(Parameters):
    r"""Decides as the policy inside, and weighs an update by the mean interval between the client's participations.

    .. math:: w_n = \frac{1}{N} \cdot \frac{\text{rounds in complete intervals of } n}{\text{number of these intervals}}

    and 1 / N without an interval (Algorithm 2 of Wang and Ji).  An interval ends with an update that came in time, or
    after K rounds without one.  Late updates, drop-outs and failures are rounds without.  N counts the members, and for
    K more rounds those that were.

    Guarantee: where a client takes part with probability p in each round, w tends to :math:`(1 - (1 - p)^K) / (p N)`,
    so that the sum is an unbiased estimate of the plain mean of all clients' updates but for clients with K p of a few
    or less.  The policy's choice must not depend on the weights, and its own guarantees stay.
    Cost: that of the policy inside, and O(N).

    Attributes:
        policy: The policy inside.
        longest_gap: K, >= 1.  The larger, the less bias of rare clients, and the larger their weights.
    """

    citation: ClassVar[str] = CITATION
    estimates: ClassVar[Estimates] = "clients"
    refuses_first: ClassVar[bool] = True

    policy: AnyPolicy = field(default_factory=Uniform)
    longest_gap: Count = 50

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            ConfigurationError: If there is no policy inside, or one that weighs updates itself.
        """
        Parameters.__post_init__(self)
        check_policy(self.policy)
        if callable(getattr(self.policy, "weights", None)):
            raise ConfigurationError(f"policy is {self.policy!r}, which weighs updates itself; expected one without")

    @property
    def inner(self) -> AnyPolicy:
        """The policy inside."""
        return self.policy

    def __getattr__(self, name: str) -> Any:
        """What the policy inside says of itself: what it promises, needs, owes and expects."""
        if name == "policy" or name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self.policy, name)
        if name in ("backlog", "expected_times_s", "explain"):
            return lambda state, *asked: found(state.inner, *asked)
        if name == "rescale":
            return lambda state, *asked: replace(state, inner=found(state.inner, *asked))
        return found

    def check(self, spec: ProblemSpec, /) -> None:
        """Promise what the policy inside does."""
        self.policy.check(spec)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> ParticipationState:
        """Know no interval."""
        total, (intervals, gap) = np.zeros(spec.num_clients), np.zeros((2, spec.num_clients), np.int64)
        never = np.full(spec.num_clients, self.longest_gap)
        return ParticipationState(self.policy.init(spec, rng=rng), total, intervals, gap, never)

    def select(self, state: ParticipationState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Decide as the policy inside."""
        return self.policy.select(state.inner, context, rng=rng)

    def weights(self, state: ParticipationState, context: RoundContext, selection: Selection, /) -> FloatArray:
        """Mean intervals over N; nothing of this round is in them."""
        client = context.clients_of(selection.links)
        over = state.gap[client] >= self.longest_gap
        total = state.total[client] + np.where(over, state.gap[client], 0)
        intervals = state.intervals[client] + over
        here = True if context.members is None else context.members
        num_members = int(np.count_nonzero((state.absent < self.longest_gap) | here))
        mean: FloatArray = np.where(intervals > 0, total / np.maximum(intervals, 1), 1.0)
        return mean / max(num_members, 1)

    def commit(self, state: ParticipationState, context: RoundContext, selection: Selection, /) -> ParticipationState:
        """Book the decision, and a round more since every client's last participation."""
        inner = self.policy.commit(state.inner, context, selection)
        over = state.gap >= self.longest_gap
        state.total[over] += state.gap[over]
        state.intervals[over] += 1
        state.gap[over] = 0
        np.minimum(state.absent + 1, self.longest_gap, out=state.absent)
        state.absent[... if context.members is None else context.members] = 0
        state.gap[state.absent < self.longest_gap] += 1
        return replace(state, inner=inner)

    def update(self, state: ParticipationState, feedback: Feedback, /) -> ParticipationState:
        """Learn, and end the intervals of clients whose updates came in time."""
        inner = self.policy.update(state.inner, feedback)
        client = feedback.client[feedback.status == Status.COMPLETED]
        client = client[state.gap[client] > feedback.staleness]  # else a later interval has ended before
        state.total[client] += state.gap[client] - feedback.staleness
        state.intervals[client] += 1
        state.gap[client] = feedback.staleness
        return replace(state, inner=inner)
