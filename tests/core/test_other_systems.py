"""Windows and macOS, simulated: text mode, files that another program holds, what is left over, the drive's cache."""

import contextlib
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from federations import answered
from fedroster import Floor, Record, Selector
from fedroster.core import state
from fedroster.core.state import remove_leftovers, sync_file, write_text_atomically
from fedroster.folder import chain
from fedroster.record import Log

O_BINARY = 1 << 28


@pytest.fixture
def text_mode(monkeypatch):
    """A file that is not opened as binary gets two characters for each end of a line, as on Windows."""
    really_open, really_write, texts = os.open, os.write, set()

    def opened(path, flags, *mode, **where):
        number = really_open(path, flags & ~O_BINARY, *mode, **where)
        (texts.discard if flags & O_BINARY else texts.add)(number)
        return number

    def written(number, data):
        really_write(number, bytes(data).replace(b"\n", b"\r\n") if number in texts else data)
        return len(data)

    for module in (state, chain):
        monkeypatch.setattr(module, "BINARY", O_BINARY)
    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "write", written)


@pytest.mark.usefixtures("text_mode")
def test_a_log_keeps_its_lines_where_files_have_a_text_mode(tmp_path):
    record = Record(tmp_path)
    selector = Selector(Floor(beta=0.1), cohort_size=2, clients=["a", "b", "c"], observers=[record])
    answered(selector, 3)
    record.close()
    written = Log(tmp_path).num_lines
    Record(tmp_path).close()  # it opens the file again, and would cut off what looks torn
    assert Log(tmp_path).num_lines == written > 6
    assert not any(b"\r" in file.read_bytes() for file in tmp_path.glob("rounds-*"))


@pytest.fixture
def no_locks(monkeypatch):
    monkeypatch.setattr(state, "fcntl", None)


@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize(("busy", "ends"), [(2, True), (9, False)])
def test_a_file_that_is_read_is_replaced_when_its_reader_has_ended(tmp_path, monkeypatch, busy, ends):
    refusals, really = [PermissionError()] * busy, Path.replace

    def held(self, target):
        if refusals:
            raise refusals.pop()
        return really(self, target)

    file = tmp_path / "a.json"
    file.write_text("old")
    monkeypatch.setattr(Path, "replace", held)
    monkeypatch.setattr(state, "time", SimpleNamespace(sleep=lambda _: None))
    with contextlib.nullcontext() if ends else pytest.raises(PermissionError, match=r"a\.json"):
        write_text_atomically(file, "new")
    assert file.read_text() == ("new" if ends else "old")
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_elsewhere_a_place_where_one_may_not_write_is_said_at_once(tmp_path, monkeypatch):
    tried = []

    def refused(self, target):
        tried.append(target)
        raise PermissionError

    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(PermissionError):
        write_text_atomically(tmp_path / "a", "new")
    assert len(tried) == 1


@pytest.mark.usefixtures("no_locks")
def test_leftovers_go_where_there_are_no_locks(tmp_path):
    old, young = (tmp_path / f".a.{name}.tmp" for name in ("00000000", "11111111"))
    for file in (old, young):
        file.write_text("half")
    os.utime(old, (time.time() - 7200.0,) * 2)
    remove_leftovers(tmp_path)
    assert not old.exists()
    assert young.exists()  # its writer may live


def test_a_file_reaches_the_disk_where_fsync_ends_in_the_drives_cache(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(state, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda *what: asked.append(what)))
    with (tmp_path / "a").open("wb") as file:
        sync_file(file.fileno())
        assert asked == [(file.fileno(), 51)]
