"""Reproduction of paper B's training experiments: Figs. 2, 4a, 4c, 4e and 7, and Table II, in three sizes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedroster.core.arrays import FloatArray
from fedroster.study.accuracy import accuracy_product, final_accuracies, rounds_to, shown_percent
from fedroster.study.figures import intervals_figure, places
from fedroster.study.measures import Run, jain_index
from fedroster.study.paper import FigureRecipe, Need, Product, Runs, Scale
from fedroster.study.statistics import Claim, mean_interval
from fedroster.task import Task

POLICIES = {"Oracle": "oracle", "COCS": "cocs", "CUCB": "cucb", "LinUCB": "linucb", "Random": "random"}
"""The paper's five: policy by label."""
PAIRS = {"CUCB per pair": "cucb-pairs", "LinUCB per pair": "linucb-pairs"}
"""The same baselines when they learn per pair and a solver chooses (Choice B9): what the paper does not show."""
BASELINES = ("CUCB", "LinUCB", "Random")
BUDGETS = (3.5, 5.0, 10.0)
DEADLINES_S = (2.0, 4.0, 8.0)
_PLACES = places(["Oracle", "COCS", "CUCB", "LinUCB", "Random", *PAIRS])

PRINTED = {
    "mnist": {
        "Oracle": (71.90, 111),
        "COCS": (71.84, 121),
        "CUCB": (70.94, 134),
        "LinUCB": (71.66, 156),
        "Random": (70.81, 161),
    },
    "cifar-10": {
        "Oracle": (68.41, 92),
        "COCS": (67.93, 101),
        "CUCB": (63.76, 175),
        "LinUCB": (65.19, 133),
        "Random": (62.25, 207),
    },
}
"""Table II as printed: final accuracy in percent, rounds to 70 % (MNIST) and 60 % (CIFAR-10)."""


@dataclass(frozen=True, slots=True)
class Network:
    """The experiments on one of the two networks in one size.

    Attributes:
        key: "mnist" or "cifar-10": the scenario, and what Table II prints for it.
        name: As the figures call it.
        task: What is trained.
        rounds: Edge rounds.
        target: Accuracy of Table II's rounds to target.
        evaluate_every: Rounds between tests.
        clients_each: Clients of each server in Fig. 2.
        free_rounds: Edge rounds of Fig. 2.
    """

    key: str
    name: str
    task: Task
    rounds: int
    target: float
    evaluate_every: int
    clients_each: tuple[int, ...]
    free_rounds: int

    @property
    def scenario(self) -> str:
        """Table I's network."""
        return f"cocs/{self.key}"

    def need(self, policy: str, settings: Mapping[str, str] | None = None, rounds: int | None = None) -> Need:
        """Runs of one policy."""
        overridden = tuple((settings or {}).items())
        return Need(
            policy,
            self.scenario,
            overridden,
            task=self.task,
            rounds=rounds or self.rounds,
            evaluate_every=self.evaluate_every,
        )

    def without_limits(self, clients: int) -> Need:
        """Fig. 2: so many clients for each server, at random, and all of them in time.

        Every client costs 2, so that a budget buys a number of clients.
        """
        price = {"price_min": "1", "price_max": "1", "compute_min_hz": "2e6", "compute_max_hz": "2e6"}
        settings = {**price, "budget": str(2 * clients), "deadline_s": "1e9", "probabilities": "false"}
        return self.need("random", settings, self.free_rounds)


def _gap(better: FloatArray, worse: FloatArray) -> tuple[float, ...]:
    return tuple((better - worse).tolist())


def _reached(runs: Sequence[Run], target: float) -> str:
    values = [run.rounds_to(target) for run in runs]
    missed = sum(not np.isfinite(value) for value in values)
    if missed:
        return f"reached by {len(values) - missed} of {len(values)}"
    interval = mean_interval(values)
    return f"{interval.mean:.0f} ± {interval.high - interval.mean:.0f}"


# -------------------------------------------------------------------- Fig. 2: how many clients


def _figure_2(network: Network) -> FigureRecipe:
    labels = {f"{clients} for each server": clients for clients in network.clients_each}

    def draw(runs: Runs) -> Product:
        return accuracy_product(
            {network.name: runs}, title="Clients in each edge round", places=places(list(labels)), x_label="edge round"
        )

    def claims(runs: Runs) -> list[Claim]:
        names = list(labels)
        mean = {name: np.array([np.nanmean(run.accuracy) for run in runs[name]]) for name in names}
        return [
            Claim(
                f"2-{network.key}-more-clients",
                "Fig. 2",
                f"{network.name}: more participating clients improve the performance.",
                "mean accuracy over the rounds rises at each step of "
                + ", ".join(map(str, network.clients_each))
                + " clients for each server",
                tuple(_gap(mean[more], mean[fewer]) for fewer, more in itertools.pairwise(names)),
            )
        ]

    needs = {label: network.without_limits(clients) for label, clients in labels.items()}
    return FigureRecipe(f"Fig. 2, {network.name}: number of participating clients", needs, draw, claims)


# -------------------------------------------------------------------- Figs. 4a and 7: five policies


def _policies(network: Network) -> dict[str, Need]:
    return {label: network.need(policy) for label, policy in (POLICIES | PAIRS).items()}


def _figure_accuracy(network: Network, figure: str) -> FigureRecipe:
    def draw(runs: Runs) -> Product:
        title = "Training under five policies, and two of ours"
        return accuracy_product({network.name: runs}, title=title, places=_PLACES, x_label="edge round")

    def claims(runs: Runs) -> list[Claim]:
        final = {label: final_accuracies(group) for label, group in runs.items()}
        rounds = {label: rounds_to(group, network.target) for label, group in runs.items()}
        target = f"rounds to {network.target:.0%}"
        prefix = f"{figure}-{network.key}"
        return [
            Claim(
                f"{prefix}-oracle-first",
                f"Fig. {figure}",
                f"{network.name}: Oracle converges fastest and ends most accurate.",
                f"{target} are fewer and the final accuracy is higher than with each of the four others",
                tuple(
                    part
                    for label in ("COCS", *BASELINES)
                    for part in (_gap(rounds[label], rounds["Oracle"]), _gap(final["Oracle"], final[label]))
                ),
            ),
            Claim(
                f"{prefix}-cocs-faster",
                "Table II",
                f"{network.name}: COCS reaches the target in fewer rounds than CUCB, LinUCB and Random.",
                f"{target} are fewer than with each",
                tuple(_gap(rounds[label], rounds["COCS"]) for label in BASELINES),
            ),
            Claim(
                f"{prefix}-cocs-more-accurate",
                "Table II",
                f"{network.name}: COCS ends more accurate than CUCB, LinUCB and Random.",
                "final accuracy is higher than with each",
                tuple(_gap(final["COCS"], final[label]) for label in BASELINES),
            ),
            Claim(
                f"{prefix}-cocs-near-oracle",
                f"Fig. {figure}",
                f"{network.name}: COCS ends about as accurate as Oracle.",
                "final accuracy of COCS is at most one percentage point below that of Oracle",
                (_gap(final["COCS"] + 0.01, final["Oracle"]),),
            ),
            Claim(
                f"{prefix}-random-last",
                f"Fig. {figure}",
                f"{network.name}: Random is inferior to all others.",
                f"{target} are more, and the final accuracy is lower, than with each of the four others",
                tuple(
                    part
                    for label in ("Oracle", "COCS", "CUCB", "LinUCB")
                    for part in (_gap(rounds["Random"], rounds[label]), _gap(final[label], final["Random"]))
                ),
            ),
            Claim(
                f"{prefix}-cocs-beats-pairs",
                f"Fig. {figure}",
                f"{network.name}: COCS reaches the target before CUCB and LinUCB when they learn per pair (Choice B9).",
                f"{target} are fewer than with each",
                tuple(_gap(rounds[label], rounds["COCS"]) for label in PAIRS),
                ours=True,
            ),
        ]

    def findings(runs: Runs) -> list[str]:
        used = {label: float(np.mean([run.participants.mean() for run in group])) for label, group in runs.items()}
        explored = float(np.mean([run.exploring.mean() for run in runs["COCS"]]))
        advantage = _share_of_advantage(runs)
        return [
            "Updates in time in an edge round: "
            + ", ".join(f"{label} {value:.2f}" for label, value in used.items())
            + f". COCS explores in {explored:.0%} of its rounds (Choice B11).",
            *([advantage] if advantage else []),
            _evenness(runs),
        ]

    return FigureRecipe(f"Fig. {figure}: training on {network.name}", _policies(network), draw, claims, findings)


def _evenness(runs: Runs) -> str:
    """Who is never heard: with two labels a client, more updates from the same few teach less than others would."""

    def shown(label: str) -> str:
        silent = np.mean([np.count_nonzero(run.chosen == 0) for run in runs[label]])
        return f"{label} {np.mean([jain_index(run.chosen) for run in runs[label]]):.2f} ({silent:.1f} clients never)"

    return (
        "Jain's index of how often clients were chosen: "
        + ", ".join(shown(label) for label in runs)
        + ". The utility counts updates and not whose they are: policies that gather more of them choose the cheap "
        "clients again and again."
    )


def _share_of_advantage(runs: Runs) -> str:
    """How COCS's lead in updates over the published baselines compares with that of the same ideas per pair."""

    def mean(label: str) -> float:
        return float(np.mean([run.participants.sum() for run in runs[label]]))

    parts = []
    for label in ("CUCB", "LinUCB"):
        lead, rebuilt = mean("COCS") - mean(label), mean(f"{label} per pair") - mean(label)
        if lead > 0.0:
            parts.append(f"{label} gains {rebuilt / lead:.0%} of COCS's lead over it when it learns per pair")
    if not parts:
        return ""
    return (
        "How much of COCS's advantage lies in how the baselines are built (an arm is a whole decision)? In updates in "
        "time, " + "; ".join(parts) + ". More than 100 % means that the rebuilt baseline is ahead of COCS."
    )


# -------------------------------------------------------------------- Table II


def _table_2(network: Network) -> FigureRecipe:
    printed = PRINTED[network.key]

    def draw(runs: Runs) -> Product:
        final = {label: mean_interval(100 * final_accuracies(group)) for label, group in runs.items()}
        rounds = {label: mean_interval(rounds_to(group, network.target)) for label, group in runs.items()}
        figure = intervals_figure(
            {"final accuracy, %": final, f"edge rounds to {network.target:.0%}": rounds},
            title=f"Table II, {network.name}",
            places=_PLACES,
        )
        table = pl.DataFrame(
            [
                {
                    "policy": label,
                    "final_accuracy": final[label].mean / 100,
                    "final_accuracy_low": final[label].low / 100,
                    "final_accuracy_high": final[label].high / 100,
                    "paper_final_accuracy": printed[label][0] / 100 if label in printed else None,
                    "target": network.target,
                    "rounds_to_target": rounds[label].mean,
                    "rounds_low": rounds[label].low,
                    "rounds_high": rounds[label].high,
                    "paper_rounds_to_target": printed[label][1] if label in printed else None,
                    "reached": sum(bool(np.isfinite(run.rounds_to(network.target))) for run in group),
                    "seeds": len(group),
                }
                for label, group in runs.items()
            ],
            infer_schema_length=None,
        )
        return Product(figure, table)

    def findings(runs: Runs) -> list[str]:
        return [
            f"{label}: final accuracy {shown_percent(final_accuracies(group))}"
            + (f" (the paper: {printed[label][0]})" if label in printed else "")
            + f", rounds to {network.target:.0%}: {_reached(group, network.target)}"
            + (f" (the paper, to its own target: {printed[label][1]})" if label in printed else "")
            + "."
            for label, group in runs.items()
        ] + [
            "A run that does not reach the target counts as one round more than it has, in means and tests.",
        ]

    return FigureRecipe(f"Table II, {network.name}", _policies(network), draw, findings=findings)


# -------------------------------------------------------------------- Figs. 4c and 4e: budgets and deadlines


def _sweep(network: Network, figure: str, setting: str, values: Sequence[float], what: str, unit: str) -> FigureRecipe:
    labels = {f"{what} {value:g}{unit}": {setting: f"{value:g}"} for value in values}

    def draw(runs: Runs) -> Product:
        title = f"COCS with three {what}s"
        return accuracy_product({network.name: runs}, title=title, places=places(list(labels)), x_label="edge round")

    def claims(runs: Runs) -> list[Claim]:
        first, second, third = (rounds_to(runs[label], network.target) for label in labels)
        target = f"COCS's rounds to {network.target:.0%}"
        return [
            Claim(
                f"{figure}-{setting}-helps",
                f"Fig. {figure}",
                f"COCS performs better with a {what} of {values[1]:g}{unit} than of {values[0]:g}{unit}.",
                f"{target} are fewer",
                (_gap(first, second),),
            ),
            Claim(
                f"{figure}-{setting}-saturates",
                f"Fig. {figure}",
                f"The {what} of {values[2]:g}{unit} brings no significant improvement over {values[1]:g}{unit}.",
                f"{target} fall less from {values[1]:g} to {values[2]:g} than from {values[0]:g} to {values[1]:g}",
                (_gap(first - second, second - third),),
            ),
        ]

    def findings(runs: Runs) -> list[str]:
        return [
            f"Rounds to {network.target:.0%}: "
            + ", ".join(f"{label} {_reached(runs[label], network.target)}" for label in labels)
            + (". The paper needs 77 rounds at a budget of 5." if setting == "budget" else ".")
        ]

    needs = {label: network.need("cocs", settings) for label, settings in labels.items()}
    return FigureRecipe(f"Fig. {figure}: {what}s, {network.name}", needs, draw, claims, findings)


# -------------------------------------------------------------------- sizes


def _figures(mnist: Network, cifar: Network) -> Mapping[str, FigureRecipe]:
    return {
        "2-mnist": _figure_2(mnist),
        "2-cifar-10": _figure_2(cifar),
        "4a": _figure_accuracy(mnist, "4a"),
        "4c": _sweep(mnist, "4c", "budget", BUDGETS, "budget", ""),
        "4e": _sweep(mnist, "4e", "deadline_s", DEADLINES_S, "deadline", " s"),
        "7": _figure_accuracy(cifar, "7"),
        "table-2-mnist": _table_2(mnist),
        "table-2-cifar-10": _table_2(cifar),
    }


_DIGITS = Task("digits", "labels:2", samples_per_client=20)
_MNIST = Task("mnist-logistic", "labels:2")
_SMALL_CIFAR = Task("cifar-10-b-small", "labels:2")

NETWORKS: Mapping[str, tuple[Network, Network]] = {
    "smoke": (
        Network("mnist", "digits for MNIST", _DIGITS, 10, 0.3, 5, (1, 2), 5),
        Network("cifar-10", "digits for CIFAR-10", _DIGITS, 10, 0.3, 5, (1, 2), 5),
    ),
    "cpu": (
        Network("mnist", "MNIST", _MNIST, 1000, 0.7, 5, (1, 3, 9), 200),
        Network("cifar-10", "CIFAR-10, small network", _SMALL_CIFAR, 100, 0.3, 5, (1, 2, 4), 100),
    ),
    "full": (
        Network("mnist", "MNIST", _MNIST, 1000, 0.7, 5, (1, 3, 9), 200),
        Network("cifar-10", "CIFAR-10", Task("cifar-10-b", "labels:2"), 1880, 0.6, 5, (1, 3, 9), 400),
    ),
}
"""What is trained on paper B's MNIST and CIFAR-10 networks, by size."""

SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        _figures(*NETWORKS["smoke"]),
        seeds=(0, 1),
        remark="Training has smoke size: 10 edge rounds on the handwritten digits in place of both data sets. Nothing "
        "follows from it.",
    ),
    "cpu": Scale(
        _figures(*NETWORKS["cpu"]),
        seeds=(0, 1, 2, 3, 4),
        remark="CPU size: MNIST has the paper's size. On CIFAR-10 there are 100 edge rounds in place of 1,880, a small "
        "network of ours with a 36th of the arithmetic, clients train 2 epochs on 500 samples in place of 5 on 1,000, "
        "and the target is 30 % in place of 60 %.",
    ),
    "full": Scale(
        _figures(*NETWORKS["full"]),
        seeds=(0, 1, 2, 3, 4),
        remark="Full size: the paper's epochs and learning rates; the batch and the samples of a client are chosen.",
    ),
}
"""Paper B's training experiments by size."""
