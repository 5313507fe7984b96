r"""What a log says of another policy by the probabilities with which clients were chosen.

A miss is a property of one exchange, so misses add up over exchanges: with :math:`q_{t,n}` the probability that the
other policy would choose client n in round t, :math:`p_{t,n}` the one in the log, y whether the update is
missed and :math:`\hat m` what the fitted worlds expect,

.. math:: \hat Y = \sum_{t,n} q\,\hat m + c \sum_{(t,n) \in \text{log}} \frac{q}{p} (y - \hat m), \qquad
    c = \frac{\sum q}{\sum_{\text{log}} q / p}

the self-normalised, doubly robust estimate: right if the probabilities are, whatever :math:`\hat m` is.  Whom an
adaptive policy would choose depends on what it would learn; q is its share of the fitted worlds.

M. Dudik, D. Erhan, J. Langford and L. Li, "Doubly Robust Policy Evaluation and Optimization", Statistical Science 2014,
arXiv:1503.02834.
"""

from __future__ import annotations

import math

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.protocols import AnyPolicy, draws
from fedroster.replay.history import History
from fedroster.replay.modelled import Fit, Played

_LEAST_SIZE = 30.0
_CAP = 50.0
"""Greatest weight of an exchange; what is cut off is left to the model."""

_MOST_BETWEEN = 0.1  # share of rounds that begin at other moments than the log's

_Z = 1.25 * 1.645
"""Standard deviations of a 90 % interval; a quarter more, as unequal weights tell little of their variance."""


def _unknown(history: History, needed: FloatArray) -> str:
    """Why the log's probabilities do not do; empty if they do."""
    wanted = needed > 0.0
    unknown = wanted & np.isnan(history.inclusion)
    if unknown.any():
        rounds = int(unknown.any(axis=1).sum())
        return f"the log does not know the probabilities of its own choices in {rounds} of {history.num_rounds} rounds"
    never = wanted & (history.inclusion <= 0.0)
    if never.any():
        rounds = int(never.any(axis=1).sum())
        return (
            f"in {rounds} of {history.num_rounds} rounds it would choose clients that the log's policy chose with "
            "probability 0; a log by explored:policy=... has none"
        )
    return ""


def off_policy_misses(fit: Fit, share: FloatArray, played: list[Played]) -> tuple[float, float, float, float] | str:
    """Misses that a policy would have had: estimate, ends of the 90 % interval and effective sample size, or why not.

    Args:
        fit: The log and what is fitted to it.
        share: q, shape (rounds, clients).
        played: The policy in each drawn world.
    """
    history = fit.history
    between = float(np.mean([one.between for one in played]))
    if between > _MOST_BETWEEN:
        return (
            f"{between:.0%} of its rounds would begin between two rounds of the log, and clients come and go: "
            "exchanges at other times do not represent them"
        )
    reason = _unknown(history, share)
    if reason:
        return reason
    at = history.round, history.client
    expected = fit.expected_misses()
    missed, mean = history.missed.astype(np.float64), expected[at]
    probability, q = history.inclusion[at], share[at]
    weight = np.minimum(q / probability, _CAP)
    size = float(weight.sum() ** 2 / max(float((weight**2).sum()), 1e-300))
    if size < _LEAST_SIZE:
        return f"{size:.0f} exchanges of the log count for it; expected {_LEAST_SIZE:.0f}"
    normal = float(share.sum() / weight.sum())
    rest = missed - mean
    estimate = float((share * expected).sum() + normal * (weight * rest).sum())
    # The world is one: its outcomes are fixed, and both policies' choices are drawn.
    drawn = q * (1.0 - q) + q * q * (1.0 - probability) / probability
    variance = float((rest**2 * drawn / probability).sum())
    variance += float(np.var([(one.share * expected).sum() for one in played], ddof=1))
    half = _Z * math.sqrt(variance)
    estimate = max(estimate, 0.0)
    # Residuals of misses that were not seen scatter little: a count of as many exchanges allows this many (Poisson).
    from scipy.special import gammaincinv

    seen = size * float((weight * missed).sum() / weight.sum())
    allowed = float(gammaincinv(seen + 1.0, 0.95)) / size * float(share.sum())
    return estimate, *whole_ends(estimate, estimate - half, max(estimate + half, allowed)), size


def whole_ends(estimate: float, low: float, high: float) -> tuple[float, float]:
    """Ends of the interval of a count: whole numbers >= 0 that have the estimate between them."""
    least, most = min(math.ceil(low - 0.5), math.floor(estimate)), max(math.floor(high + 0.5), math.ceil(estimate))
    return float(max(least, 0)), float(most)


def off_policy_time(fit: Fit, policy: AnyPolicy) -> tuple[float, float, float, float] | str:
    """Mean round time of a policy, in the same form: the log's cohorts must be equally likely."""
    history = fit.history
    reason = _unknown(history, history.available.astype(np.float64))
    if reason:
        return reason
    count = history.available.sum(axis=1)
    uniform = np.minimum(history.places / np.maximum(count, 1), 1.0)
    drawn = np.abs(history.inclusion - uniform[:, None]) < 1e-9
    if not drawn[history.available].all() or draws(policy) != "uniform":
        return (
            "a round's time depends on the whole cohort, and a cohort's probability is known only if both the log's "
            "policy and this one draw uniformly"
        )
    values = fit.durations_s
    half = _Z * float(values.std(ddof=1)) * math.sqrt(2.0 / values.shape[0])  # of this world's draw, and of another
    middle = float(values.mean())
    return middle, max(middle - half, 0.0), middle + half, float(values.shape[0])
