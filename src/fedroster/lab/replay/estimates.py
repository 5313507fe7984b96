"""What another policy, or other rules, would have made of a log: numbers with intervals, or why there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fedroster.errors import FedrosterError, InvalidInputError
from fedroster.lab.replay.history import History, read_history
from fedroster.lab.replay.modelled import Fit
from fedroster.lab.replay.playing import PlayedRound
from fedroster.lab.statistics import prediction_interval
from fedroster.parts import missing_signals
from fedroster.record import Log
from fedroster.types import AnyPolicy, FloatArray, IntArray, Status

Measure: TypeAlias = Literal["mean_round_time_s", "min_participation_rate", "deadline_misses"]
MEASURES: tuple[Measure, ...] = ("mean_round_time_s", "min_participation_rate", "deadline_misses")

DRAWS = 19
"""Worlds in which each policy plays."""

_T = 1.7341 * math.sqrt(1.0 + 1.0 / DRAWS)
"""Half of a 90 % prediction interval, in standard deviations of this many draws: Student's t, 18 degrees of freedom."""

_WIDER = 1.25  # of intervals of mean times: see _time
_SELDOM = 0.25  # of the times that a client would have if the log had measured all members equally


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number, or why there is none.

    Attributes:
        policy: The policy, as it was named.
        kind: "logged": what the log itself tells of its own policy; "modelled": by worlds that are fitted to the log.
        measure: Mean time of a round with a cohort, seconds; least share of the rounds in which a client was chosen;
            chosen clients whose update was late or never came.
        estimate: What the policy would have realised in the log's rounds; NaN if refused.
        low: Lower end of the 90 % interval; of what is logged, the number itself.
        high: Upper end.
        rounds: Rounds of the log.
        refused: Why there is no estimate; None if there is one.
        lacks: What the policy learns from that a replay does not have, in words; empty for nothing.
    """

    policy: str
    kind: Literal["logged", "modelled"]
    measure: Measure
    estimate: float
    low: float
    high: float
    rounds: int
    refused: str | None = None
    lacks: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """Why there is no estimate, or from which signals the policy could not learn; empty for nothing to say."""
        if self.refused is not None:
            return self.refused
        lacks = " and ".join(self.lacks)
        return lacks and f"it learns from {lacks}, and a replay of this log has none"


def replay(log: Log | History, policies: Mapping[str, AnyPolicy], *, seed: int = 0) -> list[Estimate]:
    """Estimate what policies that start from nothing would have done in a log's rounds (docs/explanation/replay.md).

    They play through a selector, under the log's rules, guard and pauses.  The log's own numbers come first.

    Args:
        log: The log of a federation with one server, or of a simulation.
        policies: By the names that the estimates will bear.
        seed: Of all draws.

    A log to which nothing can be fitted gives estimates that are all refused.

    Raises:
        InvalidInputError: If the log has no rounds, or none with a member.
    """
    history = log if isinstance(log, History) else read_history(log)
    found = _logged(history)
    try:
        fit = Fit(history, draws=DRAWS, seed=seed)
    except InvalidInputError as error:
        return found + [row for name in policies for row in _all_refused(name, history.num_rounds, str(error))]
    for name, policy in policies.items():
        found += _estimates(fit, name, policy)
    return found


def _counted(rounds: Sequence[PlayedRound], num_clients: int) -> tuple[float, IntArray, int]:
    """What came of a policy: mean time of a round with a cohort, choices of each client, misses."""
    chosen, status = (np.concatenate([getattr(one, name) for one in rounds]) for name in ("chosen", "status"))
    lasted_s = [one.length_s for one in rounds if one.chosen.shape[0]]
    missed = int(np.count_nonzero(status != Status.COMPLETED))
    return float(np.mean(lasted_s or [math.nan])), np.bincount(chosen, minlength=num_clients), missed


def _logged(history: History) -> list[Estimate]:
    """What the log tells of itself."""
    round_s, chosen, missed = _counted(history.played, history.num_clients)
    least = float(chosen[history.members.any(axis=0)].min()) / history.num_rounds
    return [
        Estimate(history.policy, "logged", measure, value, value, value, history.num_rounds)
        for measure, value in zip(MEASURES, (round_s, least, float(missed)), strict=True)
    ]


def _all_refused(name: str, rounds: int, reason: str) -> list[Estimate]:
    nothing = math.nan, math.nan, math.nan, rounds, reason
    return [Estimate(name, "modelled", measure, *nothing) for measure in MEASURES]


def _estimates(fit: Fit, name: str, policy: AnyPolicy) -> list[Estimate]:
    history = fit.history
    try:
        played = [fit.play(policy, number) for number in range(DRAWS)]
        fit.check_reach(played)
    except FedrosterError as error:
        return _all_refused(name, history.num_rounds, str(error))
    round_s, chosen, missed = map(np.array, zip(*(_counted(one, history.num_clients) for one in played), strict=True))
    logged = int(np.count_nonzero(history.status != Status.COMPLETED))
    values = _time(fit, round_s, chosen), _rate(history, chosen), _count(missed, logged)
    deadline = bool(np.isfinite(history.deadline_s).any())
    lacks = missing_signals(policy, losses=False, contexts=history.num_features > 0, deadline=deadline)
    return [
        Estimate(name, "modelled", measure, *numbers, history.num_rounds, None, lacks)
        for measure, numbers in zip(MEASURES, values, strict=True)
    ]


def _time(fit: Fit, round_s: FloatArray, chosen: IntArray) -> tuple[float, float, float]:
    """On a log scale; half of what the worlds were off for the log's rounds, which is taken off, widens the interval.

    A policy that learns measures a client again if it looked fast: such times err more often by much than as many
    independent ones.  So the interval is 1 + 2 s times as wide, s the share of the choices that rests on clients seldom
    measured, and a quarter wider at all for what the model does not know (both found with some logs, shown with others:
    docs/explanation/replay.md).
    """
    values = np.log(np.maximum(np.nan_to_num(round_s), 1e-12))
    middle = float(values.mean())
    half = _T * math.hypot(float(values.std(ddof=1)), 0.5 * fit.wrong)
    seldom = fit.measured < _SELDOM * fit.measured.sum() / np.count_nonzero(fit.history.members.any(axis=0))
    usual = chosen.mean(axis=0)
    half *= _WIDER * (1.0 + 2.0 * float(usual[seldom].sum()) / max(float(usual.sum()), 1.0))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _rate(history: History, chosen: IntArray) -> tuple[float, float, float]:
    least = chosen[:, history.members.any(axis=0)].min(axis=1).astype(np.float64)
    middle, half = float(least.mean()), _T * float(least.std(ddof=1))
    low = max(math.ceil(middle - half - 0.5), 0)
    high = min(math.floor(middle + half + 0.5), history.num_rounds)
    return float(np.median(least)) / history.num_rounds, low / history.num_rounds, high / history.num_rounds


def _count(values: FloatArray, logged: int) -> tuple[float, float, float]:
    """On the scale of square roots, where counts scatter alike; ends are whole numbers.

    The farther from what the log saw, the more rests on the model: half of the distance widens the interval.  Misses
    come in bunches, too, which the model does not know: a fifth more.
    """
    root = np.sqrt(values + 0.375)
    middle = float(root.mean())
    away = 0.5 * (middle - math.sqrt(logged + 0.375)) if logged else 0.0
    half = 1.2 * _T * math.hypot(float(root.std(ddof=1)), away)
    estimate = float(values.mean())
    low, high = max(middle - half, 0.0) ** 2 - 0.375, (middle + half) ** 2 - 0.375
    least = min(math.ceil(low - 0.5), math.floor(estimate))
    most = max(math.floor(high + 0.5), math.ceil(estimate))
    return estimate, float(max(least, 0)), float(most)


# -------------------------------------------------------------------- other rules

_WORLDS = 10


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a policy makes of a log's rounds under some rules; means over drawn worlds.

    Attributes:
        of: Which policy and rules, in words.
        mean_round_s: Mean length of a round with a cohort, seconds.
        not_begun: Share of the rounds that could not begin.
        least_rate: Least share of the rounds in which a client took part, of those that ever did.
        longest_wait_s: Longest time from one participation of a client to its next, or to the end, seconds.
        slower: Mean length over that under the log's own rules in the same world, less 1; NaN for the log itself.
        slower_ends: Its 90 % interval.
    """

    of: str
    mean_round_s: float
    not_begun: float
    least_rate: float
    longest_wait_s: float
    slower: float = math.nan
    slower_ends: tuple[float, float] = (math.nan, math.nan)


def dry_run(history: History, policy: AnyPolicy, rules: Mapping[str, Any]) -> list[DryRun]:
    """What other rules do to a log: the log itself, its rules and the others, each played by the same policy."""
    fit = Fit(history, draws=_WORLDS, seed=0)
    found = [DryRun("the log itself", *_numbers(history.played).tolist())]
    means = []
    for of, each in (("the log's rules, played", None), ("these rules, played", rules)):
        played = [fit.play(policy, number, rules=each) for number in range(len(fit.worlds))]
        fit.check_reach(played)
        table = np.array([_numbers(one) for one in played])
        means.append(table[:, 0])
        ratio = means[-1] / means[0]
        low, high = (np.exp(prediction_interval(np.log(ratio))) - 1.0).tolist()
        mean_s, not_begun, least, wait_s = table.mean(axis=0).tolist()
        found.append(DryRun(of, mean_s, not_begun, least, wait_s, float(ratio.mean()) - 1.0, (low, high)))
    return found


def _numbers(rounds: Sequence[PlayedRound]) -> FloatArray:
    """Of a run, what a dry run tells: mean length, share that did not begin, least share, longest wait."""
    mean_s = np.mean([one.length_s for one in rounds if one.chosen.shape[0]] or [math.nan])
    client = np.concatenate([one.chosen for one in rounds])
    at_s = np.repeat([one.at_s for one in rounds], [one.chosen.shape[0] for one in rounds])
    least = 1.0
    longest_s = 0.0
    end_s = rounds[-1].at_s + rounds[-1].length_s
    for each in np.unique(client):
        times_s = np.append(np.sort(at_s[client == each]), end_s)
        longest_s = max(longest_s, float(np.diff(times_s).max()))
        least = min(least, (times_s.shape[0] - 1) / len(rounds))
    return np.array([mean_s, 1.0 - np.mean([one.begun for one in rounds]), least, longest_s])
