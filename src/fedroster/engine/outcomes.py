"""A round whose messages are out, and how its exchanges ended, reported to the selector."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from fedroster.core.outside import plain
from fedroster.core.problem import Status
from fedroster.core.protocols import wants_losses
from fedroster.engine.choose import Choice
from fedroster.engine.rules import Ending, RoundRules
from fedroster.selector import ClientId, Selector

LEAST_TIME_S = 1e-6
_NEVER = Ending(RoundRules(), 0, 0.0, math.inf, math.inf)
_BEGIN, _END = 80, 120  # letters of a long reason: how it begins, and its last line, which says most


def shown(text: str) -> str:
    """A text from outside as one line of a log: printable, and not too long."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= _BEGIN + _END else f"{line[:_BEGIN]} ... {line[-_END:]}"


@dataclass(slots=True)
class Outcomes:
    """How exchanges with nodes ended, by the nodes' names.

    Attributes:
        status: How each ended; None while a straggler is awaited.
        times_s: Exchange times of those that answered with something usable, seconds, > 0.
        told: What else these told for a policy to learn from, by the names that a selector observes it by.
        reasons: Why a reply failed, was refused or is not used, where that is known.
        refused: Those that answered, with something that cannot be used.
    """

    status: dict[str, Status | None] = field(default_factory=dict)
    times_s: dict[str, float] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)

    def failed(self, name: str, reason: str, status: Status = Status.FAILED) -> None:
        """Book that nothing usable came."""
        self.status[name] = status
        self.reasons[name] = shown(reason)
        self.times_s.pop(name, None)

    def tell(self, selector: Selector, number: int, round_s: float | None) -> None:
        """Report the round of a number to a selector, which ignores what it knows already.

        It took ``round_s`` seconds, > 0: no reply took longer; None where that is told already.
        """
        status: dict[ClientId, Status | None] = {name: how for name, how in self.status.items() if how is not None}
        answered = [name for name, how in self.status.items() if how is not None and how <= Status.LATE]
        learns_losses = wants_losses(selector.policy)
        measured = dict[str, Any]()
        for kind in ("signatures", "losses", "squared_losses", "num_samples"):
            asked = answered if learns_losses or kind == "signatures" else ()
            measured[kind] = {name: self.told[name][kind] for name in asked if kind in self.told.get(name, ())} or None
        if status:
            selector.observe(
                number,
                status=status,
                times_s={name: self.times_s[name] for name in answered},
                round_s=round_s,
                again="ignore",
                **measured,
            )


@dataclass(frozen=True, slots=True)
class Reply:
    """A client's usable reply.

    Attributes:
        name: Name of the client.
        content: What it returned.
        time_s: Time from sending to arrival, seconds, > 0.
        weight: How much the decision lets its update count, >= 0; None for weights by samples.
    """

    name: str
    content: Any
    time_s: float
    weight: float | None = None


@dataclass(slots=True, eq=False)
class OpenRound:
    """A round whose messages are out.

    Attributes:
        choice: Its cohort.
        num_connected: Clients that were connected.
        num_available: Clients that could be chosen.
        select_s: Time to gather clients and to choose, seconds.
        ending: When it ends: never, as long as its messages are not out.
        waiting: Clients that have not answered.
        outcomes: How the other exchanges ended.
        usable: Replies that can be used; when the round is over, those that count, fastest first.
        is_over: Whether it has ended: what comes now is late.
        round_s: Time from sending until every client was settled, or to the round's end by its rules, seconds.
        used_s: Time from sending to the last reply that counts, seconds; NaN without one.
        flaw: What is wrong with the model that was sent: then no client is blamed for its reply; empty for nothing.
        was_said: Whether it was said that it takes long.
        settled_s: Time from sending until a client was settled last, seconds.
    """

    choice: Choice
    num_connected: int
    num_available: int
    select_s: float
    ending: Ending = _NEVER
    waiting: set[str] = field(default_factory=set)
    outcomes: Outcomes = field(default_factory=Outcomes)
    usable: list[Reply] = field(default_factory=list)
    is_over: bool = False
    round_s: float = 0.0
    used_s: float = math.nan
    flaw: str = ""
    was_said: bool = False
    settled_s: float = LEAST_TIME_S

    @property
    def sent_s(self) -> float:
        """When its messages were out, seconds of the rounds' clock; 0 before."""
        return self.ending.sent_s
