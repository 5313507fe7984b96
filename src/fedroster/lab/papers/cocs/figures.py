"""Simulations of Qu et al. 2021: utilities, regret, participants, budgets, deadlines; Figs. 3, 4b, 4d, 4f, 5 and 6."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from fedroster.bounds import delta_regret
from fedroster.catalogue import make_scenario
from fedroster.lab.pages.charts import Axes, Curve, Figure, lines
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.statistics import band
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import courses_figure, each, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Numbers, Runs
from fedroster.lab.verdicts.verdicts import Claim, Part, Question, claims_of, gain, threshold, within
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.policies import CUCB, LinUCB
from fedroster.types import FloatArray

EPSILON = 0.3
"""Error parameter of Fast Lazy Greedy in section VI-D."""
MNIST = "cocs/mnist"
CIFAR_10 = "cocs/cifar-10"
CIFAR_STRETCH = 1.88  # 1,880 edge rounds beside MNIST's 1,000 (Choice B8)
SCALED = "cocs:h_T=2,scale=0.02"
CUCB_PAIRS = "cucb-pairs:gap=0.002"
"""Proving the last 0.2 % of its optimum takes ten times as long on the CIFAR-10 network."""
LABELS = {
    "oracle": "Oracle",
    "oracle-p": "Oracle-p",
    "cocs": "COCS",
    SCALED: "COCS, h_T = 2, K(t) x 0.02",
    "cucb": "CUCB",
    "linucb": "LinUCB",
    "random": "Random",
    CUCB_PAIRS: "CUCB per pair",
    "linucb-pairs": "LinUCB per pair",
}
_GREEDY = f"solver=fast-lazy-greedy,utility=square-root,epsilon={EPSILON:g}"
ORACLE_GREEDY, COCS_GREEDY = f"oracle:{_GREEDY}", f"cocs:{_GREEDY}"
"""Section VI-D solves P3 by Fast Lazy Greedy, for Oracle too."""
ALL_LABELS = {**LABELS, ORACLE_GREEDY: "Oracle, Fast Lazy Greedy", COCS_GREEDY: "COCS, Fast Lazy Greedy"}
STATIC = (("static_resources", "true"),)
NETWORKS = {"mnist": "MNIST", "cifar-10": "CIFAR-10"}
ON_NETWORK = {name: f"{title} network: " for name, title in NETWORKS.items()}
"""How a claim says which network it is about; a claim on training begins with the data set alone."""
BENCHMARKS = ("cucb", "linucb", "random")
"""The benchmarks that the paper compares COCS with, beside Oracle."""
BUDGETS = (3.5, 5.0, 10.0)
DEADLINES_S = (2.0, 4.0, 8.0)
SWEPT = ("oracle", "cocs", "cucb", "linucb", "random")


def network_of(scenario: str) -> HierarchicalNetwork:
    """The network of a scenario, with its defaults."""
    network = make_scenario(scenario)
    assert isinstance(network, HierarchicalNetwork)
    return network


def sure_share(network: HierarchicalNetwork) -> float:
    """The share of the optimum that Fast Lazy Greedy is sure to reach (Qu et al. 2021, Lemma 3)."""
    return 1.0 / ((1.0 + EPSILON) * (2.0 + 2.0 * network.num_servers))


def _needs(scenario: str, stretch: float = 1.0, *, static: bool = False, greedy: bool = False) -> dict[str, Need]:
    """Runs of every policy, CUCB's with static resources as in the paper; with ``static`` of four, static for all."""
    policies = ("oracle", "cocs", "cucb", "random") if static else ALL_LABELS if greedy else LABELS
    return {
        policy: Need(policy, scenario, STATIC if static or policy == "cucb" else (), stretch) for policy in policies
    }


def _utility(run: Run) -> float:
    return float(run.participants.sum())


def _root_utility(run: Run) -> float:
    """Utility of non-convex HFL (8): the square root of each round's participants, summed."""
    return float(np.sqrt(run.participants).sum())


def _courses(runs: Runs, course: Callable[[Run], FloatArray]) -> dict[str, FloatArray]:
    return {policy: np.stack([course(run) for run in runs[policy]]) for policy in ALL_LABELS if policy in runs}


def _by_round(root: bool, runs: Runs) -> dict[str, FloatArray]:
    """Utility of each round by policy, shape (seeds, rounds)."""
    return _courses(runs, lambda run: np.sqrt(run.participants) if root else run.participants.astype(np.float64))


_courses_figure = partial(courses_figure, labels=ALL_LABELS, x_label="edge round", every=10)


def _cumulative(root: bool, runs: Runs) -> Figure:
    courses = {policy: values.cumsum(axis=1) for policy, values in _by_round(root, runs).items()}
    label = f"cumulative utility, {'sum of square roots' if root else 'updates in time'}"
    return _courses_figure(courses, y_label=label, title="Cumulative utilities")


def _regret(root: bool, best: str, runs: Runs, *, share: float = 1.0) -> Figure:
    """Regret against a policy, (11) and (21); CUCB, in a world of its own, is left out."""
    utility = _by_round(root, runs)
    courses = {
        policy: delta_regret(utility[best], values, share=share)
        for policy, values in utility.items()
        if policy != "cucb"
    }
    kind = "Regret" if share == 1.0 else "delta-regret (21)"
    part = "" if share == 1.0 else f"{share:.3f} times "
    label = f"{kind.lower()} against {part}{ALL_LABELS[best]}"
    return _courses_figure(courses, y_label=label, title=kind)


_WINDOW = 25


def _participants(runs: Runs) -> Figure:
    def course(run: Run) -> FloatArray:
        # A moving average: single rounds differ by more than policies do.
        sums = np.convolve(run.participants, np.ones(_WINDOW))[: run.num_rounds]
        return np.asarray(sums / np.minimum(np.arange(1, run.num_rounds + 1), _WINDOW))

    label = f"updates in time, mean over {_WINDOW} rounds"
    return _courses_figure(_courses(runs, course), y_label=label, title="Participants per edge round")


def _gaps(runs: Runs, better: str, worse: Sequence[str], measure: Callable[[Run], float]) -> list[Part]:
    return [gain(each(runs, better, measure), each(runs, other, measure), "updates") for other in worse]


def _like_random(runs: Runs, measure: Callable[[Run], float]) -> Sequence[FloatArray]:
    return within(each(runs, "cucb", measure) / each(runs, "random", measure), 0.9, 1.1)


def _claims_on_utility(root: bool, runs: Runs) -> list[Claim]:
    measure, figure, network = (_root_utility, "Fig. 5", "cifar") if root else (_utility, "Fig. 3", "mnist")
    oracle, cocs = (ORACLE_GREEDY, COCS_GREEDY) if root else ("oracle", "cocs")
    about = ON_NETWORK["cifar-10" if root else "mnist"]
    total = "cumulative utility" + (", both with Fast Lazy Greedy," if root else "")
    utility = _by_round(root, runs)
    asked: dict[str, Question] = {
        "oracle-first": (
            "Oracle achieves the highest cumulative utility.",
            f"{total} of Oracle is above that of COCS, CUCB, LinUCB and Random",
            _gaps(runs, oracle, (cocs, *BENCHMARKS), measure),
        ),
        "cocs-second": (
            "COCS outperforms CUCB, LinUCB and Random.",
            f"{total} of COCS with the literal K(t) is above that of each",
            _gaps(runs, cocs, BENCHMARKS, measure),
        ),
        "cocs-beats-pairs": (
            "COCS outperforms CUCB and LinUCB also when they learn per pair (Choice B9).",
            "cumulative utility of COCS with the literal K(t) and the exact solver is above that of each",
            _gaps(runs, "cocs", (CUCB_PAIRS, "linucb-pairs"), measure),
        ),
        "cucb-like-random": (
            "The cumulative utility of CUCB is similar to Random's.",
            "cumulative utility of CUCB is within 10 % of Random's",
            _like_random(runs, measure),
        ),
        "sublinear": (
            "COCS incurs a sublinear regret.",
            f"mean regret a round against {ALL_LABELS[oracle]} over the last fifth of the rounds is below that over "
            "the first fifth",
            [_falls(utility[oracle] - utility[cocs])],
        ),
        "sublinear-11": (
            "COCS incurs a sublinear regret (11), against Oracle-p, with the exact solver.",
            "mean regret a round over the last fifth of the rounds is below that over the first fifth",
            [_falls(utility["oracle-p"] - utility["cocs"])],
        ),
    }
    elsewhere = {"sublinear": "Fig. 6" if root else "Fig. 3b", "sublinear-11": "(11)"}
    if root:
        ratio = {own: each(runs, cocs, own) / each(runs, "cucb", own) for own in (_utility, _root_utility)}
        lacked = 1.0 - each(runs, cocs, _root_utility) / each(runs, oracle, _root_utility)
        lacked_on_mnist = 1.0 - each(runs, "mnist cocs", _utility) / each(runs, "mnist oracle", _utility)
        asked |= {
            "smaller-gap": (
                "The difference between Oracle and COCS is smaller than on MNIST, for Oracle is approximate.",
                "the share of Oracle's cumulative utility that COCS lacks, both with Fast Lazy Greedy, is below that "
                "on the MNIST network with the exact solver",
                [threshold(100.0 * (lacked_on_mnist - lacked), "points")],
            ),
            "1.7-times-cucb": (
                "COCS's cumulative utility is 1.7 times CUCB's.",
                "the ratio of the sums of square roots (8) is between 1.5 and 1.9",
                within(ratio[_root_utility], 1.5, 1.9),
            ),
            "1.7-times-cucb-updates": (
                "COCS has 1.7 times CUCB's updates in time.",
                "the ratio of the updates in time is between 1.5 and 1.9",
                within(ratio[_utility], 1.5, 1.9),
            ),
        }
        elsewhere |= dict.fromkeys(("smaller-gap", "1.7-times-cucb", "1.7-times-cucb-updates"), "Section VI-D")
    ours = ["cocs-beats-pairs", "sublinear-11", "1.7-times-cucb-updates"]
    return claims_of(figure, asked, prefix=f"{network}-", about=about, elsewhere=elsewhere, ours=ours)


def _falls(gap: FloatArray) -> FloatArray:
    """How much less a regret is a round over the last fifth of the rounds than over the first, shape (seeds,)."""
    fifth = gap.shape[1] // 5
    return np.asarray(gap[:, :fifth].mean(axis=1) - gap[:, -fifth:].mean(axis=1))


def _numbers_on_utility(root: bool, runs: Runs) -> Numbers:
    measure = _root_utility if root else _utility
    best = each(runs, "oracle", measure)
    own = {policy: runs[policy] for policy in ALL_LABELS if policy in runs}
    shares = {policy: 100.0 * each(own, policy, measure) / best for policy in own}
    exploring = {policy: 100.0 * each(own, policy, lambda run: float(run.exploring.mean())) for policy in own}
    return {"of Oracle's cumulative utility, %": shares, "exploring rounds, %": exploring}


_ON_POLICIES = (
    "COCS has the literal K(t). We chose the variant with h_T = 2 and K(t) scaled by 0.02 after looking at three of "
    "them on one seed, because it leaves exploration soon (Choice B11). No claim depends on it.",
    f"CUCB and LinUCB choose among {CUCB().pool_size} and {LinUCB().pool_size} decisions, drawn once. CUCB has "
    "static resources, as in the paper; the others do not (Choice B9).",
)
_ON_THE_RATIO = (
    "CUCB's pool, and what the ratio of 1.7 sums, are ours: its verdict says nothing of the paper's own runs."
)
_ON_BOUNDS = (
    "The bounds of Theorems 2 and 4 are not drawn: with the smallest Hoelder constant, zero, each allows more regret "
    "than the budgets can buy updates in any run of up to 1e18 rounds, so no run can break them (Choice B12).",
)


def _numbers_on_regret(root: bool, scenario: str, runs: Runs) -> Numbers:
    utility = _by_round(root, runs)
    share = sure_share(network_of(scenario))
    against = {
        "regret (11) against Oracle-p": ("oracle-p", 1.0),
        "regret against the clairvoyant Oracle": ("oracle", 1.0),
        f"delta-regret (21), against {share:.3f} times Oracle-p": ("oracle-p", share),
    }
    against |= {"regret against the paper's Oracle": (ORACLE_GREEDY, 1.0)} if root else {}
    return {
        name: {
            policy: delta_regret(utility[best], values, share=part)[:, -1]
            for policy, values in utility.items()
            if policy != "cucb"
        }
        for name, (best, part) in against.items()
    }


def _claims_on_participants(runs: Runs) -> list[Claim]:
    def late(run: Run) -> float:
        return float(run.participants[-run.num_rounds // 5 :].mean())

    asked: dict[str, Question] = {
        "participants-between": (
            "The number of participants of COCS, CUCB and LinUCB lies between Random's and Oracle's.",
            "mean participants over the last fifth of the rounds",
            [
                part
                for policy in ("cocs", "cucb", "linucb")
                for part in (*_gaps(runs, "oracle", (policy,), late), *_gaps(runs, policy, ("random",), late))
            ],
        )
    }
    return claims_of("Fig. 4b", asked, about=ON_NETWORK["mnist"])


# -------------------------------------------------------------------- beyond the printed set-up


def _claims_on_static(network: str, runs: Runs) -> list[Claim]:
    """The claims on CUCB where all policies have static resources: the other way to read section VI-B 2."""
    asked: dict[str, Question] = {
        "cucb-like-random": (
            "The cumulative utility of CUCB is similar to Random's, with static resources for both.",
            "cumulative utility of CUCB is within 10 % of Random's",
            _like_random(runs, _utility),
        ),
        "cocs-beats-cucb": (
            "COCS outperforms CUCB, with static resources for both.",
            "cumulative utility of COCS with the literal K(t) is above CUCB's",
            _gaps(runs, "cocs", ("cucb",), _utility),
        ),
    }
    return claims_of("Section VI-B 2", asked, prefix=f"static-{network}-", about=ON_NETWORK[network], ours=True)


def _claims_on_geometric(name: str, runs: Runs) -> list[Claim]:
    """The paper's order of policies, asked again where clients move and coverage changes (Choice B5)."""
    asked: dict[str, Question] = {
        "cocs-second": (
            "COCS outperforms CUCB, LinUCB and Random where clients move.",
            "cumulative utility of COCS with the literal K(t) is above that of each",
            _gaps(runs, "cocs", BENCHMARKS, _utility),
        ),
        "pairs": (
            "LinUCB per pair outperforms COCS where clients move.",
            "cumulative utility of LinUCB per pair is above that of COCS with the literal K(t)",
            _gaps(runs, "linucb-pairs", ("cocs",), _utility),
        ),
    }
    return claims_of("Choice B5", asked, prefix=f"geometric-{name}-", about=ON_NETWORK[name], ours=True)


def _utilities(title: str, needs: Mapping[str, Need], root: bool) -> FigureRecipe:
    claims, numbers = partial(_claims_on_utility, root), partial(_numbers_on_utility, root)
    notes = (*_ON_POLICIES, _ON_THE_RATIO) if root else _ON_POLICIES
    return FigureRecipe(title, needs, partial(_cumulative, root), claims, numbers, notes)


def _regrets(title: str, scenario: str, needs: Mapping[str, Need], root: bool) -> FigureRecipe:
    numbers = partial(_numbers_on_regret, root, scenario)
    return FigureRecipe(title, needs, partial(_regret, root, "oracle-p"), numbers=numbers, notes=_ON_BOUNDS)


def _swept(
    figure: str, title: str, name: str, values: Sequence[float], what: str, unit: str, stretch: float
) -> FigureRecipe:
    """Five policies at three values of a parameter of the network."""

    def label(policy: str, value: float) -> str:
        return f"{policy} {name}={value:g}"

    def draw(runs: Runs) -> Figure:
        utility = {
            policy: np.stack([each(runs, label(policy, value), _utility) for value in values], axis=1)
            for policy in SWEPT
        }
        curves = {LABELS[policy]: Curve(np.array(values), *band(own)) for policy, own in utility.items()}
        axes = Axes(f"{what}{unit}", "cumulative utility, updates in time")
        looks = looks_of({LABELS[policy]: policy for policy in SWEPT})
        return lines(curves, axes, title=f"Cumulative utilities against the {what}", looks=looks)

    def claims(runs: Runs) -> list[Claim]:
        first, second, third = values
        steps = {
            policy: [
                gain(each(runs, label(policy, high), _utility), each(runs, label(policy, low), _utility))
                for low, high in pairwise(values)
            ]
            for policy in SWEPT
        }
        early, late = (np.array(step.advantage) for step in steps["cocs"])
        # Of the last step of the deadline the paper says that 8 s performs "similarly to" 4 s, and no more.
        rising = values if name == "budget" else values[:2]
        asked: dict[str, Question] = {
            "helps": (
                f"Every policy's cumulative utility rises with the {what}.",
                f"it rises at each step of {', '.join(f'{value:g}' for value in rising)}",
                {
                    f"{LABELS[policy]}, {high:g}": rise
                    for policy, rises in steps.items()
                    for high, rise in zip(rising[1:], rises, strict=False)
                },
            ),
            "saturates": (
                f"The gain from a {what} of {third:g} over {second:g} is small.",
                f"COCS gains less from {second:g} to {third:g} than from {first:g} to {second:g}",
                [threshold(early - late, "updates")],
            ),
        }
        return claims_of(f"Fig. {figure}", asked, prefix=f"{name}-", about=ON_NETWORK["mnist"])

    needs = {
        label(policy, value): Need(
            policy, MNIST, ((name, f"{value:g}"), *(STATIC if policy == "cucb" else ())), stretch
        )
        for policy in SWEPT
        for value in values
    }
    return FigureRecipe(f"Fig. {figure}: {title}", needs, draw, claims, partial(of_each, {"updates in time": _utility}))


_ON_MNIST = _needs(MNIST)
_ON_CIFAR_10 = _needs(CIFAR_10, CIFAR_STRETCH, greedy=True)

FIGURES: Mapping[str, FigureRecipe] = {
    "3a": _utilities("Fig. 3a: cumulative utilities, MNIST network", _ON_MNIST, False),
    "3b": _regrets("Fig. 3b: regret (11) against Oracle-p, MNIST network", MNIST, _ON_MNIST, False),
    "3b-oracle": FigureRecipe("Fig. 3b against the clairvoyant Oracle", _ON_MNIST, partial(_regret, False, "oracle")),
    "4b": FigureRecipe("Fig. 4b: participants per edge round", _ON_MNIST, _participants, _claims_on_participants),
    "4d": _swept("4d", "budgets, after 200 rounds", "budget", BUDGETS, "budget", " of each server", 0.2),
    "4f": replace(
        _swept("4f", "deadlines", "deadline_s", DEADLINES_S, "deadline", ", s", 1.0),
        notes=["The paper prints 5,125 updates in time for COCS at a deadline of 4 s, and 5,378 at 8 s (Choice B8)."],
    ),
    "5": _utilities(
        "Fig. 5: cumulative utilities, CIFAR-10 network",
        {**_ON_CIFAR_10, "mnist oracle": _ON_MNIST["oracle"], "mnist cocs": _ON_MNIST["cocs"]},
        True,
    ),
    "6": _regrets("Fig. 6: regret (11) against Oracle-p, CIFAR-10 network", CIFAR_10, _ON_CIFAR_10, True),
    "6-oracle": FigureRecipe(
        "Fig. 6 against the paper's Oracle, Fast Lazy Greedy", _ON_CIFAR_10, partial(_regret, True, ORACLE_GREEDY)
    ),
    "6-delta": FigureRecipe(
        "delta-regret (21), CIFAR-10 network",
        _ON_CIFAR_10,
        partial(_regret, True, "oracle-p", share=sure_share(network_of(CIFAR_10))),
    ),
    **{
        f"{figure}-static": FigureRecipe(
            f"Fig. {figure} with static resources for all policies, {NETWORKS[name]} network (Choice B9)",
            _needs(f"cocs/{name}", stretch, static=True),
            partial(_cumulative, False),
            partial(_claims_on_static, name),
            partial(_numbers_on_utility, False),
        )
        for figure, name, stretch in (("3", "mnist", 1.0), ("5", "cifar-10", CIFAR_STRETCH))
    },
    **{
        f"geometric-{name}": FigureRecipe(
            f"Moving clients and changing coverage, {title} network (Choice B5)",
            {
                policy: Need(policy, f"cocs/{name}-geometric")
                for policy in ("oracle", "cocs", *BENCHMARKS, "linucb-pairs")
            },
            partial(_cumulative, False),
            partial(_claims_on_geometric, name),
            partial(_numbers_on_utility, False),
        )
        for name, title in NETWORKS.items()
    },
}
"""Recipes by the names that the command line uses."""
