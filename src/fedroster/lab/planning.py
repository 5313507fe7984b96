"""From a wish to parameters: which policy, share, deadline and spare places give what an operator wants."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fedroster.catalogue import find_scenario, make_policy, make_scenario
from fedroster.errors import ConfigurationError, InfeasibleError, InvalidInputError
from fedroster.lab.replay.history import History
from fedroster.lab.replay.modelled import Fit
from fedroster.lab.replay.playing import Exchanges, Late, PlayedRound, RoundEnd, RoundStart, play
from fedroster.lab.statistics import Interval, prediction_interval, signed, spread_of_one_more
from fedroster.parts import Parameters, Positive, Share, check_integer
from fedroster.types import AnyEnvironment, FloatArray, IntArray, Selection, Status, Streams

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

_SURE = 0.9  # share of the runs in which a wish is met that counts as met

SCREENED = 3
"""Trials in which every setting is tried before the best are confirmed in others."""

_ROUNDING = 1.0 + 1e-9
_MOST_CONFIRMED = 6  # settings that are played in the trials that count


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
        least_share: Least share of the rounds of its membership in which a client's update was used; ends of intervals
            are NaN for a single trial.
        round_s: Length that the wished share of the rounds stayed under, seconds.
        mean_round_s: Mean length of a round, seconds.
        updates: Updates that a round used.
        wasted: Share of the chosen clients whose update was not used.
        met: Trials in which the wish was met.
        chance: Probability that a further run meets it, by Student's t; NaN where nothing was confirmed.
    """

    setting: Setting
    least_share: Interval
    round_s: Interval
    mean_round_s: Interval
    updates: float
    wasted: float
    met: int
    num_seeds: int
    chance: float = math.nan

    @property
    def is_met(self) -> bool:
        """Whether nine of ten trials met the wish that had no say in the choice, and nine of ten further runs will."""
        return self.chance >= _SURE and self.met >= _SURE * self.num_seeds

    def room(self, wish: Wish) -> float:
        """By which share the wish is exceeded, negative where it is missed: the lesser of share and length."""
        share = self.least_share.mean / wish.every_client - 1.0 if wish.every_client else math.inf
        return min(share, _ROUNDING - self.round_s.mean / wish.rounds_under_s)


@dataclass(frozen=True, slots=True)
class Plan:
    """What was tried for a wish.

    Attributes:
        tried: Settings and what came of them, at least one: the first meets the wish, or comes nearest to it.
        refused: Why settings could not be tried, by setting.
        logged: What the log itself tells, of its own policy; None in a scenario.
        trials: What the trials of a setting are, in words.
        remark: What else is to be known of the numbers; may be empty.
    """

    tried: Sequence[Tried]
    refused: Mapping[str, str]
    logged: Tried | None
    trials: str
    remark: str


class ScenarioWorld:
    """A scenario with one server; its trials are runs with other seeds.

    Attributes:
        num_clients: Number of clients.
        cohort_size: Updates that a round needs.
        overhead_s: What rounds take beyond their exchanges, seconds, >= 0: deadlines leave room for it.
        doubt: Standard deviation of the logarithm of all times that no trial shows, >= 0.
        trials, remark: As of a :class:`Plan`.
    """

    overhead_s, doubt, trials, remark = 0.0, 0.0, "seeds", ""

    def __init__(
        self, name: str, settings: dict[str, str], *, rounds: int, rules: Mapping[str, Any] | None = None
    ) -> None:
        """Make it, with rules as a table; ConfigurationError if it has edge servers, or cohorts of one size only."""
        check_integer("rounds", rounds, least=10)
        self._environment: AnyEnvironment = make_scenario(name, settings)
        self._rounds, self._rules = rounds, rules or {}
        spec = self._environment.spec
        if spec.num_servers != 1 or "cohort_size" not in find_scenario(name).parameters():
            raise ConfigurationError(f"{name} has edge servers or no cohort_size; expected one server, or a log")
        self.num_clients, self.cohort_size = spec.num_clients, spec.cohort_size

    def play(self, policy: str, spare: int, seed: int, ending: RoundEnd) -> list[PlayedRound]:
        """Play a policy."""
        size = self.cohort_size + spare
        environment: Any = replace(self._environment, cohort_size=size)  # type: ignore[type-var]
        world = _Unfolded(environment, self._rounds, self._rules, seed)
        return play(make_policy(policy), world, cohort_size=size, options={}, seed=seed, ending=ending)

    def logged(self, wish: Wish) -> None:
        """A scenario has no log."""


class _Unfolded:
    """A network as it unfolds before a policy."""

    def __init__(self, network: AnyEnvironment, rounds: int, rules: Mapping[str, Any], seed: int) -> None:
        self.ids = range(network.spec.num_clients)
        self._network = network
        self._rounds = rounds
        self._rules = rules
        self._streams = Streams(seed)
        self._state = network.init(rng=self._streams.at("environment-init"))
        self._number, self._now_s = 0, 0.0

    def look(self) -> RoundStart | None:
        """Begin the next round."""
        self._number += 1
        if self._number > self._rounds:
            return None
        rng = self._streams.at("environment", self._number)
        self._context, self._outcome = self._network.observe(self._state, self._number, rng=rng)
        context = self._context
        members = np.ones(len(self.ids), np.bool_) if context.members is None else context.members
        at_s = float(getattr(self._state, "time_s", self._now_s))
        return RoundStart(at_s, members, context.available & members, context.features, self._rules)

    def exchange(self, chosen: IntArray) -> Exchanges:
        """What becomes of the cohort."""
        outcome = self._outcome
        return Exchanges(outcome.exchange_time_s[chosen], outcome.responds[chosen], float(outcome.deadline_s))

    def end(self, chosen: IntArray, length_s: float) -> None:
        """End the round."""
        self._now_s += length_s
        self._state = self._network.advance(self._state, self._context, Selection(self._number, np.sort(chosen)))


class LogWorld:
    """What the log of a federation leaves possible; its trials are worlds that are drawn from that.

    Policies play the log's rounds: as many, under its rules, with who was there and the contexts that were
    (:mod:`fedroster.lab.replay`).
    """

    def __init__(self, history: History, *, num_worlds: int, rules: Mapping[str, Any] | None = None) -> None:
        """Fit so many worlds, >= 2, that are asked for by the numbers from 0 on; rules, if any, replace the log's.

        Raises:
            InvalidInputError: If a replay of the log is refused: it has several servers, too few times, or others than
                the model can follow.
        """
        check_integer("worlds", num_worlds, least=2)
        self.fit = fit = Fit(history, draws=num_worlds, seed=0)
        self._rules = rules
        self.num_clients, self.cohort_size = history.num_clients, history.cohort_size
        self.doubt = abs(0.5 * fit.wrong)
        overheads = np.concatenate([world.waits.overhead_s for world in fit.worlds])
        self.overhead_s = max(float(np.quantile(overheads, _OVERHEAD)), 0.0) if overheads.shape[0] else 0.0
        self.trials = "worlds that the log leaves possible"
        longer = signed(math.exp(fit.wrong) - 1.0, ".1%")
        self.remark = (
            f"The log has {history.num_rounds} rounds. The fitted worlds make them {longer} longer than "
            "they were: half of that is taken off, and is in the intervals."
        )
        if unknown := int(np.count_nonzero(fit.measured == 0)):
            self.remark += f" {unknown} of {self.num_clients} clients were never measured, and are taken to be usual."

    def play(self, policy: str, spare: int, seed: int, ending: RoundEnd) -> list[PlayedRound]:
        """Play a policy in the world of that number."""
        rounds = self.fit.play(make_policy(policy), seed, spare=spare, ending=ending, rules=self._rules)
        self.fit.check_reach([rounds])
        return rounds

    def logged(self, wish: Wish) -> Tried:
        """What the log tells of itself."""
        return judged(self, wish, Setting(self.fit.history.policy), [self.fit.history.played])


World: TypeAlias = ScenarioWorld | LogWorld
"""Where settings are tried."""


def settings_for(world: World, wish: Wish, median_s: float) -> list[Setting]:
    """What is tried: policies with shares from the wished one on, with and without spare places and a deadline."""
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
        for played in world.play("random", 0, 0, RoundEnd()):
            times += played.exchanges.time_s.tolist()
    return float(np.median(times)) if times else 1.0


def plan(
    world: World,
    wish: Wish,
    *,
    seeds: Sequence[int],
    late: Late = "told",
    only: Sequence[str] = (),
    progress: Callable[[int, int, str], None] = lambda done, total, words: None,
) -> Plan:
    """Try settings, and confirm the best of them in trials that had no say in which these are.

    Every setting is screened in :data:`SCREENED` trials with other numbers than ``seeds``.  There, a policy learns all
    times, whatever the deadline: one run serves several settings.  The shortest mean round that meets the wish is then
    played in the trials that count, with all that its setting says; if it does not hold, the next one that has more
    room.

    Args:
        world: Where they are tried.
        wish: What is wanted.
        seeds: Seeds of the trials that count; numbers of worlds that a log leaves possible.
        late: What the selector is told of clients that a round did not wait for.
        only: Policies to try in place of the usual ones, as text.
        progress: Called with the number of settings that are done, that of all, and the next one.

    Raises:
        ConfigurationError: If no setting can be tried.
    """
    check_integer("seeds", len(seeds), least=1)
    settings = settings_for(world, wish, median_time_s(world))
    if only:
        ends = dict.fromkeys((each.spare, each.deadline_s) for each in settings)
        settings = [Setting(policy, *end) for end in ends for policy in only]
    played: dict[tuple[str, int], list[list[PlayedRound]]] = {}
    screened = []
    refused = {}
    total = len(settings) + _MOST_CONFIRMED
    for number, setting in enumerate(settings):
        progress(number, total, str(setting))
        key = (setting.policy, setting.spare)
        ending = RoundEnd(world.cohort_size, setting.deadline_s)
        try:
            if key not in played:
                free, first = RoundEnd(world.cohort_size, math.inf), max(seeds) + 1
                played[key] = [world.play(*key, first + each, free) for each in range(SCREENED)]
        except (InfeasibleError, InvalidInputError) as error:  # this share with so many places; this policy in this log
            refused[str(setting)] = str(error)
            continue
        screened.append(judged(world, wish, setting, played[key], ending=ending))
    if not screened:
        raise ConfigurationError(f"no setting can be tried: {next(reversed(refused.values()), 'no setting is left')}")
    screened.sort(key=lambda each: (-min(each.room(wish), 0.0), each.mean_round_s.mean))
    confirmed: list[Tried] = []
    room, rest = -math.inf, []
    for each in screened:
        if len(confirmed) == _MOST_CONFIRMED or each.room(wish) <= room or any(one.is_met for one in confirmed):
            rest.append(each)
            continue
        progress(len(settings) + len(confirmed), total, str(each.setting))
        confirmed.append(_confirmed(world, wish, each.setting, seeds, late))
        room = each.room(wish)
    confirmed.sort(key=lambda each: (not each.is_met, -each.met, -each.room(wish)))
    return Plan([*confirmed, *rest], refused, world.logged(wish), world.trials, world.remark)


def _confirmed(world: World, wish: Wish, setting: Setting, seeds: Sequence[int], late: Late) -> Tried:
    """Play a setting as it is in the trials that count."""
    ending = RoundEnd(world.cohort_size, setting.deadline_s, late)
    runs = [world.play(setting.policy, setting.spare, seed, ending) for seed in seeds]
    table = np.array([_numbers(run, world.num_clients, wish, None) for run in runs])
    misses = wish.every_client and _tail(-table[:, 0], -wish.every_client, 0.0)  # no share is below 0
    if not table[:, 1].max() / _ROUNDING <= setting.deadline_s + world.overhead_s <= wish.rounds_under_s * _ROUNDING:
        misses += _tail(np.log(table[:, 1]), math.log(wish.rounds_under_s), world.doubt)
    return replace(judged(world, wish, setting, runs), chance=1.0 - min(misses, 1.0))


def _tail(values: FloatArray, limit: float, known: float) -> float:
    """Probability that one more value like these is above a limit: Student's t; ``known`` is what they do not show."""
    from scipy.special import stdtr

    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    spread = spread_of_one_more(values, known)
    beyond = float(values.mean()) - limit
    if spread < 1e-12:
        return float(beyond > 1e-12)
    return float(stdtr(len(values) - 1, beyond / spread))


def judged(
    world: World, wish: Wish, setting: Setting, runs: Sequence[Sequence[PlayedRound]], *, ending: RoundEnd | None = None
) -> Tried:
    """What came of a setting in some runs; as if their rounds had ended otherwise, if ``ending`` is given."""
    table = np.array([_numbers(run, world.num_clients, wish, ending) for run in runs])
    met = (table[:, 0] >= wish.every_client) & (table[:, 1] <= wish.rounds_under_s * _ROUNDING)
    least, under, mean_s, updates, wasted = table.mean(axis=0).tolist()
    under_ends, mean_ends = (_of_logs(table[:, column], world.doubt) for column in (1, 2))
    longest_s = setting.deadline_s + world.overhead_s
    if table[:, 1].max() / _ROUNDING <= longest_s:  # no round waits longer
        under_ends = under_ends[0], min(under_ends[1], longest_s)
    return Tried(
        setting,
        Interval(least, *np.clip(prediction_interval(table[:, 0]), 0.0, 1.0).tolist()),
        Interval(under, *under_ends),
        Interval(mean_s, *mean_ends),
        updates,
        wasted,
        int(met.sum()),
        len(runs),
    )


def _numbers(rounds: Sequence[PlayedRound], num_clients: int, wish: Wish, ending: RoundEnd | None) -> tuple[float, ...]:
    """Of a run: least share, length that the wished share of the rounds stays under, mean length, updates, waste.

    A round without a cohort has no length.
    """
    lengths = []
    used = np.zeros(num_clients)
    member = np.zeros(num_clients)
    chosen = 0
    for one in rounds:
        length_s, status = (one.length_s, one.status) if ending is None else one.exchanges.end(ending)
        used[one.chosen[status == Status.COMPLETED]] += 1.0
        member += one.members
        chosen += one.chosen.shape[0]
        if one.chosen.shape[0]:
            lengths.append(length_s)
    counted = member >= min(_LEAST_ROUNDS, len(rounds))
    least = float((used[counted] / member[counted]).min()) if counted.any() else 0.0
    under = float(np.quantile(lengths or [math.inf], wish.share, method="inverted_cdf"))
    wasted = 1.0 - float(used.sum()) / max(chosen, 1)
    return least, under, float(np.mean(lengths or [math.inf])), float(used.sum()) / len(rounds), wasted


def _of_logs(values: FloatArray, doubt: float) -> tuple[float, float]:
    """Interval on a log scale."""
    if not np.isfinite(values).all():
        return math.nan, math.nan
    low, high = np.exp(prediction_interval(np.log(np.maximum(values, 1e-12)), known=doubt)).tolist()
    return low, high


def sentence(found: Plan) -> str:
    """The answer in words."""
    best = found.tried[0]
    held = f"{best.met} of {best.num_seeds} {found.trials} that had no say in the choice"
    if not math.isnan(best.chance):
        held += f"; a further run meets it with a probability of about {best.chance:.0%}"
    if best.is_met:
        answer = f"{best.setting} meets the wish. This held in {held}."
    else:
        tried = f"None of the {len(found.tried)} settings that were tried meets the wish in nine of ten {found.trials}"
        answer = f"{tried}. The nearest is {best.setting}, which met it in {held}."
    return f"{answer} {found.remark}".strip()
