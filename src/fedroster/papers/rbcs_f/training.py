"""Reproduction of paper A's training experiments: Figs. 5, 6 and 7 (section 6.2), in three sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.study.accuracy import (
    accuracy_product,
    area_under,
    curve_per_second,
    final_accuracies,
    rounds_to,
    shown_percent,
    times_to,
)
from fedroster.study.figures import places
from fedroster.study.measures import Run
from fedroster.study.paper import FigureRecipe, Need, Product, Runs, Scale
from fedroster.study.statistics import Claim, mean_interval
from fedroster.task import Task

SCENARIO = "rbcs-f/table-1"
RANDOM, FEDCS = "random", "fedcs:deadline_s=3"
HIGH, LOW = 0.9, 0.6
"""Targets for rounds and times to an accuracy: shares of random's mean final accuracy in the same panel."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The experiments on one data set in one size.

    Attributes:
        key: Data set, as the command line and the claims call it.
        name: Data set, as the figures call it.
        task: Name of the task.
        rounds: T.
        partitions: Partitions, from the least to the most alike clients, by the panel's title.
        gamma_2: Concentrations of Fig. 5, ascending; uniform selection, their limit, comes beside them.
        fairness_partitions: Panels of Fig. 5.
        penalties: V of Figs. 6 and 7, ascending.
        samples_per_client: Samples of a client; None for the paper's 500.
        evaluate_every: Rounds between tests.
    """

    key: str
    name: str
    task: str
    rounds: int
    partitions: Mapping[str, str]
    gamma_2: tuple[float, ...]
    fairness_partitions: tuple[str, ...]
    penalties: tuple[int, ...]
    samples_per_client: int | None = None
    evaluate_every: int = 1

    def need(self, policy: str, panel: str) -> Need:
        """Runs of one policy in one panel."""
        task = Task(self.task, self.partitions[panel], samples_per_client=self.samples_per_client)
        return Need(policy, SCENARIO, task=task, rounds=self.rounds, evaluate_every=self.evaluate_every)

    @property
    def rbcs_f(self) -> dict[str, str]:
        """RBCS-F's variants: policy by label."""
        return {f"RBCS-F({penalty})": f"rbcs-f:V={penalty}" for penalty in self.penalties}

    @property
    def policies(self) -> dict[str, str]:
        """Figs. 6 and 7: policy by label."""
        return {"random": RANDOM, **self.rbcs_f, "FedCS(3)": FEDCS}

    @property
    def selections(self) -> dict[str, str]:
        """Fig. 5: policy by label, from the least to the most even selection."""
        uneven = {f"gamma_2 = {value:g}": f"dirichlet:gamma_2={value:g}" for value in self.gamma_2}
        return {**uneven, "uniform": RANDOM}


def _needs(grid: Grid, policies: Mapping[str, str], panels: Sequence[str]) -> dict[str, Need]:
    return {f"{panel}|{label}": grid.need(policy, panel) for panel in panels for label, policy in policies.items()}


def _panels(runs: Runs) -> dict[str, dict[str, Sequence[Run]]]:
    panels: dict[str, dict[str, Sequence[Run]]] = {}
    for key, group in runs.items():
        panel, _, label = key.partition("|")
        panels.setdefault(panel, {})[label] = group
    return panels


def _target(group: Mapping[str, Sequence[Run]], share: float) -> float:
    reference = group.get("random", group.get("uniform", ()))
    return share * float(final_accuracies(reference).mean())


def _gap(better: FloatArray, worse: FloatArray) -> tuple[float, ...]:
    return tuple((better - worse).tolist())


# -------------------------------------------------------------------- Fig. 5: fairness and accuracy


def _draw_5(grid: Grid) -> Callable[[Runs], Product]:
    def draw(runs: Runs) -> Product:
        return accuracy_product(
            _panels(runs), title=f"{grid.name}: how even the selection is", places=places(list(grid.selections))
        )

    return draw


def _jitter(run: Run) -> float:
    """How much accuracy jumps from test to test, over the last half of the run."""
    values = run.accuracy[run.tested - 1]
    return float(np.abs(np.diff(values[values.shape[0] // 2 :])).mean())


def _claims_5(grid: Grid) -> Callable[[Runs], list[Claim]]:
    def claims(runs: Runs) -> list[Claim]:
        panels = _panels(runs)
        least, *_, most = grid.selections
        found = [
            Claim(
                f"5-{grid.key}-even-is-accurate",
                "Fig. 5",
                f"{grid.name}: a higher gamma_2, a fairer selection, gives a higher final accuracy.",
                f"final accuracy of uniform selection is above that of {least}, in each panel",
                tuple(_gap(final_accuracies(group[most]), final_accuracies(group[least])) for group in panels.values()),
            )
        ]
        if len(panels) > 1:
            first, *_, last = panels.values()
            jitter = [np.array([_jitter(run) for run in group[most]]) for group in (first, last)]
            rounds = [rounds_to(group[most], _target(group, HIGH)) for group in (first, last)]
            found.append(
                Claim(
                    f"5-{grid.key}-alike-is-calm",
                    "Fig. 5",
                    f"{grid.name}: when gamma_1 decreases, there are more jitters and more rounds before convergence.",
                    "uniform selection, first panel above last: mean change of accuracy from test to test over the "
                    f"last half, and rounds to {HIGH:.0%} of the panel's final accuracy",
                    (_gap(jitter[0], jitter[1]), _gap(rounds[0], rounds[1])),
                )
            )
        return found

    return claims


def _findings_5(grid: Grid) -> Callable[[Runs], list[str]]:
    def findings(runs: Runs) -> list[str]:
        return [
            f"{grid.name}, {panel}, final accuracy: "
            + ", ".join(f"{label} {shown_percent(final_accuracies(group[label]))}" for label in group)
            + "."
            for panel, group in _panels(runs).items()
        ]

    return findings


# -------------------------------------------------------------------- Fig. 6: accuracy per round


def _draw_6(grid: Grid) -> Callable[[Runs], Product]:
    def draw(runs: Runs) -> Product:
        return accuracy_product(
            _panels(runs), title=f"{grid.name}: accuracy per round", places=places(list(grid.policies))
        )

    return draw


def _claims_6(grid: Grid) -> Callable[[Runs], list[Claim]]:
    def claims(runs: Runs) -> list[Claim]:
        panels = _panels(runs).values()
        others = [label for label in grid.policies if label != "random"]
        variants = list(grid.rbcs_f)
        fair, fast = variants[0], variants[-1]
        final = [{label: final_accuracies(group[label]) for label in group} for group in panels]
        reached = [{label: rounds_to(group[label], _target(group, HIGH)) for label in group} for group in panels]
        target = f"rounds to {HIGH:.0%} of random's mean final accuracy"
        return [
            Claim(
                f"6-{grid.key}-random-first",
                "Fig. 6",
                f"{grid.name}: random yields the best final accuracy.",
                "final accuracy of random is above that of each other policy, in each panel",
                tuple(_gap(panel["random"], panel[label]) for panel in final for label in others),
            ),
            Claim(
                f"6-{grid.key}-fedcs-last",
                "Fig. 6",
                f"{grid.name}: FedCS(3) ends least accurate.",
                "final accuracy of each other policy is above that of FedCS(3), in each panel",
                tuple(_gap(panel[label], panel["FedCS(3)"]) for panel in final for label in ("random", *variants)),
            ),
            Claim(
                f"6-{grid.key}-smaller-v",
                "Fig. 6",
                f"{grid.name}: RBCS-F with a smaller V achieves a higher final accuracy.",
                f"final accuracy of {fair} is above that of {fast}, in each panel",
                tuple(_gap(panel[fair], panel[fast]) for panel in final),
            ),
            Claim(
                f"6-{grid.key}-larger-v-slower",
                "Fig. 6",
                f"{grid.name}: RBCS-F with a higher penalty spends more rounds to reach a certain accuracy.",
                f"{target}: {fast} needs more than {fair}, in each panel",
                tuple(_gap(panel[fast], panel[fair]) for panel in reached),
            ),
            Claim(
                f"6-{grid.key}-rounds-fedcs",
                "Fig. 6",
                f"{grid.name}: RBCS-F generally outperforms FedCS(3) in round efficiency.",
                f"{target}: FedCS(3) needs more than each RBCS-F, in each panel",
                tuple(_gap(panel["FedCS(3)"], panel[label]) for panel in reached for label in variants),
            ),
        ]

    return claims


# -------------------------------------------------------------------- Fig. 7: accuracy per simulated time


def _draw_7(grid: Grid) -> Callable[[Runs], Product]:
    def draw(runs: Runs) -> Product:
        return accuracy_product(
            _panels(runs),
            title=f"{grid.name}: accuracy per simulated time",
            places=places(list(grid.policies)),
            x_label="simulated time, s",
            curve=curve_per_second,
        )

    return draw


def _claims_7(grid: Grid) -> Callable[[Runs], list[Claim]]:
    def claims(runs: Runs) -> list[Claim]:
        panels = _panels(runs).values()
        variants = list(grid.rbcs_f)
        early = [{label: times_to(group[label], _target(group, LOW)) for label in group} for group in panels]
        late = [{label: times_to(group[label], _target(group, HIGH)) for label in group} for group in panels]
        low, high = (f"simulated time to {share:.0%} of random's mean final accuracy" for share in (LOW, HIGH))
        found = [
            Claim(
                f"7-{grid.key}-fedcs-early",
                "Fig. 7",
                f"{grid.name}: FedCS(3) outperforms all other schemes when the accuracy is low.",
                f"{low}: FedCS(3) needs less than each other, in each panel",
                tuple(_gap(panel[label], panel["FedCS(3)"]) for panel in early for label in ("random", *variants)),
            ),
            Claim(
                f"7-{grid.key}-random-slowest",
                "Fig. 7",
                f"{grid.name}: random has the worst time efficiency when the accuracy is low.",
                f"{low}: random needs more than each other, in each panel",
                tuple(_gap(panel["random"], panel[label]) for panel in early for label in (*variants, "FedCS(3)")),
            ),
            Claim(
                f"7-{grid.key}-rbcs-f-faster",
                "Fig. 7",
                f"{grid.name}: RBCS-F is a significant improvement over random.",
                f"{high}: each RBCS-F needs at most 0.9 times random's, in each panel",
                tuple(_gap(0.9 * panel["random"], panel[label]) for panel in late for label in variants),
            ),
        ]
        if {20, 50} <= set(grid.penalties) and grid.key == "cifar-10":
            areas = [area_under([group["RBCS-F(20)"], group["RBCS-F(50)"]]) for group in panels]
            found.append(
                Claim(
                    f"7-{grid.key}-20-beats-50",
                    "Fig. 7",
                    f"{grid.name}: RBCS-F(20) outperforms RBCS-F(50) during the whole training process.",
                    "mean accuracy over simulated time, until the shorter run ends, in each panel",
                    tuple(_gap(area[0], area[1]) for area in areas),
                )
            )
        return found

    return claims


def _findings_7(grid: Grid) -> Callable[[Runs], list[str]]:
    def findings(runs: Runs) -> list[str]:
        sentences = []
        for panel, group in _panels(runs).items():
            target = _target(group, HIGH)
            random = times_to(group["random"], target)
            ratios = []
            for label in group:
                if label == "random":
                    continue
                missed = sum(not np.isfinite(run.time_to(target)) for run in group[label])
                ratio = mean_interval(times_to(group[label], target) / random)
                note = f", not reached by {missed} of {len(group[label])}" if missed else ""
                ratios.append(f"{label} {ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f}{note})")
            sentences.append(
                f"{grid.name}, {panel}, simulated time to {target:.1%} accuracy, in units of random's: "
                + ", ".join(ratios)
                + "."
            )
        return sentences

    return findings


# -------------------------------------------------------------------- sizes


def _figures(grids: Sequence[Grid]) -> dict[str, FigureRecipe]:
    figures = {}
    for grid in grids:
        fairness = _needs(grid, grid.selections, grid.fairness_partitions)
        policies = _needs(grid, grid.policies, list(grid.partitions))
        key = grid.key
        figures[f"5-{key}"] = FigureRecipe(
            f"Fig. 5, {grid.name}: impact of fairness", fairness, _draw_5(grid), _claims_5(grid), _findings_5(grid)
        )
        figures[f"6-{key}"] = FigureRecipe(
            f"Fig. 6, {grid.name}: accuracy per round", policies, _draw_6(grid), _claims_6(grid), _findings_5(grid)
        )
        figures[f"7-{key}"] = FigureRecipe(
            f"Fig. 7, {grid.name}: accuracy per training time",
            policies,
            _draw_7(grid),
            _claims_7(grid),
            _findings_7(grid),
        )
    return {name: figures[name] for name in sorted(figures)}


_LESS, _MORE, _IID = "gamma_1 = 0.2", "gamma_1 = 1", "IID"
_ALL = {_LESS: "dirichlet:0.2", _MORE: "dirichlet:1", _IID: "iid"}
_ENDS = {panel: _ALL[panel] for panel in (_LESS, _IID)}
_FASHION = ("fashion-mnist", "Fashion-MNIST", "fashion-mnist")
_CIFAR = ("cifar-10", "CIFAR-10", "cifar-10")
_SMALL_CIFAR = ("cifar-10", "CIFAR-10, small network", "cifar-10-small")


def _tiny(key: str, name: str, _: str) -> Grid:
    return Grid(key, f"digits for {name}", "digits", 6, _ENDS, (0.2,), (_LESS,), (20, 50), samples_per_client=30)


SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        _figures([_tiny(*_FASHION), _tiny(*_CIFAR)]),
        seeds=(0, 1),
        remark="Training has smoke size: 6 rounds on the handwritten digits in place of both data sets. Nothing "
        "follows from it.",
    ),
    "cpu": Scale(
        _figures(
            [
                Grid(*_FASHION, 50, _ENDS, (0.2, 1.0), tuple(_ENDS), (5, 20, 50), evaluate_every=2),
                Grid(*_SMALL_CIFAR, 150, _ENDS, (0.2,), tuple(_ENDS), (20, 50), evaluate_every=5),
            ]
        ),
        seeds=(0, 1, 2, 3, 4),
        remark="CPU size: the paper's network and 50 rounds on Fashion-MNIST; on CIFAR-10 150 rounds and a small "
        "network of ours, with a 36th of the arithmetic. The runs end before convergence: a final accuracy is the one "
        "after so many rounds.",
    ),
    "full": Scale(
        _figures(
            [
                Grid(*_FASHION, 500, _ALL, (0.2, 1.0, 5.0), tuple(_ALL), (1, 5, 20, 50)),
                Grid(*_CIFAR, 1000, _ALL, (0.2, 1.0, 5.0), tuple(_ALL), (1, 5, 20, 50)),
            ]
        ),
        seeds=(0, 1, 2, 3, 4),
        remark="Full size. The paper does not give its gammas, rounds, epochs, batch and learning rate (Choice A10).",
    ),
}
"""Paper A's training experiments by size."""
