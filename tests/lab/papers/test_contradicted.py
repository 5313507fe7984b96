"""What the documentation says of contradicted claims is what the reproductions' claims say."""

import csv
import importlib.util
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def maker():
    spec = importlib.util.spec_from_file_location("contradicted", DOCS / "contradicted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_claims(maker):
    text = maker.PAGE.read_text()
    assert maker.page(text) == text, "run python docs/contradicted.py"


def claims(folder, rows):
    (folder / "reproduction" / "rbcs-f").mkdir(parents=True)
    (folder / "reproduction" / "cocs").mkdir(parents=True)
    shutil.copy(DOCS / "reproduction" / "cocs" / "claims.csv", folder / "reproduction" / "cocs")
    with (folder / "reproduction" / "rbcs-f" / "claims.csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


ROW = {"claim": "flat-1", "asked_by": "paper", "verdict": "contradicted", "measure": "growth | slope", "unit": "s"}
ROW |= {"effect": "-1", "effect_low": "-2", "effect_high": "-0.5", "seeds": "9"}


def test_a_contradicted_claim_needs_the_papers_words(maker, tmp_path, monkeypatch):
    claims(tmp_path, [ROW])
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    with pytest.raises(SystemExit, match="flat-1"):
        maker.contradicted()
    said = maker.Words("“flatten”", "6.1.2", "a command", "another slope")
    monkeypatch.setitem(maker.SAID, "flat-1", said)
    assert "| “flatten” | 6.1.2 | growth \\| slope: -1 s (-2 to -0.5), 9 seeds |" in maker.contradicted()


def test_what_no_paper_says_stays_off_the_page(maker, tmp_path, monkeypatch):
    claims(tmp_path, [ROW | {"verdict": "holds, but small"}, ROW | {"claim": "ours", "asked_by": "us"}])
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    assert "growth" not in maker.contradicted()
