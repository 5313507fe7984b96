"""Policies between two measures: the front, its staircase, and labels that can be read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

from fedroster.study.figures import save_png, svg_text
from fedroster.study.pareto import Panel, Point, pareto_figure, pareto_front, pareto_panels_figure
from fedroster.study.statistics import Interval


def point(x, y, kind="other", on_front=False, half=0.5):
    return Point(Interval(x, x - half, x + half), Interval(y, y - half, y + half), kind, on_front)


CROWD = {
    "random": point(330.0, 2.9, "reference", half=0.0),
    "rbcs-f:V=0.85,beta=0.01": point(283.0, 2.9, "front", True),
    "p3:V=0.85,beta=0.01": point(115.0, 2.0, "aided"),
    **{f"policy-{number}": point(330.0 + 0.3 * number, 2.9 - 0.01 * number) for number in range(12)},
    **{f"at-zero-{number}": point(320.0 + number, 0.0, half=0.0) for number in range(5)},
    "round-robin": point(335.0, 6.5, "front", True),
}
STAIRS = {"a": point(1.0, 1.0, "front", True), "b": point(2.0, 3.0, "front", True), "c": point(3.0, 2.0)}
# The same mirrored: more of x is better.
MIRRORED = {
    "a": point(3.0, 1.0, "front", True),
    "b": point(2.0, 3.0, "focus", True),
    "c": point(1.0, 2.0),
    "random": point(1.5, 0.5, "reference"),
}
MAKERS = {
    "crowd": lambda: pareto_figure(Panel(CROWD, "time, s", "least served, %", "A & B")),
    "one": lambda: pareto_figure(Panel({"a": point(1.0, 0.0, half=0.0)}, "time, s", "%")),
    "more is better": lambda: pareto_figure(Panel(MIRRORED, "updates", "%", more_x=True)),
    "panels": lambda: pareto_panels_figure(
        [
            Panel(CROWD, "time, s", "least: in full, %", "<one>"),
            Panel(MIRRORED, "updates", "least", "two", more_x=True),
        ],
        title="A & B",
    ),
    "one panel": lambda: pareto_panels_figure([Panel({"a": point(1.0, 0.0, half=0.0)}, "s", "%")]),
}


def test_the_pareto_front_by_hand():
    time, good = [1.0, 2.0, 2.0, 3.0, 4.0, 1.0], [0.1, 0.3, 0.3, 0.2, 0.9, 0.05]
    assert pareto_front(time, good) == [0, 1, 2, 4]  # equals do not beat each other
    assert pareto_front([], []) == []
    rng = np.random.default_rng(0)
    x, y = rng.random(40), rng.random(40)
    front = pareto_front(x.tolist(), y.tolist())
    order = sorted(front, key=lambda i: x[i])
    assert (np.diff(y[order]) > 0.0).all()
    assert all(any(x[j] < x[i] and y[j] > y[i] for j in front) for i in set(range(40)) - set(front))
    assert pareto_front((-x).tolist(), y.tolist(), more_x=True) == front


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_figure_is_the_same_file_and_stands_alone(tmp_path, name):
    one, other = MAKERS[name](), MAKERS[name]()
    for figure, file in ((one, "one.png"), (other, "other.png")):
        save_png(figure, tmp_path / file)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    svg = svg_text(one)
    assert svg == svg_text(other)
    ElementTree.fromstring(svg)  # well-formed
    assert not re.search(r"""(?:href|src)\s*=\s*["'](?!#|data:)""", svg)


def test_labels_of_a_crowd_do_not_cover_each_other():
    figure = MAKERS["crowd"]()
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = {text.get_text(): Text.get_window_extent(text) for text in axes.texts}  # without the line to the point
    assert boxes.keys() == CROWD.keys()
    frame = axes.get_window_extent()
    for name, box in boxes.items():
        assert box.x0 >= frame.x0 - 2, name
        assert box.x1 <= frame.x1 + 2, name
    names = list(boxes)
    covered = [
        (one, other)
        for i, one in enumerate(names)
        for other in names[i + 1 :]
        if boxes[one].shrunk(0.9, 0.8).overlaps(boxes[other].shrunk(0.9, 0.8))
    ]
    assert covered == []
    near = axes.transData.transform((115.0, 2.0))
    label = boxes["p3:V=0.85,beta=0.01"]  # alone: next to its point
    assert abs(label.y0 + label.height / 2 - near[1]) < 30.0


def stairs(axes):
    (line,) = [line for line in axes.lines if len(line.get_xdata()) > 3]
    return list(zip(line.get_xdata(), line.get_ydata(), strict=True))


def test_the_front_is_a_staircase_through_its_corners():
    axes = pareto_figure(Panel(STAIRS, "s", "%")).axes[0]
    corners = stairs(axes)
    assert corners[1:-1] == [(1, 1), (2, 1), (2, 3)]
    assert corners[0] == (1, axes.get_ylim()[0])
    assert corners[-1] == (axes.get_xlim()[1], 3)  # to the worse side
    axes = MAKERS["more is better"]().axes[0]
    corners = stairs(axes)
    assert corners[1:-1] == [(3, 1), (2, 1), (2, 3)]
    assert corners[-1] == (axes.get_xlim()[0], 3)


def test_in_panels_right_is_better_and_few_have_labels():
    figure = MAKERS["panels"]()
    times, updates = figure.axes[:2]
    assert times.get_xlim()[0] > times.get_xlim()[1]
    assert updates.get_xlim()[0] < updates.get_xlim()[1]
    assert {text.get_text() for text in times.texts} == {"random", "rbcs-f:V=0.85,beta=0.01", "round-robin"}
    assert {text.get_text() for text in updates.texts} == {"a", "b", "random"}
    assert times.get_ylabel() == "least, %"
    save = svg_text(figure)
    assert "focus" in save
    # Nothing is cut off at the sides when the picture is saved.
    for axes in figure.axes[:2]:
        assert axes.get_tightbbox().x0 >= 0.0
