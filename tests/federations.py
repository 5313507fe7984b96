"""Selectors with a history, for tests of the selector and of what it keeps."""

import json
import shutil
from pathlib import Path

import numpy as np

from fedroster import RBCSF, Selector
from fedroster.core.state import load_arrays
from fedroster.policies import CSUCB, E3CS, Oort, PowerOfChoice, RoundRobin, SizeWeighted, TiFL

POLICY = RBCSF(V=5.0, beta=0.1)
PEERS = [Oort(), PowerOfChoice(), TiFL(), E3CS(), CSUCB(), RoundRobin(), SizeWeighted()]
LETTERS = "abcdefghij"
LETTERS_LIST = list(LETTERS)


def make(clients=("a", "b", "c"), *, policy=POLICY, cohort_size=2, num_features=1, **options):
    return Selector(policy, cohort_size=cohort_size, num_features=num_features, clients=clients, **options)


def array(by_client):
    """What a selector says of each client, as an array in the order of ``clients``."""
    return np.array([*by_client.values()])


def contexts(clients, *, num_features=1, seed=0):
    rng = np.random.default_rng(seed)
    return {client: rng.uniform(0.5, 2.0, num_features).tolist() for client in clients}


def kept(selector, folder):
    """Everything that a selector would save: equal for selectors in the same state."""
    path = Path(folder) / "kept.npz"
    selector.save(path)
    arrays, header = load_arrays(path, kind="selector")
    path.unlink()
    text = {name: (str(value.dtype), value.shape, value.tobytes()) for name, value in arrays.items()}
    return text, json.dumps(header, sort_keys=True)


def learned(selector, folder):
    """The policy's arrays, one column for each member in the order of ``clients``."""
    path = Path(folder) / "learned.npz"
    selector.save(path, replace=True)
    arrays, _ = load_arrays(path, kind="selector")
    return {name: value[..., arrays["here"]] for name, value in arrays.items() if name.startswith("policy.")}


def after_a_kill(folder, place):
    """What a killed process has left: its folder as it is, which is not held, at another place."""
    shutil.rmtree(place, ignore_errors=True)
    return shutil.copytree(folder, place, ignore=shutil.ignore_patterns(".lock*"))


def assert_same_learned(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def answered(selector, rounds, **asked):
    """Rounds in which all that are chosen answer; their clients."""
    cohorts = []
    for _ in range(rounds):
        cohort = selector.select(**asked)
        told = dict.fromkeys(cohort.clients, 1.0)
        selector.observe(cohort.round, times_s=told, losses=told, num_samples=told, again="ignore")  # it may be empty
        cohorts.append(cohort.clients)
    return cohorts


def play(selector, rounds, *, seed=0):
    """Rounds with three features, some clients away, and feedback that is late, in parts, or failures."""
    cohorts = []
    for _ in range(rounds):
        number = selector.round + 1
        rng = np.random.default_rng([seed, number])
        here = [client for client in selector.clients if rng.random() < 0.8]
        cohort = selector.select({client: rng.uniform(0.5, 2.0, 3) for client in here})
        assert cohort.round == number
        cohorts.append(cohort)
        for answered, waiting in list(selector.open_rounds().items()):
            some = [client for client in waiting if rng.random() < 0.6]
            fate = {client: rng.random() for client in some}
            selector.observe(
                answered,
                times_s={client: 0.1 + 3.0 * rng.random() for client in some if fate[client] < 0.8},
                late=[client for client in some if fate[client] < 0.2],
                dropped=[client for client in some if 0.8 <= fate[client] < 0.9],
                failed=[client for client in some if fate[client] >= 0.9],
            )
    return cohorts
