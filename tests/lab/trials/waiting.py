"""A study whose trials take for ever, and what its processes do; as a program, it plays two of them."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from fedroster.core.errors import ConfigurationError
from fedroster.lab.trials.run import gather
from fedroster.lab.trials.trial import ALONE, Trial

PATIENCE_S = 180.0
"""When a test gives up: nothing here ends by itself, so it says nothing else."""


@dataclass(frozen=True)
class Waits(Trial):
    """A trial that says which process runs it, and then takes for ever, or fails once another runs.

    Attributes:
        fails: Whether it fails.
    """

    fails: bool = False
    work = 100.0

    def run(self, conditions=ALONE):
        folder = self.settings["folder"]
        Path(folder, str(os.getpid())).touch()
        if not self.fails:
            time.sleep(3600.0)
        workers_in(folder, 2)
        raise ConfigurationError("a fault")


def waits(folder, **options):
    """Describe one whose process leaves its number in a folder."""
    return Waits("rbcs-f/table-1", "random", 0, 4, {"folder": str(folder)}, **options)


def workers_in(folder, count):
    """Wait until so many workers run, and return their process numbers."""
    until = time.monotonic() + PATIENCE_S
    while len(found := [int(path.name) for path in Path(folder).iterdir()]) < count:
        assert time.monotonic() < until, "workers do not start"
        time.sleep(0.05)
    return found


def ended(processes):
    """Wait until none of some processes runs; those that remain are killed."""
    until = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if _is_running(process)]:
        if time.monotonic() > until:
            for process in left:
                os.kill(process, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def _is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # dead, and its parent has not asked yet


if __name__ == "__main__":
    try:
        gather([waits(sys.argv[1]), waits(sys.argv[1])], workers=2)
    except KeyboardInterrupt:
        sys.exit(7)
