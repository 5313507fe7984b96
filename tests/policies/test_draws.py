"""What policies say about chance: the probabilities that they declare are those with which they draw."""

import dataclasses

import numpy as np
import pytest

from fedroster.catalogue import make_policy, policies
from fedroster.core.problem import Feedback
from fedroster.core.protocols import DrawsKnown, Stateless, draws, inclusion_of
from fedroster.core.streams import Streams
from fedroster.environment.flat import FlatNetwork
from fedroster.simulation import simulate

CALLS = 1500


class Losses:
    """Feedback with losses and, if asked for, sizes."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __call__(self, context, selection, outcome):
        told = outcome.reveal(context, selection)
        rng = Streams(5).at("losses", context.round)
        loss = rng.gamma(4.0, 0.5, context.num_links)[selection.links]
        samples = 10.0 + 5.0 * (told.client % 4) if self.sizes else None
        assert isinstance(told, Feedback)
        return dataclasses.replace(told, loss=loss, squared_loss=loss**2, num_samples=samples)


def moments(text, rounds, *, sizes=False):
    """Contexts and states before some rounds' decisions."""
    policy, network = make_policy(text), FlatNetwork(num_clients=14, cohort_size=4)
    played = simulate(policy, network, num_rounds=max(rounds), seed=3, exchange=Losses(sizes))
    after = {0: policy.init(network.spec, rng=Streams(3).at("policy-init"))}
    found = []
    for one in played:
        if one.number in rounds:
            found.append((policy, after[one.number - 1], one.context, one.selection))
        after = {one.number: _copy(one.policy_state)}
    return found


def _copy(state):
    import copy

    return copy.deepcopy(state)


def shares(policy, state, context):
    """How often each row is chosen."""
    count = np.zeros(context.num_links)
    for call in range(CALLS):
        if hasattr(state, "seed"):  # TiFL draws its tier by a seed of its own
            state = dataclasses.replace(state, seed=call)
        count[policy.select(state, context, rng=Streams(call).at("draw")).links] += 1
    return count / CALLS


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("random", False),
        ("dirichlet:gamma_2=0.3", False),
        ("e3cs", False),
        ("e3cs:schedule=increasing,horizon=8", False),
        ("power-of-choice:d=7", False),
        ("tifl:tiers=3,interval=5", False),
        ("oort", False),
        ("oort:slowness_feature=-1,exploration=0.5,cut_off=0.5", False),
        ("size-weighted", True),
    ],
)
def test_what_is_declared_is_what_is_drawn(text, sizes):
    for policy, state, context, selection in moments(text, (2, 12), sizes=sizes):
        declared = inclusion_of(policy, state, context, selection)
        assert draws(policy) in ("uniform", "known")
        assert declared.sum() == pytest.approx(min(4, context.available.sum()))
        assert not declared[~context.available].any()
        deviation = np.sqrt(declared * (1.0 - declared) / CALLS) + 1e-9
        assert (np.abs(shares(policy, state, context) - declared) < 4.5 * deviation).all()


def test_every_policy_says_how_it_draws():
    found = {name: draws(make_policy(name)) for name in policies()}
    assert {name for name, kind in found.items() if kind == "unknown"} == {"fedcs-greedy"}
    assert all(
        isinstance(make_policy(name), DrawsKnown) for name, kind in found.items() if kind in ("uniform", "known")
    )


def test_a_policy_that_never_draws_includes_with_zero_or_one():
    policy, state, context, selection = moments("round-robin", (2,))[0]
    declared = inclusion_of(policy, state, context, selection)
    assert np.flatnonzero(declared).tolist() == selection.links.tolist()


def test_what_is_not_known_is_not_guessed():
    policy, state, context, selection = moments("power-of-choice", (12,), sizes=True)[0]
    assert inclusion_of(policy, state, context, selection) is None  # clients of different sizes
    assert inclusion_of(Stateless(), state, context, selection) is None  # says nothing
    for text in ("oort:max_participations=2", "random"):
        policy, state, context, selection = moments(text, (12,))[0]
        server = np.zeros(context.num_links, np.int64)
        context = dataclasses.replace(context, client=np.arange(context.num_links), server=server)
        assert inclusion_of(policy, state, context, selection) is None


@pytest.mark.parametrize("text", ["explored", "explored:policy=e3cs:eta=1,places=2,probability=0.5"])
def test_explored_gives_everybody_a_chance(text):
    for policy, state, context, selection in moments(text, (2, 12)):
        declared = inclusion_of(policy, state, context, selection)
        count = np.zeros(context.num_links)
        for call in range(CALLS):  # the policy inside, and which rounds explore, are drawn by the state's seed
            changed = state if policy.probability == 1.0 else dataclasses.replace(state, seed=call)
            count[policy.select(changed, context, rng=Streams(call).at("draw")).links] += 1
        deviation = np.sqrt(declared * (1.0 - declared) / CALLS) + 1e-9
        assert (declared[context.available] > 0.0).all()
        assert declared.sum() == pytest.approx(4.0)
        assert (np.abs(count / CALLS - declared) < 4.5 * deviation).all()
