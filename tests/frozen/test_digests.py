"""Every policy chooses the cohorts that it chose before: a first part of each run, or all with FROZEN_ROUNDS=3000."""

import os

import pytest

from frozen.digests import CHECKPOINTS, digests, expected, names

RUNS = {name: made for runs in expected().values() for name, made in runs.items()}
ROUNDS = int(os.environ.get("FROZEN_ROUNDS", "0"))


def rounds_of(name):
    """Rough histories are played further than others, and those whose sums differ from machine to machine least."""
    if "linucb-pairs" in name:
        return 10
    return ROUNDS or (100 if "rough" in name and "floor" not in name else 30)


def test_every_run_has_its_digests():
    assert {name for some in names().values() for name in some} == RUNS.keys()
    for runs in expected().values():
        assert len({len(made) for made in runs.values()}) == 1


@pytest.mark.parametrize("name", RUNS)
def test_cohorts_are_those_of_before(name):
    rounds = rounds_of(name)
    made = digests(name, rounds)
    assert len(made) == sum(checkpoint <= rounds for checkpoint in CHECKPOINTS)
    assert dict(zip(CHECKPOINTS, made, strict=False)) == dict(zip(CHECKPOINTS, RUNS[name][: len(made)], strict=False))
