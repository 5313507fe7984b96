"""Whether fair selection costs accuracy where clients vanish and return: training in ``rbcs-f/volatile``.

Zaland et al. 2025 ("Edge AI in Highly Volatile Environments: Is Fairness Worth the Accuracy Trade-off?",
arXiv:2511.01737) report that fairer selection, RBCS-F among others, can train more slowly in volatile networks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fedroster.lab.pages.looks import looks_of
from fedroster.lab.papers.sizes import Experiment, figure_in_panels, numbers_in_panels, panels_of, target_of
from fedroster.lab.task import Task
from fedroster.lab.trials.accuracy import final_accuracies, times_to
from fedroster.lab.verdicts.paper import FigureRecipe, Runs
from fedroster.lab.verdicts.verdicts import POINT, Claim, Question, accuracy_gap, claims_of, time_gap, within

POLICIES = {
    "random": "random",
    "FLOOR": "floor",
    "RBCS-F(5)": "rbcs-f:V=5",
    "RBCS-F(50)": "rbcs-f:V=50",
    "FedCS(3)": "fedcs:deadline_s=3",
}
FAIR, GREEDY = ("FLOOR", "RBCS-F(5)"), "FedCS(3)"
CALM, VOLATILE = "clients there for 80 % of the rounds", "clients that vanish and return"
_NETWORKS = {CALM: "rbcs-f/table-1", VOLATILE: "rbcs-f/volatile"}
TARGET = 0.9
"""Share of random's mean final accuracy in the same network."""

_MNIST = Experiment("mnist", "MNIST", "rbcs-f/table-1", Task("mnist-logistic", "dirichlet:0.2"), 200, 10)
_DIGITS = replace(_MNIST, name="digits for MNIST", task=Task("digits", "iid", samples_per_client=30), rounds=6)
EXPERIMENTS = {"smoke": replace(_DIGITS, evaluate_every=1), "cpu": _MNIST, "full": replace(_MNIST, rounds=1000)}


def _claims(runs: Runs) -> list[Claim]:
    panels = panels_of(runs)
    final = {panel: {label: final_accuracies(own) for label, own in group.items()} for panel, group in panels.items()}
    goal = target_of(panels[VOLATILE], TARGET)
    times = {label: times_to(own, goal) for label, own in panels[VOLATILE].items()}
    here = final[VOLATILE]
    lag = {panel: {label: 100.0 * (own[label] - own["random"]) for label in FAIR} for panel, own in final.items()}
    target = f"simulated time to {TARGET:.0%} of random's mean final accuracy, where clients vanish and return"
    asked: dict[str, Question] = {
        "fair-costs-accuracy": (
            "Where clients vanish and return, fair selection ends less accurate than greedy selection.",
            f"final accuracy of {GREEDY} is above that of {' and of '.join(FAIR)}",
            [accuracy_gap(here[GREEDY], here[label]) for label in FAIR],
        ),
        "fair-is-slower": (
            "Where clients vanish and return, fair selection trains more slowly than greedy selection.",
            f"{target}: {' and '.join(FAIR)} need more than {GREEDY}",
            [time_gap(times[GREEDY], times[label]) for label in FAIR],
        ),
        "as-accurate-as-random": (
            "Where clients vanish and return, fair selection is as accurate as random selection.",
            f"final accuracy of {' and of '.join(FAIR)} is within {POINT:g} point of random's",
            [part for label in FAIR for part in within(lag[VOLATILE][label], -POINT, POINT)],
        ),
        "no-other-than-calm": (
            "Vanishing clients do not change what fair selection costs beside random selection.",
            f"the difference of final accuracy from random's changes by less than {POINT:g} point between the networks",
            [part for label in FAIR for part in within(lag[VOLATILE][label] - lag[CALM][label], -POINT, POINT)],
        ),
    }
    return claims_of("Zaland et al. 2025", asked, prefix="volatile-", ours=True)


def figure(size: str) -> FigureRecipe:
    """The recipe in a size."""
    experiment = EXPERIMENTS[size]
    needs = {
        f"{panel}|{label}": replace(experiment, scenario=scenario).need(policy)
        for panel, scenario in _NETWORKS.items()
        for label, policy in POLICIES.items()
    }
    title = f"{experiment.name}: accuracy per simulated time"
    draw = partial(figure_in_panels, looks=looks_of(POLICIES), title=title, over_time=True)
    title = "Training where clients vanish and return"
    return FigureRecipe(title, needs, draw, _claims, numbers_in_panels, on_request=True)
