"""What survives on disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from federations import LETTERS, POLICY, make, play
from fedroster import RBCSF, FailureRules, Selector
from fedroster.errors import ConfigurationError, FolderError
from fedroster.selector import settings_of


def mixed(policy=POLICY, **options):
    """A selector with a history: joins, leaves, freed slots, open rounds, ids of both types."""
    selector = make([*LETTERS, 1, "one", 2], policy=policy, num_features=3, cohort_size=4, seed=11, **options)
    play(selector, 9, seed=1)
    selector.leave(["j", "c", 1])
    selector.leave(["h", "b", "e"], forget=True)
    play(selector, 3, seed=2)
    return selector


def test_ids_of_any_kind_survive(tmp_path):
    ids = ["", "a b", "é\u20ac\U0001f600", 'quote"', "back\\slash", "\x00.", -1, 2**70, "null", "\udcff"]
    make(ids).save(tmp_path / "state.npz")
    assert Selector.load(tmp_path / "state.npz", POLICY).clients == tuple(ids)


# --- other rules after a restart ---------------------------------------------------------------------------------


def test_rules_of_a_restart_hold_in_place_of_the_files(tmp_path):
    path, rules = tmp_path / "state.npz", FailureRules(learned=False, pause_after=1, longest_pause=2)
    mixed().save(path)
    told = {"patience_rounds": 5, "longest_s": 9.0, "guarded": False, "longest_absence": None, "failures": rules}
    now = {**told, "failures": (False, 1, 2)}
    assert settings_of(Selector.load(path, POLICY)) == settings_of(mixed())
    for name, value in told.items():
        loaded = Selector.load(path, POLICY, **{name: value})
        assert settings_of(loaded) == replace(settings_of(mixed()), **{name: now[name]})
    Selector.load(path, POLICY, **told).save(path)
    assert settings_of(Selector.load(path, POLICY)) == replace(settings_of(mixed()), **now)


def test_a_shorter_patience_gives_old_rounds_up_and_shorter_pauses_end(tmp_path):
    path = tmp_path / "state.npz"
    selector = make(cohort_size=3, failures=FailureRules(pause_after=1, longest_pause=50))
    for number in range(1, 7):
        selector.select(["a"] if number < 5 else ["b"])
        if number < 4:
            selector.observe(number, failed=["a"])
    selector.observe(4, failed=["a"])
    assert selector.paused() == {"a": 8}
    selector.save(path)
    assert sorted(Selector.load(path, POLICY, patience_rounds=3).open_rounds()) == [5, 6]
    assert not Selector.load(path, POLICY, patience_rounds=1).open_rounds().keys() - {6}
    brief = Selector.load(path, POLICY, failures=FailureRules(pause_after=1, longest_pause=2))
    assert brief.paused() == {"a": 2}
    assert not Selector.load(path, POLICY, failures=FailureRules(pause_after=0)).paused()
    brief.save(path)
    assert Selector.load(path, POLICY).paused() == {"a": 2}


@pytest.mark.parametrize("rule", [{"longest_s": -1.0}, {"failures": 3}, {"patience_rounds": 0}, {"guarded": "no"}])
def test_wrong_rules_are_refused_at_a_restart(tmp_path, rule):
    make().save(tmp_path / "state.npz")
    with pytest.raises(ConfigurationError, match=next(iter(rule))):
        Selector.load(tmp_path / "state.npz", POLICY, **rule)
    with pytest.raises(ConfigurationError, match="cohort_size is no option; expected some of patience_rounds"):
        Selector.load(tmp_path / "state.npz", POLICY, cohort_size=9, **rule)


# --- what becomes of the file itself -----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from fedroster import RBCSF, Selector

selector = Selector.load(sys.argv[1], RBCSF(V=5.0, beta=0.1))
os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
selector.save(sys.argv[1])
"""


def test_the_next_save_removes_what_a_killed_one_left(tmp_path):
    path = tmp_path / "state.npz"
    selector = mixed()
    selector.save(path)
    before = path.read_bytes()
    for other in (".other.npz.0123abcd.tmp", ".state.npz.0123abcd.tmp.keep"):
        (tmp_path / other).write_bytes(b"not ours")
    assert subprocess.run([sys.executable, "-c", KILLED, path]).returncode < 0
    assert path.read_bytes() == before
    assert len(list(tmp_path.glob(".state.npz.????????.tmp"))) == 1
    selector.save(path)
    assert not list(tmp_path.glob(".state.npz.????????.tmp"))
    assert len(list(tmp_path.glob(".*.0123abcd.*"))) == 2


def test_rights_and_links_stay(tmp_path):
    real, link = tmp_path / "disk" / "real.npz", tmp_path / "link.npz"
    real.parent.mkdir()
    selector = mixed()
    selector.save(real)
    real.chmod(0o640)
    link.symlink_to(real)
    linked = Selector.load(link, POLICY)
    play(linked, 2)
    linked.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert Selector.load(real, POLICY).round == 14
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["disk", "link.npz"]


def test_the_folder_is_synced_after_the_new_name_is_there(tmp_path, monkeypatch):
    selector, path, seen = make(), tmp_path / "state.npz", []
    sync = os.fsync

    def fsync(number):
        seen.append((str(Path(f"/proc/self/fd/{number}").readlink()), path.exists()))
        sync(number)

    monkeypatch.setattr(os, "fsync", fsync)
    selector.save(path)
    assert len(seen) == 2
    assert seen[0][0].endswith(".tmp")
    assert not seen[0][1]  # its content is on the disk before it has its name
    assert seen[1] == (str(tmp_path), True)


def test_a_missing_folder_is_an_error_of_ours_that_names_it(tmp_path):
    with pytest.raises(FolderError, match=r"there is no folder '.*none'"):
        Selector(RBCSF(), cohort_size=1, clients=["a"]).save(tmp_path / "none" / "state.npz")
