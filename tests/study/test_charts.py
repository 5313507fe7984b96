"""Charts: every number that is drawn, in specifications that the library accepts."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from fedroster.study import charts
from fedroster.study.figures import Curve, curves_figure, intervals_figure, panels_figure, small_multiples_figure
from fedroster.study.looks import in_order
from fedroster.study.pareto import Panel, Point, pareto_figure
from fedroster.study.statistics import Interval

X = np.arange(1.0, 501.0)
CURVES = {"random": Curve(X, X / 1000, X / 2000, X / 500), "floor": Curve(X, X / 800, np.full(500, np.nan), X)}
AXES = {"x_label": "round", "y_label": "share, %"}
ONE = {"floor": Interval(2.0, 1.0, 3.0), "random": Interval(0.5, -1.0, 2.0)}


def point(x, y, kind="other"):
    return Point(Interval(x, x - 1.0, x + 1.0), Interval(y, y - 1.0, y + 1.0), kind, kind == "front")


PANEL = Panel(
    {"floor": point(2.0, 9.0, "focus"), "oort": point(2.1, 9.1), "random": point(8.0, 1.0, "front")}, "x", "y"
)
FIGURES = {
    "curves": lambda: curves_figure(CURVES, percent_y=True, reference=(0.5, "beta"), **AXES),
    "logarithmic": lambda: curves_figure(CURVES, log_x=True, log_y=True, **AXES),
    "panels": lambda: panels_figure({"a": CURVES, "b": CURVES}, looks=in_order(CURVES), **AXES),
    "multiples": lambda: small_multiples_figure(CURVES, **AXES),
    "intervals": lambda: intervals_figure({"ms": ONE}),
    "pareto": lambda: pareto_figure(PANEL),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_library_takes_every_chart(name):
    vl_convert = pytest.importorskip("vl_convert")
    for chart in FIGURES[name]().charts:
        assert len({len(values) for values in chart.data.values()}) == 1
        json.dumps(chart.data, allow_nan=False)
        names = list(chart.data)
        rows = [dict(zip(names, row, strict=True)) for row in zip(*chart.data.values(), strict=True)]
        spec = dict(chart.spec) | {
            "data": {"name": "table", "values": rows},
            "params": [{"name": "shown", "value": None}],
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            svg = vl_convert.vegalite_to_svg(spec, show_warnings=True)
        assert svg.count("<path") > 3
        looks = {look.colour.lower() for look in chart.looks.values()}
        assert any(colour in svg.lower() for colour in looks)


def test_curves_are_thinned_and_keep_their_ends():
    (chart,) = FIGURES["curves"]().charts
    own = [i for i, label in enumerate(chart.data["label"]) if label == "random"]
    assert len(own) == 160
    assert [chart.data["x"][i] for i in (own[0], own[-1])] == [1.0, 500.0]
    assert [chart.data["mean"][i] for i in (own[0], own[-1])] == [0.1, 50.0]  # in percent
    assert chart.data["low"][-1] is None


def test_labels_stand_where_there_is_room():
    (chart,) = FIGURES["pareto"]().charts
    assert dict(zip(chart.data["label"], chart.data["text"], strict=True)) == {
        "floor": "floor",
        "oort": "",
        "random": "random",
    }
    assert chart.data["x_low"] == [1.0, 1.1, 7.0]


def test_the_library_is_put_together_once(tmp_path, monkeypatch):
    class Converter:
        calls = 0

        @classmethod
        def javascript_bundle(cls, _):
            cls.calls += 1
            return "a = '</script>'"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", Converter)
    monkeypatch.setattr(charts, "version", lambda name: "0")
    for _ in range(2):
        charts.library.cache_clear()
        assert charts.library() == "a = '<\\/script>'"
    assert Converter.calls == 1
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", None)
    charts.library.cache_clear()
    assert charts.library() == ""
    charts.library.cache_clear()
