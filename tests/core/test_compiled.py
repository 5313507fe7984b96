"""Kernels: compiled when they are first called, kept for the next process, and nothing before that."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedroster.core.compiled import INTERPRETED_ROWS, Kernel, interpreted_at_first, njit

MODULE = '''
import numpy as np
from fedroster.core.compiled import njit, when_compiling

@njit(cache=True, inline="always")
def square(x):
    return x * x

@njit(cache=True)
def total(values, depth):
    """Sum of squares."""
    if depth > 0:
        return total(values, depth - 1)
    found = 0.0
    for i in range(values.shape[0]):
        found += square(values[i])
    return found
'''
RUN = "import mine; mine.when_compiling(lambda: print('compiling')); print(mine.total(mine.np.arange(4.0), 2))"


def run(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, **options)


def test_a_kernel_is_compiled_once_and_says_so(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    where = os.environ | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run("-c", RUN, env=where).stdout == "compiling\n14.0\n"  # told once, though two kernels are compiled
    assert run("-c", RUN, env=where).stdout == "14.0\n"
    facts = "import sys, mine; print('numba' in sys.modules, mine.total.__name__, mine.total.__doc__)"
    assert run("-c", facts, env=where).stdout == "False total Sum of squares.\n"


@njit()
def _doubled(values):
    return 2 * values


@pytest.mark.parametrize(
    ("home", "more"), [("~", {}), ("mine.py", {}), ("mine.py", {"NUMBA_CACHE_DIR": "mine.py/cache"})]
)
def test_a_machine_without_a_place_for_the_cache_compiles_without_one(tmp_path, home, more):
    """As a container's user without a home and with read-only packages; nothing is left there."""
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "__pycache__").write_text("in the way")  # a user who may write everywhere cannot write here
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment |= {"HOME": home, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), **more}
    done = run("-c", f"{RUN}; print(mine.total(mine.np.arange(3.0), 2))", env=environment, cwd=tmp_path)
    assert done.stdout.split() == ["compiling", "14.0", "5.0"]
    assert done.stderr.count("RuntimeWarning: there is no place to keep compiled code") == 1
    assert "NUMBA_CACHE_DIR names a folder" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["__pycache__", "mine.py"]


def test_threads_may_share_a_first_call():
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(_doubled, [1, 2, 3, 4])] == [2, 4, 6, 8]
    np.testing.assert_array_equal(_doubled(np.arange(3)), [0, 2, 4])


@njit(error_model="numpy")
def _halved(values, row):
    return values[row] / values[row + 1]


@njit(error_model="numpy")
def _halves(values):
    return _halved(values, 0)


def test_few_rows_are_interpreted_and_floats_behave_alike():
    kernel = Kernel(_halves.py_func, {"error_model": "numpy"})
    few = interpreted_at_first(kernel, INTERPRETED_ROWS)
    assert few == kernel.interpret
    assert few(np.array([1.0, 0.0])) == np.inf  # no warning, no ZeroDivisionError
    assert not _halved.is_compiled
    assert interpreted_at_first(kernel, 1) is kernel
    assert kernel(np.array([1.0, 0.0])) == np.inf
    assert _halved.is_compiled  # with it
    few(np.array([1.0, 2.0]))
    assert interpreted_at_first(kernel, 0) is kernel


def test_a_first_run_is_the_same_interpreted_and_compiled(forks):
    policies = [part for name in ("rbcs-f", "p3:beta=0.2", "floor") for part in ("--policy", name)]
    command = ["simulate", "rbcs-f/table-1", "--rounds", "40", "--set", "num_clients=20", "--json", *policies]
    code = (
        f"import sys; from fedroster.core import compiled; sys.argv[1:] = {command}\n"
        "from fedroster.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('numba' in sys.modules, file=sys.stderr)"
    )
    interpreted, compiled = (
        forks([code.replace("; sys", f"; compiled.INTERPRETED_ROWS = {rows}; sys")]) for rows in (1_000_000, 0)
    )
    assert (interpreted.stderr.split()[-1], compiled.stderr.split()[-1]) == ("False", "True")
    assert interpreted.stdout == compiled.stdout != ""


def test_the_same_cohorts_without_numbas_compiler():
    """``NUMBA_DISABLE_JIT``, Numba's own switch, runs the sources."""
    command = ["-m", "fedroster", "simulate", "cocs/mnist", "--rounds", "2", "--set", "num_clients=15", "--json"]
    plain, compiled = (run(*command, env=os.environ | {"NUMBA_DISABLE_JIT": switch}).stdout for switch in "10")
    assert plain == compiled
