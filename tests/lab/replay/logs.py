"""Logs of simulated federations, as a reader gives them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from fedroster.catalogue import make_policy
from fedroster.lab.replay.history import read_history
from fedroster.networks.flat import FlatNetwork
from fedroster.simulation import simulate


def log_of(policy="random", *, rounds=40, seed=0, network=None):
    """Rounds of a simulation with a few clients, and their mean time."""
    network = network or FlatNetwork(num_clients=12, cohort_size=4)
    logged, at_s = [], 100.0
    for played in simulate(make_policy(policy), network, rounds=rounds, seed=seed):
        context, links = played.context, played.selection.links
        everybody = np.ones(context.num_links, np.bool_)
        logged.append(
            SimpleNamespace(
                round=played.number,
                at_s=at_s,
                cohort_size=context.cohort_size,
                members=everybody if context.members is None else context.members,
                available=context.available,
                excluded={},
                contexts=np.where(context.available[:, None], context.features, np.nan),
                chosen=links,
                servers=None,
                status=played.feedback.status,
                exchange_time_s=played.feedback.exchange_time_s,
                round_s=played.time_s,
                deadline_s=played.outcome.deadline_s,
            )
        )
        at_s += played.time_s
    return logged


def history_of(policy="random", **options):
    """The same as arrays."""
    logged = log_of(policy, **options)
    return read_history(logged, num_clients=logged[0].available.shape[0])
