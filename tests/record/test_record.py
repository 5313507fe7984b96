"""The record as a federation runs: what it says, and that a selector can be rebuilt from it alone."""

import copy
import functools
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from federations import LETTERS_LIST, PEERS, POLICY, make, play
from fedroster import RBCSF, FailureRules, Floor, Record, Rules, Selector
from fedroster.errors import ConfigurationError, LogFileError, UnknownNameError
from fedroster.folder.lines import schema
from fedroster.policies import DivFL
from fedroster.record import Log, verify
from fedroster.record.export import write_csv
from frozen.door import full_disk


def recorded(folder, policy=POLICY, *, clients=LETTERS_LIST, cohort_size=3, selector=None, **options):
    record = Record(folder, **options)
    return Selector(policy, cohort_size=cohort_size, clients=clients, observers=[record], **selector or {}), record


def next_cohorts(selector, rounds=5):
    rng = np.random.default_rng(3)
    return [selector.select({c: rng.uniform(0.5, 2.0, 3) for c in selector.clients}).clients for _ in range(rounds)]


def play_with_changes(selector, rounds):
    """Rounds between which clients join, leave and are forgotten, and settings change."""
    play(selector, rounds)
    selector.leave(["b", "c"])
    selector.join(["new", 7])
    play(selector, rounds, seed=1)
    selector.leave(["new"], forget=True)
    selector.longest_s = 2.0
    selector.join(["c", "newer"])
    play(selector, rounds, seed=2)


@pytest.mark.parametrize("policy", [POLICY, *PEERS], ids=lambda policy: type(policy).__name__)
def test_contexts_of_the_cohorts_are_enough_for_most_policies(policy, tmp_path):
    selector, record = recorded(tmp_path, policy, contexts=False)
    play_with_changes(selector, 8)
    record.close()
    assert next_cohorts(Log(tmp_path).selector(policy)) == next_cohorts(selector)


def test_signatures_are_in_the_log_and_the_policy_learns_them_of_it_again(tmp_path):
    selector, record = recorded(tmp_path, DivFL(), selector={"num_features": None})
    selector.observe(selector.select().round, dropped=[], times_s={})
    assert Log(tmp_path).lacks == "The policy learns from signatures of updates, and none were told."
    rng = np.random.default_rng(5)
    for _ in range(12):
        cohort = selector.select()
        signatures = {client: rng.standard_normal(64) for client in cohort.clients[1:]}
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0), signatures=signatures)
    record.close()
    log = Log(tmp_path)
    assert log.lacks == ""
    found = verify(tmp_path, DivFL())
    assert found.is_whole
    assert (found.num_decided, found.differences) == (13, ())
    again = log.selector(DivFL())
    assert [again.select().clients for _ in range(4)] == [selector.select().clients for _ in range(4)]


def test_a_round_says_who_was_there_who_paused_and_what_came(tmp_path):
    selector = make(
        ["a", "b", "c"],
        policy=RBCSF(V=1.0, beta=0.1),
        num_features=None,
        observers=[Record(tmp_path)],
        failures=FailureRules(True, 1, 5),
    )
    cohort = selector.select({"c": [2.0], "a": [1.0]})
    selector.observe(cohort.round, failed=["a"], times_s={"c": 4.0}, round_s=7.0)
    selector.select()
    log = Log(tmp_path)
    first, second = log.rounds
    assert log.ids == ["a", "b", "c"]
    assert (first.round, first.places, first.round_s) == (1, 2, 7.0)
    assert first.members.all()
    assert first.available.tolist() == [True, False, True]
    np.testing.assert_array_equal(first.contexts, [[1.0], [np.nan], [2.0]])
    assert first.chosen.tolist() == [0, 2]
    assert first.status.tolist() == [3, 0]
    np.testing.assert_array_equal(first.exchange_time_s, [np.nan, 4.0])
    np.testing.assert_array_equal(first.learned_s, [7.0, 4.0])
    assert second.excluded["paused"].tolist() == [0]
    assert second.status.tolist() == [255, 255]
    assert second.owed.shape == (3,)
    assert np.isfinite(second.expected_s).all()
    assert log.find(2).round == 2
    with pytest.raises(UnknownNameError, match=r"round 9 is not in the log; expected one of 1\.\.2"):
        log.find(9)


@pytest.mark.parametrize("answers", [True, False])
def test_a_round_that_cannot_be_booked_again_is_not_lost(answers, tmp_path):
    selector, record = recorded(tmp_path / "log", Floor(), contexts=False)
    play(selector, 3)
    selector.save(tmp_path / "s.npz")
    if answers:
        play(selector, 1)
    else:
        selector.select({client: [1.0, 2.0, 1.0] for client in selector.clients})
    record.close()
    with pytest.raises(LogFileError, match="contexts of all clients"):
        Selector.load(tmp_path / "s.npz", Floor(), observers=[record := Record(tmp_path / "log", contexts=False)])
    record.close()
    again = Selector.open(tmp_path / "log", Floor(), cohort_size=3)
    assert again.participation() == selector.participation()
    play(again, 1, seed=5)
    assert [each.round for each in Log(tmp_path / "log").rounds] == [1, 2, 3, 4, 5]


def test_a_line_that_is_taken_back_when_its_file_is_full_leaves_a_log_that_goes_on(tmp_path, monkeypatch):
    """And that has no gap where the process ends after it."""
    options = {"cohort_size": 3, "key": b"0123456789abcdef", "clients": LETTERS_LIST}
    Selector.open(tmp_path, POLICY, **options).observers[0].close()
    selector = Selector.open(tmp_path, POLICY, **options)  # whose state is kept
    play(selector, 2)
    with monkeypatch.context() as broken:
        broken.setattr("fedroster.selector.guard.Guard.see", lambda *_: 1 / 0)  # after the line is written
        with pytest.raises(ZeroDivisionError):
            play(selector, 1)
        broken.setattr("fedroster.folder.record.write_snapshot", lambda *_: 1 / 0)
        broken.setattr("fedroster.folder.chain.Writer.is_full", True)
        with pytest.raises(ZeroDivisionError):
            play(selector, 1)
    selector.observers[0].close()
    play(Selector.open(tmp_path, POLICY, **options), 1)
    found = verify(tmp_path, POLICY)
    assert (found.is_whole, found.num_rounds, len(found.undone)) == (True, 3, 1)


def test_on_a_full_disk_rounds_may_go_on_and_the_log_says_that_it_has_a_gap(tmp_path, caplog):
    selector, record = recorded(tmp_path / "log", on_error="warn")
    play(selector, 3)
    with full_disk(tmp_path, room=10):
        play(selector, 2)
    assert "is not in the log" in caplog.text
    selector.save(tmp_path / "s.npz")
    record.close()
    again = Selector.load(tmp_path / "s.npz", POLICY, observers=[Record(tmp_path / "log")])
    play(again, 2)
    log = Log(tmp_path / "log")
    assert [each.round for each in log.rounds] == [1, 2, 3, 6, 7]
    found = verify(tmp_path / "log", POLICY)
    assert not found.is_whole
    assert found.num_decided == 5
    assert str(found.starts[0]).startswith("rounds 4 to 5 are missing: from line ")
    assert verify(tmp_path / "log", POLICY, allow_gaps=True).is_whole
    assert next_cohorts(log.selector(POLICY)) == next_cohorts(again)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"contexts": "yes"}, "contexts is 'yes'"),
        ({"key": b"short"}, "expected at least 16 secret bytes"),
        ({"rotate_bytes": 10}, "rotate_bytes is 10"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
    ],
)
def test_arguments_are_checked(options, said, tmp_path):
    with pytest.raises(ConfigurationError, match=said):
        Record(tmp_path, **options)


@pytest.mark.parametrize("changed", [False, True])
def test_a_killed_process_goes_on_under_rules_that_a_key_hides(changed, tmp_path):
    options = {"key": b"0123456789abcdef", "selector": {"rules": Rules(deny=["a"])}}
    selector, record = recorded(tmp_path / "log", **options)
    play(selector, 3)
    selector.save(tmp_path / "state.npz")
    if changed:  # the log has the hash of these rules only, and the file does not have them
        selector.rules = Rules(deny=["b"])
    play(selector, 2)
    record.close()
    assert b"denied by ..." in b"".join(file.read_bytes() for file in (tmp_path / "log").glob("*.jsonl"))
    load = functools.partial(Selector.load, tmp_path / "state.npz", POLICY)
    if changed:
        with pytest.raises(LogFileError, match="has a hash of rules"):
            load(observers=[record := Record(tmp_path / "log", key=options["key"])])
        record.close()
    rules = Rules(deny=["b" if changed else "a"])
    told = {"rules": rules} if changed else {}
    again = load(observers=[Record(tmp_path / "log", key=options["key"])], **told)
    assert (again.rules, again.round) == (rules, 5)
    play(again, 1)
    found = verify(tmp_path / "log", POLICY)
    assert (found.is_whole, found.num_rounds) == (True, again.round)  # the chain is followed to its end
    assert "the rules name clients" in found.unverified


def test_a_killed_process_goes_on_with_clients_that_a_key_hides(tmp_path):
    options = {"key": b"0123456789abcdef"}
    selector, record = recorded(tmp_path / "log", **options)
    play(selector, 3)
    selector.leave(["b"])
    selector.save(tmp_path / "state.npz")
    selector.leave(["a", "c"])
    selector.join(["b", "a"])
    play(selector, 2)
    selector.leave(["d"], forget=True)
    record.close()
    again = Selector.load(tmp_path / "state.npz", POLICY, observers=[record := Record(tmp_path / "log", **options)])
    assert again.round == 5
    assert again.participation() == selector.participation()
    again.select({client: [1.0] * 3 for client in again.clients})
    again.join(["stranger"])
    play(again, 1)
    record.close()
    old = Selector.load(tmp_path / "state.npz", POLICY, observers=[Record(tmp_path / "log", **options)])
    assert old.round == 7
    assert {*again.clients} - {*old.clients} == {"stranger"}  # whom the file does not know
    old.join(["stranger"])
    assert old.participation() == again.participation()
    play(old, 1)
    assert verify(tmp_path / "log", POLICY).is_whole


def test_a_record_is_not_copied(tmp_path):
    with pytest.raises(ConfigurationError, match="one writer"):
        copy.deepcopy(Record(tmp_path))


def test_lines_are_read_by_people(tmp_path):
    selector = make(["a", "b"], num_features=None, observers=[Record(tmp_path)])
    selector.select()
    begun, joined, decided = [json.loads(line) for line in next(tmp_path.glob("*.jsonl")).read_text().splitlines()]
    assert begun["policy"] == repr(POLICY)
    assert joined["clients"] == ["a", "b"]
    assert decided["chosen"] == [0, 1]
    assert "available" not in decided  # all were
    assert len(decided["by"]) == 16


def test_without_contexts_the_log_has_those_of_the_cohort_and_what_is_expected_of_it(tmp_path):
    selector, _ = recorded(tmp_path, contexts=False)
    play(selector, 8)
    (file,) = tmp_path.glob("*.jsonl")
    decided = [json.loads(line) for line in file.read_text().splitlines() if '"kind":"decided"' in line]
    assert len(decided) == 8
    assert all(len(each["expected_s"]) == len(each["owed"]) == len(each["chosen"]) for each in decided)
    rounds = Log(tmp_path).rounds
    assert [each.contexts for each in rounds] == [None] * 8
    assert [each.features.shape for each in rounds] == [(len(each.chosen), 3) for each in rounds]
    assert verify(tmp_path, POLICY).is_whole


def test_all_files_of_a_record_are_their_owners_alone(tmp_path):
    old = os.umask(0)
    try:
        selector, _ = recorded(tmp_path / "log", rotate_bytes=4096)
        play(selector, 6)
        selector.save(tmp_path / "s.npz")
        Selector.load(tmp_path / "s.npz", POLICY, observers=[Record(tmp_path / "new")])
    finally:
        os.umask(old)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {".jsonl", ".npz", ".json", ""} <= {file.suffix for file in files}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_what_a_log_cannot_hold_is_not_booked(tmp_path):
    now = 5.0
    selector = Selector(POLICY, cohort_size=3, clients=LETTERS_LIST, clock=lambda: now, observers=[Record(tmp_path)])
    play(selector, 2)
    before = selector.clients, selector.round, selector.participation()
    with pytest.raises(LogFileError, match="surrogates"):
        selector.join(["\udcff"])
    now = 1e300
    with pytest.raises(LogFileError, match="at_s"):
        selector.select({"a": [1.0, 1.0, 1.0]})
    now = 6.0
    assert (selector.clients, selector.round, selector.participation()) == before
    play(selector, 2)
    assert verify(tmp_path, POLICY).num_decided == 4


def test_a_checker_of_a_few_lines_agrees_on_the_head(tmp_path):
    selector, _ = recorded(tmp_path, rotate_bytes=4096)
    play(selector, 12)
    script = Path(__file__).parents[2] / "examples" / "record" / "check_chain.py"
    found = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == Log(tmp_path).head


def test_the_schema_of_lines_is_published():
    published = Path(__file__).parents[2] / "docs" / "reference" / "log-schema.json"
    now = json.dumps(schema())
    assert published.read_text() == now + "\n", f"it is {now} now"


def test_a_table_has_all_contexts_where_nobody_was_there_at_first(tmp_path):
    selector, _ = recorded(tmp_path / "log", Floor(), clients=["a", "b"], cohort_size=1)
    assert selector.select({}).is_empty
    selector.select({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    write_csv(Log(tmp_path / "log"), tmp_path / "table.csv")
    head, *rows = (line.split(",") for line in (tmp_path / "table.csv").read_text().splitlines())
    assert head[-3:] == ["context_0", "context_1", "context_2"]
    assert [row[-3:] for row in rows] == [[""] * 3, [""] * 3, ["1.0", "2.0", "3.0"], ["4.0", "5.0", "6.0"]]
