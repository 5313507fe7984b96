"""What an auditor sees: a whole chain, decisions that are the policy's, and what only an anchor shows."""

import hashlib
import json

import numpy as np
import pytest

from federations import LETTERS_LIST, POLICY, play
from fedroster import (
    COCS,
    RBCSF,
    EdgeSelector,
    Floor,
    PartialPooling,
    Record,
    Rules,
    Selector,
    Uniform,
    make_scenario,
    simulate,
)
from fedroster.core.locks import FolderLock
from fedroster.errors import LogFileError, RoundNotBegunError
from fedroster.folder.chain import FIRST, files_of
from fedroster.record import Log, verify
from fedroster.record.following import Following
from fedroster.record.simulated import SimulationRecord
from fedroster.record.why import why


def recorded(folder, policy=POLICY, rounds=12, **options):
    record = Record(folder, **options)
    selector = Selector(policy, cohort_size=3, clients=LETTERS_LIST, observers=[record])
    play(selector, rounds)
    selector.leave(["a"], forget=True)
    selector.join(["k", "l"])
    selector.longest_s = 1.5
    play(selector, 3, seed=1)
    record.close()
    return selector


def rewritten(folder, change):
    """Change a log as one does who can compute digests: the whole chain is made again."""
    (file,) = files_of(folder)
    contents = [json.loads(line) for line in file.read_bytes().splitlines()]
    change(contents)
    before, lines = FIRST, []
    for number, content in enumerate(contents, 1):
        text = json.dumps({**content, "line": number, "before": before}, separators=(",", ":")).encode()
        before = hashlib.sha256(text).hexdigest()
        lines.append(text + b"\n")
    file.write_bytes(b"".join(lines))


BINDING = {
    "groups": Rules(groups={"g": {"clients": ["[a-d]"], "least": 1, "most": 1}}),
    "priorities": Rules(priorities={"[a-b]": 2, "[c-e]": 1}),
    "least cohort": Rules(least_cohort=2, least_separation=2),
}


@pytest.mark.parametrize("name", BINDING)
def test_decisions_under_rules_that_bind_are_made_again(name, tmp_path):
    rules = BINDING[name]
    policy = RBCSF(V=5.0, beta=0.0)
    selector = Selector(policy, cohort_size=3, clients=LETTERS_LIST, rules=rules, observers=[Record(tmp_path)])
    play(selector, 12)
    found = verify(tmp_path, policy)
    assert (found.is_whole, found.num_decided) == (True, 12)
    assert Log(tmp_path).selector(policy).participation() == selector.participation()
    rewritten(tmp_path, other_cohort)
    assert not verify(tmp_path, policy).is_whole


def other_cohort(contents):
    line = next(content for content in contents if content["kind"] == "decided" and content["round"] == 5)
    rows = np.reshape(line["contexts"], (-1, 3))
    asked = line.get("asked", list(range(10)))
    away = next(slot for slot in asked if slot not in line["chosen"])
    line["chosen"] = sorted([*line["chosen"][1:], away])
    line["features"] = line["believed"] = rows[[asked.index(slot) for slot in line["chosen"]]].ravel().tolist()


def other_time(contents):
    line = next(content for content in contents if content["kind"] == "told" and content["round"] == 5)
    line["time_s"] = [None if time is None else 9.0 * time for time in line["time_s"]]


def other_debt(contents):
    line = next(content for content in contents if content["kind"] == "decided" and content["round"] == 6)
    line["owed"][0] += 1.0


def other_reason(contents):
    line = next(content for content in contents if content["kind"] == "decided" and content["round"] == 6)
    line["excluded"] = {"denied": [1]}


@pytest.mark.parametrize("change", [other_cohort, other_time, other_debt, other_reason])
def test_a_log_that_was_written_anew_is_another_policys(change, tmp_path):
    recorded(tmp_path)
    rewritten(tmp_path, lambda contents: None)
    assert verify(tmp_path, POLICY).is_whole
    rewritten(tmp_path, change)
    found = verify(tmp_path, POLICY)
    assert found.differences or found.flaw
    assert not found.is_whole


@pytest.mark.parametrize(("by", "is_whole"), [(1e-13, True), (1e-3, False)])
def test_last_digits_may_differ_as_on_another_processor(by, is_whole, tmp_path):
    def other_digits(contents):
        for line in contents:
            if line["kind"] == "decided" and line["round"] > 4:
                line["owed"] = [value * (1.0 + by) for value in line["owed"]]
                line["state"] = "0" * 32

    recorded(tmp_path)
    rewritten(tmp_path, other_digits)
    found = verify(tmp_path, POLICY)
    assert found.differences
    assert found.largest == pytest.approx(by, rel=0.01)
    assert found.is_whole == is_whole


def test_a_decision_without_the_links_that_its_selector_has_is_refused(tmp_path):
    options = {"cohort_size": 4, "clients": LETTERS_LIST, "observers": [Record(tmp_path)]}
    EdgeSelector(COCS(), budgets={"n": 1.5, "s": 2.0}, **options).select({each: [0.5, 0.5] for each in LETTERS_LIST})
    assert verify(tmp_path, COCS()).is_whole
    rewritten(tmp_path, lambda contents: contents[-1].pop("links"))
    assert "round 1 has no links to edge servers" in verify(tmp_path, COCS()).flaw
    with pytest.raises(LogFileError, match="round 1 has no links"):
        Log(tmp_path).selector(COCS())


def test_without_contexts_a_round_that_could_not_begin_is_no_difference(tmp_path):
    record = Record(tmp_path, contexts=False)
    selector = Selector(POLICY, cohort_size=3, clients=LETTERS_LIST, rules=Rules(least_cohort=2), observers=[record])
    play(selector, 2)
    with pytest.raises(RoundNotBegunError):
        selector.select({"a": [1.0, 2.0, 1.0]})
    play(selector, 2)
    record.close()
    found = verify(tmp_path, POLICY)
    assert (found.is_whole, found.differences, found.num_not_begun) == (True, (), 1)


@pytest.mark.parametrize("seed", [-1, "1", 10**2000])
def test_a_seed_that_is_none_is_refused(seed, tmp_path):
    recorded(tmp_path)
    rewritten(tmp_path, lambda contents: contents[0]["settings"].update(seed=seed))
    with pytest.raises(LogFileError, match="seed"):
        Log(tmp_path)


def test_another_policy_with_the_same_decisions_is_named(tmp_path):
    recorded(tmp_path)
    assert "the log is of RBCSF(V=5.0" in verify(tmp_path, RBCSF(V=6.0, beta=0.1)).flaw


def test_what_a_chain_cannot_show_an_anchor_does_though_the_log_went_on(tmp_path):
    recorded(tmp_path)
    old = Log(tmp_path)
    again = old.selector(POLICY, observers=[record := Record(tmp_path)])
    play(again, 2)
    record.close()
    found = verify(tmp_path, POLICY, head=old.head)
    assert found.is_whole
    assert found.anchor == old.num_lines < found.num_lines
    head = found.head
    rewritten(tmp_path, lambda contents: contents.pop())
    assert verify(tmp_path, POLICY).is_whole
    found = verify(tmp_path, POLICY, head=head)
    assert (found.anchor, found.is_whole) == (0, False)


def test_a_log_that_begins_late_has_a_state_beside_it_and_a_change_of_it_is_found(tmp_path):
    selector = recorded(tmp_path / "first")
    selector.save(tmp_path / "s.npz")
    again = Selector.load(tmp_path / "s.npz", POLICY, observers=[Record(tmp_path / "log")])
    play(again, 2)
    found = verify(tmp_path / "log", POLICY)
    assert not found.is_whole
    assert [(start.line, start.round) for start in found.starts] == [(1, 15)]
    assert verify(tmp_path / "log", POLICY, allow_gaps=True).is_whole
    log = Log(tmp_path / "log")
    assert [(each.round, each.members.sum()) for each in log.rounds] == [(16, 11), (17, 11)]
    assert play(log.selector(POLICY), 3) == play(again, 3)
    start = next((tmp_path / "log").glob("snapshot-*.npz"))
    start.write_bytes(start.read_bytes()[:-1] + b"x")
    assert "was changed" in verify(tmp_path / "log", POLICY).flaw


def played(folder, policy, scenario="rbcs-f/table-1", rounds=15, **settings):
    environment = make_scenario(scenario, settings)
    log = SimulationRecord(
        folder, policy, environment.spec, policy_text="?", scenario=scenario, settings=settings, seed=3
    )
    rounds = [
        log.played(each) or each for each in simulate(policy, environment, rounds=rounds, seed=3, witness=log.decided)
    ]
    log.close()
    return rounds


def test_a_damaged_log_of_a_simulation_is_not_held(tmp_path):
    (tmp_path / "rounds-000000000001.jsonl").write_bytes(b"damaged\n")
    with pytest.raises(LogFileError) as kept:  # which keeps what the error went through
        played(tmp_path, Floor(), rounds=1)
    FolderLock(tmp_path).release()
    assert "no line of a log" in str(kept.value)


@pytest.mark.parametrize(
    ("policy", "scenario"),
    [
        (Floor(), "rbcs-f/table-1"),
        (RBCSF(), "rbcs-f/table-1"),
        (Uniform(), "rbcs-f/table-1"),
        (COCS(), "cocs/mnist"),
        (PartialPooling(), "cocs/mnist-geometric"),
    ],
    ids=lambda value: str(value).partition("(")[0],
)
def test_a_simulation_writes_the_same_log(policy, scenario, tmp_path):
    rounds = played(tmp_path, policy, scenario)
    log = Log(tmp_path)
    assert log.header.of == "simulation"
    assert (log.header.scenario.name, log.header.scenario.settings) == (scenario, {})
    at_s = 0.0
    for one, other in zip(rounds, log.rounds, strict=True):
        assert other.at_s == at_s
        np.testing.assert_array_equal(other.chosen, one.feedback.client)
        np.testing.assert_array_equal(other.exchange_time_s, one.feedback.exchange_time_s)
        np.testing.assert_array_equal(other.status, one.feedback.status)
        assert (np.isnan(other.round_s) and one.time_s == 0.0) or other.round_s == one.time_s
        assert other.deadline_s == one.outcome.deadline_s
        at_s += one.time_s
    found = verify(tmp_path, policy)
    assert found.is_whole
    assert found.num_decided == 15
    rewritten(tmp_path, lambda contents: contents[3].update(time_s=[5.0] * len(contents[3]["time_s"])))
    if policy not in (Uniform(), COCS(), PartialPooling()):
        assert not verify(tmp_path, policy).is_whole


def test_a_simulated_policy_that_knows_the_truth_is_not_verified(tmp_path):
    from fedroster.policies import OmniscientP3

    played(tmp_path, OmniscientP3())
    found = verify(tmp_path, OmniscientP3())
    assert "true times" in found.unverified
    assert found.is_whole


def test_why_of_one_round_begins_with_the_newest_state_before_it(tmp_path, monkeypatch):
    recorded(tmp_path / "one")
    recorded(tmp_path / "files", rotate_bytes=4096)
    taken, take = [], Following.take
    monkeypatch.setattr(
        Following, "take", lambda following, line: (taken.append(line.number), take(following, line))[1]
    )
    for client in ("b", "k"):
        said = why(Log(tmp_path / "files"), client, 14, POLICY)
        assert min(taken) > 10
        assert said == why(Log(tmp_path / "one"), client, 14, POLICY)
        assert "because" in said
        taken.clear()


def test_an_answer_of_a_client_that_was_not_chosen_is_refused(tmp_path):
    recorded(tmp_path)

    def without_cohort(contents):
        next(content for content in contents if content["kind"] == "decided" and content["round"] == 5)["chosen"] = []

    rewritten(tmp_path, without_cohort)
    with pytest.raises(LogFileError, match="not chosen"):
        Log(tmp_path)
    assert verify(tmp_path, POLICY).flaw
