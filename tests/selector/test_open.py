"""One folder for a run: it begins there, and goes on there however the process before has ended."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from federations import LETTERS_LIST, POLICY, after_a_kill, kept, play
from fedroster import COCS, RBCSF, EdgeSelector, Floor, Rules, Selector, Uniform
from fedroster.core.state import load_arrays, save_arrays
from fedroster.errors import ConfigurationError, InfeasibleError, InUseError, LogFileError
from fedroster.folder.chain import files_of, lines_of
from fedroster.folder.events import Left
from fedroster.folder.lines import UndoneLine
from fedroster.record import Log, Record, verify
from fedroster.selector import entered, note, noted, settings_of

KEY = b"0123456789abcdef"


@pytest.fixture(autouse=True)
def often(request, monkeypatch):
    """A state is kept so often, rounds; a test that asks for 100 goes on without one."""
    monkeypatch.setattr("fedroster.folder.record._STATE_ROUNDS", getattr(request, "param", 5))


def opened(folder, policy=POLICY, **options):
    return Selector.open(folder, policy, **{"cohort_size": 3, "seed": 3} | options)


def begun(folder, policy=POLICY, **options):
    return opened(folder, policy, clients=LETTERS_LIST, **options)


def ask(selector):
    return selector.select({client: [1.0, 2.0, 1.0] for client in selector.clients})


@pytest.mark.parametrize("often", [5, 100], indirect=True)
@pytest.mark.parametrize("policy", [POLICY, Floor(), Uniform()], ids=lambda policy: type(policy).__name__)
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(policy, tmp_path):
    whole = begun(tmp_path / "log", policy)
    folder = tmp_path / "log"
    for number in range(4):
        play(whole, 3, seed=number)
        if number == 1:
            whole.leave(["a"], forget=True)
            whole.join(["new"])
            whole.rules = Rules(deny=["b"])
        again = opened(after_a_kill(folder, tmp_path / f"{number}"), policy)
        assert kept(again, tmp_path)[0] == kept(whole, tmp_path)[0]
        assert again.open_rounds() == whole.open_rounds()
        assert again.rules == whole.rules
        assert play(again, 1, seed=9)[0].round == whole.round + 1
        found = verify(tmp_path / f"{number}", policy)
        assert found.is_whole
        assert found.num_decided == again.round


@pytest.mark.parametrize("contexts", [True, False])
@pytest.mark.parametrize("policy", [POLICY, Floor()], ids=lambda policy: type(policy).__name__)
def test_killed_at_every_byte_of_what_a_decision_writes(policy, contexts, tmp_path):
    selector = Selector(
        policy, cohort_size=3, clients=LETTERS_LIST, observers=[Record(tmp_path / "log", contexts=contexts)]
    )
    play(selector, 7)
    before = after_a_kill(tmp_path / "log", tmp_path / "before")
    acknowledged, state = selector.round, kept(selector, tmp_path)[0]
    said = ask(selector)
    (file,) = (tmp_path / "log").glob("*.jsonl")
    size, written = (before / file.name).stat().st_size, file.stat().st_size
    for cut in sorted({size, size + 1, *range(size, written, 97), written - 1, written}):
        copy = after_a_kill(before, tmp_path / "copy")
        shutil.copy(file, copy)  # the line, and not yet the state after it
        os.truncate(copy / file.name, cut)
        fresh = Selector(policy, cohort_size=3)
        again = entered(fresh, record := Record(copy, contexts=contexts), {})
        is_there = again.round > acknowledged
        assert is_there <= (cut == written)
        if not is_there:
            assert kept(again, tmp_path)[0] == state
            assert ask(again) == said
        record.close()
        found = verify(copy, policy)
        assert found.is_whole
        assert found.undone == ((Log(copy).rounds[-1].line - 3,) if cut == written and not is_there else ())
        shutil.rmtree(copy)
    if policy == Floor() and not contexts:  # nothing is acknowledged before the state is kept
        assert load_arrays(next((tmp_path / "log").glob("state-*")), kind="selector")[1]["round"] == selector.round
        assert opened(after_a_kill(tmp_path / "log", tmp_path / "after"), policy).round == selector.round


def test_what_is_asked_for_now_holds_from_now_on(tmp_path):
    first = begun(tmp_path / "log", patience_rounds=9)
    play(first, 3)
    first.observers[0].close()
    again = opened(tmp_path / "log", patience_rounds=4, seed=99)
    assert settings_of(again).patience_rounds == 4
    assert again.clients == tuple(LETTERS_LIST)
    again.observers[0].close()
    with pytest.raises(ConfigurationError, match="cohort_size"):
        opened(tmp_path / "log", cohort_size=5)
    for other in (Uniform(), replace(POLICY, V=6.0)):
        with pytest.raises(LogFileError, match=r"expected (Uniform|RBCSF\(V=6.0)"):
            opened(tmp_path / "log", other)
    assert opened(tmp_path / "log").round == 3
    with pytest.raises(InUseError):
        opened(tmp_path / "log")


def test_members_are_those_that_are_named_now(tmp_path):
    first = begun(tmp_path / "log")
    play(first, 3)
    first.leave(["a"])
    first.observers[0].close()
    events, now = [], ["a", "b", "new"]  # one is back, one joined while the server was down
    again = opened(tmp_path / "log", clients=now, observers=[lambda event, selector: events.append(event)])
    assert set(again.clients) == {"a", "b", "new"}
    (left,) = (event.clients for event in events if isinstance(event, Left))
    assert left == tuple(LETTERS_LIST[2:])  # in the order of their slots
    assert again.participation()["b"] == first.participation()["b"]
    again.observers[0].close()
    assert set(opened(tmp_path / "log").clients) == {"a", "b", "new"}


def test_a_federation_with_edge_servers_too(tmp_path):
    options = {"cohort_size": 4, "clients": LETTERS_LIST}
    first = EdgeSelector.open(tmp_path / "log", COCS(), budgets={"n": 1.5, "s": 2.0}, **options)
    rng = np.random.default_rng(0)
    for _ in range(8):
        cohort = first.select({client: rng.uniform(0.0, 1.0, 2) for client in first.clients})
        first.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    copy = after_a_kill(tmp_path / "log", tmp_path / "copy")
    again = EdgeSelector.open(copy, COCS(), budgets={"n": 1.5, "s": 2.0}, **options)
    rows = {client: [0.5, 0.5] for client in first.clients}
    assert again.select(rows) == first.select(rows)
    again.observers[0].close()
    with pytest.raises(LogFileError, match="edge-selector"):
        opened(copy)


def test_with_a_key_no_name_is_kept_and_names_come_back_as_they_are_said(tmp_path):
    names = [f"clinic-{number}" for number in range(8)]
    options = {"key": KEY, "rules": Rules(deny=["clinic-7"])}
    first = opened(tmp_path / "log", clients=names, **options)
    play(first, 7)
    first.observers[0].close()
    assert b"clinic-" not in b"".join(file.read_bytes() for file in (tmp_path / "log").iterdir())
    with pytest.raises(LogFileError, match="rules"):
        opened(tmp_path / "log", key=KEY, rules=Rules(deny=["clinic-6"])).observers[0].close()
    again = opened(tmp_path / "log", clients=names, **options)
    assert again.participation() == first.participation()
    again.observers[0].close()
    later = opened(tmp_path / "log", **options)
    assert not {*names} & {*later.clients}
    later.join(names[:3])  # an engine's nodes come one by one
    assert set(later.clients) & {*names} == {*names[:3]}
    assert later.participation()["clinic-2"] == first.participation()["clinic-2"]
    later.observers[0].close()
    assert verify(tmp_path / "log", POLICY).undone == ()


def test_a_folder_takes_no_other_key_than_its_own(tmp_path):
    """A log of before, whose first line only says that there is a key, goes on."""
    record = Record(tmp_path / "before", key=KEY)
    record._mark = True
    play(Selector(POLICY, cohort_size=3, clients=LETTERS_LIST, observers=[record]), 3)
    record.close()
    for folder, key in (("before", KEY), ("log", KEY), ("plain", None)):
        begun(tmp_path / folder, key=key).observers[0].close()
    for folder, key in (("log", None), ("log", KEY[::-1]), ("plain", KEY)):
        with pytest.raises(LogFileError, match="key"):
            Record(tmp_path / folder, key=key)


@pytest.mark.parametrize("often", [100], indirect=True)
def test_with_a_key_rules_that_were_never_in_force_open_no_folder(tmp_path, monkeypatch):
    """The call is interrupted between their line and their booking."""
    selector = begun(tmp_path / "log", key=KEY, rules=Rules(deny=["a"]))
    play(selector, 3)

    def interrupted(record, event, before=Record.before):
        before(record, event)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Record, "before", interrupted)
        with pytest.raises(KeyboardInterrupt):
            selector.rules = Rules(deny=["b"])
    play(selector, 3)
    selector.observers[0].close()
    with pytest.raises(LogFileError, match="same rules"):
        opened(tmp_path / "log", key=KEY, rules=Rules(deny=["b"]))
    assert opened(tmp_path / "log", key=KEY, rules=Rules(deny=["a"])).round == 6


@pytest.mark.parametrize("often", [100], indirect=True)
@pytest.mark.parametrize("restarts", [False, True])
def test_with_a_key_a_run_whose_rules_changed_goes_on_under_the_last_ones(restarts, tmp_path):
    folder, first, last = tmp_path / "log", Rules(deny=["a"]), Rules(deny=["b"])
    selector = begun(folder, key=KEY, rules=first)
    play(selector, 3)
    if restarts:
        selector.observers[0].close()
        selector = begun(folder, key=KEY, rules=first)
    for rules in (Rules(deny=["c"]), last):
        selector.rules = rules
        play(selector, 3)
    selector.observers[0].close()
    with pytest.raises(LogFileError, match="same rules"):
        begun(folder, key=KEY, rules=first)
    again = begun(folder, key=KEY, rules=last)
    assert (again.rules, again.participation()) == (last, selector.participation())
    assert ask(again).clients == ask(selector).clients
    assert verify(folder, POLICY).undone == ()


def test_what_a_killed_writer_left_of_a_state_is_removed(tmp_path):
    begun(tmp_path).observers[0].close()
    for name in ("snapshot-000000000001.npz", "state-000000000001.npz"):
        (tmp_path / f".{name}.0123abcd.tmp").write_bytes(b"names and numbers")
    opened(tmp_path).observers[0].close()
    assert not [*tmp_path.glob(".*.tmp")]


def test_old_files_are_dropped_before_a_state_and_verify_says_so(tmp_path):
    selector = Selector(
        POLICY, cohort_size=3, clients=LETTERS_LIST, observers=[record := Record(tmp_path, rotate_bytes=9000)]
    )
    play(selector, 25)
    assert verify(tmp_path, POLICY).is_whole
    dropped = record.drop_before(15)
    assert dropped
    record.close()
    found = verify(tmp_path, POLICY)
    assert not found.is_whole
    assert "not verified" in str(found.starts[0])
    assert found.last_round == 25
    assert 5 < found.first_round <= 15
    assert verify(tmp_path, POLICY, allow_gaps=True).is_whole
    log = Log(tmp_path)
    assert [one.round for one in log.rounds] == [*range(found.first_round, 26)]
    assert set(log.ids_at(25)) >= set(LETTERS_LIST)
    again = opened(tmp_path)
    assert kept(again, tmp_path)[0] == kept(selector, tmp_path)[0]
    again.observers[0].drop_before(99)
    assert ask(again) == ask(selector)
    again.observers[0].close()
    assert opened(tmp_path).round == 26


def test_a_log_of_another_federation_is_refused_however_long_it_is(tmp_path):
    selector = begun(tmp_path / "log")
    play(selector, 6)
    selector.save(tmp_path / "s.npz")
    other = begun(tmp_path / "other", seed=8)
    ask(other)
    for each in (selector, other):
        each.observers[0].close()
    with pytest.raises(LogFileError, match="another federation"):
        Selector.load(tmp_path / "s.npz", POLICY, observers=[record := Record(tmp_path / "other")])
    record.close()
    for state in (tmp_path / "log").glob("s*-*.npz"):
        shutil.copy(state, tmp_path / "other" / "snapshot-000000000999.npz")
        with pytest.raises(LogFileError, match="another federation"):
            opened(tmp_path / "other")


def test_a_log_that_ends_before_its_state_says_so(tmp_path, caplog):
    selector = begun(tmp_path / "log")
    play(selector, 6)
    again = begun(folder := after_a_kill(tmp_path / "log", tmp_path / "copy"))  # keeps its state
    again.observers[0].close()
    (file,) = folder.glob("*.jsonl")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-3]))
    again = begun(folder)
    assert "ends before" in caplog.text
    assert kept(again, tmp_path)[0] == kept(selector, tmp_path)[0]
    ask(again)
    assert not verify(folder, POLICY).is_whole
    assert verify(folder, POLICY, allow_gaps=True).is_whole


def test_other_parameters_of_the_policy_are_an_event(tmp_path):
    selector = begun(tmp_path / "log", RBCSF(V=5.0, beta=0.0))
    play(selector, 60)
    served = selector.participation()
    selector.policy = new = RBCSF(V=2.0, beta=0.25)
    assert selector.below_promise() == ()  # it counts from now on
    again = opened(after_a_kill(tmp_path / "log", tmp_path / "killed"), new)  # at once
    assert again.policy == new
    assert again.participation() == served
    assert play(again, 3) == play(selector, 3)
    again.observers[0].close()
    assert opened(tmp_path / "killed", new).policy == new
    for folder in ("log", "killed"):
        found = verify(tmp_path / folder, RBCSF(V=5.0, beta=0.0))
        assert found.is_whole
        assert found.num_decided == 63
    for wrong in (Uniform(), Floor()):
        with pytest.raises(ConfigurationError):
            selector.policy = wrong
    with pytest.raises(InfeasibleError):
        selector.policy = RBCSF(V=2.0, beta=0.9)
    assert selector.policy == new


def test_notes_of_an_engine_are_kept(tmp_path):
    selector = begun(tmp_path / "log")
    note(selector, "bandwidth", {"a": 1e6, "b": 2e6}, of_all=False)
    ask(selector)
    note(selector, "bandwidth", {"b": 3e6}, of_all=False)
    note(selector, "round", {"c": 2**64 - 1})
    play(selector, 6)
    note(selector, "round", {"d": 1}, is_synced=True)
    selector.leave(["a"], forget=True)
    again = opened(after_a_kill(tmp_path / "log", tmp_path / "copy"))
    for each in (selector, again):
        assert noted(each, "bandwidth") == (1, {"b": 3e6})
        assert noted(each, "round") == (7, {"d": 1})
        assert noted(each, "other") == (0, {})
    (file,) = (tmp_path / "log").glob("*.jsonl")
    assert {"bandwidth", "round"} == {
        line.get("name") for line in map(json.loads, file.read_text().splitlines()) if line["kind"] == "noted"
    }
    assert verify(tmp_path / "copy", POLICY).is_whole


def test_a_line_is_taken_back_once(tmp_path, monkeypatch):
    selector = begun(tmp_path / "log")
    ask(selector)
    with monkeypatch.context() as broken:
        broken.setattr("fedroster.selector.guard.Guard.see", lambda *_: 1 / 0)  # after the line is written
        with pytest.raises(ZeroDivisionError):
            ask(selector)
    with monkeypatch.context() as full:
        full.setattr("fedroster.folder.record.write_snapshot", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        full.setattr("fedroster.folder.chain.Writer.is_full", True)
        for _ in range(2):
            with pytest.raises(OSError, match="full"):
                ask(selector)
    ask(selector)
    assert [line.content.of for line in lines_of(tmp_path / "log") if isinstance(line.content, UndoneLine)] == [4]
    assert [played.round for played in Log(tmp_path / "log").rounds] == [1, 2]


def test_a_forged_beginning_or_place_is_no_traceback(tmp_path):
    for _ in range(2):
        first = EdgeSelector.open(tmp_path / "log", COCS(), budgets={"n": 1.5}, cohort_size=2, clients=["a", "b"])
        first.observers[0].close()
    for state in (tmp_path / "log").glob("*.npz"):
        arrays, header = load_arrays(state, kind="edge-selector")
        save_arrays(state, dict(arrays), header | {"place": 1.0}, kind="edge-selector")
    again = EdgeSelector.open(tmp_path / "log", COCS(), budgets={"n": 1.5}, cohort_size=2)  # from the lines alone
    assert again.clients == ("a", "b")
    again.observers[0].close()
    for state in (tmp_path / "log").glob("*.npz"):
        state.unlink()
    (file,) = files_of(tmp_path / "log")
    begun_line = json.loads(file.read_bytes().splitlines()[0])
    del begun_line["settings"]["budgets"]
    file.write_text(json.dumps(begun_line) + "\n")
    with pytest.raises(LogFileError, match="budgets"):
        EdgeSelector.open(tmp_path / "log", COCS(), budgets={"n": 1.5}, cohort_size=2)
