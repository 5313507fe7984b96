"""The published pages: small, complete, made by commands that there are; and the page on contradicted claims."""

import csv
import importlib.util
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from fedroster.lab.verdicts.paper import find_paper, papers
from fedroster.lab.verdicts.registry import registered
from fedroster.lab.verdicts.verdicts import WORDS

FOLDER = Path(__file__).parents[3] / "docs" / "reproduction"
PAGES = sorted(FOLDER.rglob("index.md"))


def name(page):
    return page.parent.relative_to(FOLDER).as_posix()


def settings_of(page):
    return json.loads((page.parent / "settings.json").read_text())


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere_and_no_picture_is_left_over(page):
    links = set(re.findall(r"\]\(([^)]+)\)", page.read_text()))
    assert all((page.parent / link).is_file() for link in links)
    assert {path.name for path in page.parent.iterdir() if path.suffix == ".svg"} <= links


def asked_by(command):
    """Paper, options and figures of a command; all figures that are not on request if it names none."""
    program, verb, paper, *options = shlex.split(command)
    assert (program, verb) == ("fedroster", "reproduce")
    made, given = find_paper(paper), dict(itertools.pairwise(options))
    recipes = {**made.figures, **(made.scales[given["--scale"]].figures if "--scale" in given else {})}
    named = [value for option, value in itertools.pairwise(options) if option == "--figure"]
    assert set(named) <= recipes.keys()
    wanted = named or [figure for figure, recipe in recipes.items() if not recipe.on_request]
    return paper, given, {figure: recipes[figure] for figure in wanted}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_command_makes_the_figures_of_the_page(page):
    settings = settings_of(page)
    paper, options, recipes = asked_by(settings["command"])
    assert page.read_text().count(f"```\n{settings['command']}\n```") == 1
    assert paper == settings["paper"] == page.relative_to(FOLDER).parts[0]
    assert options["--out"] == f"docs/reproduction/{name(page)}"
    assert options.get("--scale") == settings.get("scale")
    shown = {path.stem for path in page.parent.iterdir() if path.suffix == ".svg"} - {"verdicts"}
    assert shown == {f"figure-{figure}" for figure in recipes}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_only_decided_claims_stand_beside_intervals_without_zero(page):
    with (page.parent / "claims.csv").open() as file:
        for row in csv.DictReader(file):
            includes_zero = float(row["effect_low"]) <= 0.0 <= float(row["effect_high"])
            assert row["test"] == "promise" or (row["verdict"] == "undecided") == includes_zero, row["claim"]


def test_what_is_registered_is_published_or_said_to_be_missing():
    """A figure cannot stay away because of what came out: a page shows it, or the table names its command and seeds."""
    missing = re.findall(r"`(fedroster reproduce [^`]*)`", FOLDER.with_suffix(".md").read_text())
    commands = [settings_of(page)["command"] for page in PAGES] + missing
    there = {(paper, figure) for command in commands for paper, _, figures in [asked_by(command)] for figure in figures}
    made = {paper: find_paper(paper) for paper in papers()}
    known = {(name, figure) for name, own in made.items() for figure in {**own.figures, **own.scales["cpu"].figures}}
    assert there == known
    for command in missing:
        paper, options, figures = asked_by(command)
        seeds = registered(paper).seeds
        for figure, recipe in figures.items():
            own = seeds.get(figure, seeds["training" if recipe.trains else "simulation"])
            asked = options["--training-seeds" if recipe.trains else "--seeds"]
            assert asked == f"{own[0]}-{own[-1]}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_page_says_what_the_claims_say(page):
    """Verdict, statement and place of every claim stand in the groups' tables, and its p-values in the folded one."""
    with (page.parent / "claims.csv").open() as file:
        claims = list(csv.DictReader(file))
    text = page.read_text()
    tables = re.findall(r"^\| (?:claim|verdict) \|.*\n\| --- .*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for table in tables
        for line in table.splitlines()
    ]
    short, full = ([row for row in rows if len(row) == width] for width in (4, 10))
    # One statement may be asked of several figures and networks.
    said = sorted((word, statement, source) for word, statement, source, _ in short)
    assert said == sorted((row["verdict"], row["statement"], row["source"]) for row in claims)
    for word, statement, source, found in short:
        same = [row for row in claims if (row["verdict"], row["statement"], row["source"]) == (word, statement, source)]
        assert any(found.endswith(row["why"]) for row in same)
    told = sorted((row[0], row[1], row[5], row[6]) for row in full)
    assert told == sorted((row["statement"], row["measure"], row["test"], row["seeds"]) for row in claims)
    for row in full:
        statement, measure, test, p_holds, p_contradicted = row[0], row[1], row[5], row[7], row[-1]
        same = [row for row in claims if (row["statement"], row["measure"], row["test"]) == (statement, measure, test)]
        assert test == "promise" or any(
            float(p_holds) == pytest.approx(float(row["p_holds"]), rel=0.1)
            and float(p_contradicted) == pytest.approx(float(row["p_contradicted"]), rel=0.1)
            for row in same
        )
    asked = {who: [row for row in claims if row["asked_by"] == who] for who in ("paper", "us")}
    for own in filter(None, asked.values()):
        words = [row["verdict"] for row in own]
        hold, small, against, undecided = map(words.count, WORDS)
        shown = f"{hold} hold{'s' * (hold == 1)}, {small} hold{'s' * (small == 1)} but small"
        assert f"{shown}, {against} contradicted, {undecided} undecided" in text


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_is_older_than_its_registry(page):
    """All that it judges was registered before its runs."""
    settings, entry, text = settings_of(page), registered(page.relative_to(FOLDER).parts[0]), page.read_text()
    assert settings["registered"].startswith("yes, on ")
    assert settings["registry"] in (entry.digest, *entry.before), "its runs are to be made again"
    assert f"(Registry {settings['registry']}.)" in text
    with (page.parent / "claims.csv").open() as file:
        for row in csv.DictReader(file):
            said = entry.claims[row["claim"]]
            assert (row["statement"], row["measure"], row["asked_by"]) == tuple(
                said[key] for key in ("says", "tested", "asked_by")
            )


DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def maker():
    spec = importlib.util.spec_from_file_location("contradicted", DOCS / "contradicted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_claims(maker):
    text = maker.PAGE.read_text()
    assert maker.page(text) == text, "run python docs/contradicted.py"


def claims(folder, rows):
    (folder / "reproduction" / "rbcs-f").mkdir(parents=True)
    (folder / "reproduction" / "cocs").mkdir(parents=True)
    shutil.copy(DOCS / "reproduction" / "cocs" / "claims.csv", folder / "reproduction" / "cocs")
    with (folder / "reproduction" / "rbcs-f" / "claims.csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


ROW = {"claim": "flat-1", "asked_by": "paper", "verdict": "contradicted", "measure": "growth | slope", "unit": "s"}
ROW |= {"effect": "-1", "effect_low": "-2", "effect_high": "-0.5", "seeds": "9"}


def test_a_contradicted_claim_needs_the_papers_words(maker, tmp_path, monkeypatch):
    claims(tmp_path, [ROW])
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    with pytest.raises(SystemExit, match="flat-1"):
        maker.contradicted()
    said = maker.Words("“flatten”", "6.1.2", "a command", "another slope")
    monkeypatch.setitem(maker.SAID, "flat-1", said)
    assert "| “flatten” | 6.1.2 | growth \\| slope: -1 s (-2 to -0.5), 9 seeds |" in maker.contradicted()


def test_what_no_paper_says_stays_off_the_page(maker, tmp_path, monkeypatch):
    claims(tmp_path, [ROW | {"verdict": "holds, but small"}, ROW | {"claim": "ours", "asked_by": "us"}])
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    assert "growth" not in maker.contradicted()
