"""FLOOR without each of its parts, and with other settings: time of a round, and participations of the least served.

Run as ``python -m benchmarks.floor [--seeds 100-119] [--rounds 500] [--workers N] [--out FOLDER]``.  Every variant
plays the same seeds on three variants of Huang et al.'s network; the table is ``floor.md`` of the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.rows import table_of_seeds
from fedroster.core.arrays import FloatArray
from fedroster.core.problem import RoundContext, Selection
from fedroster.estimation import random_coefficients
from fedroster.lab.papers.floor.worlds import TABLE_1, WORLDS
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.run import gather
from fedroster.lab.trials.trial import Trial
from fedroster.lab.verdicts.courses import least_chosen, mean_time
from fedroster.policies.floor import Floor, FloorState


class _Priced(Floor):
    factor = 1.0

    def appraise(self, state: FloorState, context: RoundContext, /) -> tuple[FloatArray, FloatArray, FloatArray]:
        time_s, price_s, urgency = Floor.appraise(self, state, context)
        return time_s, self.factor * price_s, urgency


class NoPrices(_Priced):
    """All prices are 0."""

    factor = 0.0


class HalfPrices(_Priced):
    """All prices are half."""

    factor = 0.5


class DoublePrices(_Priced):
    """All prices are double."""

    factor = 2.0


class NoPooling(Floor):
    """No client learns from others: the population stays the guess that it begins with."""

    def commit(self, state: FloorState, context: RoundContext, selection: Selection, /) -> FloorState:
        """As FLOOR's; then each client is estimated from its own times."""
        state = Floor.commit(self, state, context, selection)
        belief, times = state.belief, state.belief.times
        if not times.is_known:
            return state
        guess = random_coefficients._guess(times)
        alone = replace(times, mean=guess, covariance=np.diag(guess**2))
        usual_s, clients = belief.usual_s, np.arange(belief.usual_s.shape[0])
        scale_s = np.where(usual_s != 0.0, np.maximum(usual_s, 0.25 * times.mean_time_s), times.mean_time_s)
        precision = random_coefficients._precision(alone.covariance)
        random_coefficients._estimate_rows(alone, clients, scale_s, guess, precision, times.noise, 0, clients.shape[0])
        (alone.coefficients * belief.usual_context).sum(axis=0, out=usual_s)
        return replace(state, belief=replace(belief, times=alone))


def _of(name: str) -> str:
    return f"benchmarks.floor.{name}"


VARIANTS: Mapping[str, str] = {
    "FLOOR": "floor",
    "no prices": _of("NoPrices"),
    "no client is ever urgent (c = 1,000)": "floor:slack=1000",
    "no patience (c = 0)": "floor:slack=0",
    "no learning from others": _of("NoPooling"),
    "prices x 1/2": _of("HalfPrices"),
    "prices x 2": _of("DoublePrices"),
    "memory 25": "floor:memory=25",
    "memory 1,000": "floor:memory=1000",
    "absence 0": "floor:absence=0",
    "absence 6": "floor:absence=6",
    "c = 1": "floor:slack=1",
    "c = 4": "floor:slack=4",
}
"""Policies as text by their labels: the parts first, then the settings."""
NETWORKS = ("table-1", "drift", "two-classes")


def table(seeds: Sequence[int], num_rounds: int, workers: int) -> str:
    """Mean time and lowest participation of each variant, and how much more time it takes, as Markdown."""
    lines = [
        f"| {num_rounds} rounds, {len(seeds)} seeds | {' | '.join(NETWORKS)} |",
        f"| --- |{' --- |' * len(NETWORKS)}",
    ]
    usual_s: dict[str, FloatArray] = {}
    for label, policy in VARIANTS.items():
        cells = []
        for network in NETWORKS:
            trials = [Trial(TABLE_1, policy, seed, num_rounds, dict(WORLDS[network][1])) for seed in seeds]
            runs = gather(trials, workers=workers)
            time_s = np.array([mean_time(run) for run in runs])
            more = mean_interval(100.0 * (time_s / usual_s.setdefault(network, time_s) - 1.0))
            told = f"{more.mean:+.1f} % ({more.low:+.1f} to {more.high:+.1f}), " if label != "FLOOR" else ""
            least = np.mean([least_chosen(run) for run in runs])
            cells.append(f"{told}{time_s.mean():.2f} s, lowest {least:.1f}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    ABOUT = (
        "Mean time of a round, how much more it is than FLOOR's (95 % interval), and participations of the least "
        "served client."
    )
    table_of_seeds("floor", __doc__, table, ABOUT, "100-119 500")
