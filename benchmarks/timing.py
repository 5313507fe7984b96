"""Medians of interleaved runs, targets and verdicts."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fedroster.core.state import write_text_atomically
from fedroster.study.store import machine, significant, write_json, write_table


@dataclass(frozen=True, slots=True)
class Result:
    """One target.

    Attributes:
        what: What is measured.
        target: The target in words.
        ours: Our figure.
        peer: The figure of the peer or limit, in the same unit; None where the target is absolute.
        peer_name: What the peer is.
        unit: Unit of both.
        limit: Largest ratio to the peer, or largest value where there is no peer, that meets the target.
        complete: Whether every instance gave what was asked for; otherwise its time does not count.
    """

    what: str
    target: str
    ours: float
    peer: float | None
    peer_name: str
    unit: str
    limit: float
    complete: bool = True

    @property
    def ratio(self) -> float:
        """Ours over the peer's, or ours itself."""
        return self.ours / self.peer if self.peer else self.ours

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if math.isinf(self.limit):
            return "no target"
        return "met" if self.complete and self.ratio <= self.limit else "missed"


def interleaved(works: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each work, run in turn so that a slow moment of the machine hits all.

    Args:
        works: By name.
        repeats: Counted runs of each.
        warmup: Runs of each that are not counted (compilation, caches).
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + warmup):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def publish(name: str, results: Sequence[Result], *, command: str, folder: Path) -> None:
    """Print the table and write it as CSV and Markdown with the machine's description.

    Args:
        name: Name of the files.
        results: The rows.
        command: The command that makes them again.
        folder: Where to write.
    """
    rows = [
        {
            "what": row.what,
            "target": row.target,
            "ours": row.ours,
            "peer": row.peer,
            "unit": row.unit,
            "peer_name": row.peer_name,
            "ratio": row.ratio if row.peer else None,
            "limit": row.limit,
            "verdict": row.verdict,
        }
        for row in results
    ]
    write_table(significant(pl.DataFrame(rows), 4), folder / f"{name}.csv")
    write_json(folder / f"{name}.json", {"command": command, **machine()})
    lines = [
        f"# {name}",
        "",
        f"Made by `{command}` on {machine()['processor']}, {machine()['cores']} cores, "
        f"fedroster {machine().get('fedroster', '')}. Medians.",
        "",
        "| what | target | ours | peer | ratio | verdict |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in results:
        peer = f"{row.peer:.3g} {row.unit} ({row.peer_name})" if row.peer else "-"
        ratio = f"{row.ratio:.2f}" if row.peer else "-"
        lines.append(f"| {row.what} | {row.target} | {row.ours:.3g} {row.unit} | {peer} | {ratio} | {row.verdict} |")
    text = "\n".join(lines) + "\n"
    write_text_atomically(folder / f"{name}.md", text)
    print(text)
