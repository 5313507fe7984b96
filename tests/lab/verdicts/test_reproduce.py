"""Figures of a paper: files, claims with planted truth, and the same result every time."""

import re

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.core.sources import code
from fedroster.lab.papers.rbcs_f import figures as rbcs_f
from fedroster.lab.trials.store import read_json, read_table
from fedroster.lab.trials.trial import Trial
from fedroster.lab.verdicts.paper import find_paper
from fedroster.lab.verdicts.reproduce import Order, reproduce


def run(folder, **changes):
    order = {"figures": ["2"], "seeds": [0, 1], "rounds": 20}
    how = {"pages": True, "tables": True, "progress": None}
    how |= {name: changes.pop(name) for name in list(changes) if name in how}
    return reproduce(Order("rbcs-f", **order | changes), folder, command="fedroster", workers=1, **how)


TABLES = {"pages": False, "tables": True}


def test_the_same_call_makes_the_same_files(tmp_path):
    def files(name):
        run(tmp_path / name)
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()}

    one = files("one")
    assert one == files("other")
    assert {"figure-2.csv", "figure-2.svg", "claims.csv", "report.html", "settings.json"} <= one.keys()


def test_progress_counts_every_run(tmp_path):
    seen = []
    run(tmp_path, figures=["regret"], **TABLES, progress=seen.append)
    runs = 6  # two seeds of each of three policies
    assert {number / runs for number in range(runs + 1)} <= set(seen)  # and now and then within a run
    assert seen == sorted(seen)


def test_a_figure_is_the_mean_over_its_seeds(tmp_path):
    run(tmp_path, figures=["3"], seeds=[0, 1, 2], **TABLES)
    data = read_table(tmp_path / "figure-3.csv")
    assert set(data["label"]) == set(rbcs_f.LABELS.values())
    runs = [Trial("rbcs-f/table-1", "random", seed, 20).run().round_time_s.cumsum() for seed in (0, 1, 2)]
    found = data.filter(data["label"] == "random").sort("x")
    np.testing.assert_allclose(found["mean"].to_numpy(), np.mean(runs, axis=0), rtol=1e-4)
    assert found["x"].to_list() == list(range(1, 21))


def test_every_figure_has_a_title_and_every_claim_a_name_of_its_own(tmp_path):
    made = run(tmp_path, figures=[], rounds=10, **TABLES)
    names = [verdict.claim.name for verdict in made]
    assert len(names) == len(set(names)) == read_table(tmp_path / "claims.csv").height
    assert len(names) >= 12
    for name, recipe in find_paper("rbcs-f").figures.items():
        assert recipe.title
        assert (tmp_path / f"figure-{name}.csv").exists()
    settings = read_json(tmp_path / "settings.json")
    assert settings["rounds"] == "40 or 10"
    assert settings["code"] == code()


@pytest.mark.parametrize("changes", [{"seeds": [0, 0, 1]}, {"seeds": []}, {"rounds": 9}, {"rounds": True}], ids=str)
def test_wrong_usage_writes_nothing(tmp_path, changes):
    with pytest.raises(ConfigurationError, match="|".join(changes)):
        run(tmp_path / "new", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "settings.json").write_text('{"scenario": "rbcs-f/table-1"}\n')
    with pytest.raises(ConfigurationError, match="does not hold a reproduction of rbcs-f"):
        reproduce(Order("rbcs-f", [0, 1], ["2"], 10), tmp_path, command="")
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_the_claims_come_before_the_figures(tmp_path):
    reproduce(Order("cocs", [0, 1], ["3b-oracle", "4b"], 20), tmp_path, command="", workers=1)
    page = (tmp_path / "index.md").read_text()
    assert re.findall(r"!\[.*\]\((.*)\.svg\)", page) == ["figure-3b-oracle", "figure-4b"]
    assert {file.stem for file in tmp_path.glob("*.svg")} == {"figure-3b-oracle", "figure-4b"}
    texts = ["| verdict | claim |", "(figure-3b-oracle.svg)", "## Notes", "## How this was"]
    assert sorted(texts, key=page.index) == texts


def test_figures_without_training_with_a_scale(tmp_path):
    """What needs no training is made alone, too, and the page does not speak of training."""
    run(tmp_path / "alone", figures=["4"])
    page = (tmp_path / "alone" / "index.md").read_text()
    assert "|  | participations of the least served client |" in page
    run(tmp_path / "scaled", figures=["4"], scale="smoke")
    for name in ("index.md", "figure-4.csv", "claims.csv", "settings.json"):
        assert (tmp_path / "scaled" / name).read_text() == (tmp_path / "alone" / name).read_text()
