"""What several papers measure and draw: a value for each seed, and courses over the rounds with their bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedroster.lab.pages.charts import Axes, Curve, Figure, lines
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.statistics import band
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.paper import Numbers, Runs
from fedroster.lab.verdicts.verdicts import Promise, promise
from fedroster.types import FloatArray


def each(runs: Runs, label: str, measure: Callable[[Run], float]) -> FloatArray:
    """A measure of each seed's run, shape (seeds,)."""
    return np.array([measure(run) for run in runs[label]])


def of_each(measures: Mapping[str, Callable[[Run], float]], runs: Runs) -> Numbers:
    """A table of measures, a row for each label."""
    return {name: {label: each(runs, label, measure) for label in runs} for name, measure in measures.items()}


def courses_figure(
    courses: Mapping[str, FloatArray],
    labels: Mapping[str, str],
    *,
    x_label: str,
    y_label: str,
    title: str,
    every: int = 1,
) -> Figure:
    """A figure of courses over the rounds.

    Args:
        courses: Values after each round by policy, shape (seeds, rounds).
        labels: What the figure calls each policy, given as text.
        x_label: What a round is.
        y_label: With its unit.
        title: What the figure says.
        every: One of this many rounds is shown: enough for the eye and for a small file.
    """
    curves = {}
    for policy, values in courses.items():
        kept = np.arange(every - 1, values.shape[1], every)
        curves[labels[policy]] = Curve((kept + 1).astype(np.float64), *band(values[:, kept]))
    looks = looks_of({label: policy for policy, label in labels.items()})
    return lines(curves, Axes(x_label, y_label), title=title, looks=looks)


def lacks_at_most(slack: int, runs: Sequence[Run], rate: float, *, of_available: bool = False) -> Promise:
    """The promise that no client ever lacks more than ``slack`` participations of its share.

    Args:
        slack: So many, >= 0.
        runs: One for each seed.
        rate: The share, as the runs measured it.
        of_available: Whether it is of the rounds in which the client was available; else of all rounds.
    """
    lacking = [run.lacking_available if of_available else run.lacking for run in runs]
    owed = max(rate * (run.available.max() if of_available else run.num_rounds) for run in runs)
    return promise((rounds > slack for rounds in lacking), breakable=bool(owed >= slack + 1))
