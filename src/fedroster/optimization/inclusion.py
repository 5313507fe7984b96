r"""With which probability a row is drawn, by the samples of :mod:`~fedroster.optimization.ranking`."""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.optimization.ranking import candidates_above

MOST_WORK = 40_000_000
"""Inclusion probabilities of a race are computed up to rows x places x steps of this size: about 0.1 seconds."""

_STEP = 0.2  # of the logarithm of time: the trapezoid rule is then right to about 12 digits
_FIRST, _LAST = 32.0, 42.0  # exp(-32) of a row's chance is left out before, exp(-42) after


@njit(cache=True, nogil=True, error_model="numpy")
def _race(log_weight, size, start, num_steps, step, included):
    """Integrate P(row i arrives at t, and fewer than ``size`` others before it) over the logarithm of t."""
    count = log_weight.shape[0]
    before = np.empty((count, size))  # P(exactly k of the rows below i have arrived)
    after = np.empty(size)  # P(at most k of the rows above i have arrived)
    for number in range(num_steps):
        log_t = start + number * step
        row = np.zeros(size)
        row[0] = 1.0
        for i in range(count):
            before[i] = row
            absent = np.exp(-np.exp(min(log_weight[i] + log_t, 7.0)))
            for k in range(size - 1, 0, -1):
                row[k] = row[k] * absent + row[k - 1] * (1.0 - absent)
            row[0] *= absent
        after[:] = 1.0
        for i in range(count - 1, -1, -1):
            rate = np.exp(min(log_weight[i] + log_t, 7.0))
            absent = np.exp(-rate)
            few = 0.0
            for k in range(size):
                few += before[i, k] * after[size - 1 - k]
            included[i] += step * rate * absent * few
            for k in range(size - 1, 0, -1):
                after[k] = after[k] * absent + after[k - 1] * (1.0 - absent)
            after[0] *= absent


def race_inclusion(log_weight: FloatArray, size: int) -> FloatArray | None:
    r"""Probability of each row to be among the first of an exponential race, successive sampling without replacement.

    Row i arrives at :math:`T_i \sim \text{Exp}(w_i)`, and is in the sample of m if fewer than m others come earlier:

    .. math:: \pi_i = \int_0^\infty w_i e^{-w_i t}\, P\Bigl(\sum_{j \ne i} \mathbf 1(T_j \le t) < m\Bigr)\, dt

    The probability under the integral is one of a sum of independent indicators; its distribution is built up from both
    ends of the rows, with sums of positive numbers only.  The integral is taken over log t by the trapezoid rule.

    Args:
        log_weight: Logarithms of the weights, shape (rows,); ``-inf`` for a row that comes last, such rows in random
            order.
        size: m >= 0.

    Returns:
        Shape (rows,), their sum is min(m, rows); None where it would take more than :data:`MOST_WORK` steps.

    Cost: O(rows m steps), about 300 steps for weights that differ by a factor of 1000.
    """
    count = log_weight.shape[0]
    if size >= count:
        return np.ones(count)
    if size <= 0:
        return np.zeros(count)
    racing = np.flatnonzero(log_weight > -np.inf)
    if racing.shape[0] <= size:
        rest = count - racing.shape[0]
        probability = np.full(count, (size - racing.shape[0]) / rest)
        probability[racing] = 1.0
        return probability
    weight = log_weight[racing]
    first, least = float(weight.max()), float(weight.min())
    if first == least:
        probability = np.zeros(count)
        probability[racing] = size / racing.shape[0]
        return probability
    # Nothing comes before the fastest can, and after the slowest that has a place against all others all is over.
    start = -first - _FIRST
    stop = np.log(_LAST) - float(np.partition(weight, -size - 1)[-size - 1])
    num_steps = int((stop - start) / _STEP) + 2
    if racing.shape[0] * size * num_steps > MOST_WORK:
        return None
    included = np.zeros(racing.shape[0])
    _race(np.ascontiguousarray(weight), size, start, num_steps, _STEP, included)
    probability = np.zeros(count)
    probability[racing] = np.minimum(included, 1.0)
    return probability


def best_of_inclusion(score: FloatArray, candidates: int, size: int) -> FloatArray:
    r"""Probability of each row to be among the best of d candidates, each set of them equally likely.

    The row that r others surpass is chosen if it is a candidate and fewer than m of these are:

    .. math:: \pi_r = \frac{d}{n} P(X_r < m), \qquad X_r \sim \text{Hypergeometric}(n - 1, r, d - 1)

    Rows of equal score share what their places have.

    Args:
        score: Score of each row, shape (n,); infinities are allowed, NaN is not.
        candidates: d >= 0.
        size: m >= 0.
    """
    from scipy.special import gammaln

    count = score.shape[0]
    d = min(candidates, count)
    if count == 0 or d == 0 or size <= 0:
        return np.zeros(count)
    if size >= d:
        return np.full(count, d / count)
    r = np.arange(count)[:, None]
    k = np.arange(size)[None, :]

    def log_choose(n: IntArray | int, k: IntArray) -> FloatArray:
        possible = (k >= 0) & (k <= n)
        k = np.where(possible, k, 0)
        value = gammaln(np.asarray(n) + 1.0) - gammaln(k + 1.0) - gammaln(np.maximum(n - k, 0) + 1.0)
        return np.where(possible, value, -np.inf)

    chance = np.exp(log_choose(r, k) + log_choose(count - 1 - r, d - 1 - k) - log_choose(count - 1, np.array(d - 1)))
    by_rank = d / count * np.minimum(chance.sum(axis=1), 1.0)
    order = np.argsort(-score, kind="stable")
    _, group = np.unique(-score[order], return_inverse=True)
    shared = np.bincount(group, by_rank) / np.bincount(group)
    probability = np.empty(count)
    probability[order] = shared[group]
    return probability


def greatest_inclusion(score: FloatArray | IntArray, size: int) -> FloatArray:
    """Probability of each row to be among the ``size`` greatest, rows that tie for the last places equally likely."""
    count = score.shape[0]
    if size >= count:
        return np.ones(count)
    if size <= 0:
        return np.zeros(count)
    cut = np.partition(score, count - size)[count - size]
    above, tied = score > cut, score == cut
    share = (size - int(np.count_nonzero(above))) / int(np.count_nonzero(tied))
    return np.where(above, 1.0, np.where(tied, share, 0.0))


def above_inclusion(score: FloatArray, size: int, *, cut_off: float) -> FloatArray | None:
    """Probability of each row in :func:`~fedroster.optimization.ranking.sample_above`, shape (rows,)."""
    probability = np.zeros(score.shape[0])
    if size:
        able = candidates_above(score, size, cut_off=cut_off)
        race = race_inclusion(log_weights(score[able]), size)
        if race is None:
            return None
        probability[able] = race
    return probability


def window_inclusion(weight: FloatArray, window: int, size: int) -> FloatArray | None:
    """Probability of each row in a sample by weight from this many rows of the greatest weights, shape (rows,)."""
    probability = np.zeros(weight.shape[0])
    if size:
        within = greatest_inclusion(weight, window)
        # Rows that tie for the last places in the window are alike: any of them stand for all.
        first = np.argsort(-weight, kind="stable")[: round(float(within.sum()))]
        race = race_inclusion(log_weights(weight[first]), size)
        if race is None:
            return None
        probability[first] = race
        tied = (within > 0.0) & (within < 1.0)
        probability[tied] = probability[tied].sum() / max(int(np.count_nonzero(tied)), 1)
    return probability


def draw_uniformly(available: BoolArray, size: int) -> FloatArray:
    """Probability of each row where every set of ``size`` available rows, or of all if fewer, is equally likely."""
    count = int(np.count_nonzero(available))
    return np.where(available, min(size / count, 1.0) if count else 0.0, 0.0)


def log_weights(weight: FloatArray) -> FloatArray:
    """Logarithms of weights >= 0; ``-inf`` for 0."""
    with np.errstate(divide="ignore"):
        return np.log(weight)


def at_rows(probability: FloatArray, rows: IntArray, num_links: int) -> FloatArray:
    """The probabilities of some rows among zeros for all others, shape (links,)."""
    everywhere = np.zeros(num_links)
    everywhere[rows] = probability
    return everywhere


def filled_up(probability: FloatArray, missing: int, chosen: int) -> FloatArray:
    """Probabilities after ``missing`` more places are drawn uniformly from the rows that are not yet chosen.

    Args:
        probability: Of each row to be among the ``chosen`` ones so far, shape (rows,).
        missing: Places that are filled, >= 0.
        chosen: How many rows are chosen so far, the same number in every draw.
    """
    left = probability.shape[0] - chosen
    share = min(missing / left, 1.0) if left > 0 else 0.0
    return probability + (1.0 - probability) * share
