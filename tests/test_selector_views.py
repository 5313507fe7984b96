"""What a selector shows of itself: sizes, rates, queues and beliefs, for members only and in their order."""

from __future__ import annotations

import numpy as np
import pytest

import fedroster
from fedroster import RBCSF, Selector, Uniform
from fedroster.core.errors import ConfigurationError, FeedbackError, InvalidInputError, UnknownNameError
from fedroster.core.state import load_arrays, save_arrays

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
    assert selector.participation_rates(as_array=True).tolist() == [1.0, 1.0, 0.0]
    cohorts = play(selector, 5)
    chosen = np.array([sum(client in cohort for cohort in cohorts) for client in "abc"])
    assert selector.participation_rates(as_array=True) == pytest.approx(np.add(chosen, [3, 3, 0]) / [8, 8, 5])
    selector.leave(["b"])
    assert selector.participation_rates(as_array=True).shape == (2,)


def test_queues_are_the_policys():
    selector = Selector(RBCSF(V=5.0, beta=0.25), cohort_size=1, num_features=1, clients=["a", "b", "c"])
    cohorts = play(selector, 9)
    queue = dict.fromkeys("abc", 0.0)
    for cohort in cohorts:
        queue = {client: max(0.0, owed + 0.25 - (client in cohort)) for client, owed in queue.items()}
    assert selector.backlog(as_array=True) == pytest.approx(list(queue.values()))
    seen = selector.backlog(as_array=True)
    seen[:] = 99.0
    assert selector.backlog(as_array=True).max() < 99.0  # a copy
    selector.leave(["a"])
    assert selector.backlog(as_array=True) == pytest.approx([queue["b"], queue["c"]])
    assert Selector(Uniform(), cohort_size=1, clients=["a"]).backlog(as_array=True).shape == (0,)


def test_expected_times_are_those_of_the_ridge_regression():
    selector = Selector(RBCSF(V=0.0, beta=0.0, ridge=1.0), cohort_size=3, num_features=1, clients=["a", "b", "c"])
    play(selector, 4)
    # 4 observations (c, 3 c) of one feature: theta = 4 c 3 c / (1 + 4 c^2).
    expected = {client: 12.0 * value**2 / (1.0 + 4.0 * value**2) * value for client, (value,) in FEATURES.items()}
    features = [FEATURES[client] for client in "cab"]
    assert selector.expected_times_s(features, clients=["c", "a", "b"], as_array=True) == pytest.approx(
        [expected[c] for c in "cab"]
    )
    assert selector.expected_times_s([], clients=[], as_array=True).shape == (0,)
    with pytest.raises(UnknownNameError, match="'d'"):
        selector.expected_times_s([[1.0]], clients=["d"], as_array=True)
    with pytest.raises(InvalidInputError, match="shape"):
        selector.expected_times_s([[1.0]], clients=["a", "b"], as_array=True)
    blind = Selector(Uniform(), cohort_size=1, num_features=1, clients=["a"])
    assert np.isnan(blind.expected_times_s([[1.0]], clients=["a"], as_array=True)).all()


def test_names_of_the_package_are_loaded_when_they_are_used():
    assert set(fedroster.__all__) <= set(dir(fedroster))
    assert all(getattr(fedroster, name) is not None for name in fedroster.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = fedroster.nonsense


# ------------------------------------------------------------------ the longest time


def capped(**options):
    options = {"cohort_size": 3, "num_features": 1, "clients": ["a", "b", "c"], "longest_s": 4.0} | options
    return Selector(RBCSF(V=1.0, beta=0.2), **options)


def test_times_beyond_the_longest_count_as_it():
    cut, told, free = capped(), capped(longest_s=None), capped(longest_s=None)
    for selector in (cut, told, free):
        assert len(selector.select(FEATURES).clients) == 3
    cut.observe(1, times_s={"a": 1e6, "b": 4.0, "c": 3.0})
    told.observe(1, times_s={"a": 4.0, "b": 4.0, "c": 3.0})
    free.observe(1, times_s={"a": 1e6, "b": 4.0, "c": 3.0})
    believed = [
        selector.expected_times_s([[1.0]] * 3, clients=list("abc"), as_array=True) for selector in (cut, told, free)
    ]
    np.testing.assert_array_equal(believed[0], believed[1])
    assert believed[2][0] > 1e5
    assert [selector.capped(as_array=True).tolist() for selector in (cut, told, free)] == [
        [1, 0, 0],
        [0, 0, 0],
        [0, 0, 0],
    ]


def test_late_times_are_cut_and_what_has_no_time_is_not_counted():
    selector = capped()
    selector.select(FEATURES)
    selector.observe(1, times_s={"b": 9.0}, late=["b"], dropped=["a"], failed=["c"])
    assert selector.capped(as_array=True).tolist() == [0, 1, 0]


def test_feedback_that_is_refused_is_not_counted():
    selector = capped()
    selector.select(FEATURES)
    with pytest.raises(FeedbackError):
        selector.observe(1, times_s={"a": 9.0, "stranger": 9.0})
    assert selector.capped(as_array=True).tolist() == [0, 0, 0]


def test_counts_of_cut_times_follow_their_clients():
    selector = capped()
    for _ in range(2):
        selector.select(FEATURES)
        selector.observe(selector.round, times_s={"a": 9.0, "b": 9.0, "c": 1.0})
    selector.join(["d", "e"])
    assert selector.capped(as_array=True).tolist() == [2, 2, 0, 0, 0]
    selector.leave(["a"])
    selector.leave(["b"], forget=True)
    assert selector.capped(as_array=True).tolist() == [0, 0, 0]
    selector.join(["a", "b"])
    assert dict(zip(selector.clients, selector.capped(as_array=True).tolist(), strict=True)) == dict.fromkeys(
        "bcde", 0
    ) | {"a": 2}


def test_the_longest_time_may_change_and_is_saved(tmp_path):
    selector = capped(longest_s=None)
    assert selector.longest_s is None
    selector.longest_s = np.float32(2.5)
    assert type(selector.longest_s) is float
    selector.select(FEATURES)
    selector.observe(1, times_s={"a": 3.0, "b": 2.5, "c": 1.0})
    selector.save(tmp_path / "state.npz")
    loaded = Selector.load(tmp_path / "state.npz", selector.policy)
    assert loaded.longest_s == 2.5
    assert loaded.capped(as_array=True).tolist() == [1, 0, 0]
    assert loaded.backlog(as_array=True).tolist() == selector.backlog(as_array=True).tolist()


def test_files_from_before_there_was_a_longest_time_still_load(tmp_path):
    selector = capped(longest_s=None)
    play(selector, 5)
    selector.save(tmp_path / "state.npz")
    arrays, header = load_arrays(tmp_path / "state.npz", kind="selector")
    del arrays["capped"], header["longest_s"]
    for name in ("format", "format_version", "kind"):
        header.pop(name)
    save_arrays(tmp_path / "old.npz", arrays, header, kind="selector")
    loaded = Selector.load(tmp_path / "old.npz", selector.policy)
    assert loaded.longest_s is None
    assert loaded.capped(as_array=True).tolist() == [0, 0, 0]
    assert play(loaded, 5) == play(selector, 5)
    loaded.longest_s = 1.0
    play(loaded, 1)
    assert loaded.capped(as_array=True).tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "4", True])
def test_a_longest_time_out_of_range_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"longest_s is .*; expected a finite number > 0"):
        capped(longest_s=value)
    selector = capped()
    with pytest.raises(ConfigurationError):
        selector.longest_s = value
    assert selector.longest_s == 4.0


def test_one_endless_first_time_keeps_a_client_out_only_if_it_is_not_cut():
    """Feedback as in docs/policies: a first time of 10^6 s where others take 5."""

    def rounds_without(longest_s):
        selector = Selector(
            RBCSF(V=1.0, beta=0.2), cohort_size=2, num_features=1, clients=range(6), longest_s=longest_s
        )
        seen = 0
        for t in range(1, 301):
            cohort = selector.select(np.ones((6, 1)))
            selector.observe(t, times_s={n: 1e6 if n == 3 and not seen else 5.0 + n / 8 for n in cohort.clients})
            if 3 in cohort.clients:
                if seen:
                    return t - seen
                seen = t
        return 300

    assert rounds_without(None) == 300
    assert rounds_without(10.0) < 40
