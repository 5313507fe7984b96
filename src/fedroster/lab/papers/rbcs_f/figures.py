"""Simulations of Huang et al. 2021: Figs. 2, 3 and 4, the regret bound, and the sensitivity to alpha."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from fedroster.bounds import rbcs_f_regret, rbcs_f_regret_as_printed
from fedroster.lab.pages.charts import WIDTH, Axes, Curve, Figure, finished, intervals, lines, table, tips
from fedroster.lab.pages.looks import Look, look
from fedroster.lab.statistics import band, mean_interval
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.courses import courses_figure, each, evenness, least_chosen, mean_time, of_each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Runs
from fedroster.lab.verdicts.verdicts import Claim, Question, claims_of, promise, time_gap, within
from fedroster.networks.flat import FlatNetwork
from fedroster.types import FloatArray

SCENARIO = "rbcs-f/table-1"
BETA = 0.15
_NETWORK = FlatNetwork()
LONGEST_S = _NETWORK.max_expected_time_s
"""No mean time is longer, and so no regret of mean times."""
PENALTIES = (1, 5, 20, 50)
ALPHAS = (0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0)
RBCS_F = tuple(f"rbcs-f:V={penalty}" for penalty in PENALTIES)
FEDCS = "fedcs:deadline_s=3"
OPTIMAL = "p3:V=20"
LEARNED = "rbcs-f:V=20"
# Lemma 1 with the scenario's own constants: R = K, L and S are the network's.
_SCHEDULE = (
    f"rbcs-f:V=20,schedule=lemma-1,R={_NETWORK.max_expected_time_s:.4f},L={_NETWORK.feature_norm:.4f},"
    f"S={_NETWORK.coefficient_norm:.4f}"
)
SCHEDULED = f"{_SCHEDULE},delta={0.05 / _NETWORK.num_clients:g}"
FIGURE_POLICIES = (*RBCS_F, "random", FEDCS, OPTIMAL)
LABELS = {
    **{policy: f"RBCS-F({penalty})" for policy, penalty in zip(RBCS_F, PENALTIES, strict=True)},
    "random": "random",
    FEDCS: "FedCS(3)",
    OPTIMAL: "omniscient P3(20)",
}


def _needs(policies: Sequence[str], stretch: float = 1.0) -> dict[str, Need]:
    return {policy: Need(policy, SCENARIO, stretch=stretch) for policy in policies}


def _over_rounds(
    policies: Sequence[str], course: Callable[[Run], FloatArray], y_label: str, title: str, runs: Runs
) -> Figure:
    courses = {policy: np.stack([course(run) for run in runs[policy]]) for policy in policies}
    return courses_figure(courses, LABELS, x_label="round", y_label=y_label, title=title)


_FIGURE_2 = partial(
    _over_rounds,
    RBCS_F,
    lambda run: run.mean_backlog,
    "mean queue length, rounds owed",
    "Queues against V",
)
_FIGURE_3 = partial(
    _over_rounds,
    FIGURE_POLICIES,
    lambda run: run.round_time_s.cumsum(),
    "elapsed time, s",
    "Training time of the strategies",
)


def _figure_4(runs: Runs) -> Figure:
    """How often each client was chosen, clients sorted by it, a row for each policy; brighter is more often."""
    rows = []
    for policy in FIGURE_POLICIES:
        ends = band(np.stack([np.sort(run.chosen) for run in runs[policy]]).astype(np.float64))
        for place, (mean, low, high) in enumerate(np.transpose(ends).tolist()):
            rows.append({"label": LABELS[policy], "x": place + 1, "mean": mean, "low": low, "high": high})
    marks = alt.Chart(width=WIDTH - 100, height=alt.Step(26)).mark_rect()
    x = alt.X("x:O", title="clients, sorted by how often they were chosen", axis=alt.Axis(labelAngle=0))
    y = alt.Y("label:N", sort=[LABELS[policy] for policy in FIGURE_POLICIES], title=None)
    colour = alt.Color("mean:Q", scale=alt.Scale(scheme="viridis", zero=True), legend=_CHOSEN)
    told = tips(x="client", mean="times chosen", low="from", high="to")
    return finished(alt.layer(marks.encode(x=x, y=y, color=colour, tooltip=told), data=table(*rows)), "Pull record")


_CHOSEN = alt.Legend(title="times chosen", type="gradient", gradientLength=WIDTH - 100)


def _running_regret(runs: Runs, learned: str) -> FloatArray:
    """Time-average regret (23) of RBCS-F(20) against P3 with the true means and the same V, shape (seeds, rounds)."""
    gaps = [
        (mine.round_time_s - best.round_time_s).cumsum() / np.arange(1, mine.num_rounds + 1)
        for mine, best in zip(runs[learned], runs[OPTIMAL], strict=True)
    ]
    return np.stack(gaps)


# The noise lies in (-c.theta, c.theta), so it is sub-Gaussian with R = K (Hoeffding's lemma).
_CONSTANTS: Any = {
    "num_clients": _NETWORK.num_clients,
    "beta": BETA,
    "V": 20.0,
    "max_time_s": _NETWORK.max_expected_time_s,
    "noise": _NETWORK.max_expected_time_s,
    "feature_norm": _NETWORK.feature_norm,
    "coefficient_norm": _NETWORK.coefficient_norm,
    "delta": 0.05,
    "ridge": 1.0,
}
_BOUNDS: Mapping[str, Callable[[int], float]] = {
    "(24), as printed": partial(rbcs_f_regret_as_printed, **_CONSTANTS),
    "the bound in its place": partial(
        rbcs_f_regret, cohort_size=_NETWORK.cohort_size, num_features=_NETWORK.spec.num_features, **_CONSTANTS
    ),
}


def _bound(name: str, num_rounds: int) -> FloatArray:
    return np.array([_BOUNDS[name](number) for number in range(1, num_rounds + 1)])


def _figure_regret(runs: Runs) -> Figure:
    measured = {
        "RBCS-F(20), alpha = 0.1": _running_regret(runs, LEARNED),
        "RBCS-F(20), Lemma 1 at delta / N": _running_regret(runs, SCHEDULED),
    }
    num_rounds = next(iter(measured.values())).shape[1]
    rounds = np.arange(1.0, num_rounds + 1)
    curves = {label: Curve(rounds, *band(regret)) for label, regret in measured.items()}
    for name in _BOUNDS:
        bound = _bound(name, num_rounds)
        curves[name] = Curve(rounds, bound, bound, bound)
    looks = (look(LEARNED), look(SCHEDULED), Look("#777777", ":"), Look("#000000", ":"))
    axes = Axes("round T", "time-average regret R(T), s", log_y=True)
    return lines(curves, axes, title="Regret against P3(20), and bounds", looks=dict(zip(curves, looks, strict=True)))


_ALPHA_POLICIES = (*(f"rbcs-f:V=20,alpha={alpha:g}" for alpha in ALPHAS), f"{_SCHEDULE},delta=0.05")


def _figure_alpha(runs: Runs) -> Figure:
    times = {
        policy.partition("20,")[2] if "alpha=" in policy else "Lemma 1": mean_interval(each(runs, policy, mean_time))
        for policy in _ALPHA_POLICIES
    }
    return intervals({"mean round time of RBCS-F(20), s": times}, title="Sensitivity to the exploration factor")


def _plateau(run: Run) -> float:
    """Mean queue length over the last fifth of the rounds."""
    return float(run.mean_backlog[-max(run.num_rounds // 5, 1) :].mean())


def _late_slope(run: Run) -> float:
    """Growth of the mean queue length over the last fifth of the rounds, rounds owed per round."""
    tail = run.mean_backlog[-max(run.num_rounds // 5, 2) :]
    return float(np.polyfit(np.arange(tail.shape[0]), tail, 1)[0])


def _settling_round(run: Run) -> float:
    """First round at which the mean queue length reaches nine tenths of its plateau."""
    return float(np.argmax(run.mean_backlog >= 0.9 * _plateau(run)) + 1)


def _rising(runs: Runs, measure: Callable[[Run], float], sign: float = 1.0) -> list[FloatArray]:
    """One part for each step of V: how much the measure rises, or falls with a sign of -1."""
    steps = [sign * each(runs, policy, measure) for policy in RBCS_F]
    return [after - before for before, after in itertools.pairwise(steps)]


_PENALTY_LIST = ", ".join(map(str, PENALTIES))


def _late(runs: Runs) -> str:
    num_rounds = runs[RBCS_F[0]][0].num_rounds
    return f"rounds {num_rounds - num_rounds // 5 + 1}-{num_rounds}"


def _claims_on_long_queues(runs: Runs) -> list[Claim]:
    asked: dict[str, Question] = {
        "flat": (
            "All curves flatten after a number of rounds, with each V.",
            f"growth of the mean queue over {_late(runs)} is below 5 % of beta a round for each V = {_PENALTY_LIST}",
            {LABELS[policy]: 0.05 * BETA - each(runs, policy, _late_slope) for policy in RBCS_F},
        )
    }
    return claims_of("Fig. 2", asked)


def _claims_on_queues(runs: Runs) -> list[Claim]:
    asked: dict[str, Question] = {
        "higher-with-V": (
            "A higher V has a higher convergence value of the queues.",
            f"mean queue over {_late(runs)} rises at each step of V = {_PENALTY_LIST}",
            _rising(runs, _plateau),
        ),
        "later-with-V": (
            "A higher V has a slower convergence of the queues.",
            f"the round that reaches 90 % of the plateau rises at each step of V = {_PENALTY_LIST}",
            _rising(runs, _settling_round),
        ),
    }
    return claims_of("Fig. 2", asked)


def _claims_on_time(runs: Runs) -> list[Claim]:
    time_s = {policy: each(runs, policy, mean_time) for policy in (*RBCS_F, FEDCS, "random")}
    cohort = each(runs, FEDCS, lambda run: float(run.cohort_size.mean()))
    asked: dict[str, Question] = {
        "faster-with-V": (
            "RBCS-F with a higher V takes less time for the same number of rounds.",
            f"mean round time falls at each step of V = {_PENALTY_LIST}",
            [time_gap(time_s[faster], time_s[slower]) for slower, faster in itertools.pairwise(RBCS_F)],
        ),
        "between": (
            "RBCS-F is faster than random, and slower than FedCS(3).",
            f"mean round time lies between the two for each V = {_PENALTY_LIST}",
            [
                part
                for one in RBCS_F
                for part in (time_gap(time_s[FEDCS], time_s[one]), time_gap(time_s[one], time_s["random"]))
            ],
        ),
        "eight-clients": (
            "FedCS(3) chooses about 8 clients a round.",
            "mean cohort size is within 1 of 8",
            within(cohort, 7.0, 9.0),
        ),
        "theorem-2": (
            "The drift plus cost never exceeds the bound (11).",
            "the margin below the bound is not negative (to rounding, 1e-9), in every round of every policy",
            [promise(run.bound_margin < -1e-9 for run in runs[policy]) for policy in FIGURE_POLICIES],
        ),
    }
    return claims_of("Fig. 3", asked, elsewhere={"eight-clients": "Footnote 5", "theorem-2": "Theorem 2"})


def _claims_on_pulls(runs: Runs) -> list[Claim]:
    jain = {policy: each(runs, policy, evenness) for policy in (*RBCS_F, "random", FEDCS)}
    asked: dict[str, Question] = {
        "uneven-with-V": (
            "The pull record becomes less even as V grows.",
            f"Jain's index falls at each step of V = {_PENALTY_LIST}",
            _rising(runs, evenness, -1.0),
        ),
        "fedcs-least-even": (
            "The unbalanced selection is most intense for FedCS(3).",
            f"Jain's index of FedCS(3) is below that of random and of RBCS-F with each V = {_PENALTY_LIST}",
            [jain[policy] - jain[FEDCS] for policy in (*RBCS_F, "random")],
        ),
        "fair-is-even": (
            "Random and RBCS-F with a low V have an even distribution.",
            "Jain's index of random and of RBCS-F(1) is above 0.95",
            [jain[policy] - 0.95 for policy in (RBCS_F[0], "random")],
        ),
    }
    return claims_of("Fig. 4", asked)


def _claims_on_regret(runs: Runs) -> list[Claim]:
    learned, scheduled = _running_regret(runs, LEARNED), _running_regret(runs, SCHEDULED)
    rounds = learned.shape[1]
    printed, holds = (_bound(name, rounds) for name in _BOUNDS)
    asked: dict[str, Question] = {
        "theorem-3": (
            "The time-average regret stays below (24), the bound as printed, which is false.",
            f"R(T) of RBCS-F(20) with alpha = 0.1 against P3(20) is below (24) for every T up to {rounds}",
            [promise(learned > printed, breakable=bool((printed < LONGEST_S).any()))],
        ),
        "theorem-3-mended": (
            "The time-average regret stays below the bound in place of (24); the cold flag breaks its conditions.",
            f"R(T) of RBCS-F(20) with Lemma 1's schedule at delta / N, as the bound wants it, for every T up to "
            f"{rounds}",
            [promise(scheduled > holds, breakable=bool((holds < LONGEST_S).any()))],
        ),
    }
    return claims_of("Theorem 3", asked, ours=["theorem-3-mended"])


FIGURES: Mapping[str, FigureRecipe] = {
    "2": FigureRecipe("Fig. 2: queues against V", _needs(RBCS_F), _FIGURE_2, _claims_on_queues),
    "2-long": FigureRecipe(
        "Fig. 2 over four times as many rounds", _needs(RBCS_F, stretch=4.0), _FIGURE_2, _claims_on_long_queues
    ),
    "3": FigureRecipe("Fig. 3: training time", _needs(FIGURE_POLICIES), _FIGURE_3, _claims_on_time),
    "4": FigureRecipe(
        "Fig. 4: pull record",
        _needs(FIGURE_POLICIES),
        _figure_4,
        _claims_on_pulls,
        partial(of_each, {"participations of the least served client": least_chosen}),
    ),
    "regret": FigureRecipe(
        "Regret (23), Theorem 3's bound and the one in its place",
        _needs((LEARNED, SCHEDULED, OPTIMAL)),
        _figure_regret,
        _claims_on_regret,
    ),
    "alpha": FigureRecipe(
        "Choice A4: sensitivity to alpha",
        _needs((*_ALPHA_POLICIES, "random")),
        _figure_alpha,
        numbers=partial(of_each, {"mean round, s": mean_time}),
    ),
}
"""Recipes by the names that the command line uses."""
