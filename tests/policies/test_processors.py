"""Another processor decides the same: NumPy's own exp, log and powers, and BLAS, have other last digits there."""

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
for name in sys.argv[1:]:
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
        if name in ("floor", "partial-pooling"):  # what they believe is the same bit for bit
            for values in pack(rounds[-1].policy_state).values():
                digest.update(values.tobytes())
        played.setdefault(name, []).append([cohorts, digest.hexdigest()])
json.dump(played, sys.stdout)
"""


def play(*names, **more):
    command = [sys.executable, "-W", "ignore", "-c", PLAY, *names]
    return json.loads(subprocess.run(command, capture_output=True, check=True, env=os.environ | more).stdout)


@pytest.fixture(scope="module")
def here():
    return play(*POLICIES)


@pytest.fixture(scope="module")
def without_avx_512():
    newer = "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
    return play(*POLICIES, NPY_DISABLE_CPU_FEATURES=newer)


@pytest.mark.parametrize("name", POLICIES)
def test_a_processor_without_avx_512_decides_the_same(here, without_avx_512, name):
    assert here[name] == without_avx_512[name]
    assert all(len(cohorts) == 40 for cohorts, _ in here[name])


def test_floor_does_not_depend_on_blas_and_vectors_at_all(here):
    simple = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX X86_V3 X86_V4 AVX512_ICL"
    assert here["floor"] == play("floor", OPENBLAS_CORETYPE="Prescott", NPY_DISABLE_CPU_FEATURES=simple)["floor"]
