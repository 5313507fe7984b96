"""What a command loads, and what is said while kernels are compiled."""

import os
import subprocess
import sys

HEAVY = ("numba", "scipy", "polars", "altair", "torch")


LOOKED_UP = [["--help"], ["compare", "--help"], ["list"], ["list", "--json"], ["cite", "cocs"], ["data", "--help"]]


def loaded(commands, modules, *, then=""):
    """Which of these modules are loaded when commands have been given one after the other."""
    code = (
        "import sys; from fedroster.__main__ import main\n"
        f"for sys.argv[1:] in {commands}:\n"
        "  try: main()\n"
        f"  except SystemExit: pass\n{then}\n"
        f"sys.stderr.write('loaded: ' + ' '.join(name for name in {modules} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    return done.stderr.rpartition("loaded: ")[2]


def test_nothing_heavy_is_loaded_to_look_something_up():
    assert loaded(LOOKED_UP, HEAVY) == ""


def test_a_simulation_loads_nothing_that_draws_or_trains():
    engines = "import fedroster.lab.compare.run, fedroster.lab.trials.ray_engine"
    simulated = [["simulate", "rbcs-f/table-1", "--rounds", "2"]]
    assert loaded(simulated, ("altair", "torch", "ray"), then=engines) == ""


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
