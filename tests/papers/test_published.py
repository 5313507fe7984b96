"""The published pages: small, complete, and made by commands that there are."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from fedroster.catalogue import find_scenario
from fedroster.study.paper import find_paper, papers

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"
LEFT_OUT = {"trials", "report.html"}  # and what .gitignore names besides


def published():
    """Files of the repository; those that a run on this machine has left behind are none of it."""
    return [
        path
        for path in FOLDER.rglob("*")
        if path.is_file()
        and not LEFT_OUT & set(path.parts)
        and path.suffix != ".parquet"
        and (path.suffix != ".csv" or path.name == "claims.csv")
    ]


PAGES = sorted(path for path in published() if path.name == "index.md")
JUDGED = [page for page in PAGES if (page.parent / "claims.csv").exists()]


def name(page):
    return page.parent.relative_to(FOLDER).as_posix()


def settings_of(page):
    return json.loads((page.parent / "settings.json").read_text())


def test_they_are_small():
    files = published()
    assert len(files) <= 120
    assert sum(path.stat().st_size for path in files) <= 3_000_000


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere_and_no_picture_is_left_over(page):
    links = set(re.findall(r"\]\(([^)]+)\)", page.read_text()))
    assert all((page.parent / link).is_file() for link in links)
    assert {path.name for path in page.parent.glob("*.png")} <= links


def test_every_paper_has_its_page_under_its_name():
    for paper in papers():
        assert settings_of(FOLDER / paper / "index.md")["paper"] == paper


@pytest.mark.parametrize("page", JUDGED, ids=name)
def test_the_command_makes_the_figures_of_the_page(page):
    settings = settings_of(page)
    program, verb, paper, *options = shlex.split(settings["command"])
    assert (program, verb) == ("fedroster", "reproduce")
    assert page.read_text().count(f"```\n{settings['command']}\n```") == 1
    assert paper == settings["paper"] == page.relative_to(FOLDER).parts[0]
    assert options[options.index("--out") + 1] == f"docs/reproduction/{name(page)}"
    made = find_paper(paper)
    recipes = {**made.figures, **(made.scales[settings["scale"]].figures if "scale" in settings else {})}
    asked = [value for option, value in itertools.pairwise(options) if option == "--figure"]
    wanted = asked or [figure for figure, recipe in recipes.items() if not recipe.on_request]
    shown = {path.name for path in page.parent.glob("*.png")} - {"partitions.png"}
    assert shown == {f"figure-{figure}.png" for figure in wanted}
    assert ("partitions.png" in page.read_text()) == ("scale" in settings)


@pytest.mark.parametrize("page", JUDGED, ids=name)
def test_the_page_says_what_the_claims_say(page):
    """Statement, measure, margin, p-value and verdict of each row of the tables."""
    with (page.parent / "claims.csv").open() as file:
        claims = {(row["statement"], row["source"], row["measure"]): row for row in csv.DictReader(file)}
    if any("margin" in row for row in claims.values()):
        pytest.skip("made before verdicts were three")  # until the page is made again
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in page.read_text().splitlines()
        if line.startswith("| ") and not line.startswith(("| claim |", "| --- |"))
    ]
    assert {tuple(row[:3]) for row in rows} == set(claims)
    for statement, source, measure, margin, interval, adjusted_p, verdict in rows:
        kept = claims[statement, source, measure]
        assert verdict == kept["verdict"]
        assert float(margin) == pytest.approx(float(kept["margin"]), rel=1e-3)
        low, _, high = interval.partition(" to ")
        ends = (float(kept["margin_low"]), float(kept["margin_high"]))
        assert (float(low), float(high)) == pytest.approx(ends, rel=1e-3, abs=1e-12)
        assert float(adjusted_p) == pytest.approx(float(kept["p_holm"]), rel=1e-2, abs=1e-300)
    held = {asked: sum(row["verdict"] == "holds" for row in claims.values() if row["asked_by"] == asked) for asked in
            ("paper", "us")}  # fmt: skip
    assert headline(held, [row["asked_by"] for row in claims.values()]) in page.read_text()


def headline(held, asked):
    ours, theirs = asked.count("us"), asked.count("paper")
    if not theirs:
        return f"{held['us']} of {ours} claims hold; all of them are ours."
    further = f" Of our own further questions, {held['us']} of {ours}." if ours else ""
    return f"{held['paper']} of {theirs} claims of the paper hold here.{further}\n"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in JUDGED], ids=name)
def test_comparisons_name_what_there_is(page):
    command = re.search(r"```\n(fedroster compare .*)\n```", page.read_text())
    words = shlex.split(command.group(1))
    for option, value in itertools.pairwise(words):
        if option == "--scenario" and value != "all":
            find_scenario(value)
