"""A dry run of rules: what they would have made of a log's rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroster.lab.replay.history import History
from fedroster.lab.replay.modelled import Fit, check_reach
from fedroster.lab.statistics import prediction_interval
from fedroster.types import AnyPolicy, FloatArray, IntArray

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
    """What other rules do to a log: the log itself, its rules and the others, each played by the same policy.

    Args:
        history: The log.
        policy: The policy that plays both.
        rules: The other rules, as a table.

    Raises:
        FedrosterError: If the log or the policy cannot be played.
    """
    fit = Fit(history, draws=_WORLDS, seed=0)
    end_s = float(history.at_s[-1] + history.lasted_s[-1])
    lasted_s = history.lasted_s[history.chosen.any(axis=1)]
    own = _waits(history.client, history.at_s[history.round], history.num_rounds, end_s)
    found = [DryRun("the log itself", float(lasted_s.mean()), 1.0 - float(history.begun.mean()), *own)]
    means = []
    for of, each in (("the log's rules, played", None), ("these rules, played", rules)):
        rows = []
        played = [fit.play(policy, number, rules=each) for number in range(len(fit.worlds))]
        check_reach(played)
        for rounds in (one.rounds for one in played):
            clients = np.concatenate([one.chosen for one in rounds])
            at_s = np.repeat([one.at_s for one in rounds], [one.chosen.shape[0] for one in rounds])
            mean_s = float(np.mean([one.length_s for one in rounds if one.chosen.shape[0]] or [math.nan]))
            waits = _waits(clients, at_s, len(rounds), rounds[-1].at_s + rounds[-1].length_s)
            rows.append((mean_s, 1.0 - float(np.mean([one.begun for one in rounds])), *waits))
        table = np.array(rows)
        means.append(table[:, 0])
        ratio = means[-1] / means[0]
        low, high = np.exp(prediction_interval(np.log(ratio)))
        mean_s, not_begun, least, wait_s = table.mean(axis=0).tolist()
        ends = float(low) - 1.0, float(high) - 1.0
        found.append(DryRun(of, mean_s, not_begun, least, wait_s, float(ratio.mean()) - 1.0, ends))
    return found


def _waits(client: IntArray, at_s: FloatArray, rounds: int, end_s: float) -> tuple[float, float]:
    """Least share of the rounds of the clients that took part, and the longest wait of one of them."""
    least, longest_s = 1.0, 0.0
    for each in np.unique(client):
        times_s = np.append(np.sort(at_s[client == each]), end_s)
        longest_s = max(longest_s, float(np.diff(times_s).max()))
        least = min(least, (times_s.shape[0] - 1) / rounds)
    return least, longest_s
