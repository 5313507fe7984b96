"""What a command loads, and what is said while kernels are compiled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "polars", "altair", "torch")


def loaded(arguments, modules):
    """Which of these modules a command loads."""
    code = (
        "import sys; from fedroster.__main__ import main; sys.argv[1:] = sys.argv[1:]\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"sys.stderr.write('loaded: ' + ' '.join(name for name in {modules} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout
    return done.stderr.rpartition("loaded: ")[2]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["compare", "--help"], ["list"], ["list", "--json"], ["cite", "cocs"], ["data", "--help"]]
)
def test_nothing_heavy_is_loaded_to_look_something_up(arguments):
    assert loaded(arguments, HEAVY) == ""


def test_a_simulation_loads_nothing_that_draws_or_trains():
    assert loaded(["simulate", "rbcs-f/table-1", "--rounds", "2"], ("altair", "torch", "ray")) == ""


def test_a_first_run_says_that_it_compiles(tmp_path):
    command = [sys.executable, "-m", "fedroster", "simulate", "rbcs-f/table-1", "--policy", "fedcs-greedy"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(
            [*command, "--rounds", "3", "--json"], capture_output=True, text=True, check=True, env=environment
        )
        for _ in range(2)
    )
    assert first.stderr.count("compiling for this machine") == 1
    assert "compiling" not in second.stderr
    assert first.stdout == second.stdout
