"""Training with FLOOR, on the network of Huang et al. 2021, in three sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fedroster.lab.pages.looks import looks_of
from fedroster.lab.papers.floor import volatile
from fedroster.lab.papers.sizes import (
    FLAT,
    Experiment,
    figure_in_panels,
    numbers_in_panels,
    panels_of,
    scales,
    target_of,
)
from fedroster.lab.trials.accuracy import final_accuracies, times_to
from fedroster.lab.verdicts.paper import FigureRecipe, Runs
from fedroster.lab.verdicts.verdicts import Claim, Question, accuracy_gap, claims_of, time_gap

TRAINED = {"random": "random", "FLOOR": "floor", "RBCS-F(20)": "rbcs-f:V=20", "Oort": "oort"}
_PANELS = {"gamma_1 = 0.2": "skewed", "IID": "iid"}
"""What the claims call each panel."""


def _claims(experiment: Experiment, runs: Runs) -> list[Claim]:
    found = []
    for panel, group in panels_of(runs).items():
        reached = {label: times_to(group[label], target_of(group)) for label in group}
        final = {label: final_accuracies(group[label]) for label in group}
        asked: dict[str, Question] = {
            "time": (
                "FLOOR has 90 % of random's final accuracy in less simulated time.",
                "simulated time, random's minus FLOOR's",
                [time_gap(reached["FLOOR"], reached["random"])],
            ),
            "final": (
                "after as many rounds FLOOR is more accurate than RBCS-F(20) and Oort.",
                "final accuracy, FLOOR's minus each other's",
                [accuracy_gap(final["FLOOR"], final[other]) for other in ("RBCS-F(20)", "Oort")],
            ),
        }
        prefix, about = f"training-{experiment.key}-{_PANELS[panel]}-", f"{experiment.name}, {panel}: "
        found += claims_of(experiment.name, asked, prefix=prefix, about=about, ours=True)
    return found


def _figures(size: str) -> Mapping[str, FigureRecipe]:
    draw = partial(figure_in_panels, looks=looks_of(TRAINED), over_time=True)
    figures = {
        f"training-{experiment.key}": FigureRecipe(
            f"Training, {experiment.name}",
            experiment.in_panels(TRAINED, tuple(_PANELS)),
            partial(draw, title=f"{experiment.name}: accuracy per simulated time"),
            partial(_claims, experiment),
            numbers_in_panels,
        )
        for experiment in FLAT[size]
    }
    return figures | {"volatile": volatile.figure(size)}


SCALES = scales(_figures, cpu_seeds=range(3))
"""Accuracy over simulated time by size."""
