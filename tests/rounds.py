"""Rounds by hand in which row i is client i: what is known before a decision, and what is reported after it."""

from __future__ import annotations

import numpy as np

from fedroster.core.problem import Feedback, RoundContext, Status


def context_of(count, size, *, round=2, available=None, features=None, members=None):
    """A round of ``count`` clients with ``size`` places; all are available, and alike, if nothing else is said."""
    here = np.ones(count, np.bool_) if available is None else np.array(available, np.bool_)
    features = np.ones((count, 3)) if features is None else features
    return RoundContext(round, features, here, size, members=members)


def report(client, *, round=1, time_s=None, status=None, **measured):
    """Feedback of some clients: times, NaN for those that dropped out, and losses and sizes, NaN where not known."""
    client = np.array(client)
    time_s = np.ones(client.size) if time_s is None else np.array(time_s, np.float64)
    status = np.where(np.isnan(time_s), Status.DROPPED, Status.COMPLETED) if status is None else status
    measured = {name: None if values is None else np.array(values, np.float64) for name, values in measured.items()}
    return Feedback(round, client, np.ones((client.size, 3)), np.array(status, np.uint8), time_s, **measured)
