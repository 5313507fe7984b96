"""Policies against each other: paired by seed, corrected together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedroster import catalogue
from fedroster.catalogue import REFERENCE
from fedroster.lab.compare.tables import Measure, Settings, Values
from fedroster.lab.statistics import LEVEL, Interval, effect_interval, holm, one_sided_p, two_sided_p
from fedroster.types import FloatArray

TEST_NOTE = (
    "'Better' and 'worse' are statistically significant: two-sided paired tests over seeds with Holm's correction, "
    f"{LEVEL:.0%} for the whole table. An entry without a word is undecided: more seeds may decide it. The test is "
    "Student's t, or the sign test where seeds are few, values coarse, or a run did not reach its target: it counts as "
    "later than any that did. Differences are ratios of times and updates, and percentage points of shares. Intervals "
    "are 95 % and are not corrected."
)

TESTED = ("difference", "difference_low", "difference_high", "p", "p_holm", "verdict")
COLUMNS = ("against", "policy", "measure", *TESTED)
"""Of a table of tests."""

_NEAR_ONE = 0.02  # ratios as near as this to 1 are shown with a digit more


@dataclass(frozen=True, slots=True)
class Contrast:
    """A policy against another in one measure, paired by seed.

    The difference is a ratio where the measure says so. The test is :func:`~fedroster.lab.statistics.two_sided_p`, of
    logarithms where it is a ratio, and is corrected after Holm over all tests that are read together.
    """

    policy: str
    against: str
    measure: Measure
    difference: Interval
    p_value: float
    adjusted_p: float
    is_better: bool

    @property
    def verdict(self) -> str:
        """The test in words."""
        if self.adjusted_p >= LEVEL:
            return "undecided"
        return "better" if self.is_better else "worse"

    def shown(self) -> str:
        """Difference, verdict and interval as a cell of a table."""
        scale, form = 100.0, "+.1f"
        if self.measure.is_ratio:
            scale, form = 1.0, ".3f" if abs(self.difference.mean - 1.0) < _NEAR_ONE else ".2f"
        ends = (self.difference.mean, self.difference.low, self.difference.high)
        mean, low, high = ("∞" if value == math.inf else format(scale * value, form) for value in ends)
        word = "" if self.verdict == "undecided" else f" {self.verdict}"
        return f"{mean}{word}\n({low} to {high})"

    def in_words(self) -> str:
        """Difference and verdict as a part of a sentence."""
        what, _, unit = self.measure.tested.partition(", ")
        mean = self.difference.mean
        size = f"{mean:.2f} times" if self.measure.is_ratio else f"{100.0 * mean:+.1f} {unit}"
        if mean in (0.0, math.inf) and self.measure.is_ratio:
            size = f"not reached by {self.policy if mean else self.against}"
        return f"{what} {size} ({self.verdict})"

    def row(self) -> dict[str, Any]:
        """The test as a row of a table."""
        numbers = (self.difference.mean, self.difference.low, self.difference.high, self.p_value, self.adjusted_p)
        return dict(zip(COLUMNS, (self.against, self.policy, self.measure.name, *numbers, self.verdict), strict=True))


def paired(policy: str, against: str, measure: Measure, mine: FloatArray, theirs: FloatArray) -> Contrast | None:
    """Test a policy against another; None where there are no two seeds, or a number is missing.

    A time is infinite where a run did not reach its target: later than any, and as late as another that did not.
    """
    if mine.shape[0] < 2 or np.isnan(mine).any() or np.isnan(theirs).any():
        return None
    if measure.is_ratio:
        if not ((mine > 0.0) & (theirs > 0.0)).all() or not (np.isfinite(mine) | np.isfinite(theirs)).any():
            return None
        # Ratios are averaged as logarithms: twice and half as much cancel.
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(mine) - np.log(theirs)
        middle = effect_interval(gap, 0.025, 0.025)
        shown = Interval(*(float(np.exp(value)) for value in (middle.mean, middle.low, middle.high)))
    else:
        gap = mine - theirs
        shown = effect_interval(gap, 0.025, 0.025)
    # As the test says and not the mean: with coarse values a few large differences turn the mean.
    is_less = one_sided_p(-gap) < one_sided_p(gap)
    return Contrast(policy, against, measure, shown, two_sided_p(gap), 1.0, is_less == measure.less)


def corrected(tests: Sequence[Contrast]) -> list[Contrast]:
    """The tests with Holm's correction over all of them."""
    adjusted = holm([test.p_value for test in tests])
    return [replace(test, adjusted_p=p) for test, p in zip(tests, adjusted, strict=True)]


def contrasts_against(base: str, values: Values, settings: Settings) -> list[Contrast]:
    """Every policy against one in every measure, corrected together; none with one seed."""
    found = (
        paired(text, base, measure, own[measure.name], values[base][measure.name])
        for text, own in values.items()
        for measure in settings.tested_measures
        if text != base
    )
    return corrected([test for test in found if test is not None])


def focus_of(policies: Sequence[str], wanted: str = "") -> str:
    """The policy whose page it is: ``wanted``, one of another package, one of ours, or the first but the reference."""
    theirs = (text for text in policies if not catalogue.find_policy(text).make.__module__.startswith("fedroster."))
    ours = [name for name, entry in catalogue.policies().items() if entry.is_ours]
    others = (text for text in policies if _name(text) != REFERENCE)
    found = (named(policies, wanted), *theirs, *(named(policies, name) for name in ours), *others)
    return next((text for text in found if text), policies[0])


def against_of(policies: Sequence[str], wanted: Sequence[str], focus: str) -> tuple[str, ...]:
    """What the others are tested against, where it takes part; if nothing is wanted, the reference and the focus."""
    found = (named(policies, name) for name in wanted or (REFERENCE, focus))
    return tuple(dict.fromkeys(text for text in found if text))


def named(policies: Sequence[str], name: str) -> str:
    """A policy by its text or, with whatever parameters, by its name; empty if there is none."""
    return next((text for text in policies if text == name), next((t for t in policies if _name(t) == name), ""))


def _name(text: str) -> str:
    return text.partition(":")[0]
