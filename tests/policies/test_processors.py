"""A processor without AVX-512 decides the same: NumPy's own exp, log and powers have other last digits there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from fedroster.catalogue import POLICIES

PLAY = """
import dataclasses, hashlib, json, sys
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.state import pack
from fedroster.catalogue import POLICIES
from fedroster.simulation import simulate


def rounded(*values):
    # A simulated world's last digits are NumPy's; policies must see the same one.
    return [
        dataclasses.replace(value, **{
            field.name: each.round(9)
            for field in dataclasses.fields(value)
            if getattr(each := getattr(value, field.name), "dtype", None) == float
        })
        for value in values
    ]


played = {}
for name in POLICIES:
    for scenario in ("rbcs-f/table-1", "cocs/mnist"):
        world = make_scenario(scenario)
        observe = type(world).observe
        type(world).observe = lambda *args, observe=observe, **more: rounded(*observe(*args, **more))
        try:
            policy = make_policy("fedcs:deadline_s=3" if name == "fedcs" else name)
            rounds = list(simulate(policy, world, rounds=40, seed=0))
        except (ConfigurationError, InvalidInputError):  # it cannot play there
            continue
        finally:
            type(world).observe = observe
        cohorts = [each.selection.links.tolist() for each in rounds]
        digest = hashlib.sha256()
        if name == "partial-pooling":
            for values in pack(rounds[-1].policy_state).values():
                digest.update(values.tobytes())
        played.setdefault(name, []).append([cohorts, digest.hexdigest()])
json.dump(played, sys.stdout)
"""


@pytest.fixture(scope="module")
def played():
    def play(**more):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", PLAY], capture_output=True, check=True, env=os.environ | more
        )
        return json.loads(done.stdout)

    return play(), play(
        NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_processor_without_avx_512_decides_the_same(played, name):
    here, there = played
    assert here[name] == there[name]
    assert all(len(cohorts) == 40 for cohorts, _ in here[name])
