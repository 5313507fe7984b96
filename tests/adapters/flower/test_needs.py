"""Differential-privacy wrappers get what their noise is calibrated for, or are refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet, model, train_messages
from flwr import serverapp
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from test_grid import selecting

from fedroster.adapters.flower import RoundRules
from fedroster.adapters.flower.needs import StrategyNeeds, needs_of
from fedroster.core.errors import ConfigurationError


def wrapped(num_clients, **options):
    inner = FedAvg(fraction_train=1e-9, min_train_nodes=num_clients)
    return DifferentialPrivacyServerSideFixedClipping(inner, 1e-6, 100.0, num_clients, **options)


def test_another_cohort_size_is_refused():
    strategy = wrapped(3)
    grid, *_ = selecting(fleet(8), m=4, strategy=strategy)
    with pytest.raises(ConfigurationError, match="num_sampled_clients = 3, and a round here uses 4"):
        strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)
    assert grid.selector.round == 0


def test_the_first_k_count():
    strategy = wrapped(3)
    grid, *_ = selecting(fleet(8), m=5, rules=RoundRules(first=3), strategy=strategy)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 2.0), abs=1e-3)


@pytest.mark.parametrize(
    "wrapper", [wrapped, lambda k: DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1e-6, 1.0, k)]
)
def test_a_round_with_too_few_updates_is_skipped(wrapper):
    nodes = fleet(4)
    nodes[100].fate = ("error", "ok")
    strategy = wrapper(4)
    grid, *_ = selecting(nodes, m=4, strategy=strategy)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 1.0), abs=1e-3)  # one of two rounds


def test_accounting_without_amplification_runs_and_counts_every_release():
    if not hasattr(serverapp, "PrivacyAccountant"):
        pytest.skip("this Flower has no accountant")
    spent = SimpleNamespace(epsilon=1.0, delta=1e-5, num_releases=0)

    def compose(event):
        assert event.sample_size == 3
        spent.num_releases += 1

    method = serverapp.SamplingMethod.NO_AMPLIFICATION
    config = SimpleNamespace(sampling_method=method, max_epsilon=None, population_size=8)
    accountant = SimpleNamespace(config=config, compose=compose, get_privacy_spent=lambda: spent)
    strategy = wrapped(3, accountant=accountant)
    grid, *_ = selecting(fleet(8), m=3, strategy=strategy)
    strategy.start(grid=grid, initial_arrays=model(), num_rounds=4)
    assert spent.num_releases == 4


def test_amplification_is_refused_with_the_reason():
    method = SimpleNamespace(sampling_method=SimpleNamespace(value="poisson"))
    strategy = SimpleNamespace(num_sampled_clients=3, accountant=SimpleNamespace(config=method))
    with pytest.raises(ConfigurationError, match=r"'poisson', which counts on uniform random sampling"):
        needs_of(strategy).check(3)


def test_what_strategies_need():
    assert needs_of(None) == StrategyNeeds()
    assert needs_of(FedAvg(min_available_nodes=5)) == StrategyNeeds(weight_key="num-examples", least_nodes=5)
    needs = needs_of(SimpleNamespace(held_under_any_name=wrapped(2)))
    assert (needs.strategy, needs.num_updates) == ("DifferentialPrivacyServerSideFixedClipping", 2)
    circle = SimpleNamespace(num_sampled_clients=True)
    circle.strategy = circle
    assert needs_of(circle) == StrategyNeeds()


class Quiet(DifferentialPrivacyServerSideFixedClipping):
    """A subclass whose name says nothing."""


def test_a_subclass_of_another_name_is_asked_all_the_same():
    strategy = Quiet(FedAvg(fraction_train=1e-9, min_train_nodes=3), 1e-6, 100.0, 3)
    grid, *_ = selecting(fleet(8), m=4, strategy=strategy)
    with pytest.raises(ConfigurationError, match="num_sampled_clients = 3, and a round here uses 4"):
        strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)


def test_neither_another_grid_around_ours_nor_a_plain_function_goes_past_the_guard():
    strategy = wrapped(3)
    grid, fake, _ = selecting(fleet(8), m=4, strategy=strategy)

    class Outer:
        def __getattr__(self, name):
            return getattr(grid, name)

    with pytest.raises(ConfigurationError, match="a round here uses 4"):
        strategy.start(grid=Outer(), initial_arrays=model(), num_rounds=1)

    def plain():
        return grid.send_and_receive(train_messages(fake.get_node_ids()))

    with pytest.raises(ConfigurationError, match="a round here uses 4"):
        plain()
    assert grid.selector.round == 0


def test_the_inner_strategy_is_not_the_one_that_is_started():
    strategy = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1e-6, 1.0, 3)
    grid, *_ = selecting(fleet(8), m=4, strategy=strategy.strategy)
    with pytest.raises(ConfigurationError, match="expected the one that is started"):
        strategy.start(grid=grid, initial_arrays=model(), num_rounds=1)


def test_the_stages_of_secure_aggregation_are_no_rounds():
    grid, fake, _ = selecting(fleet(4))
    messages = train_messages(fake.get_node_ids())
    for message in messages:
        message.content["secaggplus_configs"] = ConfigRecord({"stage": "setup"})
    with pytest.raises(ConfigurationError, match="SecAgg"):
        list(grid.send_and_receive(messages))
    assert grid.selector.round == 0
