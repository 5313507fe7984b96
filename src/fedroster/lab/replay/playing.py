"""A policy in a world that unfolds round by round: it decides and learns through a selector, as in a federation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from fedroster import FailureRules, Rules, Selector
from fedroster.errors import FairnessWarning, RoundNotBegunError
from fedroster.parts import ClientId, StatusArray
from fedroster.types import AnyPolicy, BoolArray, FloatArray, IntArray, Status

Late: TypeAlias = Literal["told", "dropped"]
"""What a selector hears of clients that a round did not wait for: their time, when it comes, or that they dropped out,
which is all that a server knows that does not listen any more."""

BARE: Mapping[str, Any] = {
    "guarded": False,
    "longest_s": None,
    "longest_absence": None,
    "failures": FailureRules(learned=False, pause_after=0),
}
"""Options of a selector that lets a policy decide and learn as a simulation does."""


@dataclass(frozen=True, slots=True)
class RoundStart:
    """What there is when a round begins: a row of a :class:`~fedroster.lab.replay.history.History`.

    ``features`` are None without contexts, and ``rules`` a table.
    """

    at_s: float
    members: BoolArray
    available: BoolArray
    features: FloatArray | None
    rules: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """When rounds end, and what is told of the clients that they did not wait for.

    Attributes:
        needed: Updates after which a round ends; None for those of the whole cohort.
        deadline_s: Longest time that a round waits, seconds; infinite for no limit, None for the world's own.
        late: What is told of the others.
        tells_length: Whether the length of each round is told.
    """

    needed: int | None = None
    deadline_s: float | None = None
    late: Late = "told"
    tells_length: bool = True


@dataclass(frozen=True, slots=True)
class Exchanges:
    """What becomes of a cohort if a round waits for all of it.

    Attributes:
        time_s: When each client answers or is given up, shape (k,), seconds.
        responds: Whether it answers, shape (k,).
        deadline_s: Longest time that the world's server waits, seconds; infinite for none.
        overhead_s: What the round takes beyond its exchanges, seconds.
    """

    time_s: FloatArray
    responds: BoolArray
    deadline_s: float = math.inf
    overhead_s: float = 0.0

    def end(self, ending: RoundEnd) -> tuple[float, StatusArray]:
        """Length of the round, seconds, and what became of each exchange, shape (k,).

        It ends at the update that fills it, at the deadline, or when all that will come has come; that a client dropped
        out is noticed when its answer was due.
        """
        needed = ending.needed
        deadline_s = self.deadline_s if ending.deadline_s is None else ending.deadline_s
        status = np.where(self.responds, np.uint8(Status.LATE), np.uint8(Status.DROPPED))
        if not self.time_s.shape[0]:
            return 0.0, status
        came = np.sort(self.time_s[self.responds])
        is_filled = needed is not None and came.shape[0] >= needed
        last = float(came[(needed or 1) - 1]) if is_filled else float(self.time_s.max())
        end_s = min(last, deadline_s)
        status[self.responds & (self.time_s <= end_s)] = Status.COMPLETED
        return max(end_s + self.overhead_s, 0.0), status


class Unfolding(Protocol):
    """A world that goes on from round to round."""

    @property
    def ids(self) -> Sequence[ClientId]:
        """Ids of all clients that are ever members."""

    def look(self) -> RoundStart | None:
        """Begin the next round; None after the last."""

    def exchange(self, chosen: IntArray) -> Exchanges:
        """What becomes of the cohort."""

    def end(self, chosen: IntArray, length_s: float) -> None:
        """End the round."""


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """One round of a policy.

    Attributes:
        at_s: When it began, seconds.
        members: Who was a member, shape (clients,).
        chosen: The cohort, shape (k,).
        exchanges: What would have become of it in a round that waits for all.
        length_s: How long the round took, seconds; 0 for an empty one.
        status: How each exchange ended, shape (k,).
        begun: Whether it could begin: the rules had the clients that they demand.
    """

    at_s: float
    members: BoolArray
    chosen: IntArray
    exchanges: Exchanges
    length_s: float
    status: StatusArray
    begun: bool = True


def play(
    policy: AnyPolicy,
    world: Unfolding,
    *,
    cohort_size: int,
    options: Mapping[str, Any],
    seed: int,
    ending: RoundEnd,
) -> list[PlayedRound]:
    """Let a policy that knows nothing yet play all rounds of a world.

    ``options`` are what a :class:`~fedroster.Selector` takes beside, except rules.

    Raises:
        ConfigurationError: If the policy needs what only a simulation has, or edge servers.
        InfeasibleError: If its promise cannot be kept for the first members.
    """
    now_s = [0.0]
    index_of = {client: index for index, client in enumerate(world.ids)}
    ids = np.array([*world.ids], object)
    selector: Selector | None = None
    rounds: list[PlayedRound] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        while (look := world.look()) is not None:
            now_s[0] = look.at_s
            if selector is None:
                selector = Selector(
                    policy,
                    cohort_size=cohort_size,
                    seed=seed,
                    clients=ids[look.members],
                    rules=Rules.from_table(look.rules),
                    clock=lambda: now_s[0],
                    **options,
                )
                here, rules = look.members, look.rules
            if look.rules != rules:
                selector.rules = Rules.from_table(look.rules)
            if (gone := here & ~look.members).any():
                selector.leave(ids[gone])
            if (came := look.members & ~here).any():
                selector.join(ids[came])
            here, rules = look.members, look.rules
            features = None if look.features is None else look.features[here]
            chosen, begun = np.zeros(0, np.int64), True
            try:
                cohort = selector.select(features, clients=ids[here].tolist(), available=look.available[here])
                chosen = np.array([index_of[client] for client in cohort.clients], np.int64)
            except RoundNotBegunError:
                begun = False
            exchanges = world.exchange(chosen)
            length_s, status = exchanges.end(ending)
            ends = zip(ids[chosen].tolist(), exchanges.time_s.tolist(), status.tolist(), strict=True)
            _tell(selector, [*ends], length_s, ending)
            rounds.append(PlayedRound(look.at_s, here, chosen, exchanges, length_s, status, begun))
            world.end(chosen, length_s)
    return rounds


def _tell(selector: Selector, ends: Sequence[tuple[ClientId, float, int]], length_s: float, ending: RoundEnd) -> None:
    """Tell a round's answers when it ends, and what is late by itself: the length says nothing about it."""
    times, late = ({one: time for one, time, how in ends if how == end} for end in (Status.COMPLETED, Status.LATE))
    dropped = [one for one, _, how in ends if how >= Status.DROPPED]
    if ending.late == "dropped":
        dropped, late = [*dropped, *late], {}
    if times or dropped:
        round_s = length_s if ending.tells_length and length_s > 0.0 else None
        selector.observe(selector.round, times_s=times, dropped=dropped, round_s=round_s)
    if late:
        selector.observe(selector.round, times_s=late, late=[*late])
