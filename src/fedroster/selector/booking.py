"""What a selector knows of its clients; deciding, which reads, and the only place where anything is booked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from msgspec import to_builtins
from msgspec.structs import replace as replaced
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, IntArray
from fedroster.core.checks import check_choice, check_flag, check_integer, check_number, real, shown
from fedroster.core.errors import ConfigurationError, FeedbackError, InvalidInputError, RoundNotBegunError
from fedroster.core.ids import ClientId, checked_ids, is_id
from fedroster.core.parameters import Named
from fedroster.core.problem import Feedback, RoundContext, Selection, check_selection, check_weights
from fedroster.core.protocols import commits, expects_times, owes
from fedroster.core.state import as_labelled
from fedroster.folder.events import (
    Asked,
    BegunLine,
    Decided,
    Event,
    Joined,
    Left,
    Noted,
    NotKeptError,
    Observer,
    Set,
    Told,
)
from fedroster.folder.record import Observers
from fedroster.folder.settings import Settings
from fedroster.queues import falls_short
from fedroster.rules.rulebook import Barred, RuleBook
from fedroster.rules.rules import Rules
from fedroster.selector.calls import Calls
from fedroster.selector.candidates import Contexts, read_candidates
from fedroster.selector.files import Notes
from fedroster.selector.guard import Guard, Judged
from fedroster.selector.learner import Learner
from fedroster.selector.members import Members
from fedroster.selector.privacy import Privacy, privacy_of
from fedroster.selector.rounds import OpenRounds
from fedroster.simulation import promised_rate


class Views(Named):
    """The methods that change nothing."""

    _learner: Learner
    _members: Members
    _rounds: OpenRounds
    _guard: Guard
    _observers: Observers
    _book: RuleBook
    _notes: Notes
    _settings: Settings
    _calls: Calls
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

    @property
    def _beta(self) -> float:
        """The participation rate that the policy promises; 0 for none."""
        return promised_rate(self._learner.policy)[0]

    def _named(self, slots: IntArray) -> tuple[Any, ...]:
        return tuple(self._members.ids[slot] for slot in slots)

    def _by_id(self, values: NDArray[Any]) -> dict[ClientId, Any]:
        return dict(zip(self.clients, values[self._members.slots()].tolist(), strict=True))

    def cold(self) -> dict[ClientId, bool]:
        """Whether each member did not take part in the last round, by id."""
        return self._by_id(self._members.cold)

    def participation(self, of: Literal["chosen", "trained", "used", "capped"] = "chosen") -> dict[ClientId, int]:
        """How often each member took part, by id.

        Args:
            of: Rounds in which it was ``"chosen"``, which is what policies guarantee; in which it ``"trained"``: it
                answered, in time or late; in which its answer was ``"used"``: it came in time; or in which its time was
                ``"capped"``: it counted as ``longest_s``.
        """
        check_choice("of", of, ("chosen", "trained", "used", "capped"))
        return self._by_id(getattr(self._members, of))

    def participation_rates(self) -> dict[ClientId, float]:
        """How often each member was chosen, by the rounds in which it was a member and not paused, by id.

        As in what a policy promises, ``cohort_size`` places that ``select(at_most=...)`` filled are one round.
        """
        return self._by_id(self._members.chosen / np.maximum(self._members.due, 1))

    def below_promise(self) -> tuple[ClientId, ...]:
        """Members whose participation rate is more than a tenth below what the policy promises, since it does.

        A member of fewer than 50 rounds is not judged, and a round that could not begin does not count: the record has
        it with its reason.  Empty for policies that guarantee no rate, or one of the rounds in which a client can be
        chosen: of these ``fedroster log why`` and ``log page`` know the number.
        """
        beta, of = promised_rate(self._learner.policy)
        members = self._members
        chosen = members.chosen - members.chosen_before
        due = members.due - members.due_before
        below = members.here & falls_short(chosen, due, beta=beta if of == "rounds" else 0.0)
        return self._named(np.flatnonzero(below))

    def paused(self) -> dict[ClientId, int]:
        """Members that pause because they failed again and again, and for how many more rounds.

        They are not chosen, and owed nothing for these rounds, unless all clients that are available pause.
        """
        left = self._by_id(np.maximum(self._members.paused_until - self.round, 0))
        return {client: rounds for client, rounds in left.items() if rounds}

    def excluded(self) -> dict[ClientId, str]:
        """Members that no policy could choose in the last requested round, and why."""
        here = self._members.here
        return {id: reason for reason, slots in self._book.excluded.items() for id in self._named(slots[here[slots]])}

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
        separation = int(book.rules.least_separation)
        most = book.rules.most_participations
        if book.has_forgotten:
            separation = 1
            most = None
        num_members = int(np.count_nonzero(here))
        were_all_there = bool((self._members.seen[here] == self.round).all())
        against = {
            "rules exclude clients, or shape cohorts": not book.is_empty,
            "clients that fail pause (FailureRules(pause_after=0) lets them stay)": self._guard.failures.pause_after,
            "reach, prices and budgets of edge servers shape cohorts": self._settings.budgets is not None,
            "some members were not available in some rounds": not were_all_there,
            "in some rounds, a rule, a pause or work under way kept members out of the draw": (
                were_all_there and not book.drew_from_all and book.is_empty
            ),
            "there are no members": not num_members,
        }
        return privacy_of(
            self._learner.policy,
            [reason for reason, holds in against.items() if holds],
            sampled=(self._learner.spec.cohort_size, num_members),
            separation=min(separation, book.closest or separation),
            participations=None if most is None else max(most, int(self._members.chosen.max(initial=0))),
        )

    def backlog(self) -> dict[ClientId, float]:
        """Participations that each member is owed, by id; empty from policies that keep no count."""
        policy = self._learner.policy
        return self._by_id(policy.backlog(self._learner.state)) if owes(policy) else {}

    def expected_times_s(
        self, contexts: Contexts = None, *, clients: Sequence[ClientId] | None = None
    ) -> dict[ClientId, float]:
        """Exchange times that the policy expects, without its optimism, seconds, by id.

        Args:
            contexts: Contexts of members, in any of the forms that :meth:`select` takes.
            clients: Ids of the rows of an array; None for all members.

        Returns:
            NaN where the policy knows nothing about a client's time.

        Raises:
            InvalidInputError: If the contexts are malformed.
            UnknownNameError: If a client is not a member.
        """
        asked = read_candidates(self._members, self.num_features, contexts, clients=clients)
        times_s = self._learner.expected_times_s(asked.slot, asked.rows)
        return dict(zip(self._named(asked.slot), times_s.tolist(), strict=True))

    def open_rounds(self) -> dict[int, tuple[ClientId, ...]]:
        """Rounds with missing feedback, and the clients that it is missing from."""
        return {number: self._named(slots) for number, slots in self._rounds.waiting().items()}


@dataclass(frozen=True, slots=True)
class Situation:
    """What a selector finds out of what it is asked; masks are of slots' clients."""

    context: RoundContext  # that the policy gets
    seen: BoolArray  # who is available
    barred: Barred  # who cannot be chosen
    busy: BoolArray  # who still owes an answer; in free places these count beside the cohort
    knows_contexts: bool  # whether there are contexts, from which their length is taken


class Booking(Views):
    """``decide`` reads and draws, ``apply`` books."""

    _found: Any = ()  # what was found out last, until something is booked

    def decide(self, asked: Asked | Contexts = None, *, explain: bool = False, **named: Any) -> Decided:
        """Decide a round; nothing is booked, and asking twice gives the same answer twice.

        Args:
            asked: What an event asks for, or contexts as :meth:`select` takes them.
            explain: Whether the answer has what the policy believes, and the digest of its state.
            **named: What else :meth:`select` takes; raises as it does.

        Returns:
            The decision, which :meth:`apply` books; without a cohort if the contexts are not known.
        """
        if not isinstance(asked, Asked):
            asked = self._asked(asked, **named)
        self._found = found = self._situation(asked)
        context, barred = found.context, found.barred
        selection, why = Selection(context.round, np.zeros(0, np.int64)), ""
        beliefs: dict[str, Any] = {}
        try:
            if asked.known:
                limits = self._book.limits(barred, found.busy & bool(asked.places))
                selection, because = self._learner.choose(context, limits, knows_contexts=found.knows_contexts)
                beliefs["because"] = because
        except RoundNotBegunError as error:
            why = str(error)
        links, chosen = selection.links, context.clients_of(selection.links)
        row_of = np.zeros(self._members.capacity, np.int64)
        row_of[asked.slot] = np.arange(asked.slot.shape[0])
        if explain:
            beliefs |= self._learner.beliefs(context, asked.slot, chosen, knows_contexts=found.knows_contexts)
        return Decided(
            round=context.round,
            asked=asked,
            capacity=self._members.capacity,
            places=context.cohort_size,
            excluded={reason: slots[found.seen[slots]] for reason, slots in barred.reasons.items()},
            chosen=chosen,
            links=links,
            servers=None if context.server is None else context.server[links],
            features=context.features[links],
            believed=asked.rows[row_of[chosen]],
            busy=np.flatnonzero(found.busy & (not asked.busy_too)),
            not_begun=why,
            weights=selection.weights,
            found=found,
            **beliefs,
        )

    def _situation(self, asked: Asked) -> Situation:
        """Who can be chosen, and what the policy gets to see of it."""
        if (asked.links is None) != (self._settings.budgets is None):
            has = "no links" if asked.links is None else "links"
            raise FeedbackError(f"round {self.round + 1} has {has} to edge servers, other than its selector")
        barred = self._book.bar(self._members, self.round + 1, asked.at_s, asked.not_registered)
        busy = self._rounds.busy(self._members.capacity)
        if not asked.busy_too:
            barred.bar("busy", busy, away=False)
        seen = asked.seen(self._members.capacity)
        usable = (seen & ~barred.out)[asked.slot]
        barred.bar("paused", self._guard.pausing(self.round + 1, asked.slot, usable), away=True)
        return Situation(
            context=self._context(asked, barred, seen),
            seen=seen,
            barred=barred,
            busy=busy,
            knows_contexts=asked.slot.shape[0] > 0,
        )

    def _context(self, asked: Asked, barred: Barred, seen: BoolArray) -> RoundContext:
        """What the policy gets; ``seen`` are the slots whose clients are available."""
        can = self._members.here & ~barred.out
        here = self._members.here & ~(self._guard.resting() & ~seen | barred.away)
        number = self.round + 1
        places = asked.places or self._learner.spec.cohort_size
        if (links := asked.links) is not None:
            row = links.row
            return RoundContext(
                round=number,
                features=asked.rows[row],
                available=(asked.available & can[asked.slot])[row],
                cohort_size=places,
                client=asked.slot[row],
                server=links.server,
                cost=self._guard.charged(asked.slot, links.price)[row],
                budget=np.array([budget for _, budget in self._settings.budgets or ()]),
                members=here,
            )
        features = asked.rows
        if expects_times(self._learner.policy) and asked.known:
            features = self._guard.believed(asked.slot, asked.rows, asked.available)
        if seen is not asked.available:  # rows are not slots
            believed = features
            features = np.zeros((asked.rows.shape[1], seen.shape[0])).T
            features[asked.slot] = believed
        return RoundContext(number, features, seen & can, places, members=None if here.all() else here)

    def _heard(
        self,
        told: Feedback,
        at_s: float,
        round_s: float | None,
        charged: Mapping[int, float],
        unlearned: tuple[int, ...] | None,
    ) -> Told:
        """Judge a round's feedback, with costs, and slots whose times are not learned; nothing is booked.

        ``unlearned`` is None where the caller named none: then the round's length is learned from, too.
        """
        cohort, contexts = self._rounds.cohort(told.round)
        self._found = judged = self._guard.judge(
            told,
            self._learner.expected_times_s(told.client, contexts[np.isin(cohort, told.client)]),
            round_s=round_s,
            cohort=cohort,
            unlearned=unlearned,
            waiting=self._rounds.waiting,
        )
        return Told(told.round, at_s, told, round_s, judged.learned.exchange_time_s, charged, unlearned, judged)

    def apply(self, event: Event) -> Event:
        """Book an event: a decision of :meth:`decide`, or what another selector in the same state was told.

        Whatever happens to a selector happens here: in a live round, after a restart and when a log is verified.  No
        record and no observer is told.

        Args:
            event: The event.

        Returns:
            The event as it was booked: of feedback, with what is learned of it.

        Raises:
            FedrosterError: If it cannot follow what was booked before; then nothing has changed.
        """
        return self._booked(event, lambda: None)

    def _booked(self, event: Event, keep: Callable[[], None]) -> Event:
        """Book an event; nothing refuses it after ``keep``, and nothing is booked before."""
        match event:
            case Decided():
                self._book_decision(event, keep)
            case Told():
                if event.found is not self._found:
                    told = self._rounds.matched(event.feedback)
                    event = self._heard(told, event.at_s, event.round_s, event.costs, event.unlearned)
                self._book_answers(event, keep)
            case Joined():
                capacity = self._members.wanted_capacity(event.clients)
                book = self._learner.grown(capacity, is_new=not self._members.ids)
                keep()
                book()
                self._members.book(event)
            case Left():
                self._book_leaving(event, keep)
            case BegunLine() | Set():
                self._book_settings(event, keep)
            case Noted():
                keep()
                self._notes.book(event, self.round)
        self._found = ()
        return event

    def _book_decision(self, event: Decided, keep: Callable[[], None]) -> None:
        asked = event.asked
        if event.round != self.round + 1:
            raise FeedbackError(f"round {event.round} follows round {self.round}")
        if event.capacity != self._members.capacity:
            raise FeedbackError(f"round {event.round} has {event.capacity} slots; expected {self._members.capacity}")
        found = event.found
        if found is not self._found:
            found = self._told_of(event, self._situation(asked))
        ends_round = not asked.places or self._rounds.filled + event.chosen.shape[0] >= self._learner.spec.cohort_size
        book = self._learner.committed(
            found.context,
            Selection(event.round, event.links),
            knows_contexts=found.knows_contexts,
            is_whole=ends_round,
        )
        keep()
        self._book.excluded = found.barred.reasons
        if not event.not_begun:
            book()
            if asked.places:
                self._rounds.filled = (self._rounds.filled + event.chosen.shape[0]) % self._learner.spec.cohort_size
            self._members.count_round(event.chosen, found.seen, found.barred.away, is_whole=ends_round)
            self._book.count(self._members, event.round, event.chosen, event.at_s)
            if self._book.drew_from_all:
                could = found.seen & ~found.barred.out
                self._book.drew_from_all = self._book.is_empty and not (self._members.here & ~could).any()
            self._guard.see(found.seen | found.busy & bool(asked.places), self._members.here)
        self._rounds.begin(event.round, event.chosen, event.features, event.believed, event.servers)

    def _told_of(self, event: Decided, found: Situation) -> Situation:
        """The situation in which a decision that was read was made; raises if it cannot have been made there."""
        context = found.context
        if not event.asked.known:
            policy = self._learner.policy
            if commits(policy) == "all" and event.asked.slot.shape[0] > event.chosen.shape[0]:
                raise NotKeptError(
                    f"{type(policy).__name__} learns from the contexts of all clients, which the log does not "
                    "have; expected a log that a Record with contexts=True wrote"
                )
            features = context.features.copy(order="K")
            features[event.links] = event.features
            context = replace(context, features=features)
        if not event.not_begun:
            fills = self._book.is_empty and self._learner.policy.fills_cohort
            check_selection(Selection(event.round, event.links), context, fills_cohort=fills)
        if event.weights is not None:
            check_weights("weights", event.weights, event.chosen.shape[0])
        return replace(found, context=context)

    def _book_answers(self, event: Told, keep: Callable[[], None]) -> None:
        judged: Judged = event.found
        book = self._learner.learned(judged.learned, judged.rescaled, judged.factor)
        keep()
        book()
        self._guard.book(judged, event.costs, self.round)
        self._members.count_answers(judged.learned)
        self._rounds.close(judged.learned)

    def _book_leaving(self, event: Left, keep: Callable[[], None]) -> None:
        slots = self._members.distinct_slots(event.clients)
        book = self._learner.forgotten(slots) if event.forgotten else None
        keep()
        if book is not None:
            book()
            self._book.forget(self._members, slots)
            for part in (self._rounds, self._notes):
                part.forget(slots)
        self._members.book(event)

    def _book_settings(self, event: BegunLine | Set, keep: Callable[[], None]) -> None:
        settings, mine = event.settings, self._settings
        Settings.read({"settings": to_builtins(settings)})  # raises where one is out of its range
        if settings != replaced(settings, cohort_size=mine.cohort_size, seed=mine.seed, budgets=mine.budgets):
            raise FeedbackError("the settings have another cohort size, seed or budgets than their selector")
        rules = Rules.from_table(settings.rules.table)
        self._book.check(rules)
        book = None
        if isinstance(event, Set) and event.policy:
            book = self._learner.followed(as_labelled(event.policy, self._learner.policy), self.round)
        keep()
        if book is not None:
            book()
            self._members.promise_anew()
        self._follow(settings)
        if isinstance(event, Set) or rules != self._book.rules:
            self._book.adopt(rules, beta=self._beta)

    def _follow(self, settings: Settings) -> None:
        """Let settings come into force; rules are bound to the members by their book."""
        self._settings = settings
        self._rounds.follow(settings.patience_rounds)
        self._guard.follow(settings, self.round)

    def _charges(self, costs: Mapping[ClientId, float], cohort: IntArray) -> dict[int, float]:
        """Measured costs by slot."""
        if self._settings.budgets is None:
            raise InvalidInputError(f"costs are {shown(costs)}; expected none in a federation without edge servers")
        slot_of = {self._members.ids[slot]: int(slot) for slot in cohort}
        if not isinstance(costs, Mapping):
            raise InvalidInputError(f"costs are {shown(costs)}; expected a mapping from client to number")
        for client, cost in costs.items():
            if not is_id(client) or client not in slot_of:
                raise FeedbackError(f"client {shown(client)} has a cost and was not chosen; chosen: {list(slot_of)}")
            check_number(f"cost of client {client!r}", cost, least=0.0)
        return {slot_of[client]: float(cost) for client, cost in costs.items()}

    def _commit(self, event: Event) -> None:
        """Have an event kept, book it, and tell of it."""
        record = self._observers.record
        self._booked(event, lambda: None if record is None else record.before(event))
        self._observers.after(event, self)

    def _asked(
        self, contexts: Contexts = None, *, at_most: int | None = None, busy: bool | None = None, **named: Any
    ) -> Asked:
        """What is asked for, of what :meth:`select` takes; raises as it does, and books nothing."""
        asked = read_candidates(self._members, self.num_features, contexts, **named)
        if at_most is not None:
            check_integer("at_most", at_most, least=1)
            if at_most > self._learner.spec.cohort_size:
                raise ConfigurationError(
                    f"at_most is {at_most}; expected at most cohort_size = {self._learner.spec.cohort_size}"
                )
        if busy is not None:
            check_flag("busy", busy)
        busy_too = at_most is None if busy is None else bool(busy)
        return replace(asked, places=at_most, busy_too=busy_too, at_s=self._now_s())


def note(
    selector: Booking, name: str, numbers: Mapping[Any, float], *, of_all: bool = True, is_synced: bool = False
) -> None:
    """Keep a number of some clients beside a selector; see :class:`~fedroster.folder.events.Noted`."""
    with selector._calls:
        slots = selector._members.known_slots(numbers)
        selector._commit(Noted(name, dict(zip(slots, numbers.values(), strict=True)), of_all, is_synced))


def noted(selector: Booking, name: str) -> tuple[int, dict[ClientId, float]]:
    """The round in which :func:`note` was called last, and the numbers by client; 0 and none if it never was."""
    round, by_slot = selector._notes.of(name)
    ids: list[Any] = selector._members.ids
    return round, {ids[slot]: value for slot, value in by_slot.items()}
