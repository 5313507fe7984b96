"""Kernels: compiled when they are first called, kept for the next process, and nothing before that."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fedroster.core.compiled import Kernel, njit

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


def run(code, **environment):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout.split()


def test_a_kernel_is_compiled_once_and_says_so(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    where = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(RUN, **where) == ["compiling", "14.0"]  # told once, though two kernels are compiled
    assert run(RUN, **where) == ["14.0"]
    facts = run("import sys, mine; print('numba' in sys.modules, mine.total.__name__, mine.total.__doc__)", **where)
    assert facts == ["False", "total", "Sum", "of", "squares."]


@njit()
def _doubled(values):
    return 2 * values


def test_threads_may_share_a_first_call():
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(_doubled, [1, 2, 3, 4])] == [2, 4, 6, 8]
    assert not isinstance(_doubled, Kernel)  # the module calls Numba's own object from now on
    np.testing.assert_array_equal(_doubled(np.arange(3)), [0, 2, 4])
