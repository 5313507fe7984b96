"""What the guide's page says of each method is what the registered runs say."""

import re

import pytest
from benchmarks.sooner import Family

from benchmarks import beside_random
from fedroster.catalogue import POLICIES

COMPARED = beside_random.PAGE.parent / "explanation" / "methods-compared.md"


def test_the_rows_are_those_of_the_registered_runs() -> None:
    page = beside_random.PAGE.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.count(" | ") == 6 and line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(beside_random.WAYS)
    assert beside_random.written(page.replace(rows[0], re.sub(r"\| [^|]* \|$", "| for time |", rows[0]))) == page


def test_every_way_that_was_played_has_a_row() -> None:
    assert {name.removesuffix("/...") for name in beside_random.WAYS} <= POLICIES.keys()
    named = {way for ways in beside_random.WAYS.values() for way in ways} | {"random"}
    apart = Family.read(beside_random.APART).registry["ways"].keys() - {"random", "FLOOR"}
    assert named - apart == Family.read("methods").registry["ways"].keys()
    assert named - apart - {"optimal client sampling"} == Family.read(beside_random.JUDGED).registry["ways"].keys()
    assert apart <= named


@pytest.mark.parametrize("name", [beside_random.JUDGED, beside_random.APART])
def test_the_page_counts_the_verdicts(name: str) -> None:
    family = Family.read(name)
    said = (family.folder / "verdicts.md").read_text(encoding="utf-8")
    of = {words: said.count(f"| {words} (") for words in ("holds", "does not hold", "undecided")}
    assert sum(of.values()) == len(family.registry["claims"]) * len(family.registry["worlds"])
    verb = "holds" if of["holds"] == 1 else "hold"
    counted = f"{of['holds']} {verb}, {of['does not hold']} do not, {of['undecided']} are undecided"
    assert counted in COMPARED.read_text(encoding="utf-8")


def test_the_page_shows_the_medians_and_verdicts_of_what_was_played_later() -> None:
    family = Family.read(beside_random.APART)
    rows = [line.strip("| ").split(" | ") for line in (family.folder / "verdicts.md").read_text().splitlines()]
    said = {(row[2], row[0]): row for row in rows if len(row) == 6}
    shown = [line.strip("| ").split(" | ") for line in COMPARED.read_text(encoding="utf-8").splitlines()]
    cells = {way: iter([row[-3:] for row in shown if way in row]) for way in ("DivFL", "HiCS-FL")}
    for name, claim in family.registry["claims"].items():
        for world, cell in zip(family.registry["worlds"], next(cells[claim["way"]]), strict=True):
            row = said[name, world]
            of_time = claim["measure"] == "target_s"
            median = row[3] if of_time else f"{0.0 - float(row[3]):.1f}".replace("-0.0", "0.0")
            verdict = row[5].split(" (")[0]
            assert cell.strip("*") == median + f", {verdict}" * (verdict != "undecided")
    assert not any(list(rest) for rest in cells.values())
