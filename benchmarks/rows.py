"""What a benchmark says: rows with figure, peer, ratio and verdict, as a file and as a table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from benchmarks.targets import BENCHMARKS, TARGETS, Target
from fedroster.core import compiled
from fedroster.core.state import write_text_atomically
from fedroster.lab.trials.store import machine, read_json, write_json

RESULTS = Path("benchmarks/results")

MET, MISSED, NO_TARGET, NOT_MEASURED = "met", "missed", "no target", "not measured"

_HEAD = "| issue | what | target | ours | peer | ratio | verdict |\n| --- | --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure.

    Attributes:
        what: What is measured.
        ours: Our figure; None where it could not be measured.
        unit: Unit of it and of the peer's.
        target: Name of a target in :data:`~benchmarks.targets.TARGETS`; empty for a figure without one.
        peer: Figure of the peer or limit, in the same unit; None where there is none.
        peer_name: What the peer is.
        complete: Whether every instance gave what was asked for; otherwise the figure does not count.
        reason: Why there is no figure of ours, or none of the peer's where the target is a ratio.
    """

    what: str
    ours: float | None
    unit: str
    target: str = ""
    peer: float | None = None
    peer_name: str = ""
    complete: bool = True
    reason: str = ""

    def __post_init__(self) -> None:
        """Check that the row can have a verdict.

        Raises:
            ValueError: If there is no such target, or a figure is missing without a reason.
        """
        if self.target and self.target not in TARGETS:
            raise ValueError(f"target of {self.what!r} is {self.target!r}; expected one of {', '.join(TARGETS)}")
        if self._lacks_a_figure and not self.reason:
            raise ValueError(f"{self.what!r} has no figure to judge; expected a reason")

    @property
    def aim(self) -> Target | None:
        """The target, if there is one."""
        return TARGETS[self.target] if self.target else None

    @property
    def _lacks_a_figure(self) -> bool:
        return self.ours is None or (self.aim is not None and self.aim.relative and not self.peer)

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's; None without one of them."""
        return self.ours / self.peer if self.ours is not None and self.peer else None

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self._lacks_a_figure:
            return f"{NOT_MEASURED}: {self.reason}"
        if self.aim is None:
            return NO_TARGET
        judged = self.ratio if self.aim.relative else self.ours
        return MET if self.complete and judged is not None and judged <= self.aim.limit else MISSED


@dataclass(frozen=True, slots=True)
class Report:
    """What one run of a benchmark gave.

    Attributes:
        name: The benchmark.
        rows: Its figures.
        command: The command that makes them again.
        day: Of the run, ISO 8601.
        seconds: How long it took.
        seed: Seeds of its random numbers.
        machine: The machine and the versions.
        notes: What else a reader must know.
        extra: What else was measured.
    """

    name: str
    rows: tuple[Row, ...]
    command: str
    day: str
    seconds: float
    seed: str
    machine: Mapping[str, str | int]
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def is_current(self, *, today: date, here: Mapping[str, str | int]) -> bool:
        """Whether it was made on this day, on this machine and with this version of fedroster.

        Other versions may differ: a peer's environment has its own.

        Args:
            today: The day.
            here: The machine, as :func:`fedroster.lab.trials.store.machine` describes it.
        """
        same = all(self.machine.get(key) == here.get(key) for key in ("system", "processor", "cores", "fedroster"))
        return same and self.day == today.isoformat()


def path_of(name: str, folder: Path) -> Path:
    """File of a benchmark's report."""
    return folder / f"{name}.json"


def load(name: str, folder: Path) -> Report:
    """Read a report.

    Raises:
        InvalidInputError: If there is none, or it is damaged.
        TypeError: If it is not of this form.
    """
    content = read_json(path_of(name, folder))
    rows = tuple(Row(**row) for row in content.pop("rows", ()))
    notes = tuple(content.pop("notes", ()))
    return Report(rows=rows, notes=notes, **content)


def save(report: Report, folder: Path) -> None:
    """Write a report as JSON, and as a page with its table."""
    write_json(path_of(report.name, folder), asdict(report))
    lines = [f"# {report.name}", "", made_by(report), "", _HEAD, *map(line_of, report.rows)]
    if report.notes:
        lines += ["", *(f"* {note}" for note in report.notes)]
    write_text_atomically(folder / f"{report.name}.md", "\n".join(lines) + "\n")


def made_by(report: Report) -> str:
    """A sentence on how a report came about."""
    here = report.machine
    return (
        f"Made by `{report.command}` on {report.day} in {report.seconds:.0f} s on {here['processor']}, "
        f"{here['cores']} cores, Python {here['python']}, fedroster {here.get('fedroster', 'not installed')}. "
        f"Seeds: {report.seed}. Medians."
    )


def figure(value: float) -> str:
    """Three digits, without a power of ten where a reader can do without."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def share(ratio: float) -> str:
    """A ratio; a small one as a fraction."""
    return f"1/{figure(1.0 / ratio)}" if 0.0 < ratio < 0.1 else figure(ratio)


def line_of(row: Row) -> str:
    """A row as a line of a table."""
    aim = row.aim
    ours = "-" if row.ours is None else f"{figure(row.ours)} {row.unit}".strip()
    peer = "-" if row.peer is None else f"{figure(row.peer)} {row.unit}".strip() + f" ({row.peer_name})"
    cells = (
        str(aim.issue) if aim else "-",
        row.what,
        aim.wanted if aim else "none",
        ours,
        peer,
        "-" if row.ratio is None else share(row.ratio),
        row.verdict,
    )
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table(rows: Sequence[Row]) -> str:
    """Rows as a table in Markdown."""
    return "\n".join([_HEAD, *map(line_of, rows)])


def all_rows(reports: Mapping[str, Report], failures: Mapping[str, str]) -> list[Row]:
    """Rows of all reports in the benchmarks' order, and one for every target that none of them measured.

    Args:
        reports: By name of the benchmark.
        failures: Why a benchmark gave no report this time, by name; its earlier report does not count.
    """
    rows: list[Row] = []
    for name in BENCHMARKS:
        own = () if name in failures or name not in reports else reports[name].rows
        rows += own
        measured = {row.target for row in own}
        reason = failures.get(name, "the benchmark gave no such row" if name in reports else f"{name} was not run")
        for key, target in TARGETS.items():
            if target.benchmark == name and key not in measured:
                rows.append(Row(target.what, None, "", key, reason=reason))
    return sorted(rows, key=lambda row: row.aim.issue if row.aim else sys.maxsize)


def count_of(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows have each verdict."""
    kinds = [row.verdict.partition(":")[0] for row in rows]
    return {kind: kinds.count(kind) for kind in (MET, MISSED, NOT_MEASURED, NO_TARGET)}


def table_of_seeds(
    name: str, description: str | None, made: Callable[[Sequence[int], int, int], str], about: str, usual: str
) -> None:
    """A command line that writes a table of seeds, rounds and processes; ``usual`` is what it is run with."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    seeds, rounds = usual.split()
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--rounds", type=int, default=int(rounds))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    found = made(range(int(first), int(last or first) + 1), given.rounds, given.workers)
    given.out.mkdir(parents=True, exist_ok=True)
    title, command = (
        name.replace("_", "-"),
        f"python -m benchmarks.{name} --seeds {given.seeds} --rounds {given.rounds}",
    )
    write_text_atomically(given.out / f"{title}.md", f"# {title}\n\n{about} Made by `{command}`.\n\n{found}")
    print(found)


class Session:
    """A benchmark's command line, its clock, and what it publishes in the end."""

    def __init__(self, name: str, description: str | None, *, seed: str) -> None:
        """Start the clock.

        Args:
            name: The benchmark.
            description: What it measures, for ``--help``.
            seed: Seeds of its random numbers.
        """
        self.parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
        self.parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
        self.parser.add_argument("--data-dir", type=Path, default=os.environ.get("FEDROSTER_DATA"), help="data sets")
        self.parser.add_argument("--quick", action="store_true", help="few repeats: to see that it runs")
        compiled.INTERPRETED_ROWS = -1  # what is measured is the long run, not the first decisions of a process
        self._name = name
        self._seed = seed
        self._start = time.perf_counter()

    def publish(
        self, rows: Sequence[Row], *, notes: Sequence[str] = (), extra: Mapping[str, Any] | None = None
    ) -> None:
        """Write the report and print it.

        Args:
            rows: What was measured.
            notes: What else a reader must know.
            extra: What else was measured.
        """
        given = self.parser.parse_args()
        flags = [" --quick"] if given.quick else []
        report = Report(
            name=self._name,
            rows=tuple(rows),
            command=f"python -m benchmarks.{self._name}{''.join(flags)}",
            day=datetime.now(UTC).date().isoformat(),
            seconds=round(time.perf_counter() - self._start, 1),
            seed=self._seed,
            machine=machine(),
            notes=tuple(notes),
            extra=dict(extra or {}),
        )
        save(report, given.out)
        print(table(report.rows))
        for note in report.notes:
            print(f"* {note}")
