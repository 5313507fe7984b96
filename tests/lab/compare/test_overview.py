"""Several scenarios compared: a folder for each, one page above them, gone on with after a stop, and made again."""

import json
import re
import shutil
from types import SimpleNamespace

import pytest

from commands import call
from fedroster import compare
from fedroster.catalogue import scenarios
from fedroster.core.errors import ConfigurationError, InvalidInputError, PausedError, UnknownNameError
from fedroster.core.sources import code
from fedroster.lab.compare.line_up import Asked, line_up, line_ups, scenarios_of
from fedroster.lab.compare.run import compare_all, folder_of, render
from fedroster.lab.trials.store import read_json
from fedroster.lab.trials.trial import Conditions, Trial
from runs import contents

SCENARIOS = ("rbcs-f/table-1", "cocs/mnist")
WANTED = ("random", "floor", "rbcs-f:V=5", "partial-pooling", "oracle-p")


def study(folder, **changes):
    policies = changes.pop("policies", WANTED)
    options = {name: changes.pop(name) for name in ("conditions", "progress") if name in changes}
    scenarios = changes.pop("scenarios", SCENARIOS)
    asked = {"policies": policies, "rounds": 6, "seeds": [0, 1], "command": "fedroster compare"} | changes
    plans = [line_up(scenario, Asked(**asked), must_run=False) for scenario in scenarios]
    found = compare_all(plans, folder, workers=1, **options)
    assert [one.settings.scenario for one in found] == [plan.scenario for plan in plans]
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The command in miniature; only read."""
    folder = tmp_path_factory.mktemp("several")
    arguments = [part for name in SCENARIOS for part in ("--scenario", name)]
    arguments += ["--policies", ",".join(WANTED), "--rounds", "8", "--seeds", "0-1", "--task", "none"]
    return folder, call("compare", *arguments, "--out", folder, "--workers", 1, "--json")


def test_all_is_every_scenario_of_the_catalogue():
    assert scenarios_of(["all"]) == tuple(scenarios())
    assert scenarios_of(["cocs/mnist", "rbcs-f/table-1"]) == ("cocs/mnist", "rbcs-f/table-1")
    with pytest.raises(ConfigurationError, match="expected each once"):
        scenarios_of(["all", "cocs/mnist"])
    with pytest.raises(UnknownNameError, match="unknown scenario 'nowhere'"):
        scenarios_of(["nowhere"])


def test_a_folder_for_each_scenario_and_a_page_above(made):
    folder, result = made
    above = {"index.md", "report.html", ".lock", ".lock.json"}
    assert {path.name for path in folder.iterdir()} == above | {*map(folder_of, SCENARIOS)}
    # Measures that suit the scenario, our own policy that does, and one family of tests.
    flat, servers = (read_json(folder / folder_of(name) / "settings.json") for name in SCENARIOS)
    assert (flat["scenario"], servers["scenario"]) == SCENARIOS
    assert flat["machine"]["code"] == code()
    assert (flat["has_prices"], servers["has_prices"]) == (False, True)
    assert flat["read_together"] == servers["read_together"] == 2
    assert (flat["focus"], servers["focus"]) == ("floor", "partial-pooling")
    assert set(servers["left_out"]) == {"floor", "rbcs-f:V=5"}
    page = (folder / "report.html").read_text()
    for name in SCENARIOS:  # each answer is that of the scenario's page
        own = (folder / folder_of(name) / "report.html").read_text()
        assert re.search('class="headline">([^<]+)<', own)[1] in page
    links = re.findall(r'<a href="([^"#]*)"', page)
    assert links == [f"./{folder_of(name)}/report.html" for name in sorted(SCENARIOS)]
    assert all((folder / link).exists() for link in links)
    assert "](./cocs-mnist/index.md)" in (folder / "index.md").read_text()
    rows = json.loads(result.stdout)
    assert {(row["scenario"], row["policy"]) for row in rows} == {
        *((SCENARIOS[0], text) for text in ("random", "floor", "rbcs-f:V=5", "partial-pooling")),
        *((SCENARIOS[1], text) for text in ("random", "partial-pooling", "oracle-p")),
    }


def test_everything_is_made_again_from_the_tables(made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made[0], folder)
    before = contents(folder)
    for name in ("index.md", "cocs-mnist/summary.csv", "cocs-mnist/measures.csv"):
        (folder / name).unlink()
    result = call("compare", "--again", "--out", folder)
    assert result.stdout == ""
    assert "report.html" in result.stderr.replace("\n", "")
    after = contents(folder)
    assert before.keys() == after.keys()
    for name in ("index.md", "cocs-mnist/summary.csv", "cocs-mnist/measures.csv"):
        assert after[name] == before[name], name
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="holds no comparison"):
        render(tmp_path / "empty")


def test_scenarios_that_would_share_a_folder_somewhere_are_refused(tmp_path):
    plans = [SimpleNamespace(scenario=name) for name in ("mine/World", "mine-world")]  # Windows and macOS see one name
    with pytest.raises(ConfigurationError, match="would share a folder"):
        compare_all(plans, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_link_out_of_a_folder_is_not_followed(made, tmp_path):
    folder, other = tmp_path / "copy", tmp_path / "other"
    shutil.copytree(made[0], folder)
    (folder / "rbcs-f-table-1/report.html").rename(other)
    (folder / "rbcs-f-table-1/report.html").symlink_to(other)
    before = contents(tmp_path)
    with pytest.raises(ConfigurationError, match="is a link"):
        render(folder)
    assert contents(tmp_path) == before


def test_it_stops_when_the_time_is_up_and_goes_on(tmp_path, monkeypatch):
    ran, run = [], Trial.run

    def counted(self, conditions):
        if (found := run(self, conditions)) is not None:
            ran.append((self.scenario, self.policy, self.seed))
        return found

    monkeypatch.setattr(Trial, "run", counted)
    with pytest.raises(PausedError, match="0 of 8 runs in rbcs-f/table-1 are done"):
        study(tmp_path, conditions=Conditions(stop_at=0.0))
    assert ran == []
    assert not [*tmp_path.rglob("report.html")]
    study(tmp_path / folder_of(SCENARIOS[0]), scenarios=SCENARIOS[:1])
    with pytest.raises(PausedError, match="0 of 6 runs in cocs/mnist are done"):
        study(tmp_path, conditions=Conditions(stop_at=0.0))
    counts = []
    found = study(tmp_path, progress=lambda done, total, words: counts.append((done, total)))
    assert len(ran) == len(set(ran)) == 14
    assert counts[-1] == (14.0, 14)
    assert counts == sorted(counts)
    for one, other in zip(found, study(tmp_path / "another"), strict=True):
        assert one.frame.drop("decision_s").equals(other.frame.drop("decision_s"))


def test_a_comparison_does_not_take_the_folder_of_others(made, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(made[0], folder)
    before = contents(folder)
    with pytest.raises(ConfigurationError, match="holds something else than comparisons in these scenarios"):
        study(folder, scenarios=(SCENARIOS[0], "cocs/cifar-10"), rounds=8)
    with pytest.raises(ConfigurationError, match="holds comparisons in several scenarios"):
        compare(["random"], rounds=8, folder=folder)
    assert contents(folder) == before


def test_where_one_policy_can_run_the_page_says_so(tmp_path):
    study(tmp_path, policies=["random", "floor"])
    assert "| cocs/mnist | No other policy can run here. |" in (tmp_path / "index.md").read_text()
    with pytest.raises(ConfigurationError, match="--focus is 'cocs', which does not take part"):
        line_ups(SCENARIOS, Asked(WANTED, rounds=6, focus="cocs"))
