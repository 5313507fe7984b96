"""Rounds by hand in which row i is client i: what is known before a decision, and what is reported after it."""

import numpy as np

from fedroster.policies.size_weighted import SizesState
from fedroster.types import Feedback, RoundContext, Status, Streams


def context_of(count, size, *, round=2, available=None, features=None, members=None):
    """A round of ``count`` clients with ``size`` places; all are available, and alike, if nothing else is said."""
    here = np.ones(count, np.bool_) if available is None else np.array(available, np.bool_)
    features = np.ones((count, 3)) if features is None else features
    return RoundContext(round, features, here, size, members=members)


def counts(policy, state, context, draws, *, seed=0):
    """How often each row is chosen in so many draws."""
    found = np.zeros(context.num_links)
    for draw in range(draws):
        found[policy.select(state, context, rng=Streams(seed).at("policy", draw)).links] += 1
    return found


def drawn_weights(policy, sizes, places, *, norm=None, rounds=4000, available=None):
    """The weight of each client in many rounds, 0 where it was not chosen, shape (rounds, clients).

    Numbers of samples are known, and norms are told to a policy that asks for them.
    """
    state, found = SizesState(np.array(sizes, np.float64)), np.zeros((rounds, len(sizes)))
    context = context_of(len(sizes), places, available=available)
    polled = context if norm is None else context.with_poll(lambda rows: np.array(norm, np.float64)[rows])
    for number in range(rounds):
        selection = policy.select(state, polled, rng=Streams(8).at("policy", number))
        assert selection.links.shape[0] <= places
        found[number, selection.links] = policy.weights(state, context, selection)
    return found


def report(client, *, round=1, time_s=None, status=None, features=None, staleness=0, **measured):
    """Feedback of some clients: times, NaN for those that dropped out, and losses and sizes, NaN where not known."""
    client = np.array(client, np.int64)
    features = np.ones((client.size, 3)) if features is None else features
    time_s = np.ones(client.size) if time_s is None else np.array(time_s, np.float64)
    status = np.where(np.isnan(time_s), Status.DROPPED, Status.COMPLETED) if status is None else status
    for name, values in measured.items():
        measured[name] = None if values is None else np.array(values, np.int64 if name == "server" else np.float64)
    return Feedback(round, client, features, np.array(status, np.uint8), time_s, staleness=staleness, **measured)
