from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.data.partition import class_counts, class_proportions, dirichlet_partition, largest_remainder

LABELS = np.repeat(np.arange(10), 140)


def partition(gamma_1=0.5, *, seed=0, labels=LABELS, **changes):
    settings = {"num_clients": 40, "samples_per_client": 100, "num_classes": 10} | changes
    return dirichlet_partition(labels, gamma_1=gamma_1, rng=np.random.default_rng(seed), **settings)


@pytest.mark.parametrize("gamma_1", [1e-320, 1e-300, 1e-9, 0.1, 1.0, 100.0, 1e9])
def test_sizes_and_no_sample_twice_within_a_client(gamma_1):
    rows = partition(gamma_1)
    assert rows.shape == (40, 100)
    assert all(np.unique(row).size == 100 for row in rows)
    assert (class_counts(rows, LABELS, 10).sum(axis=1) == 100).all()


@pytest.mark.parametrize("gamma_1", [1e-320, 1e-300, 1e-12, 1e-6])
def test_tiny_gamma_gives_one_class_each_and_every_class_its_turn(gamma_1):
    counts = class_counts(partition(gamma_1, num_clients=400), LABELS, 10)
    assert (counts.max(axis=1) == 100).all()
    owners = np.bincount(counts.argmax(axis=1), minlength=10)
    assert ((owners - 40.0) ** 2 / 40.0).sum() < 27.9  # chi-squared with 9 degrees of freedom, 0.1 %


def test_huge_gamma_gives_equal_shares():
    counts = class_counts(partition(1e12), LABELS, 10)
    assert np.abs(counts - 10).max() <= 1


def second_moment(gamma_1, seed):
    shares = class_counts(partition(gamma_1, num_clients=400, seed=seed), LABELS, 10) / 100.0
    return (shares**2).sum(axis=1)


@pytest.mark.parametrize("gamma_1", [0.3, 1.0, 5.0])
def test_class_shares_follow_gamma(gamma_1):
    # E sum q_i^2 = (gamma + 1) / (10 gamma + 1); rounding to whole samples moves it by less than 0.002.
    expected = (gamma_1 + 1.0) / (10.0 * gamma_1 + 1.0)
    found = second_moment(gamma_1, seed=1)
    error = found.std() / 20.0
    assert abs(found.mean() - expected) < 4.0 * error + 0.002
    # Negative control: the same check refuses a gamma that is half as large again.
    wrong = second_moment(1.5 * gamma_1, seed=1)
    assert abs(wrong.mean() - expected) > 4.0 * wrong.std() / 20.0 + 0.002


def test_samples_of_a_class_are_equally_likely():
    rows = partition(1e9, num_clients=700)
    times = np.bincount(rows.ravel(), minlength=1400)  # 50 each on average
    assert ((times - 50.0) ** 2 / 50.0).sum() < 1400 + 4 * np.sqrt(2 * 1400)


def test_seeds():
    np.testing.assert_array_equal(partition(seed=3), partition(seed=3))
    assert (partition(seed=3) != partition(seed=4)).any()
    np.testing.assert_array_equal(partition(seed=3, num_clients=5), partition(seed=3)[:5])


def test_small_classes_hand_on_what_they_lack():
    labels = np.repeat(np.arange(3), [5, 200, 200])
    counts = class_counts(partition(1e9, labels=labels, num_classes=3, num_clients=4), labels, 3)
    assert (counts[:, 0] == 5).all()
    assert (np.abs(counts[:, 1:] - 47.5) <= 0.5).all()
    # All that there is, whatever the proportions.
    everything = partition(1e-6, labels=labels, num_classes=3, num_clients=4, samples_per_client=405)
    assert (np.sort(everything, axis=1) == np.arange(405)).all()


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 50)), min_size=1, max_size=8),
    st.floats(0.0, 1.0),
)
def test_largest_remainder(classes, fraction):
    shares = np.array([share for share, _ in classes])
    limit = np.array([most for _, most in classes])
    if shares.sum() == 0.0:
        shares[:] = 1.0
    total = int(fraction * limit.sum())
    counts = largest_remainder(shares, total, limit)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (counts <= limit).all()
    free = largest_remainder(shares, total, np.full_like(limit, 10**6))
    assert (np.abs(free - total * shares / shares.sum()) < 1.0 + 1e-6).all()


def test_proportions_sum_to_one():
    rng = np.random.default_rng(0)
    for gamma in (5e-324, 1e-300, 1e-3, 1.0, 1e6, 1e300):
        shares = class_proportions(gamma, 10, rng=rng)
        assert (shares >= 0.0).all()
        assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"gamma_1": 0.0}, ConfigurationError, "gamma_1 is 0.0; expected a finite number > 0"),
        ({"gamma_1": -1.0}, ConfigurationError, "gamma_1"),
        ({"gamma_1": float("nan")}, ConfigurationError, "gamma_1"),
        ({"num_clients": 0}, ConfigurationError, "num_clients"),
        ({"samples_per_client": 0}, ConfigurationError, "samples_per_client"),
        ({"samples_per_client": 1401}, ConfigurationError, "1400 samples; expected at least .* 1401"),
        ({"num_classes": 9}, InvalidInputError, "label of sample 1260 is 9"),
        ({"labels": LABELS - 1}, InvalidInputError, "label of sample 0 is -1"),
        ({"labels": LABELS[:0]}, ConfigurationError, "0 samples"),
    ],
)
def test_bad_input(changes, error, message):
    with pytest.raises(error, match=message):
        partition(**changes)
