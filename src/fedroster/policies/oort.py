"""Oort: guided participant selection (Algorithm 1).

F. Lai, X. Zhu, H. V. Madhyastha and M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant
Selection", OSDI 2021, arXiv:2010.06081.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.parameters import Column, Count, Natural, NotNegative, Positive, Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.estimation.utility import PacerState, client_utility, pace, preferred_time_s, statistical_utility, tell
from fedroster.optimization.ranking import fill_up, greatest, sample_above, sample_by_weight
from fedroster.policies.size_weighted import check_feature

CITATION = """@inproceedings{lai2021oort,
  author    = {Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf},
  title     = {Oort: Efficient Federated Learning via Guided Participant Selection},
  booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)},
  year      = {2021},
  eprint    = {2010.06081},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class OortState:
    """What Oort knows: 41 bytes a client.

    Attributes:
        pacer: The pacer.
        exploration: Share epsilon of the last cohort that explored, in [0, 1].
        utility: Statistical utility, shape (clients,), >= 0; 0 where it is not known.
        time_s: Exchange time that was measured last, shape (clients,), seconds; 0 for none.
        last: Round of the last participation that is known, shape (clients,); 0 for a client not yet explored.
        measured: Round in which ``utility`` and ``time_s`` were measured, shape (clients,).
        count: Participations, shape (clients,).
        exploited: Whether each client's last participation exploited what was known, shape (clients,).
    """

    pacer: PacerState
    exploration: float = kept(0.0, 1.0)
    utility: FloatArray = per_client(least=0.0)
    time_s: FloatArray = per_client(least=0.0)
    last: IntArray = per_client(least=0, most="round")
    measured: IntArray = per_client(least=0, most="round")
    count: IntArray = per_client(least=0, most="round")
    exploited: BoolArray = per_client(least=0)


@dataclass(frozen=True, slots=True)
class Oort(ForOneServer):
    r"""Exploits clients of great utility, statistical and of speed, and explores fast ones.

    Each round (Algorithm 1): the pacer sets the preferred duration T; explored clients get their utility
    (:func:`~fedroster.estimation.utility.client_utility`); of the best, :math:`k = \lfloor (1-\epsilon) m \rfloor` are
    sampled by utility (:func:`~fedroster.optimization.ranking.sample_above`); the rest of the cohort is sampled by
    speed among the fastest clients that were never explored; places that remain are filled at random.

    Guarantee: none; the paper's is empirical.  Cost: O(N), no sorting.

    Attributes:
        exploration: First share epsilon of a cohort that explores, in [0, 1].
        exploration_decay: Factor on epsilon after each round, in (0, 1].
        exploration_min: Least epsilon, in [0, 1].
        pacer_step: W, rounds between two looks of the pacer, >= 1.
        pacer_delta: Delta, step of the pacer, percent, > 0.
        percentile: First percentile of the measured times that rounds should keep to, in (0, 100]; 100 for any time.
        penalty: alpha >= 0, exponent of the penalty for slower clients.
        clip: Utilities above this share of them are clipped, in [0, 1].
        cut_off: c, share of the cut-off utility that candidates need, in [0, 1].
        sample_window: Explorers are sampled among this many times as many clients as are needed, >= 1.
        max_participations: Clients with more participations are left out ("blacklisted"), as outliers may be among
            those of greatest loss; 0 for no limit.
        max_left_out: At most this share of the clients is left out, in [0, 1].
        slowness_feature: Column of the context that grows with a client's time, such as 1/mu of Huang et al. 2021:
            speed is its inverse.  -1 explores at random.

    Deviations: defaults are the paper's where it prints them, else those of the authors' code (FedScale:
    ``percentile`` 30, ``pacer_delta`` 5, ``sample_window`` 5).  The code explores by registered sizes and emulated
    times; here a context stands for what is known of a client before its first round.  Of a client that dropped out or
    failed, nothing is learned but that it took part.  Without losses, all explored clients have the same
    statistical utility, and time and staleness decide.
    """

    citation: ClassVar[str] = CITATION
    wants_losses: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "drawn"

    exploration: Share = 0.9
    exploration_decay: Annotated[float, Range(above=0.0, most=1.0)] = 0.98
    exploration_min: Share = 0.2
    pacer_step: Count = 20
    pacer_delta: Positive = 5.0
    percentile: Annotated[float, Range(above=0.0, most=100.0)] = 30.0
    penalty: NotNegative = 2.0
    clip: Share = 0.95
    cut_off: Share = 0.95
    sample_window: Annotated[float, Range(least=1.0)] = 5.0
    max_participations: Natural = 0
    max_left_out: Share = 0.3
    slowness_feature: Column = 0

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, and a column that contexts do not have."""
        ForOneServer.check(self, spec)
        check_feature("slowness_feature", self.slowness_feature, spec)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> OortState:
        """No client is explored yet."""
        count = spec.num_clients
        return OortState(
            utility=np.zeros(count),
            time_s=np.zeros(count),
            last=np.zeros(count, np.int64),
            measured=np.zeros(count, np.int64),
            count=np.zeros(count, np.int64),
            exploited=np.zeros(count, np.bool_),
            exploration=self.exploration,
            pacer=PacerState(self.percentile, 0.0, 0, 0.0, 0.0),
        )

    def _exploration_after(self, state: OortState, context: RoundContext) -> float:
        """Epsilon of this round; none once every member is explored."""
        explored = state.last > 0
        if context.members is not None:
            explored |= ~context.members
        if explored.all():
            return 0.0
        return max(state.exploration * self.exploration_decay, self.exploration_min)

    def _left_out(self, state: OortState, context: RoundContext, *, rng: Generator) -> BoolArray:
        """Members that took part too often, at most this share of them, shape (clients,)."""
        here = np.ones_like(state.exploited) if context.members is None else context.members
        count = state.count * here
        out: BoolArray = count > self.max_participations
        most = int(self.max_left_out * np.count_nonzero(here) + 1e-9)  # 0.29 x 100 is 29, and not less
        if np.count_nonzero(out) > most:
            out[:] = False
            out[greatest(count, most, rng=rng)] = True
        return out

    def _places(self, state: OortState, context: RoundContext, old: IntArray, new: IntArray) -> tuple[int, int]:
        """How many explored clients are exploited, and how many new ones explored."""
        epsilon = self._exploration_after(state, context)
        num_exploit = min(int(context.cohort_size * (1.0 - epsilon) + 1e-9), old.shape[0])
        return num_exploit, min(new.shape[0], context.cohort_size - num_exploit)

    def _score(self, state: OortState, context: RoundContext, client: IntArray) -> FloatArray:
        """Utility of explored clients, shape (k,)."""
        paced = pace(state.pacer, context.round, step=self.pacer_step, delta=self.pacer_delta)
        known = state.utility[client], state.time_s[client], state.last[client]
        preferred_s = preferred_time_s(state.time_s, paced.percentile)
        return client_utility(
            *known, round=context.round, preferred_s=preferred_s, penalty=self.penalty, clip=self.clip
        )

    def select(self, state: OortState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Algorithm 1, SelectParticipant."""
        rows = np.flatnonzero(context.available)
        if rows.shape[0] <= context.cohort_size:
            return Selection(context.round, rows)
        if self.max_participations:
            rows = rows[~self._left_out(state, context, rng=rng)[context.clients_of(rows)]]
        explored = state.last[context.clients_of(rows)] > 0
        old, new = rows[explored], rows[~explored]
        chosen = np.zeros(context.num_links, np.bool_)

        num_exploit, num_explore = self._places(state, context, old, new)
        if num_exploit:
            score = self._score(state, context, context.clients_of(old))
            chosen[old[sample_above(score, num_exploit, cut_off=self.cut_off, rng=rng)]] = True
        if num_explore:
            chosen[new[self._explore(context, new, num_explore, rng=rng)]] = True
        fill_up(chosen, rows, context.cohort_size, rng=rng)
        fill_up(chosen, np.flatnonzero(context.available), context.cohort_size, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen))

    def _explore(self, context: RoundContext, rows: IntArray, size: int, *, rng: Generator) -> IntArray:
        """Sample by speed among the fastest; positions in ``rows``."""
        known = self.slowness_feature >= 0
        slowness = context.features[rows, self.slowness_feature] if known else np.ones(rows.shape[0])
        speed: FloatArray = 1.0 / np.maximum(slowness, np.finfo(np.float64).tiny)
        fastest = greatest(speed, math.ceil(self.sample_window * size - 1e-9), rng=rng)
        return fastest[sample_by_weight(speed[fastest], size, rng=rng)]

    def commit(self, state: OortState, context: RoundContext, selection: Selection, /) -> OortState:
        """Note the exploited clients, and let the pacer and epsilon move on."""
        client = context.clients_of(selection.links)
        state.exploited[client] = state.last[client] > 0
        state.count[client] += 1
        return replace(
            state,
            exploration=self._exploration_after(state, context),
            pacer=pace(state.pacer, context.round, step=self.pacer_step, delta=self.pacer_delta),
        )

    def update(self, state: OortState, feedback: Feedback, /) -> OortState:
        """UpdateWithFeedback: statistical utility, time and round of the last participation."""
        client, round, utility = feedback.client, feedback.round, statistical_utility(feedback)
        newest = round >= state.measured[client]
        state.last[client] = np.maximum(state.last[client], round)
        timed, known = newest & feedback.observed, newest & ~np.isnan(utility)
        state.time_s[client[timed]] = feedback.exchange_time_s[timed]
        state.utility[client[known]] = utility[known]
        state.measured[client[timed | known]] = round
        return replace(state, pacer=tell(state.pacer, utility[~np.isnan(utility) & state.exploited[client]]))

    def expected_times_s(self, state: OortState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Time of each client that was measured last, shape (k,), seconds; NaN before the first."""
        time_s = state.time_s[clients]
        return np.where(time_s > 0.0, time_s, np.nan)
