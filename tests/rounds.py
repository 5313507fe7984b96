"""Rounds by hand in which row i is client i: what is known before a decision, and what is reported after it."""

import numpy as np

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


def report(client, *, round=1, time_s=None, status=None, features=None, **measured):
    """Feedback of some clients: times, NaN for those that dropped out, and losses and sizes, NaN where not known."""
    client = np.array(client)
    features = np.ones((client.size, 3)) if features is None else features
    time_s = np.ones(client.size) if time_s is None else np.array(time_s, np.float64)
    status = np.where(np.isnan(time_s), Status.DROPPED, Status.COMPLETED) if status is None else status
    for name, values in measured.items():
        measured[name] = None if values is None else np.array(values, np.int64 if name == "server" else np.float64)
    return Feedback(round, client, features, np.array(status, np.uint8), time_s, **measured)
