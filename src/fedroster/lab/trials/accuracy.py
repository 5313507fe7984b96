"""Accuracy of runs with training: per round, per simulated second, at the end, and until a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedroster.lab.pages.charts import Axes, Curve, Figure, panels
from fedroster.lab.pages.looks import Look
from fedroster.lab.statistics import band
from fedroster.lab.trials.measures import Run
from fedroster.types import FloatArray

Panels = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs by panel and label, one for each seed."""


def step_function(times: FloatArray, values: FloatArray, grid: FloatArray) -> FloatArray:
    """Values at the points of a grid: what was measured last; NaN before the first measurement."""
    last = np.searchsorted(times, grid, side="right") - 1
    return np.where(last < 0, np.nan, values[np.maximum(last, 0)])


def percent_band(shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The band of curves of shares, shape (seeds, points), in percent: no share is below 0 or above 100."""
    mean, low, high = band(100.0 * shares)
    return mean, np.maximum(low, 0.0), np.minimum(high, 100.0)


def curve_per_round(runs: Sequence[Run]) -> Curve:
    """Mean accuracy in percent with its band after each tested round: the tests themselves, nothing is smoothed."""
    rounds = runs[0].tested
    return Curve(rounds.astype(np.float64), *percent_band(np.stack([run.accuracy[rounds - 1] for run in runs])))


def curve_per_second(runs: Sequence[Run], points: int = 200) -> Curve:
    """Mean accuracy in percent with its band by simulated time, from when all seeds have begun until the first ends."""
    times = [run.round_time_s.cumsum()[run.tested - 1] for run in runs]
    grid = np.linspace(max(t[0] for t in times), min(t[-1] for t in times), points)
    values = [step_function(t, run.accuracy[run.tested - 1], grid) for t, run in zip(times, runs, strict=True)]
    return Curve(grid, *percent_band(np.stack(values)))


def accuracy_figure(
    groups: Panels,
    looks: Mapping[str, Look],
    title: str,
    *,
    round_label: str = "round",
    over_time: bool = False,
) -> Figure:
    """Accuracy by round or over simulated time, a panel for each group of runs."""
    x_label, curve = ("simulated time, s", curve_per_second) if over_time else (round_label, curve_per_round)
    curves = {panel: {label: curve(runs) for label, runs in group.items()} for panel, group in groups.items()}
    return panels(curves, Axes(x_label, "test accuracy, %"), title=title, looks=looks)


def final_accuracies(runs: Sequence[Run]) -> FloatArray:
    """Final accuracy of each seed's run, shape (seeds,)."""
    return np.array([run.final_accuracy() for run in runs])


def rounds_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Rounds to the first test with an accuracy, shape (seeds,); infinite where it was not reached."""
    return np.array([run.rounds_to(target) for run in runs])


def times_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Simulated seconds to the first test with an accuracy, shape (seeds,); infinite where it was not reached."""
    return np.array([run.time_to(target) for run in runs])


def area_under(runs: Sequence[Sequence[Run]]) -> FloatArray:
    """Mean accuracy over simulated time, up to when the shortest run of each seed ends, shape (labels, seeds)."""
    areas = np.empty((len(runs), len(runs[0])))
    for seed, group in enumerate(zip(*runs, strict=True)):
        grid = np.linspace(0.0, min(float(run.round_time_s.sum()) for run in group), 400)
        for label, run in enumerate(group):
            times = run.round_time_s.cumsum()[run.tested - 1]
            areas[label, seed] = np.nan_to_num(step_function(times, run.accuracy[run.tested - 1], grid)).mean()
    return areas
