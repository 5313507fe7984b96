"""Training with partial pooling, on the networks of Qu et al. 2021, in three sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from fedroster.lab.pages.looks import looks_of
from fedroster.lab.papers.partial_pooling.figures import FAIR, OURS
from fedroster.lab.papers.sizes import HIERARCHICAL, HIERARCHICAL_REMARKS, Experiment, scales
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.accuracy import CENSORED, final_accuracies, final_rounds, rounds_to, shown_targets, times_to
from fedroster.lab.verdicts.courses import each
from fedroster.lab.verdicts.paper import FigureRecipe, Runs
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


def _findings(experiment: Experiment, runs: Runs) -> list[str]:
    def listed(value: Callable[[str], str]) -> str:
        return "; ".join(f"{label} {value(label)}" for label in runs)

    def percent(label: str) -> str:
        i = mean_interval(final_accuracies(runs[label]))
        return f"{i.mean:.1%} ± {i.high - i.mean:.1%}"

    def updates(label: str) -> str:
        return f"{each(runs, label, lambda run: float(run.participants.mean())).mean():.2f}"

    def never(label: str) -> str:
        return f"{each(runs, label, lambda run: float(np.count_nonzero(run.chosen == 0))).mean():.1f}"

    target = experiment.target
    return [
        f"Final accuracy ({final_rounds(runs['Random'])}): {listed(percent)}.",
        f"Rounds to {target:.0%}: "
        + listed(lambda label: shown_targets(rounds_to(runs[label], target)))
        + "; simulated seconds: "
        + listed(lambda label: shown_targets(times_to(runs[label], target)))
        + f". {CENSORED}",
        f"Updates in time in an edge round: {listed(updates)}; clients never chosen: {listed(never)}.",
    ]


def _figures(size: str) -> Mapping[str, FigureRecipe]:
    figures = {}
    for experiment in HIERARCHICAL[size]:
        needs = {label: experiment.need(policy) for label, policy in TRAINED.items()}
        name, title = f"training-{experiment.key}", f"Training on {experiment.name}"
        draw = partial(experiment.figure, looks=looks_of(TRAINED))
        by_round = partial(draw, title="Accuracy by round")
        by_time = partial(draw, title="Accuracy over simulated time", over_time=True)
        claims, findings = partial(_claims, experiment), partial(_findings, experiment)
        figures[name] = FigureRecipe(f"{title}, by round", needs, by_round, claims, findings)
        figures[f"{name}-time"] = FigureRecipe(f"{title}, over simulated time", needs, by_time)
    return figures


SCALES = scales(_figures, HIERARCHICAL_REMARKS)
"""Accuracy by round and over simulated time, by size."""
