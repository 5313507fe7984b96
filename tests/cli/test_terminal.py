"""What a person sees on a narrow terminal: every policy, every column, nothing cut."""

import io
import os
import shlex
import subprocess
import sys

import pytest
from rich.console import Console

import fedroster
from fedroster.cli import terminal


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_summary_fits_any_terminal(monkeypatch, width):
    policies = ["rbcs-f:V=5,beta=0.1,alpha=0.2,ridge=2.0", "random", "round-robin"]
    found = fedroster.compare(policies, seeds=2, rounds=3)
    text = io.StringIO()
    monkeypatch.setattr(terminal, "out", lambda: Console(width=width, file=text, highlight=False))
    measures = found.settings.main_measures
    terminal.print_summary(found, measures)
    shown = text.getvalue()
    assert max(len(line.replace("\u200b", "")) for line in shown.splitlines()) <= width
    assert "…" not in shown
    for words in (*(measure.heading for measure in measures), "random", "round-robin"):
        assert words in shown
    joined = "".join(shown.replace("\u200b", "").split())
    assert "rbcs-f:V=5," in joined
    for row in found.summary().to_dicts():
        assert f"{row['mean_round_time_s']:.2f} ± " in shown
    for measure in measures:
        assert f"{measure.heading.partition(',')[0]}: " in shown  # the legend
    assert "±:halfofa95%intervalover2seeds;fewerthan5candecidenothing" in joined


@pytest.mark.parametrize(
    ("closed", "arguments", "status"),
    [
        (">&-", "list", 0),
        ("2>&-", "list --no-such-option", 2),
        ("<&- >&- 2>&-", "list", 0),
        ("<&- >&- 2>&-", "simulate nowhere", 2),
    ],
)
def test_outputs_may_be_closed(closed, arguments, status):
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m fedroster {arguments} {closed}", shell=True, capture_output=True, check=False
    )
    assert done.returncode == status, done
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "cp932", "utf-16"])
def test_an_output_in_any_encoding_ends_nothing(encoding):
    command = [sys.executable, "-m", "fedroster", "simulate", "rbcs-f/table-1", "--policy", "random"]
    done = subprocess.run(
        [*command, "--seeds", "0-1", "--rounds", "5"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode(encoding)
    assert "random" in shown
    assert encoding != "ascii" or "+-" in shown


def test_no_cell_or_title_is_markup_or_forges_a_line(monkeypatch):
    monkeypatch.setattr(terminal, "out", lambda: Console(width=80, file=text, force_terminal=True))
    text, odd = io.StringIO(), "[link=http://x]a[/]\nINFO round 9 begun\x1b[2J"
    terminal.print_table(["name"], [[odd]], title=odd)
    assert text.getvalue().count(r"\nINFO round 9 begun\x1b[2J") == 2
    assert "\x1b]8" not in text.getvalue()
    assert "\x1b[2J" not in text.getvalue()


def test_a_long_job_says_how_long_it_takes(monkeypatch, capsys):
    now = iter([0.0, 1.0, 16.0, 20.0, 40.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(now))
    said = []
    monkeypatch.setattr(terminal, "remark", said.append)
    with terminal.progress("training") as advance:
        for done in (0.0001, 0.001, 1.0, 2.0):  # a first run that compiles says nothing of the others
            advance(done, 100.0)
    assert said == ["this takes about 33 minutes more"]
