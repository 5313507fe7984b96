import numpy as np
import pytest

from fedroster.aggregation.fedavg import federated_average, finite_updates

CURRENT = {"w": np.array([[9.0, 9.0]], np.float32), "b": np.array([9.0], np.float32)}
NUM_SAMPLES = np.array([1, 3, 4])
ALL = np.ones(3, np.bool_)


def updates():
    return {
        "w": np.array([[[1.0, 2.0]], [[5.0, 6.0]], [[0.0, 8.0]]], np.float32),
        "b": np.array([[8.0], [0.0], [4.0]], np.float32),
    }


def test_mean_by_hand():
    result = federated_average(CURRENT, updates(), NUM_SAMPLES, arrived=ALL)
    np.testing.assert_array_equal(result.parameters["w"], [[(1 + 15 + 0) / 8, (2 + 18 + 32) / 8]])
    np.testing.assert_array_equal(result.parameters["b"], [(8 + 0 + 16) / 8])
    assert result.parameters["w"].dtype == np.float32
    assert result.used.all()


def test_drop_outs_do_not_count():
    stacked = updates()
    stacked["w"][0] = 1e30  # whatever lies there
    result = federated_average(CURRENT, stacked, NUM_SAMPLES, arrived=np.array([False, True, True]))
    np.testing.assert_allclose(result.parameters["w"], [[15 / 7, (18 + 32) / 7]], rtol=1e-6)
    np.testing.assert_allclose(result.parameters["b"], [16 / 7], rtol=1e-6)
    assert result.used.tolist() == [False, True, True]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_is_refused(value):
    stacked = updates()
    stacked["b"][1, 0] = value
    result = federated_average(CURRENT, stacked, NUM_SAMPLES, arrived=ALL)
    assert result.used.tolist() == [True, False, True]
    np.testing.assert_allclose(result.parameters["b"], [(8 + 16) / 5], rtol=1e-6)
    np.testing.assert_allclose(result.parameters["w"], [[1 / 5, (2 + 32) / 5]], rtol=1e-6)
    assert finite_updates(stacked, 3).tolist() == [True, False, True]


@pytest.mark.parametrize("case", ["none asked", "none arrived", "all refused"])
def test_an_empty_cohort_leaves_the_model_as_it_was(case):
    stacked, num_samples, arrived = updates(), NUM_SAMPLES, ALL
    if case == "none asked":
        stacked, num_samples, arrived = {n: v[:0] for n, v in stacked.items()}, NUM_SAMPLES[:0], ALL[:0]
    elif case == "none arrived":
        arrived = ~ALL
    else:
        stacked["w"][:] = np.nan
    result = federated_average(CURRENT, stacked, num_samples, arrived=arrived)
    assert not result.used.any()
    for name, value in CURRENT.items():
        np.testing.assert_array_equal(result.parameters[name], value)


def test_mean_of_equal_models_is_that_model_and_order_does_not_matter():
    rng = np.random.default_rng(0)
    model = rng.standard_normal(500).astype(np.float32)
    counts = rng.integers(1, 50, 20)
    same = federated_average({"w": model}, {"w": np.tile(model, (20, 1))}, counts, arrived=np.ones(20, np.bool_))
    np.testing.assert_allclose(same.parameters["w"], model, rtol=2e-7)
    stacked, order = rng.standard_normal((20, 500)).astype(np.float32), rng.permutation(20)
    one = federated_average({"w": model}, {"w": stacked}, counts, arrived=np.ones(20, np.bool_))
    two = federated_average({"w": model}, {"w": stacked[order]}, counts[order], arrived=np.ones(20, np.bool_))
    np.testing.assert_allclose(one.parameters["w"], two.parameters["w"], rtol=1e-6, atol=1e-7)
