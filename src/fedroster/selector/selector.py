"""The object that callers hold: ask for a cohort, tell what came back.

:class:`Selector` is the edge of the library: it checks everything that comes from outside, maps outside client ids to
rows, lets clients join and leave, holds the random streams, and saves and loads itself.
:class:`~fedroster.EdgeSelector` also assigns the cohort to edge servers.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from msgspec.structs import replace as replaced
from numpy.typing import ArrayLike

from fedroster.core.checks import check_flag, check_number, counted
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    InfeasibleError,
    RoundNotBegunError,
    StateFileError,
)
from fedroster.core.ids import ClientId, checked_id, checked_ids, listed
from fedroster.core.outside import plain
from fedroster.core.problem import Status
from fedroster.core.protocols import AnyPolicy, signs
from fedroster.core.state import as_labelled
from fedroster.folder.events import (
    Decided,
    Joined,
    Left,
    Observer,
    Set,
)
from fedroster.folder.record import Observers, Record
from fedroster.folder.settings import Settings
from fedroster.queues import AVAILABILITY_PERIOD
from fedroster.rules.rulebook import RuleBook
from fedroster.rules.rules import Rules
from fedroster.selector.calls import Calls, whole
from fedroster.selector.candidates import Contexts
from fedroster.selector.files import Notes, SavedFiles
from fedroster.selector.guard import FailureRules, Guard, LongestTime
from fedroster.selector.keeping import Kept, Options, entered, said
from fedroster.selector.learner import Learner
from fedroster.selector.members import Members
from fedroster.selector.rounds import OpenRounds, outcomes
from fedroster.simulation import promised_rate

_log = logging.getLogger("fedroster")


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients that take part in a round.

    Attributes:
        round: Round number; feedback refers to it.
        clients: Ids of the chosen clients.  Empty when no client was available.
        weights: How much each client's update counts, >= 0 and not normalised: the model moves by the step size times
            the sum of weight times update over those that arrive.  None for weights by samples.
    """

    round: int
    clients: tuple[ClientId, ...]
    weights: tuple[float, ...] | None = field(default=None, kw_only=True)

    @property
    def is_empty(self) -> bool:
        """Whether no client was chosen."""
        return not self.clients


class Selector(Kept):
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
    bandwidth.  Contexts are optional: without them, a policy learns one mean time of each client.  What is learned
    needs the same D in all rounds: ``num_features``, or the length of the first contexts, or 1 if the first round has
    none.

    Clients lie, fail, vanish and come back.  A selector learns how far it can trust each client
    (:mod:`fedroster.selector.guard`): implausible contexts and times count for less, failures count as the time that
    they cost, a client that keeps failing pauses, and a client that is absent for long is owed nothing meanwhile.
    ``guarded=False``, ``longest_s=None``, ``longest_absence=None`` and ``failures=FailureRules(False, 0)`` switch this
    off, as in the papers.

    Rounds are numbered from 1.  The feedback of a round may come late, in parts, or never: a client's row is open
    until it is answered or ``patience_rounds`` later rounds have begun.

    Every call takes effect completely or not at all: signal handlers, such as Ctrl-C's, run when it has ended, and a
    call from another thread in the middle of a call raises an :class:`~fedroster.errors.InUseError`.
    """

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
        rules: Rules | None = None,
        clock: Callable[[], float] = time.time,
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
            guarded: Whether contexts and times are weighed by each client's record, and its first time, which may have
                the start of its process in it, counts only until its second.  False for clean times.
            longest_absence: Rounds of absence in a row after which what a client is owed rests until it is back, >= 1;
                None for never.
            failures: What becomes of clients that drop out or fail; None for the usual rules.
            rules: Which clients may take part, for any policy; None for no rules.
            clock: Tells the time, seconds since 1970.
            observers: Called with each event and this selector, such as sinks of metrics.

        Raises:
            ConfigurationError: If a parameter is out of its range, or the policy needs a simulation, or edge servers.
            InfeasibleError: If the policy's promise cannot be kept for these clients.
        """
        self._calls = Calls()
        self._files = SavedFiles()
        self._notes = Notes()
        self._observers, self._clock = Observers(observers), clock
        servers = None if self._budgets is None else len(self._budgets)
        self._learner = Learner(
            policy, cohort_size=cohort_size, num_features=num_features, num_servers=servers, seed=seed
        )
        options: Options = {"patience_rounds": patience_rounds, "longest_s": longest_s, "guarded": guarded}
        options |= {"longest_absence": longest_absence, "failures": failures, "rules": rules}
        settings = Settings(cohort_size=self.cohort_size, seed=int(self._learner.streams.seed), **said(options))
        self._members, self._rounds = Members(), OpenRounds()
        self._guard = Guard(self._members, settings)
        self._follow(replaced(settings, budgets=self._budgets))
        self._last_look = 0
        self._book = RuleBook(rules, cohort_size=self.cohort_size, beta=self._beta)
        self._check_promise(policy, first := checked_ids(clients))
        self._begin(None, is_new=True)
        self.join(first)

    def __repr__(self) -> str:
        """What it is, and how far it has come."""
        open_ = sorted(self._rounds.waiting())
        shown = ", ".join(map(str, open_[:3])) + (f" and {len(open_) - 3} more" if len(open_) > 3 else "")
        return (
            f"<{type(self).__name__} with {self.policy!r}: {counted(len(self._members.slots()), 'member')}, cohorts of "
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
        not_registered: Collection[ClientId] = (),
        at_most: int | None = None,
        busy: bool | None = None,
    ) -> Cohort:
        """Begin a round and choose its cohort.

        Args:
            contexts: The available clients and their contexts: a mapping from id to context, where a missing client is
                not available; or ids, without contexts; or an array of shape (clients, D), with a row for each of
                ``clients``; or None, for ``clients`` without contexts.
            clients: Ids of the rows of an array; None for all members, in the order of :attr:`clients`.
            available: Which of these are available, shape (clients,); None for all.
            not_registered: Clients that report their own name: they are excluded if the rules name clients.
            at_most: Fill this many places, 1 to ``cohort_size``, that are free while other clients are at work; None
                for a whole round.  A promised rate is then one of every ``cohort_size`` places that are filled, least
                and greatest numbers of the rules count the clients at work, and each call begins a round.
            busy: Whether clients that still owe an answer can be chosen; None for no with ``at_most``, else yes.

        Returns:
            The cohort; empty, and a round all the same, when no client is available.

        Raises:
            RoundNotBegunError: If a least number of the rules is impossible.
            InvalidInputError: If a context is not of finite numbers >= 0, or a client is named twice.
            UnknownNameError: If a client is not a member.
        """
        named: Any = {"clients": clients, "available": available, "not_registered": not_registered}
        decided = self._select(contexts, at_most=at_most, busy=busy, **named)
        return Cohort(decided.round, self._named(decided.chosen), weights=decided.weights_by_client)

    def _select(self, contexts: Contexts, **named: Any) -> Decided:
        """Decide and book a round; takes what :meth:`select` takes."""
        asked = self._asked(contexts, **named)
        self._warn_of_unseen()  # before anything is booked
        decided = self.decide(asked, explain=self._observers.record is not None)
        self._commit(decided)
        if _log.isEnabledFor(logging.INFO):
            names, there = self._named(decided.chosen), np.count_nonzero(decided.seen)
            said = f"round {decided.round}: {len(names)} of {there} available clients: {', '.join(map(str, names))}"
            _log.info("%s", plain(decided.not_begun or said))
        if decided.not_begun:
            self._warn()  # by the time between rounds, which is known by now
            raise RoundNotBegunError(decided.not_begun)
        return decided

    def _warn_of_unseen(self) -> None:
        """Warn of members whose availability makes their guaranteed rate impossible (Choice A6)."""
        beta, of = promised_rate(self.policy)
        if not beta or of == "available" or self.round == self._last_look or self.round % AVAILABILITY_PERIOD:
            return
        self._last_look = self.round  # once: a caller that turns warnings into errors can go on
        if rare := self._members.seen_too_rarely(beta):
            warnings.warn(
                f"beta = {beta} cannot be met for {len(rare)} clients that are available less often, "
                f"such as {rare[:5]}",
                FairnessWarning,
                stacklevel=5,
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
        signatures: Mapping[ClientId, Any] | None = None,
        round_s: float | None = None,
        costs: Mapping[ClientId, float] | None = None,
        unlearned: Collection[ClientId] = (),
        again: Literal["error", "ignore"] = "error",
    ) -> None:
        """Report what came back from a round: all of it, a part, or a late part.

        Args:
            round: The cohort's round.
            times_s: Measured exchange times of clients that answered, seconds, > 0; longer ones count as
                ``longest_s``.
            late: Those of ``times_s`` that missed the deadline.
            dropped: Clients that will not answer.
            failed: Clients that answered with an error.
            status: The same as one mapping: how each exchange ended, None if it has not.
            losses: Mean loss, over a client's samples, of the model that it was sent, for any of ``times_s``.  Policies
                that set ``wants_losses`` learn from it and from the next two; others do not.
            squared_losses: Mean over the same samples of the squared loss, >= 0, by client.
            num_samples: Numbers of these samples, > 0, by client.
            signatures: Signatures of updates, by client, of the kind and length that the policy's ``signature`` says; a
                policy that says none is told none, and no log holds them then.
            round_s: How long the round took by the server's own clock, seconds, > 0: what a client that dropped out or
                failed cost, unless the policy expects more of it.  If clients measure their own times, none counts as
                longer, and if all times of a cohort are shorter, the difference counts for the client that was in most
                such rounds.  None for the longest of ``times_s``.
            costs: Measured cost of clients at their edge server, >= 0: a client that costs more than its price is
                charged its mean cost from then on.
            unlearned: Those of ``times_s`` whose time says nothing about later ones, such as one in which a process was
                started: they count as answered, and their time is not learned.
            again: What to do with feedback that was reported before, or whose round was given up after
                ``patience_rounds``: ``"error"``, or ``"ignore"`` it and learn the rest.

        Raises:
            FeedbackError: If the round is unknown, a client was not chosen, or its feedback came before; or a loss or
                sample count is of a client without a time.  Nothing is learned then.
            InvalidInputError: If a time is not a positive, finite number, or a loss, count or signature out of range.
        """
        if round_s is not None:
            check_number("round_s", round_s, above=0.0)
        measured = {"losses": losses, "squared_losses": squared_losses, "num_samples": num_samples}
        feedback = self._rounds.read(
            round,
            self._members.ids,
            {} if times_s is None else times_s,
            outcomes({} if status is None else status, late, dropped, failed),
            measured if (wanted := signs(self.policy)) is None else {**measured, "signatures": signatures},
            length=0 if wanted is None else wanted.length,
            again=again,
        )
        if feedback is None:
            return
        cohort, _ = self._rounds.cohort(round)
        charged = {} if costs is None else self._charges(costs, cohort)
        hidden = set(map(checked_id, listed("unlearned", unlearned)))
        unlearned_slots = (slot for slot in feedback.client.tolist() if self._members.ids[slot] in hidden)
        self._commit(self._heard(feedback, self._now_s(), round_s, charged, tuple(unlearned_slots) if hidden else None))

    # ---------------------------------------------------------------- members

    @property
    def policy(self) -> AnyPolicy:
        """The policy.  Between rounds it may be set to one of other parameters, which goes on with what was learned.

        What it promises counts from then on.  It has the same class, a state of the same shape, and numbers or text as
        parameters, else a :class:`~fedroster.errors.ConfigurationError` is raised.
        """
        return self._learner.policy

    @policy.setter
    def policy(self, value: AnyPolicy) -> None:
        with self._calls:
            try:
                as_labelled(repr(value), self.policy)
            except StateFileError as error:
                expected = f"a {type(self.policy).__name__}, as before, of numbers and text, which a log can hold"
                raise ConfigurationError(f"the policy is {value!r}; expected {expected} ({error})") from error
            self._check_promise(value)
            if repr(value) != repr(self.policy):
                self._commit(Set(settings=self._settings, policy=repr(value)))
                self._warn()

    def _check_promise(self, policy: AnyPolicy, joining: Iterable[ClientId] = ()) -> None:
        """Raise an ``InfeasibleError`` if a policy's promise is impossible for the members and those that join."""
        num_members = max(1, self._book.num_allowed(self._members, joining))
        policy.check(replace(self._learner.spec, num_clients=num_members))

    @property
    def cohort_size(self) -> int:
        """Largest number of clients in a round, m."""
        return self._learner.spec.cohort_size

    @property
    def longest_s(self) -> LongestTime:
        """Longer exchange times count as this, seconds; None for no cap.  It may be set again between rounds."""
        return self._settings.longest_s

    @longest_s.setter
    def longest_s(self, value: LongestTime) -> None:
        with self._calls:
            self._set({"longest_s": value})

    @property
    def patience_rounds(self) -> int:
        """Rounds after which missing feedback is given up, >= 1.  It may be set again between rounds."""
        return self._settings.patience_rounds

    @patience_rounds.setter
    def patience_rounds(self, value: int) -> None:
        with self._calls:
            self._set({"patience_rounds": value})

    @property
    def rules(self) -> Rules:
        """The rules in force.  They may be set again between rounds, such as to ``Rules.load(path)``, or to None."""
        return self._book.rules

    @rules.setter
    def rules(self, value: Rules | None) -> None:
        with self._calls:
            self._set({"rules": value})
            self._warn()

    def _set(self, options: Options) -> None:
        """Let other settings come into force, and say so if they are other ones."""
        event = Set(settings=replaced(self._settings, **said(options)))
        if event.settings != self._settings:
            self._commit(event)

    @whole
    def join(self, clients: Iterable[ClientId]) -> None:
        """Let clients in, new ones or ones that had left (they keep what was learned of them).

        Args:
            clients: Ids.

        Raises:
            InvalidInputError: If an id is neither a string nor an integer, occurs twice or is already a member.

        Warns:
            FairnessWarning: If the policy's promise could be kept, and cannot be for this many members.
        """
        event = Joined(clients=tuple(self._unmasked(checked_ids(clients))))
        self._members.wanted_capacity(event.clients)
        try:
            self._check_promise(self.policy, event.clients)
        except InfeasibleError as error:  # before anything is booked: a caller may turn warnings into errors
            with suppress(InfeasibleError):  # once: not where the members before were too many already
                self._check_promise(self.policy)
                warnings.warn(str(error), FairnessWarning, stacklevel=3)
        if event.clients:
            self._commit(event)
        self._warn()

    def _unmasked(self, clients: list[ClientId]) -> list[ClientId]:
        """Clients that join; members of whom a record with a key kept a hash alone get their names back."""
        if (record := self._observers.record) is None or not self._members.ids:
            return clients
        known = set(self._members.ids)
        unknown = (client for client in clients if client not in known)
        names = {alias: client for client in unknown if (alias := record.alias(client)) in known}
        self._members.rename(names)
        here = set(self._members.clients) & set(names.values())
        return [client for client in clients if client not in here]

    @whole
    def leave(self, clients: Iterable[ClientId], *, forget: bool = False) -> None:
        """Let members go.  Their queues rest, and late feedback from them is still accepted.

        Args:
            clients: Ids.
            forget: Also delete what was learned of them; a client with the same id is then a new client.

        Raises:
            InvalidInputError: If an id occurs twice.
            UnknownNameError: If one is not a member.
        """
        check_flag("forget", forget)
        event = Left(clients=tuple(checked_ids(clients)), forgotten=bool(forget))
        if event.clients:
            self._commit(event)

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        policy: AnyPolicy,
        *,
        clients: Iterable[ClientId] | None = None,
        clock: Callable[[], float] = time.time,
        observers: Iterable[Observer] = (),
        key: bytes | None = None,
        **beginnings: Any,
    ) -> Self:
        """Begin in a folder, or go on where the process that wrote there last has ended, however it ended.

        Every decision and answer is in the folder's log before it is booked (:class:`~fedroster.Record`), and now and
        then the whole state, so nothing that was acknowledged is lost and the next decision is the same.

        Args:
            folder: The folder; it has one writer at a time.
            policy: The policy that the folder's run has; a folder never says which code to run.
            clients: The members from now on: those that are not members yet join, and other members leave.  None for
                those of the folder, which are none in a new one.
            clock: As for the constructor.
            observers: As for the constructor, beside the record.
            key: As for :class:`~fedroster.Record`; members have hashes as ids until they are named in ``clients`` or in
                :meth:`join`.
            **beginnings: As for the constructor.  Where a run goes on, the cohort size, number of features and budgets
                must be the same, options hold from now on, and the ``seed`` is that of the folder.

        Raises:
            ConfigurationError: If the folder's run has another cohort size, number of features or budgets.
            InUseError: If another process holds the folder.
            LogFileError: If the log is damaged, or of another policy or kind.
        """
        given: Any = {name: value for name, value in beginnings.items() if name in Options.__annotations__}
        wanted = None if clients is None else checked_ids(clients)
        record = Record(folder, key=key)
        try:
            first = wanted if wanted and record.place is None else ()
            fresh = cls(policy, clients=first, clock=clock, observers=observers, **beginnings)
            selector = entered(fresh, record, said(given))
            if wanted is not None:
                here, named = set(selector.clients), set(wanted)
                selector.join([client for client in wanted if client not in here])
                selector.leave([client for client in selector.clients if client not in named])
        except BaseException:
            record.close()
            raise
        return selector
