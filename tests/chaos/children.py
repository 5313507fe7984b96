"""Child processes that are forked from a warm one: a try costs milliseconds, and a death is only its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path


def fork(work: Callable[[], None]) -> int:
    """Run something in a child; returns its process number."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def end(child: int, how: signal.Signals = signal.SIGKILL) -> int:
    """Kill a child if it is there, and wait for it; returns its exit status, minus the signal if one ended it."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, how)
    return wait(child)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def leftovers(folder: Path) -> list[str]:
    """Names of temporary files beside a state."""
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".tmp"))
