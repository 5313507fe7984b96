"""Whether `fedroster replay` is right: how often its intervals hold what the other policy realises.

Run as ``python -m benchmarks.replay [--seeds 0-99] [--cells NAME,...] [--stop-at HH:MM]``.  For each cell and seed it
simulates and logs a policy, replays the log with others, and plays these with the same seed, which is the truth.  What
was done already is kept in ``benchmarks/results/replay.jsonl``, so that it can go on; the table is
``benchmarks/results/replay.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.rows import RESULTS
from fedroster.catalogue import make_policy
from fedroster.core.state import write_text_atomically
from fedroster.lab.replay import MEASURES, replay
from fedroster.lab.trials.trial import Conditions, Trial
from fedroster.record import Log


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of log.

    Attributes:
        scenario: Name in the catalogue.
        settings: What is overridden, as text.
        logging: Policy that wrote the log.
        others: Policies that are replayed.
        rounds: Length of the log.
    """

    scenario: str
    settings: dict[str, str]
    logging: str
    others: tuple[str, ...]
    rounds: int


_FLAT, _TRACES = "rbcs-f/table-1", "traces/devices"
_DEVICES = {"num_clients": "200", "cohort_size": "10"}

CELLS = {
    "table-1": Cell(_FLAT, {}, "random", ("floor", "rbcs-f:V=5"), 120),
    "drift": Cell(_FLAT, {"drift": "0.5"}, "floor", ("random", "rbcs-f:V=5"), 160),
    "churn": Cell(_FLAT, {"churn": "0.3", "churn_rounds": "60", "dropout": "0.1"}, "rbcs-f:V=5", ("random",), 120),
    "traces": Cell(_TRACES, _DEVICES, "random", ("floor:beta=0.02", "round-robin"), 120),
    "table-1 by rbcs-f": Cell(_FLAT, {"noise_shape": "log-normal"}, "rbcs-f:V=20", ("random",), 140),
    "traces by floor": Cell(
        _TRACES, _DEVICES | {"round_interval_s": "1800", "deadline_s": "400"}, "floor:beta=0.02", ("random",), 120
    ),
}


def run(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Estimates and truths of one log."""
    cell = CELLS[name]
    with TemporaryDirectory() as folder:
        logged = Trial(cell.scenario, cell.logging, seed, cell.rounds, cell.settings)
        logged.run(Conditions(records={(cell.logging, seed): Path(folder) / "log"}))
        log = Log(Path(folder) / "log")
        started = time.perf_counter()
        found = replay(log, {text: make_policy(text) for text in cell.others})
        spent_s = time.perf_counter() - started
    for text in cell.others:
        truth = Trial(cell.scenario, text, seed, cell.rounds, cell.settings).run()
        assert truth is not None
        true = {
            "mean_round_time_s": float(truth.round_time_s.mean()),
            "min_participation_rate": float(truth.chosen.min()) / cell.rounds,
            "deadline_misses": float(truth.missed.sum()),
        }
        for one in found:
            if one.policy == text:
                yield {
                    "cell": name,
                    "seed": seed,
                    "policy": text,
                    "kind": one.kind,
                    "measure": one.measure,
                    "estimate": one.estimate,
                    "low": one.low,
                    "high": one.high,
                    "truth": true[one.measure],
                    "refused": one.refused,
                    "seconds": spent_s,
                }


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage by cell, policy and measure, as Markdown."""
    lines = [
        "| log | of | replayed | measure | logs | refused | held | above | mean truth | mean estimate | width |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, cell in CELLS.items():
        for text in cell.others:
            for measure in MEASURES:
                own = [
                    row for row in rows if (row["cell"], row.get("policy"), row.get("measure")) == (name, text, measure)
                ]
                told = [row for row in own if row["refused"] is None]
                if not told:
                    continue
                held = np.mean([row["low"] <= row["truth"] <= row["high"] for row in told])
                above = np.mean([row["truth"] > row["high"] for row in told])
                truth, estimate = (np.mean([row[part] for row in told]) for part in ("truth", "estimate"))
                width = np.mean([row["high"] - row["low"] for row in told])
                log = f"{name} | `{cell.logging}`, {cell.rounds} rounds | `{text}` | `{measure}`"
                counts = f"{len(own)} | {len(own) - len(told)} | {held:.0%} | {above:.0%}"
                lines.append(f"| {log} | {counts} | {truth:.4g} | {estimate:.4g} | {width:.3g} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Play what is missing, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay", description=__doc__)
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--stop-at", help="HH:MM, UTC")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    kept = given.out / "replay.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["cell"], row["seed"]) for row in rows}
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in range(int(first), int(last or first) + 1):
        for name in given.cells.split(","):
            if (name, seed) in done or (given.stop_at and f"{datetime.now(UTC):%H:%M}" >= given.stop_at):
                continue
            new = list(run(name, seed))
            rows += new
            with kept.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in new)
    write_text_atomically(given.out / "replay.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
