"""Figures: what is drawn is what was measured, the same figure is the same file, and needs nothing from outside."""

import json
import math
import re
import struct
import warnings
import zlib
from xml.etree import ElementTree

import altair as alt
import numpy as np
import pytest
import vl_convert

from fedroster.core.errors import ConfigurationError
from fedroster.lab.pages import charts
from fedroster.lab.pages.charts import Axes, Curve, by_column, data_of, intervals, lines, narrow, panels, svg_of, told
from fedroster.lab.pages.looks import in_order
from fedroster.lab.pages.pareto import pareto_figure
from fedroster.lab.statistics import Interval, pareto_front

X = np.arange(1.0, 501.0)
NASTY = r"A & B < C $x_$ \frac{1}{2}"


def curve(scale=1.0):
    mean = scale * np.sqrt(X)
    return Curve(X, mean, mean - 0.1, mean + 0.1)


def point(x, y, half=0.5):
    return Interval(x, x - half, x + half), Interval(y, y - half, y + half)


FEW = {"random <&>": curve(), "RBCS-F(5)": curve(2.0)}
MANY = {f"policy-{number}": curve(1.0 + number) for number in range(11)}
AXES = Axes("round", "time, s")
BELOW_ZERO = Curve(*(X[:9] - less for less in (1.0, 2.0, 3.0, 0.0)))
SHARE = Curve(X, X / 5.01, X / 6.0, X / 4.0)
INTERVALS = {"floor": Interval(2.0, 1.0, 3.0), "random": Interval(0.5, -1.0, 2.0)}
CROWD = {
    "random": point(330.0, 2.9, half=0.0),
    "rbcs-f:V=0.85,beta=0.01": point(283.0, 2.9),
    "p3:V=0.85,beta=0.01": point(115.0, 2.0),
    **{f"policy-{number}": point(330.0 + 0.3 * number, 2.9 - 0.01 * number) for number in range(12)},
    "round-robin": point(335.0, 6.5),
}
MAKERS = {
    "curves": lambda: lines(FEW, AXES, title=NASTY, level=(9.0, "beta = 0.15")),
    "logarithmic": lambda: lines({"a": BELOW_ZERO}, Axes("round", "s", log_x=True, log_y=True)),
    "shares": lambda: lines({"a": SHARE}, Axes("time, s", "accuracy, %", log_x=True)),
    "nothing": lambda: lines({"a": Curve(*(np.empty(0),) * 4)}, Axes("s", "%", log_x=True)),
    "apart": lambda: lines(MANY, AXES, apart=True, behind="policy-3", level=(2.0, "owed")),
    "panels": lambda: panels({"a": FEW, "b": FEW}, Axes("round", "%", range_y=(0.0, 20.0)), looks=in_order(FEW)),
    "intervals": lambda: intervals({"time, s": INTERVALS, "a measure that takes\ntwo lines": INTERVALS}),
    "pareto": lambda: pareto_figure(CROWD, "time, s", "served, %", title=NASTY, aided=["p3:V=0.85,beta=0.01"]),
    "one point": lambda: pareto_figure({"a": point(1.0, 0.0, half=0.0)}, "time, s", "%", focus=["a"]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_library_takes_every_chart_and_draws_the_same_file(name):
    one, other = (make().to_dict() for make in (MAKERS[name], MAKERS[name]))
    assert one == other
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vl_convert.vegalite_to_svg(one, show_warnings=True)
    svg = svg_of(one, "x")
    json.dumps(by_column(one), allow_nan=False)
    # It stands alone, scales, and its parts are told from those of another picture on a page.
    ElementTree.fromstring(svg)
    assert not re.search(r"""(?:href|src)\s*=\s*["'](?!#|data:)""", svg)
    assert not re.search(r"url\((?!#x-)|@import|<script|20\d\d-\d\d-\d\d", svg)
    assert "viewBox" in svg.partition(">")[0]
    # A page whose policy allows no styles in attributes shows it, too.
    assert "style=" not in svg


def test_labels_are_text_that_can_be_searched():
    text = " ".join(ElementTree.fromstring(svg_of(MAKERS["curves"]().to_dict(), "x")).itertext())
    for label in ("RBCS-F(5)", "random <&>", NASTY, "beta = 0.15", "round", "time, s"):
        assert label in text


def test_curves_are_thinned_and_keep_their_ends_and_bands():
    data = data_of(MAKERS["curves"]()).filter(label="RBCS-F(5)")
    assert 80 <= data.height <= 160
    assert data["x"].to_list()[:: data.height - 1] == [1.0, 500.0]
    np.testing.assert_allclose(data["mean"], 2.0 * np.sqrt(data["x"]), rtol=1e-4)
    np.testing.assert_allclose(data["high"] - data["low"], 0.2, atol=1e-2)
    spec = MAKERS["curves"]().to_dict()
    assert {layer["mark"]["type"] for layer in spec["layer"]} == {"area", "line", "rule", "text"}
    # What is not above zero has no place on logarithmic axes.
    assert data_of(MAKERS["logarithmic"]())["x"].min() == 2.0


def test_each_curve_has_a_panel_with_the_same_one_behind():
    spec = MAKERS["apart"]().to_dict()
    assert spec["facet"]["sort"] == list(MANY)
    grey = spec["datasets"][spec["spec"]["layer"][0]["data"]["name"]]
    assert grey[-1]["mean"] == pytest.approx(4.0 * np.sqrt(500.0), rel=1e-4)
    assert "resolve" not in spec  # one scale for all


def test_a_legend_names_what_is_drawn_and_nothing_else():
    looks = in_order(["elsewhere", *FEW])
    for apart in (False, True):
        spec = lines(FEW, AXES, looks=looks, apart=apart).to_dict()
        for scale in (layer["encoding"]["color"]["scale"] for layer in spec.get("spec", spec)["layer"]):
            shown = zip(scale["domain"], scale["range"], strict=True)
            assert list(shown) == [(label, looks[label].colour) for label in FEW]


def test_intervals_are_drawn_as_they_are():
    data = data_of(MAKERS["intervals"]()).filter(panel="time, s")
    assert data.drop("panel").rows() == [("floor", 2.0, 1.0, 3.0), ("random", 0.5, -1.0, 2.0)]


def pixels(figure):
    """The picture, shape (rows, columns, 4); the converter filters every row by its left neighbours."""
    png, at, packed = vl_convert.vegalite_to_png(figure.to_dict()), 8, b""
    width, height = struct.unpack(">II", png[16:24])
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        packed += png[at + 8 : at + 8 + length] if png[at + 4 : at + 8] == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
    assert set(rows[:, 0]) <= {1}
    return rows[:, 1:].reshape(height, width, 4).cumsum(axis=1, dtype=np.uint8)


LONG = "uniform selection above the least even one, points of final accuracy, of which there are a great many in all"
TALL = {
    "abscissa": lambda: lines(FEW, Axes(LONG, "s"), title="T"),
    "ordinate": lambda: lines(FEW, Axes("round", LONG), title="T"),
    "legend": lambda: lines({LONG[:70]: curve(), "b": curve(2.0)}, AXES),
    "measure": lambda: intervals({LONG: INTERVALS, "b": INTERVALS}),
    "label": lambda: intervals({"a": {LONG[:60]: Interval(1.0, 0.0, 2.0)}}),
    "panel": lambda: lines({f"{name}:solver=fast-lazy-greedy,epsilon=0.3": curve() for name in MANY}, AXES, apart=True),
    "point": lambda: pareto_figure({LONG[:60]: point(1.0, 2.0), "b": point(2.0, 3.0)}, LONG[:60], LONG),
}


@pytest.mark.parametrize("name", TALL)
def test_a_long_label_stays_inside_the_figure(name):
    """What is cut off by an edge would leave its ink there."""
    picture = pixels(TALL[name]())
    assert (picture[[0, -1]] == 255).all()
    assert (picture[:, [0, -1]] == 255).all()
    assert (picture < 128).any()
    assert picture.shape[1] < 1000


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("intervals", "nothing")])
def test_a_figure_fits_a_column_and_names_all_that_it_shows(name):
    figure = MAKERS[name]()
    small = narrow(figure, 250.0)
    assert pixels(small).shape[1] <= 275
    text = " ".join(ElementTree.fromstring(svg_of(small.to_dict(), "x")).itertext())
    assert all(label in text for label in set(data_of(figure)["label"]))


def test_axes_stay_in_the_range_of_a_share_and_a_time():
    wide = {"a": point(3.0, 5.0, half=30.0), "b": point(9.0, 98.0, half=30.0)}
    x, y = (pareto_figure(wide, "time, s", "%").to_dict()["layer"][0]["encoding"][axis]["scale"] for axis in "xy")
    assert x["domain"][0] == 0.0 < x["domain"][1]
    assert y["domain"] == [0.0, 100.0]


def test_the_pareto_front_by_hand():
    time, good = [1.0, 2.0, 2.0, 3.0, 4.0, 1.0], [0.1, 0.3, 0.3, 0.2, 0.9, 0.05]
    points = {label: point(x, y) for label, x, y in zip("abcdef", time, good, strict=True)}
    assert pareto_front(points) == ["a", "b", "c", "e"]  # equals do not beat each other
    assert pareto_front(points, aided="a") == ["f", "b", "c", "e"]
    assert pareto_front({}) == []
    rng = np.random.default_rng(0)
    x, y = rng.random(40), rng.random(40)
    front = pareto_front({i: point(x[i], y[i]) for i in range(40)})
    assert (np.diff(x[front]) > 0.0).all()
    assert (np.diff(y[front]) > 0.0).all()
    assert all(any(x[j] < x[i] and y[j] > y[i] for j in front) for i in set(range(40)) - set(front))
    assert pareto_front({i: point(-x[i], y[i]) for i in range(40)}, more_x=True) == front


def test_points_have_their_kinds_and_labels_where_there_is_room():
    rows = {row["label"]: row for row in data_of(MAKERS["pareto"]()).iter_rows(named=True)}
    kinds = {"random": "the reference", "policy-3": "beaten", "round-robin": "on the Pareto front"}
    kinds["p3:V=0.85,beta=0.01"] = "knows the truth"
    assert {label: rows[label]["kind"] for label in kinds} == kinds
    assert data_of(MAKERS["one point"]())["kind"].to_list() == ["in focus"]
    assert (rows["policy-3"]["x_low"], rows["policy-3"]["x_high"]) == (330.4, 331.4)
    named = {label for label, row in rows.items() if row["place"] is not None}
    assert {"random", "rbcs-f:V=0.85,beta=0.01", "p3:V=0.85,beta=0.01", "round-robin"} <= named
    assert len(named) < len(CROWD)  # in the crowd there is no room for all


def test_the_front_goes_through_its_corners_to_the_worse_side():
    def front(points, **how):
        spec = pareto_figure(points, "s", "%", **how).to_dict()
        line = spec["layer"][0]
        assert line["mark"]["interpolate"] == "step-after"
        return [(row["x"], row["y"]) for row in spec["datasets"][line["data"]["name"]]]

    first, *corners, last = front({"a": point(1.0, 1.0), "b": point(2.0, 3.0), "c": point(3.0, 2.0)})
    assert corners == [(1.0, 1.0), (2.0, 3.0)]
    assert (first[0], last[1]) == (1.0, 3.0)
    assert first[1] < 0.5
    assert last[0] > 3.5
    first, *corners, last = front({"a": point(3.0, 1.0), "b": point(2.0, 3.0), "c": point(1.0, 2.0)}, more_x=True)
    assert corners == [(3.0, 1.0), (2.0, 3.0)]
    assert last[0] < 0.5


def test_the_library_is_put_together_once(tmp_path, monkeypatch):
    class Converter:
        calls = 0

        @classmethod
        def javascript_bundle(cls, *_, **__):
            cls.calls += 1
            return "a = '</script>'"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(charts, "vl_convert", Converter)
    for _ in range(2):
        charts.library.cache_clear()
        assert charts.library() == "a = '<\\/script>'"
    assert Converter.calls == 1
    charts.library.cache_clear()


def test_any_chart_of_altair_can_stand_on_a_page():
    """A paper of another package may draw whatever it likes."""
    chart = alt.Chart(alt.InlineData(values=[{"a": 1}])).mark_bar().encode(x="a:Q")
    assert data_of(chart).is_empty()
    assert list(by_column(chart.to_dict())["datasets"].values()) == [{"a": [1]}]
    assert data_of(alt.Chart().mark_bar()).is_empty()
    assert narrow(chart, 250.0) is chart
    for width in (10.0, math.nan, math.inf):
        with pytest.raises(ConfigurationError, match=r"width is .*; expected a finite number >= 150"):
            narrow(chart, width)


def test_the_last_point_that_is_known_is_told():
    ends, never = np.where(X < 400.0, X, np.nan), np.full(500, np.nan)
    numbers = data_of(lines({"ends": Curve(X, ends, ends, ends), "never": Curve(X, never, never, never)}, AXES))
    assert told(numbers).startswith("In the end: ends 39")
    assert "never" not in told(numbers)
