"""The page of a log shows what the log says, and follows it without reading it again."""

import contextlib
import dataclasses
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commands import call
from fedroster import Floor, Record, Rules, Selector
from fedroster.core.errors import LogFileError
from fedroster.folder import chain
from fedroster.folder.lines import UndoneLine
from fedroster.lab.pages import log_page
from fedroster.lab.pages.log_page import View, page_of
from fedroster.record import Log

CLIENTS = [f"clinic-{number}" for number in range(6)]


def made(folder: Path, **options: int) -> Selector:
    return Selector(
        Floor(beta=0.2),
        cohort_size=2,
        clients=[*CLIENTS, "<script>alert(1)</script>"],
        rules=Rules(deny=["clinic-5"]),
        observers=[Record(folder, **options)],
    )


def answer(selector: Selector, round: int, clients: list[str]) -> None:
    first, *rest = clients
    selector.observe(round, times_s={first: 2.0}, dropped=rest, round_s=3.0)


def play(selector: Selector, rounds: int) -> None:
    for _ in range(rounds):
        cohort = selector.select()
        answer(selector, cohort.round, list(cohort.clients))


def played(folder: Path, rounds: int) -> Selector:
    play(selector := made(folder), rounds)
    return selector


def shown(view: View) -> dict[str, tuple[str, ...]]:
    """The row of each member."""
    return {row[0]: tuple(row) for row in view.members_table()[0].rows}


def test_the_page_shows_promise_and_fact(tmp_path: Path) -> None:
    selector = played(tmp_path, 30)
    view = View(Log(tmp_path))
    assert (len(view.lengths), view.promised) == (30, 0.2)
    assert {length for length, _ in view.lengths.values()} == {3.0}
    counted = {view.names[row]: view.counts[row] for row in view.members.tolist()}
    assert {name: each["chosen"] for name, each in counted.items()} == selector.participation()
    assert {name: each["used"] for name, each in counted.items()} == selector.participation("used")
    table, rate = view.members_table()
    assert table.rows[-1][:2] == ("clinic-5", "kept out")  # a rule keeps it out, so nothing is promised to it
    assert list(rate[:-1]) == sorted(rate[:-1])
    rates = selector.participation_rates()
    assert rate[:-1].tolist() == pytest.approx([rates[row[0]] for row in table.rows[:-1]])
    page = page_of(view, tmp_path)
    assert "denied by &#39;clinic-5&#39;: clinic-5" in page
    assert "A mean round takes 3 s. " in page
    assert "promised 20.0%" in page
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "location.reload" not in page
    assert "location.reload" in page_of(view, tmp_path, follows=True)


def test_a_promise_that_changed_meanwhile_is_not_judged(tmp_path: Path) -> None:
    selector = Selector(Floor(beta=0.5), cohort_size=1, clients=["a", "b"], observers=[Record(tmp_path)])
    play(selector, 1)
    view = View(Log(tmp_path))
    assert view.promised == 0.5
    selector.policy = Floor(beta=0.1)
    play(selector, 1)
    assert view.read_on()
    assert (view.promised, view.no_promise) == (0.0, "the policy changed, so no promise is judged")


def test_a_promise_of_the_rounds_in_which_a_client_is_there_is_judged_by_these(tmp_path: Path) -> None:
    policy = Floor(beta=0.4, slack=0, share_of="available")
    selector = Selector(policy, cohort_size=1, clients=["always", "seldom"], observers=[Record(tmp_path)])
    for number in range(240):
        cohort = selector.select(["always", "seldom"] if number % 4 == 0 else ["always"])
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
    found = shown(View(Log(tmp_path)))
    assert (found["always"][5], found["seldom"][5]) == ("240", "60")
    assert found["seldom"][3] == "kept"
    assert float(found["seldom"][1].rstrip("%")) >= 40.0


def test_a_policy_that_expects_an_endless_round_leaves_the_picture_its_ends(tmp_path: Path) -> None:
    played(tmp_path, 1)
    (view := View(Log(tmp_path))).lengths[1] = 3.0, float("inf")
    assert "Infinity" not in json.dumps(log_page._lengths_figure(view).to_dict())


def test_the_time_of_a_round_is_told_alike_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In UTC, wherever the page and the table are read: the log may come from another place."""
    played(tmp_path, 1)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        (decided,) = Log(tmp_path).rounds
        told = f"{datetime.fromtimestamp(int(decided.at_s), UTC):%Y-%m-%d %H:%M:%SZ}"
        assert decided.at == told
        assert told in page_of(View(Log(tmp_path)), tmp_path)
        assert told in call("log", "show", tmp_path).output
    finally:
        monkeypatch.undo()
        time.tzset()
    asked = dataclasses.replace(decided.asked, at_s=7200.4)  # a simulation's
    assert dataclasses.replace(decided, asked=asked).at == "7,200 s"


def test_what_is_read_on_equals_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins, leaves, rounds that are answered late, and files that are compressed meanwhile; no line is read twice."""
    selector = made(tmp_path, rotate_bytes=5000)
    view = View(Log(tmp_path))
    parsed: list[int] = []
    parse = chain.parse

    def counting(text, file, offset):
        line = parse(text, file, offset)
        parsed.append(line.number)
        return line

    late = []
    for turn in range(12):
        play(selector, 2)
        cohort = selector.select()
        late.append((cohort.round, list(cohort.clients)))
        if turn % 3 == 0:
            selector.join([f"new-{turn}"])
            selector.leave([f"new-{turn - 3}"] if turn else ["clinic-0"])
        if turn % 4 == 3:
            for round, clients in late:
                answer(selector, round, [client for client in clients if client in selector.clients] or clients)
            late.clear()
        before = view.log.num_lines
        with monkeypatch.context() as patch:
            patch.setattr(chain, "parse", counting)
            assert view.read_on()
        assert parsed == [*range(before, view.log.num_lines + 1)]  # the last one that is known, and what came after
        parsed.clear()
        fresh = View(Log(tmp_path))
        assert shown(view) == shown(fresh)
        assert repr(view.lengths) == repr(fresh.lengths)
        assert view.log.head == fresh.log.head
    assert len(chain.files_of(tmp_path)) > 3
    assert view.read_on()


def test_a_line_that_was_taken_back_is_not_shown(tmp_path: Path) -> None:
    played(tmp_path, 2)
    log = Log(tmp_path)
    assert log.read_on() == []
    writer = chain.Writer(tmp_path, rotate_bytes=2**20)
    writer.append(UndoneLine(of=log.num_lines))
    writer.close()
    assert log.read_on() is None
    assert len(Log(tmp_path).rounds) == 2


def test_a_line_that_is_changed_after_it_was_read_is_found(tmp_path: Path) -> None:
    played(tmp_path, 3)
    log = Log(tmp_path)
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"round_s":3.0', b'"round_s":4.0'))
    with pytest.raises(LogFileError, match="was changed"):
        log.read_on()


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played(tmp_path / "log", 3)
    monkeypatch.chdir(tmp_path)
    call("log", "page", "log")
    assert "3 rounds" in Path("log.html").read_text(encoding="utf-8")
    call("log", "page", "nowhere", code=1)


def test_it_follows_a_running_federation_and_waits_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = tmp_path / "log", tmp_path / "page.html"
    turn = threading.Semaphore(0)
    asleep = threading.Semaphore(0)

    def sleep(seconds: float) -> None:
        asleep.release()
        if not turn.acquire(timeout=60.0):
            raise TimeoutError
        if over:
            raise KeyboardInterrupt

    over: list[bool] = []
    monkeypatch.setattr(log_page.time, "sleep", sleep)

    def until_interrupted() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            log_page.follow(folder, file)

    thread = threading.Thread(target=until_interrupted)
    thread.start()

    def page() -> str:
        """The page after the next look."""
        assert asleep.acquire(timeout=60.0)
        return file.read_text(encoding="utf-8")

    assert "There is no log yet" in page()
    selector = played(folder, 1)
    turn.release()
    assert "1 round," in page()
    selector.select()
    turn.release()
    assert "2 rounds" in page()
    written = file.stat().st_mtime_ns
    turn.release()
    assert "location.reload" in page()
    assert file.stat().st_mtime_ns == written  # nothing is new
    (log,) = folder.glob("*.jsonl")
    whole = log.read_bytes()
    log.write_bytes(whole[:-20] + b"x" * 19 + b"\n" + b"more")
    turn.release()
    assert "The log cannot be read" in page()
    log.write_bytes(whole)
    turn.release()
    assert "2 rounds" in page()
    over.append(True)
    turn.release()
    thread.join(60.0)
    assert "location.reload" not in file.read_text(encoding="utf-8")
