"""The figures of a comparison."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedroster.catalogue import REFERENCE
from fedroster.lab.compare.tables import (
    ROUND_TIME,
    TIME_TO_TARGET,
    UPDATES,
    Measure,
    Runs,
    Settings,
    Values,
    points_of,
)
from fedroster.lab.pages.charts import Axes, Curve, Figure, lines
from fedroster.lab.pages.looks import MANY, look
from fedroster.lab.pages.pareto import pareto_figure
from fedroster.lab.statistics import band
from fedroster.lab.trials.accuracy import curve_per_second, percent_band
from fedroster.types import FloatArray

_QUANTILES = 201  # points of a line over all clients
_WINDOWS = 20  # of a course of counts: single rounds are noisy

_LABELS = {
    ROUND_TIME: ("mean time of a round, s", "Time of a round against the least served", "pareto-round"),
    TIME_TO_TARGET: (
        "simulated time to target, s",
        "Time to {target:.0%} accuracy against the least served",
        "pareto-target",
    ),
    UPDATES: ("updates in time, a round", "Updates in time against the least served", "pareto-updates"),
}


def figures_of(runs: Mapping[str, Runs], values: Values, settings: Settings) -> dict[str, Figure]:
    """All figures of a comparison, by the name of their file."""
    figures = dict([_pareto(values, settings, settings.front_measure)])
    if settings.task is not None:
        if len(points_of(values, TIME_TO_TARGET)) > 1:
            figures |= [_pareto(values, settings, TIME_TO_TARGET)]
        rounds = np.arange(1.0, settings.rounds + 1)
        curves = {text: Curve(rounds, *percent_band(own.accuracy)) for text, own in runs.items()}
        figures["accuracy-per-round"] = _lines("Accuracy per round", curves, Axes("round", "test accuracy, %"))
        for text, own in runs.items():
            curves[text] = curve_per_second([*zip(own.elapsed_s, own.accuracy, strict=True)], log=True)
        axes = Axes("simulated time, s", "test accuracy, %", log_x=True)
        figures["accuracy-per-second"] = _lines("Accuracy per simulated second", curves, axes)
    if settings.has_prices:  # means over successive windows show how the number grows while a policy learns
        width = max(settings.rounds // _WINDOWS, 1)
        label = "Updates in time" + f", means over {width} rounds" * (width > 1)
        curves = {text: _course(own.participants, width) for text, own in runs.items()}
        figures["updates"] = _lines(label, curves, Axes("round", "updates in time, a round"))
    if settings.promises_rates:
        label = f"Rounds owed: mean virtual queue at beta = {settings.rate:g}"
        curves = {text: _course(own.mean_backlog) for text, own in runs.items()}
        figures["queues"] = _lines(label, curves, Axes("round", "mean queue length, rounds"))
    figures["participation"] = _participation(runs, settings)
    return figures


def _pareto(values: Values, settings: Settings, measure: Measure) -> tuple[str, Figure]:
    x_label, words, file = _LABELS[measure]
    title = words.format(target=settings.target_accuracy)
    y_label = "least served tenth: share of their available rounds in which they were chosen, %"
    points, more_x = points_of(values, measure), not measure.less
    return file, pareto_figure(points, x_label, y_label, title=title, more_x=more_x, aided=settings.omniscient)


def _course(values: FloatArray, width: int = 1) -> Curve:
    """What came after each round, or its mean in each window of so many; nothing that is drawn so is below 0."""
    count = values.shape[1] // width
    mean, low, high = band(values[:, : count * width].reshape(-1, count, width).mean(axis=2))
    return Curve(width * np.arange(1.0, count + 1), mean, np.maximum(low, 0.0), high)


def _lines(title: str, curves: Mapping[str, Curve], axes: Axes, level: tuple[float, str] | None = None) -> Figure:
    """One picture, or a panel each where curves are many."""
    looks, apart = {text: look(text) for text in curves}, len(curves) > MANY
    return lines(curves, axes, title=title, looks=looks, level=level, apart=apart, behind=REFERENCE)


def _participation(runs: Mapping[str, Runs], settings: Settings) -> Figure:
    share = np.linspace(0.0, 1.0, _QUANTILES)
    curves = {}
    for text, own in runs.items():
        rates = 100.0 * np.quantile(own.chosen / settings.rounds, share, axis=1).mean(axis=1)
        curves[text] = Curve(100.0 * share, rates, rates, rates)
    level = (100.0 * settings.rate, f"beta = {settings.rate:g}") if settings.promises_rates else None
    axes = Axes("clients, sorted, %", "rounds taken part in, %", log_y=len(curves) > MANY)
    return _lines("Participation per client", curves, axes, level)
