"""What a selector shows of itself: sizes, rates, queues and beliefs, for members only and in their order."""

from __future__ import annotations

import numpy as np
import pytest

import fedroster
from fedroster import RBCSF, Selector, Uniform
from fedroster.core.errors import InvalidInputError, UnknownNameError

FEATURES = {"a": [1.0], "b": [2.0], "c": [4.0]}


def play(selector: Selector, rounds: int, features=FEATURES) -> list[tuple]:
    cohorts = []
    for _ in range(rounds):
        cohort = selector.select(features)
        selector.observe(cohort.round, times_s={client: 3.0 * features[client][0] for client in cohort.clients})
        cohorts.append(cohort.clients)
    return cohorts


def test_sizes():
    selector = Selector(Uniform(), cohort_size=np.int64(2), num_features=5)
    assert (selector.cohort_size, selector.num_features) == (2, 5)
    assert type(selector.cohort_size) is int


def test_rates_count_from_the_round_in_which_a_client_joined():
    selector = Selector(Uniform(), cohort_size=2, num_features=1, clients=["a", "b"])
    play(selector, 3, {"a": [1.0], "b": [2.0]})
    selector.join(["c"])
    assert selector.participation_rates().tolist() == [1.0, 1.0, 0.0]
    cohorts = play(selector, 5)
    chosen = np.array([sum(client in cohort for cohort in cohorts) for client in "abc"])
    assert selector.participation_rates() == pytest.approx(np.add(chosen, [3, 3, 0]) / [8, 8, 5])
    selector.leave(["b"])
    assert selector.participation_rates().shape == (2,)


def test_queues_are_the_policys():
    selector = Selector(RBCSF(V=5.0, beta=0.25), cohort_size=1, num_features=1, clients=["a", "b", "c"])
    cohorts = play(selector, 9)
    queue = dict.fromkeys("abc", 0.0)
    for cohort in cohorts:
        queue = {client: max(0.0, owed + 0.25 - (client in cohort)) for client, owed in queue.items()}
    assert selector.backlog() == pytest.approx(list(queue.values()))
    seen = selector.backlog()
    seen[:] = 99.0
    assert selector.backlog().max() < 99.0  # a copy
    selector.leave(["a"])
    assert selector.backlog() == pytest.approx([queue["b"], queue["c"]])
    assert Selector(Uniform(), cohort_size=1, clients=["a"]).backlog().shape == (0,)


def test_expected_times_are_those_of_the_ridge_regression():
    selector = Selector(RBCSF(V=0.0, beta=0.0, ridge=1.0), cohort_size=3, num_features=1, clients=["a", "b", "c"])
    play(selector, 4)
    # 4 observations (c, 3 c) of one feature: theta = 4 c 3 c / (1 + 4 c^2).
    expected = {client: 12.0 * value**2 / (1.0 + 4.0 * value**2) * value for client, (value,) in FEATURES.items()}
    features = [FEATURES[client] for client in "cab"]
    assert selector.expected_times_s(features, clients=["c", "a", "b"]) == pytest.approx([expected[c] for c in "cab"])
    assert selector.expected_times_s([], clients=[]).shape == (0,)
    with pytest.raises(UnknownNameError, match="'d'"):
        selector.expected_times_s([[1.0]], clients=["d"])
    with pytest.raises(InvalidInputError, match="shape"):
        selector.expected_times_s([[1.0]], clients=["a", "b"])
    blind = Selector(Uniform(), cohort_size=1, num_features=1, clients=["a"])
    assert np.isnan(blind.expected_times_s([[1.0]], clients=["a"])).all()


def test_names_of_the_package_are_loaded_when_they_are_used():
    assert set(fedroster.__all__) <= set(dir(fedroster))
    assert all(getattr(fedroster, name) is not None for name in fedroster.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fedroster.nonsense
