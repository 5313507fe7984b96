"""Known worlds: over 10,000 rounds the weighted sum of a cohort's updates is what a policy says that it estimates.

Every update is a unit vector of its own, so the sum of a round holds each client's weight, 0 where no update came.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from fedroster.catalogue import POLICIES, make_policy
from fedroster.core.protocols import polls, weighed
from fedroster.policies import RBCSF, ClusteredSampling, Floor, ParticipationWeights, RoundRobin, Uniform
from fedroster.types import Feedback, ProblemSpec, RoundContext, Selection, Status, Streams
from rounds import report
from weighing import Drawn

N, M, ROUNDS, FIRST, BATCHES = 8, 3, 10_000, 1_000, 25
SIZES = np.array([10.0, 20.0, 30.0, 40.0, 40.0, 60.0, 80.0, 120.0])
TARGETS = {"clients": np.full(N, 1 / N), "samples": SIZES / SIZES.sum()}


@dataclass(frozen=True)
class World:
    """Who is there, and who answers, independently in each round."""

    availability: tuple[float, ...]
    answers: float = 1.0
    cohort_size: int = M


ALL_THERE = World((1.0,) * N)
INTERMITTENT = World(tuple(np.linspace(0.25, 0.95, N)), answers=0.8)


@cache
def rounds(policy, world):
    """The weight of every client's update in each round, shape (rounds, clients)."""
    spec, streams = ProblemSpec(N, world.cohort_size, 1), Streams(5)
    state, found = policy.init(spec, rng=streams.at("policy-init")), np.zeros((FIRST + ROUNDS, N))
    chance = streams.at("world").random((FIRST + ROUNDS, 2, N))
    times_s = 1.0 + np.arange(N)
    for row, (there, answer) in enumerate(chance):
        context = RoundContext(row + 1, times_s[:, None], there < world.availability, world.cohort_size)
        if polls(policy):
            context = context.with_poll(lambda links: 1.0 + links)
        selection = weighed(policy, state, context, policy.select(state, context, rng=streams.at("policy", row)))
        links = selection.links
        came = answer[links] < world.answers
        found[row, links[came]] = selection.weights[came]
        state = policy.commit(state, replace(context, poll=None), Selection(context.round, links))
        status = np.where(came, np.uint8(Status.COMPLETED), np.uint8(Status.DROPPED))
        told = {"exchange_time_s": np.where(came, times_s[links], np.nan), "loss": np.where(came, 1.0, np.nan)}
        told |= {"squared_loss": told["loss"], "num_samples": np.where(came, SIZES[links], np.nan)}
        state = policy.update(state, Feedback(context.round, links, context.features[links], status, **told))
    return found[FIRST:]


def deviations(found, target):
    """How far means are from the target beyond one per cent of it, in standard errors of batches of rounds."""
    means = found.reshape(BATCHES, -1, N).mean(axis=0 if BATCHES == 1 else 1)
    error = means.std(axis=0, ddof=1) / np.sqrt(BATCHES)
    beyond = np.maximum(np.abs(means.mean(axis=0) - target) - 0.01 * target, 0.0)
    return beyond / np.maximum(error, 1e-9)


CLAIMS = [make_policy(name) for name in POLICIES if getattr(make_policy(name), "estimates", "nothing") != "nothing"]
CASES = [(policy, ALL_THERE) for policy in (Drawn(), *CLAIMS)] + [
    (ParticipationWeights(inside), world)
    for inside, world in (
        (Uniform(), INTERMITTENT),
        (RoundRobin(), ALL_THERE),
        (RBCSF(V=1.0, beta=0.1), INTERMITTENT),
        (Floor(beta=0.2), INTERMITTENT),
    )
]
CASES += [(ParticipationWeights(), replace(INTERMITTENT, cohort_size=N))]
CASES += [(ClusteredSampling(scheme), ALL_THERE) for scheme in ("multinomial", "systematic")]


@pytest.mark.parametrize(("policy", "world"), CASES, ids=lambda value: type(value).__name__)
def test_the_mean_is_the_target_and_a_wrong_weight_is_found(policy, world):
    found, target = rounds(policy, world), TARGETS[policy.estimates]
    assert deviations(found, target).max() < 4.5
    # Negative controls: all weights, and those of two clients, wrong by a fifth.
    assert deviations(1.2 * found, target).max() > 4.5
    assert deviations(found * np.where(np.arange(N) < 2, 1.2, 1.0), target).max() > 4.5


@pytest.mark.parametrize("world", [INTERMITTENT, replace(INTERMITTENT, cohort_size=N)], ids=["cohorts", "everyone"])
def test_equal_weights_are_biased_where_some_are_there_more_often(world):
    found = rounds(ParticipationWeights(), world)
    equal = (found > 0.0) / world.cohort_size
    assert deviations(equal / equal.sum(axis=1).mean(), TARGETS["clients"]).max() > 10.0


def test_the_variance_is_that_of_the_scheme():
    """Draws with replacement have p (1 - p) / m; mean intervals of a client that is there with p have (1 - p) / p."""
    np.testing.assert_allclose(rounds(Drawn(), ALL_THERE).var(axis=0), (1 / N) * (1 - 1 / N) / M, rtol=0.08)
    found = rounds(ParticipationWeights(), replace(INTERMITTENT, cohort_size=N))
    p = np.array(INTERMITTENT.availability) * INTERMITTENT.answers
    np.testing.assert_allclose(found.var(axis=0), (1 - p) / p / N**2, rtol=0.12)


@pytest.mark.parametrize(("p", "K", "mean"), [(0.1, 50, 9.948), (0.02, 50, 31.79)])
def test_a_client_that_is_rarely_there_counts_less_than_it_should(p, K, mean):
    """Known answers for Bernoulli presence: w tends to (1 - (1 - p)^K) / p."""
    rng, policy = np.random.default_rng(1), ParticipationWeights(longest_gap=K)
    size, last = 400, 3000
    state = policy.init(ProblemSpec(size, size, 1), rng=rng)
    for number in range(1, last + 1):
        context = RoundContext(number, np.ones((size, 1)), rng.random(size) < p, size)
        links = np.flatnonzero(context.available)
        weights = policy.weights(state, context, Selection(number, links))
        state = policy.commit(state, context, Selection(number, links))
        state = policy.update(state, report(links, round=number))
    everyone = policy.weights(state, context, Selection(number, np.arange(size))) * size
    assert everyone.mean() == pytest.approx(mean, rel=0.02)
    assert weights.min() > 0.0
