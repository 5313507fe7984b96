r"""Answers according to a log: which clients send nothing, how long rounds wait, and when the next begins.

A chosen client is lost by itself, at a rate of its own that may grow with the time that it needs, or because it goes
away while it works:

.. math:: P(\text{lost}) = 1 - e^{-h_n (\tau / \bar\tau)^\gamma} (1 - b\,\pi^e), \qquad
    \pi = P(\text{left within } \tau \mid \text{left between two looks})

where :math:`\pi` is read off the log: 0 for a client that is seen again after its exchange would be over, and else
that of an exponential time, with the client's own rate of leaves, between the last look at which it was available and
the first at which it was not.  With e < 1 clients leave sooner than that, as those do whose visits are short or long.
In a federation whose
clients come and go from round to round without a bearing on answers, b is 0; where looks are far apart, clients that
come and go between them show in :math:`\gamma`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedroster.lab.replay.history import History
from fedroster.lab.replay.times import Times
from fedroster.types import BoolArray, FloatArray, IntArray

_SHARES = np.linspace(0.0, 1.0, 41) ** 1.5  # b
_SOONER = np.array([1.0, 0.9, 0.8, 0.7, 0.6])  # e
_LOOKS = 5.0  # that the usual share of leaves is worth
_GROWTHS = (0.0, 0.5, 1.0)  # gamma
_WEIGHTS = np.array([2.0, 5.0, 15.0, 50.0, 200.0, 1e3, 1e5])  # exchanges that what is common to all is worth
_LEAST_WAITS = 5  # rounds that waited for a lost client, before anything is learned of how long


def looks(available: BoolArray) -> IntArray:
    """The first look from each on at which each client is away, shape (rounds, clients); rounds if there is none."""
    num_rounds = available.shape[0]
    away: IntArray = np.where(available, num_rounds, np.arange(num_rounds)[:, None])
    return np.minimum.accumulate(away[::-1])[::-1]


class Leaves:
    """When available clients leave, as far as a log shows it."""

    def __init__(self, history: History) -> None:
        """Read it off."""
        self._at_s, self._away = history.at_s, looks(history.available)
        self._last = history.num_rounds
        # Leaves of each client by the looks at which it was available, drawn towards those of all.
        there = history.available[:-1]
        gone = there & ~history.available[1:]
        usual = (gone.sum() + 0.5) / (there.sum() + 1.0)
        share = (gone.sum(axis=0) + _LOOKS * usual) / (there.sum(axis=0) + _LOOKS)
        gap_s = float(np.diff(history.at_s).mean()) if history.num_rounds > 1 else 1.0
        self._hazard = -np.log1p(-np.minimum(share, 0.999)) / max(gap_s, 1e-9)

    def within(self, index: IntArray | int, client: IntArray, time_s: FloatArray) -> FloatArray:
        """Probability that clients available at a look leave within some time of it, shape (k,)."""
        at_s, away = self._at_s[index], self._away[index, client]
        known = away < self._last
        away = np.minimum(away, self._last - 1)
        begin_s = np.maximum(self._at_s[np.maximum(away - 1, 0)], at_s)
        span_s = np.maximum(self._at_s[away] - begin_s, 1e-9)
        spent_s = np.clip(at_s + time_s - begin_s, 0.0, span_s)
        # A client that leaves often left early: an exponential time, given that it was within the span.
        hazard = np.maximum(self._hazard[client], 1e-9 / span_s)
        return np.where(known, np.expm1(-hazard * spent_s) / np.expm1(-hazard * span_s), 0.0)


@dataclass(frozen=True, slots=True)
class Answers:
    """One draw of how clients answer.

    Attributes:
        rate: h of each client, shape (clients,), >= 0.
        leaving: b, in [0, 1].
        sooner: e, in (0, 1].
        growth: gamma.
        usual_s: Mean time of an exchange, seconds.
    """

    rate: FloatArray
    leaving: float
    sooner: float
    growth: float
    usual_s: float

    def lost(self, client: IntArray, leaves: FloatArray, mean_s: FloatArray) -> FloatArray:
        """Probability that nothing comes, shape (k,); ``leaves`` is pi, and exchanges take ``mean_s`` on average."""
        alone = np.exp(-self.rate[client] * (mean_s / self.usual_s) ** self.growth)
        return 1.0 - alone * (1.0 - self.leaving * leaves**self.sooner)


def draw_answers(history: History, times: Times, leaves: Leaves, *, rng: Generator) -> Answers:
    """Draw from what is believed about answers: Gibbs sampling with the cause of each loss drawn."""
    lost = history.lost
    mean_s = expected(history, times)
    usual_s = float(mean_s.mean())
    share = leaves.within(history.round, history.client, mean_s)
    odd = share > 0.0
    exposures = [(mean_s / usual_s) ** growth for growth in _GROWTHS]
    growth, leaving, sooner = 0, 0.0, 1.0
    rate, by_itself = (float(lost.sum()) + 0.5) / lost.shape[0], lost

    def likelihood(growth: int, leaves: FloatArray) -> FloatArray:
        """Of exchanges that may have been left; ``leaves`` has a row for each value of b."""
        p = np.clip(1.0 - np.exp(-rate * exposures[growth][odd]) * (1.0 - leaves), 1e-12, 1.0 - 1e-12)
        found: FloatArray = np.where(lost[odd], np.log(p), np.log1p(-p)).sum(axis=-1)
        return found

    for _ in range(8):
        rows = [likelihood(growth, _SHARES[:, None] * share[odd] ** power) for power in _SOONER]
        number_e, number_b = divmod(_pick(np.concatenate(rows), rng), _SHARES.shape[0])
        leaving, sooner = float(_SHARES[number_b]), float(_SOONER[number_e])
        # What is lost by itself, and at which rate.
        alone = -np.expm1(-rate * exposures[growth])
        both = 1.0 - (1.0 - alone) * (1.0 - leaving * share**sooner)
        by_itself = lost & (rng.random(lost.shape[0]) * both < alone)
        number = float(by_itself.sum())
        totals = np.array([float(exposure.sum()) for exposure in exposures])
        by_growth = np.array([float(np.log(exposure[by_itself]).sum()) for exposure in exposures])
        growth = _pick(by_growth - (number + 0.5) * np.log(totals), rng)  # with the rate integrated out
        rate = float(rng.gamma(number + 0.5) / totals[growth])
    exposure = np.bincount(history.client, exposures[growth], minlength=history.num_clients).astype(np.float64)
    own = np.bincount(history.client[by_itself], minlength=history.num_clients)
    worth = _worth(own, exposure, rate, rng=rng)
    rates = rng.gamma(worth * rate + own + 1e-9) / (worth + exposure)
    return Answers(rates, leaving, sooner, _GROWTHS[growth], usual_s)


def _pick(log_weight: FloatArray, rng: Generator) -> int:
    weight = np.exp(log_weight - log_weight.max())
    return int(rng.choice(weight.shape[0], p=weight / weight.sum()))


def _worth(own: IntArray, exposure: FloatArray, rate: float, *, rng: Generator) -> float:
    """How much exposure of a client the common rate is worth, by the likelihood of its losses: negative binomial."""
    from scipy.special import gammaln

    seen = exposure > 0.0
    own, exposure = own[seen], exposure[seen]
    shape = _WEIGHTS[:, None] * rate
    terms = gammaln(shape + own) - gammaln(shape)
    terms = terms + shape * np.log(_WEIGHTS[:, None] / (_WEIGHTS[:, None] + exposure))
    return float(_WEIGHTS[_pick((terms - own * np.log(_WEIGHTS[:, None] + exposure)).sum(axis=1), rng)])


def expected(history: History, times: Times) -> FloatArray:
    """Means of all logged exchanges, shape (exchanges,), seconds."""
    return times.means(history.client, np.nan_to_num(history.features[history.round, history.client]))


@dataclass(frozen=True, slots=True)
class Waits:
    """How long rounds last, beside the exchanges.

    Attributes:
        lost_s: How long a round waits for a client that sends nothing, seconds; NaN for as long as its answer was due.
        overhead_s: What rounds took beyond their slowest exchange, ascending, shape (k,); empty for nothing.
    """

    lost_s: float
    overhead_s: FloatArray

    def overhead(self, uniform: float) -> float:
        """Draw what a round takes beyond its slowest exchange, seconds."""
        if not self.overhead_s.shape[0]:
            return 0.0
        return float(self.overhead_s[int(uniform * self.overhead_s.shape[0])])


def read_waits(history: History, mean_s: FloatArray) -> Waits:
    """Read off how long rounds waited, given what exchanges were expected to take."""
    longest_s, lost = history.slowest_s, history.lost
    has_lost = np.zeros(history.num_rounds, np.bool_)
    has_lost[history.round[lost]] = True
    known = np.isfinite(history.round_s)
    whole = known & ~has_lost & (longest_s > 0.0)
    overhead_s = history.round_s[whole] - longest_s[whole]
    typical = float(np.median(history.round_s[whole])) if whole.any() else 0.0
    over = np.sort(overhead_s) if np.abs(overhead_s).max(initial=0.0) > 1e-6 * typical else np.zeros(0)
    due_s = np.zeros(history.num_rounds)
    np.maximum.at(due_s, history.round[lost], mean_s[lost])
    usual_s, most_s = np.quantile(over, (0.5, 0.95)) if over.size else (0.0, 0.0)
    waited = known & has_lost & (history.round_s > longest_s * (1.0 + 1e-6) + most_s)
    waited &= history.round_s < history.deadline_s * (1.0 - 1e-6)
    if np.count_nonzero(waited) < _LEAST_WAITS:
        # With a deadline, rounds may wait up to it; without, nothing was waited for, if enough of them tell.
        is_open = np.isfinite(history.deadline_s).any() or known[has_lost].sum() < _LEAST_WAITS
        return Waits(np.nan if is_open else 0.0, over)
    log_s = np.log(history.round_s[waited] - usual_s)
    constant = log_s.std() < 0.5 * (log_s - np.log(np.maximum(due_s[waited], 1e-9))).std()
    return Waits(float(np.exp(np.median(log_s))) if constant else np.nan, over)


class Pace:
    """From one round to the next: at which intervals rounds began, or how long after another's end."""

    def __init__(self, history: History) -> None:
        """Read it off."""
        gap_s = np.diff(history.at_s)
        lasted_s = history.lasted_s[:-1]
        busy = lasted_s > 0.0
        typical_s = max(float(np.median(gap_s)), 1e-9)
        # A gap that many rounds share although they took less is an interval.
        rounded = np.round(gap_s[busy] / typical_s, 6)
        values, counts = np.unique(rounded, return_counts=True)
        self._least_gap_s = 0.0
        if values.size and counts.max() >= max(0.2 * rounded.shape[0], 3.0):
            self._least_gap_s = float(values[counts.argmax()]) * typical_s
        free = busy & (gap_s > self._least_gap_s * (1.0 + 1e-6))
        idle_s = np.maximum(gap_s - lasted_s, 0.0)
        usual_s = float(np.median(idle_s[free])) if free.any() else 0.0
        # From the end of each round to the next one's begin, shape (rounds,), and from an empty round to the next one.
        self._idle_s = np.append(np.where(free, idle_s, np.where(busy, 0.0, usual_s)), usual_s)
        self._wait_s = float(np.median(gap_s[~busy])) if (~busy).any() else max(self._least_gap_s, typical_s)

    def next_s(self, round: int, now_s: float, round_s: float, *, empty: bool) -> float:
        """When the next round begins after number ``round``, from 0, seconds."""
        if empty:
            return now_s + self._wait_s
        return now_s + max(round_s + float(self._idle_s[round]), self._least_gap_s)
