"""What several papers measure and draw: a value for each seed, and courses over the rounds with their bands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fedroster.lab.pages.charts import Axes, Curve, Figure, lines
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.statistics import band
from fedroster.lab.trials.measures import Run, jain_index
from fedroster.lab.verdicts.paper import Numbers, Runs
from fedroster.lab.verdicts.verdicts import Promise, promise
from fedroster.types import FloatArray


def each(runs: Runs, label: str, measure: Callable[[Run], float]) -> FloatArray:
    """A measure of each seed's run, shape (seeds,)."""
    return np.array([measure(run) for run in runs[label]])


def mean_time(run: Run) -> float:
    """Mean time of a round, seconds."""
    return float(run.round_time_s.mean())


def mean_updates(run: Run) -> float:
    """Updates in time in a round, mean."""
    return float(run.participants.mean())


def least_chosen(run: Run) -> float:
    """Participations of the least served client."""
    return float(run.chosen.min())


def evenness(run: Run) -> float:
    """Jain's index of how often clients were chosen."""
    return jain_index(run.chosen)


def never_chosen(run: Run) -> float:
    """How many clients were never chosen."""
    return float(np.count_nonzero(run.chosen == 0))


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
    """A figure of courses over the rounds: values after each by policy, shape (seeds, rounds).

    ``labels`` are what the figure calls each policy.  One of ``every`` so many rounds is shown: enough for the eye and
    for a small file.
    """
    curves = {}
    for policy, values in courses.items():
        kept = np.arange(every - 1, values.shape[1], every)
        curves[labels[policy]] = Curve((kept + 1).astype(np.float64), *band(values[:, kept]))
    looks = looks_of({label: policy for policy, label in labels.items()})
    return lines(curves, Axes(x_label, y_label), title=title, looks=looks)


def lacks_at_most(slack: int, runs: Sequence[Run], rate: float, *, of_available: bool = False) -> Promise:
    """The promise that no client ever lacks more than ``slack`` participations of its share, in any seed's run.

    The share is ``rate``, as the runs measured it, of all rounds, or of those in which the client was available.
    """
    lacking = [run.lacking_available if of_available else run.lacking for run in runs]
    owed = max(rate * (run.available.max() if of_available else run.num_rounds) for run in runs)
    return promise((rounds > slack for rounds in lacking), breakable=bool(owed >= slack + 1))
