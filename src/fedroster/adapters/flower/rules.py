"""When rounds end, and the error that says that nobody is there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedroster.core.checks import check_choice, check_integer, check_number
from fedroster.core.errors import FedrosterError


class NoNodesError(FedrosterError, RuntimeError):
    """Not enough nodes are there to train on, and none came for as long as was allowed."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """When a round of training ends, and what becomes of those who are not there by then.

    Attributes:
        deadline_s: Time from sending after which replies are late, seconds, > 0; infinite for none.
        first: The round ends when so many usable replies are there, "first k of m"; 0 to wait for all.
        min_replies: Beyond the deadline a round still waits for so many usable replies, Z of paper B.
        give_up_s: Time from sending after which a straggler counts as dropped, seconds, > 0.  Until then it is not
            chosen again, since it may still be busy; its late reply is learned from and never aggregated.  0 for ten
            times the deadline, or the strategy's timeout if that is shorter.
        longest_s: Longer exchange times are learned as this, seconds, > 0; infinite for no cap, 0 for twice the
            deadline.  A round ends at its deadline, so how late a reply is beyond it costs nothing more; a single one
            must not outweigh all others.
        wait_s: How long to wait for a first node that can be chosen before giving up with an error, seconds, >= 0.
        evaluate: Who evaluates: "all" nodes that the strategy asks, those of them that are "idle", not stragglers,
            or the last "cohort".
        evaluate_deadline_s: Time after which evaluation goes on with the replies that are there, seconds, > 0.
        absent_rounds: Rounds after which a member that cannot be chosen leaves, its queue at rest, until it comes back.
    """

    deadline_s: float = math.inf
    first: int = 0
    min_replies: int = 0
    give_up_s: float = 0.0
    longest_s: float = 0.0
    wait_s: float = 60.0
    evaluate: Literal["all", "idle", "cohort"] = "all"
    evaluate_deadline_s: float = math.inf
    absent_rounds: int = 100

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        for name in ("deadline_s", "evaluate_deadline_s"):
            if getattr(self, name) != math.inf:
                check_number(name, getattr(self, name), above=0.0)
        if self.longest_s != math.inf:
            check_number("longest_s", self.longest_s, least=0.0)
        for name in ("give_up_s", "wait_s"):
            check_number(name, getattr(self, name), least=0.0)
        for name in ("first", "min_replies"):
            check_integer(name, getattr(self, name), least=0)
        check_integer("absent_rounds", self.absent_rounds, least=1)
        check_choice("evaluate", self.evaluate, ("all", "idle", "cohort"))

    def cap_s(self, selector_s: float | None) -> float | None:
        """The cap on exchange times that counts, seconds; None for none.

        Args:
            selector_s: The selector's own; the shorter one counts.
        """
        longest_s = min(self.longest_s or 2.0 * self.deadline_s, math.inf if selector_s is None else selector_s)
        return None if longest_s == math.inf else longest_s
