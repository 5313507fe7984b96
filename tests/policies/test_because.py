"""Each policy says why: what it names turns the decision exactly there, and nothing is named that does not."""

import copy
import dataclasses
import math

import numpy as np
import pytest

from fedroster import make_policy
from fedroster.core.because import because
from fedroster.core.protocols import signs
from fedroster.types import Feedback, ProblemSpec, RoundContext, Status, Streams
from priced import BUDGETED, LIVE, priced_context

N, M = 12, 4
FLAT = {
    "round-robin": {"last"},
    "oort": set(),
    "oort:slowness_feature=-1,exploration=0.3": set(),
    "power-of-choice": {"loss"},
    "power-of-choice:d=5": set(),
    "power-of-choice:d=100": {"loss"},
    "by-speed:longest_gap=1": {"last"},
    "tifl:tiers=3,profile_rounds=2": {"chosen"},
    "cs-ucb": {"owed"},
    "cs-ucb:queues=false": set(),
    "rbcs-f:V=0.5,beta=0.3": {"owed", "expected_s"},
    "rbcs-f:V=20,beta=0.1": {"owed", "expected_s"},
    "floor:beta=0.25": {"owed", "expected_s"},
    "floor:beta=0.25,share_of=available": {"owed", "expected_s"},
    "floor:beta=0": {"owed", "expected_s"},
}
"""Policies of one server, and what may turn their decisions; that is nothing known for those that are not named."""
FLAT |= {name: set() for name in LIVE if name not in {*BUDGETED, *(text.partition(":")[0] for text in FLAT)}}
EDGE = [*BUDGETED, "partial-pooling:beta=0.25", "random"]
"""Policies of links with prices: a set is better than all others, and no bound for one client is known exactly."""


def rounds(text, *, num_rounds=24, seed=0, edge=False):
    """Rounds of a policy: state, context, and selection of each."""
    policy, streams = make_policy(text), Streams(seed)
    spec = ProblemSpec(N, 2 * M if edge else M, 1, 2 if edge else 1)
    policy.check(spec)
    state = policy.init(spec, rng=streams.at("init"))
    for number in range(1, num_rounds + 1):
        rng = streams.at("world", number)
        there = rng.random(N) < 0.8
        context = RoundContext(number, rng.uniform(0.5, 1.0, (N, 1)), there, spec.cohort_size)
        if edge:
            links = {"client": np.repeat(np.arange(N), 2), "server": np.tile([0, 1], N), "budget": [2.0, 3.0]}
            links["features"] = rng.uniform(0.0, 1.0, (2 * N, 1))
            links["available"] = np.repeat(there, 2) & (rng.random(2 * N) < 0.9)
            context = priced_context(rng.uniform(0.5, 1.5, 2 * N), **links, number=number, size=spec.cohort_size)
        selection = policy.select(state, context, rng=streams.at("policy", number))
        yield policy, copy.deepcopy(state), context, selection
        clients = context.clients_of(selection.links)
        features = context.features[selection.links].copy()
        state = policy.commit(state, context, selection)
        size = clients.shape[0]
        time_s = features[:, 0] * (0.5 + clients / 4.0) * rng.uniform(0.8, 1.2, size)
        late = rng.random(size) < (0.5 if edge else 0.1)
        told = dict.fromkeys(("loss", "squared_loss", "num_samples"))
        if getattr(policy, "wants_losses", False):
            loss = rng.uniform(0.1, 2.0, size)
            told = {"loss": loss, "squared_loss": loss**2, "num_samples": np.full(size, 10.0)}
        status = np.where(late, np.uint8(Status.LATE), np.uint8(Status.COMPLETED))
        if (wanted := signs(policy)) is not None:
            told["signature"] = rng.standard_normal((size, wanted.length))
        server = None if context.server is None else context.server[selection.links]
        state = policy.update(state, Feedback(number, clients, features, status, time_s, server=server, **told))


def changed(policy, state, context, client, limit, value):
    """The state and the context in which one quantity of one client has another value."""
    state = copy.deepcopy(state)
    kind = type(policy).__name__
    if limit.quantity == "last":
        state.last[client] = value
    elif limit.quantity == "loss":
        state.loss[client] = value
    elif limit.quantity == "chosen":
        state.asked[client] = value
        if value == 0:
            state.measured[client], state.total_s[client] = 0, 0.0
    elif limit.quantity == "owed" and kind == "Floor":
        state.debt[client] += value - limit.value
        state.own_debt[client] += value - limit.value
    elif limit.quantity == "owed":
        state.backlog[client] = value
    elif limit.quantity == "expected_s" and kind == "RBCSF":
        whitened = context.features[client, 0] * state.ridge.factor[0, client]
        state.ridge.moment[0, client] = value / whitened
    elif limit.quantity == "expected_s":
        features = context.features.copy()
        features[client, 0] = value / state.belief.times.coefficients[0, client]
        context = dataclasses.replace(context, features=features)
    return state, context


def is_chosen(context, selection, client):
    return bool((context.clients_of(selection.links) == client).any())


@pytest.mark.parametrize(("text", "edge"), [*((each, False) for each in FLAT), *((each, True) for each in EDGE)])
def test_what_is_named_turns_the_decision_exactly_there(text, edge):
    named, num_limits = set(), 0
    for policy, state, context, selection in rounds(text, edge=edge):
        for client in range(N):
            if not (context.clients_of(np.flatnonzero(context.available)) == client).any():
                continue
            why = because(policy, state, context, selection, client)
            assert why is not None
            was = is_chosen(context, selection, client)
            for limit in why.limits:
                num_limits += 1
                named.add(limit.quantity)
                by = 1.0 if limit.quantity in ("last", "chosen") else 1e-6 * max(1.0, abs(limit.bound))
                side = by if limit.above else -by
                for value, turns in ((limit.bound + side, True), (limit.bound - side, False)):
                    if not turns and (value > limit.value) != limit.above:
                        continue  # the quantity already is this close to the bound
                    then, there = changed(policy, state, context, client, limit, value)
                    turned = all(  # where clients tie, chance decides: then nothing is turned for sure
                        is_chosen(there, policy.select(then, there, rng=Streams(draw).at("")), client) != was
                        for draw in range(4 if turns else 20)
                    )
                    assert turned == turns, (context.round, client, why, limit, value)
    assert named == (set() if edge else FLAT[text])
    assert bool(num_limits) == bool(named)


@pytest.mark.parametrize(
    "text", ["random", "e3cs", "round-robin", "tifl:tiers=2,profile_rounds=1", "power-of-choice:d=100"]
)
def test_a_probability_is_how_often_the_draw_falls_so(text):
    found = 0
    for number, (policy, state, context, selection) in enumerate(rounds(text, num_rounds=10)):
        if number not in (0, 5, 9):
            continue
        draws = [
            policy.select(copy.deepcopy(state), context, rng=Streams(seed).at("draw")).links for seed in range(250)
        ]
        for client in np.flatnonzero(context.available).tolist():
            why = because(policy, state, context, selection, client)
            if why.reason == "drawn":
                found += 1
                often = sum(client in links for links in draws) / len(draws)
                assert often == pytest.approx(why.chance, abs=4.0 * math.sqrt(0.25 / len(draws)))
    assert found
