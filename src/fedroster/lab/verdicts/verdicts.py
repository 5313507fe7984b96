"""Verdicts on claims, all of a family corrected together: what reproductions and comparisons judge by.

The page "How verdicts are made" (docs/explanation/verdicts.md) has the hypotheses, the panels, the correction and what
it promises.  In short: a claim is a conjunction of parts.  It is shown by the largest p-value of its parts; that it is
small, or that its opposite is shown, by the smallest one times their number.  Each direction is a chain of hypotheses,
in which the next implies the one before, so that Holm's multiplier is the number of chains that have one left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One of the comparisons that a claim rests on, one value for each seed, shape (seeds,).

    Attributes:
        advantage: Positive where the part is right; infinite where one of two runs never got there, NaN where both did
            not: a tie.
        surplus: The advantage less the smallest effect that matters; the advantage where no effect is claimed but a
            threshold.
        slack: The advantage plus it: positive where the part is no worse than that.
        unit: Of the advantage.
        least: The smallest effect that matters, in words; empty for a threshold.
        where: Which comparison it is; empty where the claim says it.
        panel: Which panel it is of, where a general sentence is tested in several.
    """

    advantage: FloatArray
    surplus: FloatArray
    slack: FloatArray
    unit: str = ""
    least: str = ""
    where: str = ""
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """A statement on every round: in how many each seed's run broke it, and whether so short a run can break it."""

    broken: tuple[int, ...]
    breakable: bool = True


def threshold(advantage: FloatArray, unit: str = "") -> Part:
    """How far a value lies on the right side of a threshold that the claim names, shape (seeds,)."""
    return Part(advantage, advantage, advantage, unit)


def accuracy_gap(better: FloatArray, worse: FloatArray) -> Part:
    """One accuracy is above another, both in [0, 1], shape (seeds,); less than a point does not matter."""
    gap = 100.0 * (better - worse)
    return Part(gap, gap - POINT, gap + POINT, "points", f"{POINT:g} point")


def time_gap(sooner: FloatArray, later: FloatArray, unit: str = "s", *, at_most: float | None = None) -> Part:
    """One time, or number of rounds, is below another, shape (seeds,); less than 5 % of the longer does not matter.

    Infinite is a run that never got there: later than any that did, and as late as another that did not.  With
    ``at_most`` the claim itself names a share of the later as a threshold.
    """
    with np.errstate(invalid="ignore"):  # infinite less infinite is NaN, a tie
        if at_most is not None:
            return threshold(at_most * later - sooner, unit)
        least = f"{PART_OF_TIME:.0%} of the {'rounds' if unit == 'rounds' else 'time'}"
        kept = 1.0 - PART_OF_TIME
        return Part(later - sooner, kept * later - sooner, later - kept * sooner, unit, least)


def gain(more: FloatArray, less: FloatArray, unit: str = "") -> Part:
    """One amount >= 0, such as updates in time, is above another, shape (seeds,); less than 1 % does not matter."""
    kept = 1.0 - PART_OF_GAIN
    return Part(more - less, kept * more - less, more - kept * less, unit, f"{PART_OF_GAIN:.0%}")


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

    @property
    def asked_by(self) -> str:
        """Whose question it is."""
        return "us" if self.ours else "paper"

    @property
    def runs(self) -> str:
        """Of which kind the runs are that it is judged on."""
        return "training" if self.training else "simulation"


Question: TypeAlias = tuple[str, str, Iterable[Part | Promise | FloatArray] | Mapping[str, Part | FloatArray]]
"""Statement, measure, and its parts; an array of shape (seeds,) is a part that is a threshold.

Parts may have names, "where" or "panel|where".
"""
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
    changed: str = "",
) -> list[Claim]:
    """Claims with one source.

    Args:
        source: Where the paper says them.
        asked: The claims by name, which gets the prefix.
        prefix: Of every name.
        about: How every statement begins.
        elsewhere: Sources of those that have another one, by name without the prefix.
        ours: Whether they are our own, or the names of those that are.
        changed: What is not as in the paper's own set-up.

    Raises:
        ConfigurationError: If a claim has no part, or both comparisons and promises.
    """
    claims = []
    for name, (statement, measure, given) in asked.items():
        named = given.items() if isinstance(given, Mapping) else (("", one) for one in given)
        parts = [(place, threshold(one) if isinstance(one, np.ndarray) else one) for place, one in named]
        compared = tuple(_placed(one, place) for place, one in parts if isinstance(one, Part))
        promised = tuple(one for _, one in parts if isinstance(one, Promise))
        if bool(compared) == bool(promised):
            raise ConfigurationError(
                f"claim {prefix + name!r} has {len(compared)} comparisons and {len(promised)} promises; "
                "expected at least one, and of one kind"
            )
        said = (elsewhere or {}).get(name, source)
        is_ours = ours if isinstance(ours, bool) else name in ours
        kept = compared or promised
        claims.append(Claim(prefix + name, said, about + statement, measure, kept, is_ours, changed))
    return claims


def _placed(one: Part, place: str) -> Part:
    panel, _, where = place.rpartition("|")
    return replace(one, where=where, panel=panel)


Word: TypeAlias = Literal["holds", "holds, but small", "contradicted", "undecided"]
WORDS: tuple[Word, ...] = get_args(Word)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What these runs say of a claim.

    Attributes:
        word: One of :data:`WORDS`.
        why: What decided, or what would: in words; may be empty.
        part: Place of the part that is shown: the one that contradicts, or the one with the least evidence.
        levels: Of the tests for and against this part, corrected; empty for a promise.
        p_holds: Corrected p-value of "some part is not above zero"; None for a promise.
        p_small: Corrected p-value of "every part is at least what matters"; None for a promise.
        p_contradicted: Corrected p-value of "no part is below zero"; None for a promise.
        is_small: Whether the effect is shown to be smaller than what matters, in both directions.
    """

    claim: Claim
    word: Word
    why: str
    part: int
    levels: tuple[float, ...] = ()
    p_holds: float | None = None
    p_small: float | None = None
    p_contradicted: float | None = None
    is_small: bool = False

    @property
    def _shown(self) -> Part | Promise:
        return self.claim.parts[self.part]

    @property
    def holds(self) -> bool:
        """Whether the claim is shown, be the effect small or not."""
        return self.word in ("holds", "holds, but small")

    @property
    def unit(self) -> str:
        """Unit of the effect."""
        return self._shown.unit if isinstance(self._shown, Part) else ""

    @property
    def seeds(self) -> int:
        """How many there were."""
        return len(self._shown.advantage if isinstance(self._shown, Part) else self._shown.broken)

    @property
    def test(self) -> Literal["t", "sign", "promise"]:
        """How the part that is shown was tested."""
        return which_test(self._shown.advantage) if isinstance(self._shown, Part) else "promise"

    @property
    def effect(self) -> Interval:
        """That part's mean (or median) advantage with the interval that inverts its tests at their levels.

        For a promise the share of the seeds that broke it.
        """
        if isinstance(one := self._shown, Part):  # what is not shown beyond what matters is not shown beyond 0
            tested = (one.advantage, one.slack, one.surplus)
            own, up, down = (effect_interval(values, *self.levels) for values in tested)
            return Interval(own.mean, min(own.low, up.low), max(own.high, down.high))
        broken = [one.broken for one in self.claim.parts if isinstance(one, Promise)]
        share = sum(any(seed) for seed in zip(*broken, strict=True)) / self.seeds
        return Interval(share, share, share)


def judge(claims: Sequence[Claim], *, level: float = LEVEL, family: int = 0) -> list[Verdict]:
    """Decide a family of claims together; see the module for the tests.

    A wrong verdict, even one, has the probability ``level``.  If more claims than these are tested in all, ``family``
    of them, the others count as not yet decided.
    """
    parts = [[one for one in claim.parts if isinstance(one, Part)] for claim in claims]
    p_values = [_p_values(own) for own in parts]
    chains = [chain for own, p in zip(parts, p_values, strict=True) if own for chain in _chains(own, p)]
    tested = iter(corrected(chains, level, 2 * family))
    return [
        _compared(claim, own, p, next(tested), next(tested), level) if own else _promised(claim)
        for claim, own, p in zip(claims, parts, p_values, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Chain:
    """Corrected p-values of a chain, and how often the last one's level goes into that of the family."""

    p: tuple[float, ...]
    times: int


def corrected(chains: Sequence[Sequence[float]], level: float = LEVEL, family: int = 0) -> list[Chain]:
    """Holm's correction of chains of hypotheses, each the weaker the later: it is true wherever the one before is.

    As long as one of its hypotheses is left, a chain counts once, and so do those of the ``family`` that are not here.
    A p-value below the level is a rejection.
    """
    nested = [np.maximum.accumulate(chain).tolist() for chain in chains]
    found: list[list[float]] = [[] for _ in chains]
    times = [0] * len(chains)
    running = 0.0
    left = max(len(chains), family)
    stopped = 0
    for p, place, index in sorted((p, place, index) for index, own in enumerate(nested) for place, p in enumerate(own)):
        running = max(running, min(1.0, p * left))
        if running >= level and not stopped:
            stopped = left
        found[index].append(running)
        if place == len(nested[index]) - 1:
            times[index] = stopped or left
            left -= 1
    return [Chain(tuple(own), often) for own, often in zip(found, times, strict=True)]


def _p_values(parts: Sequence[Part]) -> FloatArray:
    """P-values of "it is not better", "worse than does not matter", "not worse", "better than does not matter".

    Shape (4, parts).
    """
    tests = (lambda one: one.advantage, lambda one: one.slack, lambda one: -one.advantage, lambda one: -one.surplus)
    return np.array([[one_sided_p(values(one)) for one in parts] for values in tests])


def _chains(parts: Sequence[Part], p_values: FloatArray) -> tuple[list[float], list[float]]:
    """P-values of "some part is worse than does not matter" and "some is not better"; of the opposites, by panels."""
    better, no_worse, worse, no_better = p_values
    return [no_worse.max(), better.max()], [_by_panels(parts, no_better), _by_panels(parts, worse)]


def _by_panels(parts: Sequence[Part], p_values: FloatArray) -> float:
    """P-value of "in some panel all parts are so": of a panel the smallest times their number, then the largest."""
    panels: dict[str, list[float]] = {}
    for one, p in zip(parts, p_values.tolist(), strict=True):
        panels.setdefault(one.panel, []).append(p)
    if len(panels) == 1 and "" not in panels:
        return 1.0  # one panel of the several that a general sentence is about
    return max(min(1.0, len(own) * min(own)) for own in panels.values())


def _compared(
    claim: Claim, parts: Sequence[Part], p_values: FloatArray, up: Chain, down: Chain, level: float
) -> Verdict:
    panels = Counter(one.panel for one in parts)
    levels = [(level / up.times, level / down.times / panels[one.panel]) for one in parts]
    weakest = int(p_values[:2].max(axis=0).argmax())
    against = p_values[2:].max(axis=0)
    worst = int(against.argmin())
    least = int(p_values[3].argmin())
    is_small = parts[least].least != "" and up.p[0] < level and down.p[0] < level
    word: Word = "undecided"
    why, shown = "", weakest
    if down.p[1] < level:
        word, shown = "contradicted", worst
        where = f"in each of {len(panels)} panels" if len(panels) > 1 else parts[worst].where
        why = f"the opposite is shown{', but small' * is_small}{': ' * bool(where)}{where}"
    elif up.p[1] < level:
        word = "holds"
        if is_small:
            word, shown = "holds, but small", least
            why = f"less than {parts[least].least}{': ' * bool(parts[least].where)}{parts[least].where}"
    else:
        opposite = {one.panel: 0 for one, p, own in zip(parts, against, levels, strict=True) if p < own[1]}
        shown, why = _open(parts, levels, weakest, can_contradict=len(panels) > 1 or "" in panels)
        if opposite:
            shown = worst
            why = f"the opposite is shown in {len(opposite)} of {len(panels)} panels: {', '.join(opposite)}"
        elif is_small and len(parts) == 1:
            why = f"less than {parts[0].least} either way"
    return Verdict(claim, word, why, shown, levels[shown], up.p[1], down.p[0], down.p[1], is_small)


def _open(
    parts: Sequence[Part], levels: Sequence[tuple[float, float]], weakest: int, *, can_contradict: bool
) -> tuple[int, str]:
    """Of an undecided claim the part to show, and about how many seeds would decide, in words."""
    each = list(zip(parts, levels, strict=True))
    favour = max(seeds_needed(one.advantage, own[0]) for one, own in each)
    against = [seeds_needed(-one.advantage, own[1]) for one, own in each]
    needed = max(min(favour, min(against) if can_contradict else math.inf), len(parts[0].advantage) + 1.0)
    shown = weakest if favour <= min(against) else int(np.argmin(against))
    said = f"about {_round_up(needed):,} seeds would decide" if needed < _HOPELESS else "more seeds would not decide"
    return shown, said


_HOPELESS = 10_000


def _round_up(seeds: float) -> int:
    """Two digits of it: it is an estimate."""
    step = 10 ** max(len(str(int(seeds))) - 2, 0)
    return int(math.ceil(seeds / step) * step)


def _promised(claim: Claim) -> Verdict:
    promises = [one for one in claim.parts if isinstance(one, Promise)]
    broken = np.array([one.broken for one in promises])
    count = int((broken > 0).any(axis=0).sum())
    seeds = broken.shape[1]
    worst = int(np.argmax((broken > 0).sum(axis=1)))
    if count:
        return Verdict(claim, "contradicted", f"{count} of {seeds} seeds broke it", worst)
    if not all(one.breakable for one in promises):
        return Verdict(claim, "undecided", "no run of this length could break it", worst)
    return Verdict(claim, "holds", f"kept by all {seeds} seeds in every round", worst)
