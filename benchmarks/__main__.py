"""All benchmarks, or those that are named, and one table of every target: ``python -m benchmarks [NAME ...]``.

Each runs in a process of its own, one after the other.  ``--keep`` keeps what was measured today on this machine with
this version, so that a run that was cut short can go on.  The table is made of the reports of all benchmarks, also of
those that ran earlier.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from benchmarks.peers.environments import make, python_of
from benchmarks.rows import (
    RESULTS,
    Report,
    Row,
    all_rows,
    count_of,
    load,
    made_by,
    path_of,
    table,
)
from benchmarks.targets import BENCHMARKS
from fedroster.core.errors import InvalidInputError
from fedroster.core.state import write_text_atomically
from fedroster.lab.trials.store import machine, write_json

INSIDE: Mapping[str, str] = {"flower": "flower", "example": "flower", "nvflare": "nvflare"}
"""Benchmarks that run in a peer's environment."""


def run(name: str, given: argparse.Namespace) -> str:
    """Run a benchmark in a process of its own; returns why it failed, empty if it did not."""
    python = Path(sys.executable)
    if name in INSIDE:
        failure = make(INSIDE[name])
        if failure:
            return f"{INSIDE[name]} {failure}"
        python = python_of(INSIDE[name])
    command = [str(python), "-m", f"benchmarks.{name}", "--out", str(given.out)]
    command += ["--quick"] if given.quick else []
    command += ["--data-dir", str(given.data_dir)] if given.data_dir else []
    quiet = os.environ | {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    last: deque[str] = deque(maxlen=1)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet, start_new_session=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print(f"  {line}", end="", file=sys.stderr, flush=True)
                if line.strip():
                    last.append(line.strip())
            process.wait()
        finally:  # peers and workers too, also after an interrupt
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    return f"it ended with {process.returncode}: {''.join(last)[:160]}" if process.returncode else ""


def read(folder: Path) -> dict[str, Report]:
    """The reports that are there, by name; those that cannot be read are left out."""
    found = {}
    for name in BENCHMARKS:
        if path_of(name, folder).exists():
            try:
                found[name] = load(name, folder)
            except (InvalidInputError, TypeError, ValueError) as error:
                print(f"{name}: {error}", file=sys.stderr)
    return found


def stays(name: str, folder: Path, *, today: date, here: Mapping[str, str | int]) -> bool:
    """Whether a benchmark's report may be kept."""
    report = read(folder).get(name)
    return report is not None and report.is_current(today=today, here=here)


def summarize(folder: Path, failures: Mapping[str, str], *, command: str) -> list[Row]:
    """Write ``summary.md`` and ``summary.json``, and return their rows.

    Args:
        folder: Of the reports.
        failures: Why a benchmark failed this time, by name.
        command: The command that was given.
    """
    reports = read(folder)
    rows = all_rows(reports, failures)
    counts = count_of(rows)
    today = datetime.now(UTC).date().isoformat()
    here = machine()
    lines = [
        "# Every target of speed and memory",
        "",
        f"Made by `{command}` on {today} on {here['processor']}, {here['cores']} cores, fedroster "
        f"{here.get('fedroster', 'not installed')}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()),
        "",
        "Ratios are ours over the peer's, in one run: smaller is better. Rows without an issue have no target.",
        "",
        table(rows),
        "",
        "## Where the rows come from",
        "",
        *(f"* [{name}]({name}.md): {made_by(report)}" for name, report in reports.items()),
    ]
    write_text_atomically(folder / "summary.md", "\n".join(lines) + "\n")
    content = {
        "command": command,
        "date": today,
        **here,
        "counts": counts,
        "benchmarks": {
            name: {"command": report.command, "date": report.day, "seconds": report.seconds, "seed": report.seed}
            for name, report in reports.items()
        },
        "rows": [
            {
                "issue": row.aim.issue if row.aim else None,
                "what": row.what,
                "target": row.aim.wanted if row.aim else "",
                "ours": row.ours,
                "peer": row.peer,
                "peer_name": row.peer_name,
                "unit": row.unit,
                "ratio": row.ratio,
                "verdict": row.verdict,
            }
            for row in rows
        ],
    }
    write_json(folder / "summary.json", content)
    return rows


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--out", type=Path, help=f"folder of the results, by default {RESULTS}")
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("FEDROSTER_DATA"), help="data sets")
    parser.add_argument("--keep", action="store_true", help="keep today's results of this machine and version")
    parser.add_argument("--quick", action="store_true", help="few repeats: to see that all run; into build/benchmarks")
    parser.add_argument("--table", action="store_true", help="run nothing, only make the table again")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; expected some of {', '.join(BENCHMARKS)}")
    given.out = given.out or (Path("build/benchmarks") if given.quick else RESULTS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the end of this process ends those that it started
    given.out.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    for name in () if given.table else given.names or BENCHMARKS:
        if given.keep and stays(name, given.out, today=datetime.now(UTC).date(), here=machine()):
            print(f"{name}: kept", file=sys.stderr)
            continue
        start = time.perf_counter()
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            failures |= {name: failure} if (failure := run(name, given)) else {}
        except KeyboardInterrupt:
            sys.exit(130)
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    command = " ".join(["python -m benchmarks", *sys.argv[1:]])
    if given.data_dir:
        command = command.replace(str(given.data_dir), "DIR")  # where data lie is this machine's affair
    rows = summarize(given.out, failures, command=command)
    print(table(rows))
    print("\n" + ", ".join(f"{count} {kind}" for kind, count in count_of(rows).items()))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
