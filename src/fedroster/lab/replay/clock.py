"""Where a replayed round stands in the log: at the same round, or at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.lab.replay.history import History
from fedroster.types import FloatArray

_CLEAR = 0.25  # standard error of a slope that tells the two apart, by the mean of changes


@dataclass(frozen=True, slots=True)
class Pace:
    """How the log's world moves on.

    Attributes:
        by_time: Whether clients come and go by time; if not, by rounds.
        at_s: When the log's rounds began, shape (rounds,), seconds.
        end_s: Until when the log shows which clients are available, seconds.
        least_gap_s: Rounds begin at least so far apart, seconds.
        idle_s: From the end of each round to the next one's begin, shape (rounds,), seconds.
        wait_s: From an empty round to the next one, seconds.
    """

    by_time: bool
    at_s: FloatArray
    end_s: float
    least_gap_s: float
    idle_s: FloatArray
    wait_s: float

    def index(self, round: int, now_s: float) -> int:
        """The log's round that a replayed one uses; ``round`` counts from 0."""
        if not self.by_time:
            return round
        return max(int(np.searchsorted(self.at_s, now_s + 1e-9, side="right")) - 1, 0)

    def next_s(self, round: int, now_s: float, round_s: float, *, empty: bool) -> float:
        """When the next round begins after number ``round``, from 0, seconds."""
        if empty:
            return now_s + self.wait_s
        return now_s + max(round_s + float(self.idle_s[round]), self.least_gap_s)


def read_clock(history: History) -> Pace:
    """Find out how the log's world moves on.

    Clients come and go by time if more of them changed between two rounds the more time passed between them; where gaps
    are too even to show it, if availability in one round predicts that in the next.
    """
    at_s = history.at_s
    gap_s = np.diff(at_s)
    lasted_s = history.lasted_s[:-1]
    busy = lasted_s > 0.0
    typical_s = max(float(np.median(gap_s)), 1e-9)
    # A gap that many rounds share although they took less is an interval.
    rounded = np.round(gap_s[busy] / typical_s, 6)
    values, counts = np.unique(rounded, return_counts=True)
    least_gap_s = 0.0
    if values.size and counts.max() >= max(0.2 * rounded.shape[0], 3.0):
        least_gap_s = float(values[counts.argmax()]) * typical_s
    free = busy & (gap_s > least_gap_s * (1.0 + 1e-6))
    idle_s = np.maximum(gap_s - lasted_s, 0.0)
    usual_s = float(np.median(idle_s[free])) if free.any() else 0.0
    idle_s = np.append(np.where(free, idle_s, np.where(busy, 0.0, usual_s)), usual_s)
    wait_s = float(np.median(gap_s[~busy])) if (~busy).any() else max(least_gap_s, typical_s)
    return Pace(
        by_time=_goes_by_time(history, gap_s),
        at_s=at_s,
        end_s=float(at_s[-1]) + typical_s,
        least_gap_s=least_gap_s,
        idle_s=idle_s,
        wait_s=wait_s,
    )


def _goes_by_time(history: History, gap_s: FloatArray) -> bool:
    if not (gap_s > 0.0).all():
        return False
    changes = (history.available[1:] != history.available[:-1]).sum(axis=1).astype(np.float64)
    mean = float(changes.mean())
    if mean == 0.0:
        return False
    # By time, twice the gap sees twice the changes: the slope over gap / mean gap is their mean; by rounds it is 0.
    span = np.minimum(gap_s, 5.0 * np.median(gap_s))
    span = span / span.mean() - 1.0
    square = float(np.dot(span, span))
    if square > 0.0:
        slope = float(np.dot(span, changes)) / square
        error = float((changes - mean - slope * span).std()) / np.sqrt(square)
        if error < _CLEAR * mean:
            return slope > 0.5 * mean
    # Gaps too even to tell: by time if availability lasts.  By chance alone, this many clients would change.
    rate = history.available.mean(axis=0)
    return bool(mean < 0.7 * float((2.0 * rate * (1.0 - rate)).sum()))
