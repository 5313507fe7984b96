import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedroster.core.errors import ConfigurationError
from fedroster.lab.data.partition import (
    class_counts,
    dirichlet_partition,
    iid_partition,
    label_partition,
    largest_remainder,
)

LABELS = np.repeat(np.arange(10), 140)


def partition(gamma_1=0.5, *, seed=0, labels=LABELS, **changes):
    settings = {"num_clients": 40, "samples_per_client": 100, "num_classes": 10} | changes
    return dirichlet_partition(labels, gamma_1=gamma_1, rng=np.random.default_rng(seed), **settings)


@pytest.mark.parametrize("gamma_1", [5e-324, 1e-9, 1.0, 1e300])
def test_sizes_and_no_sample_twice_within_a_client(gamma_1):
    rows = partition(gamma_1)
    assert rows.shape == (40, 100)
    assert all(np.unique(row).size == 100 for row in rows)
    assert (class_counts(rows, LABELS, 10).sum(axis=1) == 100).all()


@pytest.mark.parametrize("gamma_1", [1e-320, 1e-6])
def test_tiny_gamma_gives_one_class_each_and_every_class_its_turn(gamma_1):
    counts = class_counts(partition(gamma_1, num_clients=400), LABELS, 10)
    assert (counts.max(axis=1) == 100).all()
    owners = np.bincount(counts.argmax(axis=1), minlength=10)
    assert ((owners - 40.0) ** 2 / 40.0).sum() < 27.9  # chi-squared with 9 degrees of freedom, 0.1 %


def second_moment(gamma_1, seed):
    shares = class_counts(partition(gamma_1, num_clients=400, seed=seed), LABELS, 10) / 100.0
    return (shares**2).sum(axis=1)


@pytest.mark.parametrize("gamma_1", [0.3, 5.0])
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


def by_labels(*, seed=0, labels=LABELS, **changes):
    settings = {"num_clients": 50, "samples_per_client": 28, "num_classes": 10} | changes
    return label_partition(labels, rng=np.random.default_rng(seed), **settings)


@pytest.mark.parametrize("num_clients", [45, 90])  # that share no sample, and do
@pytest.mark.parametrize(("labels_per_client", "samples"), [(1, 28), (2, 27), (10, 10)])
def test_exactly_so_many_labels(num_clients, labels_per_client, samples):
    rows = by_labels(labels_per_client=labels_per_client, samples_per_client=samples, num_clients=num_clients)
    assert rows.shape == (num_clients, samples)
    assert all(np.unique(row).size == samples for row in rows)
    counts = class_counts(rows, LABELS, 10)
    assert ((counts > 0).sum(axis=1) == labels_per_client).all()
    held = counts[counts > 0].reshape(num_clients, labels_per_client)
    assert (held.max(axis=1) - held.min(axis=1) <= 1).all()
    assert np.ptp((counts > 0).sum(axis=0)) <= 1


def test_disjoint_clients_can_use_up_the_data_set():
    rows = by_labels()  # 50 * 28 = 1400: Qu et al.'s 50 clients and CIFAR-10 in small
    assert (np.sort(rows, axis=None) == np.arange(1400)).all()
    assert np.unique(by_labels(num_clients=45)).size == 45 * 28
    assert np.unique(by_labels(num_clients=51)).size < 1400  # one more than the data set has samples for


def test_every_pair_of_labels_is_equally_likely():
    pairs = np.zeros((10, 10))
    for seed in range(90):
        for held in class_counts(by_labels(seed=seed), LABELS, 10) > 0:
            pairs[tuple(np.flatnonzero(held))] += 1
    found = pairs[np.triu_indices(10, 1)]
    assert pairs.sum() == found.sum() == 90 * 50
    assert ((found - 100.0) ** 2 / 100.0).sum() < 78.7  # chi-squared with 44 degrees of freedom, 0.1 %


def test_which_label_gets_the_odd_sample_is_drawn():
    more = 0
    for seed in range(20):
        counts = class_counts(by_labels(seed=seed, samples_per_client=27), LABELS, 10)
        more += sum(row[np.flatnonzero(row)[0]] == 14 for row in counts)
    assert abs(more - 500) < 4 * np.sqrt(250)


@pytest.mark.parametrize(("num_clients", "spread"), [(25, 0.5), (100, 0.8)])
def test_samples_of_a_label_are_equally_likely(num_clients, spread):
    """Spread: a sample goes to one of half the places, or is drawn again by each client."""
    times = sum(
        np.bincount(by_labels(seed=seed, num_clients=num_clients).ravel(), minlength=1400)
        for seed in range(2500 // num_clients)
    )
    assert abs(times.mean() - 50.0) < 1e-9
    assert 0.4 * spread < times.var() / 50.0 < 1.6 * spread


def alike(*, seed=0, labels=LABELS, **changes):
    settings = {"num_clients": 20, "samples_per_client": 70} | changes
    return iid_partition(labels, rng=np.random.default_rng(seed), **settings)


@pytest.mark.parametrize(
    ("make", "changes", "message"),
    [
        (partition, {"gamma_1": 0.0}, "gamma_1"),
        (partition, {"gamma_1": float("nan")}, "gamma_1"),
        (partition, {"num_clients": 0}, "num_clients"),
        (partition, {"samples_per_client": 0}, "samples_per_client"),
        (partition, {"samples_per_client": 1401}, "1400 samples"),
        (partition, {"num_classes": 5, "samples_per_client": 701}, "700 samples"),
        (by_labels, {"samples_per_client": 282}, "140 samples and a client would hold 141"),
        (by_labels, {"num_classes": 11, "num_clients": 11}, "a label has 0 samples"),
        (by_labels, {"labels_per_client": 11}, "num_classes = 10"),
        (by_labels, {"labels_per_client": 3, "samples_per_client": 2}, "samples_per_client = 2"),
        (alike, {"samples_per_client": 1401}, "samples_per_client = 1401"),
    ],
)
def test_what_cannot_be_given(make, changes, message):
    with pytest.raises(ConfigurationError, match=message):
        make(**changes)


@pytest.mark.parametrize("make", [by_labels, alike, partition])
@pytest.mark.parametrize("num_clients", [20, 60])
def test_other_seeds_other_partitions(make, num_clients):
    one, same, other = (make(seed=seed, num_clients=num_clients) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert (one != other).mean() > (0.5 if make is partition else 0.9)


def test_alike_uses_every_sample_once_or_draws_for_each_client():
    assert (np.sort(alike(), axis=None) == np.arange(1400)).all()
    shared = alike(num_clients=21)
    assert shared.shape == (21, 70)
    assert all(np.unique(row).size == 70 for row in shared)
    assert np.unique(shared).size < 1400
