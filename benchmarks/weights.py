"""Updates weighed over probabilities beside the clients' samples: accuracy on the data of both papers.

Run as ``python -m benchmarks.weights [--tasks NAME,...] [--seeds 0-9] [--out FOLDER]``, with ``FEDROSTER_DATA`` set to
the folder of the data sets.  40 clients of ``rbcs-f/table-1`` train; each policy plays each seed twice, once with each
kind of weights.  What was done already is kept in ``weights.jsonl`` of the folder; the table is ``weights.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.rows import RESULTS
from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.state import write_text_atomically
from fedroster.federated import federate
from fedroster.study.statistics import mean_interval
from fedroster.task import Task

POLICIES = ("explored:policy=floor", "explored:policy=rbcs-f:V=20", "dirichlet:gamma_2=0.5", "e3cs:fairness=0.2")
TASKS = {
    "mnist-logistic": Task("mnist-logistic", "dirichlet:0.2", samples_per_client=200),
    "fashion-mnist": Task("fashion-mnist", "dirichlet:0.2", samples_per_client=100),
}
ROUNDS, TESTED, LAST = 60, 5, 4  # rounds, rounds from test to test, tests that count
KINDS: tuple[Literal["samples", "inverse"], ...] = ("samples", "inverse")


def accuracies(task: Task, policy: str, weights: Literal["samples", "inverse"], seed: int) -> list[float]:
    """The last tests of one run."""
    environment = make_scenario("rbcs-f/table-1")
    trainer = task.trainer(num_clients=environment.spec.num_clients, seed=seed)
    rounds = federate(
        make_policy(policy),
        environment,
        trainer,
        num_rounds=ROUNDS,
        seed=seed,
        evaluate_every=TESTED,
        weights=weights,
    )
    return [played.accuracy for played in rounds if not np.isnan(played.accuracy)][-LAST:]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean accuracies in per cent, their standard deviation within a run, and the paired difference, as Markdown."""
    lines = [
        "| task | policy | seeds | by samples | over probabilities | difference, points, 95 % interval |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in TASKS:
        for policy in POLICIES:
            own = [row for row in rows if (row["task"], row["policy"]) == (name, policy)]
            if len(own) < 2:
                continue
            runs = {kind: 100.0 * np.array([row[kind] for row in own]) for kind in KINDS}
            told = [f"{run.mean():.1f} ({run.std(axis=1, ddof=1).mean():.1f})" for run in runs.values()]
            gain = mean_interval((runs["inverse"] - runs["samples"]).mean(axis=1))
            told.append(f"{gain.mean:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})")
            lines.append(f"| {name} | `{policy}` | {len(own)} | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train what is missing, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weights", description=__doc__)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "weights.jsonl"
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(row["task"], row["policy"], row["seed"]) for row in rows}
    for name in given.tasks.split(","):
        for seed in range(int(first), int(last or first) + 1):
            for policy in POLICIES:
                if (name, policy, seed) in done:
                    continue
                row: dict[str, Any] = {"task": name, "policy": policy, "seed": seed}
                row |= {kind: accuracies(TASKS[name], policy, kind, seed) for kind in KINDS}
                rows.append(row)
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    write_text_atomically(given.out / "weights.md", table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
