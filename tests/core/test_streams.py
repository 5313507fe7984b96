"""Random streams by address."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import kstest

from fedroster.core.errors import ConfigurationError
from fedroster.core.streams import Streams


def test_an_address_is_all_that_counts():
    streams = Streams(7)
    first = streams.at("environment", 3).random(5)
    streams.at("environment", 2).random(100)
    streams.at("policy", 3).random(1)
    np.testing.assert_array_equal(streams.at("environment", 3).random(5), first)
    np.testing.assert_array_equal(Streams(np.int64(7)).at("environment", 3).random(5), first)


def test_addresses_are_distinct():
    roles, rounds, seeds = ("environment", "policy", "policy-init", "environment-init", ""), range(40), (0, 1, 2, 2**70)
    draws = {
        Streams(seed).at(role, *where).integers(2**63)
        for seed, role in itertools.product(seeds, roles)
        for where in [(), *((t,) for t in rounds), *((t, 0) for t in rounds), *((0, t) for t in rounds if t)]
    }
    assert len(draws) == len(seeds) * len(roles) * (1 + 40 + 40 + 39)


def test_neighbouring_addresses_are_independent():
    draws = np.array([[Streams(seed).at("policy", t).random() for t in range(60)] for seed in range(60)])
    assert kstest(draws.ravel(), "uniform").pvalue > 0.001
    for left, right in ((draws[:, :-1], draws[:, 1:]), (draws[:-1], draws[1:])):
        assert abs(np.corrcoef(left.ravel(), right.ravel())[0, 1]) < 4.5 / np.sqrt(left.size)
    shifted = draws + 0.3 * np.roll(draws, 1, axis=1)  # negative control
    assert abs(np.corrcoef(shifted[:, :-1].ravel(), shifted[:, 1:].ravel())[0, 1]) > 4.5 / np.sqrt(3540)


def test_known_answer_in_every_process():
    """No hash randomisation: another process, another PYTHONHASHSEED, the same numbers."""
    code = "from fedroster.core.streams import Streams; print(Streams(7).at('policy', 3, 1).integers(2**62))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == Streams(7).at("policy", 3, 1).integers(2**62) == 2084228705520515209


@pytest.mark.parametrize("seed", [-1, 1.0, "7", None, True])
def test_bad_seeds(seed):
    with pytest.raises(ConfigurationError, match="expected an integer >= 0"):
        Streams(seed)
