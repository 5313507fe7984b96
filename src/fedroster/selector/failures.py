"""Clients that fail or stay silent: what that costs is learned, and a client that does so again and again pauses.

Without this a client that always fails is the one that a policy knows least of, and so the one that it is most curious
about: it would be chosen more often than any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_flag, check_integer
from fedroster.core.problem import Feedback, Status
from fedroster.selector.members import Slots


@dataclass(frozen=True, slots=True)
class FailureRules:
    """What happens to clients that drop out or fail.

    Attributes:
        learned: Whether a failure is learned as an exchange that took as long as its round.
        pause_after: A client that fails this many times in a row pauses: it is not chosen, and is owed nothing for it;
            0 for never.
        longest_pause: Most rounds of a pause, >= 1.  The first pause lasts a round, and each further failure doubles
            the next.
    """

    learned: bool = True
    pause_after: int = 3
    longest_pause: int = 50

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a number is out of its range.
        """
        check_flag("learned", self.learned)
        check_integer("pause_after", self.pause_after, least=0)
        check_integer("longest_pause", self.longest_pause, least=1)


class Failures:
    """How often each client has failed in a row, and which clients pause.

    Attributes:
        rules: What becomes of them.
    """

    def __init__(self, slots: Slots) -> None:
        """Begin without failures, and with the usual rules."""
        self.rules, self._slots = FailureRules(), slots

    def follow(self, rules: FailureRules, round: int) -> None:
        """Take rules after a round; pauses end that last longer than they say."""
        self.rules = rules
        latest = min(round + rules.longest_pause, 2**62) if rules.pause_after else 0
        np.minimum(self._slots.paused_until, latest, out=self._slots.paused_until)

    def left(self, round: int) -> IntArray:
        """Rounds that each slot's client still pauses after a round; 0 where it does not."""
        return np.maximum(self._slots.paused_until - round, 0)

    def resting(self, round: int, slots: IntArray, available: BoolArray) -> BoolArray:
        """Which slots' clients pause in a round; none of the available ones while all of them would."""
        resting = self._slots.paused_until >= round
        here = slots[available]
        if resting[here].all():
            resting[here] = False
        return resting

    def cost(
        self, feedback: Feedback, round_s: float | None, longest_s: float, least_s: FloatArray | float = math.nan
    ) -> Feedback:
        """Put what failures cost, the length of their round but at most ``longest_s``, where no time was measured.

        Without a length it is the longest time of the feedback.  It is not less than ``least_s``, NaN for anything.
        """
        measured_s = feedback.exchange_time_s[feedback.observed]
        cost_s = np.fmax(float(measured_s.max(initial=0.0)) if round_s is None else round_s, least_s)
        lost = (feedback.status >= Status.DROPPED) & (cost_s > 0.0)
        if not self.rules.learned or not lost.any():
            return feedback
        return replace(
            feedback, exchange_time_s=np.where(lost, np.minimum(cost_s, longest_s), feedback.exchange_time_s)
        )

    def count(self, feedback: Feedback, round: int) -> None:
        """Count failures in a row, and let those that fail again and again pause from the round after ``round`` on."""
        lost, slots = feedback.client[feedback.status >= Status.DROPPED], self._slots
        slots.failed[feedback.client[feedback.status < Status.DROPPED]] = 0
        slots.failed[lost] += 1
        if self.rules.pause_after:
            beyond = slots.failed[lost] - self.rules.pause_after
            pause = np.minimum(2.0 ** np.clip(beyond, 0, 62), self.rules.longest_pause).astype(np.int64)
            slots.paused_until[lost] = np.where(beyond >= 0, round + pause, slots.paused_until[lost])


def without_times(feedback: Feedback, slots: IntArray) -> Feedback:
    """Feedback in which the times of some clients are not known."""
    hidden: FloatArray = np.where(np.isin(feedback.client, slots), np.nan, feedback.exchange_time_s)
    return replace(feedback, exchange_time_s=hidden)
