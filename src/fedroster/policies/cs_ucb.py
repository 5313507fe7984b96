"""CS-UCB and CS-UCB-Q: bandits over clients' times, without and with fairness queues.

W. Xia, T. Q. S. Quek, K. Guo, W. Wen, H. H. Yang and H. Zhu, "Multi-Armed Bandit-Based Client Scheduling for Federated
Learning", IEEE Transactions on Wireless Communications 2020, doi:10.1109/TWC.2020.3008091.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.parameters import NotNegative, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, Draws, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.estimation.reports import LARGEST
from fedroster.optimization.ranking import cut_for, greatest, ranked
from fedroster.queues import empty_queues, queue_step, snap_rate

CITATION = """@article{xia2020csucb,
  author  = {Xia, Wenchao and Quek, Tony Q. S. and Guo, Kun and Wen, Wanli and Yang, Howard H. and Zhu, Hongbo},
  title   = {Multi-Armed Bandit-Based Client Scheduling for Federated Learning},
  journal = {IEEE Transactions on Wireless Communications},
  year    = {2020},
  doi     = {10.1109/TWC.2020.3008091}
}"""


@dataclass(frozen=True, slots=True)
class CSUCBState:
    """What CS-UCB knows: 40 bytes a client.

    Attributes:
        longest_s: tau_max if it is given, else the greatest time so far, seconds; 0 for none.
        plays: Rounds in which each client was chosen, shape (clients,).
        answers: Rounds whose outcome is known, shape (clients,), <= ``plays``.
        measured: Rounds whose time is known, shape (clients,), <= ``answers``.
        total_s: Sum of those times, shape (clients,), seconds.
        backlog: Virtual queues D, shape (clients,), rounds owed.
    """

    longest_s: float = kept(0.0)
    plays: IntArray = per_client(least=0, most="round")
    answers: IntArray = per_client(least=0, most="round")
    measured: IntArray = per_client(least=0, most="round")
    total_s: FloatArray = per_client(least=0.0)
    backlog: FloatArray = per_client(least=0.0, most=2.0**53)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        if (self.measured > self.answers).any() or (self.answers > self.plays).any():
            return "more answers than plays, or more times than answers"
        return ""


def mean_reward(answers: IntArray, measured: IntArray, total_s: FloatArray, longest_s: float) -> FloatArray:
    r"""Mean reward :math:`\bar y_k` of each client, where a round's reward is :math:`1 - \tau_k / \tau_{\max}`.

    A round without a time, a drop-out or a failure, has reward 0, that of the longest time.

    Args:
        answers: Rounds whose outcome is known, shape (n,).
        measured: Rounds whose time is known, shape (n,).
        total_s: Sum of those times, shape (n,), seconds.
        longest_s: tau_max, seconds, no time being longer; 0 if there are no times.

    Returns:
        Shape (n,), in [0, 1]; 0 where no outcome is known.
    """
    if longest_s == 0.0:
        return np.zeros(answers.shape[0])
    return np.maximum(measured - total_s / longest_s, 0.0) / np.maximum(answers, 1)


def upper_bounds(reward: FloatArray, plays: IntArray, *, round: int, num_chosen: int | None = None) -> FloatArray:
    r"""Upper confidence bounds of the mean rewards.

    CS-UCB: :math:`\bar y_k + \sqrt{(m + 1) \ln t / z_k}`, infinite for a client that was never chosen, so that each
    is chosen once first.  CS-UCB-Q: :math:`\min\{\bar y_k + \sqrt{2 \ln t / z_k},\ 1\}`, 1 for such a client.

    Args:
        reward: Mean rewards, shape (n,), in [0, 1].
        plays: z, shape (n,).
        round: t >= 1.
        num_chosen: m of CS-UCB; None for CS-UCB-Q.

    Returns:
        Shape (n,).
    """
    factor = 2.0 if num_chosen is None else num_chosen + 1.0
    bound = reward + np.sqrt(factor * math.log(round) / np.maximum(plays, 1))
    if num_chosen is None:
        return np.where(plays == 0, 1.0, np.minimum(bound, 1.0))
    return np.where(plays == 0, np.inf, bound)


@dataclass(frozen=True, slots=True)
class CSUCB(ForOneServer):
    r"""Chooses the clients of the greatest index: optimistic about their speed, and with the longest queues.

    CS-UCB-Q (``queues``) maximises over the available clients

    .. math:: \sum_{k \in S} (1 - \beta)\,\hat y_k + \beta D_k, \qquad D_k \gets [D_k + c_k - b_k]^+

    where b is 1 for the clients that were chosen.  CS-UCB (without) is for clients that are always there
    and alike in their data: it chooses every client once, then those of the greatest upper bound.

    Guarantee: CS-UCB's regret grows with ln t; CS-UCB-Q's queues are mean-rate stable if the shares c can be had at
    all, and its regret has a part that grows with t for beta > 0.  Both for rewards that are summed over clients,
    though the round lasts until the slowest.  Cost: O(N).

    Attributes:
        queues: CS-UCB-Q if true, else CS-UCB.
        balance: beta, weight of the queues against speed, in [0, 1].
        fairness: Guaranteed share c as a part of the even share m / N, in [0, 1].
        longest_s: tau_max, seconds; longer times count as this.  0 for the greatest time met so far.

    Deviations: tau_max is not known in advance, and past rewards are read again when a greater one is met.  The paper's
    c_k is proportional to the client's data; here it is the same for all.  A drop-out and a failure have reward 0.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "system"

    queues: bool = True
    balance: Share = 0.5
    fairness: Share = 0.5
    longest_s: NotNegative = 0.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> CSUCBState:
        """No client was chosen yet."""
        count = spec.num_clients
        return CSUCBState(
            longest_s=self.longest_s,
            plays=np.zeros(count, np.int64),
            answers=np.zeros(count, np.int64),
            measured=np.zeros(count, np.int64),
            total_s=np.zeros(count),
            backlog=empty_queues(spec),
        )

    def index(self, state: CSUCBState, client: IntArray, *, round: int, cohort_size: int) -> FloatArray:
        """Index of each of some clients, shape (n,)."""
        reward = mean_reward(state.answers[client], state.measured[client], state.total_s[client], state.longest_s)
        plays = state.plays[client]
        if not self.queues:
            return upper_bounds(reward, plays, round=round, num_chosen=cohort_size)
        bound = upper_bounds(reward, plays, round=round)
        return (1.0 - self.balance) * bound + self.balance * state.backlog[client]

    def select(self, state: CSUCBState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose the greatest indices."""
        rows = np.flatnonzero(context.available)
        index = self.index(state, context.clients_of(rows), round=context.round, cohort_size=context.cohort_size)
        return Selection(context.round, rows[greatest(index, context.cohort_size, rng=rng)])

    def explain(self, state: CSUCBState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """What it was owed, if that sets it apart from the others, or how fast it has been."""
        rows, own, chosen = of_client(context, selection, client)
        clients, weight = context.clients_of(rows), self.balance if self.queues else 0.0
        index = self.index(state, clients, round=context.round, cohort_size=context.cohort_size)
        cut, chance = cut_for(index, own, context.cohort_size)
        owed = state.backlog[client]
        is_owed = weight > 0.0 and (owed >= state.backlog[clients].mean()) == chosen
        bound = owed + (cut - index[own][0]) / weight if weight else math.inf
        return ranked(
            "owed" if is_owed else "time", chance, turning("owed", owed, bound, chosen=chosen, favours="more")
        )

    def commit(self, state: CSUCBState, context: RoundContext, selection: Selection, /) -> CSUCBState:
        """Count the plays, and let the queues move on."""
        client = context.clients_of(selection.links)
        state.plays[client] += 1
        if self.queues:
            count = state.plays.shape[0] if context.members is None else int(np.count_nonzero(context.members))
            share = self.fairness * min(context.cohort_size / max(count, 1), 1.0)
            queue_step(state.backlog, beta=snap_rate(share), served=client, members=context.members)
        return state

    def update(self, state: CSUCBState, feedback: Feedback, /) -> CSUCBState:
        """Learn the times."""
        state.answers[feedback.client] += 1
        timed = feedback.observed
        client, time_s = feedback.client[timed], feedback.exchange_time_s[timed]
        time_s = np.minimum(time_s, self.longest_s or LARGEST)
        state.measured[client] += 1
        state.total_s[client] += time_s
        return replace(state, longest_s=max(state.longest_s, float(time_s.max(initial=0.0))))

    def rescale(self, state: CSUCBState, clients: IntArray, factor: FloatArray, /) -> CSUCBState:
        """Multiply the measured times of some clients; tau_max stays."""
        state.total_s[clients] *= factor
        state.answers[clients] -= state.measured[clients] * (factor == 0.0)
        state.measured[clients] *= factor > 0.0
        return state

    def backlog(self, state: CSUCBState, /) -> FloatArray:
        """Virtual queues D, shape (clients,), rounds owed; zeros for CS-UCB, which has none."""
        return state.backlog

    def expected_times_s(self, state: CSUCBState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Mean of each client's measured times, shape (k,), seconds; NaN before the first."""
        measured = state.measured[clients]
        return np.where(measured > 0, state.total_s[clients] / np.maximum(measured, 1), np.nan)
