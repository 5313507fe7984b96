"""Verdicts on claims, holds, contradicted or undecided: both ways are tested, all tests of a page corrected together.

A claim is a conjunction of parts.  It **holds** if every part is shown (intersection-union test: the largest p-value
of the parts).  It is **contradicted** if some part is shown to fall short of the smallest effect that matters (the
smallest p-value, times the number of parts).  Else it is **undecided**.

The correction is Holm's over both tests of every claim, with Shaffer's count (1986, "Modified sequentially rejective
multiple test procedures"): of a claim's two hypotheses, "some part has no effect" and "every part has the effect that
matters", at most one is true.  So a p-value is multiplied by the number of claims that still have a hypothesis left,
and not by the number of hypotheses.  The probability of even one wrong verdict on a page stays below the level.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

import numpy as np

from fedroster.errors import ConfigurationError
from fedroster.lab.statistics import LEVEL, Interval, effect_interval, one_sided_p, seeds_needed, which_test
from fedroster.types import BoolArray, FloatArray, IntArray

POINT = 1.0
"""Smallest effect of interest on an accuracy, percentage points."""

PART_OF_TIME = 0.05
"""Smallest effect of interest on a time, or on a number of rounds, as a share of the longer one."""

PART_OF_GAIN = 0.01
"""Smallest effect of interest on a number of updates in time, as a share of the larger one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the comparisons that a claim rests on, one value for each seed.

    Attributes:
        advantage: Positive where the part is right; infinite where one of two runs never got there, None where both
            did not: a tie.
        surplus: The advantage less the smallest effect that matters; the advantage where no effect is claimed but a
            threshold.
        unit: Of the advantage.
        least: The smallest effect that matters, in words; empty for a threshold.
        where: Which comparison it is, such as a panel; empty where the claim says it.
    """

    advantage: tuple[float | None, ...]
    surplus: tuple[float | None, ...]
    unit: str = ""
    least: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement on every round of every run.

    Attributes:
        broken: In how many rounds of each seed's run it was broken.
        breakable: Whether runs of this length could break it at all; if not, they decide nothing.
    """

    broken: tuple[int, ...]
    breakable: bool = True


def _part(advantage: FloatArray, surplus: FloatArray, unit: str = "", least: str = "") -> Part:
    # No NaN: parts are compared.
    each, less = (tuple(None if math.isnan(one) else one for one in of.tolist()) for of in (advantage, surplus))
    return Part(each, less, unit, least)


def threshold(advantage: FloatArray, unit: str = "") -> Part:
    """How far a value lies on the right side of a threshold that the claim names, shape (seeds,)."""
    return _part(advantage, advantage, unit)


def accuracy_gap(better: FloatArray, worse: FloatArray) -> Part:
    """One accuracy is above another, both in [0, 1], shape (seeds,); less than a point does not matter."""
    gap = 100.0 * (better - worse)
    return _part(gap, gap - POINT, "points", f"{POINT:g} point")


def time_gap(sooner: FloatArray, later: FloatArray, unit: str = "s", *, at_most: float | None = None) -> Part:
    """One time, or number of rounds, is below another, shape (seeds,); less than 5 % of the later does not matter.

    Infinite is a run that never got there: later than any that did, and as late as another that did not.

    Args:
        sooner: The one.
        later: The other.
        unit: Of both.
        at_most: The share of the later that the claim itself names as a threshold.
    """
    with np.errstate(invalid="ignore"):  # infinite less infinite is NaN, a tie
        if at_most is not None:
            return threshold(at_most * later - sooner, unit)
        least = f"{PART_OF_TIME:.0%} of the {'rounds' if unit == 'rounds' else 'time'}"
        return _part(later - sooner, (1.0 - PART_OF_TIME) * later - sooner, unit, least)


def gain(more: FloatArray, less: FloatArray, unit: str = "") -> Part:
    """One amount >= 0, such as updates in time, is above another, shape (seeds,); less than 1 % does not matter."""
    return _part(more - less, (1.0 - PART_OF_GAIN) * more - less, unit, f"{PART_OF_GAIN:.0%}")


def within(values: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Values lie between two limits, for claims of "similar" and "about": an equivalence test has these two parts."""
    return values - low, high - values


def promise(broken: Iterable[BoolArray | IntArray], *, breakable: bool = True) -> Promise:
    """A promise from what each seed's run says of each of its rounds: whether it is broken there, shape (rounds,)."""
    return Promise(tuple(int(np.count_nonzero(rounds)) for rounds in broken), breakable)


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, in a form that can be decided.

    Attributes:
        name: Short id.
        source: Where the paper says it.
        statement: What the paper says.
        measure: What is tested, in words.
        parts: What must be true, all of it: comparisons, or promises.
        ours: Whether it is a further question of ours and no claim of the paper.
        changed: What is not as in the paper's own set-up, in words; empty where all is.
        training: Whether it is judged on runs with training.
    """

    name: str
    source: str
    statement: str
    measure: str
    parts: tuple[Part, ...] | tuple[Promise, ...]
    ours: bool = False
    changed: str = ""
    training: bool = False


Question: TypeAlias = tuple[str, str, Iterable[Part | Promise | FloatArray] | Mapping[str, Part | FloatArray]]
"""Statement, measure, and its parts, named or not; an array of shape (seeds,) is a part that is a threshold."""
Asked: TypeAlias = Mapping[str, Question]
"""Questions by the names of their claims."""


def claims_of(
    source: str,
    asked: Asked,
    *,
    prefix: str = "",
    about: str = "",
    elsewhere: Mapping[str, str] | None = None,
    ours: bool | Collection[str] = False,
    changed: str | Mapping[str, str] = "",
) -> list[Claim]:
    """Claims with one source.

    Args:
        source: Where the paper says them.
        asked: The claims.
        prefix: Of every name.
        about: How every statement begins.
        elsewhere: Sources of those that have another one, by name without the prefix.
        ours: Whether they are our own, or the names of those that are.
        changed: What is not as in the paper's own set-up, for all, or by name without the prefix.

    Raises:
        ConfigurationError: If a claim has no part, or both comparisons and promises.
    """
    claims = []
    for name, (statement, measure, given) in asked.items():
        named = given.items() if isinstance(given, Mapping) else (("", part) for part in given)
        parts = [(where, threshold(part) if isinstance(part, np.ndarray) else part) for where, part in named]
        compared = tuple(replace(part, where=where) for where, part in parts if isinstance(part, Part))
        promised = tuple(part for _, part in parts if isinstance(part, Promise))
        if bool(compared) == bool(promised):
            raise ConfigurationError(
                f"claim {prefix + name!r} has {len(compared)} comparisons and {len(promised)} promises; "
                "expected at least one, and of one kind"
            )
        said = (elsewhere or {}).get(name, source)
        is_ours = ours if isinstance(ours, bool) else name in ours
        other = changed if isinstance(changed, str) else changed.get(name, "")
        kept = compared or promised
        claims.append(Claim(prefix + name, said, about + statement, measure, kept, is_ours, other))
    return claims


Word: TypeAlias = Literal["holds", "contradicted", "undecided"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What these runs say of a claim.

    Attributes:
        claim: The claim.
        word: "holds", "contradicted" or "undecided".
        why: What decided, or what would: in words; may be empty.
        part: Place of the part that is shown: the one that contradicts, or the one with the least evidence.
        effect: That part's mean (or median) advantage with its 95 % interval, not corrected; for a promise the share of
            the seeds that broke it.
        test: "t", "sign", or "promise".
        p_holds: Corrected p-value of "the claim is wrong"; None for a promise.
        p_contradicted: Corrected p-value of "the claim is right"; None for a promise.
        seeds: How many there were.
        seeds_to_decide: About how many would decide; None where it is decided, infinite where no number would.
    """

    claim: Claim
    word: Word
    why: str
    part: int
    effect: Interval
    test: Literal["t", "sign", "promise"]
    p_holds: float | None
    p_contradicted: float | None
    seeds: int
    seeds_to_decide: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.word == "holds"

    @property
    def unit(self) -> str:
        """Unit of the effect."""
        part = self.claim.parts[self.part]
        return part.unit if isinstance(part, Part) else ""


def judge(claims: Sequence[Claim], *, level: float = LEVEL) -> list[Verdict]:
    """Decide claims together; see the module for the tests.

    Args:
        claims: The claims.
        level: Probability of even one wrong verdict.
    """
    tests = {index: _Tests.of(claim) for index, claim in enumerate(claims) if isinstance(claim.parts[0], Part)}
    adjusted = dict(zip(tests, corrected([own.p_values for own in tests.values()]), strict=True))
    each_level = level / max(len(tests), 1)
    return [
        _compared(claim, tests[index], adjusted[index], level, each_level) if index in tests else _promised(claim)
        for index, claim in enumerate(claims)
    ]


def corrected(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Holm's correction of pairs of p-values, of whose two hypotheses at most one is true (Shaffer 1986)."""
    adjusted = [[1.0, 1.0] for _ in pairs]
    left = [2] * len(pairs)
    running, unsettled = 0.0, len(pairs)
    for p, claim, side in sorted((p, claim, side) for claim, pair in enumerate(pairs) for side, p in enumerate(pair)):
        running = max(running, min(1.0, p * unsettled))
        adjusted[claim][side] = running
        left[claim] -= 1
        unsettled -= left[claim] == 0
    return [(holds, contradicted) for holds, contradicted in adjusted]


@dataclass(frozen=True, slots=True)
class _Tests:
    """A claim's comparisons, and the p-values for and against each."""

    parts: tuple[Part, ...]
    favour: tuple[float, ...]
    against: tuple[float, ...]

    @classmethod
    def of(cls, claim: Claim) -> Self:
        parts = tuple(part for part in claim.parts if isinstance(part, Part))
        favour = tuple(one_sided_p(_numbers(part.advantage)) for part in parts)
        return cls(parts, favour, tuple(one_sided_p(-_numbers(part.surplus)) for part in parts))

    @property
    def p_values(self) -> tuple[float, float]:
        """Of "the claim is wrong" and of "the claim is right"."""
        return max(self.favour), min(1.0, len(self.parts) * min(self.against))


def _numbers(values: Sequence[float | None]) -> FloatArray:
    """A tie is NaN to the tests."""
    return np.asarray(values, np.float64)


def _compared(claim: Claim, tests: _Tests, adjusted: tuple[float, float], level: float, each_level: float) -> Verdict:
    parts, (p_holds, p_contradicted) = tests.parts, adjusted
    weakest, worst = int(np.argmax(tests.favour)), int(np.argmin(tests.against))
    seeds = len(parts[0].advantage)
    word: Word = "contradicted" if p_contradicted < level else "holds" if p_holds < level else "undecided"
    why, part, needed = "", weakest, None
    if word == "contradicted":
        part = worst
        # The opposite, where it is shown by the same standard; else an effect that is too small.
        opposite = not parts[worst].least or len(parts) * one_sided_p(-_numbers(parts[worst].advantage)) < each_level
        why = "the opposite is shown" if opposite else f"less than {parts[worst].least}"
        why += f": {parts[worst].where}" if parts[worst].where else ""
    elif word == "undecided":
        for_it = max(seeds_needed(_numbers(one.advantage), each_level) for one in parts)
        against = [seeds_needed(-_numbers(one.surplus), each_level / len(parts)) for one in parts]
        needed = min(for_it, *against)
        part = weakest if for_it <= min(against) else int(np.argmin(against))
        needed = max(needed, seeds + 1.0)
        why = f"about {_round_up(needed):,} seeds would decide" if needed < _HOPELESS else "more seeds would not decide"
    shown = _numbers(parts[part].surplus if word == "contradicted" else parts[part].advantage)
    effect = effect_interval(_numbers(parts[part].advantage))
    return Verdict(claim, word, why, part, effect, which_test(shown), p_holds, p_contradicted, seeds, needed)


_HOPELESS = 10_000


def _round_up(seeds: float) -> int:
    """Two digits of it: it is an estimate."""
    step = 10 ** max(len(str(int(seeds))) - 2, 0)
    return int(math.ceil(seeds / step) * step)


def _promised(claim: Claim) -> Verdict:
    broken = np.array([part.broken for part in claim.parts if isinstance(part, Promise)])
    seeds = broken.shape[1]
    worst = int(np.argmax((broken > 0).sum(axis=1)))
    count = int((broken > 0).any(axis=0).sum())
    share = count / seeds
    why, needed = f"kept by all {seeds} seeds in every round", None
    word: Word = "holds"
    if count:
        word, why = "contradicted", f"{count} of {seeds} seeds broke it"
    elif not all(part.breakable for part in claim.parts if isinstance(part, Promise)):
        word, why, needed = "undecided", "no run of this length could break it", math.inf
    return Verdict(claim, word, why, worst, Interval(share, share, share), "promise", None, None, seeds, needed)
