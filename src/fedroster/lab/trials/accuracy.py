"""Accuracy of runs with training: per round, per simulated second, at the end, and until a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedroster.lab.pages.charts import Axes, Curve, Figure, panels
from fedroster.lab.pages.looks import Look
from fedroster.lab.statistics import band, mean_interval, median_interval
from fedroster.lab.trials.measures import LAST_TESTS, Run
from fedroster.types import FloatArray

Panels = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs by panel and label, one for each seed."""


def step_function(times: FloatArray, values: FloatArray, grid: FloatArray) -> FloatArray:
    """Values at the points of a grid: what was measured last; NaN before the first measurement."""
    last = np.searchsorted(times, grid, side="right") - 1
    found: FloatArray = np.where(last < 0, np.nan, values[np.maximum(last, 0)])
    return found


def curve_per_round(runs: Sequence[Run]) -> Curve:
    """Mean accuracy in percent with its band after each tested round: the tests themselves, nothing is smoothed."""
    rounds = runs[0].tested
    return Curve(rounds.astype(np.float64), *band(np.stack([100.0 * run.accuracy[rounds - 1] for run in runs])))


def curve_per_second(runs: Sequence[Run], points: int = 200) -> Curve:
    """Mean accuracy in percent with its band by simulated time, from when all seeds have begun until the first ends."""
    times = [run.round_time_s.cumsum()[run.tested - 1] for run in runs]
    grid = np.linspace(max(t[0] for t in times), min(t[-1] for t in times), points)
    tests = [100.0 * run.accuracy[run.tested - 1] for run in runs]
    values = [step_function(t, own, grid) for t, own in zip(times, tests, strict=True)]
    return Curve(grid, *band(np.stack(values)))


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
    means = np.concatenate([curve.mean for group in curves.values() for curve in group.values()])
    ends = max(float(means.min()) - 2.0, 0.0), 1.05 * float(means.max())  # bands may leave the picture
    return panels(curves, Axes(x_label, "test accuracy, %", range_y=ends), title=title, looks=looks)


def final_accuracies(runs: Sequence[Run]) -> FloatArray:
    """Final accuracy of each seed's run, shape (seeds,)."""
    return np.array([run.final_accuracy() for run in runs])


def rounds_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Rounds to the first test with an accuracy, shape (seeds,); infinite where it was not reached."""
    return np.array([run.rounds_to(target) for run in runs])


def times_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Simulated seconds to the first test with an accuracy, shape (seeds,); infinite where it was not reached."""
    return np.array([run.time_to(target) for run in runs])


CENSORED = (
    "A run that does not reach a target within its rounds counts as later than every run that does, and as a tie with "
    "another that does not; it is never credited with its own length."
)
"""What the pages say of targets that are not reached."""


def shown_targets(values: FloatArray, form: str = ",.0f") -> str:
    """Rounds or times to a target: their mean, or the median where a run did not reach it, and how many did not."""
    missed = int(np.count_nonzero(np.isinf(values)))
    if not missed:
        interval = mean_interval(values)
        return f"{interval.mean:{form}} ± {interval.high - interval.mean:{form}}"
    middle = median_interval(values).mean
    shown = f"median {middle:{form}}, " if np.isfinite(middle) else ""
    return f"{shown}not reached by {missed} of {values.shape[0]}"


def shown_ratio(mine: FloatArray, theirs: FloatArray) -> str:
    """Rounds or times to a target in units of another policy's, paired by seed, and how many did not reach it."""
    reached = np.isfinite(mine) & np.isfinite(theirs)
    missed = "".join(
        f", not reached by {np.count_nonzero(np.isinf(times))} of {times.shape[0]}{whose}"
        for times, whose in ((mine, ""), (theirs, " of the others"))
        if np.isinf(times).any()
    )
    if not reached.all():
        both = (
            f"{float(np.median(mine[reached] / theirs[reached])):.2f} where both did" if reached.any() else "never both"
        )
        return f"{both}{missed}"
    ratio = mean_interval(mine / theirs)
    return f"{ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def final_rounds(runs: Sequence[Run]) -> str:
    """Say over which tests a final accuracy is the mean."""
    tested = runs[0].tested[-LAST_TESTS:]
    return f"mean of the last {tested.shape[0]} tests, rounds {tested[0]} to {tested[-1]}"


def area_under(runs: Sequence[Sequence[Run]]) -> FloatArray:
    """Mean accuracy over simulated time, up to when the shortest run of each seed ends, shape (labels, seeds)."""
    areas = np.empty((len(runs), len(runs[0])))
    for seed, group in enumerate(zip(*runs, strict=True)):
        grid = np.linspace(0.0, min(float(run.round_time_s.sum()) for run in group), 400)
        for label, run in enumerate(group):
            times = run.round_time_s.cumsum()[run.tested - 1]
            areas[label, seed] = np.nan_to_num(step_function(times, run.accuracy[run.tested - 1], grid)).mean()
    return areas


def shown_percent(values: FloatArray) -> str:
    """A mean in percent with the half width of its 95 % interval."""
    interval = mean_interval(values)
    return f"{interval.mean:.1%} ± {100 * (interval.high - interval.mean):.1f}"
