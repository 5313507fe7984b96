"""Losses and sample counts that nodes report with a training reply, for policies that learn from them."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from fedroster.core.checks import check_integer, check_number

_RECENT = 256
"""Values of each kind by which a new one is bounded."""


@dataclass(frozen=True, slots=True)
class LossMetrics:
    """The names of losses and sample counts in training replies, and their bounds.

    Only policies that set ``wants_losses``, such as Oort and Power-of-Choice, learn from them.  A node that overstates
    its loss or its samples is chosen more often, so that both are bounded: absolutely, and by what others say.

    Attributes:
        loss: Metric with the mean loss, over the node's samples, of the model that it was sent, before it trained.
        squared_loss: Metric with the mean of the squares of the samples' losses.
        num_samples: Metric with the number of samples.
        most_loss: Losses are clipped to [0, most_loss], squared ones to its square, > 0.
        most_samples: Sample counts are clipped to [1, most_samples], >= 1.
        times_median: Values are also clipped to this many times the median of recent replies, >= 1; infinite for no
            such bound.
        least_recent: Replies before which there is no such bound, >= 1.
    """

    loss: str = "initial-loss"
    squared_loss: str = "initial-squared-loss"
    num_samples: str = "num-examples"
    most_loss: float = 100.0
    most_samples: float = 1e9
    times_median: float = 10.0
    least_recent: int = 5

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        check_number("most_loss", self.most_loss, above=0.0)
        check_number("most_samples", self.most_samples, least=1.0)
        if self.times_median != math.inf:
            check_number("times_median", self.times_median, least=1.0)
        check_integer("least_recent", self.least_recent, least=1)


@dataclass(frozen=True, slots=True)
class Losses:
    """What one reply reports.

    Attributes:
        loss: Mean loss, >= 0; None when it is not told.
        squared_loss: Mean squared loss, not below the square of the mean; None when it is not told.
        num_samples: Samples, >= 1; None when they are not told.
    """

    loss: float | None = None
    squared_loss: float | None = None
    num_samples: float | None = None


class LossReader:
    """Reads losses from replies and remembers recent ones, by which the next are bounded."""

    def __init__(self, rules: LossMetrics) -> None:
        """Start without replies."""
        self._rules = rules
        self._recent: dict[str, deque[float]] = {}

    def read(self, metrics: Mapping[str, object]) -> Losses:
        """Read and bound what a reply reports; a number that is not finite counts as missing.

        Args:
            metrics: Metrics of a training reply, by name.
        """
        rules = self._rules
        loss = self._bounded(metrics, rules.loss, 0.0, rules.most_loss)
        squared = self._bounded(metrics, rules.squared_loss, 0.0, rules.most_loss**2)
        if loss is not None and squared is not None:
            squared = max(squared, loss**2)
        return Losses(loss, squared, self._bounded(metrics, rules.num_samples, 1.0, rules.most_samples))

    def _bounded(self, metrics: Mapping[str, object], name: str, least: float, most: float) -> float | None:
        value = metrics.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        recent = self._recent.setdefault(name, deque(maxlen=_RECENT))
        if len(recent) >= self._rules.least_recent:
            usual = statistics.median(recent)
            if usual > 0.0:
                most = min(most, self._rules.times_median * usual)
        number = min(max(float(value), least), max(least, most))
        recent.append(number)
        return number
