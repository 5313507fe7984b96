"""Intervals and tests over seeds, and verdicts on claims."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import ConfigurationError

LEVEL = 0.05
"""Probability of a false "holds" over all claims of a paper together."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over seeds with the ends of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_interval(values: Sequence[float] | FloatArray, *, confidence: float = 0.95) -> Interval:
    """Student's t interval of a mean over seeds; a single value has an interval without width."""
    x = np.asarray(values, np.float64)
    mean = float(x.mean())
    if x.shape[0] < 2:
        return Interval(mean, mean, mean)
    half = _quantile(x.shape[0] - 1, confidence) * float(x.std(ddof=1)) / math.sqrt(x.shape[0])
    return Interval(mean, mean - half, mean + half)


def _quantile(freedom: int, confidence: float) -> float:
    """Student's t quantile of a two-sided interval."""
    from scipy.special import stdtrit  # scipy.stats has it too, and takes half a second to import

    return float(stdtrit(freedom, 0.5 + confidence / 2.0))


def band(values: FloatArray, *, confidence: float = 0.95) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pointwise t intervals of curves.

    Args:
        values: Shape (seeds, points).
        confidence: Coverage at each point, in (0, 1).

    Returns:
        Mean, lower and upper end, each of shape (points,).
    """
    mean = values.mean(axis=0)
    if values.shape[0] < 2:
        return mean, mean, mean
    half = _quantile(values.shape[0] - 1, confidence) * values.std(axis=0, ddof=1) / math.sqrt(values.shape[0])
    return mean, mean - half, mean + half


def one_sided_p(advantage: Sequence[float] | FloatArray) -> float:
    """P-value of "the mean is not above zero", by Student's paired t test over seeds."""
    x = np.asarray(advantage, np.float64)
    if x.shape[0] < 2:
        return 1.0
    error = float(x.std(ddof=1)) / math.sqrt(x.shape[0])
    if error == 0.0:
        return 0.0 if x[0] > 0.0 else 1.0
    from scipy.special import stdtr

    return float(stdtr(x.shape[0] - 1, -float(x.mean()) / error))


def two_sided_p(difference: Sequence[float] | FloatArray) -> float:
    """P-value of "the mean is zero", by Student's paired t test over seeds."""
    x = np.asarray(difference, np.float64)
    return min(1.0, 2.0 * min(one_sided_p(x), one_sided_p(-x)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: p-values, in the same order, that may be compared with the level of all tests together."""
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        running = max(running, min(1.0, p_values[i] * (len(p_values) - rank)))
        adjusted[i] = running
    return adjusted


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a paper, in a form that a test can decide.

    Attributes:
        name: Short id.
        source: Where the paper says it.
        statement: What the paper says.
        measure: What is tested, in words.
        advantages: For each part that must hold, one value for each seed, positive where the part is right.  A claim
            with several parts holds if all do (intersection-union test).
        ours: Whether it is a further question of ours and no claim of the paper.
    """

    name: str
    source: str
    statement: str
    measure: str
    advantages: tuple[tuple[float, ...], ...]
    ours: bool = False


Asked: TypeAlias = Mapping[str, tuple[str, str, Iterable[FloatArray]]]
"""Claims by name: statement, measure, and for each part its advantages, shape (seeds,)."""


def claims_of(
    source: str,
    asked: Asked,
    *,
    prefix: str = "",
    about: str = "",
    elsewhere: Mapping[str, str] | None = None,
    ours: bool | Collection[str] = False,
) -> list[Claim]:
    """Claims with one source.

    Args:
        source: Where the paper says them.
        asked: The claims.
        prefix: Of every name.
        about: How every statement begins.
        elsewhere: Sources of those that have another one, by name without the prefix.
        ours: Whether they are our own, or the names of those that are.
    """
    return [
        Claim(
            prefix + name,
            (elsewhere or {}).get(name, source),
            about + statement,
            measure,
            tuple(tuple(part.tolist()) for part in parts),
            ours if isinstance(ours, bool) else name in ours,
        )
        for name, (statement, measure, parts) in asked.items()
    ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a claim holds here.

    Attributes:
        claim: The claim.
        weakest: Mean and interval of the part with the least evidence.
        p_value: Largest p-value of the parts.
        adjusted_p: After Holm's correction over all claims that are judged together.
        holds: Whether ``adjusted_p`` is below the level.
    """

    claim: Claim
    weakest: Interval
    p_value: float
    adjusted_p: float
    holds: bool

    @property
    def word(self) -> str:
        """The verdict in words: a claim that does not hold may be refuted or only not shown."""
        if self.holds:
            return "holds"
        return "does not hold (the opposite is shown)" if self.weakest.high < 0.0 else "does not hold (not shown)"


def judge(claims: Sequence[Claim], *, level: float = LEVEL) -> list[Verdict]:
    """Decide claims together: one-sided paired t tests over seeds, Holm's correction.

    Args:
        claims: The claims.
        level: Probability of even one false "holds".

    Raises:
        ConfigurationError: If a claim has no part.
    """
    verdicts = []
    for claim in claims:
        if not claim.advantages:
            raise ConfigurationError(f"claim {claim.name!r} has no part; expected at least one")
        p_values = [one_sided_p(part) for part in claim.advantages]
        weakest = int(np.argmax(p_values))
        interval = mean_interval(claim.advantages[weakest])
        verdicts.append(Verdict(claim, interval, p_values[weakest], 1.0, False))
    adjusted = holm([verdict.p_value for verdict in verdicts])
    return [replace(verdict, adjusted_p=p, holds=p < level) for verdict, p in zip(verdicts, adjusted, strict=True)]
