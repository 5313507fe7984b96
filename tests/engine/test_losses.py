"""Losses that clients report are bounded, absolutely and by what others say: clients lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedroster.engine.losses import MOST_SWAY, LossMetrics, LossReader, Sway


def heard(loss=None, squared=None, samples=None):
    found = {"losses": loss, "squared_losses": squared, "num_samples": samples}
    return {kind: value for kind, value in found.items() if value is not None}


def metrics(**told):
    return {key.replace("_", "-"): value for key, value in told.items()}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, {}),
        ({"initial_loss": -3.0, "num_examples": 0}, heard(0.0, samples=1.0)),
        ({"initial_loss": 1e9, "num_examples": 2**62}, heard(100.0, samples=1e9)),
        ({"initial_loss": 1e300, "initial_squared_loss": 1e300}, heard(100.0, 1e4)),
        ({"initial_loss": -(10**400), "num_examples": 10**400}, {}),  # as infinite ones
        ({"initial_loss": math.nan, "num_examples": math.inf}, {}),
        ({"initial_loss": [1.0, 2.0]}, {}),
        ({"initial_loss": np.float32(0.5), "num_examples": np.int64(7)}, heard(0.5, samples=7.0)),
        ({"initial_loss": 3.0, "initial_squared_loss": 4.0}, heard(3.0, 9.0)),  # a mean square below the squared mean
        ({"initial_loss": 3.0, "initial_squared_loss": -1.0}, heard(3.0, 9.0)),
    ],
)
def test_values_are_bounded(told, expected):
    assert LossReader(LossMetrics()).read(metrics(**told)) == expected


def test_a_liar_is_held_to_what_others_say():
    reader = LossReader(LossMetrics())
    for _ in range(5):
        assert reader.read(metrics(initial_loss=0.5, num_examples=20)) == heard(0.5, samples=20.0)
    assert reader.read(metrics(initial_loss=90.0, num_examples=10**9)) == heard(5.0, samples=200.0)
    assert reader.read(metrics(initial_loss=2.0, num_examples=150)) == heard(2.0, samples=150.0)  # honest outliers pass
    many = LossReader(LossMetrics())
    for loss in [0.5] * 5 + [90.0] * 6:
        many.read(metrics(initial_loss=loss))
    assert many.read(metrics(initial_loss=90.0))["losses"] == 50.0  # lies count as what they were clipped to


def sway(cohorts):
    """The last of them."""
    found, swaying = [], Sway()
    for losses in cohorts:
        found.append(swaying.add(losses))
    assert all(map(math.isnan, found[:19]))
    return found[-1]


def test_losses_sway_where_a_cohort_is_alike_and_the_next_is_not():
    rng = np.random.default_rng(0)
    apart = np.repeat([0.2, 1.0, 0.3, 0.9], 8)
    alike = [(apart[at % 4 * 8 :][:8] + rng.normal(0.0, 0.1, 8)).tolist() for at in range(40)]
    mixed = [(rng.choice(apart, 8, replace=False) + rng.normal(0.0, 0.1, 8)).tolist() for _ in range(400)]
    assert sway(alike) > MOST_SWAY
    assert np.mean([sway(mixed[at : at + 20]) for at in range(0, 400, 20)]) == pytest.approx(0.75, abs=0.15)
    falling = [(2.0 * 0.99**at + rng.normal(0.0, 0.1, 8)).tolist() for at in range(40)]
    assert sway(falling) < 2.0  # that the model learns is no sway
    assert math.isnan(sway([[0.5]] * 40))  # one client says nothing of chance
    assert math.isnan(sway([[0.5, 0.5]] * 40))
