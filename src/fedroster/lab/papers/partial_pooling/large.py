"""Partial pooling with 10,000 moving clients and 50 servers, on both networks of Qu et al. 2021.

Oracle-p is not solved to the optimum there; what each of its rounds leaves open is counted against us.
"""

from __future__ import annotations

from functools import partial

from fedroster.lab.pages.charts import Figure
from fedroster.lab.papers.partial_pooling.figures import (
    EARLY,
    OURS,
    REGRET_SHARE,
    WANTED,
    WANTED_EARLY,
    shares_figure,
    utility,
)
from fedroster.lab.verdicts.courses import each, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Numbers, Runs
from fedroster.lab.verdicts.verdicts import Claim, Part, Question, claims_of, gain
from fedroster.types import FloatArray

NETWORKS = {"MNIST, large": "cocs/mnist-geometric", "CIFAR-10, large": "cocs/cifar-10-geometric"}
POLICIES = {
    "Partial pooling": OURS,
    "LinUCB per pair": "linucb-pairs",
    "COCS": "cocs",
    "Random": "random",
}
_TITLE = "10,000 clients, 50 servers"


def _utility(runs: Runs, label: str, network: str, rounds: int | None = None) -> FloatArray:
    return each(runs, f"{label} / {network}", partial(utility, rounds=rounds))


def _best(runs: Runs, network: str, rounds: int | None = None) -> FloatArray:
    return each(runs, f"Oracle-p / {network}", lambda run: float((run.participants / (1.0 - run.gap))[:rounds].sum()))


def _shares(runs: Runs, label: str, network: str, rounds: int | None = None) -> FloatArray:
    return _utility(runs, label, network, rounds) / _best(runs, network, rounds)


def _length(runs: Runs) -> int:
    return next(iter(runs.values()))[0].num_rounds


def _early(runs: Runs) -> int:
    return min(EARLY, _length(runs))


def _draw(runs: Runs) -> Figure:
    panels = {
        f"{network.removesuffix(', large')}{when}": {label: _shares(runs, label, network, rounds) for label in POLICIES}
        for network in NETWORKS
        for when, rounds in (("", None), (f", first {_early(runs)}", _early(runs)))
    }
    return shares_figure(panels, "Share of the best expected utility")


def _claims(runs: Runs) -> list[Claim]:
    def margins(network: str) -> list[Part | FloatArray]:
        ours, pairs, cocs = (_utility(runs, label, network) for label in ("Partial pooling", "LinUCB per pair", "COCS"))
        best = _best(runs, network)
        early = _shares(runs, "Partial pooling", network, _early(runs))
        regret = REGRET_SHARE * (best - cocs) - (best - ours)
        return [ours / best - WANTED, early - WANTED_EARLY, regret, gain(ours, pairs, "updates")]

    texts = {
        "share": f"at least {WANTED:.0%} of the best expected utility in {_length(runs)} rounds",
        "early": f"at least {WANTED_EARLY:.0%} of it within the first {_early(runs)}",
        "regret": "at most a fifth of COCS's regret",
        "pairs": "more utility than LinUCB per pair",
    }
    measure = "margin over what is wanted, each network; the best is Oracle-p's utility over 1 - its gap"
    parts = zip(*map(margins, NETWORKS), strict=True)
    asked: dict[str, Question] = {
        key: (f"{text}.", measure, part) for (key, text), part in zip(texts.items(), parts, strict=True)
    }
    about = "10,000 moving clients, 50 servers: on both networks partial pooling has "
    return claims_of(_TITLE, asked, prefix="large-", about=about, ours=True)


def _numbers(runs: Runs) -> Numbers:
    labels = [(label, network) for network in NETWORKS for label in POLICIES]
    gaps = {label: group for label, group in runs.items() if label.startswith("Oracle-p")}
    shares = {
        name: {f"{label} / {network}": 100.0 * _shares(runs, label, network, rounds) for label, network in labels}
        for name, rounds in (
            ("of the best expected utility, %", None),
            (f"within the first {_early(runs)} rounds, %", _early(runs)),
        )
    }
    return {**shares, **of_each({"proven gap of a round, %": lambda run: 100.0 * float(run.gap.mean())}, gaps)}


LARGE = FigureRecipe(
    _TITLE,
    {
        f"{label} / {network}": Need(policy, scenario, (("num_clients", "10000"), ("num_servers", "50")))
        for network, scenario in NETWORKS.items()
        for label, policy in {"Oracle-p": "oracle-p:gap=0.0025", **POLICIES}.items()
    },
    _draw,
    _claims,
    _numbers,
    ["Oracle-p is not solved to the optimum here: all shares are of its utility over 1 - its gap, round by round."],
    on_request=True,
)
"""Five seeds take most of an hour of one core, so it is made when it is named only."""
