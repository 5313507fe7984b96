"""The command line: what scripts rely on, exit codes, and one clear line for every mistake."""

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from commands import call, fails
from fedroster import Uniform, __version__
from fedroster.catalogue import Entry, policies, scenarios
from fedroster.cli.options import complete
from fedroster.core.errors import ConfigurationError, PausedError, StateFileError
from fedroster.lab.data.load import DATASETS
from fedroster.lab.training.tasks import TASKS
from fedroster.lab.trials.store import read_json
from fedroster.lab.trials.trial import Trial

FEDROSTER = str(Path(sys.executable).with_name("fedroster"))
RBCS_F, RANDOM, FEDCS = "rbcs-f:V=20", "random", "fedcs:deadline_s=3"
ISSUE = (
    *("simulate", "rbcs-f/table-1", "--policy", RBCS_F, "--policy", RANDOM, "--policy", FEDCS, "--rounds", "500"),
    *("--seeds", "0-4", "--set", "num_clients=40", "--json"),
)
KEYS = {
    *("scenario", "policy", "seed", "rounds", "total_time_s", "mean_round_time_s", "mean_cohort_size"),
    *("min_participation_rate", "max_participation_rate", "jain_index", "final_mean_backlog"),
}
OURS = {"by-speed", "floor", "partial-pooling", "cucb-pairs", "linucb-pairs"}
PUBLISHED = policies().keys() - OURS


@pytest.fixture(autouse=True)
def _no_debugging(monkeypatch):
    monkeypatch.delenv("FEDROSTER_DEBUG", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def test_the_issues_command_prints_one_json_array():
    """Through the installed program; stdout and stderr apart."""
    issue = subprocess.run([FEDROSTER, *ISSUE], capture_output=True, text=True, timeout=600, check=False)
    assert issue.returncode == 0, issue.stderr
    rows = json.loads(issue.stdout)  # all of stdout: progress is elsewhere
    assert [(row["policy"], row["seed"]) for row in rows] == [
        (policy, seed) for policy in (RBCS_F, RANDOM, FEDCS) for seed in range(5)
    ]
    for row in rows:
        assert row.keys() >= KEYS
        assert (row["scenario"], row["rounds"]) == ("rbcs-f/table-1", 500)
        assert all(type(row[name]) is int for name in ("seed", "rounds"))
        assert all(type(row[name]) is float for name in KEYS - {"scenario", "policy", "seed", "rounds"})
    for ours, random, fedcs in zip(rows[:5], rows[5:10], rows[10:], strict=True):
        assert max(ours["mean_cohort_size"], random["mean_cohort_size"]) <= 8.0 <= fedcs["mean_cohort_size"]
        assert fedcs["mean_round_time_s"] < ours["mean_round_time_s"] < random["mean_round_time_s"]
        assert fedcs["jain_index"] < ours["jain_index"] < random["jain_index"]
    assert len({row["total_time_s"] for row in rows}) == 15  # no run is another's copy
    inside = call(*ISSUE[:-5], "--seeds", "2", *ISSUE[-3:])
    assert json.loads(inside.stdout) == [row for row in rows if row["seed"] == 2]


def test_simulate_for_people():
    asked = ("simulate", "rbcs-f/table-1", "--policy", RBCS_F, "--policy", RANDOM)
    result = call(*asked, "--rounds", 20, "--seeds", "0-2")
    assert "2 policies in rbcs-f/table-1, 20 rounds, 3 seeds" in result.stdout
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.split()}
    assert lines.keys() >= {"policy", RBCS_F, RANDOM}
    assert "±" in lines[RANDOM]
    assert "simulating" in result.stderr
    assert "simulating" not in result.stdout


def test_settings_reach_the_scenario():
    arguments = ("simulate", "rbcs-f/table-1", "--policy", RANDOM, "--rounds", "10", "--json")
    (row,) = json.loads(call(*arguments, "--set", "availability=0", "--set", "num_clients=10").stdout)
    assert row["settings"] == {"availability": "0", "num_clients": "10"}
    assert (row["empty_rounds"], row["mean_cohort_size"], row["total_time_s"], row["jain_index"]) == (10, 0.0, 0.0, 1.0)
    (row,) = json.loads(call(*arguments, "--set", "availability=1", "--set", "cohort_size=40").stdout)
    assert (row["min_participation_rate"], row["mean_cohort_size"]) == (1.0, 40.0)


@pytest.mark.parametrize(
    ("scenario", "named"),
    [("rbcs-f/table-1", {RBCS_F, RANDOM, FEDCS}), ("cocs/mnist", {"cocs", RANDOM}), ("traces/devices", {RANDOM})],
)
def test_every_scenario_has_usual_policies(scenario, named):
    rows = json.loads(call("simulate", scenario, "--rounds", "2", "--json").stdout)
    assert named <= {row["policy"] for row in rows}
    assert len(rows) == 3 + (scenario == "cocs/mnist")  # the regret's optimal policy, too


def test_nothing_runs_before_all_policies_are_checked(monkeypatch):
    monkeypatch.delattr(Trial, "run")
    fails(2, "unknown policy", "simulate", "rbcs-f/table-1", "--policy", RANDOM, "--policy", "unknown-policy")


def test_the_real_program_exits_with_2_and_an_empty_stdout():
    command = [FEDROSTER, "simulate", "rbcs-f/table-1", "--set", "num_clients=100", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: beta = 0.15 cannot be met: 100 clients")
    assert len(done.stderr.splitlines()) == 1


def raising(error):
    def run(self, conditions):
        raise error

    return run


def out_of_compiled_code():
    """What Ctrl-C in a compiled function becomes."""
    error = SystemError("CPUDispatcher returned a result with an exception set")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (StateFileError("damaged"), 1, "error: damaged"),
        (ConfigurationError("[bold]beta[/bold] is wrong"), 2, "error: [bold]beta[/bold] is wrong"),
        (KeyboardInterrupt(), 130, "interrupted: simulate keeps no runs; run the same command to start again"),
        (out_of_compiled_code(), 130, "interrupted: simulate keeps no runs"),
        (MemoryError("8 TiB"), 1, "error: the memory does not suffice (8 TiB)"),
        (PausedError.of(2, 5), 3, "2 of 5 runs are done; run the same command again to go on"),
    ],
)
def test_errors_become_exit_codes(monkeypatch, error, code, message):
    monkeypatch.setattr(Trial, "run", raising(error))
    fails(code, message, "simulate", "rbcs-f/table-1", "--rounds", "2")


def test_an_error_that_is_a_bug_is_not_hidden(monkeypatch):
    for bug in (ZeroDivisionError, SystemError):
        monkeypatch.setattr(Trial, "run", raising(bug("a bug")))
        assert isinstance(call("simulate", "rbcs-f/table-1", "--rounds", "2", code=1).exception, bug)
    monkeypatch.setenv("FEDROSTER_DEBUG", "1")  # which shows our own, too
    assert isinstance(call("simulate", "nowhere", code=1).exception, LookupError)


def test_without_a_command_it_helps():
    shown = call(code=2).output
    assert all(name in shown for name in ("list", "simulate", "compare", "reproduce", "cite"))
    call("-h")
    assert call("--version").stdout == f"fedroster {__version__}\n"


def test_what_is_listed_for_programs_and_for_people():
    listed = json.loads(call("list", "--json").stdout)
    assert [entry["name"] for entry in listed["policies"]] == list(policies())
    assert [entry["name"] for entry in listed["scenarios"]] == list(scenarios())
    for entry in (*listed["policies"], *listed["scenarios"]):
        assert entry.keys() == {"name", "summary", "source", "parameters"}
    assert listed["scenarios"][0]["parameters"]["train_time_s"] == [1.0, 2.0, 3.0, 4.0]
    shown = call("list").stdout
    for name in (*policies(), *scenarios(), *TASKS, *DATASETS):
        assert name in shown
    assert "snr=" not in shown
    assert "snr=1000/100/10/1" in "".join(call("list", "--long").stdout.split())
    assert json.loads(call("list", "Policies", "--json").stdout).keys() == {"policies"}
    shown = call("list", "tasks").stdout.split()
    assert shown[:5] == ["tasks", "name", "what", "source", "digits"]
    sources = {row["name"]: row["source"] for row in json.loads(call("list", "tasks", "--json").stdout)["tasks"]}
    assert (sources["digits"], sources["cifar-10"]) == ("scikit-learn", "fedroster data fetch")


def test_a_shell_completes_names():
    assert complete("catalogue.POLICIES")("RB") == ["rbcs-f"]
    assert complete("catalogue.POLICIES")("random,oo") == ["random,oort"]
    assert complete("catalogue.SCENARIOS")("cocs/m") == ["cocs/mnist", "cocs/mnist-geometric"]
    assert complete("lab.training.tasks.TASKS")("digits-") == ["digits-logistic"]
    assert complete("lab.data.load.DATASETS")("d") == ["digits"]
    assert "--install-completion" in call("--help").stdout


def test_cite():
    every = call("cite").stdout
    assert every.count("@") == 24  # twenty-three papers and fedroster itself
    one = call("cite", "rbcs-f").stdout
    assert one in every
    assert "10.1109/TPDS.2020.3040887" in one
    assert one.count("{") == one.count("}")
    assert all(call("cite", name).stdout.count("@") == 1 for name in PUBLISHED)
    assert call("cite", "RBCS-F").stdout == call("cite", "rbcs-f:V=20").stdout == one
    # Where there is no paper, fedroster itself is cited.
    software = call("cite", "fedroster").stdout
    assert call("cite", "floor").stdout == call("cite", "partial-pooling").stdout == software
    facts = Path(__file__, "../../../CITATION.cff").resolve().read_text()
    title = "fedroster: client selection for federated learning"
    assert f"\nversion: {__version__}\n" in facts
    for fact in (__version__, title, "Apache-2.0", "fedroster maintainers"):
        assert fact in facts
        assert fact in software


def test_cite_reads_what_a_plug_in_says(monkeypatch):
    @dataclass(frozen=True)
    class Cited(Uniform):
        citation: ClassVar[str] = "@misc{theirs}"

    monkeypatch.setattr("fedroster.catalogue.policies", lambda: {"theirs": Entry(Cited, "", "")})
    assert call("cite", "theirs").stdout == "@misc{theirs}\n"
    monkeypatch.setattr(Cited, "citation", "")
    fails(2, "policy theirs names no paper", "cite", "theirs")


def test_reproduce_a_figure(tmp_path):
    asked = ("reproduce", "rbcs-f", "--figure", "2", "--rounds", "10", "--seeds", "0-1", "--tables")
    result = call(*asked, "--out", tmp_path / "new/out")
    made = {path.name for path in (tmp_path / "new/out").iterdir()}
    assert not any("figure-3" in name or name.startswith(".") for name in made)
    rows = list(csv.DictReader((tmp_path / "new/out/figure-2.csv").read_text().splitlines()))
    assert {row["label"] for row in rows} == {f"RBCS-F({penalty})" for penalty in (1, 5, 20, 50)}
    claims = list(csv.DictReader((tmp_path / "new/out/claims.csv").read_text().splitlines()))
    assert {claim["claim"] for claim in claims} >= {"higher-with-V", "later-with-V"}
    for claim in claims:
        assert all(word in result.stdout for word in claim["statement"].split())
        assert claim["verdict"] in ("holds", "contradicted", "undecided")
    settings = read_json(tmp_path / "new/out/settings.json")
    assert (settings["rounds"], settings["seeds"]) == ("10", "0, 1")
    assert "written to" in result.stderr


def test_reproduce_with_other_parameters(tmp_path):
    asked = ("reproduce", "rbcs-f", "--figure", "2", "--rounds", "10", "--seeds", "0-1", "--out", tmp_path / "out")
    call(*asked, "--policy", "rbcs-f:alpha=0.2", "--set", "availability=0.6", "--width", "250")
    settings = read_json(tmp_path / "out/settings.json")
    assert settings["changed"] == "availability=0.6, rbcs-f:alpha=0.2"
    assert settings["policies"].startswith("rbcs-f:V=1,alpha=0.2, ")
    assert "parameters were changed" in settings["registered"]
    assert (tmp_path / "out/figure-2.pdf").read_bytes().startswith(b"%PDF")
    for wrong in (("--policy", "oort:x=1"), ("--policy", "rbcs-f:x=1"), ("--set", "x=1")):
        fails(2, "unknown", *asked[:-1], tmp_path / "new", *wrong)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [["reproduce", "rbcs-f"], ["compare", "--policy", RANDOM, "--task", "none"]])
def test_an_interrupted_study_says_what_is_kept(tmp_path, monkeypatch, command):
    monkeypatch.setattr(Trial, "run", raising(KeyboardInterrupt()))
    arguments = (*command, "--seeds", "0-1", "--rounds", "10", "--out", tmp_path)
    fails(130, "interrupted: no run was finished, and nothing is kept", *arguments)
    (tmp_path / "trials").mkdir(exist_ok=True)
    for name in ("a.npz", "b.npz", "c.checkpoint.npz"):
        (tmp_path / "trials" / name).touch()
    message = f"2 finished and 1 unfinished runs are kept in {tmp_path}; run the same command to continue"
    fails(130, f"interrupted: {message}", *arguments)


def test_a_foreign_folder_is_not_drawn_again(tmp_path):
    again = ("compare", "--again", "--out", tmp_path)
    (tmp_path / "settings.json").write_text("{}")
    fails(2, "has no 'scenario'", *again)
    (tmp_path / "settings.json").write_text("[1]")
    fails(2, "holds a list; expected an object", *again)
    fails(2, "expected no policies, scenarios or measures", *again, "--policy", RANDOM)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_the_command_of_a_settings_file_can_be_pasted(tmp_path, monkeypatch):
    """Names with spaces included; finished runs are taken from the folder, and data only make no page."""
    asked = ("reproduce", "rbcs-f", "--figure", "2", "--seeds", "0-1", "--rounds", "10")
    asked += ("--data-only", "--out", "a folder")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [FEDROSTER, *asked])
    call(*asked)
    folder = tmp_path / "a folder"
    assert {path.name for path in folder.iterdir()} >= {"claims.csv", "figure-2.csv"}
    assert not [*folder.glob("*.svg"), *folder.glob("*.html")]
    before = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    pasted = read_json(folder / "settings.json")["command"].replace("fedroster", FEDROSTER, 1)
    subprocess.run(pasted, shell=True, cwd=tmp_path, check=True, capture_output=True, timeout=600)
    assert {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()} == before
