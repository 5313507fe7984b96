"""Losses that nodes report reach policies that want them, and are bounded: nodes lie."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")

from fake_grid import fleet
from test_grid import play, selecting

from fedroster import Selector, Uniform
from fedroster.adapters.flower import LossMetrics, RoundRules
from fedroster.policies import Floor, Oort


class Recorder(Selector):
    """Remembers its feedback: ``told`` has all values of a kind, by client."""

    told: dict

    def observe(self, round, **feedback):
        for kind in ("losses", "squared_losses", "num_samples"):
            for client, value in (feedback[kind] or {}).items():
                self.told.setdefault(kind, {}).setdefault(client, []).append(value)
        super().observe(round, **feedback)


def learning(nodes, policy, *, m, **options):
    kind = type("", (Recorder,), {"told": {}})
    return selecting(nodes, m=m, policy=policy, rules=RoundRules(deadline_s=3.0), told={"kind": kind}, **options)[:2]


@pytest.mark.parametrize("names", [LossMetrics(), LossMetrics("train_loss", "mean_square", "size")])
def test_losses_and_sample_counts_reach_a_policy_that_wants_them_under_any_names(names):
    def metrics(number):
        loss = 1.0 + number
        return {names.loss: loss, names.squared_loss: 2.0 * loss**2, names.num_samples: 10 + number}

    grid, fake = learning(fleet(3, each=lambda number: {"metrics": metrics(number)}), Oort(), m=3, losses=names)
    play(grid, fake, 2)
    assert grid.selector.told == {
        "losses": {f"n0{n}": [1.0 + n] * 2 for n in range(3)},
        "squared_losses": {f"n0{n}": [2.0 * (1.0 + n) ** 2] * 2 for n in range(3)},
        "num_samples": {f"n0{n}": [10.0 + n] * 2 for n in range(3)},
    }


def test_a_policy_that_learns_nothing_from_losses_is_told_none():
    nodes = fleet(2, metrics={"initial-loss": 1.0})
    grid, fake = learning(nodes, Uniform(), m=2)
    play(grid, fake)
    assert grid.selector.told == {}


def test_the_model_sways_where_like_clients_come_together_and_the_log_says_so_once(caplog):
    nodes = fleet(8)
    for number, node in enumerate(nodes.values()):  # slow nodes have data of their own
        node.delay_s, loss = (1.0, 0.2) if number < 4 else (3.0, 1.0)
        node.metrics = {"initial-loss": loss + 0.01 * number}
    caplog.set_level("INFO", "fedroster")
    grid, fake = learning(nodes, Floor(beta=0.4), m=4)
    play(grid, fake, 40)
    assert sum("the model sways" in line for line in caplog.messages) == 1
    assert sum("times as much as by chance" in line for line in caplog.messages) == 21


def test_a_late_reply_tells_its_loss_and_a_refused_one_does_not():
    nodes = fleet(4, metrics={"initial-loss": 1.0})
    nodes[101].fate = (5.0, "ok")
    nodes[102].fate = ("nan",)
    nodes[103].fate = ("garbage",)
    grid, fake = learning(nodes, Oort(), m=4)
    play(grid, fake, 1)
    assert set(grid.selector.told["losses"]) == {"n00"}
    fake.clock.sleep(4.0)
    grid._exchange.look()
    assert grid.selector.told["losses"] == {"n00": [1.0], "n01": [1.0]}
