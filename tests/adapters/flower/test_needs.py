"""Differential-privacy wrappers get what their noise is calibrated for, or are refused."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import ClockThat, fleet, model, train_messages
from flwr import serverapp
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
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


def test_the_first_k_count():
    strategy = wrapped(3)
    grid, *_ = selecting(fleet(8), m=5, rules=RoundRules(first=3), strategy=strategy)
    result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=2)
    assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), 2.0), abs=1e-3)


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
    assert needs_of(FedAvg(min_available_nodes=5)) == StrategyNeeds(weight_key="num-examples")
    needs = needs_of(SimpleNamespace(held_under_any_name=wrapped(2)))
    assert (needs.strategy, needs.num_updates) == ("DifferentialPrivacyServerSideFixedClipping", 2)
    circle = SimpleNamespace(num_sampled_clients=True)
    circle.strategy = circle
    assert needs_of(circle) == StrategyNeeds()


class Quiet(DifferentialPrivacyServerSideFixedClipping):
    """A subclass whose name says nothing."""


@pytest.mark.parametrize("strategy", [wrapped(3), Quiet(FedAvg(fraction_train=1e-9, min_train_nodes=3), 0.1, 9.0, 3)])
def test_another_cohort_size_is_refused_whatever_the_class_is_called_and_whoever_calls_the_grid(strategy):
    grid, fake, _ = selecting(fleet(8), m=4, strategy=strategy)
    messages = train_messages(fake.get_node_ids())
    outer = SimpleNamespace(get_node_ids=grid.get_node_ids, send_and_receive=grid.send_and_receive)
    for way in (
        partial(grid.start, model(), num_rounds=1),
        partial(strategy.start, outer, model(), 1),
        partial(grid.send_and_receive, messages),
    ):
        with pytest.raises(ConfigurationError, match="num_sampled_clients = 3, and a round here uses 4"):
            way()
    assert grid.selector.round == 0


def test_the_grid_starts_the_strategy_that_it_guards_and_a_clipping_norm_among_hyperparameters_is_no_privacy():
    grid, *_ = selecting(fleet(4), m=2, strategy=FedAvg())
    grid.start(model(), num_rounds=1, train_config=ConfigRecord({"lr": 0.1, "clipping_norm": 1.0}))
    assert grid.round == 1
    grid, *_ = selecting(fleet(4))
    with pytest.raises(ConfigurationError, match="expected one of Flower's message API"):
        grid.start(model(), num_rounds=1)


WRAPPERS = [
    lambda k: DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1e-6, 100.0, k),
    lambda k: DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1e-6, 1.0, k),
    lambda k: DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 0.0, k),
    lambda k: DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 0.0, k),
]


def no_bit(content):
    del content["metrics"]["norm_bit"]


@pytest.mark.parametrize("fate", ["error", "nan", "expired", "gone", "silent", 8.0, no_bit])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_absence_ends_no_run_and_what_is_used_is_what_the_strategy_got(wrapper, fate):
    nodes = fleet(3, metrics={"norm_bit": 1})
    nodes[100].fate = (fate, "ok")
    strategy, got = wrapper(3), []
    inner = strategy.strategy.aggregate_train
    strategy.strategy.aggregate_train = lambda number, replies: got.append(len(list(replies))) or inner(number, replies)
    rules = RoundRules(deadline_s=5.0, give_up_s=6.0, wait_s=120.0)
    grid, fake, reports = selecting(nodes, m=3, strategy=strategy, rules=rules)
    if fate == "gone":
        grid._exchange.clock = ClockThat(
            fake.clock, lambda s: (fake.clock.sleep(s), nodes[100].__setattr__("is_online", len(reports) > 0))
        )
    result = grid.start(model(), num_rounds=4)
    is_needed = fate is not no_bit or isinstance(strategy, DifferentialPrivacyClientSideAdaptiveClipping)
    assert sum(got) == sum(grid.selector.participation("used").values())
    assert [report.num_in_time for report in reports][:1] == [0 if is_needed else 3]
    assert sum(got) >= 3
    if "Fixed" in type(strategy).__name__:  # a skipped round leaves the model as it was
        assert result.arrays["w"].numpy() == pytest.approx(np.full((3, 2), sum(got) / 3), abs=1e-2)


def test_the_stages_of_secure_aggregation_are_no_rounds():
    grid, fake, _ = selecting(fleet(4))
    messages = train_messages(fake.get_node_ids())
    for message in messages:
        message.content["secaggplus_configs"] = ConfigRecord({"stage": "setup"})
    with pytest.raises(ConfigurationError, match="SecAgg"):
        list(grid.send_and_receive(messages))
    grid, *_ = selecting(fleet(4), m=4, strategy=wrapped(3))
    with pytest.raises(ConfigurationError, match="SecAgg"):  # before the number of updates
        list(grid.send_and_receive(messages))
    assert grid.selector.round == 0
