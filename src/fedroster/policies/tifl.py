"""TiFL: cohorts from one tier of clients that are about equally fast.

Z. Chai, A. Ali, S. Zawad, S. Truex, A. Anwar, N. Baracaldo, Y. Zhou, H. Ludwig, F. Yan and Y. Cheng, "TiFL: A
Tier-based Federated Learning System", HPDC 2020, doi:10.1145/3369583.3392686.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, Natural, NotNegative
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.core.streams import Streams
from fedroster.estimation.reports import LARGEST, learn_losses
from fedroster.optimization.ranking import cut_for, greatest, ranked

CITATION = """@inproceedings{chai2020tifl,
  author    = {Chai, Zheng and Ali, Ahsan and Zawad, Syed and Truex, Stacey and Anwar, Ali and Baracaldo, Nathalie
               and Zhou, Yi and Ludwig, Heiko and Yan, Feng and Cheng, Yue},
  title     = {{TiFL}: A Tier-based Federated Learning System},
  booktitle = {International Symposium on High-Performance Parallel and Distributed Computing (HPDC)},
  year      = {2020},
  doi       = {10.1145/3369583.3392686}
}"""

_NO_TIER = -1
_UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class TiFLState:
    """What TiFL knows.

    Attributes:
        probability: Of each tier to be drawn, fastest first, shape (tiers,).
        credits: Rounds that each tier may still be drawn in, shape (tiers,); -1 for any number.
        tier_loss: Mean loss of each tier at the last look, shape (tiers,); infinite where it is not known.
        current: Tier that was drawn last; -1 for none.
        seed: Of the draws.
        asked: Rounds in which each client was chosen, shape (clients,).
        measured: Rounds in which its time was measured, shape (clients,).
        total_s: Sum of those times, shape (clients,), seconds.
        loss: Loss that it reported last, shape (clients,); infinite before its first report.
        reported: Round of that report, shape (clients,); 0 for none.
    """

    probability: FloatArray = kept(0.0, 1.0)
    credits: IntArray = kept(-1)
    tier_loss: FloatArray = kept(-math.inf, infinite=True)
    current: int = kept(-1)
    seed: int = kept(0, 2**62)
    asked: IntArray = per_client(least=0, most="round")
    measured: IntArray = per_client(least=0, most="round")
    total_s: FloatArray = per_client(least=0.0)
    loss: FloatArray = per_client(least=-math.inf, infinite=True)
    reported: IntArray = per_client(least=0, most="round")

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        if self.current >= self.probability.shape[0]:
            return f"tier {self.current} was drawn of {self.probability.shape[0]}"
        if not self.probability.any() or (self.measured > self.asked).any():
            return "no tier can be drawn, or a client was measured more often than asked"
        return ""


def tiers_of(measured: IntArray, total_s: FloatArray, num_tiers: int) -> IntArray:
    """Divide clients into tiers of equal size by their mean times, the fastest first.

    Args:
        measured: Rounds in which each client's time was measured, shape (clients,).
        total_s: Sum of those times, shape (clients,), seconds.
        num_tiers: Number of tiers T >= 1.

    Returns:
        Tier of each client, shape (clients,), in [0, T); -1 for clients without a time.  Equal times share a tier, and
        with fewer clients than tiers, tiers are empty.
    """
    tier = np.full(measured.shape[0], _NO_TIER, np.int64)
    known = np.flatnonzero(measured)
    if known.shape[0]:
        mean_s = total_s[known] / measured[known]
        ends = np.unique(known.shape[0] * np.arange(1, num_tiers) // num_tiers)
        starts = np.partition(mean_s, ends)[ends]
        tier[known] = np.searchsorted(starts, mean_s, side="right")
    return tier


def mean_losses(tier: IntArray, loss: FloatArray, num_tiers: int) -> FloatArray:
    """Mean of the losses that are known, of each tier, shape (tiers,); infinite where none is.

    Args:
        tier: Tier of each client, shape (clients,); -1 for none.
        loss: Loss of each client, shape (clients,); infinite where it is not known.
        num_tiers: Number of tiers T.
    """
    known = np.flatnonzero((tier >= 0) & (loss < np.inf))
    count = np.bincount(tier[known], minlength=num_tiers)
    total = np.bincount(tier[known], loss[known], minlength=num_tiers)
    return np.where(count > 0, total / np.maximum(count, 1), np.inf)


def changed_probabilities(tier_loss: FloatArray, has_credits: BoolArray) -> FloatArray:
    r"""ChangeProbs: of n tiers with credits, the i-th worst is drawn with :math:`(n - i) / D`, i from 0.

    .. math:: D = n (n + 1) / 2

    Args:
        tier_loss: Mean loss of each tier, shape (tiers,); the greatest is the worst.
        has_credits: Whether each tier may be drawn, shape (tiers,).

    Returns:
        Shape (tiers,); 0 without credits.
    """
    ranked = np.argsort(-tier_loss, kind="stable")
    ranked = ranked[has_credits[ranked]]
    count = ranked.shape[0]
    probability = np.zeros(tier_loss.shape[0])
    probability[ranked] = np.arange(count, 0, -1) / max(count * (count + 1) / 2, 1.0)
    return probability


@dataclass(frozen=True, slots=True)
class TiFL(ForOneServer):
    r"""Draws a tier, then a random cohort of it: no round waits for clients that are much slower.

    Clients are profiled first: those that took part in fewer than ``profile_rounds`` rounds go first.  By their mean
    times they make ``tiers`` tiers of equal size.  A round draws a tier with the tiers' probabilities
    among those with credits, and m of its clients at random; a draw costs a credit.  Every ``interval`` rounds, if the
    tier drawn last has not improved since the last look, the probabilities change in favour of tiers that the model
    serves badly (:func:`changed_probabilities`).

    With ``adaptive`` false, ``probabilities`` stay: (0.7, 0.1, 0.1, 0.05, 0.05) is the paper's "random" policy, (1, 0,
    0, 0, 0) its "fast", equal ones its "uniform".

    Guarantee: none.  Credits bound how often a tier is drawn, and so how long training takes.  Cost: O(N).

    Attributes:
        tiers: Number of tiers T, >= 1.
        profile_rounds: Rounds that profile a client, >= 1.  N clients take N / m times as many rounds.
        probabilities: Of the tiers, fastest first, T numbers >= 0 that are not all 0; () for equal ones.
        credits: Rounds in which each tier may be drawn, T integers >= 0; () for any number.
        adaptive: Whether probabilities change.
        interval: I, rounds between two looks, >= 1.

    Deviations: the paper profiles before training, with rounds of their own; here profiling rounds train too, and times
    that are measured later move clients between tiers.  It compares the tiers by accuracy on test data that clients
    hold; here by the losses that clients report, of the models that they were sent in the round in which they last took
    part, and a tier without a loss counts as the worst.  Without losses, the probabilities stay.  Clients
    that never answered belong to no tier and are chosen last.  A tier with fewer than m available clients is filled up
    from the nearest ones, the faster first.  When no available tier has credits left, credits no longer count.
    """

    citation: ClassVar[str] = CITATION
    wants_losses: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True

    tiers: Count = 5
    profile_rounds: Count = 1
    probabilities: tuple[NotNegative, ...] = ()
    credits: tuple[Natural, ...] = ()
    adaptive: bool = True
    interval: Count = 20

    def __post_init__(self) -> None:
        """Check the ranges, and that there are as many numbers as tiers."""
        ForOneServer.__post_init__(self)
        for name in ("probabilities", "credits"):
            values = getattr(self, name)
            if values and len(values) != self.tiers:
                raise ConfigurationError(f"{name} are {values!r}; expected {self.tiers} numbers, one for each tier")
        if self.probabilities and sum(self.probabilities) <= 0.0:
            raise ConfigurationError(f"probabilities are {self.probabilities!r}; expected one > 0")

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> TiFLState:
        """No client is profiled yet."""
        count = spec.num_clients
        probability = np.array(self.probabilities or [1.0] * self.tiers, np.float64)
        return TiFLState(
            asked=np.zeros(count, np.int64),
            measured=np.zeros(count, np.int64),
            total_s=np.zeros(count),
            loss=np.full(count, np.inf),
            reported=np.zeros(count, np.int64),
            probability=probability / probability.sum(),
            credits=np.array(self.credits or [_UNLIMITED] * self.tiers, np.int64),
            tier_loss=np.full(self.tiers, np.inf),
            current=_NO_TIER,
            seed=int(rng.integers(2**62)),
        )

    def _look(self, state: TiFLState, tier: IntArray, round: int) -> TiFLState:
        """The state with the probabilities and losses of the tiers in a round."""
        if not self.adaptive or round % self.interval:
            return state
        tier_loss = mean_losses(tier, state.loss, self.tiers)
        worse = state.current != _NO_TIER and tier_loss[state.current] >= state.tier_loss[state.current]
        if not worse or np.isinf(tier_loss).all():
            return replace(state, tier_loss=tier_loss)
        has_credits = (state.credits != 0) | (state.credits == 0).all()  # if none has any, credits no longer count
        return replace(state, tier_loss=tier_loss, probability=changed_probabilities(tier_loss, has_credits))

    def _plan(self, state: TiFLState, context: RoundContext) -> tuple[IntArray, BoolArray, IntArray, int, TiFLState]:
        """Everything but the cohort; its draw comes from the state, so that booking finds the same tier.

        Returns:
            Available rows, whether each is yet to be profiled, their ranks (from the drawn tier outwards, the faster
            neighbour first, without a tier last), the tier that is drawn, and the state after the look.
        """
        rows = np.flatnonzero(context.available)
        client = context.clients_of(rows)
        fresh = state.asked[client] < self.profile_rounds
        everybody = tiers_of(state.measured, state.total_s, self.tiers)
        tier, drawn, state = everybody[client], _NO_TIER, self._look(state, everybody, context.round)
        there = np.bincount(tier[~fresh & (tier >= 0)], minlength=self.tiers) > 0
        if np.count_nonzero(fresh) < context.cohort_size and there.any():
            weight: FloatArray = there * state.probability * (state.credits != 0)
            for otherwise in (there * state.probability, there.astype(np.float64)):
                weight = weight if weight.any() else otherwise
            rng = Streams(state.seed).at("tier", context.round)
            drawn = int(rng.choice(self.tiers, p=weight / weight.sum()))
        rank: IntArray = -2 * np.abs(tier - drawn) + (tier < drawn)
        rank[tier == _NO_TIER] = -2 * self.tiers - 1
        rank[fresh] = 1 + self.profile_rounds - state.asked[client[fresh]]
        return rows, fresh, rank, drawn, state

    def select(self, state: TiFLState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw a cohort of the tier."""
        rows, _, rank, _, _ = self._plan(state, context)
        return Selection(context.round, rows[greatest(rank, context.cohort_size, rng=rng)])

    def explain(self, state: TiFLState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """Whether it is profiled yet, how far its tier is from the drawn one, or chance within a tier."""
        _, fresh, rank, _, _ = self._plan(state, context)
        _, own, chosen = of_client(context, selection, client)
        cut, chance = cut_for(rank, own, context.cohort_size)
        bound = -math.inf if chosen and cut < 2.0 else 1.0 + self.profile_rounds - max(cut, 1.0)
        limits = turning("chosen", state.asked[client], bound, chosen=chosen, favours="less")
        return ranked("turn" if fresh[own][0] or cut >= 2.0 else "tier", chance, limits)

    def commit(self, state: TiFLState, context: RoundContext, selection: Selection, /) -> TiFLState:
        """Count the asked clients and the credit; keep the look."""
        _, _, _, drawn, looked = self._plan(state, context)
        state.asked[context.clients_of(selection.links)] += 1
        if drawn == _NO_TIER:
            return looked
        state.credits[drawn] -= state.credits[drawn] > 0
        return replace(looked, current=drawn)

    def update(self, state: TiFLState, feedback: Feedback, /) -> TiFLState:
        """Learn times, and each client's latest loss."""
        state.measured[feedback.client] += feedback.observed
        state.total_s[feedback.client] += np.where(feedback.observed, np.fmin(feedback.exchange_time_s, LARGEST), 0.0)
        learn_losses(state.loss, state.reported, feedback)
        return state

    def rescale(self, state: TiFLState, clients: IntArray, factor: FloatArray, /) -> TiFLState:
        """Multiply the measured times of some clients."""
        state.total_s[clients] *= factor
        state.measured[clients] *= factor > 0.0
        return state

    def expected_times_s(self, state: TiFLState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Mean of each client's measured times, shape (k,), seconds; NaN before the first."""
        return state.total_s[clients] / np.where(state.measured[clients] > 0, state.measured[clients], np.nan)
