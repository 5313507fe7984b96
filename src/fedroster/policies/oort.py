"""Oort: guided participant selection (Algorithm 1).

F. Lai, X. Zhu, H. V. Madhyastha and M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant
Selection", OSDI 2021, arXiv:2010.06081.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.state import per_client
from fedroster.estimation.reports import LARGEST
from fedroster.optimization.ranking import greatest, sample_by_weight
from fedroster.policies.size_weighted import check_feature
from fedroster.queues import check_flat

CITATION = """@inproceedings{lai2021oort,
  author    = {Lai, Fan and Zhu, Xiangfeng and Madhyastha, Harsha V. and Chowdhury, Mosharaf},
  title     = {Oort: Efficient Federated Learning via Guided Participant Selection},
  booktitle = {USENIX Symposium on Operating Systems Design and Implementation (OSDI)},
  year      = {2021},
  eprint    = {2010.06081},
  archivePrefix = {arXiv}
}"""

_LEAST_RANGE = 1e-4  # of utilities, as in the authors' code: equal ones must not divide by zero


@dataclass(frozen=True, slots=True)
class PacerState:
    """The pacer: how long a round may take before clients are penalised for it.

    Attributes:
        percentile: The preferred duration is this percentile of the measured times, in percent; from 100 on, none is.
        total: Utility of this round's exploited clients so far.
        num_reports: How many of them have reported.
        window: Sum of the rounds' mean utilities since the last look.
        previous: The same of the window before.
    """

    percentile: float
    total: float
    num_reports: int
    window: float
    previous: float


@dataclass(frozen=True, slots=True)
class OortState:
    """What Oort knows: 41 bytes a client.

    Attributes:
        exploration: Share epsilon of the last cohort that explored, in [0, 1].
        pacer: The pacer.
        utility: Statistical utility, shape (clients,), >= 0; 0 where it is not known.
        time_s: Exchange time that was measured last, shape (clients,), seconds; 0 for none.
        last: Round of the last participation that is known, shape (clients,); 0 for a client not yet explored.
        measured: Round in which ``utility`` and ``time_s`` were measured, shape (clients,).
        count: Participations, shape (clients,).
        exploited: Whether each client's last participation exploited what was known, shape (clients,).
    """

    exploration: float
    pacer: PacerState
    utility: FloatArray = per_client()
    time_s: FloatArray = per_client()
    last: IntArray = per_client()
    measured: IntArray = per_client()
    count: IntArray = per_client()
    exploited: BoolArray = per_client()


def statistical_utility(feedback: Feedback) -> FloatArray:
    r"""Statistical utility of the paper.

    .. math:: U_i = |B_i| \sqrt{\frac{1}{|B_i|} \sum_{k \in B_i} \mathrm{Loss}(k)^2}

    Args:
        feedback: With the mean of squared losses, or at least with the mean loss, which takes the root's place: a lower
            bound of it, and equal to it when all samples have the same loss.  Without sample counts, :math:`|B_i|` is
            1.

    Returns:
        Shape (k,); NaN where no loss is known.
    """
    root = np.full(feedback.client.shape[0], np.nan)
    if feedback.loss is not None:
        root = np.abs(feedback.loss)
    if feedback.squared_loss is not None:
        root = np.where(np.isnan(feedback.squared_loss), root, np.sqrt(feedback.squared_loss))
    utility: FloatArray = np.minimum(root, LARGEST)
    if feedback.num_samples is not None:
        utility *= np.where(np.isnan(feedback.num_samples), 1.0, np.minimum(feedback.num_samples, LARGEST))
    return utility


def value_at(values: FloatArray, share: float) -> float:
    """Entry number ``floor(share * n)`` of n sorted values, counted from 0, or the last: the authors' percentile.

    Args:
        values: Shape (n,), n >= 1.
        share: In [0, 1].
    """
    place = min(int(values.shape[0] * share), values.shape[0] - 1)
    return float(np.partition(values, place)[place])


def client_utility(
    utility: FloatArray,
    time_s: FloatArray,
    last: IntArray,
    *,
    round: int,
    preferred_s: float,
    penalty: float,
    clip: float,
) -> FloatArray:
    r"""Utility of explored clients (Algorithm 1; the scale of U is the authors' code's).

    .. math::
        \mathrm{Util}(i) = \left( \frac{\min(U_i, U_{\text{clip}}) - U_{\min}}{U_{\max} - U_{\min}}
        + \sqrt{\frac{0.1 \ln R}{L(i)}} \right)
        \times \left( \frac{T}{D(i)} \right)^{\mathbf 1(T < D(i))\, \alpha}

    with :math:`U_{\min}` less 0.1 % of it, so that nobody is worth nothing.

    Args:
        utility: Statistical utilities U, shape (n,), n >= 1; 0 where it is not known, which stands for the mean of
            those that are.
        time_s: Times D, shape (n,), seconds; 0 where none is known, which is not penalised.
        last: Round L of each client's last participation, shape (n,), >= 1.
        round: R >= 1.
        preferred_s: T, seconds, > 0; infinite for no preference.
        penalty: alpha >= 0.
        clip: Share of utilities below the clipping value, in [0, 1].

    Returns:
        Shape (n,), >= 0.
    """
    known = utility > 0.0
    num_known = int(np.count_nonzero(known))
    if num_known == 0:
        score = np.zeros(utility.shape[0])
    else:
        if num_known < utility.shape[0]:
            utility = np.where(known, utility, utility.sum() / num_known)
        least = 0.999 * float(utility.min())
        spread = max(float(utility.max()) - least, _LEAST_RANGE)
        score = np.minimum(utility, value_at(utility, clip))
        score -= least
        score /= spread
    score += np.sqrt(0.1 * math.log(round) / last)
    if preferred_s < math.inf:
        slow = np.flatnonzero(time_s > preferred_s)
        score[slow] *= (preferred_s / time_s[slow]) ** penalty
    return score


def exploit(score: FloatArray, size: int, *, cut_off: float, rng: Generator) -> IntArray:
    """Sample by utility among those above the cut-off (Algorithm 1); positions, ascending.

    Args:
        score: Utility of each explored client, shape (n,), >= 0.
        size: How many are sampled, in [1, n].
        cut_off: c, in [0, 1]: candidates have at least c times the utility of the first that would not be among the
            best ``size``, or of the last if there is none.
        rng: Samples.
    """
    place = max(score.shape[0] - 1 - size, 0)
    candidates = np.flatnonzero(score >= cut_off * float(np.partition(score, place)[place]))
    return candidates[sample_by_weight(score[candidates], size, rng=rng)]


def pace(state: PacerState, round: int, *, step: int, delta: float) -> PacerState:
    r"""The pacer's look back at the start of a round (Algorithm 1).

    As the authors' code has it: every W rounds, the utilities that exploitation brought in the last W rounds are
    compared with those of the W rounds before.  If they differ by at most a tenth, patience buys more: the percentile
    grows by Delta.  If they differ by at least five times as much as there was, it falls by Delta.

    Args:
        state: The pacer after the feedback of the last round.
        round: R >= 1.
        step: W >= 1, rounds.
        delta: Delta > 0, percent.

    Deviations: the paper's T is in seconds, grows by a fixed step and only when the utility falls; a percentile needs
    no scale, and it is what the authors run.  As long as no utility is known, the pacer rests.
    """
    window = state.window + (state.total / state.num_reports if state.num_reports else 0.0)
    percentile, previous = state.percentile, state.previous
    if round % step == 0:
        change = abs(window - previous)
        if round >= 2 * step and previous > 0.0:
            if change <= 0.1 * previous:
                percentile = min(100.0, percentile + delta)
            elif change >= 5.0 * previous:
                percentile = max(delta, percentile - delta)
        window, previous = 0.0, window
    return PacerState(percentile, 0.0, 0, window, previous)


@dataclass(frozen=True, slots=True)
class Oort:
    r"""Exploits clients of great utility, statistical and of speed, and explores fast ones.

    Each round (Algorithm 1): the pacer sets the preferred duration T; explored clients get their utility
    (:func:`client_utility`); of the best, :math:`k = \lfloor (1-\epsilon) m \rfloor` are sampled by utility
    (:func:`exploit`); the rest of the cohort is sampled by speed among the fastest clients that were never explored;
    places that remain are filled at random.

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
    failed, nothing is learned but that it took part.  Where nobody measures losses, all explored clients have the same
    statistical utility, and time and staleness decide.
    """

    citation: ClassVar[str] = CITATION
    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = True
    wants_losses: ClassVar[bool] = True

    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_min: float = 0.2
    pacer_step: int = 20
    pacer_delta: float = 5.0
    percentile: float = 30.0
    penalty: float = 2.0
    clip: float = 0.95
    cut_off: float = 0.95
    sample_window: float = 5.0
    max_participations: int = 0
    max_left_out: float = 0.3
    slowness_feature: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        for name in ("exploration", "exploration_min", "clip", "cut_off", "max_left_out"):
            check_number(name, getattr(self, name), least=0.0, most=1.0)
        check_number("exploration_decay", self.exploration_decay, above=0.0, most=1.0)
        check_number("pacer_delta", self.pacer_delta, above=0.0)
        check_number("percentile", self.percentile, above=0.0, most=100.0)
        check_number("penalty", self.penalty, least=0.0)
        check_number("sample_window", self.sample_window, least=1.0)
        check_integer("pacer_step", self.pacer_step, least=1)
        check_integer("max_participations", self.max_participations, least=0)
        check_integer("slowness_feature", self.slowness_feature, least=-1)

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, and a column that contexts do not have."""
        check_flat("Oort", spec)
        check_feature("slowness_feature", self.slowness_feature, spec)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> OortState:
        """Nobody is explored."""
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

    def preferred_time_s(self, state: OortState, percentile: float) -> float:
        """Preferred duration T: a percentile of the measured times, seconds; infinite if there are none."""
        times_s = state.time_s[state.time_s > 0.0]
        if percentile >= 100.0 or not times_s.shape[0]:
            return math.inf
        return value_at(times_s, percentile / 100.0)

    def _left_out(self, state: OortState, context: RoundContext, *, rng: Generator) -> BoolArray:
        """Clients that took part too often, at most so many, shape (clients,)."""
        out: BoolArray = state.count > self.max_participations
        size = state.count.shape[0] if context.members is None else int(np.count_nonzero(context.members))
        most = int(self.max_left_out * size)
        if np.count_nonzero(out) > most:
            out[:] = False
            out[greatest(state.count, most, rng=rng)] = True
        return out

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

        epsilon = self._exploration_after(state, context)
        num_exploit = min(int(context.cohort_size * (1.0 - epsilon)), old.shape[0])
        if num_exploit:
            client = context.clients_of(old)
            paced = pace(state.pacer, context.round, step=self.pacer_step, delta=self.pacer_delta)
            score = client_utility(
                state.utility[client],
                state.time_s[client],
                state.last[client],
                round=context.round,
                preferred_s=self.preferred_time_s(state, paced.percentile),
                penalty=self.penalty,
                clip=self.clip,
            )
            chosen[old[exploit(score, num_exploit, cut_off=self.cut_off, rng=rng)]] = True
        num_explore = min(new.shape[0], context.cohort_size - num_exploit)
        if num_explore:
            chosen[new[self._explore(context, new, num_explore, rng=rng)]] = True
        self._fill(chosen, rows, context.cohort_size, rng=rng)
        self._fill(chosen, np.flatnonzero(context.available), context.cohort_size, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen))

    def _explore(self, context: RoundContext, rows: IntArray, size: int, *, rng: Generator) -> IntArray:
        """Sample by speed among the fastest; positions in ``rows``."""
        if self.slowness_feature < 0:
            speed = np.ones(rows.shape[0])
        else:
            slowness = context.features[rows, self.slowness_feature]
            speed = 1.0 / np.maximum(slowness, np.finfo(np.float64).tiny)
        fastest = greatest(speed, math.ceil(self.sample_window * size), rng=rng)
        return fastest[sample_by_weight(speed[fastest], size, rng=rng)]

    @staticmethod
    def _fill(chosen: BoolArray, rows: IntArray, size: int, *, rng: Generator) -> None:
        """Choose random ones of ``rows`` for places that remain; ``chosen`` is written to."""
        missing = size - int(np.count_nonzero(chosen))
        if missing > 0:
            rows = rows[~chosen[rows]]
            chosen[rows if rows.shape[0] <= missing else rng.choice(rows, missing, replace=False, shuffle=False)] = True

    def commit(self, state: OortState, context: RoundContext, selection: Selection, /) -> OortState:
        """Note who is exploited, and let the pacer and epsilon move on."""
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
        client, round = feedback.client, feedback.round
        newest = round >= state.measured[client]
        utility = statistical_utility(feedback)
        state.last[client] = np.maximum(state.last[client], round)
        timed = newest & feedback.observed
        state.time_s[client[timed]] = feedback.exchange_time_s[timed]
        known = newest & ~np.isnan(utility)
        state.utility[client[known]] = utility[known]
        state.measured[client[timed | known]] = round
        reports = ~np.isnan(utility) & state.exploited[client]
        pacer = replace(
            state.pacer,
            total=state.pacer.total + float(utility[reports].sum()),
            num_reports=state.pacer.num_reports + int(np.count_nonzero(reports)),
        )
        return replace(state, pacer=pacer)

    def expected_times_s(self, state: OortState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Time of each client that was measured last, shape (k,), seconds; NaN before the first."""
        time_s = state.time_s[clients]
        return np.where(time_s > 0.0, time_s, np.nan)
