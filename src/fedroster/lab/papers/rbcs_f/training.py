"""Training experiments of Huang et al. 2021: Figs. 5, 6 and 7 (Section 6.2), in three sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedroster.lab.pages.charts import Figure, intervals
from fedroster.lab.pages.looks import in_order, looks_of
from fedroster.lab.papers.sizes import (
    FLAT,
    FLAT_CIFAR_10,
    FLAT_PARTITIONS,
    Experiment,
    figure_in_panels,
    numbers_in_panels,
    panels_of,
    scales,
    target_of,
)
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.accuracy import area_under, final_accuracies, rounds_to, times_to
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import each
from fedroster.lab.verdicts.paper import FigureRecipe, Runs
from fedroster.lab.verdicts.verdicts import (
    POINT,
    Claim,
    Part,
    Question,
    accuracy_gap,
    claims_of,
    threshold,
    time_gap,
    within,
)
from fedroster.types import FloatArray

RANDOM, FEDCS = "random", "fedcs:deadline_s=3"
CLOSE = 2.0
"""Points of accuracy within which one policy is "close" to another."""
HIGH, LOW = 0.9, 0.6
"""Targets for rounds and times to an accuracy: shares of random's mean final accuracy in the same panel."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The experiments on one data set in one size.

    Attributes:
        experiment: What is trained.
        panels: Titles of the partitions, from the least to the most alike clients.
        gamma_2: Concentrations of Fig. 5, ascending; uniform selection, their limit, comes beside them.  Without any
            there is no Fig. 5.
        fairness_panels: Those of Fig. 5.
        penalties: V of Figs. 6 and 7, ascending.
        on_request: Whether its figures are made only when they are named.
    """

    experiment: Experiment
    panels: Sequence[str]
    gamma_2: Sequence[float]
    fairness_panels: Sequence[str]
    penalties: Sequence[int]
    on_request: bool = False

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


# -------------------------------------------------------------------- claims


def _jitter(run: Run) -> float:
    """How much accuracy jumps from test to test, over the last half of the run."""
    values = run.accuracy[run.tested - 1]
    return float(np.abs(np.diff(values[values.shape[0] // 2 :])).mean())


def _in_each(
    panels: Mapping[str, Mapping[str, FloatArray]],
    labels: Sequence[str],
    part: Callable[[Mapping[str, FloatArray], str], Part],
) -> dict[str, Part]:
    """A part for each of these policies in each panel."""
    return {f"{name}|{label}": part(panel, label) for name, panel in panels.items() for label in labels}


def _claims_5(grid: Grid, runs: Runs) -> list[Claim]:
    panels = panels_of(runs)
    groups = list(panels.values())
    least, *_, most = grid.selections
    asked: dict[str, Question] = {
        "even-is-accurate": (
            "a higher gamma_2, a fairer selection, gives a higher final accuracy.",
            f"final accuracy of uniform selection is above that of {least}, in each panel",
            {
                f"{name}|": accuracy_gap(final_accuracies(group[most]), final_accuracies(group[least]))
                for name, group in panels.items()
            },
        )
    }
    if len(groups) > 1:
        effect = [100.0 * (final_accuracies(group[most]) - final_accuracies(group[least])) for group in groups]
        asked["same-effect"] = (
            "gamma_1 has little or no impact on the effect of fairness.",
            f"how far {most} selection ends above {least} differs by less than {POINT:g} point between the first panel "
            "and the last",
            within(effect[0] - effect[-1], -POINT, POINT),
        )
        jitter = [each(group, most, _jitter) for group in groups]
        rounds = [rounds_to(group[most], target_of(group, HIGH)) for group in groups]
        asked["alike-is-calm"] = (
            "when gamma_1 decreases, there are more jitters and more rounds before convergence.",
            "uniform selection, first panel above last: mean change of accuracy from test to test over the "
            f"last half, and rounds to {HIGH:.0%} of the panel's final accuracy",
            [jitter[0] - jitter[-1], time_gap(rounds[-1], rounds[0], "rounds")],
        )
    return grid.experiment.claims("5", "Fig. 5", asked)


def _claims_6(grid: Grid, runs: Runs) -> list[Claim]:
    panels = panels_of(runs).items()
    fair, *_, fast = variants = list(grid.rbcs_f)
    final = {name: {label: final_accuracies(group[label]) for label in group} for name, group in panels}
    reached = {
        name: {label: rounds_to(group[label], target_of(group, HIGH)) for label in group} for name, group in panels
    }
    target = f"rounds to {HIGH:.0%} of random's mean final accuracy"
    asked: dict[str, Question] = {
        "random-first": (
            "random yields the best final accuracy.",
            "final accuracy of random is above that of each other policy, in each panel",
            _in_each(final, (*variants, "FedCS(3)"), lambda panel, label: accuracy_gap(panel["random"], panel[label])),
        ),
        "fedcs-behind": (
            "FedCS(3) does not promise an accuracy commensurate with random's.",
            "final accuracy of random is above that of FedCS(3), in each panel",
            _in_each(final, ("random",), lambda panel, label: accuracy_gap(panel[label], panel["FedCS(3)"])),
        ),
        "close-to-random": (
            "The final accuracy of RBCS-F remains close to random's.",
            f"final accuracy of {fair} is within {CLOSE:g} points of that of random, in each panel",
            {
                f"{name}|{limit} limit": part
                for name, panel in final.items()
                for limit, part in zip(
                    ("lower", "upper"), within(100.0 * (panel[fair] - panel["random"]), -CLOSE, CLOSE), strict=True
                )
            },
        ),
        "smaller-v": (
            "RBCS-F with a smaller V achieves a higher final accuracy.",
            f"final accuracy of {fair} is above that of {fast}, in each panel",
            {f"{name}|": accuracy_gap(panel[fair], panel[fast]) for name, panel in final.items()},
        ),
        "larger-v-slower": (
            "RBCS-F with a higher penalty spends more rounds to reach a certain accuracy.",
            f"{target}: {fast} needs more than {fair}, in each panel",
            {f"{name}|": time_gap(panel[fair], panel[fast], "rounds") for name, panel in reached.items()},
        ),
        "rounds-fedcs": (
            "RBCS-F generally outperforms FedCS(3) in round efficiency.",
            f"{target}: FedCS(3) needs more than each RBCS-F, in each panel",
            _in_each(reached, variants, lambda panel, label: time_gap(panel[label], panel["FedCS(3)"], "rounds")),
        ),
    }
    return grid.experiment.claims("6", "Fig. 6", asked, elsewhere={"close-to-random": "Contribution 4"})


def _claims_7(grid: Grid, runs: Runs) -> list[Claim]:
    panels = panels_of(runs)
    variants = list(grid.rbcs_f)
    early, late = (
        {
            name: {label: times_to(group[label], target_of(group, share)) for label in group}
            for name, group in panels.items()
        }
        for share in (LOW, HIGH)
    )
    low, high = (f"simulated time to {share:.0%} of random's mean final accuracy" for share in (LOW, HIGH))
    asked: dict[str, Question] = {
        "fedcs-early": (
            "FedCS(3) outperforms all other schemes when the accuracy is low.",
            f"{low}: FedCS(3) needs less than each other, in each panel",
            _in_each(early, ("random", *variants), lambda panel, label: time_gap(panel["FedCS(3)"], panel[label])),
        ),
        "random-slowest": (
            "random has the worst time efficiency when the accuracy is low.",
            f"{low}: random needs more than each other, in each panel",
            _in_each(early, (*variants, "FedCS(3)"), lambda panel, label: time_gap(panel[label], panel["random"])),
        ),
        "rbcs-f-faster": (
            "RBCS-F is a significant improvement over random.",
            f"{high}: each RBCS-F needs at most 0.9 times random's, in each panel",
            _in_each(late, variants, lambda panel, label: time_gap(panel[label], panel["random"], at_most=0.9)),
        ),
    }
    if {20, 50} <= set(grid.penalties) and grid.experiment.key.startswith("cifar-10"):
        areas = {name: area_under([group["RBCS-F(20)"], group["RBCS-F(50)"]]) for name, group in panels.items()}
        asked["20-beats-50"] = (
            "RBCS-F(20) outperforms RBCS-F(50) during the whole training process.",
            "mean accuracy over simulated time, until the shorter run ends, in each panel",
            {f"{name}|": threshold(100.0 * (area[0] - area[1]), "points") for name, area in areas.items()},
        )
    return grid.experiment.claims("7", "Fig. 7", asked)


# -------------------------------------------------------------------- Fig. 5 on both data sets


def _effects(grids: Sequence[Grid], runs: Runs) -> dict[str, dict[str, FloatArray]]:
    """By data set and panel, how far even selection ends above the least even one, shape (seeds,), in [-1, 1]."""
    least, *_, most = grids[0].selections
    return {
        grid.experiment.name: {
            panel: final_accuracies(runs[f"{grid.experiment.key}, {panel}|{most}"])
            - final_accuracies(runs[f"{grid.experiment.key}, {panel}|{least}"])
            for panel in grids[0].fairness_panels
        }
        for grid in grids
    }


def _draw_effects(grids: Sequence[Grid], runs: Runs) -> Figure:
    effects = _effects(grids, runs)
    label = "uniform selection above the least even one, points of final accuracy"
    shown = {
        f"{name}, {panel}": mean_interval(100.0 * values)
        for name, panels in effects.items()
        for panel, values in panels.items()
    }
    return intervals({label: shown}, title="How much fairness matters", looks=in_order(list(shown)))


def _claims_on_data_sets(grids: Sequence[Grid], runs: Runs) -> list[Claim]:
    """Whether fairness matters more in the second experiment, whose task is harder."""
    easy, hard = _effects(grids, runs).values()
    asked: dict[str, Question] = {
        "harder-needs-fairness": (
            "The effect of fairness is more conspicuous on CIFAR-10 than on Fashion-MNIST.",
            "how far uniform selection ends above the least even one is larger on CIFAR-10, in each panel",
            {f"{panel}|": accuracy_gap(hard[panel], easy[panel]) for panel in easy},
        )
    }
    changed = [f"{grid.experiment.name}: {grid.experiment.changed}" for grid in grids if grid.experiment.changed]
    return claims_of("Section 6.2.2", asked, prefix="5-", changed="; ".join(changed))


def _figure_5_effect(grids: Sequence[Grid]) -> FigureRecipe:
    least, *_, most = grids[0].selections.items()
    needs = {
        f"{grid.experiment.key}, {label}": need
        for grid in grids
        for label, need in grid.experiment.in_panels(dict([least, most]), grid.fairness_panels).items()
    }
    return FigureRecipe(
        "Fig. 5: the effect of fairness on both data sets",
        needs,
        partial(_draw_effects, grids),
        partial(_claims_on_data_sets, grids),
    )


# -------------------------------------------------------------------- sizes

_ALL = tuple(FLAT_PARTITIONS)
_ENDS = (_ALL[0], _ALL[-1])
_GRIDS = {
    "smoke": [Grid(experiment, _ENDS, (0.2,), _ENDS[:1], (20, 50)) for experiment in FLAT["smoke"]],
    "cpu": [
        Grid(FLAT["cpu"][0], _ENDS, (0.2, 1.0), _ALL, (5, 50)),
        Grid(FLAT["cpu"][1], _ENDS, (0.2, 1.0), _ALL, (20, 50)),
        Grid(FLAT_CIFAR_10, _ALL[1:2], (), (), (20, 50), on_request=True),
    ],
    "full": [Grid(experiment, _ALL, (0.2, 1.0, 5.0), _ALL, (1, 5, 20, 50)) for experiment in FLAT["full"]],
}


def _figures(size: str) -> dict[str, FigureRecipe]:
    figures = {}
    for grid in _GRIDS[size]:
        key, name = grid.experiment.key, grid.experiment.name
        even, policies = looks_of(grid.selections), looks_of(grid.policies)
        fairness = grid.experiment.in_panels(grid.selections, grid.fairness_panels)
        needs = grid.experiment.in_panels(grid.policies, grid.panels)
        for figure, title, shown, needed, looks, claims in (
            ("5", "impact of fairness", "how even the selection is", fairness, even, _claims_5),
            ("6", "accuracy per round", "accuracy per round", needs, policies, _claims_6),
            ("7", "accuracy per training time", "accuracy per simulated time", needs, policies, _claims_7),
        ):
            if not needed:
                continue
            draw = partial(figure_in_panels, looks=looks, title=f"{name}: {shown}", over_time=figure == "7")
            figures[f"{figure}-{key}"] = FigureRecipe(
                f"Fig. {figure}, {name}: {title}",
                needed,
                draw,
                partial(claims, grid),
                numbers_in_panels,
                on_request=grid.on_request,
            )
    figures["5-effect"] = _figure_5_effect(_GRIDS[size][:2])
    return {name: figures[name] for name in sorted(figures)}


SCALES = scales(_figures, cpu_seeds=range(10))
"""Figs. 5, 6 and 7 by size."""
