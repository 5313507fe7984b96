"""DivFL: its greedies by hand and against the definition, its weights, and who goes first."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from fedroster import Selector
from fedroster.policies import DivFL
from fedroster.policies.by_signature import SignaturesState
from fedroster.policies.divfl import shares, stand_for_all
from fedroster.types import Selection, Streams
from reference import facility_cost, facility_shares
from rounds import context_of, counts, report

LINE = np.array([[0.0], [0.1], [0.3], [5.0], [5.1], [9.0]])
POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=9)


def found(points, size, greedy, *, seed=0, epsilon=0.1):
    rng = np.random.default_rng(seed)
    return stand_for_all(np.asarray(points, np.float64), size, greedy=greedy, epsilon=epsilon, rng=rng).tolist()


@pytest.mark.parametrize("greedy", ["naive", "lazy"])
def test_the_choice_by_hand_and_its_tie(greedy):
    """0.3 and 5 tie with 18.7; each branch is taken about as often."""
    branches = {(2, 4, 5): [18.7, 4.5, 0.6], (3, 1, 5): [18.7, 4.4, 0.4]}
    taken = [tuple(found(LINE, 3, greedy, seed=seed)) for seed in range(400)]
    assert set(taken) == set(branches)
    assert 160 < taken.count((2, 4, 5)) < 240
    for chosen, costs in branches.items():
        measured = [facility_cost(LINE, chosen[: step + 1]) for step in range(3)]
        assert measured == pytest.approx(costs)


def test_shares_by_hand():
    assert (6 * shares(LINE, LINE[[2, 4, 5]])).tolist() == pytest.approx([3, 2, 1])
    assert (6 * shares(LINE, LINE[[3, 1, 5]])).tolist() == pytest.approx([2, 3, 1])
    assert shares(LINE, LINE[[1, 1]]).tolist() == [1.0, 0.0]  # two at the same place


@settings(max_examples=200)
@given(POINTS, st.integers(1, 8), st.integers(0, 9))
def test_each_choice_costs_the_least_and_the_greedies_agree(points, size, seed):
    size = min(size, len(points) - 1)
    naive = found(points, size, "naive", seed=seed)
    assert found(points, size, "lazy", seed=seed) == naive
    with pytest.MonkeyPatch.context() as patch:  # it looks at single candidates, and skips none that may be best
        patch.setattr("fedroster.policies.divfl._BLOCK", 1)
        assert found(points, size, "lazy", seed=seed) == naive
    for step, choice in enumerate(naive):
        others = [j for j in range(len(points)) if j not in naive[:step]]
        costs = {j: facility_cost(points, [*naive[:step], j]) for j in others}
        assert costs[choice] == pytest.approx(min(costs.values()), abs=1e-6)
    np.testing.assert_allclose(
        shares(np.array(points, float), np.array(points, float)[naive]), facility_shares(points, naive)
    )


def test_many_points_are_compared_without_keeping_distances(monkeypatch):
    points = np.random.default_rng(0).standard_normal((300, 8))
    expected = found(points, 12, "naive")
    assert found(points, 12, "lazy") == expected
    monkeypatch.setattr("fedroster.policies.divfl._MOST_KEPT", 0)
    for greedy in ("naive", "lazy"):
        assert found(points, 12, greedy) == expected


def test_lazy_looks_at_few_candidates(monkeypatch):
    points = np.random.default_rng(0).standard_normal((300, 8))
    monkeypatch.setattr("fedroster.policies.divfl._BLOCK", 1)
    monkeypatch.setattr("fedroster.policies.divfl._MOST_KEPT", 0)
    looked = {}
    for greedy in ("naive", "lazy"):
        rows = []
        monkeypatch.setattr(
            "scipy.spatial.distance.cdist", lambda one, two, rows=rows: rows.append(1) or cdist(one, two)
        )
        found(points, 12, greedy)
        looked[greedy] = len(rows)
    assert looked["naive"] == sum(300 - step for step in range(12)) + 12
    assert looked["lazy"] < looked["naive"] / 2


def test_stochastic_looks_at_a_random_part():
    points = np.random.default_rng(1).standard_normal((40, 3))
    assert set(found(points, 5, "stochastic", epsilon=1e-9)) == set(found(points, 5, "naive"))
    one_at_a_time = [found(points, 30, "stochastic", epsilon=0.9, seed=seed) for seed in range(400)]
    often = np.bincount(np.concatenate(one_at_a_time), minlength=40) / 400
    np.testing.assert_allclose(often, 0.75, atol=0.1)  # one candidate each time: draws without a look
    few = np.mean([facility_cost(points, found(points, 5, "stochastic", seed=seed)) for seed in range(30)])
    blind = np.mean([facility_cost(points, found(points, 5, "stochastic", epsilon=0.999, seed=s)) for s in range(30)])
    assert facility_cost(points, found(points, 5, "naive")) < few < blind


def test_stochastic_looks_at_so_many():
    """Of 40 points, for 8 places and epsilon = 0.1, at ceil(5 ln 10) = 12: with 12 / 40 the best is among them."""
    points = np.random.default_rng(1).standard_normal((40, 3))
    best = found(points, 8, "naive")[0]
    first = [found(points, 8, "stochastic", seed=seed)[0] for seed in range(600)]
    assert first.count(best) / 600 == pytest.approx(0.3, abs=0.06)


def told(policy, state, signature, *, round=1):
    """The state after these signatures, by client."""
    rows = [np.resize(np.asarray(values, np.float64), policy.signature.length) for values in signature.values()]
    return policy.update(state, report(list(signature), round=round, signature=rows))


def fresh(policy, num_clients):
    length = policy.signature.length
    return SignaturesState(np.zeros((num_clients, length)), np.zeros(num_clients, np.int64))


def test_strangers_go_first_and_count_alike():
    policy = DivFL()
    state = told(policy, fresh(policy, 8), dict.fromkeys(range(4), 1.0))
    few = context_of(8, 6)
    for seed in range(20):
        selection = policy.select(state, few, rng=Streams(seed).at("p"))
        assert set(range(4, 8)) <= set(selection.links.tolist())
        assert selection.links.shape[0] == 6
        np.testing.assert_allclose(policy.weights(state, few, selection), 1 / 6)
    drawn = counts(policy, state, context_of(8, 2), 900)
    np.testing.assert_allclose(drawn / 900, [0] * 4 + [0.5] * 4, atol=0.06)


def test_the_known_answer_by_the_policy():
    """Only those that are there stand for each other; a cohort counts by shares or, as None says, by samples."""
    policy = DivFL()
    state = fresh(policy, 8)
    for client, (value,) in enumerate(LINE):
        state = told(policy, state, {client: [value] + [0.0] * 63})
    state = told(policy, state, {6: [7.0] + [0.0] * 63, 7: [7.0] + [0.0] * 63})
    context = context_of(8, 3, available=[True] * 6 + [False] * 2)
    seen = set()
    for seed in range(20):
        selection = policy.select(state, context, rng=Streams(seed).at("p"))
        seen.add((*selection.links.tolist(), *(6 * policy.weights(state, context, selection)).round(9).tolist()))
        assert DivFL(weighing="samples").weights(state, context, selection) is None
    assert seen == {(2, 4, 5, 3.0, 2.0, 1.0), (1, 3, 5, 3.0, 2.0, 1.0)}


def test_clients_of_which_nothing_is_known_are_stood_for_by_nobody():
    """A stranger that was not chosen is at no place: not at zero, where client 0 is."""
    policy = DivFL()
    state = told(policy, fresh(policy, 6), {0: 0.0, 1: 5.0})
    context = context_of(6, 2)
    weights = policy.weights(state, context, Selection(1, np.array([0, 1])))
    np.testing.assert_allclose(weights, [0.5, 0.5])
    for links, word in (([0, 1], "worth"), ([0, 2], "drawn"), ([2, 3], "drawn")):
        assert policy.explain(state, context, Selection(1, np.array(links)), links[0]).reason == word


def test_what_is_learned():
    policy = DivFL()
    state = told(policy, fresh(policy, 4), {0: 1.0, 1: 2.0}, round=3)
    state = told(policy, state, {0: 9.0}, round=2)  # it is older
    state = told(policy, state, {1: np.nan, 2: 1e300}, round=4)
    state = told(policy, state, {0: [7.0] + [np.nan] * 63}, round=5)  # one number is none
    assert state.signature[:3, 0].tolist() == [1.0, 2.0, 1e50]
    assert state.reported.tolist() == [3, 3, 4, 0]
    for signature in (None, np.ones((1, 5))):  # of another length, as in a foreign log
        state = policy.update(state, report([3], round=5, signature=signature))
    assert state.reported[3] == 0


@pytest.mark.parametrize("forget", [False, True])
def test_a_client_that_was_forgotten_is_a_stranger_again_and_one_that_left_is_not(forget):
    """Client b stands for fewer than a and d do: it is chosen where nothing is known of it."""
    values = {"a": 1.0, "b": 1.2, "c": -50.0, "d": 1.0}
    selector = Selector(DivFL(), cohort_size=4, clients=list(values), seed=1)
    cohort = selector.select()
    signatures = {name: np.full(64, value) for name, value in values.items()}
    selector.observe(cohort.round, times_s=dict.fromkeys(values, 1.0), signatures=signatures)
    selector.leave(["b"], forget=forget)
    selector.join(["b"])
    assert ("b" in selector.select(at_most=2).clients) is forget
