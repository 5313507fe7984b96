"""FLOOR and RBCS-F on variants of the network of Huang et al. 2021, and on 1,000 devices that follow traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from fedroster.lab.pages.charts import Figure
from fedroster.lab.pages.pareto import pareto_figure
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import each, lacks_at_most, least_chosen, mean_time, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Runs
from fedroster.lab.verdicts.verdicts import Claim, Question, claims_of, time_gap

BETA = 0.15
PENALTIES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 5.0, 20.0)
WANTED = 0.9
"""Part of RBCS-F's time, at the same lowest participation, that is wanted at most."""

TABLE_1 = "rbcs-f/table-1"
LABELS = {
    "FLOOR": "floor",
    "FLOOR, c = 1": "floor:slack=1",
    "FLOOR, c = 0": "floor:slack=0",
    **{f"RBCS-F({penalty:g})": f"rbcs-f:V={penalty:g}" for penalty in PENALTIES},
    "random": "random",
}
_SLACKS = {"FLOOR": 2, "FLOOR, c = 1": 1, "FLOOR, c = 0": 0}
_RBCS_F = [label for label in LABELS if label.startswith("RBCS-F")]

WORLDS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "table-1": ("Table 1's network", ()),
    "half-normal": ("half-normal scatter", (("noise_shape", "half-normal"),)),
    "log-normal": ("log-normal scatter", (("noise_shape", "log-normal"),)),
    "bimodal": ("bimodal scatter", (("noise_shape", "bimodal"),)),
    "drift": ("drifting speeds", (("drift", "0.7"),)),
    "churn": ("clients that join and leave", (("churn", "0.3"),)),
    "two-classes": (
        "two classes, the slow ones ten times slower",
        (("train_time_s", "1/10"), ("cold_start_s", "1/1"), ("snr", "100/100")),
    ),
    "seldom": ("clients that are there every other round", (("availability", "0.5"),)),
}
"""Title and changed settings of each variant of the network of Huang et al. 2021."""


def least_available(run: Run) -> float:
    """Least share of its available rounds in which a client took part."""
    there = run.available > 0
    return float((run.chosen[there] / run.available[there]).min())


def rival_of(runs: Runs, ours: str, rivals: Sequence[str], measure: Callable[[Run], float]) -> str:
    """RBCS-F at the least V whose lowest participation is, in the mean, no higher than ours; else at the highest V.

    So the rival is as fast as it gets without being fairer than we are.
    """
    ours_least = each(runs, ours, measure).mean()
    # V ascends, and with it speed.
    return next((label for label in rivals if each(runs, label, measure).mean() <= ours_least), rivals[-1])


def _draw(measure: Callable[[Run], float], y_label: str, title: str, runs: Runs) -> Figure:
    points = {
        label: (mean_interval(each(runs, label, mean_time)), mean_interval(each(runs, label, measure)))
        for label in runs
    }
    ours = [label for label in runs if label.startswith("FLOOR")]
    return pareto_figure(points, "mean round time, s", y_label, title=title, focus=ours)


# -------------------------------------------------------------------- variants of the network


def _world(key: str) -> FigureRecipe:
    title, settings = WORLDS[key]
    churn = key == "churn"
    measure = least_available if churn else least_chosen
    y_label = "lowest share of its available rounds" if churn else "participations of the least served client"

    def claims(runs: Runs) -> list[Claim]:
        rival = rival_of(runs, "FLOOR", _RBCS_F, measure)
        asked: dict[str, Question] = {
            "faster": (
                "FLOOR takes at least 10 % less time than RBCS-F at the V of the same lowest participation.",
                "0.9 times the mean round time of RBCS-F, at the least V that is no fairer, minus FLOOR's",
                [time_gap(each(runs, "FLOOR", mean_time), each(runs, rival, mean_time), at_most=WANTED)],
            ),
            "guarantee": (
                "no client ever lacks more than c of its floor(beta A) participations, A being the rounds so far in "
                "which it was available.",
                "most that a client lacks of floor(beta A), after every round; c = 2, 1, 0",
                [lacks_at_most(slack, runs[label], BETA, of_available=True) for label, slack in _SLACKS.items()],
            ),
        }
        return claims_of(title, asked, prefix=f"{key}-", about=f"{title}: ", ours=True)

    numbers = {"mean round, s": mean_time, y_label: measure}
    needs = {label: Need(policy, TABLE_1, settings) for label, policy in LABELS.items()}
    return FigureRecipe(title, needs, partial(_draw, measure, y_label, title), claims, partial(of_each, numbers))


# -------------------------------------------------------------------- traces of devices

_TRACE_PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def _served(run: Run) -> float:
    """Mean share of their available rounds that the tenth of the clients take part in that has least of it."""
    seen = run.available >= 25
    share = np.sort(run.chosen[seen] / run.available[seen])
    return float(share[: max(share.shape[0] // 10, 1)].mean())


def _traces() -> FigureRecipe:
    ours = {
        "FLOOR, 8 % of available rounds": "floor:beta=0.08,share_of=available",
        "FLOOR, 5 % of available rounds": "floor:beta=0.05,share_of=available",
        "FLOOR, 2 % of available rounds": "floor:beta=0.02,share_of=available",
        "FLOOR, 1.2 % of all rounds": "floor:beta=0.012",
    }
    theirs = {f"RBCS-F({v:g})": f"rbcs-f:V={v:g},beta=0.012" for v in _TRACE_PENALTIES}
    policies = {**ours, **theirs, "random": "random"}
    title = "1,000 devices that follow traces"

    def claims(runs: Runs) -> list[Claim]:
        asked: dict[str, Question] = {}
        for place, label in enumerate(ours, start=1):
            rival = rival_of(runs, label, list(theirs), _served)
            asked[f"faster-{place}"] = (
                f"{label}, takes at least 10 % less time than RBCS-F at the V that serves its least served tenth no "
                "better.",
                "0.9 times the mean round time of RBCS-F, at that V, minus FLOOR's",
                [time_gap(each(runs, label, mean_time), each(runs, rival, mean_time), at_most=WANTED)],
            )
        asked["guarantee"] = (
            "no client ever lacks more than 2 of its share of the rounds in which it was available.",
            "most that a client lacks of floor(beta A) after every round, A being the rounds so far in which it was "
            "available, at 8 % and 5 %; N > m floor(1 / beta): outside the theorem",
            [
                lacks_at_most(2, runs[label], share, of_available=True)
                for label, share in zip(ours, (0.08, 0.05), strict=False)
            ],
        )
        return claims_of(title, asked, prefix="traces-", about=f"{title}: ", ours=True)

    needs = {label: Need(policy, "traces/devices", (("num_clients", "1000"),)) for label, policy in policies.items()}
    y_label = "share of their available rounds, least served tenth"
    numbers = partial(of_each, {"mean round, s": mean_time, f"{y_label}, %": lambda run: 100.0 * _served(run)})
    notes = [
        "The clock moves with the rounds, so policies see the same devices at different times. Clients that were "
        "available in fewer than 25 rounds are not in the tenth."
    ]
    return FigureRecipe(title, needs, partial(_draw, _served, y_label, title), claims, numbers, notes)


FIGURES: Mapping[str, FigureRecipe] = {key: _world(key) for key in WORLDS}
"""Recipes of the variants by the names that the command line uses."""
TRACES = _traces()
