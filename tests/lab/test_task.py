"""What is trained: partitions by their text, trainers, and data whose labels go with the clients' speed."""

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError, MissingDataError, UnknownNameError
from fedroster.lab.data.load import load_digits
from fedroster.lab.data.partition import class_counts, couple_with_speed, dirichlet_partition
from fedroster.lab.task import Task, usual_times
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import GeometricMnist


@pytest.mark.parametrize(("text", "same"), [("dirichlet:1", "dirichlet:1.0"), ("labels:2", "labels:02")])
def test_partitions_as_text(text, same):
    one, other, another = (divided(each, seed=seed)[0] for each, seed in ((text, 3), (same, 3), (text, 4)))
    np.testing.assert_array_equal(one, other)
    assert (one != another).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichlet", "dirichlet:GAMMA_1"),
        ("dirichlet:much", "dirichlet:GAMMA_1"),
        ("dirichlet:0", "gamma_1 is 0"),
        ("labels:2.5", "labels:NUMBER"),
        ("labels:0", "labels of a client is 0"),
        ("iid:1", "iid"),
    ],
)
def test_what_is_no_partition(text, message):
    with pytest.raises(ConfigurationError, match=message):
        Task(partition=text).check()


def divided(text, *, seed=0, num_clients=20, samples=30):
    digits = load_digits()
    task = Task("digits", text, samples_per_client=samples)
    rows = task.divided(num_clients=num_clients, seed=seed)[1]
    return rows, class_counts(rows, digits.train_y, 10)


def test_iid_clients_are_alike_and_others_are_not():
    assert ((divided("labels:2")[1] > 0).sum(axis=1) == 2).all()
    spread = {text: divided(text)[1].std(axis=0).mean() for text in ("iid", "dirichlet:0.1")}
    assert spread["iid"] < 2.5 < 5.0 < spread["dirichlet:0.1"]


def test_a_task_can_be_made_smaller():
    trainer = Task("digits", "labels:2", samples_per_client=20, epochs=1).trainer(num_clients=5, seed=0)
    assert trainer.num_clients == 5
    assert repr(Task()) == (
        "Task(name='digits', partition='dirichlet:0.5', samples_per_client=None, epochs=None, learning_rate=None, "
        "proximal=0.0, coupling=0.0, memory=False, free_places=False)"
    )


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ({"name": "mnist"}, UnknownNameError, "unknown task 'mnist'"),
        ({"name": ["digits"]}, ConfigurationError, r"name is \['digits'\]; expected a text"),
        ({"partition": 2}, ConfigurationError, "partition is 2; expected a text"),
        ({"samples_per_client": 0}, ConfigurationError, "samples_per_client is 0"),
        ({"learning_rate": 0.0}, ConfigurationError, "learning_rate is 0"),
        ({"coupling": 1.5}, ConfigurationError, "coupling is 1.5"),
        ({"free_places": "false"}, ConfigurationError, "free_places is 'false'; expected True or False"),
    ],
)
def test_a_task_is_checked_before_data_are_loaded(task, error, message):
    with pytest.raises(error, match=message):
        Task(**task).check()


def test_a_data_set_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingDataError, match="mnist"):
        Task("mnist-logistic", "labels:2").trainer(num_clients=5, seed=0, folder=tmp_path)


LABELS = np.repeat(np.arange(10), 200)


def coupled(coupling, times_s, *, seed=0, samples=50):
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
        _, found = coupled(coupling, times_s)
        for client, rank in enumerate(np.argsort(np.argsort(times_s))):
            mine = np.isin(LABELS[found[client]], list(own[rank // 2]))
            assert mine[: round(coupling * 50)].all()
            assert np.unique(found[client, : round(coupling * 50)]).shape[0] == round(coupling * 50)


def test_without_coupling_the_samples_are_those_of_the_partition():
    partition, found = coupled(0.0, np.arange(8.0) + 1)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(partition, axis=1))
    # What stays is drawn: the rows of a partition lie in the order of their classes.
    partition, half = coupled(0.5, np.arange(8.0) + 1)
    kept = [np.isin(partition[client], half[client, 25:]).nonzero()[0] for client in range(8)]
    assert all(places.max() - places.min() > 25 for places in kept)


def test_a_task_needs_the_times():
    task = Task("digits-logistic", coupling=0.9)
    with pytest.raises(ConfigurationError, match="without times_s"):
        task.divided(num_clients=8, seed=0)
    network = FlatNetwork(num_clients=8, cohort_size=2)
    times_s = usual_times(network, seed=0)
    assert (np.diff(times_s.reshape(4, 2).mean(axis=1)) > 0).all()  # the network's classes lie in blocks
    dataset, partition = task.divided(num_clients=8, seed=0, times_s=times_s)
    slow = dataset.train_y[partition[6:]]
    assert (slow >= 8).mean() > 0.85
    with pytest.raises(ConfigurationError, match="would hold 900 samples"):
        couple_with_speed(np.zeros((4, 1000), int), LABELS, np.ones(4), coupling=0.9, num_classes=10, rng=None)


def test_a_client_that_is_never_met_is_no_fast_one():
    times_s = usual_times(GeometricMnist(), seed=0)
    met = np.isfinite(times_s)
    assert 0 < np.count_nonzero(~met) < 5
    assert (times_s > 0.0).all()
