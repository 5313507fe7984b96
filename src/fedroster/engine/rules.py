"""When rounds end, and the error if no node is connected."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from fedroster.core.checks import check_choice, check_integer, check_number, shown
from fedroster.core.errors import ConfigurationError, FedrosterError

T = TypeVar("T")

_WAIT_S = 60.0


class AllRefusedError(FedrosterError, RuntimeError):
    """Every reply of a run's first round is refused, for one reason: nothing would ever be trained."""


class NoNodesError(FedrosterError, RuntimeError):
    """Not enough nodes are connected, and none came within the allowed time."""


@dataclass(frozen=True, slots=True)
class RoundRules:
    """When a round of training ends, and what happens to late replies.

    Attributes:
        deadline_s: Time from sending after which replies are late, seconds, > 0; infinite for none.
        first: The round ends with this many usable replies, "first k of m"; 0 to wait for all.
        min_replies: Beyond the deadline a round still waits for this many usable replies, Z of Qu et al. 2021, as long
            as those that have not answered are not given up.
        give_up_s: Time from sending after which a straggler counts as dropped, seconds, > 0.  Until then it is not
            chosen again, since it may still be busy; its late reply is learned from and never aggregated.  0 for ten
            times the deadline, or the strategy's timeout if that is shorter.
        longest_s: Longer exchange times are learned as this, seconds, > 0; infinite for what the selector says alone, 0
            for twice the deadline.  A round ends at its deadline, so how late a reply is beyond it costs nothing more;
            a single one must not outweigh all others.
        min_nodes: The first round after a start waits for this many nodes that can be chosen, up to ``wait_s`` and as
            long as a connected one has not answered; 0 for the cohort size.
        wait_s: How long to wait for a node that can be chosen before giving up with an error, for ``min_nodes``, and
            after a restart for the nodes of the interrupted round, seconds, >= 0; infinite for ever.  None for 60 s
            before the first round or while rules leave too few nodes, else for ever, with a warning a minute.
        evaluate: Which nodes evaluate: "all" that the strategy asks, those of them that are "idle", not stragglers, or
            the last "cohort".  Empty for "idle" with a deadline and "all" without: a straggler would answer when it
            has trained.
        evaluate_deadline_s: Time after which evaluation goes on with the replies that have arrived, seconds, >= 0;
            infinite for none, 0 for the training's deadline.
        absent_rounds: Rounds after which a member that cannot be chosen leaves, its queue at rest, until it comes back.
        deadline_of: Gives the deadline of a round by its number, from 1 on, in place of ``deadline_s``: a number > 0,
            infinite for none; None for the same deadline in every round.  Without a ``longest_s`` and an
            ``evaluate_deadline_s``, ``deadline_s`` still decides about them.
    """

    deadline_s: float = math.inf
    first: int = 0
    min_replies: int = 0
    give_up_s: float = 0.0
    longest_s: float = 0.0
    min_nodes: int = 0
    wait_s: float | None = None
    evaluate: Literal["", "all", "idle", "cohort"] = ""
    evaluate_deadline_s: float = 0.0
    absent_rounds: int = 100
    deadline_of: Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        """Raise a ConfigurationError if a parameter is out of its range."""
        if self.deadline_s != math.inf:
            check_number("deadline_s", self.deadline_s, above=0.0)
        for name in ("longest_s", "evaluate_deadline_s"):
            if getattr(self, name) != math.inf:
                check_number(name, getattr(self, name), least=0.0)
        check_number("give_up_s", self.give_up_s, least=0.0)
        if self.wait_s is not None and self.wait_s != math.inf:
            check_number("wait_s", self.wait_s, least=0.0)
        for name in ("first", "min_replies", "min_nodes"):
            check_integer(name, getattr(self, name), least=0)
        check_integer("absent_rounds", self.absent_rounds, least=1)
        check_choice("evaluate", self.evaluate, ("", "all", "idle", "cohort"))
        if self.deadline_of is not None and not callable(self.deadline_of):
            raise ConfigurationError(f"deadline_of is {shown(self.deadline_of)}; expected a function of the round")

    def waits_s(self, *, is_first: bool) -> float:
        """How long to wait for nodes, in the first round after a start or in a later one, seconds."""
        return (_WAIT_S if is_first else math.inf) if self.wait_s is None else self.wait_s

    def of(self, number: int) -> RoundRules:
        """The rules of the round of a number, with its own deadline, which must be a time, as for all rounds."""
        if self.deadline_of is None:
            return self
        return replace(self, deadline_s=self.deadline_of(number), deadline_of=None)

    @property
    def who_evaluates(self) -> str:
        """Which nodes evaluate: "all", "idle" or "cohort"."""
        return self.evaluate or ("all" if self.deadline_s == math.inf else "idle")

    def evaluation_limit_s(self, timeout_s: float | None) -> float:
        """How long evaluation waits for replies, seconds; ``timeout_s`` is the caller's own limit, None for none."""
        return min(self.evaluate_deadline_s or self.deadline_s, math.inf if timeout_s is None else timeout_s)

    def ending(self, wanted: int, sent_s: float, timeout_s: float | None) -> Ending:
        """When a round ends, once its messages are out.

        Args:
            wanted: Usable replies with which it is complete, unless the rules say so.
            sent_s: When, seconds of the caller's clock.
            timeout_s: The caller's own limit; None for none.
        """
        limit_s = math.inf if timeout_s is None else timeout_s
        give_up_s = self.give_up_s or 10.0 * min(self.deadline_s, limit_s)
        wait_s = max(self.deadline_s, give_up_s) if self.min_replies else self.deadline_s
        return Ending(self, self.first or wanted, sent_s, sent_s + min(wait_s, limit_s), sent_s + give_up_s)

    def cap_s(self, of_selector: T) -> T | float:
        """The cap on exchange times that counts, given the selector's own: of two in seconds the shorter one."""
        longest_s = self.longest_s or 2.0 * self.deadline_s
        if longest_s == math.inf:
            return of_selector
        return min(longest_s, float(of_selector)) if isinstance(of_selector, int | float) else longest_s


@dataclass(frozen=True, slots=True)
class Ending:
    """When one round ends, and whose replies count.

    Attributes:
        rules: The rules that it follows.
        wanted: Usable replies with which it is complete.
        sent_s: When its messages were out, seconds of the caller's clock.
        until_s: When it ends at the latest.
        given_up_s: When its stragglers count as dropped.
    """

    rules: RoundRules
    wanted: int
    sent_s: float
    until_s: float
    given_up_s: float

    def is_over(self, num_usable: int, now_s: float) -> bool:
        """Whether enough usable replies have arrived."""
        is_late = now_s >= self.sent_s + self.rules.deadline_s
        return num_usable >= self.wanted or (is_late and num_usable >= self.rules.min_replies)

    def counts(self, time_s: float, num_used: int) -> bool:
        """Whether the next usable reply counts, after so many that do, or is late, by its exchange time, seconds."""
        is_early = time_s <= self.rules.deadline_s or num_used < self.rules.min_replies
        return is_early and num_used < self.wanted
