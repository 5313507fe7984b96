"""FLOOR's page."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedroster.lab.pages.charts import data_of
from fedroster.lab.papers.floor import PAPER, volatile
from fedroster.lab.papers.floor.tuned import _TUNED_PENALTIES, TUNED_RATES, _as_fair, _as_punctual, _lack
from fedroster.lab.papers.floor.worlds import rival_of
from fedroster.lab.trials.run import gather
from fedroster.lab.verdicts.courses import least_chosen
from fedroster.lab.verdicts.verdicts import judge
from runs import planted_run


def test_the_rival_is_the_first_that_is_no_fairer():
    runs = {
        label: [SimpleNamespace(chosen=np.array([least, 20]))]
        for label, least in {"FLOOR": 5, "A": 9, "B": 6, "C": 5, "D": 1}.items()
    }
    assert rival_of(runs, "FLOOR", ["A", "B", "C", "D"], least_chosen) == "C"
    assert rival_of(runs, "A", ["B", "C", "D"], least_chosen) == "B"


def test_a_page_is_made_from_its_runs_and_the_rival_is_no_fairer():
    recipe = PAPER.figures["table-1"]
    labels = ["FLOOR", "FLOOR, c = 1", "FLOOR, c = 0", *(label for label in recipe.needs if label[0] in "Rr")]
    assert set(labels) == set(recipe.needs)
    runs = {label: gather(recipe.needs[label].trials(seeds=(0, 1), rounds=30), workers=1) for label in labels}
    rivals = [label for label in labels if label.startswith("RBCS-F")]
    rival = rival_of(runs, "FLOOR", rivals, least_chosen)
    least = {label: np.mean([run.chosen.min() for run in runs[label]]) for label in labels}
    assert least[rival] <= least["FLOOR"]
    assert all(least[label] > least["FLOOR"] for label in rivals[: rivals.index(rival)])
    assert set(data_of(recipe.draw(runs))["label"]) == set(labels)
    assert [claim.name for claim in recipe.claims(runs)] == ["table-1-faster", "table-1-guarantee"]
    assert all(claim.ours for claim in recipe.claims(runs))


def run_of(least, *, time_s=10.0, lacking=0):
    lacks = np.full(500, lacking)
    return SimpleNamespace(
        chosen=np.array([least, 400]), num_rounds=500, round_time_s=np.full(500, time_s), lacking=lacks
    )


def tuned_runs(ours, theirs):
    """Runs by (V, rate): lowest participation, time, and what is lacking after each round."""
    runs = {"FLOOR": [run_of(ours, lacking=-1)]}
    for rate in TUNED_RATES:
        for penalty in _TUNED_PENALTIES:
            least, time_s, lacks = theirs(penalty, rate)
            runs[f"RBCS-F({penalty:g}, {rate:g})"] = [run_of(least, time_s=time_s, lacking=lacks)]
    return runs


def test_the_tuned_rival_is_as_fair_and_the_fastest():
    """Lowest participation falls by 10 for each V, and a greater rate has more of it and takes longer."""

    def theirs(penalty, rate):
        return 500 * rate - 10 * _TUNED_PENALTIES.index(penalty), 20.0 - penalty + 2.0 * rate, 0

    label, penalty, time_s = _as_fair(tuned_runs(72, theirs))
    # 0.2 allows for 28 less: 0.8 of the way from its third V to its fourth.
    assert label == "RBCS-F(0.5, 0.2)"
    assert penalty == pytest.approx(0.5 + 0.8 * 0.2)
    assert time_s == pytest.approx(20.0 - penalty + 0.4)
    label, penalty, time_s = _as_fair(
        tuned_runs(72, lambda v, rate: (*theirs(v, rate)[:1], 20.0 - v + 400.0 * rate, 0))
    )
    assert label == "RBCS-F(0.25, 0.15)"
    assert time_s == pytest.approx(80.0 - penalty)
    _, penalty, _ = _as_fair(tuned_runs(75, lambda v, rate: (*theirs(v, rate)[:1], 20.0 - v + 400.0 * rate, 0)))
    assert penalty == 0.25  # exactly as fair


def test_the_punctual_rival_lacks_two_at_most_everywhere():
    def theirs(penalty, rate):
        return 74, 20.0 - penalty, int(3 * penalty) + (rate != 0.17)

    runs = tuned_runs(75, theirs)
    np.testing.assert_array_equal(_lack(runs, "RBCS-F(1, 0.17)"), np.full((1, 500), 3.0))
    np.testing.assert_array_equal(_lack(runs, "FLOOR"), np.zeros((1, 500)))
    assert _as_punctual(runs) == "RBCS-F(0.7, 0.17)"
    late = run_of(74, lacking=0)
    late.lacking[211] = 3  # one seed after one round
    runs["RBCS-F(0.7, 0.17)"].append(late)
    assert _as_punctual(runs) == "RBCS-F(0.5, 0.15)"


def test_the_tuned_figure_is_made_from_its_runs():
    recipe = PAPER.figures["tuned"]
    kept = ("FLOOR", "RBCS-F(0.7, 0.15)", "RBCS-F(5, 0.17)")
    played = {label: gather(recipe.needs[label].trials(seeds=(0, 1), rounds=60), workers=1) for label in kept}
    runs = {label: played.get(label, played[kept[1]]) for label in recipe.needs}
    assert {need.rate for need in recipe.needs.values()} == {0.15}  # what is lacking is of what is wanted
    assert {"FLOOR", "RBCS-F(0.7, 0.15)"} <= set(data_of(recipe.draw(runs))["label"])
    assert [claim.name for claim in recipe.claims(runs)] == ["tuned-as-fair", "tuned-as-punctual"]
    assert set(recipe.numbers(runs)["mean round, s"]) >= {"FLOOR", _as_punctual(runs)}


@pytest.mark.parametrize(
    ("fair", "greedy", "holds"),
    [
        (0.90, 0.85, {"as-accurate-as-random", "no-other-than-calm"}),
        (0.85, 0.90, {"fair-costs-accuracy", "fair-is-slower"}),
    ],
)
def test_claims_on_volatile_networks(fair, greedy, holds):
    """Accuracy rises in 20 tests; the greedy policy's rounds are as long as the others', so more accuracy is sooner."""
    recipe = volatile.figure("cpu")

    def run(label, seed):
        final = {"random": 0.90, volatile.GREEDY: greedy}.get(label.rpartition("|")[2], fair)
        if label.startswith(volatile.CALM):
            final = 0.90
        noise = 1e-3 * np.random.default_rng([seed, len(label)]).standard_normal(20)
        ones = np.ones(20, np.int64)
        return planted_run(
            4,
            20,
            accuracy=final * (1.0 - np.exp(-np.arange(1, 21) / 4.0)) + noise,
            round_time_s=np.ones(20),
            cohort_size=ones,
            participants=ones,
            chosen=np.ones(4, np.int64),
        )

    runs = {label: [run(label, seed) for seed in range(8)] for label in recipe.needs}
    found = {verdict.claim.name.removeprefix("volatile-"): verdict.word for verdict in judge(recipe.claims(runs))}
    assert {name for name, word in found.items() if word == "holds"} == holds, found
    assert "contradicted" in found.values()
    assert len(recipe.numbers(runs)) == 5
