"""Intervals and tests over seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedroster.types import FloatArray

Sample: TypeAlias = Sequence[float] | FloatArray
"""One number for each seed, shape (seeds,)."""

LEVEL = 0.05
"""Probability of even one wrong decision among all tests that are read together."""

FEWEST = 5
"""Differences that Student's t needs: with fewer, everything would rest on their being normal."""

POWER = 0.8
"""Probability with which an effect as large as the one seen is to be found, where seeds are counted."""


def signed(value: float, form: str) -> str:
    """A difference as text, such as +0.3; one that is shown as none has no sign."""
    text = format(value, f"+{form}")
    return text if set(text) & set("123456789i") else text[1:]  # an i is infinite


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sample) -> Interval:
    """Student's 95 % t interval of a mean over seeds; a single value has an interval without width."""
    return Interval(*map(float, band(np.asarray(values, np.float64))))


def prediction_interval(values: Sample, *, known: float = 0.0) -> tuple[float, float]:
    """Where one more value like these independent ones lies in nine cases of ten: Student's t.  NaN for fewer than two.

    ``known`` is a standard deviation that all have in common and their scatter does not show, >= 0.
    """
    x = np.asarray(values, np.float64)
    if len(x) < 2:
        return math.nan, math.nan
    half = _quantile(len(x) - 1, 0.9) * spread_of_one_more(x, known)
    return float(x.mean()) - half, float(x.mean()) + half


def spread_of_one_more(x: FloatArray, known: float) -> float:
    """How far one more value scatters about the mean of these, at least two: :func:`prediction_interval` has both."""
    return math.hypot(float(x.std(ddof=1)) * math.sqrt(1.0 + 1.0 / len(x)), known)


def _quantile(freedom: int, confidence: float) -> float:
    """Student's t quantile of a two-sided interval."""
    from scipy.special import stdtrit  # scipy.stats has it too, and takes half a second to import

    return float(stdtrit(freedom, 0.5 + confidence / 2.0))


def band(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pointwise 95 % t intervals of curves, shape (seeds, points): mean, lower and upper end, of shape (points,)."""
    mean = values.mean(axis=0)
    if values.shape[0] < 2:
        return mean, mean, mean
    half = _quantile(values.shape[0] - 1, 0.95) * values.std(axis=0, ddof=1) / math.sqrt(values.shape[0])
    return mean, mean - half, mean + half


def median_interval(values: Sample) -> Interval:
    """Median over seeds, with the 95 % interval that the sign test leaves; ends may be infinite, NaN counts as 0."""
    x = _ties_at_zero(np.asarray(values, np.float64))
    with np.errstate(invalid="ignore"):  # between -inf and inf
        middle = float(_ties_at_zero(np.asarray(np.median(x))))
    return Interval(middle, _sign_end(x, 0.025), -_sign_end(-x, 0.025))


def interval_of(values: Sample) -> Interval:
    """The mean's interval, or the median's where a value is infinite or NaN: a run that did not get there."""
    return mean_interval(values) if np.isfinite(values).all() else median_interval(values)


Points: TypeAlias = Mapping[str, tuple[Interval, Interval]]
"""By policy, a cost or a yield, and a share in percent of which more is better."""


def pareto_front(points: Points, *, more_x: bool = False, aided: Collection[str] = ()) -> list[str]:
    """Which policies no other beats, by the means: better in x and at least as good in y, or more of y for no worse x.

    Less of x is better, or more; policies ``aided`` by the truth do not count.  The first has the best x.
    """
    sign = -1.0 if more_x else 1.0
    found = {label: (sign * x.mean, y.mean) for label, (x, y) in points.items() if label not in aided}
    front = [
        label
        for label, (cost, good) in found.items()
        if not any(c <= cost and g >= good and (c, g) != (cost, good) for c, g in found.values())
    ]
    return sorted(front, key=found.__getitem__)


# -------------------------------------------------------------------- tests and the interval that inverts them

Test: TypeAlias = Literal["t", "sign"]


def which_test(values: Sample) -> Test:
    """Which test differences get; the same for the differences less any constant.

    Student's t is for five values or more that are finite and hardly ever equal.  Fewer, coarse ones, ones without
    spread, and ones with runs that never got there get the sign test, which assumes nothing.
    """
    x = np.asarray(values, np.float64)
    return "t" if len(x) >= FEWEST and _is_fine(x) else "sign"


def _is_fine(x: FloatArray) -> bool:
    """Whether all values are finite and at least three of four differ, by more than rounding."""
    if not np.isfinite(x).all():
        return False
    distinct = 1 + np.count_nonzero(np.diff(np.sort(x)) > 1e-9 * float(np.abs(x).max()))
    return bool(distinct >= 0.75 * len(x) and distinct > 1)


def one_sided_p(values: Sample) -> float:
    r"""P-value of "these paired differences are not above zero", by the test that :func:`which_test` names.

    Student's t tests the mean.  Hall's transformation of t for skewed differences (1992, "On the removal of skewness by
    transformation") is computed, too, and the larger p-value counts.  Few values show little of their skewness, so it
    is taken 0.4 worse than it looks: up to a true skewness of 1 a page then is wrong no more often than it says.

    The sign test is of the median: :math:`P(\mathrm{Bin}(n, 1/2) \ge w)` of w positive ones among n; a tie speaks
    against.  It is at least :math:`2^{-n}`: two seeds never say less than 0.25.

    Args:
        values: One for each seed; infinite where one of two runs never got there, NaN where both did not (a tie).
    """
    x = np.asarray(values, np.float64)
    if which_test(x) == "sign":
        from scipy.special import bdtrc

        above = int(np.count_nonzero(x > 0.0))
        return float(bdtrc(above - 1, len(x), 0.5)) if above else 1.0
    return _t_tail(x, 0.0)


def _t_tail(x: FloatArray, at: float) -> float:
    """P-value of "the mean is not above ``at``": the larger of Student's and Hall's, both rising with ``at``."""
    from scipy.special import stdtr  # scipy.stats has it too, and takes half a second to import

    count = len(x)
    spread = x.std(ddof=1)
    shift = (x.mean() - at) / spread
    skewness = ((x - x.mean()) ** 3).mean() / spread**3 - _HIDDEN_SKEWNESS
    straight = skewness * (shift + skewness * shift**2 / 9.0) * shift / 3.0 + shift + skewness / (6.0 * count)
    return float(stdtr(count - 1, -math.sqrt(count) * min(shift, straight)))


_HIDDEN_SKEWNESS = 0.4


def effect_interval(values: Sample, low_level: float, high_level: float) -> Interval:
    """The effects that the tests of :func:`one_sided_p` do not reject, around the mean; around the median if coarse.

    The lower end is above zero exactly where the p-value of the values is at most ``low_level``, the upper end below
    zero where that of their negatives is at most ``high_level``.  Ends are infinite where a test cannot reject at all.
    """
    x = np.asarray(values, np.float64)
    if which_test(x) == "sign":
        middle = float(x.mean()) if _is_fine(x) else median_interval(x).mean
        return Interval(middle, _sign_end(x, low_level), -_sign_end(-x, high_level))
    return Interval(x.mean(), _t_end(x, low_level), -_t_end(-x, high_level))


def _t_end(x: FloatArray, level: float) -> float:
    """The largest value that the mean is shown to be above."""
    from scipy.optimize import brentq

    mean, spread = x.mean(), x.std(ddof=1)

    def above(far: float) -> float:  # standard deviations below the mean
        return _t_tail(x, mean - far * spread) - level

    return -math.inf if above(1e6) > 0.0 else mean - brentq(above, 0.0, 1e6) * spread


def _sign_end(x: FloatArray, level: float) -> float:
    """The largest value that the median is shown to be at or above; a tie (NaN) counts as 0."""
    from scipy.special import bdtr

    count = len(x)
    below = int(np.count_nonzero(bdtr(np.arange(count), count, 0.5) <= level))
    return float(np.sort(_ties_at_zero(x))[below - 1]) if below else -math.inf


def _ties_at_zero(x: FloatArray) -> FloatArray:
    return np.where(np.isnan(x), 0.0, x)


def seeds_needed(values: Sample, level: float) -> float:
    """About how many seeds find an effect as large as this one at a level, four times of five.

    Infinite where the effect does not point upwards.  A normal approximation, with Guenther's correction for t.
    """
    from scipy.special import ndtri

    x = np.asarray(values, np.float64)
    strict, power = -float(ndtri(level)), float(ndtri(POWER))
    if _is_fine(x):  # with fewer seeds than t needs, too: it is what more of them will get
        shift = float(x.mean() / x.std(ddof=1))
        found = ((strict + power) / shift) ** 2 + 0.5 * strict**2 if shift > 0.0 else math.inf
        return max(found, FEWEST)
    share = (np.count_nonzero(x > 0.0) + 0.5) / (len(x) + 1.0)  # as if half a seed more had gone either way
    if share <= 0.5:
        return math.inf
    found = ((0.5 * strict + power * math.sqrt(share * (1.0 - share))) / (share - 0.5)) ** 2
    return float(max(found, -math.log2(level)))
