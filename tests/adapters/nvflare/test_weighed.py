"""FedAvg's own average by samples gives the weighted sum of a decision; else the policy is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Site, model, run
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.workflows.fedavg import FedAvg

from fedroster import Selector, Uniform
from fedroster.adapters.nvflare import RoundRules, RoundSink, Selecting
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Status

sys.path.append(str(Path(__file__).parents[2]))
from weighing import Drawn, noting


class Moving(Site):
    """A site that moves the model by its number, and tells samples of its own, or none."""

    def __init__(self, number, kind):
        super().__init__()
        self.number, self.kind = number, kind

    def train(self, model, number=0):
        self.log.append(number)
        samples = {} if self.number == 0 else {FLMetaKey.NUM_STEPS_CURRENT_ROUND: 10 * self.number}
        base = 0.0 if self.kind is ParamsType.DIFF else 1.0
        self.held = {name: base * array + 1.0 + self.number for name, array in model.items()}
        self.returned = {name: array.copy() for name, array in self.held.items()}
        return FLModel(params=self.held, params_type=self.kind, metrics={"num-examples": 7, "loss": 1.0}, meta=samples)


class Weighing(Selecting, FedAvg):
    rules = RoundRules(wait_s=5.0)
    policy = Drawn(0.5)

    def make_selector(self):
        self.decided = []
        return Selector(self.policy, cohort_size=4, observers=[noting(self.decided)])

    def save_model(self, model):
        self.saved = [*getattr(self, "saved", []), {name: array.copy() for name, array in model.params.items()}]


@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
def test_fedavgs_own_average_gives_the_weighted_sum(kind):
    sites = {f"site-{number}": Moving(number, kind) for number in range(6)}
    controller, engine = run(Weighing, sites, size=4, rounds=4, at=3.0)
    assert not engine.panics
    assert len(controller.decided) == len(controller.saved) == 4
    at = {name: array + 3.0 for name, array in model().items()}
    for weights, saved in zip(controller.decided, controller.saved, strict=True):
        step = sum(weight * (1.0 + sites[name].number) for name, weight in weights.items())
        at = {name: array + step for name, array in at.items()}
        for name, array in at.items():
            np.testing.assert_allclose(saved[name], array, rtol=1e-12)
    for site in sites.values():  # a result that a client still holds is its own
        for name, array in getattr(site, "returned", {}).items():
            assert (site.held[name] == array).all()


def test_what_does_not_come_moves_nothing():
    sites = {f"site-{number}": Moving(number, ParamsType.FULL) for number in range(4)}
    sites["site-3"].train = Site(fate=("raises",)).train
    controller, engine = run(Weighing, sites, size=4, rounds=1, at=3.0)
    assert not engine.panics
    step = sum(
        weight * (1.0 + sites[name].number) for name, weight in controller.decided[0].items() if name != "site-3"
    )
    np.testing.assert_allclose(controller.saved[0]["w"], 3.0 + step, rtol=1e-12)


class Unchecked(Weighing):
    check = None


class Summing:
    """Aggregates in a way of its own."""

    fl_ctx = None


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Unchecked, {}),
        (Weighing, {"enable_tensor_disk_offload": True}),
        (Weighing, {"aggregation_weights": {"site-1": 2.0}}),
        (Weighing, {"aggregator": Summing()}),
    ],
)
def test_a_policy_that_weighs_is_refused_where_its_weights_are_not_applied(kind, options):
    with pytest.raises(ConfigurationError, match="Drawn says how much each update counts"):
        kind(num_clients=4, persistor_id="", **options).start_controller(None)


def test_a_difference_is_judged_by_its_own_size():
    class Diverging(Moving):
        def train(self, model, number=0):
            result = super().train(model, number)
            result.params["w"] = result.params["w"] * 1e5
            return result

    class Plain(Weighing):
        def make_selector(self):
            self.reports = []
            return Selector(Uniform(), cohort_size=4, observers=[RoundSink(self.reports.append)])

    class Far(Plain):
        def run(self):
            self.model.params = {name: array + 1e5 for name, array in self.model.params.items()}
            super().run()

    sites = {f"site-{number}": Moving(number, ParamsType.DIFF) for number in range(3)}
    sites["site-3"] = Diverging(3, ParamsType.DIFF)
    controller, _ = run(Far, sites, size=4, rounds=1, at=3.0)
    assert controller.reports[0].status["site-3"] is Status.FAILED
    assert "its change is" in controller.reports[0].reasons["site-3"]
