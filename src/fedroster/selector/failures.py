"""Clients that fail or stay silent: what that costs is learned, and a client that does so again and again pauses.

Without this a client that always fails is the one that a policy knows least of, and so the one that it is most curious
about: it would be chosen more often than any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_flag, check_integer, shown
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import take


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


def checked_failures(rules: FailureRules | None) -> FailureRules:
    """Rules, None for the usual ones.

    Raises:
        ConfigurationError: If they are no rules.
    """
    if not isinstance(rules, FailureRules | None):
        raise ConfigurationError(f"failures are {shown(rules)}; expected a fedroster.FailureRules")
    return FailureRules() if rules is None else rules


class Failures:
    """How often each client has failed in a row, and which clients pause.

    Attributes:
        rules: What becomes of them.
    """

    def __init__(self, rules: FailureRules | None) -> None:
        """Begin without failures, and with one slot."""
        self._in_a_row = np.zeros(1, np.int64)
        self._until = np.zeros(1, np.int64)
        self.follow(rules, 0)

    def follow(self, rules: FailureRules | None, round: int) -> None:
        """Take rules after a round, None for the usual ones; pauses end that last longer than they say.

        Raises:
            ConfigurationError: If they are no rules.
        """
        self.rules = rules = checked_failures(rules)
        self._until = np.minimum(self._until, min(round + rules.longest_pause, 2**62) if rules.pause_after else 0)

    def grow(self, capacity: int) -> None:
        """Make room for more clients."""
        more = np.zeros(max(0, capacity - self._until.shape[0]), np.int64)
        self._in_a_row, self._until = np.append(self._in_a_row, more), np.append(self._until, more)

    def forget(self, slots: IntArray) -> None:
        """Make some clients unknown again."""
        self._in_a_row[slots] = self._until[slots] = 0

    def left(self, round: int) -> IntArray:
        """Rounds that each slot's client still pauses after a round; 0 where it does not."""
        return np.maximum(self._until - round, 0)

    def resting(self, round: int, slots: IntArray, available: BoolArray) -> BoolArray:
        """Which slots' clients pause in a round; none of the available ones while all of them would."""
        resting = self._until >= round
        here = slots[available]
        if resting[here].all():
            resting[here] = False
        return resting

    def cost(self, feedback: Feedback, round_s: float | None, longest_s: float) -> Feedback:
        """Put what failures cost, the length of their round but at most ``longest_s``, where no time was measured.

        Without a length it is the longest time of the feedback.
        """
        measured_s = feedback.exchange_time_s[feedback.observed]
        cost_s = float(measured_s.max(initial=0.0)) if round_s is None else round_s
        if not self.rules.learned or not cost_s:
            return feedback
        lost = feedback.status >= Status.DROPPED
        return replace(feedback, exchange_time_s=np.where(lost, min(cost_s, longest_s), feedback.exchange_time_s))

    def count(self, feedback: Feedback, round: int) -> None:
        """Count failures in a row, and let those that fail again and again pause from the round after ``round`` on."""
        lost = feedback.client[feedback.status >= Status.DROPPED]
        self._in_a_row[feedback.client[feedback.status < Status.DROPPED]] = 0
        self._in_a_row[lost] += 1
        if self.rules.pause_after:
            beyond = self._in_a_row[lost] - self.rules.pause_after
            pause = np.minimum(2.0 ** np.clip(beyond, 0, 62), self.rules.longest_pause).astype(np.int64)
            self._until[lost] = np.where(beyond >= 0, round + pause, self._until[lost])

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        return {"failures": astuple(self.rules)}, {"failed_in_a_row": self._in_a_row, "paused_until": self._until}

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave; files of 0.1.0 know of no failures."""
        self.grow(header["capacity"])
        if "failures" in header:
            learned, pause_after, longest_pause = header["failures"]
            self.rules = FailureRules(learned, pause_after, longest_pause)
            self._in_a_row = take(arrays, "failed_in_a_row", np.int64, (header["capacity"],), 0, header["round"])
            latest = header["round"] + longest_pause
            self._until = take(arrays, "paused_until", np.int64, (header["capacity"],), 0, latest)


def without_times(feedback: Feedback, slots: IntArray) -> Feedback:
    """Feedback in which the times of some clients are not known."""
    hidden: FloatArray = np.where(np.isin(feedback.client, slots), np.nan, feedback.exchange_time_s)
    return replace(feedback, exchange_time_s=hidden)
