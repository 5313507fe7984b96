"""Writes what measurements contradict into explanation/errors-in-the-papers.md, from the claims of the reproductions.

python docs/contradicted.py
"""

from __future__ import annotations

import csv
from pathlib import Path

DOCS = Path(__file__).parent
PAGE = DOCS / "explanation" / "errors-in-the-papers.md"
BEGIN, END = "<!-- contradicted: python docs/contradicted.py -->\n", "<!-- end -->\n"
PAPERS = {"rbcs-f": "Huang et al. 2021", "cocs": "Qu et al. 2021"}


def contradicted() -> str:
    """The papers' claims that are contradicted, a table for each paper: the paper's own set-up first."""
    lines = []
    for name, title in PAPERS.items():
        pages = sorted((DOCS / "reproduction" / name).rglob("claims.csv"))
        claims = [row for page in pages for row in csv.DictReader(page.read_text().splitlines())]
        rows = [row for row in claims if row.get("asked_by") == "paper"]
        found = sorted(
            (row for row in rows if row["verdict"] == "contradicted"),
            key=lambda row: (row["changed"] != "", row["runs"]),
        )
        lines += [f"### {title}", ""]
        if not found:
            lines += ["No claim is contradicted.", ""]
            continue
        lines += ["| the paper says | where | here | set-up |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in _cells(row))} |" for row in found]
        lines.append("")
    return "\n".join(lines)


def _cells(row: dict[str, str]) -> list[str]:
    found = row["why"]
    if row["test"] != "promise":
        low, high = (f"{float(row[name]):.3g}" for name in ("effect_low", "effect_high"))
        unit = f" {row['unit']}" if row["unit"] else ""
        found += f": {float(row['effect']):.3g}{unit} ({low} to {high}); tested: {row['measure']}"
    return [row["statement"], row["source"], found, f"{row['runs']}, {row['changed'] or 'as in the paper'}"]


def page(text: str) -> str:
    """The page with the tables of today."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n" + contradicted() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
