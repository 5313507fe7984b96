"""Draws by speed: their weights, their bound on gaps, and who works how long."""

import numpy as np

from fedroster.policies import BySpeed
from fedroster.policies.by_speed import draw_weights
from fedroster.types import ProblemSpec, RoundContext, Streams
from rounds import report


def test_weights_by_hand():
    np.testing.assert_allclose(draw_weights(np.array([2.0, 1.0, 4.0]), exponent=1.0, least=0.0), [0.5, 1.0, 0.25])
    np.testing.assert_allclose(draw_weights(np.array([1.0, 100.0]), exponent=2.0, least=0.5), [1.0, 0.5 * 0.50005])
    assert draw_weights(np.array([1.0, np.nan]), exponent=1.0, least=0.1).tolist() == [1.0, 1.0]
    assert draw_weights(np.empty(0), exponent=1.0, least=0.1).shape == (0,)


def play(policy, times_s, *, fillings, places):
    """Free places on a clock with exponential times: who was chosen at each filling, and who answered."""
    clients, streams = len(times_s), Streams(0)
    state = policy.init(ProblemSpec(clients, places, 1), rng=streams.at("policy-init"))
    rng, work, chosen, answered = np.random.default_rng(0), {}, [], []
    now = 0.0
    for number in range(1, fillings + 1):
        here = np.array([client not in work for client in range(clients)])
        context = RoundContext(number, times_s[:, None], here, places - len(work))
        selection = policy.select(state, context, rng=streams.at("policy", number))
        state = policy.commit(state, context, selection)
        for client in selection.links.tolist():
            work[client] = (now + times_s[client] * rng.standard_exponential(), now, number)
        chosen.append(selection.links.copy())
        client = min(work, key=work.get)
        now, began, asked = work.pop(client)
        answered.append(client)
        told = {"features": times_s[client, None, None], "time_s": [now - began]}
        state = policy.update(state, report([client], round=asked, **told))
    return chosen, answered


def test_no_client_waits_longer_than_the_bound():
    """From the later of its answer and the G N-th filling after its last turn, no more than N fillings pass."""
    times = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 50.0])
    chosen, answered = play(BySpeed(exponent=8.0, least=0.0, longest_gap=3.0), times, fillings=900, places=2)
    turns = [number for number, links in enumerate(chosen, 1) if 5 in links]
    answers = [number for number, client in enumerate(answered, 1) if client == 5]
    assert len(turns) >= 10
    for turn, answer, following in zip(turns, answers, turns[1:], strict=False):
        assert following <= max(turn + 3 * 6, answer) + 6 + 1
    # The bound is what keeps it: without one the slow client has next to no turn.
    chosen, _ = play(BySpeed(exponent=8.0, least=0.0, longest_gap=1e6), times, fillings=900, places=2)
    assert sum(5 in links for links in chosen) <= 5


def test_the_least_weight_bounds_the_expected_wait():
    times = np.concatenate((np.ones(9), [1000.0]))
    chosen, _ = play(BySpeed(exponent=3.0, least=0.5, longest_gap=1e6), times, fillings=2000, places=1)
    assert sum(9 in links for links in chosen) >= 0.8 * 2000 * 0.5 / 1.5 / 10
    chosen, _ = play(BySpeed(exponent=3.0, least=0.0, longest_gap=1e6), times, fillings=1000, places=1)
    assert sum(9 in links for links in chosen) <= 5


def test_each_client_works_an_equal_part_of_the_time_where_draws_are_by_speed_alone():
    """The theorem for a = 1, with times that are learned on the way; of equal draws the slow work longest."""
    times = np.array([1.0, 1.0, 2.0, 3.0, 5.0, 8.0])
    for exponent, is_equal in ((1.0, True), (0.0, False)):
        policy = BySpeed(exponent=exponent, least=0.0, longest_gap=1e6)
        _, answered = play(policy, times, fillings=6000, places=2)
        worked = np.bincount(answered, minlength=6) * times
        assert np.allclose(worked / worked.mean(), 1.0, atol=0.25) == is_equal
