"""The selector: ask and tell, contexts in all their forms, promises."""

import warnings

import numpy as np
import pytest

from federations import LETTERS, LETTERS_LIST, PEERS, POLICY, array, contexts, kept, learned, make, play
from fedroster import RBCSF, Cohort, Floor, Rules, Selector, Uniform, make_policy
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    FeedbackError,
    InfeasibleError,
    InvalidInputError,
    RoundNotBegunError,
    UnknownNameError,
)
from fedroster.networks import FlatNetwork
from fedroster.policies import Dirichlet, FedCS, FedCSGreedy, OmniscientP3
from fedroster.simulation import simulate
from fedroster.types import Selection, Streams


def test_ask_and_tell():
    selector = make(["a", "b", "c"])
    assert (selector.round, selector.clients, selector.policy) == (0, ("a", "b", "c"), POLICY)
    cohort = selector.select({"a": [1.0], "b": [2.0], "c": [4.0]})
    assert cohort.round == selector.round == 1
    assert len(set(cohort.clients)) == 2
    assert selector.open_rounds() == {1: cohort.clients}
    assert selector.participation() == {client: int(client in cohort.clients) for client in "abc"}
    assert selector.cold() == {client: client not in cohort.clients for client in "abc"}
    selector.observe(1, times_s=dict.fromkeys(cohort.clients, 1.5))
    assert selector.open_rounds() == {}
    assert selector.select({"a": [1.0]}) == Cohort(2, ("a",))
    selector.leave(["a"])
    selector.join(["a"])
    assert all(selector.cold().values())  # also one that comes back


@pytest.mark.parametrize("policy", [RBCSF(V=20.0), Uniform(), Dirichlet(gamma_2=0.5), *PEERS], ids=str)
def test_selector_and_simulation_agree(policy):
    """The two ways to run a policy are one: same world, same streams, same cohorts."""
    network, seed = FlatNetwork(), 7
    simulated = list(simulate(policy, network, rounds=60, seed=seed))
    streams = Streams(seed)
    options = {"seed": seed, "guarded": False, "longest_s": None, "longest_absence": None}  # every word is taken
    selector = Selector(policy, cohort_size=8, num_features=3, clients=range(40), **options)
    state = network.init(rng=streams.at("environment-init"))
    for played in simulated:
        context, outcome = network.observe(state, played.number, rng=streams.at("environment", played.number))
        np.testing.assert_array_equal(array(selector.cold()), context.features[:, 1].astype(bool))
        cohort = selector.select(context.features, available=context.available)
        assert cohort.clients == tuple(played.selection.links.tolist())
        times = {client: outcome.exchange_time_s[client] for client in cohort.clients}
        selector.observe(cohort.round, times_s=times)
        state = network.advance(state, context, Selection(played.number, np.array(cohort.clients, np.int64)))


WITH_CONTEXTS = [
    lambda selector, rows, here: selector.select({LETTERS[row]: rows[row] for row in here}),
    lambda selector, rows, here: selector.select(rows, available=np.isin(range(10), here)),
    lambda selector, rows, here: selector.select(  # what is said of a client that is away does not matter
        np.where(np.isin(range(10), here)[:, None], rows, np.nan), available=np.isin(range(10), here)
    ),
    lambda selector, rows, here: selector.select(
        rows[::-1], clients=LETTERS_LIST[::-1], available=np.isin(range(10), here)[::-1]
    ),
    lambda selector, rows, here: selector.select(np.asfortranarray(rows[here]), clients=[LETTERS[row] for row in here]),
]
WITHOUT = [  # the context 1, said by hand, and ways to say nothing
    lambda selector, rows, here: selector.select({LETTERS[row]: [1.0] for row in here}),
    lambda selector, rows, here: selector.select([LETTERS[row] for row in here]),
    lambda selector, rows, here: selector.select({LETTERS[row] for row in here}),
    lambda selector, rows, here: selector.select(clients=[LETTERS[row] for row in here]),
    lambda selector, rows, here: selector.select(available=np.isin(range(10), here)),
    lambda selector, rows, here: selector.select(np.ones((10, 1)), available=np.isin(range(10), here)),
]


@pytest.mark.parametrize(("ways", "num_features"), [(WITH_CONTEXTS, 3), (WITHOUT, None)], ids=["contexts", "none"])
def test_each_way_to_ask_is_the_same_question(tmp_path, ways, num_features):
    """Whether contexts come as a mapping, as all rows, or as some rows in any order decides nothing."""
    selectors = [
        make(LETTERS_LIST, num_features=num_features, cohort_size=3, guarded=ways is not WITHOUT) for _ in ways
    ]
    for number in range(1, 30):
        rng = np.random.default_rng(number)
        rows, here = rng.uniform(0.5, 2.0, (10, 3)), rng.permutation(10)[: rng.integers(1, 11)]
        cohorts = [way(selector, rows, here) for way, selector in zip(ways, selectors, strict=True)]
        assert cohorts == cohorts[:1] * len(ways)
        for selector in selectors:
            selector.observe(number, times_s={client: 1.0 + LETTERS.index(client) for client in cohorts[0].clients})
    assert all(kept(selector, tmp_path) == kept(selectors[0], tmp_path) for selector in selectors)
    if ways is WITHOUT:  # one mean for each client: n observations of t, shrunk by the ridge: n t / (n + 1)
        for client, expected_s in selectors[0].expected_times_s().items():
            count = selectors[0].participation()[client]
            assert expected_s == pytest.approx(count * (1.0 + LETTERS.index(client)) / (count + 1.0))


def test_the_callers_arrays_are_not_kept():
    """A caller may reuse its array before the feedback is there."""
    ours, theirs = make(LETTERS_LIST, num_features=3), make(LETTERS_LIST, num_features=3)
    rows = np.random.default_rng(0).uniform(0.5, 2.0, (10, 3))
    cohort = ours.select(rows.copy())
    assert theirs.select(rows) == cohort
    rows[:] = 1e6
    for selector in (ours, theirs):
        selector.observe(1, times_s=dict.fromkeys(cohort.clients, 2.0))
    again = np.random.default_rng(1).uniform(0.5, 2.0, (10, 3))
    assert [ours.select(again) for _ in range(5)] == [theirs.select(again) for _ in range(5)]


def test_no_client_available_is_an_explicit_empty_round():
    selector = make(["a", "b", "c"])
    assert selector.select({}) == Cohort(1, ())
    assert selector.select(np.ones((3, 1)), available=[False] * 3).is_empty
    assert selector.select(np.empty((0, 1)), clients=[]).is_empty
    assert selector.round == 3
    assert selector.open_rounds() == {}
    assert array(selector.participation()).tolist() == [0, 0, 0]
    with pytest.raises(FeedbackError, match="round 1"):
        selector.observe(1, times_s={})
    assert selector.select({"b": [1.0]}) == Cohort(4, ("b",))
    empty = make([])
    assert empty.select({}).is_empty
    empty.join(["a"])
    assert empty.select({"a": [1.0]}) == Cohort(2, ("a",))


def test_an_empty_round_counts_for_the_queues(tmp_path):
    selector = make(["a", "b"], policy=RBCSF(V=1.0, beta=0.25))
    for _ in range(4):
        selector.select({})
    assert learned(selector, tmp_path)["policy.backlog"].tolist() == [1.0, 1.0]


def test_a_beta_that_cannot_be_met_is_an_error_at_the_start():
    with pytest.raises(InfeasibleError, match=r"beta = 0.5 cannot be met: 3 clients x 0.5 = 1.5 places") as caught:
        make(["a", "b", "c"], policy=RBCSF(beta=0.5), cohort_size=1)
    assert isinstance(caught.value, ConfigurationError)
    make(["a", "b"], policy=RBCSF(beta=0.5), cohort_size=1)  # exactly feasible
    make(["a", "b", "c"], policy=RBCSF(beta=0.0), cohort_size=1)
    make(["a", "b", "c"], policy=Uniform(), cohort_size=1)


def test_joining_warns_once_when_beta_can_no_longer_be_met(tmp_path):
    selector = make(["a", "b"], policy=RBCSF(beta=0.5), cohort_size=1)
    before = kept(selector, tmp_path)
    with pytest.raises(FairnessWarning):  # where warnings are errors, nothing is booked
        selector.join(["c"])
    assert kept(selector, tmp_path) == before
    with pytest.warns(FairnessWarning, match="beta = 0.5 cannot be met: 3 clients") as caught:
        selector.join(["c"])
    assert caught[0].filename == __file__
    selector.join(["e"])  # it was said
    assert selector.clients == ("a", "b", "c", "e")
    assert len(selector.select(contexts("abce")).clients) == 1
    selector.leave(["a", "e"])
    selector.leave(["b"], forget=True)
    selector.join(["d"])  # two again: no warning
    with pytest.warns(FairnessWarning, match="3 clients"):
        selector.join(["a"])


def seen(probability, *, policy, rounds=640):
    selector = make(LETTERS_LIST, policy=policy, cohort_size=10)
    rng = np.random.default_rng(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(rounds):
            available = rng.random(10) < np.array([probability] + [0.9] * 9)
            selector.select(np.ones((10, 1)), available=available)
    return [str(warning.message) for warning in caught], [warning.category for warning in caught]


def test_a_client_that_is_seen_too_rarely_is_reported():
    messages, categories = seen(0.2, policy=RBCSF(V=1.0, beta=0.5))
    assert len(messages) >= 8  # at nearly each look
    assert set(categories) == {FairnessWarning}
    assert all("beta = 0.5 cannot be met for 1 clients" in message and "['a']" in message for message in messages)


@pytest.mark.parametrize(
    ("probability", "policy"),
    [(0.5, RBCSF(V=1.0, beta=0.5)), (0.9, RBCSF(V=1.0, beta=0.5)), (0.01, RBCSF(beta=0.0)), (0.2, Uniform())],
)
def test_no_warning_without_a_reason(probability, policy):
    """Negative control: a client that is seen exactly as often as promised may be below by chance."""
    assert seen(probability, policy=policy, rounds=320) == ([], [])


def test_absence_before_joining_and_after_leaving_is_not_counted():
    selector = make(["a"], policy=RBCSF(V=1.0, beta=0.9), cohort_size=4)
    for _ in range(100):
        selector.select({"a": [1.0]})
    selector.join(["b"])
    for _ in range(100):
        selector.select({"a": [1.0], "b": [1.0]})
    selector.leave(["b"])
    for _ in range(100):
        selector.select({"a": [1.0]})
    selector.join(["b"])
    for _ in range(30):
        selector.select({"a": [1.0], "b": [1.0]})


@pytest.mark.parametrize("policy", [FedCS(), FedCSGreedy(), OmniscientP3()], ids=str)
def test_policies_that_know_the_truth_run_in_simulations_only(policy):
    with pytest.raises(ConfigurationError, match=r"knows the network's true times; it runs in simulations only"):
        make(policy=policy)


def test_a_warning_that_is_an_error_neither_loses_a_round_nor_stops_the_federation():
    selector = make(["a", "b", "c", "d"], policy=RBCSF(beta=0.25), cohort_size=1)
    for _ in range(64):
        selector.select(contexts("abc"))
    with pytest.raises(FairnessWarning, match="'d'"):  # pytest turns warnings into errors
        selector.select(contexts("abc"))
    assert selector.round == 64
    cohort = selector.select(contexts("abc"))
    assert (cohort.round, len(cohort.clients)) == (65, 1)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("rbcs-f", r"expected a policy, such as make_policy\('rbcs-f'\); policy is 'rbcs-f', which has no check"),
        (None, "policy is None, which has no check"),
        (RBCSF, r"policy is the class RBCSF; expected an instance, RBCSF\(...\)"),
    ],
)
def test_what_is_no_policy_is_refused(policy, message):
    with pytest.raises(ConfigurationError, match=message):
        Selector(policy, cohort_size=2, num_features=1)
    with pytest.raises(ConfigurationError, match=message):
        next(simulate(policy, FlatNetwork(), rounds=1, seed=0))


FEATURES = {"a": [1.0], "b": [2.0], "c": [4.0]}


def answer(selector: Selector, rounds: int, features=FEATURES) -> list[tuple]:
    cohorts = []
    for _ in range(rounds):
        cohort = selector.select(features)
        selector.observe(cohort.round, times_s={client: 3.0 * features[client][0] for client in cohort.clients})
        cohorts.append(cohort.clients)
    return cohorts


def test_rates_count_from_the_round_in_which_a_client_joined():
    selector = Selector(Uniform(), cohort_size=np.int64(2), num_features=1, clients=["a", "b"])
    assert type(selector.cohort_size) is int
    answer(selector, 3, {"a": [1.0], "b": [2.0]})
    selector.join(["c"])
    assert array(selector.participation_rates()).tolist() == [1.0, 1.0, 0.0]
    cohorts = answer(selector, 5)
    chosen = np.array([sum(client in cohort for cohort in cohorts) for client in "abc"])
    assert array(selector.participation_rates()) == pytest.approx(np.add(chosen, [3, 3, 0]) / [8, 8, 5])
    selector.leave(["b"])
    assert array(selector.participation_rates()).shape == (2,)


def test_queues_are_the_policys():
    selector = Selector(RBCSF(V=5.0, beta=0.25), cohort_size=1, num_features=1, clients=["a", "b", "c"])
    cohorts = answer(selector, 9)
    queue = dict.fromkeys("abc", 0.0)
    for cohort in cohorts:
        queue = {client: max(0.0, owed + 0.25 - (client in cohort)) for client, owed in queue.items()}
    assert selector.backlog() == pytest.approx(queue)
    selector.leave(["a"])
    assert selector.backlog() == pytest.approx({client: queue[client] for client in "bc"})
    assert make(policy=Uniform()).backlog() == {}


def test_expected_times_are_those_of_the_ridge_regression():
    policy = RBCSF(V=0.0, beta=0.0, ridge=1.0)  # of clean times, so the first counts, too
    selector = Selector(policy, cohort_size=3, num_features=1, clients=["a", "b", "c"], guarded=False)
    answer(selector, 4)
    # 4 observations (c, 3 c) of one feature: theta = 4 c 3 c / (1 + 4 c^2).
    expected = {client: 12.0 * value**2 / (1.0 + 4.0 * value**2) * value for client, (value,) in FEATURES.items()}
    features = [FEATURES[client] for client in "cab"]
    assert array(selector.expected_times_s(features, clients=["c", "a", "b"])) == pytest.approx(
        [expected[c] for c in "cab"]
    )
    assert selector.expected_times_s([], clients=[]) == {}
    with pytest.raises(UnknownNameError, match="'d'"):
        selector.expected_times_s([[1.0]], clients=["d"])
    blind = Selector(Uniform(), cohort_size=1, num_features=1, clients=["a"])
    assert np.isnan(blind.expected_times_s()["a"])


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
    believed = [array(selector.expected_times_s([[1.0]] * 3, clients=list("abc"))) for selector in (cut, told, free)]
    np.testing.assert_array_equal(believed[0], believed[1])
    assert believed[2][0] > 1e5
    capped_times = [[*selector.participation("capped").values()] for selector in (cut, told, free)]
    assert capped_times == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_the_longest_time_may_change_and_is_saved(tmp_path):
    selector = capped(longest_s=None)
    assert selector.longest_s is None
    with pytest.raises(ConfigurationError, match="longest_s"):
        selector.longest_s = 0.0
    assert selector.longest_s is None
    selector.longest_s = np.float32(2.5)
    assert type(selector.longest_s) is float
    selector.select(FEATURES)
    selector.observe(1, times_s={"a": 3.0, "b": 2.5, "c": 1.0})
    selector.save(tmp_path / "state.npz")
    loaded = Selector.load(tmp_path / "state.npz", selector.policy)
    assert loaded.longest_s == 2.5
    assert array(loaded.participation("capped")).tolist() == [1, 0, 0]
    assert array(loaded.backlog()).tolist() == array(selector.backlog()).tolist()


def test_ids_that_are_numbers_are_ids():
    selector = Selector(Uniform(), cohort_size=3, clients=range(10))
    assert selector.select([7, 3]).clients == selector.select(np.array([7, 3])).clients == (3, 7)
    assert selector.select([]).is_empty
    with pytest.raises(InvalidInputError, match="ids name clients and availability itself"):
        selector.select([7, 3], available=[True, False])
    with pytest.raises(InvalidInputError, match=r"contexts have shape \(2,\); expected \(10, 1\)"):
        selector.select([7.0, 3.0])


@pytest.mark.parametrize("policy", [POLICY, Dirichlet(), Floor()], ids=str)
def test_the_length_of_contexts_is_that_of_the_first_ones(tmp_path, policy):
    """Whether it is said or found, and whenever clients join before the first contexts, decides nothing."""
    said, found = (Selector(policy, cohort_size=3, num_features=size, clients=LETTERS_LIST[:4]) for size in (3, None))
    assert (said.num_features, found.num_features) == (3, None)
    for selector in (said, found):
        selector.join(LETTERS_LIST[4:])
        selector.select({})  # an empty round says nothing of contexts, and counts for the queues
    assert found.num_features is None
    assert play(said, 12) == play(found, 12)
    assert found.num_features == 3
    assert kept(said, tmp_path) == kept(found, tmp_path)


def test_contexts_of_another_length_are_refused_and_the_parameter_is_named():
    selector = Selector(POLICY, cohort_size=2, clients=["a", "b"])
    with pytest.raises(InvalidInputError, match=r"shape \(1, 2\); expected \(2, D\), a list of num_features = D"):
        selector.select([[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match="finite numbers >= 0"):
        selector.select([[1.0, -2.0], [1.0, 1.0]])
    assert np.isnan(
        [*selector.expected_times_s().values(), *selector.expected_times_s({"a": [1.0] * 5}).values()]
    ).all()
    assert selector.num_features is None  # what is refused or asked for says nothing
    selector.select([[1.0, 2.0], [1.0, 1.0]])
    with pytest.raises(InvalidInputError, match=r"expected 2 numbers for each client \(num_features=2\)"):
        selector.select()
    with pytest.raises(InvalidInputError, match=r"shape \(2, 1\); expected \(2, 2\), a list of num_features = 2"):
        selector.select([[1.0], [1.0]])
    plain = Selector(POLICY, cohort_size=2, clients=["a", "b"])
    plain.select()
    with pytest.raises(InvalidInputError, match="num_features = 1"):
        plain.select({"a": [1.0, 2.0]})


def test_a_policy_that_needs_limits_is_refused_at_the_start():
    with pytest.raises(ConfigurationError, match="chooses the updates that come in time; it needs several servers"):
        make(policy=make_policy("cocs"))


def test_it_shows_what_it_is_and_how_far_it_has_come():
    selector = Selector(RBCSF(V=5.0, beta=0.1), cohort_size=2, clients=["a", "b", "c"])
    assert repr(selector) == (
        f"<Selector with {RBCSF(V=5.0, beta=0.1)!r}: 3 members, cohorts of 2, round 0, open rounds: none>"
    )
    for _ in range(5):
        selector.select()
    assert repr(selector).endswith("round 5, open rounds: 1, 2, 3 and 2 more>")


def test_each_decision_is_logged_at_info(caplog):
    selector = Selector(Uniform(), cohort_size=2, clients=["a", "b", "c"], rules=Rules(least_cohort=1))
    with caplog.at_level("INFO", logger="fedroster"):
        cohort = selector.select(["a", "b"])
        with pytest.raises(RoundNotBegunError):
            selector.select([])
    assert [each.message for each in caplog.records] == [
        f"round 1: 2 of 2 available clients: {', '.join(cohort.clients)}",
        "round 2 is not begun: 0 clients can take part; expected least_cohort = 1",
    ]
