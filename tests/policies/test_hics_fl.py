"""HiCS-FL: its balances and chances by hand, its clusters against the definition, and who is drawn."""

import math

import numpy as np
import pytest

from fedroster.policies import HiCSFL
from fedroster.policies.by_signature import SignaturesState
from fedroster.policies.hics_fl import balances, cluster
from reference import label_balance, ward_clusters
from rounds import context_of


@pytest.mark.parametrize(
    ("bias", "expected"),
    [
        ([0.002] * 4, 1.3863),
        ([0.004, 0.0, 0.0, 0.0], 0.2618),
        ([0.004, 0.001, 0.0, -0.001], 0.3106),
        ([1e50, 0.0, 0.0, 0.0], 0.0),
    ],
)
def test_balances_by_hand(bias, expected):
    assert balances(np.array([bias]), 0.001)[0] == pytest.approx(expected, abs=5e-5)
    assert label_balance(bias, 0.001) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("seed", range(12))
def test_clusters_are_wards(seed):
    """By condensed distances, which are not Euclidean; an update of zero is at angle 0 to all."""
    rng = np.random.default_rng(seed)
    bias = rng.standard_normal((14, 4)) * 0.002
    bias[0] = 0.0
    balance = balances(bias, 0.001)
    angle = np.zeros((14, 14))
    for i in range(1, 14):
        for j in range(1, 14):
            cosine = bias[i] @ bias[j] / np.linalg.norm(bias[i]) / np.linalg.norm(bias[j])
            angle[i, j] = math.acos(min(max(cosine, -1.0), 1.0))
    apart = angle + 10.0 * np.abs(balance[:, None] - balance)
    for count in (1, 3, 6, 14):
        label = cluster(bias, balance, count, 10.0)
        found = {frozenset(np.flatnonzero(label == each).tolist()) for each in range(label.max() + 1)}
        assert found == ward_clusters(apart.tolist(), count)


@pytest.mark.parametrize(
    ("round", "expected"),
    [(1, [0.0007, 0.0180, 0.9813]), (2, [0.0235, 0.1164, 0.8601]), (3, [1 / 3] * 3)],
)
def test_chances_of_clusters_by_hand(monkeypatch, round, expected):
    """Three clusters of 2, 1 and 3 clients with mean balances 0.2, 1 and 2, gamma = 4; of two rounds, and the next."""
    label, balance = np.array([0, 0, 1, 2, 2, 2]), np.array([0.1, 0.3, 1.0, 2.0, 1.5, 2.5])
    monkeypatch.setattr("fedroster.policies.hics_fl.cluster", lambda *_: label)
    monkeypatch.setattr("fedroster.policies.hics_fl.balances", lambda *_: balance)
    rng, found = np.random.default_rng(1), np.zeros(6)
    for _ in range(4000):
        found[HiCSFL(horizon=2).choose(np.zeros((6, 10)), 1, round, rng=rng)] += 1 / 4000
    by_cluster = np.bincount(label, found)
    np.testing.assert_allclose(by_cluster, expected, atol=0.02)
    np.testing.assert_allclose(found, by_cluster[label] / np.bincount(label)[label], atol=0.02)
    if round == 1:  # a full cluster is drawn no more
        assert HiCSFL(gamma=1e6).choose(np.zeros((6, 10)), 4, round, rng=rng).tolist() == [2, 3, 4, 5]


def test_the_policy_clusters_by_its_own_parameters_and_for_its_places_and_round(monkeypatch):
    seen = []

    def noted(bias, balance, count, weight):
        seen.append((balance.round(3).tolist(), count, weight))
        return np.zeros(bias.shape[0], np.int64)

    monkeypatch.setattr("fedroster.policies.hics_fl.cluster", noted)
    policy = HiCSFL(classes=4, temperature=0.1, balance_weight=3.0)
    points = np.array([[0.4, 0.0, 0.0, 0.0], [0.1] * 4, [0.1] * 4])
    state = SignaturesState(points, np.ones(3, np.int64))
    chosen = policy.select(state, context_of(3, 2), rng=np.random.default_rng(0))
    assert policy.weights(state, context_of(3, 2), chosen).tolist() == [0.5] * 2
    assert seen == [([0.262, 1.386, 1.386], 2, 3.0)]
    rounds = []
    monkeypatch.setattr(
        HiCSFL, "choose", lambda _, points, size, round, **rest: rounds.append(round) or np.arange(size)
    )
    policy.select(state, context_of(3, 2, round=7), rng=np.random.default_rng(0))
    assert rounds == [7]


def test_a_cluster_of_which_one_was_drawn_is_as_likely_as_before(monkeypatch):
    """Clusters of 3 and 1 with gamma = 0: the single client gets one of two places with 1/2 + 1/2 * 1/2."""
    monkeypatch.setattr("fedroster.policies.hics_fl.cluster", lambda *_: np.array([0, 0, 0, 1]))
    rng = np.random.default_rng(1)
    drawn = [3 in HiCSFL(gamma=0.0).choose(np.zeros((4, 10)), 2, 1, rng=rng) for _ in range(5000)]
    assert np.mean(drawn) == pytest.approx(0.75, abs=0.02)
