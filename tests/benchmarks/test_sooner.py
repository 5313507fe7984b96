"""The verdicts of "Models sooner" are those of its rows, and its page says no more than they do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import sooner

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sooner.md"


def test_the_verdicts_are_those_of_the_registered_rows(tmp_path: Path) -> None:
    first = sooner.Family.read()
    committed = (first.folder / "verdicts.md").read_text()
    shutil.copy(first.folder / "runs.csv", tmp_path)
    copied = replace(first, folder=tmp_path)
    sooner.judge(copied)
    assert (tmp_path / "verdicts.md").read_text() == committed
    assert committed.count("undecided") == 4
    assert "does not hold" not in committed
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(SystemExit, match="1 registered runs are missing"):
        sooner.judge(copied)


def test_each_way_has_the_steps_that_tuning_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = sooner.Family.read()
    committed = (first.folder / "tuned.json").read_text()
    shutil.copy(first.folder / "tuning.csv", tmp_path)
    monkeypatch.setattr(sooner, "play", lambda *_, **__: pytest.fail("a run of tuning is missing"))
    sooner.tune(replace(first, folder=tmp_path))
    assert (tmp_path / "tuned.json").read_text() == committed


def test_the_page_names_what_is_undecided() -> None:
    page = PAGE.read_text()
    assert page.count("**undecided") == 2
    assert "9 of 10 runs miss the target" in page
