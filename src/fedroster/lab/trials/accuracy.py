"""Accuracy of runs with training: per round, per simulated second, at the end, and until a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedroster.lab.pages.charts import Axes, Curve, Figure, panels
from fedroster.lab.pages.looks import Look
from fedroster.lab.statistics import band
from fedroster.lab.trials.measures import Run, crossing
from fedroster.types import FloatArray

LAST_TESTS = 5
"""A final accuracy is the mean of this many tests, the last ones."""
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


def curve_per_second(seeds: Sequence[tuple[FloatArray, FloatArray]], *, log: bool = False) -> Curve:
    """Mean accuracy in percent with its band by simulated time, from when all seeds have begun until the first ends.

    A seed is its times, seconds, and its accuracies.  The points are evenly spaced on an axis, which ``log`` says.
    """
    begun = max(times[times > 0.0].min(initial=np.inf) for times, _ in seeds)
    ended = min(times[-1] for times, _ in seeds)
    grid = (np.geomspace if log else np.linspace)(begun, ended, 200) if begun <= ended else np.empty(0)
    values = np.stack([step_function(*seed, grid) for seed in seeds])
    known = ~np.isnan(values).any(axis=0)
    return Curve(grid[known], *percent_band(values[:, known]))


def accuracy_figure(
    groups: Panels,
    looks: Mapping[str, Look],
    title: str,
    *,
    round_label: str = "round",
    over_time: bool = False,
) -> Figure:
    """Accuracy by round or over simulated time, a panel for each group of runs."""

    def curve(runs: Sequence[Run]) -> Curve:
        return curve_per_second([run.tests for run in runs]) if over_time else curve_per_round(runs)

    curves = {panel: {label: curve(runs) for label, runs in group.items()} for panel, group in groups.items()}
    x_label = "simulated time, s" if over_time else round_label
    return panels(curves, Axes(x_label, "test accuracy, %"), title=title, looks=looks)


def final_accuracies(runs: Sequence[Run]) -> FloatArray:
    """Mean accuracy over the last tests of each seed's run, shape (seeds,): single rounds are noisy."""
    return np.array([run.tests[1][-LAST_TESTS:].mean() for run in runs])


def rounds_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Rounds until an accuracy in (0, 1) is first reached, see :func:`crossing`, shape (seeds,); infinite for never."""
    return np.array([crossing(run.tested, run.tests[1], target) for run in runs])


def times_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Simulated seconds until then, shape (seeds,)."""
    return np.array([crossing(*run.tests, target) for run in runs])


def area_under(runs: Sequence[Sequence[Run]]) -> FloatArray:
    """Mean accuracy over simulated time, up to when the shortest run of each seed ends, shape (labels, seeds)."""
    grids = np.linspace(0.0, np.min([[run.round_time_s.sum() for run in own] for own in runs], axis=0), 400, axis=1)
    return np.array(
        [
            [np.nan_to_num(step_function(*run.tests, grid)).mean() for run, grid in zip(own, grids, strict=True)]
            for own in runs
        ]
    )
