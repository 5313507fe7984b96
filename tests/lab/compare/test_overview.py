"""Several scenarios compared: a folder for each, one page above them, gone on with after a stop, and made again."""

from __future__ import annotations

import functools
import html
import json
import math
import re
import shutil
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fedroster import cli
from fedroster.catalogue import scenarios
from fedroster.core.errors import ConfigurationError, InvalidInputError, PausedError, UnknownNameError
from fedroster.core.sources import code
from fedroster.lab.compare import overview, result
from fedroster.lab.compare.line_up import line_up, line_ups, scenarios_of
from fedroster.lab.compare.overview import compare_all, folder_of, is_of_several, render_all
from fedroster.lab.pages.report import Picture
from fedroster.lab.trials.store import read_json, read_table, write_json
from fedroster.lab.trials.trial import Conditions, Trial

SCENARIOS = ("rbcs-f/table-1", "cocs/mnist")
WANTED = ("random", "floor", "rbcs-f:V=5", "partial-pooling", "oracle-p")


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".lock")
    }


@pytest.fixture
def no_pictures(monkeypatch):
    """Pictures take longer than all the rest."""
    for module in (result, overview):
        monkeypatch.setattr(
            module, "picture", lambda figure, label, folder, name: Picture(label, "<svg/>", f"{name}.svg")
        )
    monkeypatch.setattr("fedroster.lab.compare.figures.figures_of", lambda *_, **__: {})


def study(folder, **changes):
    policies = changes.pop("policies", WANTED)
    options = {name: changes.pop(name) for name in ("conditions", "progress") if name in changes}
    asked = {"seeds": [0, 1, 2], "command": "fedroster compare --scenario all"} | changes
    sides = {name: asked.pop(name) for name in ("focus", "against") if name in asked}
    wanted = asked.pop("scenarios", SCENARIOS)
    plan = functools.partial(line_up, policies=policies, rounds=6, **asked)
    plans = line_ups(wanted, plan, must_run=False, **sides)
    table, found = compare_all(plans, folder, workers=1, **options)
    assert [one.settings.scenario for one in found] == [plan.scenario for plan in plans]
    return table


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The command in miniature, with all pictures; only read."""
    folder = tmp_path_factory.mktemp("several")
    arguments = [part for name in SCENARIOS for part in ("--scenario", name)]
    arguments += ["--policies", ",".join(WANTED), "--rounds", "8", "--seeds", "0-2", "--task", "none"]
    return folder, CliRunner().invoke(
        cli.app, ["compare", *arguments, "--out", str(folder), "--workers", "1", "--json"]
    )


def test_all_is_every_scenario_of_the_catalogue():
    assert scenarios_of(["all"]) == tuple(scenarios())
    assert scenarios_of(["cocs/mnist", "rbcs-f/table-1"]) == ("cocs/mnist", "rbcs-f/table-1")
    with pytest.raises(ConfigurationError, match="expected each once"):
        scenarios_of(["all", "cocs/mnist"])
    with pytest.raises(UnknownNameError, match="unknown scenario 'nowhere'"):
        scenarios_of(["nowhere"])


def test_a_folder_for_each_scenario_and_a_page_above(made):
    folder, result = made
    assert result.exit_code == 0, result.output
    assert {path.name for path in folder.iterdir()} == {
        *map(folder_of, SCENARIOS),
        *("index.md", "report.html", "overview.csv", "overview.svg", "settings.json", ".lock", ".lock.json"),
    }
    for name in SCENARIOS:
        one = folder / folder_of(name)
        assert {"rounds.csv", "measures.csv", "summary.csv", "index.md", "report.html"} <= {
            p.name for p in one.iterdir()
        }
        assert read_json(one / "settings.json")["scenario"] == name
    # Measures that suit the scenario, and our own policy that does.
    flat, servers = (read_json(folder / folder_of(name) / "settings.json") for name in SCENARIOS)
    assert read_json(folder / "settings.json")["machine"]["code"] == flat["machine"]["code"] == code()
    assert (flat["has_prices"], servers["has_prices"]) == (False, True)
    assert flat["against"] == ["random", "floor"]
    assert servers["against"] == ["random", "partial-pooling"]
    assert set(servers["left_out"]) == {"floor", "rbcs-f:V=5"}
    page = (folder / "report.html").read_text()
    text = html.unescape(page)
    for words in ("cocs/mnist", "best competitor", "beats / neither / loses", "partial-pooling"):
        assert words in text
    links = re.findall(r'<a href="([^"#]*)"', page)
    assert links == [f"./{folder_of(name)}/report.html" for name in SCENARIOS]
    assert all((folder / link).exists() for link in links)
    assert "](./cocs-mnist/index.md)" in (folder / "index.md").read_text()
    table = read_table(folder / "overview.csv").with_columns(pl.selectors.float().replace([math.inf, -math.inf], None))
    assert json.loads(result.stdout) == table.to_dicts()  # JSON has no infinity


def test_our_own_policy_stands_against_every_other(made):
    folder, _ = made
    table = read_table(folder / "overview.csv")
    tested = table.filter(pl.col("p_holm").is_not_null())
    found = {(row["scenario"], row["policy"], row["measure"]): row for row in tested.to_dicts()}
    assert {key[:2] for key in found} == {
        *(("rbcs-f/table-1", text) for text in ("random", "rbcs-f:V=5", "partial-pooling")),
        *(("cocs/mnist", text) for text in ("random", "oracle-p")),
    }
    assert {row["focus"] for row in tested.to_dicts()} == {"floor", "partial-pooling"}
    # One family over all scenarios: the scenario's own page says the same.
    assert read_json(folder / "cocs-mnist" / "settings.json")["read_together"] == 2
    # Ours is the numerator.
    measures = read_table(folder / "rbcs-f-table-1" / "measures.csv")
    mine, theirs = (measures.filter(pl.col("policy") == text)["mean_round_time_s"] for text in ("floor", "random"))
    ratio = np.exp(np.log(mine.to_numpy() / theirs.to_numpy()).mean())
    assert found["rbcs-f/table-1", "random", "mean_round_time_s"]["difference"] == pytest.approx(ratio)
    # The page of the scenario has it the other way round.
    own = read_table(folder / "rbcs-f-table-1" / "contrasts.csv").filter(against="floor").to_dicts()
    (row,) = [row for row in own if (row["policy"], row["measure"]) == ("random", "mean_round_time_s")]
    assert row["difference"] == pytest.approx(1.0 / ratio)
    assert row["p_holm"] == found["rbcs-f/table-1", "random", "mean_round_time_s"]["p_holm"]


def test_everything_is_made_again_from_the_tables(made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made[0], folder)
    before = contents(folder)
    for name in ("overview.csv", "cocs-mnist/summary.csv", "cocs-mnist/measures.csv"):
        (folder / name).unlink()
    assert is_of_several(folder)
    result = CliRunner().invoke(cli.app, ["compare", "--again", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    after = contents(folder)
    assert {name for name in before if not name.endswith(".html")} <= after.keys()
    for name in ("overview.csv", "index.md", "cocs-mnist/summary.csv", "cocs-mnist/measures.csv"):
        assert after[name] == before[name], name


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("folders", [{"cocs/mnist": "../other"}, {"../other": "other"}, {"..": ".."}])
def test_what_lies_outside_stays_as_it_is_whatever_a_folder_says(made, tmp_path, folders):
    shutil.copytree(made[0] / "cocs-mnist", tmp_path / "other")
    shutil.copytree(made[0], tmp_path / "several")
    before = contents(tmp_path / "other")
    settings = read_json(tmp_path / "several" / "settings.json")
    write_json(tmp_path / "several" / "settings.json", settings | {"folders": folders})
    with suppress(InvalidInputError):
        render_all(tmp_path / "several")
    assert contents(tmp_path / "other") == before
    assert {path.name for path in tmp_path.iterdir()} == {"other", "several"}


@pytest.mark.usefixtures("no_pictures")
def test_scenarios_that_would_share_a_folder_somewhere_are_refused(tmp_path):
    plans = [SimpleNamespace(scenario=name) for name in ("mine/World", "mine-world")]  # Windows and macOS see one name
    with pytest.raises(ConfigurationError, match="would share a folder"):
        compare_all(plans, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("part", ["rbcs-f-table-1", "rbcs-f-table-1/report.html", "overview.svg"])
def test_a_link_out_of_a_folder_is_not_followed(made, tmp_path, part):
    folder, other = tmp_path / "copy", tmp_path / "other"
    shutil.copytree(made[0], folder)
    (folder / part).rename(other)
    (folder / part).symlink_to(other)
    before = contents(tmp_path)
    with pytest.raises(ConfigurationError, match=f"{part} is a link"):
        render_all(folder)
    assert contents(tmp_path) == before


def test_it_stops_when_the_time_is_up_and_goes_on(tmp_path, monkeypatch):
    ran = []
    run = Trial.run

    def counted(self, conditions):
        found = run(self, conditions)
        if found is not None:
            ran.append((self.scenario, self.policy, self.seed))
        return found

    monkeypatch.setattr(Trial, "run", counted)
    with pytest.raises(PausedError, match="0 of 21 runs are done"):
        study(tmp_path, conditions=Conditions(stop_at=0.0))
    assert ran == []
    study(tmp_path, scenarios=SCENARIOS[:1])
    with pytest.raises(PausedError, match="12 of 21 runs are done"):
        study(tmp_path, conditions=Conditions(stop_at=0.0))
    counts = []
    table = study(tmp_path, progress=lambda done, total, words: counts.append((done, total)))
    assert len(ran) == len(set(ran)) == 21
    assert counts[-1] == (21.0, 21)
    assert counts == sorted(counts)
    same = {"decision_s"}  # is measured
    other = study(tmp_path / "another")
    kept = ~pl.col("measure").is_in(same)
    assert table.filter(kept).equals(other.filter(kept))


@pytest.mark.usefixtures("no_pictures")
def test_folders_of_something_else_are_refused_and_left_alone(tmp_path):
    write_json(tmp_path / "settings.json", {"scenario": "rbcs-f/table-1"})
    before = contents(tmp_path)
    with pytest.raises(ConfigurationError, match="holds something else than comparisons in several scenarios"):
        study(tmp_path)
    assert contents(tmp_path) == before
    assert not is_of_several(tmp_path)
    write_json(tmp_path / "settings.json", {"command": "", "folders": {}, "seeds": [], "machine": {}})
    with pytest.raises(InvalidInputError, match="names no folders"):
        render_all(tmp_path)


@pytest.mark.usefixtures("no_pictures")
def test_against_may_take_part_in_one_of_them(tmp_path):
    study(tmp_path, against=["floor", "oracle-p"])
    flat, servers = (read_json(tmp_path / folder_of(name) / "settings.json")["against"] for name in SCENARIOS)
    assert (flat, servers) == (["floor"], ["oracle-p"])
    with pytest.raises(ConfigurationError, match="--against is 'oort', which does not take part"):
        study(tmp_path / "other", against=["floor", "oort"])
    assert not (tmp_path / "other").exists()


@pytest.mark.usefixtures("no_pictures")
def test_without_a_policy_of_ours_the_page_is_that_of_the_first(tmp_path):
    table = study(tmp_path / "first", scenarios=SCENARIOS[:1], policies=["random", "oort"])
    assert set(table["focus"].drop_nulls()) == {"oort"}
    table = study(tmp_path / "asked", focus="random", scenarios=SCENARIOS[:1], policies=["random", "floor", "oort"])
    assert set(table["focus"].drop_nulls()) == {"random"}
    assert "random beside the best competitor" in (tmp_path / "asked" / "index.md").read_text()
    with pytest.raises(ConfigurationError, match="--focus is 'cocs', which does not take part"):
        study(tmp_path / "new", focus="cocs", scenarios=SCENARIOS[:1])
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("no_pictures")
def test_one_seed_tests_nothing(tmp_path):
    assert study(tmp_path, seeds=[4])["p_holm"].is_null().all()
