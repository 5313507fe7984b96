"""The main job: from runs to tables, from tables to the page; and the training itself in miniature."""

import dataclasses
import html
import json
import math
import os
import re

import numpy as np
import polars as pl
import pytest

from commands import call, fails
from fedroster.catalogue import find_scenario
from fedroster.core.errors import ConfigurationError, InfeasibleError, InUseError, InvalidInputError, UnknownNameError
from fedroster.core.sources import code
from fedroster.lab.compare import result as module
from fedroster.lab.compare import run as runs_of_policies
from fedroster.lab.compare.run import compare
from fedroster.lab.compare.tables import LAST, read_settings, summary_table
from fedroster.lab.task import Task
from fedroster.lab.trials.store import read_json, read_table, write_json, write_table
from fedroster.lab.trials.trial import Trial
from runs import contents, planted_run

T_975 = 12.706204736432095  # Student's t, 0.975, one degree of freedom
PLANTED = {
    # policy: for each seed, times of the rounds, accuracies, and how often each of four clients was chosen
    "random": {
        3: ([4.0, 4.0, 4.0, 4.0], [0.2, 0.4, 0.6, 0.7], [2, 2, 2, 2]),
        8: ([2.0, 4.0, 6.0, 8.0], [0.1, 0.5, 0.4, 0.6], [4, 2, 2, 0]),
    },
    "rbcs-f:V=5": {
        3: ([1.0, 1.0, 1.0, 1.0], [0.5, 0.3, 0.3, 0.3], [4, 4, 0, 0]),
        8: ([1.0, 2.0, 3.0, 2.0], [0.1, 0.2, 0.5, 0.7], [3, 3, 1, 1]),
    },
    "fedcs:deadline_s=3": {
        3: ([0.5, 0.5, 0.5, 0.5], [0.1, 0.1, 0.6, 0.1], [4, 0, 0, 0]),
        8: ([0.5, 0.5, 0.5, 0.5], [0.1, 0.1, 0.49, 0.1], [4, 0, 0, 0]),
    },
}
SETTINGS = {
    "command": "fedroster compare <b>",
    "scenario": "rbcs-f/table-1",
    "settings": {"num_clients": "4"},
    "policies": list(PLANTED),
    "seeds": [3, 8],
    "rounds": 4,
    "rate": 0.25,
    "task": {"name": "digits", "partition": "dirichlet:0.5", "samples_per_client": None, "epochs": None},
    "target_accuracy": 0.5,
    "omniscient": ["fedcs:deadline_s=3"],
    "left_out": {"cocs": "features of row 0 are <i>5</i>"},
    "has_prices": False,
    "focus": "rbcs-f:V=5",
    "optimal": "",
    "yardstick": "",
    "read_together": 1,
    "machine": {"fedroster": "0.1.0", "cores": 2},
}


def tables(planted):
    rounds, clients = [], []
    same = {
        "cohort_size": 2,
        "test_loss": 1.0,
        "refused": 0,
        "participants": 2,
        "budget_used": math.nan,
        "exploring": 0,
    }
    for policy, seeds in planted.items():
        for seed, (times, accuracies, chosen) in seeds.items():
            run = {"policy": policy, "seed": seed}
            for number, (time_s, accuracy) in enumerate(zip(times, accuracies, strict=True)):
                at = {"round": number + 1, "elapsed_s": sum(times[: number + 1]), "round_time_s": time_s}
                of = {"decision_s": 0.001 * (number + 1) ** 2, "mean_backlog": 0.1 * number, "accuracy": accuracy}
                rounds.append(run | at | of | same)
            clients += [run | {"client": n, "chosen": count, "available": 4} for n, count in enumerate(chosen)]
    return pl.DataFrame(rounds), pl.DataFrame(clients)


def fill(folder, planted=PLANTED, **changes):
    """A folder of a comparison; if nothing else is said, its page is about the second policy."""
    names, seeds = list(planted), list(next(iter(planted.values())))
    rounds, clients = tables(planted)
    write_table(rounds.sample(fraction=1.0, shuffle=True, seed=1), folder / "rounds.csv")  # any order will do
    write_table(clients.sample(fraction=1.0, shuffle=True, seed=2), folder / "participation.parquet")
    own = {"policies": names, "seeds": seeds, "focus": names[:2][-1], "rounds": rounds["round"].max()}
    write_json(folder / "settings.json", SETTINGS | own | changes)
    return folder


def render(folder):
    runs_of_policies.render(folder)
    return module.Comparison.read(folder).summary()


def shown(folder, **changes):
    """Columns and rows of the summary as text."""
    measures = dataclasses.replace(read_settings(folder), **changes).main_measures
    table = summary_table(module.Comparison.read(folder).summary(), measures)
    return table.columns, table.rows


def found_in(folder, against="random"):
    return read_table(folder / "contrasts.csv").filter(against=against).to_dicts()


@pytest.fixture(scope="module")
def rendered(tmp_path_factory, drawing):
    """The planted comparison with all that is made from it; only read."""
    folder = fill(tmp_path_factory.mktemp("rendered"))
    with drawing():
        return folder, render(folder)


def test_the_summary_by_hand(rendered):
    summary = {row["policy"]: row for row in rendered[1].to_dicts()}
    assert list(summary) == list(PLANTED)
    random, ours, fedcs = summary.values()
    assert (random["seeds"], random["reached_target"]) == (2, 2)
    # 0.5 is first reached halfway through round 3 of seed 3, after 10 s, and in round 2 of seed 8, after 6 s.
    assert random["time_to_target_s"] == pytest.approx(8.0)
    half = T_975 * np.std([10.0, 6.0], ddof=1) / math.sqrt(2.0)
    assert random["time_to_target_s_high"] - random["time_to_target_s"] == pytest.approx(half)
    assert random["final_accuracy"] == pytest.approx((0.475 + 0.4) / 2)
    assert random["mean_round_time_s"] == pytest.approx((4.0 + 5.0) / 2)
    assert random["min_participation_rate"] == pytest.approx((0.5 + 0.0) / 2)
    assert random["jain_index"] == pytest.approx((1.0 + 64 / (4 * 24)) / 2)
    # Reached at once counts, and that accuracy fell later does not matter.
    assert ours["time_to_target_s"] == pytest.approx((1.0 + 6.0) / 2)
    assert ours["jain_index"] == pytest.approx((0.5 + 64 / (4 * 20)) / 2)
    # One seed never reaches it: no mean is given, and how many do is.
    assert fedcs["time_to_target_s"] is fedcs["time_to_target_s_low"] is None
    assert fedcs["reached_target"] == 1
    assert fedcs["jain_index"] == pytest.approx(0.25)
    assert (fedcs["jain_index_low"], fedcs["jain_index_high"]) == pytest.approx((0.25, 0.25))
    # Four clients that were always there: the least served tenth is the one that was chosen least, and beta is a round.
    assert [row["least_served"] for row in summary.values()] == pytest.approx([(0.5 + 0.0) / 2, (0.0 + 0.25) / 2, 0.0])
    assert [row["lowest_served"] for row in summary.values()] == [row["least_served"] for row in summary.values()]
    assert [row["share_served"] for row in summary.values()] == pytest.approx([(1.0 + 0.75) / 2, (0.5 + 1.0) / 2, 0.25])
    assert [row["never_chosen"] for row in summary.values()] == pytest.approx([0.125, 0.25, 0.75])
    # The median of 1, 4, 9 and 16 ms.
    assert [row["decision_s"] for row in summary.values()] == pytest.approx([0.0065] * 3)


def test_final_accuracy_is_the_mean_of_the_last_rounds(tmp_path):
    accuracies = np.linspace(0.0, 0.9, 30).tolist()
    planted = {"random": {seed: ([1.0] * 30, accuracies, [1, 1]) for seed in (3, 8)}}
    (row,) = render(fill(tmp_path, planted)).to_dicts()
    assert row["final_accuracy"] == pytest.approx(np.mean(accuracies[-LAST:]))
    assert row["sway"] == pytest.approx(np.std(accuracies[-2 * LAST :]))
    assert LAST == 10


def test_the_summary_as_text(rendered):
    columns, rows = shown(rendered[0])
    by_policy = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert by_policy["fedcs:deadline_s=3"]["time to target, s"] == "reached by 1 of 2"
    assert by_policy["random"]["time to target, s"] == "8 ± 25"
    assert by_policy["random"]["accuracy, %"].startswith("43.8 ± ")
    assert by_policy["random"]["got beta, %"].startswith("87.5 ± ")
    assert by_policy["random"]["decision, ms"] == "6.50 ± 0.00"


def test_the_folder_is_complete(rendered):
    folder, summary = rendered
    names = ("accuracy-per-round", "accuracy-per-second", "queues", "participation")
    figures = {f"{name}.svg" for name in (*names, "pareto-round", "pareto-target")}
    tables = {"rounds.csv", "participation.parquet", "settings.json"} | {"measures.csv", "summary.csv", "contrasts.csv"}
    assert contents(folder).keys() == figures | tables | {"report.html", "index.md"}
    page = (folder / "report.html").read_text()
    assert page.count('<div class="static" role="img"') == page.count('<script type="application/json">') == 6
    assert "fedroster compare &#39;&lt;b&gt;&#39;" in page
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"""<[^<>]*(?:href|src)=["'](?!#|data:)[^<>]*>""", page) == []
    for words in ("0.250 ± 0.000", "reached by 1 of 2", "num_clients=4", "3, 8", "row 0 are &lt;i&gt;5&lt;/i&gt;"):
        assert words in page
    assert read_table(folder / "summary.csv").rows() == summary.rows()


def test_in_free_places_nothing_is_tested_before_all_are_filled(tmp_path, drawing):
    course = [math.nan, 0.4, 0.4, 0.9]
    planted = {text: {seed: ([1.0] * 4, course, [2, 2, 2, 2]) for seed in (3, 8)} for text in ("random", "by-speed")}
    with drawing():
        rows = render(fill(tmp_path, planted, task=SETTINGS["task"] | {"free_places": True})).to_dicts()
        figure = module.Comparison.read(tmp_path).plot("accuracy-per-round")
    assert [row["final_accuracy"] for row in rows] == pytest.approx([1.7 / 3.0] * 2)
    assert [row["sway"] for row in rows] == pytest.approx([np.std(course[1:])] * 2)
    assert "nan" not in (tmp_path / "index.md").read_text()
    assert "domain" not in json.dumps(figure.to_dict()["layer"][-1]["encoding"]["y"])  # that of what is drawn


def test_one_seed_and_one_round(tmp_path):
    planted = {"random": {3: ([4.0], [0.5], [1, 0])}}
    (row,) = render(fill(tmp_path, planted)).to_dicts()
    assert (row["time_to_target_s_low"], row["time_to_target_s_high"]) == (4.0, 4.0)
    assert shown(tmp_path)[1][0][1] == "50.0"
    assert read_table(tmp_path / "contrasts.csv").is_empty()  # nothing can be tested


def test_rounds_that_took_no_time(tmp_path, drawing):
    """No client was ever available: rounds took no time, and nothing was learned."""
    planted = {text: {seed: ([0.0] * 4, [0.1] * 4, [0, 0]) for seed in (3, 8)} for text in ("random", "rbcs-f:V=5")}
    with drawing():
        rows = render(fill(tmp_path, planted, target_accuracy=0.1)).to_dicts()
    assert [row["time_to_target_s"] for row in rows] == [0.0, 0.0]
    assert [row["jain_index"] for row in rows] == [1.0, 1.0]


LOST = (pl.col("seed") == 8) & (pl.col("policy") == "random")
DAMAGE = {
    "a seed of one policy is missing": lambda file, table: write_table(table.filter(~LOST), file),
    "one row is missing": lambda file, table: write_table(table.filter(~(LOST & (pl.nth(2) == 2))), file),
    "a row comes twice": lambda file, table: write_table(pl.concat([table, table.head(1)]), file),
    "a file is missing": lambda file, _: file.unlink(),
    "bytes": lambda file, _: file.write_bytes(b"\x00\xff\xfe" * 50),
}


@pytest.mark.parametrize("name", ["rounds.csv", "participation.parquet"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_an_incomplete_comparison_is_refused_and_left_alone(tmp_path, damage, name):
    """Half the rows must not be read as a study of half the rounds."""
    DAMAGE[damage](tmp_path / name, read_table(fill(tmp_path) / name))
    before = contents(tmp_path)
    with pytest.raises(InvalidInputError, match=r"does not hold a complete comparison|not a readable table"):
        render(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_settings_that_lack_something_are_refused(tmp_path, name):
    fill(tmp_path)
    settings = read_json(tmp_path / "settings.json")
    write_json(tmp_path / "settings.json", {key: value for key, value in settings.items() if key != name})
    with pytest.raises(InvalidInputError, match=f"has no '{name}'"):
        render(tmp_path)


@pytest.mark.parametrize("changes", [{"focus": "tifl"}, {"policies": []}, {"task": {"epochs": 3}}])
def test_settings_that_contradict_themselves_are_refused(tmp_path, changes):
    fill(tmp_path, **changes)
    with pytest.raises(InvalidInputError, match=r"expected one of \[|task"):
        render(tmp_path)


def test_every_policy_is_tested_against_random_by_hand(rendered):
    folder, _ = rendered
    found = {(row["policy"], row["measure"]): row for row in found_in(folder)}
    assert len(found) == 2 * 5  # none of random against itself
    # fedcs did not reach the target with one of two seeds: that one is later, whatever random took.
    row = found["fedcs:deadline_s=3", "time_to_target_s"]
    assert (row["difference_high"], row["p_holm"]) == (math.inf, 1.0)
    row = found["rbcs-f:V=5", "time_to_target_s"]
    gap = np.log([1.0 / 10.0, 1.0])
    assert row["difference"] == pytest.approx(math.exp(gap.mean()))
    assert (row["difference_low"], row["difference_high"]) == (0.0, math.inf)  # two seeds are never certain
    row = found["fedcs:deadline_s=3", "least_served"]
    assert row["difference"] == pytest.approx(-0.25)
    assert {test["verdict"] for test in found.values()} == {"undecided"}  # two seeds


def test_what_is_shown_says_in_whose_favour(tmp_path):
    """Shorter rounds are better, and a smaller share of served clients is worse."""

    def runs(time_s, chosen):
        return {seed: ([time_s + 0.01 * seed] * 4, [0.3, 0.4, 0.6, 0.7], chosen) for seed in range(10)}

    planted = {
        "random": runs(4.0, [2, 2, 2, 2]),
        "p3": {seed: ([2.0 + 0.02 * seed] * 4, [0.3, 0.4, 0.6, 0.7], [4, 3, 1, 0]) for seed in range(10)},
    }
    render(fill(tmp_path, planted, omniscient=[]))
    found = {row["measure"]: row["verdict"] for row in found_in(tmp_path)}
    better, worse = ("time_to_target_s", "mean_round_time_s"), ("least_served", "share_served")
    assert found == {"final_accuracy": "alike"} | dict.fromkeys(better, "better") | dict.fromkeys(worse, "worse")
    page = (tmp_path / "report.html").read_text()
    assert '<p class="headline">p3: 48 % shorter rounds than random, less fair, accuracy alike</p>' in page
    assert '<b class="holds">\u221248 %</b>' in page
    assert '<b class="fails">\u221250.0 points</b>' in page
    assert re.search(r'class=" holds">0\.52 better', page)


def test_the_page_names_the_fastest_beside_the_policy_in_focus(tmp_path):
    def runs(time_s, chosen):
        return {seed: ([time_s + 0.01 * seed * (5.0 - time_s)] * 4, [0.3, 0.4, 0.6, 0.7], chosen) for seed in range(10)}

    planted = {"random": runs(4.0, [2] * 4), "floor": runs(3.0, [2] * 4), "p3": runs(2.0, [4, 3, 1, 0])}
    render(fill(tmp_path, planted, omniscient=[]))

    def said():
        return (tmp_path / "report.html").read_text().partition('<p class="headline">')[2].partition("</p>")[0]

    assert re.fullmatch(
        r"floor: 2\d % shorter .* than random, .*; fastest is p3: 4\d % shorter .* less fair, .*", said()
    )
    latex = module.Comparison.read(tmp_path).to_latex()
    assert latex.count("\\\\\n") == 4
    assert latex.startswith("\\begin{tabular}{lrr")
    # One that knows the truth is no competitor.
    render(fill(tmp_path, planted, omniscient=["p3"]))
    assert "fastest" not in said()
    # Nor is one fastest where the policy in focus has the better mean, which nothing shows.
    planted["floor"] = {seed: runs(0.1 if seed % 2 else 8.0, [2] * 4)[seed] for seed in range(10)}
    render(fill(tmp_path, planted, omniscient=[]))
    assert said().startswith("floor: round time undecided")
    assert "fastest" not in said()


@pytest.mark.parametrize("count", [1, 12])
def test_any_number_of_policies_can_be_drawn(tmp_path, count, drawing):
    """More than there are colours: a panel each; points, labels and tables for all."""
    planted = {
        f"policy-{number}": {3: ([1.0 + number] * 4, [0.1, 0.4, 0.6, 0.7], [number % 3, 2, 2, 3])}
        for number in range(count)
    }
    with drawing():
        assert render(fill(tmp_path, planted, omniscient=[])).height == count
    page = (tmp_path / "report.html").read_text()
    pareto = page[page.index("<svg") : page.index("</svg>")]
    for text in planted:
        assert f">{text}<" in pareto  # a direct label


PRICED = {
    # policy: for each seed, the updates in time and the shares of the budget of each round, and the clients' counts
    "random": {3: ([1, 1, 2, 2], [0.5] * 4, [1, 1, 1, 1]), 8: ([2, 2, 2, 2], [0.5] * 4, [2, 2, 2, 2])},
    "cocs": {3: ([2, 2, 3, 3], [1.0] * 4, [4, 4, 2, 0]), 8: ([1, 2, 4, 4], [0.8] * 4, [4, 4, 3, 0])},
    "oracle": {3: ([5, 4, 4, 4], [0.9] * 4, [4, 4, 4, 4]), 8: ([4, 4, 4, 4], [0.9] * 4, [4, 4, 4, 4])},
    "oracle-p": {3: ([4, 4, 4, 4], [0.9] * 4, [4, 4, 4, 4]), 8: ([4, 4, 4, 4], [0.9] * 4, [4, 4, 4, 4])},
    "partial-pooling": {3: ([3, 4, 4, 4], [0.9] * 4, [4, 4, 4, 0]), 8: ([2, 4, 4, 4], [0.9] * 4, [4, 4, 4, 0])},
}


def priced(folder, policies=tuple(PRICED), **changes):
    """A comparison with edge servers, prices and a deadline, planted."""
    planted = {
        text: {seed: ([1.0] * 4, [math.nan] * 4, chosen) for seed, (_, _, chosen) in PRICED[text].items()}
        for text in policies
    }
    settings = {"scenario": "cocs/mnist", "task": None, "has_prices": True, "focus": "partial-pooling"}
    settings |= {"optimal": "oracle", "yardstick": "oracle-p", "omniscient": ["oracle", "oracle-p"]}
    fill(folder, planted, **settings | changes)
    known = {(text, seed): runs for text, seeds in PRICED.items() for seed, runs in seeds.items()}
    rounds = read_table(folder / "rounds.csv")
    at = [*rounds.select("policy", "seed", "round").iter_rows()]
    for place, name in enumerate(("participants", "budget_used")):
        own = [known[policy, seed][place][round - 1] for policy, seed, round in at]
        rounds = rounds.with_columns(pl.Series(name, own))
    write_table(rounds, folder / "rounds.csv")


def test_with_prices_updates_in_time_are_measured(tmp_path, drawing):
    priced(tmp_path)
    with drawing():
        summary = {row["policy"]: row for row in render(tmp_path).to_dicts()}
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"pareto-updates", "updates", "participation"}
    assert [row["updates_per_round"] for row in summary.values()] == pytest.approx([1.75, 2.625, 4.125, 4.0, 3.625])
    assert summary["cocs"]["share_of_oracle_p"] == pytest.approx((10 / 16 + 11 / 16) / 2)
    assert summary["oracle"]["share_of_oracle_p"] == pytest.approx((17 / 16 + 1.0) / 2)
    # A fifth of four rounds is the first of them.
    assert summary["cocs"]["early_share_of_oracle_p"] == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert [row["regret"] for row in summary.values()] == pytest.approx([(11 + 8) / 2, (7 + 5) / 2, 0, 0.5, 2.0])
    assert summary["cocs"]["budget_used"] == pytest.approx(0.9)
    columns, rows = shown(tmp_path)
    assert "got beta, %" in shown(tmp_path, policies=[*PRICED, "partial-pooling:beta=0.1"])[0]
    assert columns == (
        *("policy", "updates a round", "of oracle-p, %", "first fifth, %", "regret", "budget used, %"),
        *("least served, %", "lowest, %", "decision, ms"),
    )
    assert rows[3][1:5] == ("4.00 ± 0.00", "100.0 ± 0.0", "100.0 ± 0.0", "0 ± 6")
    # More is better, in the ratio and on the front.
    assert {row["policy"] for row in found_in(tmp_path, "partial-pooling")} == set(PRICED) - {"partial-pooling"}
    assert {row["measure"] for row in found_in(tmp_path)} == {"updates_per_round", "least_served"}
    page = (tmp_path / "report.html").read_text()
    assert "2 seeds can decide nothing" in page
    assert "most updates first, by the means: partial-pooling and random. (Policies" in page
    assert "because they know the network&#39;s true times: oracle and oracle-p." in page
    assert "at a price that a server can pay" in page
    assert "beta =" not in page


def test_without_the_yardsticks_there_are_no_shares_and_no_regret(tmp_path):
    priced(tmp_path, ("random", "cocs"), focus="cocs", omniscient=[])
    render(tmp_path)
    assert shown(tmp_path)[0][:3] == ("policy", "updates a round", "budget used, %")
    assert "regret" not in read_table(tmp_path / "summary.csv").columns


def test_measures_are_the_same_in_whatever_order_seeds_are_given(tmp_path):
    render(fill(tmp_path))
    table = read_table(tmp_path / "measures.csv")
    render(fill(tmp_path, seeds=[8, 3]))
    assert read_table(tmp_path / "measures.csv").equals(table)


@pytest.fixture
def ran(monkeypatch):
    """Instead of training: runs that are made up from the trial; returns the trials that were run."""
    seen = []

    def run(self, conditions=None):
        seen.append((self.policy, self.seed))
        rng = np.random.default_rng([self.seed, len(self.policy)])
        courses = {"round_time_s": rng.uniform(1.0, 5.0, self.rounds)}
        courses |= {name: rng.random(self.rounds) for name in ("decision_s", "mean_backlog")}
        courses |= dict.fromkeys(("cohort_size", "participants", "test_loss"), np.full(self.rounds, 2))
        clients = {"chosen": rng.integers(0, self.rounds, 4), "available": np.full(4, self.rounds)}
        return planted_run(4, self.rounds, accuracy=np.sort(rng.random(self.rounds)), **courses, **clients)

    monkeypatch.setattr(Trial, "run", run)
    return seen


def study(folder, **changes):
    plain = {"policies": ("random", "rbcs-f:V=5"), "rounds": 6, "seeds": [0, 1], "task": Task()}
    plain |= {"target_accuracy": 0.5, "command": "compare"}
    return compare(**plain | changes, folder=folder, workers=1).summary()


EVERY = [("random", 0), ("rbcs-f:V=5", 0), ("random", 1), ("rbcs-f:V=5", 1)]


def test_tables_hold_the_runs(tmp_path, ran):
    counted = []
    summary = study(tmp_path, progress=lambda *told: counted.append(told))
    assert ran == EVERY
    assert [told[:2] for told in counted] == [(0.0, 4), (1.0, 4), (2.0, 4), (3.0, 4), (4.0, 4)]
    assert [told[2] for told in counted][:3] == ["random, seed 0", "random, seed 0", "rbcs-f:V=5, seed 0"]
    rounds, participation = read_table(tmp_path / "rounds.csv"), read_table(tmp_path / "participation.parquet")
    assert rounds.height == 4 * 6
    assert participation.height == 4 * 4
    assert rounds["policy"].unique(maintain_order=True).to_list() == ["random", "rbcs-f:V=5"]
    run = Trial("rbcs-f/table-1", "rbcs-f:V=5", 1, 6, rate=0.15).run()
    own = rounds.filter((pl.col("policy") == "rbcs-f:V=5") & (pl.col("seed") == 1))
    assert own["decision_s"].to_list() == run.decision_s.tolist()
    assert own["round"].to_list() == [1, 2, 3, 4, 5, 6]
    assert own["elapsed_s"].to_list() == run.round_time_s.cumsum().tolist()
    assert own["accuracy"].to_list() == run.accuracy.tolist()
    counts = participation.filter((pl.col("policy") == "rbcs-f:V=5") & (pl.col("seed") == 1))
    assert counts["chosen"].to_list() == run.chosen.tolist()
    settings = read_json(tmp_path / "settings.json")
    assert settings["policies"] == ["random", "rbcs-f:V=5"]
    assert settings["machine"]["fedroster"]
    assert settings["machine"]["code"] == code()
    assert summary.equals(render(tmp_path))


def test_a_folder_has_one_writer(tmp_path, ran):
    """The second is refused before it runs anything, and is told of the first; afterwards it may."""
    refused = []

    def second(done, *_):
        with pytest.raises(InUseError, match=rf"is held by process {os.getpid()} on .*"):
            study(tmp_path, seeds=[7])
        refused.append(done)

    study(tmp_path, progress=second)
    assert len(refused) == 5
    assert sorted(ran) == sorted(EVERY)
    study(tmp_path, seeds=[7])
    assert ("random", 7) in ran


def test_a_policy_and_a_seed_can_be_added(tmp_path, ran):
    study(tmp_path)
    ran.clear()
    policies = ["random", "dirichlet", "rbcs-f:V=5"]
    summary = study(tmp_path, policies=policies, seeds=[0, 1, 2], target_accuracy=0.6)
    assert sorted(ran) == sorted([("dirichlet", 0), ("dirichlet", 1), *((text, 2) for text in policies)])
    assert summary["policy"].to_list() == policies
    assert summary["seeds"].to_list() == [3, 3, 3]


OTHERS = [
    ({"rounds": 7}, "rounds = 6; expected 7"),
    ({"task": Task(partition="iid")}, "task = .*'dirichlet:0.5'.*; expected .*'iid'.*"),
    ({"task": None}, "task = .*'dirichlet:0.5'.*; expected None"),
    ({"beta": 0.1}, "rate = 0.15; expected 0.1"),
    ({"scenario": "rbcs-f/volatile"}, "scenario = 'rbcs-f/table-1'; expected 'rbcs-f/volatile'"),
    ({"settings": {"noise": "0"}}, "settings = {}; expected {'noise': '0'}"),
]


def test_a_folder_of_another_comparison_or_of_something_else_is_left_alone(tmp_path, ran):
    study(tmp_path)
    before = contents(tmp_path)
    ran.clear()
    for change, name in OTHERS:
        with pytest.raises(ConfigurationError, match=f"holds a comparison with {name}: choose another folder or dele"):
            study(tmp_path, **change)
        assert contents(tmp_path) == before
    other = tmp_path / "other"
    write_json(other / "settings.json", {"paper": "rbcs-f", "scenario": "rbcs-f/table-1", "rounds": 6})
    with pytest.raises(ConfigurationError, match="choose another folder"):
        study(other)
    (other / "settings.json").write_text("{")
    with pytest.raises(InvalidInputError, match="not a readable JSON file"):
        study(other)
    assert "rounds.csv" not in contents(other)
    assert ran == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seeds": []}, ConfigurationError, r"seeds are \[\]"),
        ({"seeds": [1, 1]}, ConfigurationError, r"seeds are \[1, 1\]"),
        ({"policies": ["random", "rbcs-f:beta=0.5"]}, InfeasibleError, "beta"),
        ({"task": Task("nothing")}, UnknownNameError, "task"),
        ({"target_accuracy": 1.0}, ConfigurationError, "target accuracy is 1.0"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(tmp_path, ran, change, error, message):
    with pytest.raises(error, match=message):
        study(tmp_path, **change)
    assert ran == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ran")
def test_the_command_for_people(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = call("compare", "--rounds", 6, "--seeds", "0-1", "--out", tmp_path)
    for text in (*find_scenario("rbcs-f/table-1").compared, *shown(tmp_path)[0]):
        assert (text in result.stdout) == (text not in ("lowest, %", "sway, points"))  # a terminal has no room for all
    assert "training" in result.stderr
    assert "floor" in find_scenario("rbcs-f/table-1").compared  # our own policy takes part in the main job


@pytest.mark.usefixtures("ran")
def test_policies_add_up_and_a_task_takes_less_work_where_asked(tmp_path):
    lists = ("--policies", "random,oort", "--policies", "rbcs-f:V=5,beta=0.1", "--policy", "e3cs")
    less = (*lists, "--epochs", 1, "--samples", 20, "--rounds", 3, "--seeds", 0)
    fails(2, "--epochs, --samples, --coupling", "compare", "--task", "none", *less, "--out", tmp_path)
    call("compare", "--task", "digits-logistic", *less, "--out", tmp_path)
    settings = read_json(tmp_path / "settings.json")
    assert settings["policies"] == ["random", "oort", "rbcs-f:V=5,beta=0.1", "e3cs"]
    assert (settings["task"]["epochs"], settings["task"]["samples_per_client"]) == (1, 20)


def test_the_main_job_in_miniature(tmp_path, monkeypatch):
    """The whole main job, with real data and real training; the finished job is not trained again."""
    arguments = ("compare", "--policies", "random,rbcs-f:V=5", "--rounds", 3, "--seeds", "0-1", "--json")
    first = call(*arguments, "--out", tmp_path)
    summary = json.loads(first.stdout)
    assert [(row["policy"], row["seeds"]) for row in summary] == [("random", 2), ("rbcs-f:V=5", 2)]
    rounds = read_table(tmp_path / "rounds.csv")
    assert rounds.height == 2 * 2 * 3
    assert rounds["accuracy"].is_between(0.0, 1.0).all()
    assert (rounds["test_loss"] > 0.0).all()
    assert rounds["cohort_size"].to_list() == [8] * 12
    assert rounds["refused"].sum() == 0
    for row in summary:
        own = rounds.filter(pl.col("policy") == row["policy"])
        assert row["mean_round_time_s"] == pytest.approx(own["round_time_s"].mean())
        assert row["final_accuracy"] == pytest.approx(own["accuracy"].mean())
    assert (tmp_path / "report.html").stat().st_size > 10_000
    monkeypatch.delattr(Trial, "run")
    before = contents(tmp_path)
    assert call(*arguments, "--out", tmp_path).stdout == first.stdout
    after, hold_the_command = contents(tmp_path), {"settings.json", "report.html", "index.md"}  # it is pytest's here
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} <= hold_the_command


def test_devices_at_scale_in_miniature(tmp_path):
    """Without training, a policy that cannot run is named with the reason."""
    arguments = ("compare", "--scenario", "traces/devices", "--policies", "all", "--clients", 300)
    result = call(*arguments, "--rounds", 6, "--seeds", "1", "--task", "none", "--out", tmp_path, "--json")
    summary = json.loads(result.stdout)
    assert not any("final_accuracy" in row for row in summary)
    page, settings = (tmp_path / "report.html").read_text(), read_json(tmp_path / "settings.json")
    assert "Rounds without training" in page
    assert "Accuracy" not in page
    assert settings["left_out"]
    for name, reason in settings["left_out"].items():
        assert f">{name}<" in page
        assert reason in html.unescape(page)
    available = read_table(tmp_path / "participation.parquet").group_by("policy")
    assert len({tuple(table["available"]) for _, table in available}) == 1  # rounds start at fixed times
    rounds = read_table(tmp_path / "rounds.csv")
    assert rounds["accuracy"].is_nan().all()
    assert (rounds["decision_s"] > 0.0).all()
