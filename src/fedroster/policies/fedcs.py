"""FedCS: as many clients as the deadline admits, adapted and as published.

T. Nishio and R. Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
IEEE International Conference on Communications 2019, doi:10.1109/ICC.2019.8761315.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.core.parameters import NotNegative, Positive, Range
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import Draws, ForOneServer, NoState, Stateless

CITATION = """@inproceedings{nishio2019fedcs,
  author    = {Nishio, Takayuki and Yonetani, Ryo},
  title     = {Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge},
  booktitle = {IEEE International Conference on Communications (ICC)},
  year      = {2019},
  doi       = {10.1109/ICC.2019.8761315}
}"""


@dataclass(frozen=True, slots=True)
class FedCS(ForOneServer, Stateless):
    r"""FedCS as Huang et al. 2021 adapts it (section 6.1.1): every client that is expected to be in time.

    .. math:: S_t = \{n : I_{t,n} = 1,\ c_{t,n}^\top \theta_n^* < \text{deadline}\}

    It knows the coefficients, and its cohorts have no fixed size: (4) does not bind it.  Cost: O(N).

    Attributes:
        deadline_s: Seconds, > 0.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    omniscient: ClassVar[bool] = True
    fills_cohort: ClassVar[bool] = False
    refuses_first: ClassVar[bool] = True

    deadline_s: Positive = 3.0

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose every client that is expected to meet the deadline."""
        expected_s = context.require_truth("FedCS").expected_time_s
        return Selection(context.round, np.flatnonzero(context.available & (expected_s < self.deadline_s)))


@njit(cache=True, nogil=True)
def _greedy(update_s, upload_s, distribution_s, overhead_s, deadline_s):
    num_rest = update_s.shape[0]
    rest = np.arange(num_rest)
    chosen = np.empty(num_rest, np.int64)
    num_chosen = 0
    elapsed = 0.0
    while num_rest > 0:
        first = distribution_s if num_chosen == 0 else 0.0
        best, least, finished, soonest = 0, np.inf, np.inf, np.inf
        for i in range(num_rest):
            n = rest[i]
            wait = max(0.0, update_s[n] - elapsed)
            end = elapsed + upload_s[n] + wait
            increment = first + upload_s[n] + wait
            if increment < least:
                best, least, finished = i, increment, end
            soonest = min(soonest, end)
        if not overhead_s + distribution_s + soonest < deadline_s:
            break  # no client fits any more
        n = rest[best]
        # Keeps the order, which is random: ties go to the first.
        for i in range(best, num_rest - 1):
            rest[i] = rest[i + 1]
        num_rest -= 1
        if overhead_s + distribution_s + finished < deadline_s:
            elapsed = finished
            chosen[num_chosen] = n
            num_chosen += 1
    return chosen[:num_chosen]


def greedy_within_deadline(
    update_s: FloatArray,
    upload_s: FloatArray,
    *,
    deadline_s: float,
    distribution_s: float = 0.0,
    overhead_s: float = 0.0,
) -> IntArray:
    r"""Nishio and Yonetani's Algorithm 3: the client that adds least time joins, while the deadline holds.

    Clients update in parallel and upload one after the other.  With :math:`\Theta` the time until the last upload so
    far,

    .. math:: x = \arg\max_k \frac{1}{T^d_{S \cup k} - T^d_S + t^{UL}_k + \max\{0, t^{UD}_k - \Theta\}}

    is removed from the candidates, and joins S if
    :math:`T_{cs} + T^d_{S \cup x} + \Theta + t^{UL}_x + \max\{0, t^{UD}_x - \Theta\} + T_{agg} < T_{round}`.

    Args:
        update_s: Update times t^UD, shape (candidates,), seconds.
        upload_s: Upload times t^UL, shape (candidates,), seconds.
        deadline_s: T_round, seconds.
        distribution_s: T^d of any cohort that is not empty: the model is multicast, seconds.
        overhead_s: T_cs + T_agg, seconds.

    Returns:
        Indices of the cohort in the order of upload.

    Cost: O(N |S|).
    """
    chosen: IntArray = _greedy(update_s, upload_s, distribution_s, overhead_s, deadline_s)
    return chosen


@dataclass(frozen=True, slots=True)
class FedCSGreedy(ForOneServer, Stateless):
    r"""FedCS as published: greedy scheduling of uploads within a deadline (Nishio and Yonetani, Algorithm 3).

    Knows each candidate's update and upload time, from resource reports that are taken to be true.  Sequential uploads
    are the planner's assumption; the simulated round still ends with its slowest client, as (1) says.
    Cost: :math:`O(N\,|S|)`.

    Attributes:
        deadline_s: T_round, seconds, > 0.
        fraction: C: this share of all clients, rounded up, is asked for resources each round, in (0, 1].
        distribution_s: T^d, seconds, >= 0.
        overhead_s: T_cs + T_agg, seconds, >= 0.
    """

    citation: ClassVar[str] = CITATION
    omniscient: ClassVar[bool] = True
    fills_cohort: ClassVar[bool] = False
    refuses_first: ClassVar[bool] = True

    deadline_s: Positive = 10.0
    fraction: Annotated[float, Range(above=0.0, most=1.0)] = 1.0
    distribution_s: NotNegative = 0.0
    overhead_s: NotNegative = 0.0

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Ask a random share of the clients, then schedule those that answer."""
        truth = context.require_truth("FedCSGreedy")
        num_asked = math.ceil(self.fraction * context.num_links - 1e-9)
        asked = rng.permutation(context.num_links)[:num_asked]
        candidates = asked[context.available[asked]]
        upload_s = truth.expected_upload_s[candidates]
        update_s = truth.expected_time_s[candidates] - upload_s
        chosen = greedy_within_deadline(
            update_s,
            upload_s,
            deadline_s=self.deadline_s,
            distribution_s=self.distribution_s,
            overhead_s=self.overhead_s,
        )
        return Selection(context.round, np.sort(candidates[chosen]))
