"""Papers are found through their entry points, those of other packages too."""

import sys

import pytest

from fedroster.core.errors import ConfigurationError, UnknownNameError
from fedroster.lab.verdicts.paper import Paper, find_paper, papers
from fedroster.lab.verdicts.reproduce import Order, reproduce

MODULE = """
import altair as alt
from fedroster.lab.verdicts.courses import each
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Paper
from fedroster.lab.verdicts.verdicts import claims_of, time_gap

def draw(runs):
    return alt.Chart(alt.InlineData(values=[{'a': 1}])).mark_bar().encode(x='a:Q')

def claims(runs):
    slow, fast = (each(runs, name, lambda run: float(run.round_time_s.mean())) for name in ("random", "fedcs"))
    return claims_of("Fig. 1", {"shorter": ("FedCS is faster.", "time", [time_gap(fast, slow)])})

NEEDS = {policy: Need(policy, "rbcs-f/table-1") for policy in ("random", "fedcs")}
PAPER = Paper("A made-up paper", {"1": FigureRecipe("Fig. 1", NEEDS, draw, claims)}, rounds=20)
WRONG = 3
"""


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """An installed distribution with a paper, one of ours, one that is none and one that is missing."""
    info = tmp_path / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fedroster.papers]\nmade-up = made_up_paper:PAPER\ncocs = made_up_paper:PAPER\nwrong = made_up_paper:WRONG\n"
        "gone = made_up_paper.gone:PAPER\nscript = made_up_script:PAPER\n"
    )
    (tmp_path / "made_up_paper.py").write_text(MODULE)
    (tmp_path / "made_up_script.py").write_text("print('done')\nraise SystemExit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("made_up_paper", None)


def test_our_own_papers():
    assert set(papers()) == {"rbcs-f", "cocs", "floor", "partial-pooling"}
    for name in papers():
        assert isinstance(find_paper(name), Paper)
        assert find_paper(name).figures


def test_no_paper_is_imported_before_it_is_asked_for(distribution):
    assert {"made-up", "rbcs-f", "wrong", "gone"} <= set(papers())
    assert papers()["cocs"].value.startswith("fedroster.lab.papers.")  # a name of ours stays ours
    assert "made_up_paper" not in sys.modules


@pytest.mark.usefixtures("distribution")
def test_another_package_brings_a_paper(tmp_path):
    (verdict,) = reproduce(Order("made-up", [0, 1]), tmp_path / "out", command="fedroster", workers=1)
    assert verdict.effect.mean > 5.0  # seconds
    page = (tmp_path / "out/index.md").read_text()
    assert page.startswith("# A made-up paper\n")
    assert "FedCS is faster." in page


@pytest.mark.usefixtures("distribution")
def test_what_is_no_paper(capsys):
    with pytest.raises(ConfigurationError, match=r"paper script cannot be loaded .*SystemExit\(7\)"):
        find_paper("script")
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigurationError, match="paper wrong is int in made_up_paper:WRONG; expected Paper"):
        find_paper("wrong")
    with pytest.raises(ConfigurationError, match=r"paper gone cannot be loaded from made_up_paper.gone:PAPER \(Module"):
        find_paper("gone")
    with pytest.raises(UnknownNameError, match=r"unknown paper 'made-dup'.*made-up"):
        find_paper("made-dup")
