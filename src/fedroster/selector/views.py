"""What a running federation knows of its clients, by id or as arrays in the order of its members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_choice, real, shown
from fedroster.core.errors import InvalidInputError
from fedroster.core.ids import ClientId, checked_ids
from fedroster.core.parameters import Named
from fedroster.folder.events import Observer
from fedroster.folder.record import Observers
from fedroster.queues import falls_short
from fedroster.rules.rulebook import RuleBook
from fedroster.selector.candidates import read_candidates
from fedroster.selector.failures import Failures
from fedroster.selector.files import Notes
from fedroster.selector.guard import Guard
from fedroster.selector.learner import Learner
from fedroster.selector.members import Members
from fedroster.selector.privacy import Privacy, privacy_of
from fedroster.selector.rounds import OpenRounds

Contexts = Mapping[ClientId, ArrayLike] | ArrayLike | Collection[ClientId] | None
"""Context of each client by its id, or an array of them, or ids of clients without contexts, or nothing."""


class Views(Named):
    """The methods that change nothing."""

    _learner: Learner
    _members: Members
    _rounds: OpenRounds
    _failures: Failures
    _guard: Guard
    _observers: Observers
    _book: RuleBook
    _notes: Notes
    _num_servers: int | None
    _clock: Callable[[], float]

    @property
    def round(self) -> int:
        """Number of the last round that was begun; 0 before the first."""
        return self._rounds.last

    @property
    def num_features(self) -> int | None:
        """Length D of a client's context; None until the first contexts say it."""
        return self._learner.num_features

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Ids of the members, in the order of rows that arrays follow."""
        return self._members.clients

    @property
    def observers(self) -> tuple[Observer, ...]:
        """The observers, which get every event."""
        return tuple(self._observers)

    def ids_of(self, slots: IntArray) -> tuple[ClientId | None, ...]:
        """Ids of the clients of slots, as events name them; None for a slot that is free."""
        ids = self._members.ids
        return tuple(ids[slot] if slot < len(ids) else None for slot in slots.tolist())

    def _now_s(self) -> float:
        """The time.

        Raises:
            InvalidInputError: If the clock gives none.
        """
        if not 0.0 <= (now_s := real(self._clock())) < float("inf"):
            raise InvalidInputError(f"the clock says {shown(now_s)}; expected seconds >= 0")
        return now_s

    def _by_id(self, values: NDArray[Any], as_array: bool) -> Any:
        mine = values[self._members.slots()]
        return mine if as_array else dict(zip(self.clients, mine.tolist(), strict=True))

    @overload
    def cold(self, *, as_array: Literal[False] = False) -> dict[ClientId, bool]: ...
    @overload
    def cold(self, *, as_array: Literal[True]) -> BoolArray: ...
    def cold(self, *, as_array: bool = False) -> Any:
        """Whether each member did not take part in the last round, by id or as an array in the order of ``clients``."""
        return self._by_id(self._members.cold, as_array)

    @overload
    def participation(
        self, of: Literal["chosen", "trained", "used", "capped"] = "chosen", *, as_array: Literal[False] = False
    ) -> dict[ClientId, int]: ...
    @overload
    def participation(
        self, of: Literal["chosen", "trained", "used", "capped"] = "chosen", *, as_array: Literal[True]
    ) -> IntArray: ...
    def participation(self, of: str = "chosen", *, as_array: bool = False) -> Any:
        """How often each member took part, by id, or as an array in the order of ``clients``.

        Args:
            of: Rounds in which it was ``"chosen"``, which is what policies guarantee; in which it ``"trained"``: it
                answered, in time or late; in which its answer was ``"used"``: it came in time; or in which its time was
                ``"capped"``: it counted as ``longest_s``.
            as_array: Whether to return an array.
        """
        check_choice("of", of, ("chosen", "trained", "used", "capped"))
        return self._by_id(getattr(self._members, of), as_array)

    @overload
    def participation_rates(self, *, as_array: Literal[False] = False) -> dict[ClientId, float]: ...
    @overload
    def participation_rates(self, *, as_array: Literal[True]) -> FloatArray: ...
    def participation_rates(self, *, as_array: bool = False) -> Any:
        """How often each member was chosen, by the rounds in which it was a member and not paused, by id or as array.

        As in what a policy promises, ``cohort_size`` places that ``select(at_most=...)`` filled are one round.
        """
        return self._by_id(self._members.chosen / np.maximum(self._members.due, 1), as_array)

    def below_promise(self) -> tuple[ClientId, ...]:
        """Members whose participation rate is more than a tenth below what the policy promises, since it does.

        A member of fewer than 50 rounds is not judged, and a round that could not begin does not count: the record has
        it with its reason.  Empty for policies that guarantee no rate.
        """
        beta = float(getattr(self._learner.policy, "beta", 0.0))
        members = self._members
        chosen, due = members.chosen - members.chosen_before, members.due - members.due_before
        below = members.here & falls_short(chosen, due, beta=beta)
        return tuple(client for client in self.ids_of(np.flatnonzero(below)) if client is not None)

    def paused(self) -> dict[ClientId, int]:
        """Members that pause because they failed again and again, and for how many more rounds.

        They are not chosen, and owed nothing for these rounds, unless all clients that are available pause.
        """
        left = self._by_id(self._failures.left(self.round), as_array=False)
        return {client: rounds for client, rounds in left.items() if rounds}

    def excluded(self) -> dict[ClientId, str]:
        """Members that no policy could choose in the last requested round, and why."""
        ids: list[Any] = self._members.ids
        return {ids[slot]: reason for reason, slots in self._book.excluded.items() for slot in slots.tolist()}

    def allowed(
        self,
        purpose: Literal["training", "evaluation"] = "training",
        *,
        clients: Collection[ClientId] | None = None,
        not_registered: Collection[ClientId] = (),
    ) -> tuple[ClientId, ...]:
        """Clients that may take part now, by the rules.

        Args:
            purpose: In the next round's ``"training"``, or in an ``"evaluation"`` after the last round.  The lists hold
                for both; limits on participations exclude clients from both, except that the last round's cohort may
                evaluate as part of the same round.
            clients: The clients in question; None for all members.  For clients that are not members, the lists decide.
            not_registered: Clients that report their own name.
        """
        check_choice("purpose", purpose, ("training", "evaluation"))
        ids = self._members.clients if clients is None else tuple(checked_ids(clients))
        unknown = set(checked_ids(not_registered))
        members = set(self._members.clients)
        slots = self._members.distinct_slots(unknown & members)
        evaluates = purpose == "evaluation"
        number = self.round + (not evaluates)
        out = self._book.bar(self._members, number, self._now_s(), slots, evaluates=evaluates).out
        allowed = {client: not out[self._members.slot(client)] for client in members.intersection(ids)}
        return tuple(client for client in ids if allowed.get(client, self._book.lists_allow(client, unknown)))

    def privacy(self) -> Privacy:
        """What you may claim about privacy, and why not more (docs/explanation/privacy.md).

        The separation and the participations are those that the rules in force guarantee, and never claim
        more than what happened: a later rule does not undo earlier rounds.
        """
        book, here = self._book, self._members.here
        separation = min(int(book.rules.least_separation), book.closest or int(book.rules.least_separation))
        most, so_far = book.rules.most_participations, int(self._members.chosen.max(initial=0))
        num_members = int(np.count_nonzero(here))
        were_all_there = bool((self._members.seen[here] == self.round).all())
        may_pause = self._failures.rules.pause_after > 0
        left_out = were_all_there and not book.drew_from_all and book.is_empty
        against = {
            "rules exclude clients, or shape cohorts": not book.is_empty,
            "clients that fail pause (FailureRules(pause_after=0) lets them stay)": may_pause,
            "reach, prices and budgets of edge servers shape cohorts": self._num_servers is not None,
            "some members were not available in some rounds": not were_all_there,
            "in some rounds, a rule, a pause or work under way kept members out of the draw": left_out,
            "there are no members": not num_members,
        }
        return privacy_of(
            self._learner.policy,
            against,
            sampled=(self._learner.spec.cohort_size, num_members),
            separation=1 if book.has_forgotten else separation,
            participations=None if most is None or book.has_forgotten else max(most, so_far),
        )

    @overload
    def backlog(self, *, as_array: Literal[False] = False) -> dict[ClientId, float]: ...
    @overload
    def backlog(self, *, as_array: Literal[True]) -> FloatArray: ...
    def backlog(self, *, as_array: bool = False) -> Any:
        """Participations that each member is owed, by id or as an array; empty from policies that keep no count."""
        owed = self._learner.backlog()
        if owed is None:
            return np.empty(0) if as_array else {}
        return self._by_id(owed, as_array)

    @overload
    def expected_times_s(
        self, contexts: Contexts = None, *, clients: Sequence[ClientId] | None = None, as_array: Literal[False] = False
    ) -> dict[ClientId, float]: ...
    @overload
    def expected_times_s(
        self, contexts: Contexts = None, *, clients: Sequence[ClientId] | None = None, as_array: Literal[True]
    ) -> FloatArray: ...
    def expected_times_s(
        self, contexts: Contexts = None, *, clients: Sequence[ClientId] | None = None, as_array: bool = False
    ) -> Any:
        """Exchange times that the policy expects, without its optimism, seconds, by id or as an array.

        Args:
            contexts: Contexts of members, in any of the forms that :meth:`select` takes.
            clients: Ids of the rows of an array; None for all members.
            as_array: Whether to return an array, in the order in which the clients are named.

        Returns:
            NaN where the policy knows nothing about a client's time.

        Raises:
            InvalidInputError: If the contexts are malformed.
            UnknownNameError: If a client is not a member.
        """
        asked = read_candidates(self._members, self.num_features, contexts, clients=clients)
        times_s = self._learner.expected_times_s(asked.slot, asked.rows)
        if as_array:
            return times_s
        return dict(zip((self._members.ids[slot] for slot in asked.slot), times_s.tolist(), strict=True))

    def open_rounds(self) -> dict[int, tuple[ClientId, ...]]:
        """Rounds with missing feedback, and the clients that it is missing from."""
        ids: list[Any] = self._members.ids
        return {number: tuple(ids[slot] for slot in slots) for number, slots in self._rounds.waiting().items()}
