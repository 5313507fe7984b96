"""Simulations: partial pooling beside the policies of Qu et al. 2021, and with rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from fedroster.lab.pages.charts import Figure, intervals
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import courses_figure, each, lacks_at_most, never_chosen, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Numbers, Runs
from fedroster.lab.verdicts.verdicts import Claim, Part, Question, claims_of, gain
from fedroster.networks.hidden_causes import CAUSES
from fedroster.types import FloatArray

OURS = "partial-pooling"
FAIR = "partial-pooling:beta=0.05"
TUNED = "linucb-pairs:alpha=0.1"
"""The strongest opponent: LinUCB per pair with the exploration that serves it best here."""
LABELS = {
    "oracle-p": "Oracle-p",
    OURS: "Partial pooling",
    FAIR: "the same, beta = 0.05",
    "cocs": "COCS",
    "linucb-pairs": "LinUCB per pair",
    TUNED: "LinUCB per pair, alpha = 0.1",
    "cucb-pairs": "CUCB per pair",
    "random": "Random",
}

SCENARIOS = {
    "mnist": "MNIST network",
    "cifar-10": "CIFAR-10 network",
    "mnist-geometric": "MNIST network, moving clients",
    "cifar-10-geometric": "CIFAR-10 network, moving clients",
}
WANTED, WANTED_EARLY, EARLY, REGRET_SHARE = 0.97, 0.95, 200, 0.2
"""Shares of Oracle-p's utility that are wanted, in all and within the first rounds; share of COCS's regret."""


def utility(run: Run, rounds: int | None = None) -> float:
    """Updates in time within the first rounds, or within all."""
    return float(run.participants[:rounds].sum())


def _share(runs: Runs, label: str, best: str = "oracle-p", rounds: int | None = None) -> FloatArray:
    """Share of Oracle-p's utility, for each seed."""
    ours, most = (each(runs, name, partial(utility, rounds=rounds)) for name in (label, best))
    return ours / most


# -------------------------------------------------------------------- the four networks, changing and static


def _regret(runs: Runs) -> Figure:
    updates = {policy: np.stack([run.participants for run in runs[policy]]) for policy in LABELS}
    best = updates.pop("oracle-p")
    return courses_figure(
        {policy: (best - values).cumsum(axis=1) for policy, values in updates.items()},
        LABELS,
        x_label="edge round",
        y_label="regret against Oracle-p",
        title="Regret",
        every=10,
    )


def _claims(key: str, title: str, runs: Runs) -> list[Claim]:
    early = min(EARLY, runs[OURS][0].num_rounds)
    best, ours, cocs = (each(runs, policy, utility) for policy in ("oracle-p", OURS, "cocs"))
    wanted: dict[str, tuple[str, Sequence[Part | FloatArray]]] = {
        "share": (f"at least {WANTED:.0%} of Oracle-p's utility", [_share(runs, OURS) - WANTED]),
        "early": (
            f"at least {WANTED_EARLY:.0%} of it within the first {early} rounds",
            [_share(runs, OURS, rounds=early) - WANTED_EARLY],
        ),
        "regret": ("at most a fifth of COCS's regret", [REGRET_SHARE * (best - cocs) - (best - ours)]),
        "pairs": (
            "more utility than LinUCB and CUCB per pair",
            [gain(ours, each(runs, other, utility), "updates") for other in ("linucb-pairs", "cucb-pairs")],
        ),
        "tuned": (
            "more utility than LinUCB per pair with alpha = 0.1",
            [gain(ours, each(runs, TUNED, utility), "updates")],
        ),
    }
    measure = "updates in time, margin over what is wanted"
    asked: dict[str, Question] = {
        name: (f"partial pooling has {text}.", measure, parts) for name, (text, parts) in wanted.items()
    }
    return claims_of(title, asked, prefix=f"{key}-", about=f"{title}: ", ours=True)


def _numbers(runs: Runs) -> Numbers:
    early = min(EARLY, runs[OURS][0].num_rounds)
    spans = {"of Oracle-p's utility, %": None, f"within the first {early} rounds, %": early}
    return {
        **{what: {label: 100.0 * _share(runs, label, rounds=span) for label in runs} for what, span in spans.items()},
        **of_each({"clients never chosen": never_chosen}, runs),
    }


def _network(name: str, title: str, settings: tuple[tuple[str, str], ...] = ()) -> FigureRecipe:
    needs = {policy: Need(policy, f"cocs/{name}", settings) for policy in LABELS}
    key = f"{name}-static" if settings else name
    title = f"{title}, static resources" if settings else title
    return FigureRecipe(title, needs, _regret, partial(_claims, key, title), _numbers)


# -------------------------------------------------------------------- causes that no context tells

STRETCH = 0.4  # of the rounds: what is compared here shows early, and there is much of it

COMPARED = {
    "Partial pooling": OURS,
    "without deviations": f"{OURS}:variances=(),memories=()",
    "LinUCB per pair": "linucb-pairs",
    LABELS[TUNED]: TUNED,
    "CUCB per pair": "cucb-pairs",
}


def _shares(runs: Runs, label: str, world: str) -> FloatArray:
    return _share(runs, f"{label} / {world}", f"Oracle-p / {world}")


def shares_figure(panels: Mapping[str, Mapping[str, FloatArray]], title: str) -> Figure:
    """Shares with their intervals, a panel for each group."""
    percent = {
        f"{panel}\n%": {row: mean_interval(100.0 * values) for row, values in rows.items()}
        for panel, rows in panels.items()
    }
    return intervals(percent, title=title)


def _hidden() -> FigureRecipe:
    def draw(runs: Runs) -> Figure:
        panels = {label: {cause: _shares(runs, label, cause) for cause in CAUSES} for label in COMPARED}
        return shares_figure(panels, "Share of Oracle-p's utility")

    def claims(runs: Runs) -> list[Claim]:
        def gaps(other: str, causes: Sequence[str]) -> list[Part]:
            return [gain(_shares(runs, "Partial pooling", cause), _shares(runs, other, cause)) for cause in causes]

        asked: dict[str, Question] = {
            "pairs": (
                "Whatever the hidden cause, partial pooling has more utility than LinUCB, with alpha = 1 and 0.1, and "
                "CUCB per pair.",
                "share of Oracle-p's utility, each cause",
                [part for other in ("LinUCB per pair", LABELS[TUNED], "CUCB per pair") for part in gaps(other, CAUSES)],
            ),
            "deviations": (
                "Deviations help where a server, clients or pairs fail for hidden reasons.",
                "share of Oracle-p's utility, each cause, over the same policy without deviations",
                gaps("without deviations", ("server", "clients", "pairs", "turns")),
            ),
            "share": (
                f"Whatever the hidden cause, partial pooling has {WANTED:.0%} of Oracle-p's utility.",
                f"share of Oracle-p's utility, each cause, in {STRETCH:.0%} of the rounds",
                [_shares(runs, "Partial pooling", cause) - WANTED for cause in CAUSES],
            ),
        }
        return claims_of("hidden causes", asked, prefix="hidden-", ours=True)

    needs = {
        f"{label} / {cause}": Need(policy, "hidden/mnist", (("cause", cause),), STRETCH)
        for cause in CAUSES
        for label, policy in {"Oracle-p": "oracle-p", **COMPARED}.items()
    }
    return FigureRecipe("Causes that no context tells", needs, draw, claims)


# -------------------------------------------------------------------- the price of rates

RATES = {
    "beta = 0.02, V = 5": (0.02, f"{OURS}:beta=0.02"),
    "beta = 0.05, V = 5": (0.05, FAIR),
    "beta = 0.08, V = 5": (0.08, f"{OURS}:beta=0.08"),
    "beta = 0.05, V = 1": (0.05, f"{OURS}:beta=0.05,V=1"),
    "beta = 0.05, V = 20": (0.05, f"{OURS}:beta=0.05,V=20"),
}
"""Guaranteed rate and policy by label; the first three keep the default V = 5."""
_KEPT = tuple(RATES)[:3]
_RATED = {"cifar-10": "", "cifar-10-geometric": "\nmoving"}  # networks, and what their panels add


def _rates() -> FigureRecipe:
    rows = {"free": OURS} | {label: policy for label, (_, policy) in RATES.items()}

    def lowest(runs: Runs, name: str, row: str) -> FloatArray:
        return each(runs, f"{row} / {name}", lambda run: float(run.chosen.min() / run.num_rounds))

    def price(runs: Runs, name: str, row: str) -> FloatArray:
        return 1.0 - each(runs, f"{row} / {name}", utility) / each(runs, f"free / {name}", utility)

    def draw(runs: Runs) -> Figure:
        panels = {
            f"{what}{where}": {row: mean_interval(100.0 * measure(runs, name, row)) for row in rows}
            for what, measure in (("price, % of utility", price), ("lowest rate, %", lowest))
            for name, where in _RATED.items()
        }
        return intervals(panels, title="The price of guaranteed rates")

    def claims(runs: Runs) -> list[Claim]:
        def of(name: str) -> list[Claim]:
            asked: dict[str, Question] = {
                "price": (
                    "a rate of 0.05 for every client costs less than 3 % of the utility.",
                    "3 % minus the share of the utility that it costs, V = 5",
                    [0.03 - price(runs, name, "beta = 0.05, V = 5")],
                ),
                "kept": (
                    "the client that is chosen least lacks at most 8 participations of its share.",
                    "most that a client lacks of floor(beta t), after every round t, at each beta, V = 5",
                    [lacks_at_most(8, runs[f"{label} / {name}"], RATES[label][0]) for label in _KEPT],
                ),
            }
            title = SCENARIOS[name]
            return claims_of(title, asked, prefix=f"rates-{name}-", about=f"{title}: ", ours=True)

        return [claim for name in _RATED for claim in of(name)]

    def numbers(runs: Runs) -> Numbers:
        measured = {"price, % of utility": price, "lowest rate, %": lowest}
        places = [(row, name) for name in _RATED for row in rows]
        return {
            what: {f"{row} / {name}": 100.0 * measure(runs, name, row) for row, name in places}
            for what, measure in measured.items()
        }

    needs = {f"{row} / {name}": Need(policy, f"cocs/{name}") for name in _RATED for row, policy in rows.items()}
    return FigureRecipe("The price of rates", needs, draw, claims, numbers)


FIGURES: Mapping[str, FigureRecipe] = {
    **{name: _network(name, title) for name, title in SCENARIOS.items()},
    "hidden": _hidden(),
    "rates": _rates(),
    **{f"{name}-static": _network(name, title, (("static_resources", "true"),)) for name, title in SCENARIOS.items()},
}
"""Recipes by the names that the command line uses."""
