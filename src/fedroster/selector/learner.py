"""A policy in a running federation, and what it has learned."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any, TypeVar

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, because
from fedroster.core.errors import ConfigurationError, FedrosterError, StateFileError
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, check_context, check_selection
from fedroster.core.protocols import (
    AnyPolicy,
    check_limits,
    check_policy,
    expects_times,
    owes,
    refuses_first,
    rescales,
    weighed,
)
from fedroster.core.state import grow, is_fixed, pack, reset, take, unpack, whole
from fedroster.core.streams import Streams
from fedroster.rules.composing import Limits, compose
from fedroster.simulation import promises

S = TypeVar("S")

Change = Callable[[], None]
"""Books something; what could refuse it has had its say."""

ALL_BELIEFS = 1000
"""Slots up to which beliefs are of every client; else of the cohort alone."""


def _with_contexts(old: S, fresh: S) -> S:
    """Convert a state without contexts to one for contexts of another length."""
    changes: dict[str, Any] = {}
    for field in fields(fresh):  # type: ignore[arg-type]
        before, after = getattr(old, field.name), getattr(fresh, field.name)
        if is_dataclass(after):
            changes[field.name] = _with_contexts(before, after)
        elif np.shape(before) == np.shape(after) and not is_fixed(field):
            changes[field.name] = before
    return replace(fresh, **changes)  # type: ignore[type-var]


def own(context: RoundContext) -> RoundContext:
    """A context whose masks and prices a policy may write into without changing what its answer is held against."""
    changes: dict[str, Any] = {}
    for name in ("available", "client", "server", "cost", "budget", "members"):
        array = getattr(context, name)
        changes[name] = None if array is None else array.copy()
    return replace(context, **changes)


def beliefs_of(
    policy: AnyPolicy, state: Any, context: RoundContext, asked: IntArray, chosen: IntArray, *, knows_times: bool = True
) -> dict[str, Any]:
    """What a policy believes of all slots' clients, or in a large federation of the cohort, as a Decided has it.

    ``asked`` are slots whose contexts are known; a policy that has met none (``knows_times``) expects nothing.
    """
    owed = policy.backlog(state) if owes(policy) else None
    expected_s = None
    if expects_times(policy) and context.client is None:
        rows = asked if (of_all := context.num_links <= ALL_BELIEFS) else chosen
        expected_s = np.full(context.num_links if of_all else rows.shape[0], np.nan)
        if knows_times and rows.shape[0]:
            known_s = policy.expected_times_s(state, rows, context.features[rows])
            expected_s[rows if of_all else slice(None)] = known_s
    if owed is not None:
        owed = owed.copy() if owed.shape[0] <= ALL_BELIEFS else owed[chosen]
    return {"expected_s": expected_s, "owed": owed, "state": state_digest(state)}


def state_digest(state: Any) -> str:
    """Digest of all arrays of a policy's state."""
    content = hashlib.sha256()
    for name, array in pack(state).items():
        content.update(f"{name}{array.dtype}{array.shape}".encode())
        content.update(np.ascontiguousarray(array).data if array.ndim else array.tobytes())
    return content.hexdigest()[:32]


def _because(
    policy: AnyPolicy, state: Any, asked: list[tuple[RoundContext, Selection]], cohort: Selection, client: int
) -> Because | None:
    """Why a client is in a cohort, or is not, by the last question about it, as of its group; None if rules decided."""
    first, *parts = asked
    for context, selection in [first] if np.array_equal(first[1].links, cohort.links) else parts[::-1]:
        if (context.clients_of(np.flatnonzero(context.available)) == client).any():
            was, is_in = ((context.clients_of(each.links) == client).any() for each in (selection, cohort))
            return because(policy, state, own(context), selection, client) if was == is_in else None
    return None


class Learner:
    """A policy, its state for as many clients as there are slots, and the random streams that break its ties.

    The length of contexts, ``num_features``, is None until the first contexts say it.
    """

    def __init__(
        self, policy: AnyPolicy, *, cohort_size: int, num_features: int | None, num_servers: int | None, seed: int
    ) -> None:
        """Begin with one slot; ``num_servers`` is the number of servers with budgets, None for a flat federation.

        Raises:
            ConfigurationError: If a size is out of its range, or the policy makes no sense here.
        """
        check_policy(policy)
        name = type(policy).__name__
        if policy.omniscient:
            raise ConfigurationError(f"{name} knows the network's true times; it runs in simulations only")
        check_limits(policy, limited=num_servers is not None)
        if num_servers is not None and policy.fills_cohort:
            raise ConfigurationError(
                f"{name} fills every cohort, whatever its clients cost; expected a policy that keeps the budgets of "
                "servers, such as fedroster.PartialPooling()"
            )
        # Checks the sizes before the first client is there.
        ProblemSpec(1, cohort_size, 1 if num_features is None else num_features, num_servers or 1)
        # Python's own integers, which a file's header can hold.
        self.num_features = None if num_features is None else int(num_features)
        self.spec = ProblemSpec(1, int(cohort_size), self.num_features or 1, num_servers or 1)
        self.policy = policy
        self.streams = Streams(seed)
        self._num_forgotten = 0
        self.state = self._fresh(self.spec)

    def _fresh(self, spec: ProblemSpec, forgotten: int | None = None) -> Any:
        # A stranger in a forgotten client's slot draws again.
        number = self._num_forgotten if forgotten is None else forgotten
        return self.policy.init(spec, rng=self.streams.at("policy-init", *([number] if number else [])))

    def grown(self, capacity: int, *, is_new: bool) -> Change:
        """The making of room for this many clients; ``is_new`` if there was no client before."""
        spec, state = self.spec, self.state
        if capacity > spec.num_clients:
            spec = replace(spec, num_clients=capacity)
            fresh = self._fresh(spec)
            state = fresh if is_new else grow(state, fresh)

        def book() -> None:
            self.spec, self.state = spec, state

        return book

    def forgotten(self, slots: IntArray) -> Change:
        """The forgetting of some clients: each is as unknown as in a state without any client."""
        strangers = self._fresh(self.spec, self._num_forgotten + 1)

        def book() -> None:
            self._num_forgotten += 1
            reset(self.state, strangers, slots)

        return book

    def followed(self, policy: AnyPolicy, round: int) -> Change:
        """The going on with a policy of the same class and other parameters, which knows what was learned.

        Raises:
            ConfigurationError: If its state has another shape.
        """
        fresh = policy.init(self.spec, rng=self.streams.at("policy-init"))
        try:
            state = unpack(fresh, pack(self.state), "", spec=self.spec, round=round)
        except StateFileError as error:
            raise ConfigurationError(f"{policy!r} cannot go on from what was learned: {error}") from error

        def book() -> None:
            self.policy, self.state = policy, state

        return book

    def choose(
        self, context: RoundContext, limits: Limits | None, *, knows_contexts: bool
    ) -> tuple[Selection, Callable[[int], Because | None]]:
        """Choose, weigh, and check; nothing is booked.  Also gives what says why, of a client, until it is booked.

        The length of contexts is taken from them if there are any (``knows_contexts``, here and below).

        Raises:
            RoundNotBegunError: If the limits cannot be kept.
        """
        spec, state = self._met(context, knows_contexts=knows_contexts)
        check_context(context, spec)
        is_trusted = refuses_first(self.policy)
        if not is_trusted:  # it may write before it raises
            state = copy.deepcopy(state)
        number = count()
        asked: list[tuple[RoundContext, Selection]] = []

        def ask(part: RoundContext) -> Selection:
            given = part if is_trusted else own(part)
            where = (context.round, turn) if (turn := next(number)) else (context.round,)
            selection = self.policy.select(state, given, rng=self.streams.at("policy", *where))
            check_selection(selection, part, fills_cohort=self.policy.fills_cohort)
            asked.append((part, selection))
            return selection

        rng = self.streams.at("rules", context.round)
        selection = ask(context) if limits is None else compose(ask, context, limits, rng=rng)
        cohort = replace(selection, links=selection.links.copy())
        decided = weighed(self.policy, state, context if is_trusted else own(context), cohort)
        return decided, lambda client: _because(self.policy, state, asked, cohort, client)

    def committed(self, context: RoundContext, selection: Selection, *, knows_contexts: bool, is_whole: bool) -> Change:
        """The booking of a decision; ``is_whole`` if it ends a whole round, of which rates are promised."""
        spec, state = self._met(context, knows_contexts=knows_contexts)
        told = context if refuses_first(self.policy) else own(context)
        if promises(self.policy) and not is_whole:
            told = replace(told, members=np.zeros(spec.num_clients, np.bool_))
        kept = replace(selection, links=selection.links.copy())
        change = self._changed(state, lambda state: self.policy.commit(state, told, kept))

        def book() -> None:
            change()
            self.spec = spec
            if knows_contexts:
                self.num_features = spec.num_features

        return book

    def learned(self, feedback: Feedback, slots: IntArray, factor: FloatArray) -> Change:
        """The learning of feedback, once the only time so far of some slots' clients is multiplied."""

        def learn(state: Any) -> Any:
            if slots.shape[0] and rescales(self.policy):
                state = self.policy.rescale(state, slots, factor)
            return self.policy.update(state, feedback)

        return self._changed(self.state, learn)

    def _met(self, context: RoundContext, *, knows_contexts: bool) -> tuple[ProblemSpec, Any]:
        """``spec`` and ``state`` for the contexts of a round: the first ones say their length."""
        length = context.features.shape[1]
        if not knows_contexts or self.num_features is not None or length == self.spec.num_features:
            return self.spec, self.state
        spec = replace(self.spec, num_features=length)
        return spec, _with_contexts(self.state, self._fresh(spec))

    def _changed(self, state: Any, change: Callable[[Any], Any]) -> Change:
        """A change of the state, in which nothing may be done by halves.

        A policy that refuses before it writes is left to write into the arrays of the state when the change is booked.
        Any other may raise in the middle: it changes a copy, now, which takes the state's place.
        """
        is_now = not refuses_first(self.policy)
        new = change(copy.deepcopy(state)) if is_now else None

        def book() -> None:
            self.state = new if is_now else change(state)

        return book

    def beliefs(
        self, context: RoundContext, asked: IntArray, chosen: IntArray, *, knows_contexts: bool
    ) -> dict[str, Any]:
        """What the policy believes before a decision is booked; see :func:`beliefs_of`."""
        _, state = self._met(context, knows_contexts=knows_contexts)
        is_met = knows_contexts or self.num_features is not None
        return beliefs_of(self.policy, state, context, asked, chosen, knows_times=is_met)

    def expected_times_s(self, slots: IntArray, rows: FloatArray) -> FloatArray:
        """Exchange times that the policy expects, seconds; NaN where it has no prediction."""
        if not expects_times(self.policy) or self.num_features is None or not slots.shape[0]:
            return np.full(slots.shape[0], np.nan)
        return self.policy.expected_times_s(self.state, slots, rows)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        header = {
            "policy": repr(self.policy),
            "capacity": self.spec.num_clients,
            "strangers": self._num_forgotten,
        }
        return header, pack(self.state, "policy.")

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave, into a learner of one client."""
        capacity = whole(header, "capacity", 1)
        take(arrays, "here", np.bool_, (capacity,))  # before anything is made for this many
        like = self._fresh(self.spec)
        self.spec = replace(self.spec, num_clients=capacity)
        self._num_forgotten = whole(header, "strangers", 0)
        self.state = unpack(like, arrays, "policy.", spec=self.spec, round=whole(header, "round", 0))

    def rehearse(self, answers: Iterable[Feedback]) -> None:
        """Learn on a copy what open rounds may bring, so that contexts of a file that cannot be learned are refused.

        Raises:
            StateFileError: If the policy cannot learn from it.
        """
        if not refuses_first(self.policy):  # it may print or count what it is told
            return
        state = copy.deepcopy(self.state)
        for feedback in answers:
            try:
                state = self.policy.update(state, feedback)
            except FedrosterError as error:
                raise StateFileError(f"open round {feedback.round} in the state file: {error}") from error
