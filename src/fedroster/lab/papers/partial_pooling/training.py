"""Training with partial pooling, on the networks of Qu et al. 2021, in three sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fedroster.lab.pages.looks import looks_of
from fedroster.lab.papers.partial_pooling.figures import FAIR, OURS
from fedroster.lab.papers.sizes import HIERARCHICAL, Experiment, scales
from fedroster.lab.trials.accuracy import final_accuracies, rounds_to, times_to
from fedroster.lab.verdicts.courses import mean_updates, never_chosen, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Numbers, Runs
from fedroster.lab.verdicts.verdicts import Claim, Question, accuracy_gap

TRAINED = {
    "Oracle": "oracle",
    "Partial pooling": OURS,
    "the same, beta = 0.05": FAIR,
    "COCS": "cocs",
    "CUCB per pair": "cucb-pairs",
    "LinUCB per pair": "linucb-pairs",
    "Random": "random",
}


def _claims(experiment: Experiment, runs: Runs) -> list[Claim]:
    final = {label: final_accuracies(group) for label, group in runs.items()}
    fair = final["the same, beta = 0.05"]
    others = ("COCS", "CUCB per pair", "LinUCB per pair", "Random")
    asked: dict[str, Question] = {
        "fair": (
            "with rates, partial pooling ends more accurate than without.",
            "final accuracy",
            [accuracy_gap(fair, final["Partial pooling"])],
        ),
        "best": (
            "with rates, it ends more accurate than COCS, CUCB and LinUCB per pair and Random.",
            "final accuracy",
            [accuracy_gap(fair, final[other]) for other in others],
        ),
    }
    return experiment.claims("training", experiment.name, asked, ours=True)


def _numbers(experiment: Experiment, runs: Runs) -> Numbers:
    target = experiment.target
    return {
        "final accuracy, %": {label: 100.0 * final_accuracies(group) for label, group in runs.items()},
        f"rounds to {target:.0%}": {label: rounds_to(group, target) for label, group in runs.items()},
        f"simulated time to {target:.0%}, s": {label: times_to(group, target) for label, group in runs.items()},
        **of_each({"updates in time in an edge round": mean_updates, "clients never chosen": never_chosen}, runs),
    }


def _figures(size: str) -> Mapping[str, FigureRecipe]:
    figures = {}
    for one in HIERARCHICAL[size]:
        needs = {label: one.need(policy) for label, policy in TRAINED.items()}
        draw = partial(one.figure, looks=looks_of(TRAINED))
        rounds = partial(draw, title="Accuracy by round")
        times = partial(draw, title="Accuracy over simulated time", over_time=True)
        judged = partial(_claims, one), partial(_numbers, one)
        figures[f"training-{one.key}"] = FigureRecipe(f"Training on {one.name}, by round", needs, rounds, *judged)
        figures[f"training-{one.key}-time"] = FigureRecipe(f"Training on {one.name}, over simulated time", needs, times)
    return figures


SCALES = scales(_figures)
"""Accuracy by round and over simulated time, by size."""
