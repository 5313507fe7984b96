"""From a wish to parameters: which policy, share, deadline and spare places give what an operator wants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fedroster.catalogue import make_policy, make_scenario
from fedroster.errors import ConfigurationError, InfeasibleError, InvalidInputError
from fedroster.lab.replay.estimates import history_of, too_far, too_wrong
from fedroster.lab.replay.history import History
from fedroster.lab.replay.modelled import Fit
from fedroster.lab.statistics import prediction_interval
from fedroster.parts import Parameters, Positive, Share, check_integer, check_number
from fedroster.record import Log
from fedroster.simulation import simulate
from fedroster.types import AnyEnvironment, BoolArray, FloatArray, IntArray, Status

_SPARE_SHARES = (0.0, 0.125, 0.25, 0.5)
"""Spare places that are tried, by cohort size: the round ends when as many updates have come as the cohort is large."""

_BETAS = (1.0, 1.15, 1.5, 2.0)
"""Promised shares that are tried, by the share that is wished for: a client that fails or is late needs more."""

_WEIGHTS = (5.0, 20.0, 100.0)
"""Values of RBCS-F's V that are tried, by the median exchange time: V is in participations per second."""

_UNLIMITED = ("random", "round-robin")

_LEAST_ROUNDS = 20
"""A client that was a member for fewer rounds has no share: by chance alone, it may not have been chosen yet."""

_OVERHEAD = 0.95  # quantile of a log's overhead that a deadline leaves room for

_SURE = 0.9  # share of the trials in which a wish is met that counts as met

Ends: TypeAlias = tuple[float, float]
"""Lower and upper end of a 90 % interval."""


@dataclass(frozen=True, slots=True)
class Wish(Parameters):
    """What an operator wants.

    Attributes:
        every_client: Least share of the rounds in which each client's update is used, in [0, 1].
        rounds_under_s: Length that rounds stay under, seconds, > 0.
        share: Least share of the rounds that do, in [0, 1].
    """

    every_client: Share
    rounds_under_s: Positive
    share: Share = 0.95


@dataclass(frozen=True, slots=True)
class Setting:
    """What can be set.

    Attributes:
        policy: Policy as text.
        spare: Clients that are chosen beyond the cohort size; the round ends at the cohort size's last update.
        deadline_s: Longest time that a round waits for updates, seconds; infinite for no deadline.
    """

    policy: str
    spare: int = 0
    deadline_s: float = math.inf

    def __str__(self) -> str:
        """The setting in readable form."""
        spare = f", {self.spare} client{'s' * (self.spare > 1)} more than needed" if self.spare else ""
        deadline = f", deadline {self.deadline_s:g} s" if math.isfinite(self.deadline_s) else ""
        return f"{self.policy}{spare}{deadline}"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a setting; means over trials, with 90 % intervals for one run.

    Attributes:
        setting: The setting.
        least_share: Least share of the rounds of its membership in which a client's update was used.
        round_s: Length that the wished share of the rounds stayed under, seconds.
        mean_round_s: Mean length of a round, seconds.
        updates: Updates that a round used.
        wasted: Share of the chosen clients whose update was not used.
        met: Trials in which the wish was met.
        num_seeds: Trials that were played.
        least_share_ends: Interval of ``least_share``; NaN for a single trial.
        round_s_ends: Interval of ``round_s``, likewise.
        mean_round_s_ends: Interval of ``mean_round_s``, likewise.
    """

    setting: Setting
    least_share: float
    round_s: float
    mean_round_s: float
    updates: float
    wasted: float
    met: int
    num_seeds: int
    least_share_ends: Ends
    round_s_ends: Ends
    mean_round_s_ends: Ends

    @property
    def is_met(self) -> bool:
        """Whether the wish was met in nine of ten trials: with fewer than ten, in each."""
        return self.met >= _SURE * self.num_seeds

    def lack(self, wish: Wish) -> float:
        """By which factor the wish is missed, 0 for not at all: the greater of share and length."""
        share = wish.every_client / max(self.least_share, 1e-12) if wish.every_client else 0.0
        return max(share - 1.0, self.round_s / wish.rounds_under_s - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was tried for a wish.

    Attributes:
        tried: Settings and what came of them, at least one: the first meets the wish, or comes nearest to it.
        refused: Why settings could not be tried, by setting.
        trials: What the trials of a setting are, in words.
        remark: What else is to be known of the numbers; may be empty.
    """

    tried: Sequence[Tried]
    refused: Mapping[str, str]
    trials: str
    remark: str


@dataclass(frozen=True, slots=True)
class Exchanges:
    """One round of a policy, before it is said when it ends.

    Attributes:
        client: Chosen clients, shape (k,).
        time_s: Their exchange times, shape (k,), seconds.
        responds: Whether each would send an update, shape (k,).
        members: Who was a member, shape (clients,); None for all.
        overhead_s: What the round takes beyond its exchanges, seconds.
    """

    client: IntArray
    time_s: FloatArray
    responds: BoolArray
    members: BoolArray | None = None
    overhead_s: float = 0.0

    def end(self, needed: int, deadline_s: float) -> tuple[float, IntArray]:
        """Length of the round, and the clients whose update is used.

        It ends at the update that fills the cohort, at the deadline, or when all that will come has come; that a client
        dropped out is noticed when its answer was due.
        """
        if not self.client.shape[0]:
            return 0.0, self.client
        came = np.sort(self.time_s[self.responds])
        last = float(came[needed - 1]) if came.shape[0] >= needed else float(self.time_s.max())
        end_s = min(last, deadline_s)
        return max(end_s + self.overhead_s, 0.0), self.client[self.responds & (self.time_s <= end_s)]


class ScenarioWorld:
    """A scenario with one server; its trials are runs with other seeds.

    Attributes:
        num_clients: Number of clients.
        cohort_size: Updates that a round needs.
        overhead_s: What rounds take beyond their exchanges, seconds, >= 0: deadlines leave room for it.
        doubt: Standard deviation of the logarithm of all times that no trial shows, >= 0.
        trials: What the trials of a setting are, in words.
        remark: What else is to be known of the numbers; may be empty.
    """

    overhead_s, doubt, trials, remark = 0.0, 0.0, "seeds", ""

    def __init__(self, name: str, settings: dict[str, str], *, rounds: int) -> None:
        """Make it.

        Raises:
            ConfigurationError: If it has edge servers, or its cohorts have one size only.
        """
        check_integer("rounds", rounds, least=10)
        self._environment: AnyEnvironment = make_scenario(name, settings)
        self._rounds = rounds
        spec = self._environment.spec
        if spec.num_servers != 1 or not any(f.name == "cohort_size" for f in dataclasses.fields(self._environment)):  # type: ignore[arg-type]
            raise ConfigurationError(f"{name} has edge servers; expected a scenario with one server, or a log")
        self.num_clients, self.cohort_size = spec.num_clients, spec.cohort_size

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        """Play a policy with this many places.

        Raises:
            InfeasibleError: If the policy cannot do what it promises with this many places.
        """
        environment: Any = dataclasses.replace(self._environment, cohort_size=places)  # type: ignore[type-var]
        for played in simulate(make_policy(policy), environment, rounds=self._rounds, seed=seed):
            links = played.selection.links
            outcome = played.outcome
            members, clients = played.context.members, played.context.clients_of(links)
            yield Exchanges(clients, outcome.exchange_time_s[links], outcome.responds[links], members)


class LogWorld:
    """What the log of a federation leaves possible; its trials are worlds that are drawn from that.

    Policies play the log's rounds: as many, with who was there and the contexts that were
    (:mod:`fedroster.lab.replay`). Half of what the worlds are off for the log's own rounds is taken off all times.
    """

    def __init__(self, log: Log | History, *, num_worlds: int) -> None:
        """Fit worlds.

        Args:
            log: The log.
            num_worlds: Worlds that can be asked for, by the numbers from 0 on, >= 2.

        Raises:
            InvalidInputError: If a replay of the log is refused: it has several servers, too few times, or others than
                the model can follow.
        """
        check_integer("worlds", num_worlds, least=2)
        history = log if isinstance(log, History) else history_of(log)
        self._fit = fit = Fit(history, draws=num_worlds, seed=0)
        if why := too_wrong(fit):
            raise InvalidInputError(why)
        self.num_clients, self.cohort_size = history.num_clients, int(history.places.max())
        self.doubt, self._scale = abs(0.5 * fit.wrong), math.exp(-0.5 * fit.wrong)
        overheads = np.concatenate([world.waits.overhead_s for world in fit.worlds])
        self.overhead_s = max(float(np.quantile(overheads, _OVERHEAD)), 0.0) if overheads.shape[0] else 0.0
        self.trials = "worlds that the log leaves possible"
        self.remark = (
            f"The log has {history.num_rounds} rounds. The fitted worlds make them {math.exp(fit.wrong) - 1.0:+.1%} "
            "longer than they were: half of that is taken off, and is in the intervals."
        )
        if fit.is_unknown.any():
            unknown = int(fit.is_unknown.sum())
            self.remark += (
                f" {unknown} of {history.num_clients} clients were never measured, and are taken to be usual."
            )

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        """Play a policy in the world of that number."""
        played = make_policy(policy)
        if played.omniscient:
            raise ConfigurationError(f"{policy} knows true times, which no log has")
        beyond = count = chosen = unknown = 0
        for one in self._fit.rounds(played, seed, spare=places - self.cohort_size):
            clients = one.feedback.client
            responds = one.feedback.status < Status.DROPPED
            yield Exchanges(clients, self._scale * one.waited_s, responds, one.members, self._scale * one.overhead_s)
            beyond, count = beyond + one.is_beyond, count + 1
            chosen, unknown = chosen + clients.shape[0], unknown + int(self._fit.is_unknown[clients].sum())
        if why := too_far(beyond / count, unknown / max(chosen, 1)):
            raise InvalidInputError(why)


World: TypeAlias = ScenarioWorld | LogWorld
"""Where settings are tried."""


def settings_for(world: World, wish: Wish, median_s: float) -> list[Setting]:
    """What is tried: policies with shares from the wished one on, with and without spare places and a deadline.

    Args:
        world: Where.
        wish: What is wanted.
        median_s: Median exchange time, seconds.
    """
    found = []
    longest_s = wish.rounds_under_s - world.overhead_s
    for spare in dict.fromkeys(math.ceil(share * world.cohort_size) for share in _SPARE_SHARES):
        most = (world.cohort_size + spare) / world.num_clients
        betas = dict.fromkeys(round(beta, 4) for by in _BETAS if (beta := by * wish.every_client) <= most)
        policies = [f"floor:beta={beta:g}" for beta in betas]
        if betas:
            beta = next(iter(betas))
            policies += [f"rbcs-f:V={weight / median_s:.2g},beta={beta:g}" for weight in _WEIGHTS]
        for policy in (*policies, *_UNLIMITED):
            found += [Setting(policy, spare), *[Setting(policy, spare, longest_s)] * (longest_s > 0.0)]
    return found


def median_time_s(world: World) -> float:
    """Median exchange time of clients that are chosen at random, seconds."""
    times: list[float] = []
    with suppress(InvalidInputError):  # a log that says too little about a random policy does say how long times are
        for played in world.rounds("random", world.cohort_size, 0):
            times += played.time_s.tolist()
    return float(np.median(times)) if times else 1.0


def plan(
    world: World,
    wish: Wish,
    *,
    seeds: Sequence[int],
    only: Sequence[str] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> Plan:
    """Try settings, and order them: those that meet the wish first, the shortest mean round before others.

    Args:
        world: Where they are tried.
        wish: What is wanted.
        seeds: Seeds of each trial; numbers of worlds that a log leaves possible.
        only: Policies to try in place of the usual ones, as text.
        progress: Called with the number of settings that are done, that of all, and the next one.

    Raises:
        ConfigurationError: If no setting can be tried.
    """
    check_number("seeds", float(len(seeds)), least=1.0)
    settings = settings_for(world, wish, median_time_s(world))
    if only:
        ends = dict.fromkeys((each.spare, each.deadline_s) for each in settings)
        settings = [Setting(policy, *end) for end in ends for policy in only]
    played: dict[tuple[str, int], list[list[Exchanges]]] = {}
    tried, refused = [], {}
    for number, setting in enumerate(settings):
        progress(number, len(settings), str(setting))
        key = setting.policy, world.cohort_size + setting.spare
        try:
            if key not in played:
                played[key] = [list(world.rounds(*key, seed)) for seed in seeds]
        except (
            InfeasibleError,
            InvalidInputError,
        ) as error:  # this share with this many places; this policy in this log
            refused[str(setting)] = str(error)
            continue
        tried.append(_try(setting, played[key], world, wish))
    if not tried:
        raise ConfigurationError(f"no setting can be tried: {next(reversed(refused.values()), 'no setting is left')}")
    tried.sort(key=lambda each: (not each.is_met, 0.0 if each.is_met else each.lack(wish), each.mean_round_s))
    return Plan(tried, refused, world.trials, world.remark)


def _try(setting: Setting, runs: list[list[Exchanges]], world: World, wish: Wish) -> Tried:
    rows = []
    for rounds in runs:
        lengths, used, member = np.zeros(len(rounds)), np.zeros(world.num_clients), np.zeros(world.num_clients)
        for number, played in enumerate(rounds):
            lengths[number], clients = played.end(world.cohort_size, setting.deadline_s)
            used[clients] += 1.0
            member += 1.0 if played.members is None else played.members
        counted = member >= min(_LEAST_ROUNDS, len(rounds))
        least = float((used[counted] / member[counted]).min()) if counted.any() else 0.0
        under = float(np.quantile(lengths, wish.share, method="inverted_cdf"))
        wasted = 1.0 - used.sum() / max(sum(played.client.shape[0] for played in rounds), 1)
        rows.append((least, under, lengths.mean(), used.sum() / len(rounds), wasted))
    table = np.array(rows)
    met = (table[:, 0] >= wish.every_client) & (table[:, 1] <= wish.rounds_under_s)
    low, high = prediction_interval(table[:, 0])
    share_ends = (max(low, 0.0), min(high, 1.0)) if len(runs) > 1 else (low, high)
    under_ends, mean_ends = (
        tuple(np.exp(prediction_interval(np.log(np.maximum(table[:, column], 1e-12)), known=world.doubt)).tolist())
        for column in (1, 2)
    )
    least, under, mean_s, updates, wasted = table.mean(axis=0).tolist()
    return Tried(
        setting, least, under, mean_s, updates, wasted, int(met.sum()), len(runs), share_ends, under_ends, mean_ends
    )


def sentence(found: Plan, wish: Wish) -> str:
    """The answer in words."""
    best = found.tried[0]
    share, *lengths = (
        "" if math.isnan(low) else f" ({low:{form}} to {high:{form}})"
        for (low, high), form in (
            (best.least_share_ends, ".1%"),
            (best.round_s_ends, ".3g"),
            (best.mean_round_s_ends, ".3g"),
        )
    )
    under_s, mean_s = f"{best.round_s:.3g} s{lengths[0]}", f"{best.mean_round_s:.3g} s{lengths[1]}"
    got = (
        f"each client's update is used in at least {best.least_share:.1%}{share} of the rounds, {wish.share:.0%} of "
        f"the rounds end within {under_s}, and a mean round takes {mean_s} and uses {best.updates:.3g} updates; "
        f"{best.wasted:.0%} of the clients' work is not used"
    )
    if best.is_met:
        answer = f"{best.setting}: {got}. This held in {best.met} of {best.num_seeds} {found.trials}."
    else:
        tried = f"None of the {len(found.tried)} settings that were tried meets the wish in nine of ten {found.trials}"
        answer = f"{tried}. The nearest is {best.setting}, which meets it in {best.met} of {best.num_seeds}: {got}."
    return f"{answer} {found.remark}".strip()
