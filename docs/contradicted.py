"""Writes what measurements contradict into explanation/errors-in-the-papers.md, from the claims of the reproductions.

A contradicted claim comes onto the page only with the paper's own words, a command and what would refute it, which
stand here.  A contradicted claim of a paper that stands in neither table below is an error: read the paper first.

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


SAID = {
    "budget-saturates": Words(
        "“if the budget is set large, the redundant selection does not have significant improvement”",
        "VI-C 3, of the cumulative utilities",
        "`fedroster reproduce cocs --figure 4d --seeds 1000-1039`",
        "a reading of Table I and of the channel under which the step from 5 to 10 brings little",
        "simulation under Choices B2 to B5; registered before its runs",
    ),
}
"""Claims that are contradicted, with the paper's words."""
_TRAINING = ("oracle-first", "cocs-more-accurate", "random-last")
WITHDRAWN = {"cifar-1.7-times-cucb", *(f"4a-steps-mnist-{name}" for name in _TRAINING)}
"""Claims whose verdict rests on a choice of ours where the paper leaves another: they accuse no paper."""


def contradicted() -> str:
    """The papers' claims that are contradicted, a table for each paper."""
    lines = []
    for name, title in PAPERS.items():
        pages = sorted((DOCS / "reproduction" / name).rglob("claims.csv"))
        claims = [row for page in pages for row in csv.DictReader(page.read_text().splitlines())]
        found = [row for row in claims if row.get("asked_by") == "paper" and row["verdict"] == "contradicted"]
        found = [row for row in found if row["claim"] not in WITHDRAWN]
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
