"""The four-stage round loop, without training (Huang et al. 2021, section 3), and the same in free places.

In free places no client waits for a cohort: one that has answered leaves its place, which is filled at once.  A round
is then one filling: the idle clients report, the policy fills the free places, and the next answer ends the round.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from fedroster.aggregation.hierarchical import hierarchical_round_time
from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.errors import ConfigurationError, FairnessWarning, SelectionError
from fedroster.core.parameters import suggests
from fedroster.core.problem import Feedback, Outcome, ProblemSpec, RoundContext, Selection, check_selection
from fedroster.core.protocols import AnyEnvironment, AnyPolicy, asks, check_policy, poll_times, polls, signs, weighed
from fedroster.core.state import is_label_of, kept, load_arrays, pack, per_client, save_arrays, unpack, whole
from fedroster.core.streams import Streams
from fedroster.queues import AVAILABILITY_PERIOD, seen_too_rarely


@dataclass(frozen=True, slots=True)
class AtWork:
    """Clients at work in free places, in the order in which they began, and what each will report; shapes begin with k.

    Attributes:
        client: The clients.
        due_s: When each place becomes free, on the clock of the simulation, seconds.
        round: Filling in which each was chosen.
        features: Its context then, shape (k, D).
        status: How its exchange will have ended.
        measured: Its exchange time, loss, squared loss and number of samples, shape (k, 4); NaN where there is none.
        began: Whether each client began to work in the present round of the network, shape (clients,).
        begun: How many did.
        now_s: The clock, seconds.
    """

    client: IntArray = kept(least=0, sized=True)
    due_s: FloatArray = kept(least=0.0, sized=True)
    round: IntArray = kept(least=1, most="round", sized=True)
    features: FloatArray = kept(-math.inf, sized=True)
    status: StatusArray = kept(least=0, most=3, sized=True)
    measured: FloatArray = kept(sized=True)
    began: BoolArray = per_client()
    begun: int = kept(0)
    now_s: float = kept(0.0)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        places = self.client.shape
        shapes = {
            "due_s": places,
            "round": places,
            "status": places,
            "features": (*places, spec.num_features),
            "measured": (*places, 4),
        }
        if any(getattr(self, name).shape != shape for name, shape in shapes.items()):
            return "clients at work and what they will report differ in shape"
        known = np.unique(self.client[self.client < spec.num_clients])
        if known.shape != places or known.shape[0] >= spec.cohort_size:
            return "a client at work is none, or twice, or too many"
        return ""

    @classmethod
    def empty(cls, spec: ProblemSpec) -> AtWork:
        """Before the first filling."""
        none = np.empty(0, np.int64)
        rows = np.empty((0, spec.num_features))
        began = np.zeros(spec.num_clients, np.bool_)
        return cls(none, np.empty(0), none, rows, np.empty(0, np.uint8), np.empty((0, 4)), began, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Round:
    """One round of a simulation.

    Attributes:
        context: What was reported.
        outcome: What would have happened on every link.
        selection: What was decided.
        feedback: What came back.
        time_s: Round time (:func:`round_time`), and before it the time of polling, seconds.
        policy_state: The policy's state after the round; its arrays are reused by the next one.
        environment_state: The network's state after the round.
        decision_s: Time that the policy took to decide and to learn, without polls, seconds: on this machine and this
            once, so the only value that differs when the round is played again.
        at_work: Clients that have not answered yet, in free places; else None.
    """

    context: RoundContext
    outcome: Outcome
    selection: Selection
    feedback: Feedback
    time_s: float
    policy_state: Any
    environment_state: Any
    decision_s: float
    at_work: AtWork | None = None

    @property
    def number(self) -> int:
        """Round number t."""
        return self.context.round


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that is needed to go on after a round: random streams are addressed by round and need not be saved.

    Attributes:
        round: Last finished round.
        policy_state: State of the policy.
        environment_state: State of the network.
        at_work: Clients that have not answered yet, in free places; else None.
    """

    round: int
    policy_state: Any
    environment_state: Any
    at_work: AtWork | None = None


Exchange: TypeAlias = Callable[[RoundContext, Selection, Outcome], Feedback]
"""What happens with the chosen links, and what the server learns from it."""

Ask: TypeAlias = Callable[[RoundContext, IntArray], FloatArray]
"""What the clients of some rows say when they are asked: a loss of the present model, or the norm of their update."""


@dataclass(slots=True)
class _Polling:
    """What a policy polls with in one round; remembers the asked clients and the wait for the slowest answer.

    A client that leaves before it could answer does not; the round notices this when the answer was due.  Clients that
    are asked for the norm of their update train first, and only upload when they are chosen.
    """

    environment: AnyEnvironment
    state: Any
    context: RoundContext
    outcome: Outcome
    ask: Ask | None
    trains: bool
    asked: BoolArray = field(init=False)
    wait_s: float = 0.0
    asking_s: float = 0.0

    def __post_init__(self) -> None:
        self.asked = np.zeros(self.context.num_links, np.bool_)

    def __call__(self, links: IntArray) -> FloatArray:
        started = time.perf_counter()
        if not self.context.available[links].all():
            row = int(links[~self.context.available[links]][0])
            raise SelectionError(f"row {row} was polled and is not available in round {self.context.round}")
        self.asked[links] = True
        outcome, answers = self.outcome, np.ones(links.shape[0], np.bool_)
        if self.trains:
            trained_s = outcome.training_s[links]
            time_s = np.minimum(trained_s, outcome.deadline_s)
            answers = (trained_s <= time_s) & (outcome.responds[links] | (outcome.stay_s is not None))
        else:
            time_s = poll_times(self.environment, self.state, self.context, links)
        self.wait_s = max(self.wait_s, float(time_s.max(initial=0.0)))
        if outcome.stay_s is not None:
            answers &= time_s <= outcome.stay_s[links]
        answer = np.full(links.shape[0], np.nan)
        if self.ask is not None and answers.any():
            answer[answers] = self.ask(self.context, links[answers])
        self.asking_s += time.perf_counter() - started
        return answer

    def played(self, selection: Selection) -> tuple[Selection, Outcome]:
        """The decision with the rows that were asked for it, and what would happen after the wait."""
        if not self.asked.any():
            return selection, self.outcome
        after = self.outcome.after_training if self.trains else self.outcome.after
        return replace(selection, polled=np.flatnonzero(self.asked)), after(self.wait_s)


Arrive: TypeAlias = Callable[[Feedback], None]
"""Told in free places what has come back from a client; ``Exchange`` was called when it began."""

_MEASURED = ("exchange_time_s", "loss", "squared_loss", "num_samples")


class _Places:
    """The free places of one server, and the clock."""

    def __init__(self, environment: AnyEnvironment, at_work: AtWork) -> None:
        self._environment = environment
        self._size = environment.spec.cohort_size
        self.at_work = at_work

    def idle(self, context: RoundContext) -> RoundContext:
        """The context of the clients that are idle, and as many places as are free."""
        busy = np.isin(context.clients_of(np.arange(context.num_links)), self.at_work.client)
        free = self._size - self.at_work.client.shape[0]
        return replace(context, available=context.available & ~busy, cohort_size=free)

    def play(self, context: RoundContext, outcome: Outcome, selection: Selection, feedback: Feedback) -> Feedback:
        """Some clients begin; return what comes back first, with the clock at that time."""
        work, rows = self.at_work, selection.links.shape[0]
        took_s = np.minimum(outcome.exchange_time_s[selection.links], outcome.deadline_s)
        told = [getattr(feedback, name) for name in _MEASURED]
        new = {
            "client": feedback.client,
            "due_s": work.now_s + took_s,
            "round": np.full(rows, context.round),
            "features": feedback.features,
            "status": feedback.status,
            "measured": np.stack([np.full(rows, np.nan) if one is None else one for one in told], axis=1),
        }
        every = {name: np.concatenate((getattr(work, name), values)) for name, values in new.items()}
        due_s = every["due_s"]
        first = np.arange(due_s.shape[0]) == (due_s.argmin() if due_s.shape[0] else -1)
        idle_s = getattr(self._environment, "idle_step_s", 0.0)
        now_s = float(due_s[first][0]) if first.any() else work.now_s + idle_s
        began = work.began.copy()
        began[feedback.client] = True
        left = {name: values[~first] for name, values in every.items()}
        self.at_work = replace(work, **left, now_s=now_s, began=began, begun=work.begun + rows)
        answer = {name: values[first] for name, values in every.items()}
        sent = int(answer["round"][0]) if first.any() else context.round
        known = dict(zip(_MEASURED, answer["measured"].T, strict=True))
        losses = {name: None if np.isnan(known[name]).all() else known[name] for name in _MEASURED[1:]}
        return Feedback(
            round=sent,
            client=answer["client"],
            features=answer["features"],
            status=answer["status"],
            exchange_time_s=known["exchange_time_s"],
            **losses,
            staleness=context.round - sent,
        )

    def booked(self, policy: AnyPolicy, context: RoundContext) -> RoundContext:
        """What a policy books: rates that are promised are owed once for m clients that began, as by a selector."""
        if not promises(policy) or self.at_work.begun >= self._size:
            return context
        return replace(context, members=np.zeros_like(self.at_work.began))

    def advance(self, network: Any, context: RoundContext) -> Any:
        """A round of the network is over when as many clients have begun as there are places.

        One that goes by a clock has a method ``at(state, elapsed_s)``: here the clock is ours.
        """
        if self.at_work.begun >= self._size:
            rows = np.flatnonzero(self.at_work.began[context.clients_of(np.arange(context.num_links))])
            self.at_work = replace(self.at_work, began=np.zeros_like(self.at_work.began), begun=0)
            network = self._environment.advance(network, context, Selection(context.round, rows))
        at = getattr(self._environment, "at", None)
        return network if at is None else at(network, self.at_work.now_s)


Witness: TypeAlias = Callable[[RoundContext, Outcome, Selection, Any, Any], None]
"""Is told a decision before it is booked: context, outcome, decision, and the states of policy and network."""


def promises(policy: object) -> bool:
    """Whether a policy, or a class of them, promises a rate: its ``beta``, unless ``promises = False`` says another."""
    return hasattr(policy, "beta") and getattr(policy, "promises", True)


def promised_rate(policy: AnyPolicy | None) -> tuple[float, str]:
    """Beta, 0 for none, and what it counts: all "rounds", those "available", or those where a server "reaches" it."""
    of = "reaches" if getattr(policy, "needs_limits", False) else getattr(policy, "share_of", "rounds")
    return float(getattr(policy, "beta", 0.0)) if promises(policy) else 0.0, of


class _Watch:
    """Warns once of clients that are available too rarely for the rate that a policy guarantees (Choice A6)."""

    def __init__(self, policy: AnyPolicy, num_clients: int) -> None:
        beta, of = promised_rate(policy)
        self._beta = 0.0 if of == "available" else beta
        self._seen, self._present = np.zeros((2, num_clients), np.int64)

    def see(self, context: RoundContext) -> None:
        """Count the available clients, and check the rates from time to time."""
        if self._beta == 0.0:
            return
        self._present += 1 if context.members is None else context.members
        self._seen[np.unique(context.clients_of(np.flatnonzero(context.available)))] += 1
        if context.round % AVAILABILITY_PERIOD:
            return
        rare = np.flatnonzero(seen_too_rarely(self._seen, self._present, beta=self._beta))
        if rare.shape[0]:
            warnings.warn(
                f"beta = {self._beta} cannot be met for {rare.shape[0]} clients that are available less often, "
                f"such as {rare[:5].tolist()}, in {context.round} rounds",
                FairnessWarning,
                stacklevel=3,
            )
            self._beta = 0.0


def round_time(outcome: Outcome, context: RoundContext, selection: Selection) -> float:
    r"""Time span of a round, :math:`f(S_t, \tau_t) = \max_{n \in S_t} \tau_{t,n}` (Huang et al. 2021, Eq. 1), seconds.

    A drop-out is noticed when its answer was due.  No server waits beyond the deadline.  An empty round takes no time.
    With edge servers it is :func:`~fedroster.aggregation.hierarchical.hierarchical_round_time`.
    """
    if context.server is not None:
        return hierarchical_round_time(outcome, context, selection)
    if selection.is_empty:
        return 0.0
    return min(float(outcome.exchange_time_s[selection.links].max()), outcome.deadline_s)


@suggests
def simulate(
    policy: AnyPolicy,
    environment: AnyEnvironment,
    *,
    rounds: int,
    seed: int,
    start: Checkpoint | None = None,
    exchange: Exchange | None = None,
    ask: Ask | None = None,
    witness: Witness | None = None,
    free_places: bool = False,
    arrive: Arrive | None = None,
) -> Iterator[Round]:
    """Play rounds: report, select, exchange, aggregate.

    In free places m clients work at any time.  What a chosen client will do is drawn when it begins, one observation of
    the network a filling; a round of the network (which decides who is cold, and who is away for rounds) is over when m
    clients have begun.  ``time_s`` is the time until the next answer, which ``feedback`` holds.

    Args:
        policy: Chooses the clients.
        environment: The network.
        rounds: Number of the last round to play, also after a checkpoint.
        seed: Seed of all random streams.  The network's draws do not depend on the policy.
        start: Checkpoint to continue from; the loop may change it. None to begin.
        exchange: Stages 3 and 4 with training; None to only reveal what happened.
        ask: How policies that poll learn losses; None without a model.
        witness: Called with each decision before it is booked.
        free_places: Whether places are filled as they become free, in a network of one server.
        arrive: Told what has come back in free places.

    Yields:
        The rounds, one after the other.

    Raises:
        InfeasibleError: If the policy's guarantee is impossible.
        SelectionError: If a decision breaks a hard constraint.
        ConfigurationError: If there are free places and several servers, or a policy that polls; a policy asks for
            norms in a network that goes by a clock; or one of checkpoint and run is in free places.

    Warns:
        FairnessWarning: If clients turn out to be available less often than the policy's beta.
    """
    streams = Streams(seed)
    spec = environment.spec
    check_policy(policy)
    watch = _Watch(policy, spec.num_clients)
    policy.check(spec)
    if ask is not None and asks(policy) == "norms" and hasattr(environment, "at"):
        raise ConfigurationError(
            f"{type(policy).__name__} asks for norms between training and upload, and {type(environment).__name__} has "
            "a clock that knows whole exchanges; expected another network"
        )
    is_told = signs(policy) is not None or (ask is not None and polls(policy))
    if free_places and (spec.num_servers > 1 or is_told):
        raise ConfigurationError(
            f"free places with {spec.num_servers} servers and {type(policy).__name__}; expected one server, and a "
            "policy that decides without asking for losses and without signatures"
        )
    if start is None:
        state = policy.init(spec, rng=streams.at("policy-init"))
        network = environment.init(rng=streams.at("environment-init"))
        first, at_work = 1, AtWork.empty(spec)
    elif (start.at_work is None) == free_places:
        raise ConfigurationError("of checkpoint and run, one has free places; expected both or neither")
    else:
        state, network, first = start.policy_state, start.environment_state, start.round + 1
        at_work = start.at_work or AtWork.empty(spec)
    places = _Places(environment, at_work) if free_places else None
    for number in range(first, rounds + 1):
        # 1. Clients report their availability and their context.
        everyone, outcome = environment.observe(network, number, rng=streams.at("environment", number))
        watch.see(everyone)
        context = everyone if places is None else places.idle(everyone)
        # 2. The server selects.
        known = context.with_truth(outcome) if policy.omniscient else context
        polling = _Polling(environment, network, context, outcome, ask, trains=asks(policy) == "norms")
        if ask is not None and polls(policy):
            known = known.with_poll(polling)
        rng = streams.at("policy", number)
        started = time.perf_counter()
        selection = policy.select(state, known, rng=rng)
        decision_s = time.perf_counter() - started - polling.asking_s
        selection, outcome = polling.played(selection)
        check_selection(selection, context, fills_cohort=policy.fills_cohort)
        started = time.perf_counter()
        selection = weighed(policy, state, known, selection)
        decision_s += time.perf_counter() - started
        if witness is not None:
            witness(context, outcome, selection, state, network)
        # 3. The chosen clients train and exchange their models.
        feedback = outcome.reveal(context, selection) if exchange is None else exchange(context, selection, outcome)
        time_s = round_time(outcome, context, selection) + polling.wait_s
        if places is not None:
            before_s = places.at_work.now_s
            feedback = places.play(context, outcome, selection, feedback)
            time_s = places.at_work.now_s - before_s
            if arrive is not None:
                arrive(feedback)
        # 4. The server aggregates what came, and learns.
        started = time.perf_counter()
        booked = context if places is None else places.booked(policy, context)
        state = policy.update(policy.commit(state, booked, selection), feedback)
        decision_s += time.perf_counter() - started
        network = (
            environment.advance(network, context, selection) if places is None else places.advance(network, everyone)
        )
        work = None if places is None else places.at_work
        yield Round(context, outcome, selection, feedback, time_s, state, network, decision_s, work)


def save_checkpoint(
    path: str | os.PathLike[str], last: Round, *, policy: AnyPolicy, environment: AnyEnvironment, seed: int
) -> None:
    """Save the state after a round of a policy on a network, atomically."""
    arrays, header = checkpoint_parts(last, policy=policy, environment=environment, seed=seed)
    save_arrays(path, arrays, header, kind="simulation")


def checkpoint_parts(
    last: Round, *, policy: AnyPolicy, environment: AnyEnvironment, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and header of a checkpoint after a round; :func:`restore_checkpoint` reads them."""
    header = {"round": last.number, "policy": repr(policy), "environment": repr(environment), "seed": seed}
    arrays = pack(last.policy_state, "policy.") | pack(last.environment_state, "environment.")
    if last.at_work is not None:
        arrays |= pack(last.at_work, "at-work.")
    return arrays, header


def load_checkpoint(
    path: str | os.PathLike[str], *, policy: AnyPolicy, environment: AnyEnvironment, seed: int
) -> Checkpoint:
    """Load what :func:`save_checkpoint` saved, for the same policy, environment and seed.

    Raises:
        StateFileError: If the file is damaged or foreign.
        ConfigurationError: If it belongs to another policy, environment or seed.
    """
    arrays, header = load_arrays(path, kind="simulation")
    return restore_checkpoint(arrays, header, path, policy=policy, environment=environment, seed=seed)


def restore_checkpoint(
    arrays: Mapping[str, Any],
    header: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    policy: AnyPolicy,
    environment: AnyEnvironment,
    seed: int,
) -> Checkpoint:
    """Rebuild a checkpoint from a file's content; see :func:`load_checkpoint`."""
    for name, value, is_same in (
        ("policy", policy, is_label_of(header.get("policy"), policy)),
        ("environment", environment, is_label_of(header.get("environment"), environment)),
        ("seed", seed, header.get("seed") == seed),
    ):
        if not is_same:
            raise ConfigurationError(f"{os.fspath(path)!r} belongs to {name} {header.get(name)}; expected {value!r}")
    streams = Streams(seed)
    state = policy.init(environment.spec, rng=streams.at("policy-init"))
    network = environment.init(rng=streams.at("environment-init"))
    round = whole(header, "round", 0)
    learned = unpack(state, arrays, "policy.", spec=environment.spec, round=round)
    at_work = None
    if any(name.startswith("at-work.") for name in arrays):
        at_work = unpack(AtWork.empty(environment.spec), arrays, "at-work.", spec=environment.spec, round=round)
    return Checkpoint(round, learned, unpack(network, arrays, "environment.", spec=environment.spec), at_work)
