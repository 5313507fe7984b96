"""Losses and sample counts that nodes report with a training reply: for policies that learn from them, and for sway."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedroster.core.checks import real

_MOST_LOSS, _MOST_SAMPLES = 100.0, 1e9
"""Losses are clipped to [0, 100], squared ones to the square of that, numbers of samples to [1, 1e9]."""
_TIMES_MEDIAN, _RECENT, _LEAST_RECENT = 10.0, 256, 5
"""And all to ten times the median of so many recent replies at most, once there are five."""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """The names of losses and sample counts in training replies.

    Only policies that set ``wants_losses``, such as Oort and Power-of-Choice, are told them.  A node that overstates
    its loss or its samples is chosen more often, so that both are bounded: absolutely (a loss by 100, its square by
    10,000, samples by 1e9), and by ten times the median of what others said lately.

    Attributes:
        loss: Metric with the mean loss, over the node's samples, of the model that it was sent, before it trained.
        squared_loss: Metric with the mean of the squares of the samples' losses.
        num_samples: Metric with the number of samples.
    """

    loss: str = "initial-loss"
    squared_loss: str = "initial-squared-loss"
    num_samples: str = "num-examples"


class LossReader:
    """Reads losses from replies and remembers recent ones, by which the next are bounded."""

    def __init__(self, names: LossMetrics) -> None:
        """Start without replies."""
        self._names = names
        self._recent: dict[str, deque[float]] = {}

    def read(self, metrics: Mapping[str, object]) -> dict[str, float]:
        """Read and bound what the metrics of a reply report, under the names that a selector observes it by.

        A number that is not finite counts as missing.
        """
        names = self._names
        found = {
            "losses": self._bounded(metrics, names.loss, 0.0, _MOST_LOSS),
            "squared_losses": self._bounded(metrics, names.squared_loss, 0.0, _MOST_LOSS**2),
            "num_samples": self._bounded(metrics, names.num_samples, 1.0, _MOST_SAMPLES),
        }
        told = {kind: value for kind, value in found.items() if value is not None}
        if "squared_losses" in told:  # not below the square of the mean
            told["squared_losses"] = max(told["squared_losses"], told.get("losses", 0.0) ** 2)
        return told

    def _bounded(self, metrics: Mapping[str, object], name: str, least: float, most: float) -> float | None:
        value = real(metrics.get(name))
        if not math.isfinite(value):
            return None
        recent = self._recent.setdefault(name, deque(maxlen=_RECENT))
        if len(recent) >= _LEAST_RECENT:
            usual = statistics.median(recent)
            if usual > 0.0:
                most = min(most, _TIMES_MEDIAN * usual)
        number = min(max(value, least), max(least, most))
        recent.append(number)
        return number


MOST_SWAY = 6.0
"""In tests cohorts of equal chances stayed below 2, those by speed below 5, above 7 where speed goes with data."""


class Sway:
    """How far losses of the model move from one cohort to the next, as a multiple of what chance makes of it.

    Over the last 20 cohorts it is half the mean squared step between their mean losses, by the mean variance of such a
    mean, which the losses within a cohort tell.  It is great where a policy brings clients together whose data are
    alike: each cohort then undoes what the last one taught.
    """

    def __init__(self) -> None:
        """Know no cohort."""
        self._cohorts: deque[tuple[float, float]] = deque(maxlen=20)

    def add(self, losses: Sequence[float]) -> float:
        """The sway with one more cohort's losses before training; NaN before there are enough."""
        if len(losses) > 1:
            self._cohorts.append((statistics.fmean(losses), statistics.variance(losses) / len(losses)))
        if len(self._cohorts) < (self._cohorts.maxlen or 0):
            return math.nan
        means, chances = zip(*self._cohorts, strict=True)
        steps = [(after - before) ** 2 for before, after in pairwise(means)]
        return statistics.fmean(steps) / 2.0 / statistics.fmean(chances) if any(chances) else math.nan
