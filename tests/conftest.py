"""Shared settings: where reference.py is found, reproducible property tests, and other processes that begin at once."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for `import reference`

settings.register_profile(
    "fedroster",
    deadline=None,  # the first call of a kernel compiles it
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fedroster")

FORKS = """
import json, os, sys, traceback
import fedroster.catalogue, fedroster.networks.hierarchical, fedroster.policies, fedroster.simulation
os.chdir(sys.argv[1])
if sys.argv[2]:
    import numba

    numba.njit(lambda: 0)()  # the compiler, which takes a second to start
for line in sys.stdin:
    if not (child := os.fork()):
        try:
            with open("in") as sys.stdin, open("out", "w") as sys.stdout, open("err", "w") as sys.stderr:
                exec(json.loads(line), {"__name__": "__main__"})
            os._exit(0)
        except BaseException:
            with open("err", "w") as err:
                traceback.print_exc(file=err)
            os._exit(1)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@contextlib.contextmanager
def forking(folder, *, compiler):
    """``subprocess.run`` for code in a fork of an interpreter that has loaded fedroster and run nothing."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(folder), "compiler" * compiler]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def run(command, *, input="", **_):
            (folder / "in").write_text(input)
            print(json.dumps(command[-1]), file=server.stdin, flush=True)
            status, told = int(server.stdout.readline()), ((folder / name).read_text() for name in ("out", "err"))
            return subprocess.CompletedProcess(command, status, *told)

        yield run


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Without Numba."""
    with forking(tmp_path_factory.mktemp("forks"), compiler=False) as run:
        yield run


@pytest.fixture(scope="session")
def compiling_forks(tmp_path_factory):
    """With Numba, which has compiled nothing of fedroster."""
    with forking(tmp_path_factory.mktemp("forks"), compiler=True) as run:
        yield run


@pytest.fixture
def resumes_in_forks(compiling_forks, monkeypatch):
    """A contract's run that is resumed in another process begins there at once."""
    monkeypatch.setattr("fedroster.testing.values.subprocess", SimpleNamespace(run=compiling_forks))
