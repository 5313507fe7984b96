"""Accuracy of runs with training: per round, per simulated second, at the end, and until a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from fedroster.core.arrays import FloatArray
from fedroster.study.figures import Curve, panels_figure
from fedroster.study.looks import Look
from fedroster.study.measures import Run
from fedroster.study.paper import Product
from fedroster.study.statistics import band, mean_interval

Panels = Mapping[str, Mapping[str, Sequence[Run]]]
"""Runs by panel and label, one for each seed."""


def step_function(times: FloatArray, values: FloatArray, grid: FloatArray) -> FloatArray:
    """Values at the points of a grid: what was measured last; NaN before the first measurement."""
    last = np.searchsorted(times, grid, side="right") - 1
    found: FloatArray = np.where(last < 0, np.nan, values[np.maximum(last, 0)])
    return found


def curve_per_round(runs: Sequence[Run]) -> Curve:
    """Mean accuracy with its band after each tested round."""
    rounds = runs[0].tested
    return Curve(rounds.astype(np.float64), *band(np.stack([run.smooth_accuracy() for run in runs])))


def curve_per_second(runs: Sequence[Run], points: int = 200) -> Curve:
    """Mean accuracy with its band against simulated time, from when all seeds have begun until the first ends."""
    times = [run.round_time_s.cumsum()[run.tested - 1] for run in runs]
    grid = np.linspace(max(t[0] for t in times), min(t[-1] for t in times), points)
    values = [step_function(t, run.smooth_accuracy(), grid) for t, run in zip(times, runs, strict=True)]
    return Curve(grid, *band(np.stack(values)))


def accuracy_product(
    panels: Panels,
    looks: Mapping[str, Look],
    title: str,
    *,
    round_label: str = "round",
    over_time: bool = False,
) -> Product:
    """Accuracy by round or over simulated time, a panel for each group of runs, and the table of what it shows."""
    x_label, curve = ("simulated time, s", curve_per_second) if over_time else (round_label, curve_per_round)
    curves = {panel: {label: curve(runs) for label, runs in group.items()} for panel, group in panels.items()}
    column = x_label.partition(",")[0].replace(" ", "_")
    table = pl.concat(
        pl.DataFrame(
            {
                "panel": panel,
                "policy": label,
                column: shown.x,
                "accuracy": shown.mean,
                "accuracy_low": shown.low,
                "accuracy_high": shown.high,
                "seeds": len(panels[panel][label]),
            }
        )
        for panel, group in curves.items()
        for label, shown in group.items()
    )
    figure = panels_figure(curves, x_label=x_label, y_label="test accuracy, %", title=title, looks=looks)
    return Product(figure, table)


def final_accuracies(runs: Sequence[Run]) -> FloatArray:
    """Final accuracy of each seed's run, shape (seeds,)."""
    return np.array([run.final_accuracy() for run in runs])


def rounds_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Rounds to an accuracy, shape (seeds,); one more than there were where it was not reached."""
    return np.array([min(run.rounds_to(target), run.num_rounds + 1.0) for run in runs])


def times_to(runs: Sequence[Run], target: float) -> FloatArray:
    """Simulated seconds to an accuracy, shape (seeds,); the run's whole time where it was not reached."""
    return np.array([min(run.time_to(target), float(run.round_time_s.sum())) for run in runs])


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
