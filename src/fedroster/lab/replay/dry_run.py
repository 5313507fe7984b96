"""A dry run of rules: what they would have made of a log's rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroster.lab.replay.history import History
from fedroster.lab.replay.modelled import Fit
from fedroster.lab.replay.playing import PlayedRound
from fedroster.lab.statistics import prediction_interval
from fedroster.types import AnyPolicy, FloatArray

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
    least, longest_s, end_s = 1.0, 0.0, rounds[-1].at_s + rounds[-1].length_s
    for each in np.unique(client):
        times_s = np.append(np.sort(at_s[client == each]), end_s)
        longest_s = max(longest_s, float(np.diff(times_s).max()))
        least = min(least, (times_s.shape[0] - 1) / len(rounds))
    return np.array([mean_s, 1.0 - np.mean([one.begun for one in rounds]), least, longest_s])
