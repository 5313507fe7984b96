"""A policy in a running federation, and what it has learned."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import count
from typing import Any, TypeVar

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import ConfigurationError, FedrosterError, StateFileError
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, check_context, check_selection
from fedroster.core.protocols import AnyPolicy, ExpectsTimes, Owes, check_limits, check_policy
from fedroster.core.state import grow, is_fixed, pack, reset, take, unpack, whole
from fedroster.core.streams import Streams
from fedroster.federation.composing import Limits, compose

S = TypeVar("S")


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


class Learner:
    """A policy, its state, and the random streams that break its ties.

    Attributes:
        policy: The policy.
        streams: Random streams.
        spec: What its state is made for; ``num_clients`` is the number of slots.
        state: What it has learned.
        num_features: Length D of contexts; None until the first contexts say it.
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
        self._is_ours = type(policy).__module__.partition(".")[0] == __name__.partition(".")[0]
        self.streams = Streams(seed)
        self._num_forgotten = 0
        self.state = self._fresh(self.spec)

    def _fresh(self, spec: ProblemSpec, forgotten: int | None = None) -> Any:
        # A stranger in a forgotten client's slot draws again.
        number = self._num_forgotten if forgotten is None else forgotten
        return self.policy.init(spec, rng=self.streams.at("policy-init", *([number] if number else [])))

    @contextmanager
    def _or_nothing(self) -> Iterator[Any]:
        """Take back what was learned if the policy raises; gives the state that it goes back to.

        A policy may write into the arrays of its state.  This library's policies check before they write; the state of
        any other one is copied first, so that it may raise in the middle.
        """
        before = self.num_features, self.spec, self.state if self._is_ours else copy.deepcopy(self.state)
        try:
            yield before[-1]
        except BaseException:
            self.num_features, self.spec, self.state = before
            raise

    def check_promise(self, num_members: int) -> None:
        """Raise an ``InfeasibleError`` if the policy's guarantee is impossible for this many members."""
        self.policy.check(replace(self.spec, num_clients=max(1, num_members)))

    def grown(self, capacity: int, *, is_new: bool) -> tuple[ProblemSpec, Any]:
        """``spec`` and ``state`` with room for this many clients; ``is_new`` if there was no client before."""
        if capacity <= self.spec.num_clients:
            return self.spec, self.state
        spec = replace(self.spec, num_clients=capacity)
        fresh = self._fresh(spec)
        return spec, fresh if is_new else grow(self.state, fresh)

    def strangers(self) -> Any:
        """A state in which no client is known, for :meth:`forget`: what a policy may refuse comes before it."""
        return self._fresh(self.spec, self._num_forgotten + 1)

    def forget(self, slots: IntArray, strangers: Any) -> None:
        """Make some clients unknown again."""
        self._num_forgotten += 1
        reset(self.state, strangers, slots)

    def decide(
        self,
        context: RoundContext,
        *,
        knows_contexts: bool,
        announce: Callable[[Selection], None],
        limits: Limits | None = None,
        is_whole: Callable[[Selection], bool] = lambda _: True,
    ) -> Selection:
        """Choose, check the decision, announce and book it; if that fails, nothing was learned.

        Args:
            context: The round.
            knows_contexts: Whether there are contexts, from which their length is taken.
            announce: Called with the decision before it is booked; what it raises keeps it from being booked.
            limits: What the cohort keeps whatever the policy wants; None for nothing.
            is_whole: Whether a decision ends a whole round, in which rates that are promised of rounds are owed.

        Raises:
            RoundNotBegunError: If the limits cannot be kept.
        """
        if knows_contexts and self.num_features is None:
            with self._or_nothing():
                self.num_features = context.features.shape[1]  # from the first ones
                if self.num_features != self.spec.num_features:
                    self.spec = replace(self.spec, num_features=self.num_features)
                    self.state = _with_contexts(self.state, self._fresh(self.spec))
                return self.decide(context, knows_contexts=True, announce=announce, limits=limits, is_whole=is_whole)
        with self._or_nothing() as kept:
            check_context(context, self.spec)
            selection = self._choose(context, limits)
            told, booked = context, selection
            if limits is not None:  # whatever the policy does to what it holds, this is the decision
                told, booked = own(context), replace(selection, links=selection.links.copy())
            if hasattr(self.policy, "beta") and not is_whole(selection):
                told = replace(told, members=np.zeros(self.spec.num_clients, np.bool_))
            self._change(lambda: self.policy.commit(self.state, told, booked), lambda: announce(selection), kept)
        return selection

    def _choose(self, context: RoundContext, limits: Limits | None) -> Selection:
        """A decision that was checked."""
        if limits is None:
            return self._ask(context, context, 0)
        number = count()
        rng = self.streams.at("rules", context.round)
        selection = compose(lambda part: self._ask(own(part), part, next(number)), context, limits, rng=rng)
        return replace(selection, links=selection.links.copy())

    def _ask(self, given: RoundContext, context: RoundContext, number: int) -> Selection:
        """Ask the policy the question of a number about a round or a part of it, and check its answer."""
        address = (context.round, number) if number else (context.round,)
        selection = self.policy.select(self.state, given, rng=self.streams.at("policy", *address))
        check_selection(selection, context, fills_cohort=self.policy.fills_cohort)
        return selection

    def learn(self, feedback: Feedback, announce: Callable[[], None]) -> None:
        """Announce and learn feedback; if that fails, nothing was learned."""
        with self._or_nothing() as kept:
            self._change(lambda: self.policy.update(self.state, feedback), announce, kept)

    def _change(self, change: Callable[[], Any], announce: Callable[[], None], kept: Any) -> None:
        """Announce a change of the state while it is the old one, and make it; what fails was not announced.

        Ours writes into the old state's arrays and does not raise.  Any other policy may raise, and there is a copy.
        """
        if self._is_ours:
            announce()
            self.state = change()
        else:
            new = change()
            self.state = kept
            announce()
            self.state = new

    def backlog(self) -> FloatArray | None:
        """Participations owed to each slot's client; None from a policy that keeps no count."""
        return self.policy.backlog(self.state) if isinstance(self.policy, Owes) else None

    @property
    def expects_times(self) -> bool:
        """Whether the policy predicts times."""
        return isinstance(self.policy, ExpectsTimes)

    def expected_times_s(self, slots: IntArray, rows: FloatArray) -> FloatArray:
        """Exchange times that the policy expects, seconds; NaN where it has no prediction."""
        if not isinstance(self.policy, ExpectsTimes) or self.num_features is None or not slots.shape[0]:
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
        take(arrays, "members", np.bool_, (capacity,))  # before anything is made for this many
        like = self._fresh(self.spec)
        self.spec = replace(self.spec, num_clients=capacity)
        self._num_forgotten = whole(header, "strangers", 0)
        self.state = unpack(like, arrays, "policy.", spec=self.spec, round=whole(header, "round", 0))

    def rehearse(self, answers: Iterable[Feedback]) -> None:
        """Learn on a copy what open rounds may bring, so that a policy of ours refuses contexts of a file at once.

        Another policy's ``update`` is called for what came only: it may print or count.

        Raises:
            StateFileError: If the policy cannot learn from it.
        """
        state = copy.deepcopy(self.state) if self._is_ours else None
        for feedback in answers if self._is_ours else ():
            try:
                state = self.policy.update(state, feedback)
            except FedrosterError as error:
                raise StateFileError(f"open round {feedback.round} in the state file: {error}") from error
