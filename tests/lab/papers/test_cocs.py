"""What is measured on COCS without training: claims with planted truth, and the regrets."""

import math

import numpy as np
import pytest

from fedroster.bounds import cocs_regret, delta_regret
from fedroster.core.errors import ConfigurationError
from fedroster.lab.pages.charts import data_of
from fedroster.lab.papers.cocs import PAPER
from fedroster.lab.papers.cocs.figures import (
    COCS_GREEDY,
    CUCB_PAIRS,
    ORACLE_GREEDY,
    STATIC,
    network_of,
    sure_share,
)
from fedroster.lab.verdicts.claims_page import numbers_table
from fedroster.lab.verdicts.verdicts import judge
from runs import planted_run

ROUNDS, SEEDS = 200, 8


def planted(participants, *, early=None, seed=0):
    """A run with so many updates in time in each round, another number in its first half."""
    rng = np.random.default_rng([seed, round(100 * participants)])
    rate = np.where(np.arange(ROUNDS) < ROUNDS // 2, participants if early is None else early, participants)
    return planted_run(3, ROUNDS, participants=rng.poisson(rate), exploring=np.ones(ROUNDS))


def judged(figure, courses):
    recipe = PAPER.figures[figure]
    runs = {label: [planted(**courses[label], seed=seed) for seed in range(SEEDS)] for label in recipe.needs}
    numbers_table(recipe.numbers(runs))
    assert data_of(recipe.draw(runs)).height
    return {verdict.claim.name: verdict.word for verdict in judge(recipe.claims(runs))}


def course(participants, early=None):
    return {"participants": participants, "early": early}


def on_cifar_10(oracle, cocs, cucb, random):
    """Courses of Fig. 5: the exact solvers do as in the paper whatever Fast Lazy Greedy does."""
    return {
        ORACLE_GREEDY: oracle,
        COCS_GREEDY: cocs,
        "cucb": cucb,
        "random": random,
        "linucb": random,
        "oracle": course(40.0),
        "oracle-p": course(39.0),
        "cocs": course(30.0, 20.0),
        "cocs:h_T=2,scale=0.02": course(30.0),
        CUCB_PAIRS: course(20.0),
        "linucb-pairs": course(20.0),
        "mnist oracle": course(30.0),
        "mnist cocs": course(20.0),
    }


def test_claims_that_are_true_and_false():
    true = judged("5", on_cifar_10(course(34.0), course(29.0, 25.0), course(10.2), course(10.0)))
    assert set(true.values()) == {"holds", "contradicted"}
    # The ratio of the square roots is 1.7, and then that of the updates is 2.7.
    assert {name for name, word in true.items() if word != "holds"} == {"cifar-1.7-times-cucb-updates"}
    false = judged("5", on_cifar_10(course(10.0), course(9.0, 12.0), course(34.0), course(5.0)))
    wrong = {name for name, word in false.items() if word == "contradicted"}
    assert wrong == {
        "cifar-oracle-first",
        "cifar-cocs-second",
        "cifar-cucb-like-random",
        "cifar-sublinear",
        "cifar-1.7-times-cucb",
        "cifar-1.7-times-cucb-updates",
    }


def test_every_claim_says_on_which_network():
    """A page has both networks; a claim that names none would stand on it twice."""
    said = [
        claim.statement
        for recipe in PAPER.figures.values()
        for claim in recipe.claims({label: [planted(9.0, seed=seed) for seed in range(2)] for label in recipe.needs})
    ]
    assert len(set(said)) == len(said) > 20
    assert all(statement.startswith(("MNIST network: ", "CIFAR-10 network: ")) for statement in said)


def test_a_verdict_that_accuses_no_paper_says_so_beside_its_figure():
    said = {name for name, recipe in PAPER.figures.items() if any("ratio of 1.7" in note for note in recipe.notes)}
    assert said == {"5"}


def test_cucb_alone_has_static_resources():
    for figure in ("3a", "5", "4d"):
        for label, need in PAPER.figures[figure].needs.items():
            assert (STATIC[0] in need.settings) == label.startswith("cucb ") or need.policy == "cucb"
    for figure in ("3-static", "5-static"):
        assert all(STATIC[0] in need.settings for need in PAPER.figures[figure].needs.values())


def test_delta_regret():
    best, own = np.array([[10.0, 20.0, 30.0]]), np.array([[5.0, 5.0, 5.0]])
    np.testing.assert_allclose(delta_regret(best, own, share=1.0), [[5.0, 20.0, 45.0]])
    np.testing.assert_allclose(delta_regret(best, own, share=0.25), [[-2.5, -2.5, 0.0]])
    with pytest.raises(ConfigurationError, match=r"share is 1\.5"):
        delta_regret(best, own, share=1.5)


@pytest.mark.parametrize(("name", "most"), [("mnist", 9.0), ("cifar-10", 30.0)])
def test_no_run_can_break_a_bound(name, most):
    """The note on both figures of regret: each bound allows more than every round's most updates in time."""
    network = network_of(f"cocs/{name}")
    assert most == min(network.num_clients, network.num_servers * math.floor(network.budget / network.least_cost))
    sizes = {"num_clients": network.num_clients, "num_servers": network.num_servers, "budget": network.budget}
    for share in (1.0, sure_share(network)):
        for rounds in (2**power for power in range(60)):
            bound = cocs_regret(
                rounds, **sizes, least_cost=network.least_cost, holder_constant=0.0, approximation=share
            )
            assert bound >= most * rounds


def test_fast_lazy_greedy_is_sure_of_a_tenth():
    assert sure_share(network_of("cocs/cifar-10")) == pytest.approx(1.0 / (1.3 * 8.0))
