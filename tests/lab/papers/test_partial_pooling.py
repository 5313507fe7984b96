"""What is measured on partial pooling: claims with planted truth, and a small run of every kind of figure."""

import numpy as np
import polars as pl
import pytest

from fedroster.lab.pages.charts import data_of
from fedroster.lab.papers.partial_pooling import PAPER
from fedroster.lab.papers.partial_pooling import figures as study
from fedroster.lab.verdicts.claims_page import counted, numbers_table
from fedroster.lab.verdicts.reproduce import Order, reproduce
from fedroster.lab.verdicts.verdicts import judge
from runs import planted_run

ROUNDS, SEEDS, CLIENTS = 300, 10, 50


def planted(share, *, early=None, least=0, gap=0.0, lacking=0.0, rounds=ROUNDS, seed=0):
    """A run with a share of Oracle-p's ten updates a round, another one within the first 200 rounds."""
    rng = np.random.default_rng([seed, round(1000 * share)])
    rate = np.where(np.arange(rounds) < 200, share if early is None else early, share)
    chosen = np.full(CLIENTS, 60)
    chosen[0] = least
    return planted_run(
        CLIENTS,
        rounds,
        round_time_s=np.zeros(rounds),
        cohort_size=np.full(rounds, 10),
        chosen=chosen,
        available=np.full(CLIENTS, rounds),
        participants=rng.binomial(1000, rate / 2.0),
        gap=np.full(rounds, gap),
        lacking=np.full(rounds, lacking),
    )


def verdicts(figure, value):
    recipe = PAPER.figures[figure]
    runs = {}
    for label in recipe.needs:
        planned = value(label)
        planned = planned if isinstance(planned, dict) else {"share": planned}
        runs[label] = [planted(seed=seed, **planned) for seed in range(SEEDS)]
    numbers_table(recipe.numbers(runs))
    assert data_of(recipe.draw(runs)).height > 0
    return {verdict.claim.name: verdict.holds for verdict in judge(recipe.claims(runs))}


@pytest.mark.parametrize(
    ("ours", "cocs", "pairs", "held"),
    [
        ({"share": 0.99}, 0.8, 0.96, (True, True, True, True)),
        ({"share": 0.96}, 0.5, 0.97, (False, True, True, False)),
        ({"share": 0.999, "early": 0.94}, 0.5, 0.9, (False, False, True, True)),
        ({"share": 0.98}, 0.95, 0.9, (True, True, False, True)),
    ],
)
def test_claims_on_a_network(ours, cocs, pairs, held):
    values = {"oracle-p": 1.0, study.OURS: ours, study.FAIR: 0.97, "cocs": cocs, "random": 0.5, study.TUNED: 0.975}
    found = verdicts("mnist-geometric", lambda label: values.get(label, pairs))
    assert tuple(found[f"mnist-geometric-{key}"] for key in ("share", "early", "regret", "pairs")) == held
    assert found["mnist-geometric-tuned"] == (ours["share"] in (0.98, 0.99))  # by half a per cent: it holds, but small


def test_claims_on_hidden_causes():
    def world(ours, without, lucky=""):
        def value(label):
            policy, _, cause = label.partition(" / ")
            if policy == "CUCB per pair" and cause == lucky:
                return 1.0
            return {"Oracle-p": 1.0, "Partial pooling": ours, "without deviations": without}.get(policy, 0.8)

        return value

    assert all(verdicts("hidden", world(0.985, 0.9)).values())
    assert not any(verdicts("hidden", world(0.79, 0.79)).values())
    lucky = verdicts("hidden", world(0.985, 0.9, lucky="turns"))
    assert not lucky["hidden-pairs"]
    assert lucky["hidden-share"]


def test_claims_on_rates():
    def row(label):
        return label.partition(" / ")[0]

    def kept(label):
        rate = 0.0 if row(label) == "free" else study.RATES[row(label)][0]
        share = 1.0 if row(label) == "free" else 0.99
        return {"share": share, "least": int(rate * rounds) - 3, "lacking": 3, "rounds": rounds}

    rounds = 450  # 9 participations are owed at a rate of 0.02
    assert all(verdicts("rates", kept).values())
    rounds = 449
    for network in ("cifar-10", "cifar-10-geometric"):
        found = verdicts("rates", kept)
        assert (found[f"rates-{network}-price"], found[f"rates-{network}-kept"]) == (True, False)
    broken = verdicts(
        "rates", lambda label: {"share": 1.0 if row(label) == "free" else 0.95, "least": 0, "lacking": 20}
    )
    assert not any(broken.values())


def test_the_lowest_rate_is_a_share_of_the_rounds():
    recipe = PAPER.figures["rates"]
    runs = {label: [planted(0.99, least=30, seed=seed) for seed in range(2)] for label in recipe.needs}
    for rates in recipe.numbers(runs)["lowest rate, %"].values():
        assert rates == pytest.approx([10.0, 10.0])


@pytest.mark.parametrize(
    ("ours", "cocs", "linear", "held"),
    [
        ({"share": 0.99}, 0.8, 0.95, (True, True, True, True)),
        ({"share": 0.979, "early": 0.979}, 0.5, 0.95, (False, True, True, True)),  # 97 % but for Oracle-p's own gap
        ({"share": 0.999, "early": 0.94}, 0.5, 0.9, (False, False, True, True)),
        ({"share": 0.99}, 0.96, 0.995, (True, True, False, False)),
    ],
)
def test_claims_at_size(ours, cocs, linear, held):
    oracle = {"share": 1.0, "gap": 0.015}
    values = {"Oracle-p": oracle, "Partial pooling": ours, "COCS": cocs, "LinUCB per pair": linear, "Random": 0.4}
    found = verdicts("large", lambda label: values[label.partition(" / ")[0]])
    assert tuple(found[f"large-{key}"] for key in ("share", "early", "regret", "pairs")) == held


def test_one_network_out_of_two_is_not_enough():
    def value(label):
        policy, _, world = label.partition(" / ")
        ours = 0.99 if world.startswith("MNIST") else 0.9
        return {"Oracle-p": 1.0, "Partial pooling": ours}.get(policy, 0.85)

    assert not any(verdicts("large", value)[f"large-{key}"] for key in ("share", "early", "regret"))


def test_the_large_networks_are_large():
    for need in PAPER.figures["large"].needs.values():
        settings = dict(need.settings)
        assert (settings["num_clients"], settings["num_servers"]) == ("10000", "50")
        assert need.trials(seeds=[0], rounds=1000)[0].rounds == 1000


def test_a_small_run_of_each_kind(tmp_path):
    wanted = ["rates", "training-mnist"]
    order = Order("partial-pooling", [0, 1], wanted, rounds=10, scale="smoke")
    made = reproduce(order, tmp_path, command="", tables=True, workers=1)
    assert all(verdict.claim.ours for verdict in made)
    page = (tmp_path / "index.md").read_text()
    assert f"All {len(made)} claims are ours: {counted(made)}." in page
    for figure in wanted:
        assert pl.read_csv(tmp_path / f"figure-{figure}.csv").height > 0
        assert (tmp_path / f"figure-{figure}.svg").stat().st_size > 5000


def test_claims_on_training():
    def run(final, seed):
        ones = np.ones(60, np.int64)
        accuracy = np.full(60, final) + 1e-3 * np.random.default_rng([seed, int(1e4 * final)]).standard_normal(60)
        return planted_run(60, 60, round_time_s=ones.astype(float), chosen=ones, accuracy=accuracy)

    recipe = PAPER.scales["cpu"].figures["training-mnist"]
    for fair, held in ((0.9, (True, True)), (0.84, (True, False)), (0.7, (False, False))):
        finals = dict.fromkeys(recipe.needs, 0.85) | {"the same, beta = 0.05": fair, "Partial pooling": 0.8}
        runs = {label: [run(final, seed) for seed in range(SEEDS)] for label, final in finals.items()}
        assert len(recipe.numbers(runs)) == 5
        found = {verdict.claim.name: verdict.holds for verdict in judge(recipe.claims(runs))}
        assert (found["training-mnist-fair"], found["training-mnist-best"]) == held
