"""When the rounds of a log begin again: at its intervals, or as long after another's end as they did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.lab.replay.history import History
from fedroster.types import FloatArray


@dataclass(frozen=True, slots=True)
class Pace:
    """From one round to the next.

    Attributes:
        least_gap_s: Rounds begin at least so far apart, seconds.
        idle_s: From the end of each round to the next one's begin, shape (rounds,), seconds.
        wait_s: From an empty round to the next one, seconds.
    """

    least_gap_s: float
    idle_s: FloatArray
    wait_s: float

    def next_s(self, round: int, now_s: float, round_s: float, *, empty: bool) -> float:
        """When the next round begins after number ``round``, from 0, seconds."""
        if empty:
            return now_s + self.wait_s
        return now_s + max(round_s + float(self.idle_s[round]), self.least_gap_s)


def read_clock(history: History) -> Pace:
    """Read it off."""
    gap_s = np.diff(history.at_s)
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
    return Pace(least_gap_s, idle_s, wait_s)
