"""The object that callers hold: ask for a cohort, tell what came back.

:class:`Selector` is the edge of the library: it checks everything that comes from outside, maps outside client ids to
rows, lets clients join and leave, holds the random streams, and saves and loads itself.  :class:`EdgeSelector` also
assigns the cohort to edge servers.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, TypedDict, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_flag, check_number, shown
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    FeedbackError,
    InfeasibleError,
    InvalidInputError,
)
from fedroster.core.problem import Feedback, RoundContext, Selection, Status
from fedroster.core.protocols import AnyPolicy
from fedroster.federation.calls import Calls, whole
from fedroster.federation.candidates import Candidates, Links, links_of, prices_of, read_candidates
from fedroster.federation.cohorts import Cohort, EdgeCohort
from fedroster.federation.events import Began, Decided, Joined, Left, Observer, Observers, Told
from fedroster.federation.failures import FailureRules, Failures, without_times
from fedroster.federation.files import Generations, distinct, opened, path_of, save_books
from fedroster.federation.guard import Guard, LongestTime
from fedroster.federation.learner import Learner
from fedroster.federation.members import ClientId, Members, checked_ids, is_id, listed
from fedroster.federation.rounds import OpenRounds, outcomes
from fedroster.federation.views import Contexts, Views
from fedroster.queues import AVAILABILITY_PERIOD

__all__ = ["ClientId", "Cohort", "EdgeCohort", "EdgeSelector", "Selector"]


class Rules(TypedDict, total=False):
    """What may be other after a restart than before: see :class:`Selector`."""

    patience_rounds: int
    longest_s: LongestTime
    guarded: bool
    longest_absence: int | None
    failures: FailureRules | None


class Selector(Views):
    """Chooses cohorts in a running federation (ask/tell).

    Example:
        >>> from fedroster import RBCSF, Selector
        >>> selector = Selector(RBCSF(V=5.0, beta=0.2), cohort_size=2, clients=["a", "b", "c"])
        >>> cohort = selector.select()
        >>> len(cohort.clients)
        2
        >>> selector.observe(cohort.round, times_s={client: 1.5 for client in cohort.clients})
        >>> sum(selector.participation().values())
        2

    A context is what is known of a client before the round, D numbers >= 0 such as its workload and the inverse of its
    bandwidth.  Nothing need be known: without contexts, a policy learns one mean of each client.  What is learned
    needs the same D in all rounds: ``num_features``, or the length of the first contexts, or 1 if the first round has
    none.

    Clients lie, fail, vanish and come back.  A selector learns how far each client's word goes
    (:mod:`fedroster.federation.guard`): implausible contexts and times count for less, failures as the time that they
    cost, a client that keeps failing pauses, and what is owed to one that is away for long rests.
    ``guarded=False``, ``longest_s=None``, ``longest_absence=None`` and ``failures=FailureRules(False, 0)`` take every
    word as it is told, as the papers do.

    Rounds are numbered from 1.  The feedback of a round may come late, in parts, or never: a client's row is open
    until it is answered or ``patience_rounds`` later rounds have begun.

    Every call is done in full or not at all: handlers of signals, such as Ctrl-C's, run when it has ended, and a call
    that comes in the middle of another one, from another thread, raises an :class:`~fedroster.types.InUseError`.
    """

    _KIND: ClassVar[str] = "selector"
    _SETTINGS: ClassVar[tuple[str, ...]] = ("cohort_size", "num_features", "seed", "patience_rounds", "longest_s")
    _GUARDS: ClassVar[dict[str, Any]] = {"guarded": False, "longest_absence": None}  # of files of 0.1.0
    _num_servers: int | None = None

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        cohort_size: int,
        num_features: int | None = None,
        seed: int = 0,
        clients: Iterable[ClientId] = (),
        patience_rounds: int = 100,
        longest_s: LongestTime = "auto",
        guarded: bool = True,
        longest_absence: int | None = 20,
        failures: FailureRules | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Start a federation.

        Args:
            policy: Decides; must not be omniscient.
            cohort_size: Largest number of clients in a round, m.
            num_features: Length D of a client's context; None to take it from the first contexts.
            seed: Seed of the random streams that break ties.
            clients: Ids of the first members.
            patience_rounds: Rounds after which missing feedback is given up.
            longest_s: Longer exchange times count as this, seconds, > 0, so that one report cannot outweigh all others;
                "auto" for ten times the median of recent times, None for no cap.
            guarded: Whether contexts and times are weighed by each client's record.
            longest_absence: Rounds of absence in a row after which what a client is owed rests until it is back, >= 1;
                None for never.
            failures: What becomes of clients that drop out or fail; None for the usual rules.
            observers: Called with each event and this selector, such as sinks of metrics.

        Raises:
            ConfigurationError: If a parameter is out of its range, or the policy needs a simulation, or edge servers.
            InfeasibleError: If the policy's promise cannot be kept for these clients.
        """
        self._calls, self._generations = Calls(), Generations()
        self._observers, self._clock = Observers(observers), time.time
        self._learner = Learner(
            policy, cohort_size=cohort_size, num_features=num_features, num_servers=self._num_servers, seed=seed
        )
        self._members = Members()
        self._rounds = OpenRounds(patience_rounds)
        self._failures = Failures(failures)
        self._guard = Guard(longest_s=longest_s, is_on=guarded, longest_absence=longest_absence)
        self._last_look = 0
        self._learner.check_promise(len(first := checked_ids(clients)))
        self._observers.before(began := Began(0), self)
        self._observers.after(began, self)
        self.join(first)

    def __repr__(self) -> str:
        """What it is, and how far it has come."""
        open_ = sorted(self._rounds.waiting())
        shown = ", ".join(map(str, open_[:3])) + (f" and {len(open_) - 3} more" if len(open_) > 3 else "")
        return (
            f"<{type(self).__name__} with {self.policy!r}: {len(self._members.slots())} members, cohorts of "
            f"{self.cohort_size}, round {self.round}, open rounds: {shown or 'none'}>"
        )

    # ---------------------------------------------------------------- ask

    @whole
    def select(
        self,
        contexts: Contexts = None,
        *,
        clients: Sequence[ClientId] | None = None,
        available: ArrayLike | None = None,
    ) -> Cohort:
        """Begin a round and choose its cohort.

        Args:
            contexts: The clients that are available, and what is known of them: a mapping from id to context, where a
                client that is missing is not available; or ids, where nothing more is known; or an array of shape
                (clients, D), with a row for each of ``clients``; or None, for ``clients`` of which nothing is known.
            clients: Ids of the rows of an array; None for all members, in the order of :attr:`clients`.
            available: Which of these are available, shape (clients,); None for all.

        Returns:
            The cohort; empty, and a round all the same, when no client is available.

        Raises:
            InvalidInputError: If a context is not of finite numbers >= 0, or a client is named twice.
            UnknownNameError: If a client is not a member.
        """
        self._warn_of_unseen()  # before anything is booked
        asked = read_candidates(self._members, self.num_features, contexts, clients=clients, available=available)
        chosen, _ = self._play(asked)
        return Cohort(self.round, chosen)

    def _situation(self, asked: Candidates, pausing: BoolArray) -> tuple[RoundContext, BoolArray, FloatArray]:
        """What the policy is told, which slots' clients are there, and contexts as far as they are plausible."""
        capacity = self._members.capacity
        told = believed = asked.rows
        if self._learner.expects_times:
            told, believed = self._guard.plausible(asked.slot, asked.rows, asked.available)
        if asked.slot.shape[0] == capacity and (asked.slot[:-1] < asked.slot[1:]).all():
            features, seen = believed, asked.available
        else:
            features = np.zeros((asked.rows.shape[1], capacity)).T
            features[asked.slot] = believed
            seen = np.zeros(capacity, np.bool_)
            seen[asked.slot] = asked.available
        here = self._members.here & ~(self._guard.resting() & ~seen | pausing)
        context = RoundContext(
            round=self.round + 1,
            features=features,
            available=seen & ~pausing,
            cohort_size=self.cohort_size,
            members=None if here.all() else here,
        )
        return context, seen, told

    def _play(self, asked: Candidates) -> tuple[tuple[Any, ...], IntArray | None]:
        """Decide, announce and book a round; returns ids of its cohort, and the numbers of their edge servers."""
        pausing = self._failures.resting(self.round + 1, asked.slot, asked.available)
        context, seen, told = self._situation(asked, pausing)
        row_of = np.zeros(self._members.capacity, np.int64)
        row_of[asked.slot] = np.arange(asked.slot.shape[0])
        events: list[Decided] = []

        def announce(selection: Selection) -> None:
            links = selection.links
            chosen = context.clients_of(links)
            event = Decided(
                round=context.round,
                at_s=self._clock(),
                asked=asked,
                context=context,
                believed=told[row_of[chosen]],
                members=self._members.here,
                seen=seen,
                excluded={"paused": np.flatnonzero(pausing & seen)},
                selection=selection,
                chosen=chosen,
                servers=None if context.server is None else context.server[links],
                inclusion=self._learner.inclusion(context, selection) if self._observers else None,
                places=context.cohort_size,
            )
            events.append(event)
            self._observers.before(event, self)

        links = self._learner.decide(context, knows_contexts=asked.slot.shape[0] > 0, announce=announce).links
        event = events[0]
        self._members.count_round(event.chosen, seen, pausing)
        self._guard.see(seen, self._members.here)
        self._rounds.begin(context.round, event.chosen, context.features[links], event.believed, event.servers)
        self._observers.after(event, self)
        return tuple(self._members.ids[slot] for slot in event.chosen), event.servers

    def _warn_of_unseen(self) -> None:
        """Warn of members whose availability makes their guaranteed rate impossible (Choice A6)."""
        beta = getattr(self.policy, "beta", 0.0)
        if not beta or self.round == self._last_look or self.round % AVAILABILITY_PERIOD:
            return
        self._last_look = self.round  # once: a caller that turns warnings into errors can go on
        rare = self._members.seen_too_rarely(beta)
        if rare:
            warnings.warn(
                f"beta = {beta} cannot be met for {len(rare)} clients that are available less often, "
                f"such as {rare[:5]}",
                FairnessWarning,
                stacklevel=4,
            )

    # ---------------------------------------------------------------- tell

    @whole
    def observe(
        self,
        round: int,
        *,
        times_s: Mapping[ClientId, float] | None = None,
        late: Collection[ClientId] = (),
        dropped: Collection[ClientId] = (),
        failed: Collection[ClientId] = (),
        status: Mapping[ClientId, Status | None] | None = None,
        losses: Mapping[ClientId, float] | None = None,
        squared_losses: Mapping[ClientId, float] | None = None,
        num_samples: Mapping[ClientId, float] | None = None,
        round_s: float | None = None,
        costs: Mapping[ClientId, float] | None = None,
        unlearned: Collection[ClientId] = (),
        again: Literal["error", "ignore"] = "error",
    ) -> None:
        """Tell what came back from a round: all of it, a part, or a part that comes late.

        Args:
            round: The cohort's round.
            times_s: Measured exchange times of clients that answered, seconds, > 0; those beyond ``longest_s`` count as
                it.
            late: Those of ``times_s`` that missed the deadline.
            dropped: Clients that will not answer.
            failed: Clients that answered with an error.
            status: The same in one mapping, for callers that have one: how each exchange ended, None where it has not.
            losses: Mean loss, over a client's samples, of the model that it was sent, for any of ``times_s``.  Policies
                that set ``wants_losses`` learn from it and from the next two; others do not.
            squared_losses: Mean over the same samples of the squared loss, >= 0, likewise.
            num_samples: How many samples they are, > 0, likewise.
            round_s: How long the round took by the server's own clock, seconds, > 0: what a client that dropped out or
                failed cost.  Where clients measure their times themselves, none counts as longer, and if all times of a
                cohort are shorter, the client that was in most of such rounds took the rest.  None for the longest of
                ``times_s``.
            costs: What clients cost their edge server, >= 0, where that is measured: a client that costs more than its
                price says is charged its mean cost from then on.
            unlearned: Those of ``times_s`` whose time says nothing about later ones, such as one in which a process was
                started: they count as answered, and their time is not learned.
            again: What to do with feedback that was told before, or whose round was given up after
                ``patience_rounds``: ``"error"``, or ``"ignore"`` it and learn the rest.

        Raises:
            FeedbackError: If the round is unknown, a client was not chosen, or its feedback came before; or a loss or
                sample count is of a client without a time.  Nothing is learned then.
            InvalidInputError: If a time is not a positive, finite number, or a loss or sample count not in its range.
        """
        if round_s is not None:
            check_number("round_s", round_s, above=0.0)
        feedback = self._rounds.read(
            round,
            self._members.ids,
            {} if times_s is None else times_s,
            outcomes({} if status is None else status, late, dropped, failed),
            {"losses": losses, "squared_losses": squared_losses, "num_samples": num_samples},
            again=again,
        )
        if feedback is None:
            return
        cohort, _ = self._rounds.cohort(round)
        charged = {} if costs is None else self._charges(costs, cohort)
        hidden = listed("unlearned", unlearned)
        unlearned_slots = (slot for slot in feedback.client.tolist() if self._members.ids[slot] in hidden)
        self._tell(feedback, round_s, charged, tuple(unlearned_slots) if hidden else None)

    def _tell(
        self,
        told: Feedback,
        round_s: float | None,
        charged: Mapping[int, float],
        unlearned: tuple[int, ...] | None,
    ) -> None:
        """Judge, announce, learn and book what was told of a round, with costs, and slots whose times are not learned.

        ``unlearned`` is None where the caller named none: then the round's length is learned from, too.
        """
        feedback, judged_s = told, round_s
        if unlearned is not None:
            feedback, judged_s = without_times(told, np.array(unlearned, np.int64)), None
        cohort, contexts = self._rounds.cohort(told.round)
        expected_s = self._learner.expected_times_s(told.client, contexts[np.isin(cohort, told.client)])
        judged = self._guard.judge(feedback, expected_s, round_s=judged_s, cohort=cohort)
        feedback = self._failures.cost(judged.feedback, judged_s, self._guard.cap_s())
        event = Told(told.round, self._clock(), told, round_s, feedback, charged, unlearned)
        self._learner.learn(feedback, lambda: self._observers.before(event, self))
        self._guard.book(judged)
        self._guard.charge(charged)
        self._members.capped[judged.cut] += 1
        self._members.count_answers(feedback)
        self._rounds.close(feedback)
        self._failures.count(feedback, self.round)
        self._observers.after(event, self)

    def _charges(self, costs: Mapping[ClientId, float], cohort: IntArray) -> dict[int, float]:
        """Measured costs by slot."""
        if self._num_servers is None:
            raise InvalidInputError(f"costs are {shown(costs)}; expected none in a federation without edge servers")
        slot_of = {self._members.ids[slot]: int(slot) for slot in cohort}
        if not isinstance(costs, Mapping):
            raise InvalidInputError(f"costs are {shown(costs)}; expected a mapping from client to number")
        for client, cost in costs.items():
            if not is_id(client) or client not in slot_of:
                raise FeedbackError(f"client {shown(client)} has a cost and was not chosen; chosen: {list(slot_of)}")
            check_number(f"cost of client {client!r}", cost, least=0.0)
        return {slot_of[client]: float(cost) for client, cost in costs.items()}

    # ---------------------------------------------------------------- members

    @property
    def policy(self) -> AnyPolicy:
        """The policy."""
        return self._learner.policy

    @property
    def cohort_size(self) -> int:
        """Largest number of clients in a round, m."""
        return self._learner.spec.cohort_size

    @property
    def longest_s(self) -> LongestTime:
        """Longer exchange times count as this, seconds; None for no cap.  It may be set anew between rounds."""
        return self._guard.longest_s

    @longest_s.setter
    def longest_s(self, value: LongestTime) -> None:
        self._guard.longest_s = value

    @whole
    def join(self, clients: Iterable[ClientId]) -> None:
        """Let clients in, new ones or ones that had left (they keep what was learned of them).

        Args:
            clients: Ids.

        Raises:
            InvalidInputError: If an id is neither a string nor an integer, occurs twice or is a member already.

        Warns:
            FairnessWarning: If the policy's promise cannot be kept for so many members.
        """
        ids = checked_ids(clients)
        capacity = self._members.wanted_capacity(ids)
        try:
            self._learner.check_promise(int(np.count_nonzero(self._members.here)) + len(ids))
        except InfeasibleError as error:  # before anything is booked: a caller may turn warnings into errors
            warnings.warn(str(error), FairnessWarning, stacklevel=3)
        grown = self._learner.grown(capacity, is_new=not self._members.ids)
        event = Joined(tuple(ids))
        if ids:
            self._observers.before(event, self)
        self._learner.spec, self._learner.state = grown
        self._members.grow(capacity)
        self._failures.grow(capacity)
        self._guard.grow(capacity)
        self._members.join(ids)
        if ids:
            self._observers.after(event, self)

    @whole
    def leave(self, clients: Iterable[ClientId], *, forget: bool = False) -> None:
        """Let members go.  Their queues rest, and late feedback from them is still accepted.

        Args:
            clients: Ids.
            forget: Also delete what was learned of them; a client of the same id is a stranger then.

        Raises:
            InvalidInputError: If an id occurs twice.
            UnknownNameError: If one is not a member.
        """
        check_flag("forget", forget)
        event = Left(tuple(checked_ids(clients)), bool(forget))
        self._members.distinct_slots(event.clients)  # before anything is booked
        strangers = self._learner.strangers() if forget else None
        self._observers.before(event, self)
        slots = self._members.leave(event.clients, forget=forget)
        if forget:
            self._learner.forget(slots, strangers)
            self._rounds.forget(slots)
            self._failures.forget(slots)
            self._guard.forget(slots)
        self._observers.after(event, self)

    # ---------------------------------------------------------------- keep

    @whole
    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Save everything that :meth:`load` needs, atomically and without pickles.

        Args:
            path: File to create, or one that this selector was loaded from or has saved.
            replace: Whether to replace any other file, too.

        Raises:
            InUseError: If another selector has written the file since this one loaded or saved it.
            OSError: If it cannot be written; the old file stays as it was.
        """
        path = path_of(path)
        with self._generations.next(path, replace=replace) as stamp:
            place = self._observers.place
            settings = self._settings() | ({} if place is None else {"place": place})
            save_books(path, settings, self._books, kind=self._KIND, stamp=stamp)

    @property
    def _books(self) -> tuple[Learner, Members, OpenRounds, Failures, Guard]:
        return self._learner, self._members, self._rounds, self._failures, self._guard

    def _settings(self) -> dict[str, Any]:
        """What the constructor is given, for a file's header."""
        return {
            "cohort_size": self.cohort_size,
            "num_features": self.num_features,
            "seed": int(self._learner.streams.seed),
            **{name: rule for name, rule in self.rules.items() if name != "failures"},
        }

    @property
    def rules(self) -> Rules:
        """What :meth:`load` takes to go on under the rules of this selector."""
        return Rules(
            patience_rounds=self._rounds.patience,
            longest_s=self.longest_s,
            guarded=self._guard.is_on,
            longest_absence=self._guard.longest_absence,
            failures=self._failures.rules,
        )

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        policy: AnyPolicy,
        *,
        observers: Iterable[Observer] = (),
        **rules: Unpack[Rules],
    ) -> Self:
        """Go on where :meth:`save` stopped: the next decisions equal those of a run without interruption.

        Args:
            path: The file.
            policy: The same policy; a file never says which code to run.
            observers: As for the constructor.
            **rules: Any of ``patience_rounds``, ``longest_s``, ``guarded``, ``longest_absence`` and ``failures`` that
                hold from now on.  The others, sizes, budgets and seed are those of the file.

        Raises:
            ConfigurationError: If a rule is out of its range.
            FileNotFoundError: If there is no such file.
            StateFileError: If the file is damaged, foreign, or belongs to another policy.
        """
        if unknown := rules.keys() - Rules.__annotations__.keys():
            raise ConfigurationError(f"{min(unknown)} is no rule; expected some of {', '.join(Rules.__annotations__)}")
        path = path_of(path)
        generations = Generations()
        generations.has_read(path)  # before its content: if another writer comes between, the next save notices
        with opened(path, policy, kind=cls._KIND) as (header, arrays):
            settings = {name: header[name] for name in cls._SETTINGS}
            if "budgets" in settings:
                settings["budgets"] = distinct(settings["budgets"])
            guards = {name: header.get(name, value) for name, value in cls._GUARDS.items()}
            selector = cls(policy, **settings, **guards)
            for book in selector._books:
                book.unpack(header, arrays)
            selector._learner.rehearse(selector._rounds.imagined())
        selector._generations = generations
        given = selector.rules
        given.update(rules)
        selector._rounds.follow(given["patience_rounds"])
        selector._guard.follow(given["longest_s"], is_on=given["guarded"], longest_absence=given["longest_absence"])
        selector._failures.follow(given["failures"], selector.round)
        selector._observers = Observers(observers)
        selector._observers.before(began := Began(selector.round, header.get("place")), selector)
        selector._observers.after(began, selector)
        return selector


class EdgeSelector(Selector):
    """A :class:`Selector` of a federation with edge servers: it also assigns the cohort to them.

    A client may be reached by some edge servers; the policy uses it on one of them at most and keeps every server's
    budget.

    Example:
        >>> from fedroster import EdgeSelector
        >>> from fedroster.policies import COCS
        >>> selector = EdgeSelector(COCS(), budgets={"north": 1.0, "south": 2.0}, cohort_size=3, clients=["a", "b"])
        >>> cohort = selector.select(servers={"a": ["north", "south"], "b": ["south"]})
        >>> cohort.clients
        ('a', 'b')
    """

    _KIND: ClassVar[str] = "edge-selector"
    _SETTINGS: ClassVar[tuple[str, ...]] = (*Selector._SETTINGS, "budgets")

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        budgets: Mapping[str, float],
        cohort_size: int,
        num_features: int | None = None,
        seed: int = 0,
        clients: Iterable[ClientId] = (),
        patience_rounds: int = 100,
        longest_s: LongestTime = "auto",
        guarded: bool = True,
        longest_absence: int | None = 20,
        failures: FailureRules | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        """Start a federation.

        Args:
            policy: Decides among links with prices, such as COCS.
            budgets: What each edge server may spend in a round, by its label, >= 0.
            cohort_size: Largest number of clients in a round.
            num_features: Length D of a client's context; None to take it from the first contexts.
            seed: Seed of the random streams that break ties.
            clients: Ids of the first members.
            patience_rounds: Rounds after which missing feedback is given up.
            longest_s: As for :class:`Selector`, and the next ones.
            guarded: Contexts are taken as they are told here.
            longest_absence: Rounds of absence in a row after which what a client is owed rests.
            failures: What becomes of clients that drop out or fail.
            observers: Called with each event and this selector.

        Raises:
            ConfigurationError: If a parameter is out of its range, or the policy cannot keep budgets.
            InfeasibleError: If the policy's promise cannot be kept for these clients.
        """
        if not isinstance(budgets, Mapping) or not budgets:
            raise ConfigurationError(
                f"budgets are {shown(budgets)}; expected a mapping from the label of each edge server to its budget"
            )
        for label, budget in budgets.items():
            if not isinstance(label, str):
                raise ConfigurationError(f"an edge server has the label {shown(label)}; expected a string")
            check_number(f"budget of server {label!r}", budget, least=0.0)
        self.budgets = {label: float(budget) for label, budget in budgets.items()}
        self._num_servers = len(budgets)
        super().__init__(
            policy,
            cohort_size=cohort_size,
            num_features=num_features,
            seed=seed,
            clients=clients,
            patience_rounds=patience_rounds,
            longest_s=longest_s,
            guarded=guarded,
            longest_absence=longest_absence,
            failures=failures,
            observers=observers,
        )

    @whole
    def select(
        self,
        contexts: Contexts = None,
        *,
        clients: Sequence[ClientId] | None = None,
        available: ArrayLike | None = None,
        servers: Mapping[ClientId, Sequence[str]] | Sequence[Sequence[str]] | None = None,
        prices: Mapping[ClientId, float] | ArrayLike | None = None,
    ) -> EdgeCohort:
        """Begin a round, choose its cohort and assign it to edge servers.

        Args:
            contexts: The clients that are available, and what is known of them, as in :meth:`Selector.select`.
            clients: Ids of the rows of an array; None for all members.
            available: Which of these are available, shape (clients,); None for all.
            servers: Labels of the edge servers that reach each client, by id or in the order in which clients are named
                here; unknown labels are passed over.  None if every server reaches every client.
            prices: Cost of using each client, >= 0, likewise; None for 1.  Prices are the operator's: one that only
                the client says needs ``costs`` in :meth:`observe`, or a client that says 0 is in every round.

        Raises:
            InvalidInputError: If a context or a price is malformed.
            UnknownNameError: If a client is no member.
        """
        self._warn_of_unseen()  # before anything is booked
        asked = read_candidates(self._members, self.num_features, contexts, clients=clients, available=available)
        row, server = links_of(self._members, list(self.budgets), servers, asked.slot)
        links = Links(row, server, prices_of(self._members, prices, asked.slot))
        chosen, at = self._play(replace(asked, links=links))
        labels = [*self.budgets]
        return EdgeCohort(self.round, chosen, tuple(labels[number] for number in cast("IntArray", at)))

    def _situation(self, asked: Candidates, pausing: BoolArray) -> tuple[RoundContext, BoolArray, FloatArray]:
        links = cast("Links", asked.links)
        usable = asked.available & ~pausing[asked.slot]
        away = self._guard.resting()
        away[asked.slot[asked.available]] = False
        cost = self._guard.charged(asked.slot, links.price)
        context = RoundContext(
            round=self.round + 1,
            features=asked.rows[links.row],
            available=usable[links.row],
            cohort_size=self.cohort_size,
            client=asked.slot[links.row],
            server=links.server,
            cost=cost[links.row],
            budget=np.array(list(self.budgets.values())),
            members=self._members.here & ~(away | pausing),
        )
        seen = np.zeros(self._members.capacity, np.bool_)
        seen[asked.slot[links.row][asked.available[links.row]]] = True
        return context, seen, asked.rows

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"budgets": [*self.budgets.items()]}  # their order numbers the servers
