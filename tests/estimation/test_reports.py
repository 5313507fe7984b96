"""What clients reported last."""

import numpy as np

from fedroster.estimation.reports import assumed_sizes, learn_losses, learn_sizes
from rounds import report

NAN = np.nan


def test_unknown_sizes_are_taken_for_the_mean():
    np.testing.assert_array_equal(assumed_sizes(np.array([0.0, 10.0, 30.0])), [20.0, 10.0, 30.0])
    np.testing.assert_array_equal(assumed_sizes(np.zeros(3)), np.ones(3))
    np.testing.assert_array_equal(assumed_sizes(np.array([2.0, 3.0])), [2.0, 3.0])


def test_the_last_reported_size_counts():
    sizes = np.zeros(3)
    learn_sizes(sizes, report([2, 0], num_samples=[7.0, NAN]))
    np.testing.assert_array_equal(sizes, [0.0, 0.0, 7.0])
    learn_sizes(sizes, report([2, 1], num_samples=[5.0, 4.0], round=2))
    learn_sizes(sizes, report([0]))  # no client reported anything
    np.testing.assert_array_equal(sizes, [0.0, 4.0, 5.0])


def test_the_loss_of_the_latest_round_counts_whenever_it_comes():
    loss, reported = np.full(3, np.inf), np.zeros(3, np.int64)
    learn_losses(loss, reported, report([0, 2], loss=[1.0, NAN], round=4))
    np.testing.assert_array_equal(loss, [1.0, np.inf, np.inf])
    np.testing.assert_array_equal(reported, [4, 0, 0])
    learn_losses(loss, reported, report([0, 1], loss=[9.0, 3.0], round=2))  # late
    np.testing.assert_array_equal(loss, [1.0, 3.0, np.inf])
    np.testing.assert_array_equal(reported, [4, 2, 0])
    learn_losses(loss, reported, report([1, 0], loss=[2.0, NAN], round=5))
    learn_losses(loss, reported, report([2], round=6))
    np.testing.assert_array_equal(loss, [1.0, 2.0, np.inf])
    np.testing.assert_array_equal(reported, [4, 5, 0])
