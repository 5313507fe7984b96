"""Data whose labels go with the clients' speed."""

import numpy as np
import pytest

from fedroster.errors import ConfigurationError
from fedroster.lab.data.partition import couple_with_speed, dirichlet_partition
from fedroster.lab.task import Task, usual_times
from fedroster.networks import FlatNetwork

LABELS = np.repeat(np.arange(10), 200)


def divided(coupling, times_s, *, seed=0, samples=50):
    rng = np.random.default_rng(seed)
    partition = dirichlet_partition(
        LABELS, num_clients=len(times_s), samples_per_client=samples, gamma_1=0.2, num_classes=10, rng=rng
    )
    found = couple_with_speed(partition, LABELS, times_s, coupling=coupling, num_classes=10, rng=rng)
    return partition, found


def test_a_share_of_the_labels_goes_with_speed():
    times_s = np.array([9.0, 1.0, 5.0, 3.0, 2.0, 8.0, 7.0, 4.0])
    own = {0: {0, 1, 2}, 1: {3, 4}, 2: {5, 6, 7}, 3: {8, 9}}
    for coupling in (0.5, 0.9, 1.0):
        _, found = divided(coupling, times_s)
        for client, rank in enumerate(np.argsort(np.argsort(times_s))):
            mine = np.isin(LABELS[found[client]], list(own[rank // 2]))
            assert mine[: round(coupling * 50)].all()
            assert np.unique(found[client, : round(coupling * 50)]).shape[0] == round(coupling * 50)


def test_without_coupling_the_samples_are_those_of_the_partition():
    partition, found = divided(0.0, np.arange(8.0) + 1)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(partition, axis=1))
    # What stays is drawn: the rows of a partition lie in the order of their classes.
    partition, half = divided(0.5, np.arange(8.0) + 1)
    kept = [np.isin(partition[client], half[client, 25:]).nonzero()[0] for client in range(8)]
    assert all(places.max() - places.min() > 25 for places in kept)


def test_a_task_needs_the_times():
    task = Task("digits-logistic", coupling=0.9)
    with pytest.raises(ConfigurationError, match="without times_s"):
        task.divided(num_clients=8, seed=0)
    with pytest.raises(ConfigurationError, match="coupling"):
        Task("digits-logistic", coupling=1.5).check()
    network = FlatNetwork(num_clients=8, cohort_size=2)
    times_s = usual_times(network, seed=0)
    assert (np.diff(times_s.reshape(4, 2).mean(axis=1)) > 0).all()  # the network's classes lie in blocks
    dataset, partition = task.divided(num_clients=8, seed=0, times_s=times_s)
    slow = dataset.train_y[partition[6:]]
    assert (slow >= 8).mean() > 0.85
    with pytest.raises(ConfigurationError, match="would hold 900 samples"):
        couple_with_speed(np.zeros((4, 1000), int), LABELS, np.ones(4), coupling=0.9, num_classes=10, rng=None)
