"""E3CS: stochastic selection of volatile clients by exponential weights.

T. Huang, W. Lin, L. Shen, K. Li and A. Y. Zomaya, "Stochastic Client Selection for Federated Learning With Volatile
Clients", IEEE Internet of Things Journal 2022, doi:10.1109/JIOT.2022.3172113.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because, of_client
from fedroster.core.parameters import Count, Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import Commits, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.optimization.ranking import sample_systematically

CITATION = """@article{huang2022e3cs,
  author  = {Huang, Tiansheng and Lin, Weiwei and Shen, Li and Li, Keqin and Zomaya, Albert Y.},
  title   = {Stochastic Client Selection for Federated Learning With Volatile Clients},
  journal = {IEEE Internet of Things Journal},
  year    = {2022},
  doi     = {10.1109/JIOT.2022.3172113}
}"""

_PATIENCE = 256
"""Rounds whose feedback is awaited; later feedback is ignored."""

_LEAST = 1e-12  # a client with a smaller probability gains no more than with this one


@dataclass(frozen=True, slots=True)
class E3CSState:
    """What E3CS knows.

    Attributes:
        open_round: Rounds of the chosen clients whose feedback is awaited, ascending, shape (open,).
        open_client: Those clients, shape (open,).
        open_gain: What a success adds to ``log_weight``, shape (open,), >= 0.
        log_weight: Logarithm of each client's weight, shape (clients,).
    """

    open_round: IntArray = kept(1, "round", sized=True)
    open_client: IntArray = kept(0, sized=True)
    open_gain: FloatArray = kept(0.0, sized=True)
    log_weight: FloatArray = per_client(least=-1e300, most=1e300)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        if not self.open_round.shape == self.open_client.shape == self.open_gain.shape:
            return "open rounds, clients and gains differ in length"
        if (self.open_client >= spec.num_clients).any() or (np.diff(self.open_round) < 0).any():
            return "an open client is none, or open rounds do not ascend"
        return ""


def allocate(log_weight: FloatArray, size: int, quota: float) -> tuple[FloatArray, BoolArray]:
    r"""Probability allocation (ProbAlloc of the paper): as the weights say, at least the quota, at most 1.

    .. math::
        p_i = \sigma + (k - K\sigma) \frac{w'_i}{\sum_j w'_j}, \qquad w'_i = \min\{w_i, (1 - \sigma)\,\alpha\}

    with alpha such that no probability exceeds 1: :math:`\alpha / \sum_j w'_j = 1 / (k - K\sigma)` where one would,
    else infinite.  Of the weights in descending order, the first v overflow, where v is the least number with

    .. math:: w_{v+1} \bigl(k - K\sigma - v(1-\sigma)\bigr) \le (1-\sigma) \textstyle\sum_{j > v} w_j,

    which gives alpha exactly.  At most k can overflow, so only the k + 1 greatest weights are sorted.  Sums are taken
    in units of their greatest weight: weights may differ by any factor.

    Args:
        log_weight: Logarithms of w, shape (K,), K > k.
        size: k >= 1.
        quota: sigma, in [0, k / K].

    Returns:
        Probabilities p, shape (K,), whose sum is k; and whether each weight overflows, S of the paper, shape (K,).

    Cost: O(K + k log k).
    """
    count = log_weight.shape[0]
    shared, most = max(size - count * quota, 0.0), 1.0 - quota  # what the weights divide; the most that one gets
    overflow = np.zeros(count, np.bool_)
    if shared <= 0.0:
        return np.full(count, size / count), overflow
    order = np.argpartition(log_weight, count - size - 1)
    rest, top = order[: count - size - 1], order[count - size - 1 :]
    top = top[np.argsort(log_weight[top])[::-1]]
    top_log = log_weight[top]
    # The sum of w_j over j > v in units of w_{v+1}, for v = 0, ..., k; smaller weights are added first.
    tail = 1.0 + np.exp(log_weight[rest] - top_log[-1]).sum() + np.zeros(size + 1)
    for v in range(size - 1, -1, -1):
        tail[v] = 1.0 + tail[v + 1] * math.exp(top_log[v + 1] - top_log[v])
    num_overflow = 0
    left = shared
    while left > most and left > most * tail[num_overflow]:
        num_overflow += 1
        left = shared - num_overflow * most
    overflow[top[:num_overflow]] = True
    inclusion = np.exp(np.minimum(log_weight - top_log[num_overflow], 0.0))
    inclusion *= left / tail[num_overflow]
    inclusion += quota
    inclusion[overflow] = 1.0
    return np.minimum(inclusion, 1.0), overflow


@dataclass(frozen=True, slots=True)
class E3CS(ForOneServer):
    r"""Exponential weights for clients that return their update in time, with a least probability for each client.

    Each round: probabilities p from the weights (:func:`allocate`), a cohort with these inclusion
    probabilities, and for the clients that did not overflow

    .. math::
        \hat x_i = \frac{\mathbf 1(i \in A)\, x_i}{p_i}, \qquad
        w_i \gets w_i \exp\left( \frac{(k - K\sigma)\, \eta\, \hat x_i}{K} \right)

    where x is 1 for an update that came in time.  K counts the clients that are available, k the places, and
    :math:`\sigma = \text{fairness} \times k / K`.

    Guarantee: each available client is chosen with probability at least sigma.  Against the best fixed allocation, the
    paper's regret grows sublinearly for an eta that is chosen for the horizon.  Cost: O(N).

    Attributes:
        fairness: The quota sigma as a share of k / K, in [0, 1]: 0, 0.5 and 0.8 in the paper; 1 is random selection.
        eta: Learning rate, in (0, 1e6].
        schedule: "constant", or "increasing" for the paper's E3CS-inc: sigma is 0 for the first quarter of ``horizon``
            and k / K after it, whatever ``fairness`` is.
        horizon: Number of rounds T of E3CS-inc, >= 1.

    Deviations: the paper draws the cohort without replacement with probabilities proportional to p, which includes a
    client less often than p says where p is great; systematic sampling includes it exactly so often, as the estimate
    :math:`\hat x` assumes.  Feedback that comes more than 256 rounds late is ignored.
    """

    citation: ClassVar[str] = CITATION
    commits: ClassVar[Commits] = "cohort"
    wants_deadline: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "system"

    fairness: Share = 0.5
    eta: Annotated[float, Range(above=0.0, most=1e6)] = 0.5  # far beyond it, probabilities are nothing but rounding
    schedule: Literal["constant", "increasing"] = "constant"
    horizon: Count = 2500

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> E3CSState:
        """All weights are 1."""
        nothing = np.zeros(0, np.int64)
        return E3CSState(nothing, nothing.copy(), np.zeros(0), np.zeros(spec.num_clients))

    def fairness_at(self, round: int) -> float:
        """The quota of a round as a share of k / K."""
        if self.schedule == "constant":
            return self.fairness
        return 0.0 if round <= self.horizon / 4 else 1.0

    def allocation(self, state: E3CSState, context: RoundContext) -> tuple[IntArray, FloatArray, BoolArray, float]:
        """Available rows, their probabilities p, whether they overflow, and the exponent of a success with p = 1."""
        rows = np.flatnonzero(context.available)
        count, size = rows.shape[0], context.cohort_size
        if count <= size:
            return rows, np.ones(count), np.ones(count, np.bool_), 0.0
        quota = self.fairness_at(context.round) * size / count
        probability, overflow = allocate(state.log_weight[context.clients_of(rows)], size, quota)
        return rows, probability, overflow, max(size - count * quota, 0.0) * self.eta / count

    def select(self, state: E3CSState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Sample a cohort with these inclusion probabilities."""
        rows, probability, _, _ = self.allocation(state, context)
        if rows.shape[0] > context.cohort_size:
            rows = rows[sample_systematically(probability, rng=rng)]
        return Selection(context.round, rows)

    def explain(self, state: E3CSState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """Chance decided."""
        _, own, _ = of_client(context, selection, client)
        return Because("drawn", chance=float(self.allocation(state, context)[1][own][0]))

    def commit(self, state: E3CSState, context: RoundContext, selection: Selection, /) -> E3CSState:
        """Note what each chosen client's success is worth."""
        rows, probability, overflow, step = self.allocation(state, context)
        at = np.searchsorted(rows, selection.links)
        gain = np.where(overflow[at], 0.0, step / np.maximum(probability[at], _LEAST))
        kept = state.open_round > context.round - _PATIENCE
        client = context.clients_of(selection.links)
        return replace(
            state,
            open_round=np.concatenate((state.open_round[kept], np.full(client.shape[0], context.round))),
            open_client=np.concatenate((state.open_client[kept], client)),
            open_gain=np.concatenate((state.open_gain[kept], gain)),
        )

    def update(self, state: E3CSState, feedback: Feedback, /) -> E3CSState:
        """Successes raise the weights; a client is in a round once."""
        awaited = np.flatnonzero(state.open_round == feedback.round)
        both = np.intersect1d(state.open_client[awaited], feedback.client, assume_unique=True, return_indices=True)
        client, answered, row = both[0], awaited[both[1]], both[2]
        success = feedback.status[row] == Status.COMPLETED
        state.log_weight[client[success]] += state.open_gain[answered[success]]
        kept = np.ones(state.open_round.shape[0], np.bool_)
        kept[answered] = False
        return replace(
            state,
            open_round=state.open_round[kept],
            open_client=state.open_client[kept],
            open_gain=state.open_gain[kept],
        )
