"""Worlds that are drawn from a log, and unfold before a policy that plays there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedroster.errors import InvalidInputError
from fedroster.lab.replay.answers import Answers, Leaves, Pace, Waits, draw_answers, expected, read_waits
from fedroster.lab.replay.history import History
from fedroster.lab.replay.playing import Exchanges, PlayedRound, RoundEnd, RoundStart, play
from fedroster.lab.replay.times import Times, draw_times
from fedroster.types import AnyPolicy, BoolArray, FloatArray, IntArray, Streams

_MOST_UNKNOWN = 0.2  # share of a policy's cohorts of whose times the log knows nothing
_LEAST_TIMES = 50  # measured times without which nothing is fitted
_MOST_WRONG = 0.15  # logarithm of what the fitted worlds make of the log's own rounds over what these took
_SHORTEST_S = 1e-9
_TWO_HUMPS = 0.7  # Sarle's coefficient: 5/9 for even or exponential scatter, less for bells, 1 for two values


@dataclass(frozen=True, slots=True)
class WorldDraw:
    """One draw of the world of a log."""

    times: Times
    answers: Answers
    waits: Waits


class Fit:
    """What is fitted to a log once, for all policies.

    Attributes:
        measured: Measured times of each client, shape (clients,).
        wrong: Logarithm of what the worlds make of the log's own rounds over what these took: half of it is taken off
            all exchange times that are drawn.
    """

    def __init__(self, history: History, *, draws: int, seed: int) -> None:
        """Fit; InvalidInputError if the log cannot be played, has few times, or has times unlike the model's."""
        if history.flaw:
            raise InvalidInputError(history.flaw)
        measured = int(history.timed.sum())
        if measured < _LEAST_TIMES:
            raise InvalidInputError(f"the log has {measured} measured times; expected at least {_LEAST_TIMES}")
        self.history, self.seed = history, seed
        self.leaves = Leaves(history)
        self.worlds: list[WorldDraw] = []
        streams = Streams(seed)
        for number, times in enumerate(draw_times(history, draws, rng=streams.at("replay-times"))):
            rng = streams.at("replay-answers", number)
            answers = draw_answers(history, times, self.leaves, rng=rng)
            self.worlds.append(WorldDraw(times, answers, read_waits(history, expected(history, times))))
        self.pace = Pace(history)
        self.features, self.cold = self._contexts()
        self.at = np.full(history.available.shape, -1, np.int64)  # the exchange of each client and round
        self.at[history.round, history.client] = np.arange(history.round.shape[0])
        self.measured = np.bincount(history.client[history.timed], minlength=history.num_clients)
        again = np.log([self.logged_again(number) for number in range(draws)])
        self.wrong = float(again.mean() - np.log(max(float(history.lasted_s.mean()), 1e-12)))
        self._refuse(float(again.std(ddof=1)))

    def _refuse(self, by_chance: float) -> None:
        """Refuse times that the model does not follow; ``by_chance`` is how far ``wrong`` scatters."""
        if abs(self.wrong) > max(_MOST_WRONG, 4.0 * by_chance):
            raise InvalidInputError(
                f"worlds that are fitted to the log take {math.exp(self.wrong):.2f} times as long for its own rounds: "
                "times there do not follow the model"
            )
        humps = float(np.mean([_humps(world.times.ratios) for world in self.worlds]))
        if humps > _TWO_HUMPS:
            raise InvalidInputError(
                f"times scatter about two values, not one (coefficient of bimodality {humps:.2f}; expected at most "
                f"{_TWO_HUMPS}): from such logs, few intervals would hold what they should"
            )

    def _contexts(self) -> tuple[FloatArray, dict[int, tuple[float, float]]]:
        """Contexts without gaps, and the columns that only say which clients took part in the round before."""
        history = self.history
        features = history.features.copy()
        known: BoolArray = np.asarray(np.isfinite(features).all(axis=2))
        before = history.chosen[:-1][known[1:]]
        cold: dict[int, tuple[float, float]] = {}
        for column in range(history.num_features):
            values = features[:, :, column]
            logged = values[1:][known[1:]]
            warm, rest = logged[before], logged[~before]
            if warm.size and rest.size and warm[0] != rest[0] and np.ptp(warm) == np.ptp(rest) == 0.0:
                cold[column] = float(warm[0]), float(rest[0])
            if (gaps := np.isnan(values)).any():
                values[gaps] = np.nan_to_num(np.nanmean(values))
        return features, cold

    def play(
        self,
        policy: AnyPolicy,
        number: int,
        *,
        spare: int = 0,
        ending: RoundEnd | None = None,
        rules: Mapping[str, Any] | None = None,
    ) -> list[PlayedRound]:
        """Let a policy that knows nothing yet play the log's rounds in the drawn world of that number.

        There are ``spare`` places beyond those of the log's rounds; rounds end, and rules are, as in the log, unless
        others are given.  The length of rounds is told if the log's selector was told it.
        """
        world = Drawn(self, number, rules)
        size = self.history.cohort_size + spare
        ending = replace(ending or RoundEnd(), tells_length=bool(np.isfinite(self.history.round_s).any()))
        return play(policy, world, cohort_size=size, options=self.history.options, seed=number, ending=ending)

    def check_reach(self, runs: Sequence[Sequence[PlayedRound]]) -> None:
        """Refuse a policy of which the log says too little: it chooses too many clients that were never measured."""
        chosen = np.concatenate([one.chosen for run in runs for one in run])
        unknown = float(np.mean(self.measured[chosen] == 0)) if chosen.shape[0] else 0.0
        if unknown > _MOST_UNKNOWN:
            raise InvalidInputError(f"{unknown:.0%} of the clients that it chooses were never measured in the log")

    def logged_again(self, number: int) -> float:
        """Mean time of the log's own rounds with its own cohorts in a drawn world, scatter drawn again, seconds."""
        history, world = self.history, self.worlds[number]
        rng = Streams(self.seed).at("replay-check", number)
        ratio = world.times.scatter(history.client, rng.random(history.client.shape))
        time_s = expected(history, world.times) * ratio
        if not np.isnan(world.waits.lost_s):
            time_s = np.where(history.lost, world.waits.lost_s, time_s)
        longest = np.zeros(history.num_rounds)
        np.maximum.at(longest, history.round, time_s)
        longest = np.minimum(longest, history.deadline_s)
        if world.waits.overhead_s.shape[0]:
            longest += rng.choice(world.waits.overhead_s, size=longest.shape[0]) * (longest > 0.0)
        return float(longest.mean())


def _humps(values: FloatArray) -> float:
    r"""Sarle's coefficient of bimodality, :math:`(\text{skewness}^2 + 1) / \text{kurtosis}`."""
    deviation = values - values.mean()
    square = max(float((deviation**2).mean()), 1e-300)
    skewness = float((deviation**3).mean()) / square**1.5
    kurtosis = float((deviation**4).mean()) / square**2
    return float((skewness**2 + 1.0) / max(kurtosis, 1.0))


class Drawn:
    """One draw of the world of a log, as it unfolds before a policy."""

    def __init__(self, fit: Fit, number: int, rules: Mapping[str, Any] | None) -> None:
        """Begin before the first round of world ``number``."""
        self._fit = fit
        self._history = fit.history
        self._world = fit.worlds[number]
        self._rules = rules
        self.ids = fit.history.ids
        self._rng = Streams(fit.seed).at("replay-world", number)
        self._scale = math.exp(-0.5 * fit.wrong)
        self._round, self._now_s = -1, float(fit.history.at_s[0])
        self._warm = np.zeros(fit.history.num_clients, np.bool_)

    def look(self) -> RoundStart | None:
        """Begin the next round; None after as many as the log has."""
        history, self._round = self._history, self._round + 1
        if self._round == history.num_rounds:
            return None
        index, features = self._round, self._fit.features[self._round].copy()
        for column, (when_warm, otherwise) in self._fit.cold.items():
            features[:, column] = np.where(self._warm, when_warm, otherwise)
        self._features = features
        rules = history.rules[index] if self._rules is None else self._rules
        told = features if history.num_features else None
        return RoundStart(self._now_s, history.members[index], history.available[index], told, rules)

    def exchange(self, chosen: IntArray) -> Exchanges:
        """What becomes of the cohort: of clients that the log chose in this round, too, what became of them there."""
        history = self._history
        world = self._world
        index = self._round
        rng = self._rng
        mean_s = world.times.means(chosen, self._features[chosen])
        ratio = world.times.scatter(chosen, rng.random(chosen.shape))
        lost_draw, over = rng.random(chosen.shape[0]), rng.random()
        time_s = self._scale * mean_s * ratio
        leaves = self._fit.leaves.within(index, chosen, time_s)
        lost = lost_draw < world.answers.lost(chosen, leaves, mean_s)
        # What happened to these clients in this round is known: the same again, at the pace of the new context.
        at = self._fit.at[index, chosen]
        same = at >= 0
        lost[same] = history.lost[at[same]]
        again = np.where(same, world.times.ratio[at], np.nan)
        time_s = np.where(np.isnan(again), time_s, mean_s * again)
        if not np.isnan(world.waits.lost_s):
            time_s = np.where(lost, world.waits.lost_s, time_s)
        overhead_s = world.waits.overhead(over)  # it was measured, and deadlines leave room for it as it was
        return Exchanges(np.maximum(time_s, _SHORTEST_S), ~lost, float(history.deadline_s[index]), overhead_s)

    def end(self, chosen: IntArray, length_s: float) -> None:
        """End the round, and wait as long for the next as the log did."""
        self._warm = np.zeros(self._warm.shape, np.bool_)
        self._warm[chosen] = True
        self._now_s = self._fit.pace.next_s(self._round, self._now_s, length_s, empty=not chosen.shape[0])
