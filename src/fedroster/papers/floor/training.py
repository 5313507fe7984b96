"""Training with FLOOR, on the network of Huang et al. 2021, in three sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from fedroster.papers.sizes import FLAT, FLAT_REMARKS, Experiment, panels_of, scales
from fedroster.study.accuracy import accuracy_product, curve_per_second, final_accuracies, shown_percent, times_to
from fedroster.study.figures import places
from fedroster.study.paper import FigureRecipe, Product, Runs
from fedroster.study.statistics import Claim

TRAINED = {
    "random": "random",
    "FLOOR": "floor",
    "RBCS-F(20)": "rbcs-f:V=20",
    "Oort": "oort",
}
_PANELS = {"gamma_1 = 0.2": "skewed", "IID": "iid"}
"""What the claims call each panel."""


def _draw(experiment: Experiment, runs: Runs) -> Product:
    return accuracy_product(
        panels_of(runs),
        title=f"{experiment.name}: accuracy per simulated time",
        places=places(list(TRAINED)),
        x_label="simulated time, s",
        curve=curve_per_second,
    )


def _target(group: Runs) -> float:
    return 0.9 * float(final_accuracies(group["random"]).mean())


def _claims(experiment: Experiment, runs: Runs) -> list[Claim]:
    found = []
    for panel, group in panels_of(runs).items():
        target, key = _target(group), f"training-{experiment.key}-{_PANELS[panel]}"
        reached = {label: times_to(group[label], target) for label in group}
        final = {label: final_accuracies(group[label]) for label in group}
        found += [
            Claim.of(
                f"{key}-time",
                experiment.name,
                f"{experiment.name}, {panel}: FLOOR has 90 % of random's final accuracy in less simulated time.",
                "simulated time, random's minus FLOOR's",
                reached["random"] - reached["FLOOR"],
                ours=True,
            ),
            Claim.of(
                f"{key}-final",
                experiment.name,
                f"{experiment.name}, {panel}: after as many rounds FLOOR is more accurate than RBCS-F(20) and Oort.",
                "final accuracy, FLOOR's minus each other's",
                *(final["FLOOR"] - final[other] for other in ("RBCS-F(20)", "Oort")),
                ours=True,
            ),
        ]
    return found


def _findings(experiment: Experiment, runs: Runs) -> list[str]:
    sentences = []
    for panel, group in panels_of(runs).items():
        target = _target(group)
        shown = (
            f"{label} {shown_percent(final_accuracies(group[label]))}, "
            f"{(times_to(group[label], target) / times_to(group['random'], target)).mean():.2f}, "
            f"{np.mean([run.round_time_s.mean() for run in group[label]]):.1f}"
            for label in group
        )
        sentences.append(
            f"{experiment.name}, {panel}, final accuracy, simulated time to {target:.1%} in units of random's, and "
            f"seconds a round: {'; '.join(shown)}."
        )
    return sentences


def _figures(size: str) -> Mapping[str, FigureRecipe]:
    return {
        f"training-{experiment.key}": FigureRecipe(
            f"Training, {experiment.name}",
            experiment.in_panels(TRAINED, tuple(_PANELS)),
            partial(_draw, experiment),
            partial(_claims, experiment),
            partial(_findings, experiment),
        )
        for experiment in FLAT[size]
    }


SCALES = scales(_figures, FLAT_REMARKS, cpu_seeds=range(3))
"""Accuracy over simulated time by size."""
