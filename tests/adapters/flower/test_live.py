"""The example's run with faults: its table, and the run itself in small."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")
pytest.importorskip("sklearn", reason="the example needs scikit-learn")

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower"
if not EXAMPLE.is_dir():
    pytest.skip("the example is not part of this distribution", allow_module_level=True)
sys.path.insert(0, str(EXAMPLE))

import faults  # noqa: E402

signal.signal(signal.SIGTERM, signal.default_int_handler)  # at the time limit, end the processes that were started


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def own_log(*rounds, at=0.0, node_id="7"):
    return [
        {"at": at + r, "event": event, "kind": "train", "round": r, "node_id": node_id}
        for r in rounds
        for event in ("start", "end")
    ]


def test_logs_and_reports_that_differ_are_told(tmp_path):
    setting = faults.Setting(num_nodes=4)
    write(tmp_path / "node-0.jsonl", *own_log(1, 2))
    write(tmp_path / "node-1.jsonl", *own_log(2))
    status = [{"node-0": "COMPLETED", "node-1": None}, {"node-1": "COMPLETED"}]
    write(tmp_path / "reports.jsonl", *({"round": r, "status": told} for r, told in enumerate(status, start=1)))
    assert faults.disagreements(tmp_path, setting) == [
        "round 2: node-0 trained and was not chosen",
        "round 1: node-1 was chosen and did not begin (no answer)",
    ]


def test_the_table_counts_what_nodes_logged(tmp_path):
    folder = tmp_path / "rbcs-f"
    folder.mkdir()
    write(folder / "rounds.jsonl", *({"kind": "train", "round": r, "s": 2.0, "used": 1, "at": r} for r in (1, 2, 3, 4)))
    for n in range(4):
        write(folder / f"node-{n}.jsonl", *own_log(1, 1 + n, node_id=str(n)))
    write(folder / "reports.jsonl")
    story = {"seconds": 9.0, "ends": 0, "events": [], "away": {"1": [0.5, 2.5]}}
    (folder / "story.json").write_text(json.dumps(story))
    counts = {what: {"node-0": 2, "node-1": 2} for what in ("chosen", "trained", "used")}
    (folder / "result.json").write_text(json.dumps({"accuracy": 0.9, **counts}))
    rows = faults.node_rows(folder, faults.Setting(num_nodes=4))
    assert [row["starts"] for row in rows] == [2, 2, 2, 2]
    assert [row["rounds"] for row in rows] == [1, 2, 2, 2]  # a round that goes on after a restart is one round
    assert [row["there"] for row in rows] == [4, 2, 4, 4]
    text = faults.summary(tmp_path, ["rbcs-f"], faults.Setting(num_nodes=4))
    assert "| rbcs-f | 4 | 2.0 s |  | 9 s | 0 | 4 | 0 | 0.50 | 0.900 |" in text


@pytest.mark.skipif("FEDROSTER_LIVE" not in os.environ, reason="minutes, by hand: FEDROSTER_LIVE=1 .ci/flower -k live")
def test_what_nodes_logged_is_what_the_selector_counted(tmp_path):
    setting = faults.Setting(num_nodes=4, cohort_size=2, num_rounds=6, away_s=8.0, deadline_s=30.0, limit_s=560.0)
    story = faults.play("rbcs-f", setting, tmp_path)
    folder = tmp_path / "rbcs-f"
    assert story["ends"] == 0, faults.summary(tmp_path, ["rbcs-f"], setting)
    rows = {row["role"]: row for row in faults.node_rows(folder, setting)}
    trained = [row for row in faults.rows_of(folder / "rounds.jsonl") if row["kind"] == "train"]
    assert [row["round"] for row in trained] == list(range(1, 7))
    assert sum(row["chosen"] for row in rows.values()) <= 2 * 6
    assert not [words for words in faults.disagreements(folder, setting) if "was not chosen" in words]
    assert rows["steady"]["rounds"] == rows["steady"]["chosen"]
    assert rows["fails"]["used"] == rows["malformed"]["used"] == 0
    assert sum(row["used"] for row in rows.values()) == sum(row["used"] for row in trained)
    assert any("the server app" in words for _, words in story["events"])
    assert any("the SuperLink" in words for _, words in story["events"])
