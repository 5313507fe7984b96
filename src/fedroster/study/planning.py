"""From a wish to parameters: which policy, share, deadline and spare places give what an operator wants."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import ConfigurationError, InfeasibleError
from fedroster.core.parameters import Parameters, Positive, Share
from fedroster.core.protocols import AnyEnvironment
from fedroster.simulation import simulate

_SPARE_SHARES = (0.0, 0.125, 0.25, 0.5)
"""Spare places that are tried, by cohort size: the round ends when as many updates have come as the cohort is large."""

_BETAS = (1.0, 1.15, 1.5, 2.0)
"""Promised shares that are tried, by the share that is wished for: a client that fails or is late needs more."""

_WEIGHTS = (5.0, 20.0, 100.0)
"""Values of RBCS-F's V that are tried, by the median exchange time: V is in participations per second."""

_UNLIMITED = ("random", "round-robin")


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
        deadline_s: When a round ends at the latest, seconds; infinite for no deadline.
    """

    policy: str
    spare: int = 0
    deadline_s: float = math.inf

    def __str__(self) -> str:
        """As a person writes it."""
        spare = f", {self.spare} clients more than needed" if self.spare else ""
        deadline = f", deadline {self.deadline_s:g} s" if math.isfinite(self.deadline_s) else ""
        return f"{self.policy}{spare}{deadline}"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of a setting.

    Attributes:
        setting: The setting.
        least_share: Least share of the rounds in which a client's update was used, mean over seeds.
        round_s: Length that the wished share of the rounds stayed under, mean over seeds, seconds.
        mean_round_s: Mean length of a round, mean over seeds, seconds.
        updates: Updates that a round used, mean.
        wasted: Share of the chosen clients whose update was not used.
        met: Seeds with which the wish was met.
        num_seeds: Seeds that were played.
    """

    setting: Setting
    least_share: float
    round_s: float
    mean_round_s: float
    updates: float
    wasted: float
    met: int
    num_seeds: int

    @property
    def is_met(self) -> bool:
        """Whether the wish was met with every seed."""
        return self.met == self.num_seeds

    def lack(self, wish: Wish) -> float:
        """By which factor the wish is missed, 0 for not at all: the greater of share and length."""
        share = wish.every_client / max(self.least_share, 1e-12) if wish.every_client else 0.0
        return max(share - 1.0, self.round_s / wish.rounds_under_s - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class Exchanges:
    """One round of a policy, before it is said when it ends.

    Attributes:
        client: Chosen clients, shape (k,).
        time_s: Their exchange times, shape (k,), seconds.
        responds: Whether each would send an update, shape (k,).
    """

    client: IntArray
    time_s: FloatArray
    responds: Any

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
        return end_s, self.client[self.responds & (self.time_s <= end_s)]


class World(Protocol):
    """Where settings are tried: a scenario, or what was fitted to a log."""

    num_clients: int
    cohort_size: int

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        """Play a policy with this many places."""
        ...


class ScenarioWorld:
    """A scenario with one server."""

    def __init__(self, name: str, settings: dict[str, str], *, num_rounds: int) -> None:
        """Make it.

        Raises:
            ConfigurationError: If it has edge servers, or its cohorts have one size only.
        """
        check_integer("rounds", num_rounds, least=10)
        self._environment: AnyEnvironment = make_scenario(name, settings)
        self._num_rounds = num_rounds
        spec = self._environment.spec
        if spec.num_servers != 1 or not any(f.name == "cohort_size" for f in dataclasses.fields(self._environment)):  # type: ignore[arg-type]
            raise ConfigurationError(f"{name} has edge servers; expected a scenario with one server, or a log")
        self.num_clients, self.cohort_size = spec.num_clients, spec.cohort_size

    def rounds(self, policy: str, places: int, seed: int) -> Iterator[Exchanges]:
        """Play a policy."""
        environment: Any = dataclasses.replace(self._environment, cohort_size=places)  # type: ignore[type-var]
        for played in simulate(make_policy(policy), environment, num_rounds=self._num_rounds, seed=seed):
            links = played.selection.links
            outcome = played.outcome
            yield Exchanges(played.context.clients_of(links), outcome.exchange_time_s[links], outcome.responds[links])


def settings_for(world: World, wish: Wish, median_s: float) -> list[Setting]:
    """What is tried: policies with shares from the wished one on, with and without spare places and a deadline.

    Args:
        world: Where.
        wish: What is wanted.
        median_s: Median exchange time, seconds.
    """
    found = []
    for spare in dict.fromkeys(math.ceil(share * world.cohort_size) for share in _SPARE_SHARES):
        most = (world.cohort_size + spare) / world.num_clients
        betas = dict.fromkeys(round(beta, 4) for by in _BETAS if (beta := by * wish.every_client) <= most)
        policies = [f"floor:beta={beta:g}" for beta in betas]
        if betas:
            beta = next(iter(betas))
            policies += [f"rbcs-f:V={weight / median_s:.2g},beta={beta:g}" for weight in _WEIGHTS]
        for policy in (*policies, *_UNLIMITED):
            found += [Setting(policy, spare), Setting(policy, spare, wish.rounds_under_s)]
    return found


def median_time_s(world: World) -> float:
    """Median exchange time of clients that are chosen at random, seconds."""
    times = np.concatenate([played.time_s for played in world.rounds("random", world.cohort_size, 0)])
    return float(np.median(times)) if times.shape[0] else 1.0


def plan(
    world: World,
    wish: Wish,
    *,
    seeds: Sequence[int],
    only: Sequence[str] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> list[Tried]:
    """Try settings, and order them: those that meet the wish first, the shortest mean round before others.

    Args:
        world: Where they are tried.
        wish: What is wanted.
        seeds: Seeds of each trial.
        only: Policies to try in place of the usual ones, as text.
        progress: Called with the number of settings that are done, that of all, and the next one.

    Returns:
        All settings that could be tried.  The first meets the wish, or comes nearest to it.

    Raises:
        ConfigurationError: If no policy that was named can be tried.
    """
    check_number("seeds", float(len(seeds)), least=1.0)
    settings = settings_for(world, wish, median_time_s(world))
    if only:
        ends = dict.fromkeys((each.spare, each.deadline_s) for each in settings)
        settings = [Setting(policy, *end) for end in ends for policy in only]
    played: dict[tuple[str, int], list[list[Exchanges]]] = {}
    tried, why = [], ""
    for number, setting in enumerate(settings):
        progress(number, len(settings), str(setting))
        key = setting.policy, world.cohort_size + setting.spare
        try:
            if key not in played:
                played[key] = [list(world.rounds(*key, seed)) for seed in seeds]
        except InfeasibleError as error:  # this share with this many places
            why = str(error)
            continue
        tried.append(_try(setting, played[key], world, wish))
    if not tried:
        raise ConfigurationError(f"no setting can be tried: {why}")
    return sorted(tried, key=lambda each: (not each.is_met, 0.0 if each.is_met else each.lack(wish), each.mean_round_s))


def _try(setting: Setting, runs: list[list[Exchanges]], world: World, wish: Wish) -> Tried:
    rows = []
    for rounds in runs:
        lengths, used = np.zeros(len(rounds)), np.zeros(world.num_clients)
        for number, played in enumerate(rounds):
            lengths[number], clients = played.end(world.cohort_size, setting.deadline_s)
            used[clients] += 1.0
        under = float(np.quantile(lengths, wish.share, method="inverted_cdf"))
        wasted = 1.0 - used.sum() / max(sum(played.client.shape[0] for played in rounds), 1)
        rows.append((used.min() / len(rounds), under, lengths.mean(), used.sum() / len(rounds), wasted))
    table = np.array(rows)
    met = (table[:, 0] >= wish.every_client) & (table[:, 1] <= wish.rounds_under_s)
    least, under_s, mean_s, updates, wasted = table.mean(axis=0).tolist()
    return Tried(setting, least, under_s, mean_s, updates, wasted, int(met.sum()), len(runs))


def sentence(tried: Sequence[Tried], wish: Wish) -> str:
    """The answer in words."""
    best = tried[0]
    got = (
        f"each client's update is used in at least {best.least_share:.1%} of the rounds, {wish.share:.0%} of the "
        f"rounds end within {best.round_s:.3g} s, and a mean round takes {best.mean_round_s:.3g} s and uses "
        f"{best.updates:.3g} updates; {best.wasted:.0%} of the clients' work is not used"
    )
    if best.is_met:
        return f"{best.setting}: {got}. This held with each of {best.num_seeds} seeds."
    return f"None of the {len(tried)} settings that were tried meets the wish. The nearest is {best.setting}: {got}."
