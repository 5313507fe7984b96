"""Policies against each other, paired by seed: what the judge of all verdicts says of "this one is better"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroster import catalogue
from fedroster.catalogue import REFERENCE
from fedroster.lab.compare.tables import Measure, Settings, Values, named
from fedroster.lab.statistics import LEVEL, Interval, signed
from fedroster.lab.verdicts.verdicts import PART_OF_GAIN, PART_OF_TIME, POINT, Claim, Part, Verdict, judge
from fedroster.types import FloatArray

TEST_NOTE = (
    "'Better' and 'worse' are shown; 'but small' is shown to be less than matters (5 % of a time, 1 % of the updates, "
    "one point of a share), and 'alike' is so either way. An entry without a word is undecided; it says how many seeds "
    "would decide if the effect stays as it is. All tests are one family (Holm's correction); the three numbers at the "
    f"top have half of its {LEVEL:.0%}. Tests are one-sided and paired by seed: Student's t with Hall's correction, or "
    "the sign test where seeds are fewer than five, values coarse, or a run missed its target, which counts as later "
    "than any that did not (of the last two the median is shown). Three seeds decide nothing. Intervals in brackets "
    "invert the tests: one that holds no difference is decided. Times and updates differ by ratios, shares by points."
)

COLUMNS = ("against", "policy", "measure", "difference", "difference_low", "difference_high", "p_holm", "verdict")
"""Of a table of tests."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A policy against another in one measure; the difference is a ratio where the measure says so.

    ``found`` is about "the policy is better", or where it is ``turned`` about "the other is".
    """

    policy: str
    against: str
    measure: Measure
    found: Verdict
    turned: bool = False

    @property
    def difference(self) -> Interval:
        """The policy's number less the other's, or over it, with the interval that inverts the test."""
        effect = self.found.effect
        sign = -1.0 if self.measure.less is not self.turned else 1.0
        ends = (sign * effect.mean, *sorted((sign * effect.low, sign * effect.high)))
        return Interval(*(np.exp(ends).tolist() if self.measure.is_ratio else ends))

    @property
    def verdict(self) -> str:
        """The four words, asked in both directions: better or worse (both may be small), alike, undecided."""
        if self.found.word == "undecided":
            return "alike" if self.found.is_small else "undecided"
        return f"{'better' if self.found.holds is not self.turned else 'worse'}{', but small' * self.found.is_small}"

    @property
    def needed(self) -> str:
        """How many seeds would decide; empty where it is decided."""
        return self.found.why.removesuffix(" would decide") if self.verdict == "undecided" else ""

    def shown(self) -> str:
        """Difference, verdict and interval as a cell of a table; ratios near 1 have a digit more."""
        shown = self.difference
        form = ".3f" if abs(self.difference.mean - 1.0) < 0.02 else ".2f"
        mean, low, high = (
            format(value, form) if self.measure.is_ratio else signed(100.0 * value, ".1f")
            for value in (shown.mean, shown.low, shown.high)
        )
        word = "" if self.needed else f" {self.verdict}"
        more = f"\n{self.needed}" if self.needed else ""
        return f"{mean}{word}\n({low} to {high}){more}".replace("inf", "∞")

    def row(self) -> dict[str, Any]:
        """The test as a row of a table."""
        p = min(self.found.p_holds or 0.0, self.found.p_contradicted or 0.0)
        shown = self.difference
        cells = (self.against, self.policy, self.measure.name, shown.mean, shown.low, shown.high, p, self.verdict)
        return dict(zip(COLUMNS, cells, strict=True))


def _claim(measure: Measure, mine: FloatArray, theirs: FloatArray) -> Claim | None:
    """That a policy is better, from its numbers and another's, paired by seed; None where there is nothing to test.

    A time is infinite where a run did not reach its target: later than any, and as late as another that did not.
    """
    if mine.shape[0] < 2 or np.isnan(mine).any() or np.isnan(theirs).any():
        return None
    gap, matters = mine - theirs if not measure.is_ratio else mine, POINT / 100.0
    if measure.is_ratio:
        sooner = np.minimum(mine, theirs)
        if (sooner <= 0.0).any() or np.isinf(sooner).all():
            return None
        # Ratios are averaged as logarithms: twice and half as much cancel.
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.log(mine) - np.log(theirs)
        matters = -math.log1p(-(PART_OF_TIME if measure.less else PART_OF_GAIN))
    better = -gap if measure.less else gap
    tested = Part(better, better - matters, better + matters, measure.tested, f"{matters:g}")
    return Claim("", "", "", measure.name, (tested,))


def contrasts_of(values: Values, settings: Settings) -> dict[str, list[Contrast]]:
    """All tests of a page, one family, by the policy that the others are tested against; none with one seed."""
    # The headline's first: a test is asked once, from one of its two sides.
    bases = list(filter(None, dict.fromkeys((settings.base, *settings.against))))
    asked: dict[tuple[str, str, Measure], Claim] = {}
    for base, text in ((base, text) for base in bases for text in values if text != base):
        for measure in settings.tested_measures:
            claim = _claim(measure, values[text][measure.name], values[base][measure.name])
            if claim is not None and (base, text, measure) not in asked:
                asked[text, base, measure] = claim
    top = {(settings.focus, settings.base, measure) for measure in settings.headline_measures}
    level = LEVEL / 2.0 / settings.read_together
    tests: list[Contrast] = []
    for keys in ([key for key in asked if key in top], [key for key in asked if key not in top]):
        verdicts = judge([asked[key] for key in keys], level=level)
        tests += [Contrast(*key, found) for key, found in zip(keys, verdicts, strict=True)]
    tests += [Contrast(one.against, one.policy, one.measure, one.found, turned=True) for one in tests]
    order = [*values]
    tests.sort(key=lambda test: (order.index(test.policy), settings.tested_measures.index(test.measure)))
    return {base: [test for test in tests if test.against == base] for base in bases}


def focus_of(policies: Sequence[str], wanted: str = "") -> str:
    """The policy whose page it is: ``wanted``, one of another package, one of ours, or the first but the reference."""
    theirs = (text for text in policies if not catalogue.find_policy(text).make.__module__.startswith("fedroster."))
    ours = [name for name, entry in catalogue.policies().items() if entry.is_ours]
    others = (text for text in policies if text.partition(":")[0] != REFERENCE)
    found = (named(policies, wanted), *theirs, *(named(policies, name) for name in ours), *others)
    return next((text for text in found if text), policies[0])
