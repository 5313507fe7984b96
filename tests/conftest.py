"""Shared settings: where reference.py is found, and reproducible property tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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

# An interpreter that has loaded the library and forks for each checkpoint: a start and its imports take seconds.
FRESH = """
import io, json, os, sys
import fedroster.networks, fedroster.policies, fedroster.simulation

for line in sys.stdin:
    code, task = json.loads(line)
    if (child := os.fork()) == 0:
        sys.stdin = io.StringIO(task)
        exec(code)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "exit", flush=True)
"""


@pytest.fixture(scope="session")
def fresh_interpreter():
    """A process that shares nothing with this one."""
    command, pipe = [sys.executable, "-c", FRESH], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as started:
        yield started


@pytest.fixture
def resumed_by_a_fork(monkeypatch, fresh_interpreter):
    """Contracts resume in a fork of one fresh interpreter; those of tests/testing start one each, as users do."""

    def run(command, *, input, **_):
        print(json.dumps([command[-1], input]), file=fresh_interpreter.stdin, flush=True)
        said = [fresh_interpreter.stdout.readline()]
        while not said[-1].endswith(" exit\n"):
            assert said[-1], said
            said.append(fresh_interpreter.stdout.readline())
        code, told = int(said.pop().split()[0]), "".join(said)
        return subprocess.CompletedProcess(command, code, told, told)

    monkeypatch.setattr("fedroster.testing.resume.subprocess", type("Subprocess", (), {"run": staticmethod(run)}))
