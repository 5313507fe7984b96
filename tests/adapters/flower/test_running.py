"""The example's app in Flower itself: simulated, and as separate processes with TLS and node authentication."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs Flower: run .ci/flower, or install the extra 'flower'")
pytest.importorskip("sklearn", reason="the example needs scikit-learn")

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower"
if not EXAMPLE.is_dir():
    pytest.skip("the example is not part of this distribution", allow_module_level=True)
sys.path.insert(0, str(EXAMPLE))

import run as example  # noqa: E402

from fedroster.folder.chain import lines_of  # noqa: E402
from fedroster.folder.lines import DecidedLine, NotedLine  # noqa: E402

signal.signal(signal.SIGTERM, signal.default_int_handler)  # at the time limit, end the processes that were started

LIMIT_S = 240.0
"""For whatever must happen; it is far more than that takes, and `.ci/flower` bounds the whole."""


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def wait_until(happened, limit_s: float, federation) -> None:
    until = time.monotonic() + limit_s
    while not happened():
        if time.monotonic() > until:
            logs = {path.name: path.read_text(errors="replace")[-1500:] for path in federation.folder.glob("*.log")}
            pytest.fail(f"it did not happen within {limit_s} s: {json.dumps(logs, indent=1)}")
        time.sleep(0.2)


def test_simulation(tmp_path):
    pytest.importorskip("ray", reason="the simulation needs Ray")
    config = {"num-rounds": 5, "cohort-size": 2, "beta": 0.2, "pace-s": 0.3, "slow-share": 0.2, "slow-factor": 3.0}
    with example.simulation(tmp_path / "flower", num_nodes=5, num_workers=2) as federation:
        reports = example.compare(federation, tmp_path, ["fedavg", "rbcs-f"], config, limit_s=LIMIT_S)
    ours, theirs = reports["rbcs-f"], reports["fedavg"]
    assert len(ours["seconds"]) == len(theirs["seconds"]) == 5
    assert len(ours["rates"]) == len(theirs["rates"]) == 5
    assert sum(ours["rates"]) == pytest.approx(2.0)
    assert ours["lost"] == 0
    for times_s in ours["exchange_s"]:
        assert set(times_s) <= {f"partition-{n}" for n in range(5)}
        for name, time_s in times_s.items():
            assert time_s >= (0.9 if name == "partition-0" else 0.3)
    assert ours["accuracy"] > 0.5
    assert "rbcs-f" in example.summary(reports)


def test_deployment(tmp_path):
    num_rounds = 4
    config = example.settings(num_nodes=4, cohort_size=2, num_rounds=num_rounds, pace_s=1.0) | {"slow-share": 0.0}
    claims = {1: "node-0"}  # a node that claims another's name: refused where keys have names
    if not example._has_option("--name", "flwr", "supernode", "register"):
        claims = {}
    with example.deployment(tmp_path / "flower", num_nodes=4, slow_nodes=[0], claims=claims) as federation:
        reports = example.compare(federation, tmp_path, ["fedavg", "rbcs-f"], config, limit_s=LIMIT_S)
        assert len(federation.processes_of("flower-supernode")) >= 4
    assert federation.processes_of("flower-supernode") == federation.processes_of("flower-superlink") == []
    ours = reports["rbcs-f"]
    for report in reports.values():
        assert len(report["seconds"]) == num_rounds
        assert sum(report["rates"]) * num_rounds == pytest.approx(2 * num_rounds)
        assert len(report["rates"]) == 4
        assert report["accuracy"] > 0.5
    assert ours["lost"] == 0
    slow = [times_s["node-0"] for times_s in ours["exchange_s"] if "node-0" in times_s]
    fast = [time_s for times_s in ours["exchange_s"] for name, time_s in times_s.items() if name != "node-0"]
    assert min(fast) >= 1.0
    assert min(slow, default=4.0) >= 3.0  # slowed down from outside: it trains four times as long
    names = {name for times_s in ours["exchange_s"] for name in times_s}
    assert {"node-1"} <= names <= {f"node-{n}" for n in range(4)}
    assert "rbcs-f" in example.summary(reports)


def saved_round(folder):
    """Number of the last round that is in a folder, and whether its aggregation is through."""
    number, is_done = 0, True
    for line in lines_of(folder) if folder.is_dir() else ():
        if isinstance(line.content, DecidedLine):
            number, is_done = line.content.round, False
        is_done |= isinstance(line.content, NotedLine) and line.content.name == "settled"
    return SimpleNamespace(number=number, is_done=is_done)


def test_deployment_survives_a_killed_node_a_stalled_network_and_a_killed_server(tmp_path):
    config = {"sampling": "rbcs-f", "num-rounds": 60, "cohort-size": 2, "beta": 0.2, "pace-s": 1.0, "slow-share": 0.0}
    config |= {"deadline-s": 25.0, "out": str(tmp_path)}
    log = tmp_path / "rbcs-f.csv"
    state = tmp_path / "rbcs-f-state"
    with example.deployment(tmp_path / "flower", num_nodes=4, slow_nodes=[3], share=0.7, bytes_per_s=1e6) as federation:
        federation.launch(config)
        wait_until(lambda: len(rows_of(log)) >= 1, LIMIT_S, federation)
        federation.stop("node-0")  # killed, perhaps while it trains
        federation.links["node-3"].stall(True)
        wait_until(lambda: len(rows_of(log)) >= 4, LIMIT_S, federation)
        federation.links["node-3"].stall(False)
        begun = saved_round(state).number

        def is_waiting() -> bool:
            saved = saved_round(state)
            return saved.number > begun and not saved.is_done

        wait_until(is_waiting, LIMIT_S, federation)
        servers = federation.processes_of("flwr-serverapp")
        assert servers
        for process in servers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        federation.stop("run")
        before = rows_of(log)
        saved = saved_round(state)
        assert not (tmp_path / "rbcs-f.json").exists()
        federation.run(config | {"num-rounds": 2}, limit_s=LIMIT_S)
    rows = rows_of(log)
    rounds = [int(row["round"]) for row in rows]
    assert rounds == sorted(set(rounds))
    if saved.number > len(before):  # it was under way: it goes on with those of its nodes that are there, if any
        assert rounds[len(before)] == saved.number + (rows[len(before)]["resumed"] == "0")
    assert int(rows[0]["connected"]) >= 2
    report = json.loads((tmp_path / "rbcs-f.json").read_text())
    assert len(report["seconds"]) == 2
    names = {name for times_s in report["exchange_s"] for name in times_s}
    assert names <= {f"node-{n}" for n in range(1, 4)}
    assert names
