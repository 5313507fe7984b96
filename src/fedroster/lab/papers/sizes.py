"""What is trained, in three sizes: on the flat network of Huang et al. 2021, and on the two networks of Qu et al. 2021.

Several papers train on these networks; all of them take rounds, tasks and targets from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedroster.lab.pages.charts import Figure
from fedroster.lab.pages.looks import Look
from fedroster.lab.task import Task
from fedroster.lab.trials.accuracy import accuracy_figure, final_accuracies, times_to
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import evenness, mean_time, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Numbers, Runs, Scale
from fedroster.lab.verdicts.verdicts import Asked, Claim, claims_of


@dataclass(frozen=True, slots=True)
class Experiment:
    """Training on one data set in one scenario.

    ``key`` is what the command line and the claims call the data set, ``name`` what the figures do; ``target`` is the
    accuracy to be reached, in (0, 1), or 0 where each paper sets its own; ``changed`` says in words what is not as in
    the paper's own set-up.
    """

    key: str
    name: str
    scenario: str
    task: Task
    rounds: int
    evaluate_every: int
    target: float = 0.0
    changed: str = ""

    def need(
        self,
        policy: str,
        *,
        partition: str | None = None,
        settings: Mapping[str, str] | None = None,
        rounds: int | None = None,
    ) -> Need:
        """Runs of one policy."""
        task = replace(self.task, partition=partition or self.task.partition)
        overridden = tuple((settings or {}).items())
        return Need(policy, self.scenario, overridden, 1.0, task, rounds or self.rounds, self.evaluate_every)

    def in_panels(self, policies: Mapping[str, str], panels: Sequence[str]) -> dict[str, Need]:
        """Runs of each policy, by label, with each of the :data:`FLAT_PARTITIONS` that are named."""
        return {
            f"{panel}|{label}": self.need(policy, partition=FLAT_PARTITIONS[panel])
            for panel in panels
            for label, policy in policies.items()
        }

    def figure(self, runs: Runs, looks: Mapping[str, Look], title: str, *, over_time: bool = False) -> Figure:
        """Accuracy of each label's runs."""
        return accuracy_figure({self.name: runs}, looks, title, round_label="edge round", over_time=over_time)

    def claims(self, figure: str, source: str, asked: Asked, **options: Any) -> list[Claim]:
        """Claims about this experiment: their ids are figure, data set and name; else as :func:`claims_of`."""
        options = {"prefix": f"{figure}-{self.key}-", "about": f"{self.name}: ", "changed": self.changed} | options
        return claims_of(source, asked, **options)


def panels_of(runs: Runs) -> dict[str, dict[str, Sequence[Run]]]:
    """Runs by panel and label, as :meth:`Experiment.in_panels` needed them."""
    panels: dict[str, dict[str, Sequence[Run]]] = {}
    for key, group in runs.items():
        panel, _, label = key.partition("|")
        panels.setdefault(panel, {})[label] = group
    return panels


def figure_in_panels(runs: Runs, looks: Mapping[str, Look], title: str, *, over_time: bool) -> Figure:
    """Accuracy of such runs, a panel for each partition."""
    return accuracy_figure(panels_of(runs), looks, title, over_time=over_time)


def target_of(group: Runs, share: float = 0.9) -> float:
    """An accuracy to be reached: a share of the mean final accuracy of uniform draws in the same panel."""
    return share * float(final_accuracies(group["random" if "random" in group else "uniform"]).mean())


def numbers_in_panels(runs: Runs) -> Numbers:
    """Of each panel and label how accurate, how soon, how fast, how lossy and how even."""
    targets = {panel: target_of(group) for panel, group in panels_of(runs).items()}
    reached = {label: times_to(own, targets[label.partition("|")[0]]) for label, own in runs.items()}
    return {
        "final accuracy, %": {label: 100.0 * final_accuracies(own) for label, own in runs.items()},
        "simulated time to 90 % of uniform's, s": reached,
        **of_each(
            {
                "mean round, s": mean_time,
                "updates lost, %": lambda run: 100.0 * float(run.missed.sum() / max(run.cohort_size.sum(), 1)),
                "Jain's index": evenness,
            },
            runs,
        ),
    }


Pair = tuple[Experiment, Experiment]


def _flat(key: str, name: str, task: Task, rounds: int, evaluate_every: int, changed: str = "") -> Experiment:
    return Experiment(key, name, "rbcs-f/table-1", task, rounds, evaluate_every, changed=changed)


def _hierarchical(
    key: str, name: str, task: Task, rounds: int, target: float, changed: str = "", evaluate_every: int = 5
) -> Experiment:
    return Experiment(key, name, f"cocs/{key}", task, rounds, evaluate_every, target, changed)


_DIGITS, _FEW, _SMALL = "a few rounds on handwritten digits", "fewer rounds", "a small network and fewer rounds"


_FEW_DIGITS = Task("digits", "iid", samples_per_client=30)
_TWO_LABELS = Task("digits", "labels:2", samples_per_client=20)
_MNIST = _hierarchical("mnist", "MNIST", Task("mnist-logistic", "labels:2"), 1000, 0.7)
MNIST_STEPS = _hierarchical("mnist", "MNIST, E gradient steps", Task("mnist-logistic-steps", "labels:2"), 200, 0.7)
"""Qu et al. 2021's own local work, (2), and the 200 rounds of its Fig. 4."""

CIFAR_10_STEPS = _hierarchical(
    "cifar-10",
    "CIFAR-10, E gradient steps",
    Task("cifar-10-b", "labels:2", samples_per_client=160, epochs=1),
    600,
    0.3,
    "160 samples a client, 32 of them a step; 600 rounds in place of 1,880, 30% in place of 60%",
    20,
)
"""The same with the CNN on CIFAR-10: E = 5 steps are a pass over 160 samples."""

FLAT: Mapping[str, Pair] = {
    "smoke": (
        _flat("fashion-mnist", "digits for Fashion-MNIST", _FEW_DIGITS, 6, 1, _DIGITS),
        _flat("cifar-10", "digits for CIFAR-10", _FEW_DIGITS, 6, 1, _DIGITS),
    ),
    "cpu": (
        _flat("fashion-mnist", "Fashion-MNIST", Task("fashion-mnist", "iid"), 50, 5, _FEW),
        _flat("cifar-10", "CIFAR-10, small network", Task("cifar-10-small", "iid"), 150, 10, _SMALL),
    ),
    "full": (
        _flat("fashion-mnist", "Fashion-MNIST", Task("fashion-mnist", "iid"), 500, 10),
        _flat("cifar-10", "CIFAR-10", Task("cifar-10", "iid"), 1000, 10),
    ),
}
"""Fashion-MNIST and CIFAR-10 on the network of Huang et al. 2021, by size."""

FLAT_CIFAR_10 = _flat("cifar-10-network", "CIFAR-10, the paper's network", Task("cifar-10", "iid"), 150, 10, _FEW)
"""The paper's own network in fewer rounds: what a processor trains in a night."""

FLAT_PARTITIONS: Mapping[str, str] = {"gamma_1 = 0.2": "dirichlet:0.2", "gamma_1 = 1": "dirichlet:1", "IID": "iid"}
"""Partitions, from the least to the most alike clients, by the panel's title."""

HIERARCHICAL: Mapping[str, Pair] = {
    "smoke": (
        _hierarchical("mnist", "digits for MNIST", _TWO_LABELS, 10, 0.3, _DIGITS),
        _hierarchical("cifar-10", "digits for CIFAR-10", _TWO_LABELS, 10, 0.3, _DIGITS),
    ),
    "cpu": (
        _MNIST,
        _hierarchical("cifar-10", "CIFAR-10, small network", Task("cifar-10-b-small", "labels:2"), 100, 0.3, _SMALL),
    ),
    "full": (_MNIST, _hierarchical("cifar-10", "CIFAR-10", Task("cifar-10-b", "labels:2"), 1880, 0.6)),
}
"""MNIST and CIFAR-10 on the networks of Qu et al. 2021, clients with two labels, by size."""


def scales(
    figures: Callable[[str], Mapping[str, FigureRecipe]], *, cpu_seeds: Sequence[int] = range(5)
) -> dict[str, Scale]:
    """A paper's training experiments in all sizes."""
    seeds = {"smoke": (0, 1), "cpu": tuple(cpu_seeds), "full": (0, 1, 2, 3, 4)}
    return {size: Scale(figures(size), own) for size, own in seeds.items()}
