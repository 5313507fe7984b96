"""Writes what measurements contradict into explanation/errors-in-the-papers.md, from the claims of the reproductions.

A contradicted claim comes onto the page only with the paper's own words, a command and what would refute it, which
stand here.  A contradicted claim of a paper that does not stand in the table below is an error: read the paper first.

python docs/contradicted.py
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
PAGE = DOCS / "explanation" / "errors-in-the-papers.md"
BEGIN, END = "<!-- contradicted: python docs/contradicted.py -->\n", "<!-- end -->\n"
PAPERS = {"rbcs-f": "Huang et al. 2021", "cocs": "Qu et al. 2021"}


class Words(NamedTuple):
    """What a reader needs beside the number: the paper's words with their place, a command, what would refute it."""

    quote: str
    place: str
    command: str
    refuted_by: str
    set_up: str = "simulation, as in the paper; registered before its runs"


_PASSES = (
    "**not (2)'s**: two passes in batches of 32 (62 gradient steps a round), since Table I calls E “local training "
    "epochs”, where (2) has two steps; runs older than the registry, the last of three looks"
)
_TRAINING = "`fedroster reproduce cocs --scale cpu --figure 4a` (hours)"
_STEPS = (
    "training with the local work of (2), 200 rounds, 1,000 samples a client (ours); registered before its runs, "
    "second look"
)
_RUN_STEPS = (
    "`fedroster reproduce cocs --scale cpu --figure 4a-steps --training-seeds 1200-1239` (20 minutes of a core)"
)
_ANOTHER = "a batch, or a number of samples, within (2) and Table I, with which the order is the paper's"
SAID = {
    "4a-steps-mnist-oracle-first": Words(
        "“Oracle policy, as expected, results in the fastest convergence speed and highest accuracy”",
        "VI-C 2",
        _RUN_STEPS,
        _ANOTHER,
        _STEPS,
    ),
    "4a-steps-mnist-cocs-more-accurate": Words(
        "71.84 for COCS; 70.94, 71.66 and 70.81 for CUCB, LinUCB and Random",
        "Table II",
        _RUN_STEPS,
        _ANOTHER,
        _STEPS,
    ),
    "4a-steps-mnist-random-last": Words(
        "“Random selecting clients is considerably inferior to all other benchmarks”",
        "VI-C 2",
        _RUN_STEPS,
        _ANOTHER,
        _STEPS,
    ),
    "budget-saturates": Words(
        "“if the budget is set large, the redundant selection does not have significant improvement”",
        "VI-C 3, of the cumulative utilities",
        "`fedroster reproduce cocs --figure 4d --seeds 1000-1039`",
        "a reading of Table I under which COCS gains less from 5 to 10 than from 3.5 to 5",
    ),
    "cifar-1.7-times-cucb": Words(
        "“COCS outperforms the other 3 benchmarks, e.g., 1.7x higher than CUCB policy”",
        "VI-D",
        "`fedroster reproduce cocs --figure 5`",
        "a pool of decisions, or a unit of utility, with which the ratio is 1.5 to 1.9",
        "simulation, **under our reading**: 1.7 times, sums of square roots, and a pool of 100, which the paper does "
        "not give; runs older than the registry",
    ),
    "4a-mnist-oracle-first": Words(
        "“Oracle policy, as expected, results in the fastest convergence speed and highest accuracy”",
        "VI-C 2",
        _TRAINING,
        "the rows above, if they came out otherwise",
        _PASSES,
    ),
    "4a-mnist-cocs-more-accurate": Words(
        "71.84 for COCS; 70.94, 71.66 and 70.81 for CUCB, LinUCB and Random",
        "Table II",
        _TRAINING,
        "the rows above, if they came out otherwise",
        _PASSES,
    ),
    "4a-mnist-random-last": Words(
        "“Random selecting clients is considerably inferior to all other benchmarks”",
        "VI-C 2",
        _TRAINING,
        "the rows above, if they came out otherwise",
        _PASSES,
    ),
}
"""Claims that are contradicted, with the paper's words."""


def contradicted() -> str:
    """The papers' claims that are contradicted, a table for each paper."""
    lines = []
    for name, title in PAPERS.items():
        pages = sorted((DOCS / "reproduction" / name).rglob("claims.csv"))
        claims = [row for page in pages for row in csv.DictReader(page.read_text().splitlines())]
        found = [row for row in claims if row.get("asked_by") == "paper" and row["verdict"] == "contradicted"]
        if unread := sorted({row["claim"] for row in found} - SAID.keys()):
            raise SystemExit(f"{unread[0]} is contradicted; docs/contradicted.py has not the paper's words")
        lines += [f"### {title}", ""]
        rows = sorted(found, key=lambda row: list(SAID).index(row["claim"]))
        if not rows:
            lines += ["No claim is contradicted by measurement.", ""]
            continue
        lines += ["| the paper's words | where | tested, and the number | set-up | run it | what would refute it |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in _cells(row))} |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _cells(row: dict[str, str]) -> list[str]:
    said = SAID[row["claim"]]
    low, high = (f"{float(row[name]):.3g}" for name in ("effect_low", "effect_high"))
    unit = f" {row['unit']}" if row["unit"] else ""
    number = f"{row['measure']}: {float(row['effect']):.3g}{unit} ({low} to {high}), {row['seeds']} seeds"
    return [said.quote, said.place, number, said.set_up, said.command, said.refuted_by]


def page(text: str) -> str:
    """The page with the tables of today."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + contradicted() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
