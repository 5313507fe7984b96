"""Rows, verdicts, reports and the table of all targets."""

import importlib.util
import json
from dataclasses import replace
from datetime import date

import pytest
from benchmarks.__main__ import stays, summarize
from benchmarks.rows import MET, MISSED, NO_TARGET, Report, Row, all_rows, count_of, figure, line_of, load, save, share
from benchmarks.targets import BENCHMARKS, TARGETS

HERE = {"system": "Linux", "processor": "P", "cores": 2, "python": "3.11.7", "fedroster": "0.1.0", "numpy": "2.0"}


def report(name: str, *rows: Row, **changes: object) -> Report:
    made = Report(name, rows, f"python -m benchmarks.{name}", "2026-01-31", 1.0, "0", HERE, ("a note",), {"more": 1})
    return replace(made, **changes)


def measured(key: str, times: float) -> Row:
    """A row of a target whose figure is so many times the limit."""
    target = TARGETS[key]
    if target.relative:
        return Row(target.what, target.limit * times * 7.0, "ms", key, 7.0, "peer")
    return Row(target.what, target.limit * times, "ms", key)


@pytest.mark.parametrize("key", TARGETS)
def test_a_target_is_met_up_to_its_limit_and_missed_beyond(key):
    assert measured(key, 0.99).verdict == MET
    assert measured(key, 1.01).verdict == MISSED
    assert replace(measured(key, 0.5), complete=False).verdict == MISSED


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("decision", 50.0, "µs", "decision-40", peer=0.5, peer_name="a peer"), MET),  # the ratio is not judged
        (Row("Ray starts", 5.0, "s"), NO_TARGET),
        (Row("Ray starts", None, "s", reason="no Ray"), "not measured: no Ray"),
        (Row("H200", None, "s", "h200", reason="no device"), "not measured: no device"),
        (Row("Oort", 36.0, "ms", "fedscale-oort", reason="no index"), "not measured: no index"),
    ],
)
def test_what_has_no_target_is_not_judged_and_what_was_not_measured_says_why(row, verdict):
    assert row.verdict == verdict


def test_a_row_has_a_figure_or_a_reason_and_a_target_that_is_there():
    with pytest.raises(ValueError, match="no figure to judge; expected a reason"):
        Row("Oort", 36.0, "ms", "fedscale-oort")
    with pytest.raises(ValueError, match="target of 'x' is 'fast'; expected one of decision-100, "):
        Row("x", 1.0, "ms", "fast")


def test_figures_are_short():
    shown = {0.00123456: "0.00123", 0.5: "0.5", 36.04: "36", 999.4: "999", 1240.0: "1,240", 2e6: "2,000,000"}
    assert {value: figure(value) for value in shown} == shown
    assert [share(ratio) for ratio in (0.0, 1 / 148, 0.0999, 0.1, 1.376)] == ["0", "1/148", "1/10", "0.1", "1.38"]


def test_a_line_has_issue_target_figures_ratio_and_verdict():
    row = Row("Oort | 1,000,000", 36.0, "ms", "fedscale-oort", 2000.0, "FedScale's Oort")
    assert line_of(row) == (
        "| 6 | Oort / 1,000,000 | at least 20 times faster than FedScale's Oort | 36 ms | 2,000 ms (FedScale's Oort) "
        "| 1/55.6 | met |"
    )
    assert line_of(Row("Ray starts", 5.0, "s")) == "| - | Ray starts | none | 5 s | - | - | no target |"


def test_every_target_names_a_benchmark_that_is_there():
    for target in TARGETS.values():
        assert target.benchmark in BENCHMARKS
        assert target.issue >= 2
        assert target.limit > 0
    for name in BENCHMARKS:
        assert importlib.util.find_spec(f"benchmarks.{name}") is not None
        assert any(target.benchmark == name for target in TARGETS.values())


def test_a_report_is_saved_and_loaded(tmp_path):
    made = report("scale", measured("availability", 0.5), Row("Ray", None, "s", reason="none"))
    save(made, tmp_path)
    assert load("scale", tmp_path) == made
    page = (tmp_path / "scale.md").read_text()
    assert line_of(made.rows[0]) in page
    assert "`python -m benchmarks.scale` on 2026-01-31 in 1 s on P, 2 cores" in page
    assert page.endswith("* a note\n")


def test_a_target_that_no_row_measured_is_not_forgotten():
    earlier = {"growth": report("growth", measured("floor-cost", 0.5))}
    killed = {row.target: row.verdict for row in all_rows(earlier, {"growth": "killed"})}
    assert killed["floor-cost"] == "not measured: killed"  # rows of a failed benchmark do not count
    rows = all_rows(earlier, {"scale": "it ended with 1: boom"})
    verdicts = {row.target: row.verdict for row in rows}
    assert sorted(verdicts) == sorted(TARGETS)
    issues = [TARGETS[key].issue for key in verdicts]
    assert issues == sorted(issues)
    assert verdicts["floor-cost"] == MET
    assert verdicts["pooling-cost"] == "not measured: the benchmark gave no such row"
    assert verdicts["availability"] == "not measured: it ended with 1: boom"
    assert verdicts["h200"] == "not measured: accelerator was not run"
    assert count_of(rows) == {MET: 1, MISSED: 0, "not measured": len(TARGETS) - 1, NO_TARGET: 0}


def test_the_summary_is_written_from_the_reports(tmp_path):
    save(report("growth", measured("floor-cost", 0.5), measured("pooling-cost", 2.0)), tmp_path)
    rows = summarize(tmp_path, {}, command="python -m benchmarks growth")
    content = json.loads((tmp_path / "summary.json").read_text())
    assert content["counts"] == {"met": 1, "missed": 1, "not measured": len(TARGETS) - 2, "no target": 0}
    assert content["command"] == "python -m benchmarks growth"
    assert content["benchmarks"]["growth"]["seed"] == "0"
    assert [row["verdict"] for row in content["rows"]] == [row.verdict for row in rows]
    page = (tmp_path / "summary.md").read_text()
    assert all(line_of(row) in page for row in rows)
    assert "1 met, 1 missed" in page


def test_a_result_is_kept_only_of_today_this_machine_and_this_version(tmp_path, capsys):
    save(report("scale", measured("availability", 0.5)), tmp_path)
    today = date(2026, 1, 31)
    assert stays("scale", tmp_path, today=today, here=HERE)
    assert stays("scale", tmp_path, today=today, here={**HERE, "numpy": "2.1"})  # as in a peer's environment
    assert not stays("scale", tmp_path, today=date(2026, 2, 1), here=HERE)
    assert not stays("scale", tmp_path, today=today, here={**HERE, "processor": "Q"})
    assert not stays("scale", tmp_path, today=today, here={**HERE, "fedroster": "0.2.0"})
    assert not stays("growth", tmp_path, today=today, here=HERE)
    (tmp_path / "scale.json").write_text('{"flower": "1.41"}')  # of another form
    (tmp_path / "growth.json").write_text("{")
    assert not stays("scale", tmp_path, today=today, here=HERE)
    assert "growth: " in capsys.readouterr().err
