"""Figures: the same figure is the same file, and needs nothing from outside."""

from __future__ import annotations

import errno
import itertools
import os
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from fedroster.study.figures import (
    Curve,
    curves_figure,
    intervals_figure,
    panels_figure,
    save_png,
    small_multiples_figure,
    svg_text,
)
from fedroster.study.looks import in_order
from fedroster.study.statistics import Interval

X = np.arange(1.0, 21.0)


def curve(scale=1.0):
    mean = scale * np.sqrt(X)
    return Curve(X, mean, mean - 0.1, mean + 0.1)


MAKERS = {
    "curves": lambda: curves_figure(
        {"RBCS-F(5)": curve(), "random <&>": curve(2.0)},
        x_label="round",
        y_label="time, s",
        title="A & B < C",
        reference=(1.0, "beta = 0.15"),
    ),
    "log": lambda: curves_figure({"a": curve()}, x_label="round", y_label="regret, s", log_y=True),
    "panels": lambda: small_multiples_figure(
        {f"policy-{number}": curve(1.0 + number) for number in range(17)},
        x_label="round",
        y_label="time, s",
        title="Many",
        reference="policy-3",
        level=(2.0, "owed"),
    ),
    "panels of shares": lambda: small_multiples_figure(
        {str(n): Curve(X, X / 21.0, X / 30.0, X / 20.0) for n in range(3)},
        x_label="time, s",
        y_label="accuracy, %",
        percent_y=True,
        log_x=True,
    ),
    "panels with zeros": lambda: small_multiples_figure(
        {"a": Curve(X, X - 1.0, X - 1.0, X - 1.0)}, x_label="clients, %", y_label="%", log_y=True
    ),
    "intervals": lambda: intervals_figure({"ms": {"a": Interval(1.0, -1.0, 3.0), "b": Interval(20.0, 19.0, 21.0)}}),
    "no data": lambda: curves_figure(
        {"a": Curve(*(np.empty(0),) * 4)}, x_label="simulated time, s", y_label="accuracy, %"
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_figure_is_the_same_file(tmp_path, name):
    one, other = MAKERS[name](), MAKERS[name]()
    for figure, file in ((one, "one.png"), (other, "other.png")):
        save_png(figure, tmp_path / file)
    assert svg_text(one) == svg_text(other)
    content = (tmp_path / "one.png").read_bytes()
    assert content == (tmp_path / "other.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "other.png"]


def test_a_notebook_shows_a_figure_without_pyplot():
    assert MAKERS["curves"]()._repr_png_().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize("name", MAKERS)
def test_an_svg_stands_alone(name):
    svg = svg_text(MAKERS[name]())
    assert svg.startswith("<svg")
    ElementTree.fromstring(svg)  # well-formed
    assert not re.search(r"""(?:href|src)\s*=\s*["'](?!#|data:)""", svg)
    assert not re.search(r"url\((?!#)", svg)
    assert "@import" not in svg
    assert "<script" not in svg
    assert "viewBox" in svg.partition(">")[0]  # it scales
    assert not re.search(r"20\d\d-\d\d-\d\d", svg)  # no date


def test_labels_are_text_that_can_be_searched():
    svg = svg_text(MAKERS["curves"]())
    text = " ".join(ElementTree.fromstring(svg).itertext())
    for label in ("RBCS-F(5)", "random <&>", "A & B < C", "beta = 0.15", "round", "time, s"):
        assert label in text


def test_other_data_is_another_figure():
    one, other = (curves_figure({"a": curve(scale)}, x_label="x", y_label="y") for scale in (1.0, 2.0))
    assert svg_text(one) != svg_text(other)


def test_curves_are_drawn_with_their_bands():
    axes = MAKERS["curves"]().axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_array_equal(lines["random <&>"].get_ydata(), 2.0 * np.sqrt(X))
    assert len(axes.collections) == 2
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.9, np.sqrt(20.0) + 0.1))
    assert MAKERS["log"]().axes[0].get_yscale() == "log"


def test_a_policy_looks_alike_in_every_figure():
    looks = in_order(["a", "b", "c"])

    def drawn(*labels):
        figure = curves_figure({label: curve() for label in labels}, x_label="", y_label="", looks=looks)
        return {line.get_label(): (line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()}

    assert drawn("c", "a") == {label: (looks[label].colour, looks[label].line) for label in ("c", "a")}


def test_an_accident_leaves_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "figure.png"
    save_png(MAKERS["log"](), path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            save_png(MAKERS["log"](), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["figure.png"]


# -------------------------------------------------------------------- more policies than colours


def test_every_policy_has_a_panel_with_the_same_axes():
    figure = small_multiples_figure(
        {f"policy-{number}": curve(1.0 + number) for number in range(11)},
        x_label="round",
        y_label="time, s",
        reference="policy-0",
    )
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown] == [f"policy-{number}" for number in range(11)]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in shown}) == 1
    assert [len(axes.lines) for axes in shown] == [1] + [2] * 10  # its own line, and the reference


def test_a_long_curve_is_thinned_and_keeps_its_ends():
    x = np.arange(5000.0)
    figure = small_multiples_figure({"a": Curve(x, x, x, x)}, x_label="round", y_label="s")
    (line,) = figure.axes[0].lines
    assert 100 < len(line.get_xdata()) < 200
    assert (line.get_xdata()[0], line.get_xdata()[-1]) == (0.0, 4999.0)


NAMES = ["Oracle", "COCS, h_T = 2, K(t) x 0.02", "Random", "CUCB per pair", "Oracle, Fast Lazy Greedy", "a", "b", "c"]
LONG = {
    "curves": lambda label: curves_figure(
        dict.fromkeys(NAMES, curve()), x_label="edge round", y_label=label, title="R"
    ),
    "panels": lambda label: panels_figure(
        {"MNIST": dict.fromkeys(NAMES, curve(0.1))}, x_label="round", y_label=label, looks=in_order(NAMES)
    ),
    "multiples": lambda label: small_multiples_figure(
        dict.fromkeys(NAMES, curve()), x_label="round", y_label=label, title="R"
    ),
    "intervals": lambda label: intervals_figure(
        {label: dict.fromkeys(["CIFAR-10, small network, gamma_1 = 0.2", "IID"], Interval(1.0, 0.0, 2.0))}
    ),
    "four panels": lambda label: intervals_figure(
        {measure: {"beta = 0.05, V = 20": Interval(1.0, 0.0, 2.0)} for measure in (label, "a", "b", "c")}
    ),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize(
    "label",
    [
        "regret against Oracle, Fast Lazy Greedy",
        "delta-regret (21) against 0.096 times Oracle-p",
        "uniform selection above the least even one, points of final accuracy",
    ],
)
def test_a_long_label_stays_inside_the_figure(name, label):
    figure = LONG[name](label)
    FigureCanvasAgg(figure).draw()
    (shown,) = [
        text for text in figure.findobj(Text) if text.get_visible() and text.get_text().replace("\n", " ") == label
    ]
    box = shown.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    beside = [axes.xaxis.label.get_window_extent() for axes in figure.axes if axes.get_xlabel()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(beside))
