"""What the documentation says of contradicted claims is what the reproductions' claims say."""

from __future__ import annotations

import csv
import importlib.util
import shutil
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def maker():
    spec = importlib.util.spec_from_file_location("contradicted", DOCS / "contradicted.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_the_claims(maker):
    text = maker.PAGE.read_text()
    assert maker.page(text) == text, "run python docs/contradicted.py"


def test_a_claim_that_is_contradicted_comes_onto_the_page(maker, tmp_path, monkeypatch):
    for name in maker.PAPERS:
        (tmp_path / "reproduction" / name).mkdir(parents=True)
        shutil.copy(DOCS / "reproduction" / name / "claims.csv", tmp_path / "reproduction" / name)
    path = tmp_path / "reproduction" / "rbcs-f" / "claims.csv"
    row = {
        "asked_by": "paper",
        "verdict": "contradicted",
        "changed": "",
        "runs": "simulation",
        "why": "2 of 9 seeds broke it",
    }
    row |= {"test": "promise", "statement": "A | B.", "source": "Fig. 9"}
    with path.open("w") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
        writer.writerow(row | {"verdict": "holds", "statement": "C."})
        writer.writerow(row | {"asked_by": "us", "statement": "D."})
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    found = maker.contradicted()
    assert "| A \\| B. | Fig. 9 | 2 of 9 seeds broke it | simulation, as in the paper |" in found
    assert "C." not in found
    assert "D." not in found
