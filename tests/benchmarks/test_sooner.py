"""The verdicts of "Models sooner" are those of its rows, and its page says no more than they do."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import sooner

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sooner.md"
JUDGED = {
    "": (4, 0),
    "wider": (12, 1),
    "harder": (4, 0),
    "images": (0, 0),
    "methods": (22, 2),
    "devices": (47, 7),
    "weights": (16, 1),
    "signatures": (11, 6),
    "cnn": (1, 0),
}
"""Families that have been judged: claims that are undecided, and that do not hold."""
TUNED = ("", "wider", "harder", "images", "half", "cnn")


@pytest.mark.parametrize("name", JUDGED)
def test_the_verdicts_are_those_of_the_registered_rows(name: str, tmp_path: Path) -> None:
    family = sooner.Family.read(name)
    committed = (family.folder / "verdicts.md").read_text()
    shutil.copytree(family.folder, tmp_path, ignore=shutil.ignore_patterns("verdicts.md"), dirs_exist_ok=True)
    copied = replace(family, folder=tmp_path)
    sooner.judge(copied)
    assert (tmp_path / "verdicts.md").read_text() == committed
    assert (committed.count("| undecided"), committed.count("| does not hold")) == JUDGED[name]
    assert committed.count("decide)") == JUDGED[name][0]  # each undecided one says what it would cost
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(SystemExit, match="1 registered runs are missing"):
        sooner.judge(copied)


@pytest.mark.parametrize("name", TUNED)
def test_each_way_has_the_steps_that_tuning_found(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    family = sooner.Family.read(name)
    committed = (family.folder / "tuned.json").read_text()
    if (family.folder / "tuning.csv").exists():
        shutil.copy(family.folder / "tuning.csv", tmp_path)
    monkeypatch.setattr(sooner, "play", lambda *_, **__: pytest.fail("a run of tuning is missing"))
    sooner.tune(replace(family, folder=tmp_path))
    assert (tmp_path / "tuned.json").read_text() == committed


def test_the_page_names_what_is_undecided() -> None:
    page = PAGE.read_text()
    assert page.lower().count("**undecided") == 6
    assert "does not hold (1.26)" in page
    assert "9 of 10 runs miss the target" in page


def test_equal_time_goes_on_and_leaves_what_is_measured_at_equal_updates() -> None:
    family = sooner.Family.read("wider")
    steps = {"rate": 0.2, "size": 1.0, "buffer": 1, "discount": 0.0, "knob": 0.0}

    def played(way: str, **more: object) -> dict[str, str]:
        digits = {**family.registry["worlds"]["digits"], "rounds": 10, **more}
        short = replace(family, registry={**family.registry, "worlds": {"digits": digits}})
        return sooner.play(short, "digits", 0.9, way, 3, steps, tuning=False)

    for way in ("rounds, FLOOR, memory", "places, by speed, memory"):
        whole, more = played(way), played(way, times_s=[100, 300], beyond=8)
        assert {name: more[name] for name in sooner.MEASURED} == {name: whole[name] for name in sooner.MEASURED}
        assert 0.0 < float(more["at_100_s"]) < float(more["at_300_s"]) < 1.0
    for outside_s in (1, 100_000):
        with pytest.raises(ValueError, match=f"expected {outside_s} s in it"):
            played("places, by speed, memory", times_s=[outside_s])
