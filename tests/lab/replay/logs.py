"""Logs of simulated federations."""

import tempfile

import numpy as np
from benchmarks.replay import federation

from fedroster.catalogue import make_policy
from fedroster.lab.replay.history import History, read_history
from fedroster.lab.replay.playing import BARE
from fedroster.networks.flat import FlatNetwork
from fedroster.record import Log
from fedroster.simulation import simulate


def history(rounds, clients, **told):
    """Rounds by hand of clients that are all there and alike, if nothing else is said."""
    everybody = np.ones((rounds, clients), np.bool_)
    plain = {"ids": tuple(range(clients)), "policy": "random", "options": BARE, "rules": ({},) * rounds}
    plain |= {"begun": np.ones(rounds, np.bool_), "deadline_s": np.full(rounds, np.inf), "members": everybody}
    return History(**plain | {"features": np.ones((rounds, clients, 1))} | told)


def history_of(policy="random", *, rounds=40, seed=0, network=None):
    """Rounds of a simulation with a few clients, as arrays."""
    network = network or FlatNetwork(num_clients=12, cohort_size=4)
    played = list(simulate(make_policy(policy), network, rounds=rounds, seed=seed))
    chosen = [one.selection.links for one in played]
    length_s = np.array([one.time_s for one in played])
    available = np.array([one.context.available for one in played])
    features = np.array([one.context.features for one in played])
    told = {"policy": policy, "cohort_size": network.cohort_size, "round_s": length_s, "available": available}
    told |= {"deadline_s": np.array([one.outcome.deadline_s for one in played])}
    told |= {"status": np.concatenate([one.feedback.status for one in played])}
    told |= {"time_s": np.concatenate([one.feedback.exchange_time_s for one in played])}
    return history(
        rounds,
        network.num_clients,
        at_s=100.0 + np.concatenate(([0.0], np.cumsum(length_s)[:-1])),
        features=np.where(available[:, :, None], features, np.nan),
        round=np.repeat(np.arange(rounds), [each.shape[0] for each in chosen]),
        client=np.concatenate(chosen),
        **told,
    )


def log_of(policy, network, **options):
    """The log of a federation, read."""
    with tempfile.TemporaryDirectory() as folder:
        federation(policy, network, folder, **options)
        return read_history(Log(folder))
