"""The page shows what the log says, follows it, and is read-only and local."""

from __future__ import annotations

import dataclasses
import threading
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner
from werkzeug.test import Client

from fedroster import Floor, Record, Rules, Selector
from fedroster.cli import app
from fedroster.record import Log
from fedroster.watch.server import Watch, serving
from fedroster.watch.view import view_of

CLIENTS = [f"clinic-{number}" for number in range(6)]


def played(folder: Path, rounds: int) -> Selector:
    selector = Selector(
        Floor(beta=0.2),
        cohort_size=2,
        clients=[*CLIENTS, "<script>alert(1)</script>"],
        rules=Rules(deny=["clinic-5"]),
        observers=[Record(folder)],
    )
    for _ in range(rounds):
        cohort = selector.select()
        first, *rest = cohort.clients
        selector.observe(cohort.round, times_s={first: 2.0}, dropped=rest, round_s=3.0)
    return selector


def test_the_page_shows_promise_and_fact(tmp_path: Path) -> None:
    selector = played(tmp_path, 30)
    view = view_of(Log(tmp_path))
    assert (view.num_rounds, view.promised, view.mean_s) == (30, 0.2, 3.0)
    assert {each.name: each.chosen for each in view.clients} == selector.participation()
    assert {each.name: each.used for each in view.clients} == selector.participation("used")
    assert view.clients[-1].name == "clinic-5"  # a rule keeps it out, so nothing is promised to it
    assert "denied by 'clinic-5': clinic-5;" in view.rounds[0][-1]
    rates = selector.participation_rates()
    assert all(each.rate == pytest.approx(rates[each.name]) for each in view.clients[:-1])
    page = Client(Watch(tmp_path)).get("/").text
    assert view.headline.replace("'", "&#39;") in page
    assert "20.0%" in view.headline
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_the_time_of_a_round_is_told_alike_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """In UTC, wherever the page and the table are read: the log may come from another place."""
    played(tmp_path, 1)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        (decided,) = Log(tmp_path).rounds
        told = f"{datetime.fromtimestamp(int(decided.at_s), UTC):%Y-%m-%d %H:%M:%SZ}"
        assert decided.at == told
        assert told in Client(Watch(tmp_path)).get("/").text
        assert told in CliRunner().invoke(app, ["log", "show", str(tmp_path)]).output
    finally:
        monkeypatch.undo()
        time.tzset()
    assert dataclasses.replace(decided, at_s=7200.4).at == "7,200 s"  # a simulation's


def test_it_says_why(tmp_path: Path) -> None:
    played(tmp_path, 3)
    client = Client(Watch(tmp_path))
    assert "denied by" in client.get("/why?client=clinic-5&round=2").text
    for question in ("client=unknown&round=2", "client=clinic-1&round=99", "client=clinic-1&round=x", ""):
        assert client.get(f"/why?{question}").status_code == 404


def test_it_follows_a_running_federation_and_waits_for_one(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    client = Client(Watch(folder))
    assert "There is no log yet" in client.get("/").text
    assert client.get("/lines").text == "0"
    selector = played(folder, 1)
    before = int(client.get("/lines").text)
    selector.select()
    assert int(client.get("/lines").text) > before
    assert "2 rounds" in client.get("/").text


def test_a_damaged_log_is_told_and_ends_nothing(tmp_path: Path) -> None:
    played(tmp_path, 3)
    client = Client(Watch(tmp_path))
    assert "3 rounds" in client.get("/").text
    (file,) = tmp_path.glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b'"round":2', b'"round":7'))
    page = client.get("/")
    assert page.status_code == 200
    assert "The log cannot be read" in page.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_it_is_read_only(tmp_path: Path, method: str) -> None:
    assert Client(Watch(tmp_path)).open("/", method=method).status_code == 405


def test_a_foreign_name_is_not_answered(tmp_path: Path) -> None:
    client = Client(Watch(tmp_path))
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 404
    assert client.get("/", headers={"Host": "127.0.0.1:8765"}).status_code == 200


def test_it_serves_on_loopback(tmp_path: Path) -> None:
    played(tmp_path, 2)
    server = serving(tmp_path, 0)
    assert server.server_address[0] == "127.0.0.1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/") as reply:
            assert b"2 rounds" in reply.read()
            assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
