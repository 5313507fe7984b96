r"""What a client is worth for training: its losses, its speed, and how long a round may take (Lai et al. 2021).

F. Lai, X. Zhu, H. V. Madhyastha and M. Chowdhury, "Oort: Efficient Federated Learning via Guided Participant
Selection", OSDI 2021, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import Feedback
from fedroster.core.state import kept
from fedroster.estimation.reports import LARGEST

_LEAST_RANGE = 1e-4  # of utilities, as in the authors' code: equal ones must not divide by zero


def statistical_utility(feedback: Feedback) -> FloatArray:
    r"""Statistical utility of the paper, shape (k,); NaN where no loss is known.

    .. math:: U_i = |B_i| \sqrt{\frac{1}{|B_i|} \sum_{k \in B_i} \mathrm{Loss}(k)^2}

    The mean loss stands for the root where the mean of squares is not known: a lower bound of it, and equal to it when
    all samples have the same loss.  Without sample counts, :math:`|B_i|` is 1.  The least is the smallest number above
    0, which stands for a utility that is not known.
    """
    root = np.full(feedback.client.shape[0], np.nan)
    if feedback.loss is not None:
        root = np.abs(feedback.loss)
    if feedback.squared_loss is not None:
        root = np.where(np.isnan(feedback.squared_loss), root, np.sqrt(feedback.squared_loss))
    utility = np.minimum(root, LARGEST)
    if feedback.num_samples is not None:
        utility *= np.where(np.isnan(feedback.num_samples), 1.0, np.minimum(feedback.num_samples, LARGEST))
    least: FloatArray = np.maximum(utility, np.finfo(np.float64).tiny)
    return least


def value_at(values: FloatArray, share: float) -> float:
    """Entry number ``floor(share * n)`` of n sorted values, counted from 0, or the last: the authors' percentile."""
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
    r"""Utility of explored clients (Algorithm 1; the scale of U is the authors' code's), shape (n,), >= 0.

    .. math::
        \mathrm{Util}(i) = \left( \frac{\min(U_i, U_{\text{clip}}) - U_{\min}}{U_{\max} - U_{\min}}
        + \sqrt{\frac{0.1 \ln R}{L(i)}} \right)
        \times \left( \frac{T}{D(i)} \right)^{\mathbf 1(T < D(i))\, \alpha}

    with :math:`U_{\min}` less 0.1 % of it, so that every client is worth something.

    Args:
        utility: Statistical utilities U; 0 where it is not known, which stands for the mean of those that are.
        time_s: Times D; 0 where none is known, which is not penalised.
        last: Round L of each client's last participation, >= 1.
        round: R >= 1.
        preferred_s: T, seconds, > 0; infinite for no preference.
        penalty: alpha >= 0.
        clip: Share of utilities below the clipping value, in [0, 1].
    """
    known = utility > 0.0
    num_known = int(np.count_nonzero(known))
    if num_known == 0:
        score = np.zeros(utility.shape[0])
    else:
        if num_known < utility.shape[0]:
            mean = np.minimum(utility, LARGEST**2).sum() / num_known  # a file may hold more than is ever reported
            utility = np.where(known, utility, mean)
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


def preferred_time_s(time_s: FloatArray, percentile: float) -> float:
    """Preferred duration T of a round: a percentile of the measured times, those above 0, seconds.

    Infinite if there are none, and from the percentile 100 on.
    """
    times_s = time_s[time_s > 0.0]
    if percentile >= 100.0 or not times_s.shape[0]:
        return math.inf
    return value_at(times_s, percentile / 100.0)


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

    percentile: float = kept(0.0)
    total: float = kept(0.0)
    num_reports: int = kept(0)
    window: float = kept(0.0)
    previous: float = kept(0.0)


def pace(state: PacerState, round: int, *, step: int, delta: float) -> PacerState:
    """The pacer's look back at the start of a round (Algorithm 1).

    As the authors' code has it: every W rounds, the utilities that exploitation brought in the last W rounds are
    compared with those of the W rounds before.  If they differ by at most a tenth, patience buys more: the percentile
    grows by Delta.  If they differ by at least five times as much as there was, it falls by Delta.

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


def tell(state: PacerState, utility: FloatArray) -> PacerState:
    """Add the utilities that exploited clients reported this round, shape (n,)."""
    total = state.total + float(utility.sum())
    return replace(state, total=total, num_reports=state.num_reports + utility.shape[0])
