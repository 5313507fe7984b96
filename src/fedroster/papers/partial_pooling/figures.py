"""Beyond paper B: partial pooling beside the paper's policies, what each of its parts does, and the price of rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl

from fedroster.core.arrays import FloatArray
from fedroster.environment.hidden_causes import CAUSES
from fedroster.papers.cocs.training import NETWORKS, Network
from fedroster.study.accuracy import accuracy_product, curve_per_second, final_accuracies, rounds_to, times_to
from fedroster.study.figures import Curve, curves_figure, intervals_figure, places
from fedroster.study.measures import Run, jain_index
from fedroster.study.paper import FigureRecipe, Need, Paper, Product, Runs, Scale
from fedroster.study.statistics import Claim, Interval, band, mean_interval

OURS = "partial-pooling"
FAIR = "partial-pooling:beta=0.05"
LABELS = {
    "oracle-p": "Oracle-p",
    OURS: "Partial pooling",
    FAIR: "the same, beta = 0.05",
    "cocs": "COCS",
    "linucb-pairs": "LinUCB per pair",
    "cucb-pairs": "CUCB per pair",
    "random": "Random",
}
_PLACES = places(list(LABELS.values()))

SCENARIOS = {
    "mnist": "MNIST network",
    "cifar-10": "CIFAR-10 network",
    "mnist-geometric": "MNIST network, moving clients",
    "cifar-10-geometric": "CIFAR-10 network, moving clients",
}
WANTED, WANTED_EARLY, EARLY, REGRET_SHARE = 0.97, 0.95, 200, 0.2
"""Shares of Oracle-p's utility that are wanted, in all and within the first rounds; share of COCS's regret."""


def _need(policy: str, scenario: str, settings: tuple[tuple[str, str], ...] = (), stretch: float = 1.0) -> Need:
    """Runs of a policy; the probabilities are computed for the one that looks at them."""
    unread = () if policy.startswith("oracle-p") else (("probabilities", "false"),)
    return Need(policy, scenario, (*settings, *unread), stretch)


def _utility(run: Run, rounds: int | None = None) -> float:
    return float(run.participants[:rounds].sum())


def _each(runs: Runs, label: str, measure: Callable[[Run], float] = _utility) -> FloatArray:
    return np.array([measure(run) for run in runs[label]])


def _share(runs: Runs, label: str, rounds: int | None = None) -> FloatArray:
    """Share of Oracle-p's utility, for each seed."""
    return _each(runs, label, lambda run: _utility(run, rounds)) / _each(
        runs, "oracle-p", lambda run: _utility(run, rounds)
    )


# -------------------------------------------------------------------- the four networks, changing and static


def _regret(runs: Runs) -> Product:
    best = np.stack([run.participants for run in runs["oracle-p"]])
    rounds = np.arange(1, best.shape[1] + 1, dtype=np.float64)
    kept = np.arange(9, rounds.shape[0], 10)
    curves, tables = {}, []
    for policy in LABELS:
        regret = (best - np.stack([run.participants for run in runs[policy]])).cumsum(axis=1)
        mean, low, high = band(regret[:, kept].astype(np.float64))
        if policy != "oracle-p":
            curves[LABELS[policy]] = Curve(rounds[kept], mean, low, high)
        columns = {"round": rounds[kept].astype(np.int64), "regret": mean, "regret_low": low, "regret_high": high}
        tables.append(pl.DataFrame({"policy": policy, **columns, "seeds": best.shape[0]}))
    figure = curves_figure(
        curves, x_label="edge round", y_label="regret against Oracle-p", title="Regret", places=_PLACES
    )
    return Product(figure, pl.concat(tables))


def _claims(name: str, title: str) -> Callable[[Runs], list[Claim]]:
    def claims(runs: Runs) -> list[Claim]:
        early = min(EARLY, runs[OURS][0].num_rounds)
        best, ours, cocs = (_each(runs, policy) for policy in ("oracle-p", OURS, "cocs"))
        parts = [
            ("share", f"at least {WANTED:.0%} of Oracle-p's utility", (_share(runs, OURS) - WANTED,)),
            (
                "early",
                f"at least {WANTED_EARLY:.0%} of it within the first {early} rounds",
                (_share(runs, OURS, early) - WANTED_EARLY,),
            ),
            ("regret", "at most a fifth of COCS's regret", (REGRET_SHARE * (best - cocs) - (best - ours),)),
            (
                "pairs",
                "more utility than LinUCB and CUCB per pair",
                tuple(ours - _each(runs, other) for other in ("linucb-pairs", "cucb-pairs")),
            ),
        ]
        return [
            Claim(
                f"{name}-{key}",
                title,
                f"{title}: partial pooling has {text}.",
                "updates in time, margin over what is wanted",
                tuple(tuple(advantage.tolist()) for advantage in advantages),
                ours=True,
            )
            for key, text, advantages in parts
        ]

    return claims


def _findings(runs: Runs) -> list[str]:
    def listed(rounds: int | None) -> str:
        shown = {LABELS[policy]: _share(runs, policy, rounds) for policy in LABELS if policy != "oracle-p"}
        return ", ".join(f"{label} {share.mean():.2%} (worst seed {share.min():.1%})" for label, share in shown.items())

    early = min(EARLY, runs[OURS][0].num_rounds)
    never = {policy: _each(runs, policy, lambda run: float(np.count_nonzero(run.chosen == 0))) for policy in LABELS}
    return [
        f"Of Oracle-p's utility: {listed(None)}.",
        f"Within the first {early} rounds: {listed(early)}.",
        "Clients that are never chosen, of 50: "
        + ", ".join(f"{LABELS[policy]} {count.mean():.1f}" for policy, count in never.items())
        + ".",
    ]


def _network(name: str, title: str, settings: tuple[tuple[str, str], ...] = ()) -> FigureRecipe:
    needs = {policy: _need(policy, f"cocs/{name}", settings) for policy in LABELS}
    key = f"{name}-static" if settings else name
    title = f"{title}, static resources" if settings else title
    return FigureRecipe(title, needs, _regret, _claims(key, title), _findings)


# -------------------------------------------------------------------- shares of Oracle-p's utility, in many worlds

STRETCH = 0.4  # of the rounds: what is compared here shows early, and there is much of it

_SIZE = (("num_clients", "10000"), ("num_servers", "50"))
WORLDS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "CIFAR-10, static": ("cocs/cifar-10", (("static_resources", "true"),)),
    "CIFAR-10, moving": ("cocs/cifar-10-geometric", ()),
    **{cause: ("hidden/mnist", (("cause", cause),)) for cause in CAUSES},
    "MNIST, large": ("cocs/mnist-geometric", _SIZE),
    "CIFAR-10, large": ("cocs/cifar-10-geometric", _SIZE),
}

VARIANTS = {
    "as it is": OURS,
    "no deviations": f"{OURS}:variances=(),memories=()",
    "no contexts": f"{OURS}:intervals=0",
    "straight lines": f"{OURS}:intervals=1",
    "nothing fades": f"{OURS}:memories=0",
    "all fades": f"{OURS}:memories=30",
    "one variance, 0.1": f"{OURS}:variances=0.1",
    "one variance, 1": f"{OURS}:variances=1",
    "no sharing of weight": f"{OURS}:share=0",
    "optimistic": f"{OURS}:optimism=1",
}
SETTINGS = {
    "as it is": OURS,
    "4 intervals": f"{OURS}:intervals=4",
    "16 intervals": f"{OURS}:intervals=16",
    "variances 0.05, 0.5": f"{OURS}:variances=0.05/0.5",
    "variances 0.2, 2": f"{OURS}:variances=0.2/2",
    "memory 15": f"{OURS}:memories=0/15",
    "memory 60": f"{OURS}:memories=0/60",
    "share 1e-4": f"{OURS}:share=0.0001",
    "share 1e-2": f"{OURS}:share=0.01",
}
COMPARED = {
    "Partial pooling": OURS,
    "without deviations": VARIANTS["no deviations"],
    "LinUCB per pair": "linucb-pairs",
    "CUCB per pair": "cucb-pairs",
}


def _world_needs(policies: Mapping[str, str], worlds: Sequence[str]) -> dict[str, Need]:
    return {
        f"{label} / {world}": _need(policy, *WORLDS[world], STRETCH)
        for world in worlds
        for label, policy in {"Oracle-p": "oracle-p", **policies}.items()
    }


def _shares(runs: Runs, label: str, world: str) -> FloatArray:
    return _each(runs, f"{label} / {world}") / _each(runs, f"Oracle-p / {world}")


def _worlds_product(
    panels: Mapping[str, Mapping[str, FloatArray]], names: tuple[str, str], title: str, unit: str
) -> Product:
    """One panel each; names of what the panels and the rows are."""
    intervals = {panel: {row: mean_interval(values) for row, values in rows.items()} for panel, rows in panels.items()}
    table = pl.DataFrame(
        [
            {names[0]: panel, names[1]: row, "share": i.mean, "low": i.low, "high": i.high}
            for panel, rows in intervals.items()
            for row, i in rows.items()
        ]
    )
    percent = {
        f"{panel}\n{unit}": {row: Interval(100 * i.mean, 100 * i.low, 100 * i.high) for row, i in rows.items()}
        for panel, rows in intervals.items()
    }
    return Product(intervals_figure(percent, title=title), table)


def _variants(title: str, policies: Mapping[str, str], worlds: Sequence[str]) -> FigureRecipe:
    def draw(runs: Runs) -> Product:
        panels = {world: {label: _shares(runs, label, world) for label in policies} for world in worlds}
        return _worlds_product(panels, ("world", "variant"), title, "%")

    def findings(runs: Runs) -> list[str]:
        worst = {label: {world: float(_shares(runs, label, world).mean()) for world in worlds} for label in policies}
        return [
            "Lowest mean share of Oracle-p's utility over these worlds: "
            + ", ".join(
                f"{label} {min(shares.values()):.1%} ({min(shares, key=lambda world: shares[world])})"
                for label, shares in worst.items()
            )
            + "."
        ]

    return FigureRecipe(title, _world_needs(policies, worlds), draw, findings=findings)


def _hidden() -> FigureRecipe:
    def draw(runs: Runs) -> Product:
        panels = {label: {cause: _shares(runs, label, cause) for cause in CAUSES} for label in COMPARED}
        return _worlds_product(panels, ("policy", "cause"), "Share of Oracle-p's utility", "%")

    def claims(runs: Runs) -> list[Claim]:
        def gaps(other: str, causes: Sequence[str]) -> tuple[tuple[float, ...], ...]:
            return tuple(
                tuple(_shares(runs, "Partial pooling", cause) - _shares(runs, other, cause)) for cause in causes
            )

        pairwise = tuple(gap for other in ("LinUCB per pair", "CUCB per pair") for gap in gaps(other, CAUSES))
        return [
            Claim(
                "hidden-pairs",
                "hidden causes",
                "Whatever the hidden cause, partial pooling has more utility than LinUCB and CUCB per pair.",
                "share of Oracle-p's utility, each cause",
                pairwise,
                ours=True,
            ),
            Claim(
                "hidden-deviations",
                "hidden causes",
                "Deviations help where a server, clients or pairs fail for hidden reasons.",
                "share of Oracle-p's utility, each cause, over the same policy without deviations",
                gaps("without deviations", ("server", "clients", "pairs", "turns")),
                ours=True,
            ),
            Claim(
                "hidden-share",
                "hidden causes",
                f"Whatever the hidden cause, partial pooling has {WANTED:.0%} of Oracle-p's utility.",
                f"share of Oracle-p's utility, each cause, in {STRETCH:.0%} of the rounds",
                tuple(tuple(_shares(runs, "Partial pooling", cause) - WANTED) for cause in CAUSES),
                ours=True,
            ),
        ]

    return FigureRecipe("Causes that no context tells", _world_needs(COMPARED, CAUSES), draw, claims)


# -------------------------------------------------------------------- 10,000 clients and 50 servers

LARGE = ("MNIST, large", "CIFAR-10, large")
"""Networks.  Oracle-p is not solved to the optimum there; what each of its rounds leaves open is counted against us."""
LARGE_POLICIES = {
    "Partial pooling": OURS,
    "LinUCB per pair": "linucb-pairs",
    "COCS": "cocs",
    "Random": "random",
}


def _large() -> FigureRecipe:
    def utility(runs: Runs, label: str, world: str, rounds: int | None = None) -> FloatArray:
        return _each(runs, f"{label} / {world}", lambda run: _utility(run, rounds))

    def best(runs: Runs, world: str, rounds: int | None = None) -> FloatArray:
        def bounded(run: Run) -> float:
            return float((run.participants / (1.0 - run.gap))[:rounds].sum())

        return _each(runs, f"Oracle-p / {world}", bounded)

    def shares(runs: Runs, label: str, world: str, rounds: int | None = None) -> FloatArray:
        return utility(runs, label, world, rounds) / best(runs, world, rounds)

    def length(runs: Runs) -> int:
        return next(iter(runs.values()))[0].num_rounds

    def early(runs: Runs) -> int:
        return min(EARLY, length(runs))

    def draw(runs: Runs) -> Product:
        panels = {
            f"{world.removesuffix(', large')}{when}": {
                label: shares(runs, label, world, rounds) for label in LARGE_POLICIES
            }
            for world in LARGE
            for when, rounds in (("", None), (f", first {early(runs)}", early(runs)))
        }
        return _worlds_product(panels, ("world", "policy"), "Share of the best expected utility", "%")

    def claims(runs: Runs) -> list[Claim]:
        def margin(world: str) -> FloatArray:
            most, ours = best(runs, world), utility(runs, "Partial pooling", world)
            return REGRET_SHARE * (most - utility(runs, "COCS", world)) - (most - ours)

        parts: list[tuple[str, str, list[FloatArray]]] = [
            (
                "share",
                f"at least {WANTED:.0%} of the best expected utility in {length(runs)} rounds",
                [shares(runs, "Partial pooling", world) - WANTED for world in LARGE],
            ),
            (
                "early",
                f"at least {WANTED_EARLY:.0%} of it within the first {early(runs)}",
                [shares(runs, "Partial pooling", world, early(runs)) - WANTED_EARLY for world in LARGE],
            ),
            ("regret", "at most a fifth of COCS's regret", [margin(world) for world in LARGE]),
            (
                "pairs",
                "more utility than LinUCB per pair",
                [utility(runs, "Partial pooling", world) - utility(runs, "LinUCB per pair", world) for world in LARGE],
            ),
        ]
        return [
            Claim(
                f"large-{key}",
                "10,000 clients, 50 servers",
                f"10,000 moving clients, 50 servers: on both networks partial pooling has {text}.",
                "margin over what is wanted, each network; the best is Oracle-p's utility over 1 - its gap",
                tuple(tuple(advantage.tolist()) for advantage in advantages),
                ours=True,
            )
            for key, text, advantages in parts
        ]

    def findings(runs: Runs) -> list[str]:
        def listed(rounds: int | None) -> str:
            return "; ".join(
                f"{world}: "
                + ", ".join(
                    f"{label} {found.mean():.2%} (worst seed {found.min():.1%})"
                    for label in LARGE_POLICIES
                    for found in [shares(runs, label, world, rounds)]
                )
                for world in LARGE
            )

        def proven(world: str) -> str:
            gap = np.stack([run.gap for run in runs[f"Oracle-p / {world}"]])
            return f"{world}: {gap.mean():.2%} on average, {gap.max():.2%} at most"

        return [
            "Oracle-p is not solved to the optimum here. All shares are of its utility over 1 - gap, round by round, "
            f"where the gap that it proved is, {'; '.join(map(proven, LARGE))}.",
            f"Of that: {listed(None)}.",
            f"Within the first {early(runs)} rounds: {listed(early(runs))}.",
        ]

    needs = {
        f"{label} / {world}": _need(policy, *WORLDS[world])
        for world in LARGE
        for label, policy in {"Oracle-p": "oracle-p:gap=0.0025", **LARGE_POLICIES}.items()
    }
    # Five seeds take most of an hour of one core.
    return FigureRecipe("10,000 clients, 50 servers", needs, draw, claims, findings, on_request=True)


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


def _rates(name: str, title: str) -> FigureRecipe:
    scenario = f"cocs/{name}"

    def rate_of(run: Run) -> float:
        return float(run.participation_rate.min())

    def price(runs: Runs, label: str) -> FloatArray:
        return 1.0 - _each(runs, label) / _each(runs, "free")

    def draw(runs: Runs) -> Product:
        rows = ["free", *RATES]
        panels = {
            "price, % of the utility": {row: mean_interval(100.0 * price(runs, row)) for row in rows},
            "lowest participation, %": {row: mean_interval(100.0 * _each(runs, row, rate_of)) for row in rows},
        }
        table = pl.DataFrame(
            [
                {
                    "variant": row,
                    "price": mean_interval(price(runs, row)).mean,
                    "lowest_rate": mean_interval(_each(runs, row, rate_of)).mean,
                    "lowest_rate_of_all_seeds": float(_each(runs, row, rate_of).min()),
                    "never_chosen": float(_each(runs, row, lambda run: float((run.chosen == 0).sum())).mean()),
                    "jain_index": float(_each(runs, row, lambda run: jain_index(run.chosen)).mean()),
                }
                for row in rows
            ]
        )
        return Product(intervals_figure(panels, title="The price of guaranteed rates"), table)

    def claims(runs: Runs) -> list[Claim]:
        label = "beta = 0.05, V = 5"
        return [
            Claim(
                f"rates-{name}-price",
                title,
                f"{title}: a rate of 0.05 for everybody costs less than 3 % of the utility.",
                "3 % minus the share of the utility that it costs, V = 5",
                (tuple(0.03 - price(runs, label)),),
                ours=True,
            ),
            Claim(
                f"rates-{name}-kept",
                title,
                f"{title}: the client that is chosen least lacks at most 8 participations of its share.",
                "participations over beta T - 8, at each beta, V = 5",
                tuple(
                    tuple(float(run.chosen.min()) - RATES[label][0] * run.num_rounds + 8.0 for run in runs[label])
                    for label in _KEPT
                ),
                ours=True,
            ),
        ]

    def findings(runs: Runs) -> list[str]:
        return [
            "Price of the guarantee, and the share of the rounds in which the client that is chosen least takes part: "
            + "; ".join(
                f"{row}: {price(runs, row).mean():.2%}, {_each(runs, row, rate_of).mean():.2%}" for row in RATES
            )
            + f". Without it the least chosen client has {_each(runs, 'free', rate_of).mean():.2%}."
        ]

    needs = {"free": _need(OURS, scenario)}
    needs |= {label: _need(policy, scenario) for label, (_, policy) in RATES.items()}
    return FigureRecipe(f"The price of rates, {title}", needs, draw, claims, findings)


# -------------------------------------------------------------------- with training

TRAINED = {
    "Oracle": "oracle",
    "Partial pooling": OURS,
    "the same, beta = 0.05": FAIR,
    "COCS": "cocs",
    "CUCB per pair": "cucb-pairs",
    "LinUCB per pair": "linucb-pairs",
    "Random": "random",
}
_TRAINED_PLACES = places(list(TRAINED))


def _training(network: Network, *, by_time: bool) -> FigureRecipe:
    def draw(runs: Runs) -> Product:
        panel = {network.name: runs}
        if by_time:
            return accuracy_product(
                panel,
                title="Accuracy over simulated time",
                places=_TRAINED_PLACES,
                x_label="simulated time, s",
                curve=curve_per_second,
            )
        return accuracy_product(panel, title="Accuracy by round", places=_TRAINED_PLACES, x_label="edge round")

    def findings(runs: Runs) -> list[str]:
        def listed(value: Callable[[str], str]) -> str:
            return "; ".join(f"{label} {value(label)}" for label in runs)

        def percent(label: str) -> str:
            i = mean_interval(final_accuracies(runs[label]))
            return f"{i.mean:.1%} ± {i.high - i.mean:.1%}"

        return [
            f"Final accuracy: {listed(percent)}.",
            f"Rounds to {network.target:.0%}: "
            + listed(lambda label: f"{rounds_to(runs[label], network.target).mean():.0f}")
            + "; simulated seconds: "
            + listed(lambda label: f"{times_to(runs[label], network.target).mean():,.0f}")
            + ". A run that misses the target counts with all its rounds.",
            "Updates in time in an edge round: "
            + listed(lambda label: f"{np.mean([run.participants.mean() for run in runs[label]]):.2f}")
            + "; clients never chosen: "
            + listed(lambda label: f"{np.mean([np.count_nonzero(run.chosen == 0) for run in runs[label]]):.1f}")
            + ".",
        ]

    def claims(runs: Runs) -> list[Claim]:
        final = {label: final_accuracies(group) for label, group in runs.items()}

        def above(label: str, others: Sequence[str]) -> tuple[tuple[float, ...], ...]:
            return tuple(tuple((final[label] - final[other]).tolist()) for other in others)

        fair, free = "the same, beta = 0.05", "Partial pooling"
        return [
            Claim(
                f"training-{network.key}-fair",
                network.name,
                f"{network.name}: with rates, partial pooling ends more accurate than without.",
                "final accuracy",
                above(fair, (free,)),
                ours=True,
            ),
            Claim(
                f"training-{network.key}-best",
                network.name,
                f"{network.name}: with rates, it ends more accurate than COCS, CUCB and LinUCB per pair and Random.",
                "final accuracy",
                above(fair, ("COCS", "CUCB per pair", "LinUCB per pair", "Random")),
                ours=True,
            ),
        ]

    needs = {label: network.need(policy) for label, policy in TRAINED.items()}
    title = f"Training on {network.name}, {'over simulated time' if by_time else 'by round'}"
    if by_time:
        return FigureRecipe(title, needs, draw)
    return FigureRecipe(title, needs, draw, claims, findings)


def _trained(*networks: Network) -> Mapping[str, FigureRecipe]:
    return {
        f"training-{network.key}{'-time' if by_time else ''}": _training(network, by_time=by_time)
        for network in networks
        for by_time in (False, True)
    }


SCALES: Mapping[str, Scale] = {
    "smoke": Scale(
        _trained(*NETWORKS["smoke"]),
        seeds=(0, 1),
        remark="Training has smoke size: 10 edge rounds on the handwritten digits. Nothing follows from it.",
    ),
    "cpu": Scale(
        _trained(*NETWORKS["cpu"]),
        seeds=(0, 1, 2, 3, 4),
        remark="CPU size, the same runs as in paper B's training experiments: MNIST has the paper's size; on CIFAR-10 "
        "there are 100 edge rounds in place of 1,880, a small network, and fewer samples and epochs.",
    ),
    "full": Scale(
        _trained(*NETWORKS["full"]),
        seeds=(0, 1, 2, 3, 4),
        remark="Full size, as for paper B.",
    ),
}
"""Training with the policy by size."""

PAPER = Paper(
    title="Partial pooling: beyond paper B",
    num_rounds=1000,
    figures={
        **{name: _network(name, title) for name, title in SCENARIOS.items()},
        "hidden": _hidden(),
        "rates": _rates("cifar-10", "CIFAR-10 network"),
        "rates-moving": _rates("cifar-10-geometric", "CIFAR-10 network, moving clients"),
        "ablation-hidden": _variants("Without each part, hidden causes", VARIANTS, ("clients", "exclusive", "turns")),
        **{
            f"{name}-static": _network(name, title, (("static_resources", "true"),))
            for name, title in SCENARIOS.items()
        },
        "ablation": _variants("Without each part", VARIANTS, ("CIFAR-10, static", "CIFAR-10, moving")),
        "sensitivity": _variants("Other settings", SETTINGS, ("CIFAR-10, moving", "clients", "exclusive")),
        "large": _large(),
    },
    scales=SCALES,
)
"""What is measured on partial pooling."""
