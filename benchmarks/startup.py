"""What a user waits for: looking something up, and the first simulation on a machine that has compiled nothing yet.

Every command is a process of its own.  For a first simulation Numba's cache is a new, empty folder.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence

from benchmarks.rows import Row, Session

QUICK: Mapping[str, tuple[str, Sequence[str]]] = {
    "import": ("`import fedroster`", ("-c", "import fedroster")),
    "help": ("`fedroster --help`", ("-m", "fedroster", "--help")),
    "list": ("`fedroster list`", ("-m", "fedroster", "list")),
}
FIRST: Mapping[str, str] = {
    "first-cocs": "cocs/mnist",
    "first-rbcs-f": "rbcs-f/table-1",
    "": "rbcs-f/table-1 --policy floor",
}


def _seconds(arguments: Sequence[str], cache: str | None = None) -> float:
    """Wall time of a Python process."""
    environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    return time.perf_counter() - start


def _first(scenario: str) -> tuple[float, float]:
    """A first simulation, and the same once more."""
    with tempfile.TemporaryDirectory() as cache:
        first, again = (_seconds(("-m", "fedroster", "simulate", *scenario.split()), cache) for _ in range(2))
    return first, again


def main() -> None:
    """Measure and publish."""
    session = Session("startup", __doc__, seed="0")
    repeats = 2 if session.parser.parse_args().quick else 9
    _seconds(QUICK["list"][1])  # bytecode
    times: dict[str, list[float]] = {name: [] for name in ("bare", *QUICK)}
    for _ in range(repeats):
        times["bare"].append(_seconds(("-c", "pass")))
        for name, (_what, arguments) in QUICK.items():
            times[name].append(_seconds(arguments))
    bare = statistics.median(times["bare"])
    rows = [
        Row(what, statistics.median(times[name]), "s", name, bare, "`python -c pass`")
        for name, (what, _) in QUICK.items()
    ]
    for name, scenario in FIRST.items():
        runs = [_first(scenario) for _ in range(1 if repeats == 2 else 3)]
        for what, target, values in (
            ("first", name, [run[0] for run in runs]),
            ("second", "", [run[1] for run in runs]),
        ):
            median = statistics.median(values)
            rows.append(Row(f"{what} `fedroster simulate {scenario}`", median, "s", target, bare, "`python -c pass`"))
    session.publish(rows, notes=["Ratios are to the start of a bare Python, of the same run."])


if __name__ == "__main__":
    main()
