"""Clients that lie: every policy decides, keeps its promise and its numbers, whatever clients say of themselves."""

import dataclasses

import numpy as np
import pytest

from federations import array
from fedroster import Selector
from fedroster.catalogue import make_policy
from fedroster.core.problem import ProblemSpec, check_selection
from fedroster.core.protocols import wants_losses
from fedroster.core.state import pack
from fedroster.core.streams import Streams
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.simulation import simulate
from priced import BUDGETED, LIVE, priced_context

NUM_CLIENTS, COHORT, NUM_FEATURES = 12, 3, 3
LARGEST, LEAST = 1.79e308, 5e-324
LIAR = 3

FLAT = [
    *(name for name in LIVE if name not in BUDGETED),
    "rbcs-f:V=1",
    "rbcs-f:ridge=1e-300",
    "e3cs:fairness=0,eta=1e6",
    "cs-ucb:queues=false",
    "size-weighted:size_feature=0",
]
OMNISCIENT = ["fedcs", "fedcs-greedy", "p3"]
PRICED = [*BUDGETED, "partial-pooling:beta=0.1", "random"]


def usual_time(rng, client):
    return rng.uniform(1.0, 2.0) * (1.0 + client / 4.0)


TIMES = {
    "equal": lambda rng, t, client: 1.0,
    "least": lambda rng, t, client: LEAST,
    "all tiny": lambda rng, t, client: 1e-160 * rng.uniform(0.5, 1.5),
    "growing": lambda rng, t, client: 2.0 ** min(20 * t, 1023),
    "largest": lambda rng, t, client: LARGEST,
    "of any size": lambda rng, t, client: 10.0 ** rng.uniform(-323.0, 308.0),
    "one is endless": lambda rng, t, client: LARGEST if client == LIAR else usual_time(rng, client),
    "one takes no time": lambda rng, t, client: LEAST if client == LIAR else usual_time(rng, client),
}


def one(value):
    return lambda rng: np.where(np.arange(NUM_CLIENTS)[:, None] == LIAR, value, usual_context(rng))


def usual_context(rng):
    return rng.uniform(0.5, 2.0, (NUM_CLIENTS, NUM_FEATURES))


CONTEXTS = {
    "zeros": lambda rng: np.zeros((NUM_CLIENTS, NUM_FEATURES)),
    "off by 1e12": lambda rng: usual_context(rng) * 10.0 ** rng.choice([-12, 0, 12], (NUM_CLIENTS, 1)),
    "of any size": lambda rng: 10.0 ** rng.uniform(-323.0, 308.0, (NUM_CLIENTS, NUM_FEATURES)),
    "all tiny": lambda rng: np.full((NUM_CLIENTS, NUM_FEATURES), 1e-160),
    "largest": lambda rng: np.full((NUM_CLIENTS, NUM_FEATURES), LARGEST),
    "one of 1e160": one(1e160),
    "one of the largest": one(LARGEST),
    "a tiny feature": lambda rng: usual_context(rng) * [1.0, 1e-160, 1.0],
    "a huge feature": lambda rng: usual_context(rng) * [1.0, 1e160, 1.0],
}
LOSSES = {
    "largest": (LARGEST, LARGEST, LARGEST),
    "negative": (-LARGEST, 0.0, LEAST),
    "nothing": (0.0, 0.0, 1.0),
}
AVAILABLE = {
    "all": lambda rng, t: np.ones(NUM_CLIENTS, np.bool_),
    "some": lambda rng, t: rng.random(NUM_CLIENTS) < 0.4,
    "one": lambda rng, t: np.arange(NUM_CLIENTS) == t % NUM_CLIENTS,
    "none at times": lambda rng, t: np.full(NUM_CLIENTS, t % 3 > 0),
}
LIES = (
    [{"times": name} for name in TIMES]
    + [{"contexts": name} for name in CONTEXTS]
    + [{"losses": name} for name in LOSSES]
    + [{"available": name, "late": 12} for name in AVAILABLE]
    + [
        {"times": "of any size", "contexts": "of any size", "losses": "largest", "available": "some"},
        {"times": "all tiny", "contexts": "largest", "available": "none at times", "late": 12},
        {"times": "largest", "contexts": "all tiny", "losses": "negative", "available": "one"},
    ]
)


def not_a_number(state):
    """Names of arrays of a state that hold what is no number."""
    held = pack(state) if dataclasses.fields(state) else {}
    return [name for name, values in held.items() if values.dtype.kind == "f" and np.isnan(values).any()]


def play(policy, *, times="", contexts="", losses="", available="all", late=0, rounds=20):
    """A federation in which clients lie, and one of them leaves and joins again; yields the selector."""
    rng = np.random.default_rng(7)
    selector = Selector(policy, cohort_size=COHORT, num_features=NUM_FEATURES, clients=range(NUM_CLIENTS))
    held = []
    for t in range(1, rounds + 1):
        here = AVAILABLE[available](rng, t)
        if t % 9 == 0:
            selector.leave([5], forget=t % 2 == 0)
            selector.join([5])
        features = (CONTEXTS[contexts] if contexts else usual_context)(rng)
        cohort = selector.select(features, clients=range(NUM_CLIENTS), available=here)
        most = min(COHORT, np.count_nonzero(here))
        assert len(cohort.clients) == most if policy.fills_cohort else min(most, 1) <= len(cohort.clients) <= most
        assert here[list(cohort.clients)].all()
        told = {client: TIMES[times](rng, t, client) if times else usual_time(rng, client) for client in cohort.clients}
        held.append((cohort.round, told))
        while held and held[0][0] <= t - late:
            number, told = held.pop(0)
            open_ = set(selector.open_rounds().get(number, ()))
            times_s = {client: time_s for client, time_s in told.items() if client in open_}
            measured = {}
            if losses:
                kinds = zip(("losses", "squared_losses", "num_samples"), LOSSES[losses], strict=True)
                measured = {kind: dict.fromkeys(times_s, value) for kind, value in kinds}
            if times_s:
                selector.observe(number, times_s=times_s, **measured)
        assert not_a_number(selector._learner.state) == []
        yield selector, here


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_lies_break_no_policy(name):
    """Warnings are errors: nothing overflows, not even on the way."""
    policy = make_policy(name)
    for lie in LIES:
        if lie.keys() != {"losses"} or wants_losses(policy):
            for _ in play(policy, **lie):
                pass


@pytest.mark.parametrize("name", ["floor", "floor:share_of=available"])
@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_lies_do_not_break_floors_promise(name):
    for lie in LIES:
        reachable = np.zeros(NUM_CLIENTS)
        for t, (selector, here) in enumerate(play(make_policy(name), **lie), start=1):
            reachable += here
            if t % 18 == 0:
                reachable[5] = here[5]  # it was forgotten before this round
            order = np.argsort(selector.clients)  # a client that was forgotten may come back to another row
            assert (array(selector.participation())[order] >= np.floor(0.15 * reachable + 1e-9) - 2).all(), lie


@pytest.mark.filterwarnings("ignore::fedroster.core.errors.FairnessWarning")
def test_lies_do_not_break_rbcs_fs_promise():
    """x_n(T) >= beta T - Z_n(T), for everybody and whatever is reported."""
    for lie in LIES:
        for t, (selector, _) in enumerate(play(make_policy("rbcs-f:V=1,beta=0.2"), **lie), start=1):
            stayed = np.array(selector.clients) != 5
            assert (array(selector.participation()) + array(selector.backlog()) >= 0.2 * t - 1e-6)[stayed].all(), lie


@pytest.fixture
def lying(monkeypatch):
    """A network in which contexts or times of every third client are out of all proportion."""

    def made(network, *, context=1.0, time=1.0):
        observe = type(network).observe

        def lied(self, state, round, /, *, rng):
            told, outcome = observe(self, state, round, rng=rng)
            lies = (np.arange(told.num_links) if told.client is None else told.client) % 3 == 0
            told = dataclasses.replace(told, features=told.features * np.where(lies, context, 1.0)[:, None])
            names = ("exchange_time_s", "expected_time_s", "expected_upload_s")
            times = {name: getattr(outcome, name) * np.where(lies, time, 1.0) for name in names}
            return told, dataclasses.replace(outcome, **times)

        monkeypatch.setattr(type(network), "observe", lied)
        return network

    return made


@pytest.mark.parametrize("name", OMNISCIENT)
@pytest.mark.parametrize("lie", [{"context": 1e160}, {"context": 1e-160}, {"time": 1e160}, {"time": 1e-160}])
def test_lies_in_a_simulation(lying, name, lie):
    policy = make_policy(name)
    for played in simulate(policy, lying(FlatNetwork(), **lie), rounds=10, seed=1):
        check_selection(played.selection, played.context, fills_cohort=policy.fills_cohort)
        assert not_a_number(played.policy_state) == []


@pytest.mark.parametrize("name", [name for name in PRICED if name != "cocs"])
@pytest.mark.parametrize("factor", [1e12, 1e160, 1e-160])
def test_contexts_that_lie_where_links_have_prices(lying, name, factor):
    """COCS and its oracles need contexts in [0, 1] and say so; the others decide."""
    for played in simulate(make_policy(name), lying(HierarchicalNetwork(), context=factor), rounds=12, seed=1):
        assert not_a_number(played.policy_state) == []


@pytest.mark.parametrize("name", PRICED)
@pytest.mark.parametrize("price", [0.0, LEAST, 1e-12, LARGEST])
@pytest.mark.parametrize("budget", [0.0, LEAST, 1.0, LARGEST])
def test_prices_at_the_borders(name, price, budget):
    policy, streams = make_policy(name), Streams(0)
    spec = ProblemSpec(num_clients=8, cohort_size=4, num_features=2, num_servers=2)
    state = policy.init(spec, rng=streams.at("policy-init"))
    for t in range(1, 6):
        context = priced_context(
            np.where(np.arange(16) < 8, price, 1.0),
            np.repeat(np.arange(8), 2),
            np.tile([0, 1], 8),
            [budget, 1.0],
            features=np.tile([[0.0, 1.0], [1.0, 0.0]], (8, 1)),  # at the borders, too
            number=t,
            size=4,
        )
        selection = policy.select(state, context, rng=streams.at("policy", t))
        check_selection(selection, context, fills_cohort=False)
        state = policy.commit(state, context, selection)
        assert not_a_number(state) == []
