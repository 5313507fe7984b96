"""What another policy would have done in a log's rounds: numbers with intervals, or why there are none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fedroster.errors import FedrosterError, InvalidInputError
from fedroster.lab.replay.history import History, read_history
from fedroster.lab.replay.modelled import Fit, Played
from fedroster.record import Log
from fedroster.types import AnyPolicy, FloatArray, ProblemSpec

Measure: TypeAlias = Literal["mean_round_time_s", "min_participation_rate", "deadline_misses"]
MEASURES: tuple[Measure, ...] = ("mean_round_time_s", "min_participation_rate", "deadline_misses")

DRAWS = 19
"""Worlds in which each policy plays."""

_T = 1.7341 * math.sqrt(1.0 + 1.0 / DRAWS)
"""Half of a 90 % prediction interval, in standard deviations of this many draws: Student's t, 18 degrees of freedom."""

_SELDOM = 0.25  # of the times that a client would have if the log had measured all members equally
_MOST_BEYOND = 0.1  # share of rounds after the log's end
_MOST_UNKNOWN = 0.2  # share of a policy's cohorts of whose times the log knows nothing
_MOST_WRONG = 0.15  # logarithm of what the fitted worlds make of the log's own rounds over what these took


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number, or why there is none.

    Attributes:
        policy: The policy, as it was named.
        kind: "modelled": by worlds that are fitted to the log.
        measure: Mean time of a round, seconds; least share of the rounds in which a client was chosen; chosen clients
            whose update was late or never came.
        estimate: What the policy would have realised in the log's rounds; NaN if refused.
        low: Lower end of the 90 % interval.
        high: Upper end.
        rounds: Rounds of the log.
        effective_sample_size: Exchanges of the log that count for it; NaN if refused.
        refused: Why there is no estimate; None if there is one.
    """

    policy: str
    kind: Literal["modelled"]
    measure: Measure
    estimate: float
    low: float
    high: float
    rounds: int
    effective_sample_size: float
    refused: str | None = None


def replay(log: Log | History, policies: Mapping[str, AnyPolicy], *, seed: int = 0) -> list[Estimate]:
    """Estimate what policies that start from nothing would have done in a log's rounds (docs/explanation/replay.md).

    Args:
        log: The log of a federation with one server, or of a simulation.
        policies: By the names that the estimates will bear.
        seed: Of all draws.

    A log to which nothing can be fitted gives estimates that are all refused.
    """
    found: list[Estimate] = []
    try:
        fit = Fit(log if isinstance(log, History) else history_of(log), draws=DRAWS, seed=seed)
    except InvalidInputError as error:
        rounds = log.num_rounds if isinstance(log, History) else len(log.rounds)
        for name in policies:
            found += _all_refused(name, rounds, str(error))
        return found
    for name, policy in policies.items():
        found += _estimates(fit, name, policy)
    return found


def history_of(log: Log) -> History:
    """Read a log into memory."""
    if log.header.num_servers != 1 or log.header.kind == "edge-selector":
        raise InvalidInputError(
            f"the log is of a federation with {log.header.num_servers} servers; a replay knows one server only"
        )
    return read_history(log.rounds, num_clients=len(log.ids))


def _all_refused(name: str, rounds: int, reason: str) -> list[Estimate]:
    nothing = math.nan, math.nan, math.nan, rounds, math.nan, reason
    return [Estimate(name, "modelled", measure, *nothing) for measure in MEASURES]


def _estimates(fit: Fit, name: str, policy: AnyPolicy) -> list[Estimate]:
    history = fit.history
    rounds = history.num_rounds
    try:
        reason = "" if not policy.omniscient else f"{type(policy).__name__} knows true times, which no log has"
        if not reason:
            policy.check(ProblemSpec(history.num_clients, int(history.places.min()), max(history.num_features, 1)))
    except FedrosterError as error:
        reason = str(error)
    if reason:
        return _all_refused(name, rounds, reason)
    played = [fit.play(policy, number) for number in range(DRAWS)]
    beyond, unknown = (float(np.mean([getattr(one, what) for one in played])) for what in ("beyond", "unknown"))
    reason = too_far(beyond, unknown) or too_wrong(fit)
    if reason:
        return _all_refused(name, rounds, reason)
    size = _informed_by(fit, played)
    values = {
        "mean_round_time_s": _time(fit, played),
        "min_participation_rate": _rate(history, played),
        "deadline_misses": _count(np.array([float(one.missed) for one in played]), int(history.missed.sum())),
    }
    return [Estimate(name, "modelled", measure, *values[measure], rounds, size) for measure in MEASURES]


def too_far(beyond: float, unknown: float) -> str:
    """Why a log says nothing about a policy; empty if it does.

    Args:
        beyond: Share of the policy's rounds that lie after the log's end.
        unknown: Share of the clients that it chooses that the log never measured.
    """
    if beyond > _MOST_BEYOND:
        return (
            f"{beyond:.0%} of its rounds would begin after the log's end, where the available clients are unknown; "
            "a longer log is needed"
        )
    if unknown > _MOST_UNKNOWN:
        return f"{unknown:.0%} of the clients that it chooses were never measured in the log"
    return ""


def too_wrong(fit: Fit) -> str:
    """Why worlds that are fitted to a log say nothing about any policy; empty if they do."""
    if abs(fit.wrong) > max(_MOST_WRONG, 4.0 * fit.wrong_by_chance):
        return (
            f"worlds that are fitted to the log take {math.exp(fit.wrong):.2f} times as long for its own rounds: "
            "times there do not follow the model"
        )
    return ""


def _time(fit: Fit, played: list[Played]) -> tuple[float, float, float]:
    """On a log scale; half of what the worlds are off for the log's rounds is taken off, and widens the interval.

    A policy that learns measures a client again if it looked fast: such times err more often by much than as many
    independent ones.  So the interval is 1 + 2 s times as wide, s the share of the choices that rests on clients seldom
    measured (found with logs of seeds 0 to 11, shown with others: docs/explanation/replay.md).
    """
    values = np.log(np.maximum([one.round_s.mean() for one in played], 1e-12))
    middle = float(values.mean()) - 0.5 * fit.wrong
    half = _T * math.hypot(float(values.std(ddof=1)), 0.5 * fit.wrong)
    seldom = fit.measured < _SELDOM * fit.measured.sum() / np.count_nonzero(fit.history.members.any(axis=0))
    chosen = np.mean([one.chosen for one in played], axis=0)
    half *= 1.0 + 2.0 * float(chosen[seldom].sum()) / max(float(chosen.sum()), 1.0)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def _rate(history: History, played: list[Played]) -> tuple[float, float, float]:
    ever = history.members.any(axis=0)
    least = np.array([float(one.chosen[ever].min()) for one in played])
    middle, half = float(least.mean()), _T * float(least.std(ddof=1))
    low, high = max(math.ceil(middle - half - 0.5), 0), min(math.floor(middle + half + 0.5), history.num_rounds)
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
    least, most = min(math.ceil(low - 0.5), math.floor(estimate)), max(math.floor(high + 0.5), math.ceil(estimate))
    return estimate, float(max(least, 0)), float(most)


def _informed_by(fit: Fit, played: list[Played]) -> float:
    r"""How many measured times of the log tell of the policy's cohorts: :math:`(\sum_n w_n)^2 / \sum_n w_n^2 / k_n`.

    w is how often the policy chooses a client, k how often the log measured it.
    """
    weight = np.mean([one.chosen for one in played], axis=0)
    return float(weight.sum() ** 2 / max(float((weight**2 / np.maximum(fit.measured, 0.5)).sum()), 1e-300))
