"""The two interfaces that everything else composes: a policy and an environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Parameters
from fedroster.core.problem import Feedback, Outcome, ProblemSpec, RoundContext, Selection, check_weights

Draws: TypeAlias = Literal["never", "uniform", "unknown"]
"""How chance decides: not but for ties, with equal probabilities, or in another way."""

Commits: TypeAlias = Literal["cohort", "all"]
"""What ``commit`` reads: contexts of the cohort's rows alone, or of all rows."""

Estimates: TypeAlias = Literal["nothing", "samples", "clients"]
"""Of what the weighted sum of a cohort's updates is an unbiased estimate, at least in the limit: of nothing, of the
mean of all clients' updates by their samples, or of their plain mean."""

Asks: TypeAlias = Literal["losses", "norms"]
"""What a poll asks for: losses of the present model, or norms of the updates that clients have trained from it."""

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Signature:
    """What a policy learns of each update (:func:`~fedroster.aggregation.signatures.signatures_of`).

    Attributes:
        of: "update" for a random projection of it, "bias" for that of the output layer's bias, one number a class.
        length: Numbers of a signature, s >= 1.
    """

    of: Literal["update", "bias"] = "update"
    length: int = 64


class Policy(Protocol[S]):
    """Decides which clients take part.

    A policy is a value, a frozen dataclass of hyper-parameters; what it learns is another value, the state.  ``commit``
    and ``update`` may reuse the arrays of the state that they are given: the caller gives it up.

    Attributes:
        omniscient: Whether ``select`` needs ``context.truth``, which only a simulator has.
        fills_cohort: Whether every decision has exactly ``min(m, available)`` clients (Huang et al. 2021, Eq. 4).

    A policy that learns from losses or sample counts also sets ``wants_losses = True`` (:func:`wants_losses`), one that
    asks candidates for their losses before it decides sets ``polls = True`` (:func:`polls`), with ``asks = "norms"`` if
    they train first, one that learns from updates has a ``signature`` (:func:`signs`), and one that only asks whether
    updates come in time sets ``needs_limits = True`` (:func:`check_limits`).  Of ``wants_contexts`` and
    ``wants_deadline`` users are told where there are none (:func:`missing_signals`).  One that owes participations is
    also an :class:`Owes`, one that believes something about times an :class:`ExpectsTimes`, and one that says how much
    each update counts a :class:`Weighs`; if that makes their sum an unbiased estimate it says of what by ``estimates``.
    How chance decides is said by ``draws`` (:func:`draws`), "unknown" where nothing is said.
    ``citation``, BibTeX, is what ``fedroster cite`` prints.
    """

    omniscient: ClassVar[bool]
    fills_cohort: ClassVar[bool]

    def check(self, spec: ProblemSpec, /) -> None:
        """Raise an ``InfeasibleError`` if the policy's guarantee is impossible in ``spec``."""
        ...

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> S:
        """Return the state before the first round; ``rng`` is for policies that draw parameters once."""
        ...

    def select(self, state: S, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Decide one round.  Changes nothing; ``rng`` breaks ties."""
        ...

    def commit(self, state: S, context: RoundContext, selection: Selection, /) -> S:
        """Book the decision: called exactly once for each round, before any of its feedback."""
        ...

    def update(self, state: S, feedback: Feedback, /) -> S:
        """Learn from feedback: called any number of times for a round, early or late, each row once."""
        ...


@dataclass(frozen=True, slots=True)
class NoState:
    """Nothing is learned."""


class Defaults:
    """Defaults for a policy: it guarantees, books and learns nothing."""

    __slots__ = ()

    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = True
    draws: ClassVar[Draws] = "unknown"
    estimates: ClassVar[Estimates] = "nothing"
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True

    def check(self, spec: ProblemSpec, /) -> None:
        """Promise nothing."""

    def commit(self, state: Any, context: RoundContext, selection: Selection, /) -> Any:
        """Book nothing."""
        return state

    def update(self, state: Any, feedback: Feedback, /) -> Any:
        """Learn nothing."""
        return state


class Stateless(Defaults):
    """The part of the policy interface that a policy without a memory need not write."""

    __slots__ = ()

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> NoState:
        """Know nothing."""
        return NoState()


class ForOneServer(Parameters, Defaults):
    """The same for a policy that selects for one server, with its parameters checked."""

    __slots__ = ()

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server.

        Raises:
            ConfigurationError: If there is more than one.
        """
        if spec.num_servers != 1:
            raise ConfigurationError(
                f"{type(self).__name__} selects for one server; this federation has {spec.num_servers}"
            )


@runtime_checkable
class Owes(Protocol):
    """A policy that keeps count of what it owes."""

    def backlog(self, state: Any, /) -> FloatArray:
        """Return the participations that each client is owed, shape (clients,), >= 0."""
        ...


@runtime_checkable
class ExpectsTimes(Protocol):
    """A policy that believes something about exchange times."""

    def expected_times_s(self, state: Any, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Return the exchange times that the policy expects, without its optimism, shape (k,), seconds.

        NaN where the policy knows nothing of a client.  The features of the clients (k,) have shape (k, D).
        """
        ...


class Weighs(Protocol):
    r"""A policy that says how much each update of its cohort counts.

    .. math:: x \gets x + \eta \sum_k w_k \Delta_k

    over the updates that arrive, with the server's step size :math:`\eta`.  Weights are not normalised: an estimate
    stays unbiased if they come from nothing but what the policy knew when it decided.
    """

    def weights(self, state: Any, context: RoundContext, selection: Selection, /) -> FloatArray | None:
        """Return w of each link of a decision that is not booked yet, shape (k,), >= 0; None for weights by samples.

        Changes nothing, and draws nothing: what chance decided is in ``selection.drawn``.
        """
        ...


@runtime_checkable
class Rescales(Protocol):
    """A policy that can change its mind about a client's first time, which may have the start of a process in it."""

    def rescale(self, state: Any, clients: IntArray, factor: FloatArray, /) -> Any:
        """Multiply the only time of each of some clients (k,) by a factor (k,) in [0, 1]; 0 forgets it.

        Nothing else changes, such as what the client is owed.
        """
        ...


class Environment(Protocol[E]):
    """A simulated network: the four-stage loop asks it what is reported and what happens.

    One that knows how long it takes to ask clients for a loss also has ``poll_times`` (:func:`poll_times`).
    """

    @property
    def spec(self) -> ProblemSpec:
        """What stays fixed over all rounds."""
        ...

    def init(self, *, rng: Generator) -> E:
        """Return the state before the first round."""
        ...

    def observe(self, state: E, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Return what is reported before the decision, and what would happen on every link.

        Draws for the whole fleet, whatever was decided before, so that every policy meets the same world.
        """
        ...

    def advance(self, state: E, context: RoundContext, selection: Selection, /) -> E:
        """Return the state after the decision was played."""
        ...


AnyPolicy = Policy[Any]
AnyEnvironment = Environment[Any]


def check_policy(policy: object) -> None:
    """Refuse what is no policy, such as its name or its class."""
    missing = [name for name in ("check", "init", "select", "commit", "update") if not hasattr(policy, name)]
    if isinstance(policy, type):
        raise ConfigurationError(f"policy is the class {policy.__name__}; expected an instance, {policy.__name__}(...)")
    if missing:
        such = f"make_policy({policy!r})" if isinstance(policy, str) else "fedroster.Floor()"
        raise ConfigurationError(f"expected a policy, such as {such}; policy is {policy!r}, which has no {missing[0]}")


def deciding(policy: AnyPolicy) -> AnyPolicy:
    """The policy that decides: the innermost of one that only weighs what the policy in its ``inner`` decides."""
    inner = getattr(policy, "inner", None)
    return policy if inner is None else deciding(inner)


def owes(policy: AnyPolicy) -> TypeGuard[Owes]:
    """Whether a policy keeps count of what it owes; ``isinstance`` does not see what a policy passes on."""
    return hasattr(policy, "backlog")


def expects_times(policy: AnyPolicy) -> TypeGuard[ExpectsTimes]:
    """Whether a policy believes something about exchange times."""
    return hasattr(policy, "expected_times_s")


def rescales(policy: AnyPolicy) -> TypeGuard[Rescales]:
    """Whether a policy can change its mind about a first time."""
    return hasattr(policy, "rescale")


def wants_losses(policy: AnyPolicy) -> bool:
    """Whether a policy declares ``wants_losses``: it learns from losses and sizes, and measuring losses costs time."""
    return bool(getattr(policy, "wants_losses", False))


def signs(policy: AnyPolicy) -> Signature | None:
    """What a policy learns of each update; None for nothing."""
    found: Signature | None = getattr(policy, "signature", None)
    return found


def missing_signals(policy: AnyPolicy, *, losses: bool, contexts: bool, deadline: bool) -> tuple[str, ...]:
    """What a policy learns from that a federation or a scenario does not have, in words; empty for nothing.

    A policy declares it by ``wants_losses``, ``wants_contexts`` and ``wants_deadline``.
    """
    there = {"losses": losses, "contexts": contexts, "a deadline": deadline}
    absent = [name for name, has in there.items() if not has]
    lacks = tuple(name for name in absent if getattr(policy, f"wants_{name.removeprefix('a ')}", False))
    updates = {"norms": asks(policy) == "norms", "signatures": signs(policy) is not None}
    return lacks + tuple(f"{name} of updates" for name, wanted in updates.items() if wanted and not losses)


def polls(policy: AnyPolicy) -> bool:
    """Whether a policy declares ``polls``: in ``select`` it asks for losses of the model by ``context.poll``."""
    return bool(getattr(policy, "polls", False))


def asks(policy: AnyPolicy) -> Asks:
    """What a policy that polls asks for."""
    found: Asks = getattr(policy, "asks", "losses")
    return found


def draws(policy: AnyPolicy) -> Draws:
    """How chance decides in a policy; "unknown" for one that does not say."""
    found: Draws = getattr(policy, "draws", "unknown")
    return found


def weighed(policy: AnyPolicy, state: Any, context: RoundContext, selection: Selection) -> Selection:
    """A decision that is not booked yet, with its weights if the policy :class:`Weighs`.

    Raises:
        SelectionError: If they are not finite numbers >= 0, one for each link.
    """
    method = getattr(policy, "weights", None)
    if not callable(method):
        return selection
    weights = method(state, context if context.poll is None else replace(context, poll=None), selection)
    if weights is None:
        return selection
    check_weights("weights", weights, selection.links.shape[0])
    return replace(selection, weights=weights.copy())


def commits(policy: AnyPolicy) -> Commits:
    """Which contexts ``commit`` reads: those of all rows, unless its class says ``commits = "cohort"``."""
    found: Commits = vars(_owner(type(deciding(policy)), "commit")).get("commits", "all")
    return found


@cache
def _refuses_first(kind: type) -> bool:
    owners = (_owner(kind, name) for name in ("select", "commit", "update"))
    return all(vars(owner).get("refuses_first") is True for owner in owners)


def _owner(kind: type, method: str) -> type:
    """The class that defines a method of a class."""
    return next((each for each in kind.__mro__ if method in vars(each)), kind)


def refuses_first(policy: AnyPolicy) -> bool:
    """Whether a policy is trusted: what it refuses, it refuses before it writes, and it writes into its state only.

    Each class that defines ``select``, ``commit`` or ``update`` must say ``refuses_first = True`` itself.
    """
    return _refuses_first(type(policy)) and _refuses_first(type(deciding(policy)))


def check_limits(policy: AnyPolicy, *, limited: bool) -> None:
    """Refuse a policy with an attribute ``needs_limits`` where there is no server, deadline or budget to limit it."""
    if getattr(policy, "needs_limits", False) and not limited:
        raise ConfigurationError(
            f"{type(policy).__name__} chooses the updates that come in time; it needs several servers, a deadline or "
            "budgets, and this federation has none of them; expected a policy that looks at times, such as "
            "fedroster.Floor()"
        )


def refuse_unseen(policy: AnyPolicy, *, tells_signatures: bool = False) -> None:
    """Refuse a policy that needs to know of updates what an engine does not tell."""
    if asks(policy) == "norms":
        raise ConfigurationError(
            f"{type(policy).__name__} learns from norms of updates before they are sent, and engines have no such "
            "exchange; it runs in simulate, federate and compare"
        )
    if signs(policy) is not None and not tells_signatures:
        raise ConfigurationError(
            f"{type(policy).__name__} learns from signatures of updates, and this engine, as it is set up here, "
            "computes none; it runs in simulate, federate and compare, in rounds of Flower's SelectingGrid, in FLARE's "
            "Selecting with a check, and in pfl with ReportSignatures"
        )


def refuse_weights(policy: AnyPolicy, why: str) -> None:
    """Refuse a policy that weighs the updates of its cohort, where that cannot be applied, and say why."""
    if callable(getattr(policy, "weights", None)):
        raise ConfigurationError(
            f"{type(policy).__name__} says how much each update counts, and {why}; expected a policy without weights"
        )


def poll_times(environment: AnyEnvironment, state: Any, context: RoundContext, links: IntArray) -> FloatArray:
    """How long until each client has answered what its loss of the present model is, shape (k,), seconds.

    An environment without a method ``poll_times(state, context, links)`` says that it takes no time.
    """
    method = getattr(environment, "poll_times", None)
    times_s: FloatArray = np.zeros(links.shape[0]) if method is None else method(state, context, links)
    return times_s
