"""Figures of a paper: files, claims with planted truth, and the same result every time."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError, UnknownNameError
from fedroster.papers.rbcs_f import figures as rbcs_f
from fedroster.study.paper import find_paper
from fedroster.study.reproduce import Order, Output, reproduce
from fedroster.study.sources import code
from fedroster.study.statistics import judge
from fedroster.study.store import read_json, read_table
from fedroster.study.trial import Trial

ROUNDS, SEEDS = 200, 6


def run(folder, **changes):
    order = {"figures": ["2"], "seeds": [0, 1], "num_rounds": 20}
    how = {"output": Output(tables=True), "progress": None}
    how |= {name: changes.pop(name) for name in list(changes) if name in how}
    return reproduce(Order("rbcs-f", **order | changes), folder, command="fedroster", workers=1, **how)


TABLES = Output(pages=False, tables=True)


def test_the_same_call_makes_the_same_files(tmp_path):
    one, other = run(tmp_path / "one"), run(tmp_path / "other")
    files = sorted(path.name for path in one.folder.iterdir() if path.is_file())
    assert files == sorted(path.name for path in other.folder.iterdir() if path.is_file())
    assert {"figure-2.csv", "figure-2.png", "claims.csv", "report.html", "settings.json"} <= set(files)
    for name in files:
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes(), name


def test_progress_counts_every_run(tmp_path):
    seen = []
    run(tmp_path, figures=["regret"], output=TABLES, progress=seen.append)
    assert {0.0, 0.25, 0.5, 0.75, 1.0} <= set(seen)  # and now and then within a run
    assert seen == sorted(seen)


def test_a_figure_is_the_mean_over_its_seeds(tmp_path):
    run(tmp_path, figures=["3"], seeds=[0, 1, 2], output=TABLES)
    data = read_table(tmp_path / "figure-3.csv")
    assert set(data["policy"]) == set(rbcs_f.FIGURE_POLICIES)
    runs = [Trial("rbcs-f/table-1", "random", seed, 20).run().round_time_s.cumsum() for seed in (0, 1, 2)]
    found = data.filter(data["policy"] == "random").sort("round")
    np.testing.assert_allclose(found["elapsed_s"].to_numpy(), np.mean(runs, axis=0), rtol=1e-5)
    assert found["round"].to_list() == list(range(1, 21))


def test_every_figure_has_a_title_and_every_claim_a_name_of_its_own(tmp_path):
    made = run(tmp_path, figures=[], output=TABLES)
    names = [verdict.claim.name for verdict in made.verdicts]
    assert len(names) == len(set(names)) == read_table(tmp_path / "claims.csv").height
    assert len(names) >= 14
    for name, recipe in find_paper("rbcs-f").figures.items():
        assert recipe.title
        assert (tmp_path / f"figure-{name}.csv").exists()
    settings = read_json(tmp_path / "settings.json")
    assert settings["rounds"] == "80 or 20"
    assert settings["code"] == code()
    assert all("  " not in sentence for sentence in made.findings)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"figures": ["2", "22"]}, UnknownNameError, "unknown figure of rbcs-f '22'"),
        ({"seeds": [1, 1]}, ConfigurationError, "at least two different"),
        ({"seeds": []}, ConfigurationError, "at least two different"),
        ({"num_rounds": 9}, ConfigurationError, "rounds is 9"),
        ({"num_rounds": True}, ConfigurationError, "rounds is True"),
    ],
)
def test_wrong_usage_writes_nothing(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        run(tmp_path / "new", **changes)
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------- claims, with planted truth


def planted(*, plateau, settling, growth=0.0, round_time_s=5.0, cohort=8, chosen=None, seed=0):
    """A run whose queues rise to a plateau, settle after some rounds, and grow on from there."""
    rng = np.random.default_rng([seed, int(1000 * plateau), settling])
    rounds = np.arange(1, ROUNDS + 1)
    backlog = plateau * (1.0 - np.exp(-rounds / settling)) + growth * rounds + 1e-4 * rng.random(ROUNDS)
    return dataclasses.replace(
        _real_run(),
        round_time_s=round_time_s + 0.1 * rng.standard_normal(ROUNDS),
        cohort_size=np.full(ROUNDS, cohort),
        mean_backlog=backlog,
        bound_margin=np.ones(ROUNDS),
        chosen=rng.integers(30, 50, 40) if chosen is None else chosen + rng.integers(0, 3, 40),
    )


@functools.cache
def _real_run():
    """Gives what the claims on Huang et al. 2021 do not look at."""
    return Trial(rbcs_f.SCENARIO, "random", 0, ROUNDS).run()


def verdicts(figure, runs):
    """Whether each claim on a figure holds for these runs."""
    return {each.claim.name: each.holds for each in judge(find_paper("rbcs-f").figures[figure].claims(runs))}


def queues(plateaus, settlings, growth=0.0):
    return {
        policy: [
            planted(plateau=plateau + 0.01 * seed, settling=settling + seed % 2, growth=growth, seed=seed)
            for seed in range(SEEDS)
        ]
        for policy, plateau, settling in zip(rbcs_f.RBCS_F, plateaus, settlings, strict=True)
    }


def test_claims_on_queues_hold_where_they_are_true():
    assert set(verdicts("2", queues((1, 2, 4, 8), (5, 10, 15, 20))).values()) == {True}


def test_claims_on_queues_do_not_hold_where_they_are_false():
    growing = verdicts("2", queues((1, 2, 4, 8), (5, 10, 15, 20), growth=0.02))
    assert not any(holds for name, holds in growing.items() if name.startswith("flat"))
    falling = verdicts("2", queues((8, 4, 2, 1), (20, 15, 10, 5)))
    assert not falling["higher-with-V"]
    assert not falling["later-with-V"]
    one_step_wrong = verdicts("2", queues((1, 4, 2, 8), (5, 10, 15, 20)))
    assert not one_step_wrong["higher-with-V"]
    assert one_step_wrong["later-with-V"]


def times(values, *, cohort=8):
    return {
        policy: [
            planted(plateau=1, settling=5 + index, round_time_s=value, cohort=cohort, seed=seed)
            for seed in range(SEEDS)
        ]
        for index, (policy, value) in enumerate(zip(rbcs_f.FIGURE_POLICIES, values, strict=True))
    }


def test_claims_on_time():
    true = verdicts("3", times((12, 10, 8, 6, 15, 3, 7)))
    assert true["faster-with-V"]
    assert true["between"]
    false = verdicts("3", times((6, 8, 10, 12, 5, 3, 7)))
    assert not false["faster-with-V"]
    assert not false["between"]
    assert verdicts("3", times((12, 10, 8, 6, 15, 3, 7), cohort=8))["eight-clients"]
    assert not verdicts("3", times((12, 10, 8, 6, 15, 3, 7), cohort=10))["eight-clients"]


def pulls(uneven):
    return {
        policy: [
            planted(plateau=1, settling=5 + index, seed=seed, chosen=np.arange(40) * steepness // 40 + 20)
            for seed in range(SEEDS)
        ]
        for index, (policy, steepness) in enumerate(zip(rbcs_f.FIGURE_POLICIES, uneven, strict=True))
    }


def test_claims_on_pulls():
    true = verdicts("4", pulls((2, 40, 80, 120, 2, 400, 100)))
    assert true["uneven-with-V"]
    assert true["fedcs-least-even"]
    assert true["fair-is-even"]
    false = verdicts("4", pulls((120, 80, 40, 2, 300, 60, 100)))
    assert not any(false[name] for name in ("uneven-with-V", "fedcs-least-even", "fair-is-even"))


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "settings.json").write_text('{"scenario": "rbcs-f/table-1"}\n')
    with pytest.raises(ConfigurationError, match="does not hold a reproduction of rbcs-f"):
        reproduce(Order("rbcs-f", [0, 1], ["2"], 10), tmp_path, command="")
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_our_own_questions_are_not_counted_as_the_papers(tmp_path):
    made = reproduce(Order("rbcs-f", [0, 1], ["2", "2-long"], 10), tmp_path, command="")
    asked = [verdict.claim.ours for verdict in made.verdicts]
    assert (asked.count(False), asked.count(True)) == (6, 4)
    held = [sum(v.holds for v in made.verdicts if v.claim.ours is ours) for ours in (False, True)]
    page = (tmp_path / "index.md").read_text()
    assert f"{held[0]} of 6 claims of the paper hold here. Of our own further questions, {held[1]} of 4." in page


def test_figures_without_training_with_a_scale(tmp_path):
    """What needs no training is made alone, too, and the page does not speak of training."""
    alone = run(tmp_path / "alone", figures=["4"])
    scaled = run(tmp_path / "scaled", figures=["4"], scale="smoke")
    assert scaled.findings == alone.findings
    for name in ("index.md", "figure-4.csv", "claims.csv", "settings.json"):
        assert (tmp_path / "scaled" / name).read_text() == (tmp_path / "alone" / name).read_text()
