"""What the guide's page says of each method is what the registered runs say."""

from __future__ import annotations

import re

from benchmarks.sooner import Family

from benchmarks import beside_random
from fedroster.catalogue import POLICIES

COMPARED = beside_random.PAGE.parent / "explanation" / "methods-compared.md"


def test_the_rows_are_those_of_the_registered_runs() -> None:
    page = beside_random.PAGE.read_text(encoding="utf-8")
    assert beside_random.written(page) == page
    rows = [line for line in page.splitlines() if line.count(" | ") == 6 and line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(beside_random.WAYS)
    assert beside_random.written(page.replace(rows[0], re.sub(r"\| [^|]* \|$", "| for time |", rows[0]))) == page


def test_every_way_that_was_played_has_a_row() -> None:
    assert {name.removesuffix("/...") for name in beside_random.WAYS} <= POLICIES.keys()
    named = {way for ways in beside_random.WAYS.values() for way in ways} | {"random"}
    assert named == Family.read("methods").registry["ways"].keys()
    assert named - {"optimal client sampling"} == Family.read(beside_random.JUDGED).registry["ways"].keys()


def test_the_page_counts_the_verdicts() -> None:
    said = (Family.read(beside_random.JUDGED).folder / "verdicts.md").read_text(encoding="utf-8")
    of = {words: said.count(f"| {words} (") for words in ("holds", "does not hold", "undecided")}
    assert sum(of.values()) == len(Family.read(beside_random.JUDGED).registry["claims"])
    counted = f"{of['holds']} hold, {of['does not hold']} do not, {of['undecided']} are undecided"
    assert counted in COMPARED.read_text(encoding="utf-8")
