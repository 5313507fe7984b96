"""Training figures of Huang et al. 2021 and Qu et al. 2021: claims with planted truth, and the smoke size of all."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest

from fedroster.core.errors import ConfigurationError, PausedError, UnknownNameError
from fedroster.lab.trials.trial import Conditions
from fedroster.lab.verdicts.claims_page import numbers_table
from fedroster.lab.verdicts.paper import find_paper, papers
from fedroster.lab.verdicts.reproduce import Order, reproduce
from fedroster.lab.verdicts.verdicts import judge
from runs import planted_run

ROUNDS, SEEDS = 60, 12


def course(final, *, settling=8.0, jitter=0.0, round_time_s=5.0, participants=5, seed=0):
    """A run whose accuracy rises to a final value, with a little noise of its seed."""
    rng = np.random.default_rng([seed, int(1000 * final), int(10 * settling)])
    rounds = np.arange(1, ROUNDS + 1)
    accuracy = final * (1.0 - np.exp(-rounds / settling)) + jitter * rng.standard_normal(ROUNDS)
    ones = np.ones(ROUNDS, np.int64)
    return planted_run(
        ROUNDS,
        ROUNDS,
        round_time_s=np.full(ROUNDS, round_time_s) + 0.01 * rng.standard_normal(ROUNDS),
        cohort_size=ones,
        chosen=ones,
        available=ones,
        participants=np.full(ROUNDS, participants),
        accuracy=np.clip(accuracy + 1e-4 * rng.standard_normal(ROUNDS), 0.0, 1.0),
        test_loss=1.0 - accuracy,
    )


def verdicts(paper, figure, courses):
    """Whether each claim holds; ``courses`` gives the planted course by the recipe's label."""
    recipe = find_paper(paper).scales["full" if figure == "7" else "cpu"].figures[figure]
    runs = {label: [course(**courses(label), seed=seed) for seed in range(SEEDS)] for label in recipe.needs}
    numbers_table(recipe.numbers(runs))
    return {verdict.claim.name: verdict.holds for verdict in judge(recipe.claims(runs))}


def by_policy(values):
    """Courses by the policy's label, the same in each panel."""
    return lambda label: values[label.rpartition("|")[2]]


TRUE_RBCS_F = {
    "random": {"final": 0.80, "settling": 6.0, "round_time_s": 15.0},
    "RBCS-F(5)": {"final": 0.785, "settling": 7.0, "round_time_s": 8.0},
    "RBCS-F(20)": {"final": 0.785, "settling": 8.0, "round_time_s": 5.0},
    "RBCS-F(50)": {"final": 0.74, "settling": 10.0, "round_time_s": 5.0},
    "FedCS(3)": {"final": 0.70, "settling": 12.0, "round_time_s": 1.5},
}
FALSE_RBCS_F = {
    "random": {"final": 0.70, "settling": 12.0, "round_time_s": 1.0},
    "RBCS-F(5)": {"final": 0.73, "settling": 10.0, "round_time_s": 3.0},
    "RBCS-F(20)": {"final": 0.74, "settling": 8.0, "round_time_s": 9.0},
    "RBCS-F(50)": {"final": 0.76, "settling": 7.0, "round_time_s": 5.0},
    "FedCS(3)": {"final": 0.80, "settling": 4.0, "round_time_s": 15.0},
}


@pytest.mark.parametrize("figure", ["6-fashion-mnist", "7-fashion-mnist", "6-cifar-10", "7-cifar-10"])
def test_claims_on_strategies(figure):
    true = verdicts("rbcs-f", figure, by_policy(TRUE_RBCS_F))
    assert set(true.values()) == {True}, true
    false = verdicts("rbcs-f", figure, by_policy(FALSE_RBCS_F))
    assert set(false.values()) == {False}, false
    assert true.keys() == false.keys()


def test_early_is_at_the_low_target():
    """FedCS is the first at 60 % of random's accuracy, and never comes to 90 %."""
    early = TRUE_RBCS_F | {"FedCS(3)": {"final": 0.70, "settling": 1.0, "round_time_s": 5.0}}
    held = verdicts("rbcs-f", "7-fashion-mnist", by_policy(early))
    assert held["7-fashion-mnist-fedcs-early"]
    assert held["7-fashion-mnist-rbcs-f-faster"]


def test_claims_on_fairness():
    even = {"gamma_2 = 0.2": 0.70, "gamma_2 = 1": 0.75, "uniform": 0.80}
    jitter = {"gamma_1 = 0.2": (0.005, 15.0), "gamma_1 = 1": (0.003, 10.0), "IID": (0.0005, 5.0)}

    def true(label):
        panel, _, selection = label.partition("|")
        return {"final": even[selection], "jitter": jitter[panel][0], "settling": jitter[panel][1]}

    def unlike(label):
        panel, _, selection = label.partition("|")
        return true(label) | {"final": even[selection] - (0.03 if (panel, selection) == ("IID", "uniform") else 0.0)}

    def false(label):
        panel, _, selection = label.partition("|")
        turned = dict(zip(jitter, reversed(jitter.values()), strict=True))
        return {"final": 1.5 - even[selection], "jitter": turned[panel][0], "settling": turned[panel][1]}

    assert set(verdicts("rbcs-f", "5-fashion-mnist", true).values()) == {True}
    turned = verdicts("rbcs-f", "5-fashion-mnist", false)
    assert {name for name, holds in turned.items() if holds} == {"5-fashion-mnist-same-effect"}
    other = verdicts("rbcs-f", "5-fashion-mnist", unlike)
    assert {name for name, holds in other.items() if not holds} == {"5-fashion-mnist-same-effect"}


@pytest.mark.parametrize(("harder", "holds"), [(0.05, True), (-0.05, False)])
def test_where_fairness_matters_more(harder, holds):
    def planted(label):
        effect = 0.1 + (harder if label.startswith("cifar-10") else 0.0)
        return {"final": 0.7 + (effect if label.endswith("uniform") else 0.0)}

    assert verdicts("rbcs-f", "5-effect", planted) == {"5-harder-needs-fairness": holds}


@pytest.mark.parametrize("size", ["smoke", "cpu", "full"])
def test_what_is_smaller_than_in_the_paper_is_said_of_every_claim(size):
    for recipe in find_paper("rbcs-f").scales[size].figures.values():
        claims = recipe.claims({label: [course(0.8, seed=seed) for seed in range(5)] for label in recipe.needs})
        assert claims
        assert all(bool(claim.changed) is (size != "full") for claim in claims)


TRUE_COCS = {
    "Oracle": {"final": 0.900, "settling": 5.0, "participants": 9},
    "COCS": {"final": 0.898, "settling": 8.0, "participants": 8},
    "CUCB": {"final": 0.83, "settling": 20.0, "participants": 2},
    "LinUCB": {"final": 0.86, "settling": 15.0, "participants": 6},
    "Random": {"final": 0.80, "settling": 25.0, "participants": 3},
    "CUCB per pair": {"final": 0.85, "settling": 18.0, "participants": 5},
    "LinUCB per pair": {"final": 0.85, "settling": 16.0, "participants": 7},
}


@pytest.mark.parametrize("figure", ["4a", "7"])
def test_claims_on_policies(figure):
    true = verdicts("cocs", figure, by_policy(TRUE_COCS))
    assert set(true.values()) == {True}, true
    turned = dict(zip(TRUE_COCS, reversed(TRUE_COCS.values()), strict=True))
    false = verdicts("cocs", figure, by_policy(turned))
    assert set(false.values()) == {False}, false


def test_numbers_tell_updates_and_evenness():
    recipe = find_paper("cocs").scales["cpu"].figures["4a"]
    runs = {}
    for label, values in TRUE_COCS.items():  # who gathers more updates chooses less evenly
        chosen = (np.arange(ROUNDS) < ROUNDS - 6 * values["participants"]).astype(np.int64)
        runs[label] = [dataclasses.replace(course(**values, seed=seed), chosen=chosen) for seed in range(2)]
    (row,) = [row for row in numbers_table(recipe.numbers(runs)).rows if row[0] == "COCS"]
    assert row[1:] == ("8 ± 0", "0 ± 0", "0.2 ± 0", "48 ± 0")


def test_a_table_says_who_did_not_get_there():
    table = numbers_table(
        {"rounds": {"A": np.array([1.0, 3.0, np.inf]), "B": np.full(2, np.inf)}, "s": {"A": np.ones(2)}}
    )
    assert table.rows == [("A", "median 3, not reached by 1 of 3", "1 ± 0"), ("B", "not reached by 2 of 2", "")]


@pytest.mark.parametrize(
    ("figure", "helps", "hurts"),
    [
        ("4c", (20.0, 8.0, 7.0), (8.0, 9.0, 4.0)),
        ("4e", (20.0, 8.0, 7.0), (8.0, 9.0, 4.0)),
        ("2-mnist", (20.0, 8.0, 4.0), (20.0, 4.0, 8.0)),  # more clients do not help at the end
    ],
)
def test_claims_on_sweeps(figure, helps, hurts):
    labels = list(find_paper("cocs").scales["cpu"].figures[figure].needs)
    for settlings, held in ((helps, True), (hurts, False)):
        courses = dict(zip(labels, ({"final": 0.9, "settling": value} for value in settlings), strict=True))
        assert set(verdicts("cocs", figure, courses.__getitem__).values()) == {held}


def test_fig_2_has_so_many_clients_and_all_in_time():
    recipe = find_paper("cocs").scales["smoke"].figures["2-mnist"]
    for clients, need in zip((1, 2), recipe.needs.values(), strict=True):
        run = need.trials(seeds=[0], rounds=need.rounds)[0].run()
        assert run.cohort_size.tolist() == [3 * clients] * 5
        assert run.missed.sum() == 0


def smoke(folder, paper="rbcs-f", *, order=None, **how):
    """The smoke size of a paper."""
    made = {"seeds": [0, 1], "scale": "smoke"} | (order or {})
    return reproduce(Order(paper, **made), folder, command="fedroster", tables=True, workers=1, **how)


@pytest.mark.parametrize("paper", ["rbcs-f", "cocs"])
def test_the_smoke_size_makes_everything(tmp_path, paper):
    figures = list(find_paper(paper).scales["smoke"].figures)
    shares = []
    made = smoke(tmp_path, paper, order={"figures": figures}, progress=shares.append, pages=False)
    assert shares[-1] == pytest.approx(1.0)
    assert len({one.claim.statement for one in made}) == len(made) > 5
    for figure in figures:
        assert pl.read_csv(tmp_path / f"figure-{figure}.csv").height > 0
    assert all(one.claim.training for one in made)
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert settings["scale"] == "smoke"
    assert settings["training seeds"] == "0, 1"
    assert "seeds" not in settings  # those of runs without training: there are none
    assert "model digits-mlp" in settings["task digits"]


def test_a_paused_reproduction_goes_on(tmp_path):
    order = {"figures": ["5-cifar-10"]}
    with pytest.raises(PausedError, match="0 of 4 runs"):
        smoke(tmp_path, order=order, conditions=Conditions(stop_at=0.0))
    assert not (tmp_path / "report.html").exists()
    smoke(tmp_path, order=order)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert before.keys() >= {"report.html", "figure-5-cifar-10.svg"}
    smoke(tmp_path, order=order, engine=lambda *_, **__: pytest.fail("a run is left"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    for scale in ("cpu", None):
        with pytest.raises(ConfigurationError, match=f"experiments of scale smoke; expected {scale}"):
            smoke(tmp_path, order={"figures": ["3"], "scale": scale})


@pytest.mark.parametrize(("asked", "played"), [(None, 6), (12, 12)])
def test_rounds_that_are_asked_for_go_before_those_of_the_size(tmp_path, asked, played):
    class Asked:
        def __call__(self, trials, jobs, **options):
            assert {trial.rounds for trial in trials} == {played}
            return iter(())

    with pytest.raises(PausedError):
        smoke(tmp_path, order={"figures": ["5-cifar-10"], "rounds": asked}, engine=Asked())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"scale": "huge"}, UnknownNameError, "unknown scale 'huge'"),
        ({"scale": None, "figures": ["6-cifar-10"]}, ConfigurationError, "figure 6-cifar-10 needs training"),
        ({"training_seeds": [1]}, ConfigurationError, "training seeds are"),
    ],
)
def test_what_cannot_be_made_is_said(tmp_path, change, error, message):
    with pytest.raises(error, match=message):
        smoke(tmp_path, order={"figures": ["5-cifar-10"], **change})
    assert list(tmp_path.iterdir()) == []


def test_sizes_have_the_same_figures():
    for paper in map(find_paper, papers()):
        if not paper.scales:  # nothing is trained
            continue
        names = {
            name: {figure for figure, recipe in size.figures.items() if not recipe.on_request}
            for name, size in paper.scales.items()
        }
        assert names["cpu"] <= names["smoke"] == names["full"]
        notes = [note for recipe in paper.scales["cpu"].figures.values() for note in recipe.notes]
        assert names["cpu"] == names["full"] or any("not judged at CPU size" in note for note in notes)
