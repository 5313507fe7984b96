"""The files of a log: the chain of digests, rotation, and what killed writers leave."""

import json
import os
import tracemalloc

import pytest

from fedroster.errors import InUseError, LogFileError
from fedroster.folder.chain import Writer, files_of, lines_of, torn_bytes
from fedroster.folder.lines import FIRST, NotedLine, UndoneLine
from fedroster.record import Log


def noted(number=0, text=""):
    return NotedLine(name="x", clients=[0] * (len(text) // 2), values=[number])


def written(folder, count=10, *, rotate_bytes=2**20, size=10):
    writer = Writer(folder, rotate_bytes=rotate_bytes)
    for number in range(count):
        writer.append(noted(number, "x" * size))
    writer.close()
    return writer


def numbers(folder):
    return [line.number for line in lines_of(folder)]


def test_full_files_are_closed_and_the_chain_goes_on(tmp_path):
    for _ in range(2):
        written(tmp_path, 20, rotate_bytes=1000, size=200)
    files = files_of(tmp_path)
    assert len(files) > 4
    assert numbers(tmp_path) == [*range(1, 41)]
    assert [line.number for line in lines_of(tmp_path, start=17)] == [*range(17, 41)]


def test_a_file_ends_with_its_day(tmp_path):
    written(tmp_path, 2)
    yesterday = files_of(tmp_path)[0].stat().st_mtime - 86_400
    os.utime(files_of(tmp_path)[0], (yesterday, yesterday))
    written(tmp_path, 2)
    assert [file.name for file in files_of(tmp_path)] == ["rounds-000000000001.jsonl", "rounds-000000000003.jsonl"]


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_last_line_is_passed_over_and_cut_off_by_the_next_writer(cut, tmp_path):
    written(tmp_path, 5)
    file = files_of(tmp_path)[0]
    os.truncate(file, file.stat().st_size - cut)
    assert [line.number for line in lines_of(tmp_path)] == [1, 2, 3, 4]
    assert torn_bytes(tmp_path) > 0
    writer = Writer(tmp_path, rotate_bytes=2**20)
    assert writer.repaired > 0
    assert writer.number == 4
    writer.append(noted())
    writer.close()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("left", [b'{"line":6', b""])
def test_a_file_that_was_killed_before_its_first_line_is_begun_again(left, tmp_path):
    written(tmp_path, 5)
    (tmp_path / "rounds-000000000006.jsonl").write_bytes(left)
    assert written(tmp_path, 1).number == 6
    assert numbers(tmp_path) == [*range(1, 7)]


def test_a_log_that_was_killed_in_its_first_line_is_refused_as_a_damaged_one(tmp_path):
    (tmp_path / "rounds-000000000001.jsonl").write_bytes(b'{"line":1')
    with pytest.raises(LogFileError, match="9 bytes of its first line"):
        Log(tmp_path)


ATTACKS = {
    "removed": lambda lines: lines[:3] + lines[4:],
    "cut at the start": lambda lines: lines[1:],
    "written again": lambda lines: [*lines[:3], other_name(lines[3]), *lines[4:]],
}


def other_name(line):
    return json.dumps(json.loads(line) | {"name": "other"}, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_change_breaks_the_chain(attack, tmp_path):
    written(tmp_path, 8)
    (file,) = files_of(tmp_path)
    file.write_bytes(b"".join(ATTACKS[attack](file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(LogFileError):
        numbers(tmp_path)


def test_a_file_that_is_missing_breaks_the_chain(tmp_path):
    written(tmp_path, 20, rotate_bytes=1000, size=200)
    files_of(tmp_path)[1].unlink()
    with pytest.raises(LogFileError, match="missing"):
        numbers(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"{}\n",
        b"\xff\xfe\n",
        b'{"line":1e9,"before":"","kind":"noted"}\n',
        b"[" * 100_000 + b"\n",
        b'{"line":1,"before":"","kind":NaN}\n',
        b'{"line":%s,"before":"","kind":"x"}\n' % (b"9" * 5000),
    ],
    ids=range(7),
)
def test_what_is_no_line_is_refused(text, tmp_path):
    (tmp_path / "rounds-000000000001.jsonl").write_bytes(text)
    with pytest.raises(LogFileError, match="byte 0"):
        numbers(tmp_path)
    with pytest.raises(LogFileError, match="byte 0"):
        Writer(tmp_path, rotate_bytes=2**20)


def test_a_line_without_end_takes_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("fedroster.folder.chain.LONGEST_LINE", 1000)
    (tmp_path / "rounds-000000000001.jsonl").write_bytes(b" " * 100_000)
    with pytest.raises(LogFileError, match="more than 1,000 bytes"):
        numbers(tmp_path)


def test_what_its_reader_would_refuse_is_not_written(tmp_path, monkeypatch):
    written(tmp_path, 2)
    writer = Writer(tmp_path, rotate_bytes=2**20)
    with pytest.raises(LogFileError, match="Expected"):
        writer.append(UndoneLine(of=0))
    monkeypatch.setattr("fedroster.folder.chain.LONGEST_LINE", 300)
    with pytest.raises(LogFileError, match="300 at most"):
        writer.append(noted(1, "x" * 300))
    writer.append(noted())
    writer.close()
    assert numbers(tmp_path) == [1, 2, 3]


BY_OTHERS = {
    "cut": lambda file, content: file.write_bytes(content[:-5]),
    "written": lambda file, content: file.write_bytes(content + b"{}\n"),
    "moved": lambda file, content: file.rename(file.with_name("moved")),
    "gone": lambda file, content: file.unlink(),
    "replaced": lambda file, content: (file.unlink(), file.write_bytes(content)),
}


@pytest.mark.parametrize("what", BY_OTHERS)
def test_a_writer_notices_what_others_do_to_its_file(what, tmp_path):
    writer = Writer(tmp_path, rotate_bytes=2**20)
    for number in range(3):
        writer.append(noted(number))
    (file,) = files_of(tmp_path)
    BY_OTHERS[what](file, file.read_bytes())
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(LogFileError, match=r"another program|moved, removed or replaced"):
        writer.append(noted(3))
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before
    assert writer.number == 3


def test_a_fork_does_not_write_into_the_log_of_its_parent(tmp_path):
    writer = Writer(tmp_path, rotate_bytes=2**20)
    writer.append(noted())
    child = os.fork()
    if not child:
        try:
            writer.append(noted(1))
        except InUseError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.append(noted(1))
    assert numbers(tmp_path) == [1, 2]


def test_a_log_of_another_version_is_refused_with_a_word(tmp_path):
    line = {"line": 1, "before": FIRST, "kind": "begun", "format": "fedroster-log", "version": 1, "code": "x"}
    (tmp_path / "rounds-000000000001.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(LogFileError, match="version 1; this release reads version 2"):
        numbers(tmp_path)


def test_other_files_are_passed_over(tmp_path):
    written(tmp_path, 2)
    (tmp_path / "notes.jsonl").write_text("{}")
    assert numbers(tmp_path) == [1, 2]
    with pytest.raises(FileNotFoundError):
        numbers(tmp_path / "nowhere")


def test_a_long_log_is_read_line_by_line(tmp_path):
    written(tmp_path, 40, rotate_bytes=2**22, size=500_000)
    assert len(files_of(tmp_path)) > 4
    tracemalloc.start()
    try:
        assert sum(1 for _ in lines_of(tmp_path)) == 40
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
