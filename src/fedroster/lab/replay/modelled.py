"""Another policy in worlds that are drawn from a log: the policy learns there as it would have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedroster.errors import InvalidInputError
from fedroster.lab.replay.answers import Answers, Leaves, Presence, Waits, draw_answers, expected, read_waits, slowest
from fedroster.lab.replay.clock import read_clock
from fedroster.lab.replay.history import History
from fedroster.lab.replay.times import Times, draw_times
from fedroster.parts import check_selection
from fedroster.types import (
    AnyPolicy,
    BoolArray,
    Feedback,
    FloatArray,
    IntArray,
    ProblemSpec,
    RoundContext,
    Selection,
    Status,
    Streams,
)

_CHECKED = 20  # rounds in which decisions are checked
_LEAST_TIMES = 50  # measured times without which nothing is fitted


@dataclass(frozen=True, slots=True)
class World:
    """One draw of the world of a log."""

    times: Times
    answers: Answers
    waits: Waits


@dataclass(frozen=True, slots=True)
class Played:
    """A policy's rounds in one drawn world.

    Attributes:
        round_s: How long each round took, shape (rounds,), seconds.
        chosen: How often each client was chosen, shape (clients,).
        missed: Chosen clients without an update in time, of all rounds.
        beyond: Share of the rounds that lie after the log's end.
        unknown: Share of the chosen that the log never measured.
    """

    round_s: FloatArray
    chosen: IntArray
    missed: int
    beyond: float
    unknown: float


@dataclass(frozen=True, slots=True)
class PlayedRound:
    """One round of a policy in a drawn world.

    Attributes:
        index: The log's round that tells of it.
        members: Who was a member, shape (clients,).
        feedback: What came back of the chosen clients.
        waited_s: When each of them answered or was given up, deadline or not, shape (k,), seconds.
        overhead_s: What the round took beyond that, seconds.
        length_s: How long it took, seconds.
        is_beyond: Whether it began after the log's end.
    """

    index: int
    members: BoolArray
    feedback: Feedback
    waited_s: FloatArray
    overhead_s: float
    length_s: float
    is_beyond: bool


class Fit:
    """What is fitted to a log once, for all policies."""

    def __init__(self, history: History, *, draws: int, seed: int) -> None:
        """Fit.

        Raises:
            InvalidInputError: If the log has too few measured times.
        """
        measured = int(history.timed.sum())
        if measured < _LEAST_TIMES:
            raise InvalidInputError(f"the log has {measured} measured times; expected at least {_LEAST_TIMES}")
        self.history, self.seed = history, seed
        self.leaves = Leaves(history)
        self.worlds: list[World] = []
        streams = Streams(seed)
        for number, times in enumerate(draw_times(history, draws, rng=streams.at("replay-times"))):
            rng = streams.at("replay-answers", number)
            answers = draw_answers(history, times, self.leaves, rng=rng)
            self.worlds.append(World(times, answers, read_waits(history, expected(history, times))))
        known = np.isfinite(history.round_s)
        self.durations_s = np.where(known, history.round_s, slowest(history))
        self.clock = read_clock(history, self.durations_s)
        self.features, self.cold = self._contexts()
        self.at = np.full(history.available.shape, -1, np.int64)  # the exchange of each client and round
        self.at[history.round, history.client] = np.arange(history.round.shape[0])
        timed = np.flatnonzero(history.timed)
        self.timed_at = np.full(history.round.shape[0], -1, np.int64)
        self.timed_at[timed] = np.arange(timed.shape[0])
        self.measured = np.bincount(history.client[timed], minlength=history.num_clients)  # times of each client
        self.is_unknown = self.measured == 0
        again = np.log([self.logged_again(number) for number in range(draws)])
        self.wrong = float(again.mean() - np.log(max(float(self.durations_s.mean()), 1e-12)))
        self.wrong_by_chance = float(again.std(ddof=1))

    def _contexts(self) -> tuple[FloatArray, dict[int, tuple[float, float]]]:
        """Contexts without gaps, and the columns that only say which clients took part in the round before."""
        history = self.history
        features = history.features.copy()
        known: BoolArray = np.asarray(np.isfinite(features).all(axis=2))
        before = history.chosen[:-1][known[1:]]
        cold: dict[int, tuple[float, float]] = {}
        for column in range(history.num_features):
            values = features[1:, :, column][known[1:]]
            if not before.any() or before.all():
                continue
            warm, rest = values[before], values[~before]
            if warm[0] != rest[0] and (warm == warm[0]).all() and (rest == rest[0]).all():
                cold[column] = float(warm[0]), float(rest[0])
        for column in range(history.num_features):
            gaps = np.isnan(features[:, :, column])
            if gaps.any():
                features[:, :, column][gaps] = np.nan_to_num(np.nanmean(features[:, :, column]))
        return features, cold

    def play(self, policy: AnyPolicy, number: int) -> Played:
        """Let a policy that knows nothing yet play the rounds in one drawn world."""
        history = self.history
        num_rounds, num_clients = history.available.shape
        round_s, count = np.zeros(num_rounds), np.zeros(num_clients, np.int64)
        missed = beyond = 0
        for round, one in enumerate(self.rounds(policy, number)):
            missed += int(np.count_nonzero(one.feedback.status != Status.COMPLETED))
            count[one.feedback.client] += 1
            round_s[round] = one.length_s
            beyond += one.is_beyond
        unknown = float(count[self.is_unknown].sum()) / max(int(count.sum()), 1)
        return Played(round_s, count, missed, beyond / num_rounds, unknown)

    def rounds(self, policy: AnyPolicy, number: int, *, spare: int = 0) -> Iterator[PlayedRound]:
        """Play the rounds of the log one after the other.

        Args:
            policy: It knows nothing yet.
            number: Number of the drawn world.
            spare: Places beyond those of the log's rounds, >= 0.
        """
        history, world = self.history, self.worlds[number]
        streams = Streams(self.seed)
        rng, policy_rng = streams.at("replay-world", number), streams.at("replay-policy", number)
        spec = ProblemSpec(history.num_clients, int(history.places.max()) + spare, max(history.num_features, 1))
        state = policy.init(spec, rng=streams.at("replay-policy-init", number))
        now_s, warm = float(history.at_s[0]), np.zeros(history.num_clients, np.bool_)
        presence = self.leaves.draw(world.answers.sooner, rng=rng) if self.clock.by_time else None
        for round in range(history.num_rounds):
            index = self.clock.index(round, now_s)
            there = None if presence is None else presence.at(index, now_s)
            context = self._context(round, index, warm, there, spare)
            selection = policy.select(state, context, rng=policy_rng)
            if round < _CHECKED:
                check_selection(selection, context, fills_cohort=policy.fills_cohort)
            feedback, waited_s, overhead_s = self._exchange(world, context, selection, index, now_s, presence, rng)
            length_s = 0.0
            if not selection.is_empty:
                length_s = max(min(float(waited_s.max()), float(history.deadline_s[index])) + overhead_s, 0.0)
            is_beyond = self.clock.by_time and now_s > self.clock.end_s
            members = history.members[index]
            yield PlayedRound(index, members, feedback, waited_s, overhead_s, length_s, is_beyond)
            state = policy.update(policy.commit(state, context, selection), feedback)
            warm = np.zeros(history.num_clients, np.bool_)
            warm[selection.links] = True
            now_s = self.clock.next_s(now_s, length_s, empty=selection.is_empty)

    def _context(
        self, round: int, index: int, warm: BoolArray, there: BoolArray | None = None, spare: int = 0
    ) -> RoundContext:
        history = self.history
        features = self.features[index].copy(order="F") if history.num_features else np.ones((warm.shape[0], 1))
        if there is not None and history.num_features and index + 1 < history.num_rounds:
            come = there & ~history.available[index]
            features[come] = self.features[index + 1, come]
        for column, (when_warm, otherwise) in self.cold.items():
            features[:, column] = np.where(warm, when_warm, otherwise)
        members = history.members[index]
        return RoundContext(
            round=round + 1,
            features=features,
            available=history.available[index] if there is None else there,
            cohort_size=int(history.places[index]) + spare,
            members=None if members.all() else members,
        )

    def _exchange(
        self,
        world: World,
        context: RoundContext,
        selection: Selection,
        index: int,
        now_s: float,
        presence: Presence | None,
        rng: Generator,
    ) -> tuple[Feedback, FloatArray, float]:
        """What comes back in a drawn world, when it does or is given up, and what the round takes beyond."""
        history, links = self.history, selection.links
        features = context.features[links]
        mean_s = world.times.means(links, features if history.num_features else features[:, :0], index)
        ratio = world.times.scatter(links, rng.random(links.shape))
        lost_draw, over = rng.random(links.shape[0]), rng.random()
        time_s = mean_s * ratio
        if presence is None:
            leaves = self.leaves.within(index, links, float(history.at_s[index]), time_s)
        else:
            leaves = (now_s + time_s > presence.until(index, links)).astype(np.float64)
        lost = lost_draw < world.answers.lost(links, leaves, mean_s)
        if not self.clock.by_time:
            # What happened to these clients in this round is known: the same again, at the pace of the new context.
            at = self.at[index, links]
            same = at >= 0
            timed = self.timed_at[at[same]]
            known = timed >= 0
            time_s[np.flatnonzero(same)[known]] = (mean_s[same] * world.times.ratio[np.maximum(timed, 0)])[known]
            lost[same] = history.status[at[same]] >= Status.DROPPED
        is_late = time_s > float(history.deadline_s[index])
        status = np.where(is_late, np.uint8(Status.LATE), np.uint8(Status.COMPLETED))
        status = np.where(lost, np.uint8(Status.DROPPED), status)
        waited_s = time_s if np.isnan(world.waits.lost_s) else np.where(lost, world.waits.lost_s, time_s)
        feedback = Feedback(
            round=context.round,
            client=links,
            features=features,
            status=status,
            exchange_time_s=np.where(lost, np.nan, time_s),
        )
        return feedback, waited_s, world.waits.overhead(over)

    def logged_again(self, number: int) -> float:
        """Mean time of the log's own rounds with its own cohorts in a drawn world, scatter drawn again, seconds."""
        history, world = self.history, self.worlds[number]
        rng = Streams(self.seed).at("replay-check", number)
        ratio = world.times.scatter(history.client, rng.random(history.client.shape))
        time_s = expected(history, world.times) * ratio
        lost = history.status >= Status.DROPPED
        if not np.isnan(world.waits.lost_s):
            time_s = np.where(lost, world.waits.lost_s, time_s)
        longest = np.zeros(history.num_rounds)
        np.maximum.at(longest, history.round, time_s)
        longest = np.minimum(longest, history.deadline_s)
        if world.waits.overhead_s.shape[0]:
            longest += rng.choice(world.waits.overhead_s, size=longest.shape[0]) * (longest > 0.0)
        return float(longest.mean())
