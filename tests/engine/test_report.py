"""What operators see of a round, whatever the engine."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from fedroster.core.problem import Status
from fedroster.engine.report import CsvLog, RoundReport


def a_report(**changes) -> RoundReport:
    values = {
        "round": 3,
        "clients": ("a", "b", "c", "d"),
        "num_connected": 9,
        "num_available": 8,
        "status": {"a": Status.COMPLETED, "b": None, "c": Status.DROPPED, "d": Status.LATE},
        "times_s": {"a": 1.25, "d": 4.0},
        "select_s": 0.01,
        "round_s": 1.5,
        "predicted_s": 1.25,
        "members": ("a", "b", "c", "d", "e"),
        "rate": np.array([0.5, 0.25, 0.25, 0.5, 0.125]),
        "backlog": np.array([0.0, 1.0, 2.5, 0.0, 0.5]),
        "capped": np.array([0, 2, 0, 1, 0]),
    }
    return RoundReport(**(values | changes))


def test_metrics_are_flat_and_always_of_the_same_names():
    report = a_report(num_capped=1, at_s=7.0, used_s=1.5)
    metrics = report.metrics()
    assert (metrics["round"], metrics["chosen"], metrics["at_s"]) == (3, 4, 7.0)
    assert [metrics[name] for name in ("in_time", "missed", "lost", "least_rate", "capped")] == [1, 2, 1, 0.125, 3]
    assert (metrics["expected_s"], metrics["longest_queue"], metrics["capped_share"]) == (1.25, 2.5, 0.5)
    unknown = a_report(predicted_s=math.nan, members=(), rate=np.empty(0), backlog=np.empty(0), times_s={}).metrics()
    assert list(unknown) == list(metrics)
    assert all(type(value) in (int, float) for each in (metrics, unknown) for value in each.values())
    assert {name for name, value in unknown.items() if math.isnan(value)} == {
        "predicted_s",
        "least_rate",
        "longest_queue",
        "used_s",
    }
    assert (unknown["expected_s"], unknown["capped_share"]) == (1.5, 0.0)


def test_the_lines_of_a_round():
    report = a_report(reasons={"c": "it was refused"}, status={"a": Status.COMPLETED, "b": None, "c": Status.FAILED})
    ((level, line),) = report.lines({})
    assert level == logging.INFO
    assert line == (
        "round 3: 1 of 3 updates used in 1.5 s (expected 1.2 s): a; not answered yet b; failed c (it was refused)"
    )
    lines = a_report(status={"b": Status.LATE, "c": Status.DROPPED}, predicted_s=math.nan, resumed=True).lines({})
    assert lines == [
        (logging.INFO, "round 3 (resumed): 0 of 2 updates used in 1.5 s: none; late b; lost c (gone)"),
        (logging.WARNING, "round 3 has no update: the model stays as it is"),
    ]
    swaying = a_report(status={"a": Status.COMPLETED}, sway=8.26).lines({})
    assert swaying == [
        (
            logging.INFO,
            "round 3: 1 of 1 updates used in 1.5 s (expected 1.2 s): a; losses sway 8.3 times as much as by chance",
        )
    ]
    many = {f"n{number}": Status.COMPLETED for number in range(30)}
    assert a_report(status=many).lines({})[0][1].endswith("n18, n19 and 10 more")


def test_a_pause_is_told_once_and_again_when_it_grows():
    said = "round 3: failed again and again, and pause, owed nothing: b for 2 rounds"
    assert (logging.WARNING, said) in a_report(paused={"b": 2}).lines({})
    assert (logging.WARNING, said) not in a_report(paused={"b": 2}).lines({"b": 3})
    assert (logging.WARNING, said) in a_report(paused={"b": 2}).lines({"b": 1})


@pytest.mark.parametrize("left", [b"", b"round,cho", b"whole\r\n", b"whole\r\n3,4,1,", b"whole\n" * 2000 + b"3,4"])
def test_csv_goes_on_after_a_line_that_was_cut(tmp_path, left):
    """As a full disk or a killed server leaves it."""
    path = tmp_path / "rounds.csv"
    path.write_bytes(left)
    CsvLog(path)(a_report())
    kept = left[: left.rfind(b"\n") + 1]
    lines = path.read_bytes().removeprefix(kept).splitlines()
    assert path.read_bytes().startswith(kept)
    assert len(lines) == (1 if kept else 2)
    assert lines[-1].startswith(b"3,4,1,2,1,8,9,")
