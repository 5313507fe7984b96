"""One folder for a run: it begins there, and goes on there however the process before has ended."""

import os
import shutil

import numpy as np
import pytest

from federations import LETTERS_LIST, POLICY, kept, play
from fedroster import COCS, EdgeSelector, Floor, Rules, Selector, Uniform
from fedroster.errors import ConfigurationError, InUseError, LogFileError
from fedroster.record import Log, Record, verify


@pytest.fixture(autouse=True, params=[5, 100])
def often(request, monkeypatch):
    monkeypatch.setattr("fedroster.selector.selector._STATE_ROUNDS", request.param)


def opened(folder, policy=POLICY, **options):
    return Selector.open(folder, policy, **{"cohort_size": 3, "clients": LETTERS_LIST, "seed": 3} | options)


def after_a_kill(folder, place):
    """What a killed process has left: its folder as it is, which is not held."""
    return shutil.copytree(folder, place, ignore=shutil.ignore_patterns(".lock*"))


@pytest.mark.parametrize("policy", [POLICY, Floor(), Uniform()], ids=lambda policy: type(policy).__name__)
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(policy, tmp_path):
    whole = opened(tmp_path / "log", policy)
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


def test_next_decisions_are_the_same_at_any_byte_of_a_torn_end(tmp_path):
    selector = opened(tmp_path / "log")
    play(selector, 7)
    (file,) = (tmp_path / "log").glob("*.jsonl")
    size, acknowledged = file.stat().st_size, selector.round
    selector.select({client: [1.0, 1.0, 1.0] for client in selector.clients})
    written = file.stat().st_size
    for cut in (size, size + 1, (size + written) // 2, written - 1):
        copy = after_a_kill(tmp_path / "log", tmp_path / str(cut))
        os.truncate(copy / file.name, cut)
        again = opened(copy)
        assert again.round == acknowledged
        row = {client: [1.0, 1.0, 1.0] for client in again.clients}
        assert again.select(row).clients == selector.open_rounds()[selector.round]


def test_what_is_asked_for_now_holds_from_now_on(tmp_path):
    first = opened(tmp_path / "log", patience_rounds=9)
    play(first, 3)
    first.observers[0].close()
    again = opened(tmp_path / "log", patience_rounds=4, clients=["other"], seed=99)
    assert again.options["patience_rounds"] == 4
    assert "other" not in again.clients
    again.observers[0].close()
    with pytest.raises(ConfigurationError, match="cohort_size is 5, and the folder's run has 3"):
        opened(tmp_path / "log", cohort_size=5)
    with pytest.raises(LogFileError, match="expected Uniform"):
        opened(tmp_path / "log", Uniform())
    assert opened(tmp_path / "log").round == 3
    with pytest.raises(InUseError):
        opened(tmp_path / "log")


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
        opened(copy, COCS())


def test_a_log_of_hashes_cannot_be_gone_on_from(tmp_path):
    key = b"0123456789abcdef"
    record = Record(tmp_path, key=key)
    play(Selector(POLICY, cohort_size=3, clients=LETTERS_LIST, observers=[record]), 2)
    record.close()
    with pytest.raises(LogFileError, match="hashes in place of ids"):
        opened(tmp_path)
    with pytest.raises(ConfigurationError, match="state_rounds = 0 with a key"):
        Record(tmp_path / "other", key=key, state_rounds=3)
    assert len(Log(tmp_path).rounds) == 2
