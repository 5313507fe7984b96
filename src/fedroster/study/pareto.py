"""Policies between a cost or a yield and how the least served fare: the Pareto front, one picture or many panels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedroster.study.charts import Chart, points
from fedroster.study.figures import Pointed, styled
from fedroster.study.looks import look
from fedroster.study.statistics import Interval


@dataclass(frozen=True, slots=True)
class Point:
    """A policy between two measures.

    Attributes:
        x: A cost, or a yield.
        y: More is better.
        kind: "front" for one that no other beats in both, "focus" for one that is marked, "reference" for the
            one that the others are compared with, "aided" for one that knows what no server can know, else "other".
        on_front: Whether it is a corner of the Pareto front, of whatever kind it is.
    """

    x: Interval
    y: Interval
    kind: Literal["front", "focus", "reference", "aided", "other"]
    on_front: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """What one picture shows: points by label, and whether more of x is better."""

    points: Mapping[str, Point]
    x_label: str
    y_label: str
    title: str = ""
    more_x: bool = False


# How each kind is drawn, and what the legend calls it, in the legend's order.
_KINDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "focus": ("in focus", {"color": "#009E73", "marker": "*", "markersize": 12.0}),
    "front": ("on the Pareto front", {"color": "#0072B2", "marker": "o", "markersize": 6.5}),
    "reference": ("the reference", {"color": "#000000", "marker": "D", "markersize": 6.0}),
    "aided": ("knows the truth", {"color": "#D55E00", "marker": "o", "markersize": 6.0, "markerfacecolor": "white"}),
    "other": ("beaten", {"color": "#777777", "marker": "o", "markersize": 5.0}),
}


def pareto_front(x: Sequence[float], y: Sequence[float], *, more_x: bool = False) -> list[int]:
    """Which points no other beats: better in x and at least as good in y, or more of y for no worse an x.

    Returns:
        Their positions, in order.
    """
    cost = [-value for value in x] if more_x else list(x)
    return [
        i
        for i in range(len(cost))
        if not any(cost[j] <= cost[i] and y[j] >= y[i] and (cost[j] < cost[i] or y[j] > y[i]) for j in range(len(cost)))
    ]


def pareto_figure(panel: Panel) -> Figure:
    """Policies between two measures, with intervals, the Pareto front as steps, and a label at each point."""
    with styled({}):
        figure = Pointed(figsize=(6.4, 5.4))
        axes = figure.subplots()
        shown: dict[str, Any] = {}
        drawn = [(axes, panel, _draw(axes, panel, shown))]
        _finish(figure, drawn, shown, 8.0, tuple(_KINDS))
    figure.charts = [_chart(panel, drawn[0][2])]
    return figure


def _chart(panel: Panel, corners: Sequence[tuple[float, float]]) -> Chart:
    """The same to point at; labels are at the most telling points, and where there is room beside these."""
    order = ("focus", "reference", "front", "aided", "other")
    ranked = sorted(panel.points.items(), key=lambda item: (order.index(item[1].kind), item[1].x.mean))
    wide, high = (np.ptp([getattr(point, axis).mean for _, point in ranked]) or 1.0 for axis in "xy")
    named: dict[str, Point] = {}
    for label, point in ranked:
        gaps = (
            (abs(point.x.mean - one.x.mean) / wide, abs(point.y.mean - one.y.mean) / high) for one in named.values()
        )
        if all(across > _LABEL[0] or up > _LABEL[1] for across, up in gaps):
            named[label] = point
    found = {label: (point.x, point.y) for label, point in panel.points.items()}
    looks = {label: look(label) for label in found}
    return points(found, looks, corners, list(named), x_label=panel.x_label, y_label=panel.y_label, title=panel.title)


_LABEL = (0.3, 0.06)  # room of a label, as shares of the picture


_COLUMNS = 2


def pareto_panels_figure(panels: Sequence[Panel], *, title: str = "") -> Figure:
    """A panel for each of many pictures; up and to the right is better in all of them.

    Labels are given to the policy in focus, to the reference and to the corners of the fronts; the pages of the single
    pictures have the others.
    """
    rows = -(-len(panels) // _COLUMNS)
    with styled({"font.size": 8.5, "lines.linewidth": 1.2, "axes.titlesize": 10.0}):
        figure = Pointed(figsize=(7.6, 0.9 + 2.75 * rows))
        grid = figure.subplots(rows, _COLUMNS, squeeze=False)
        shown: dict[str, Any] = {}
        drawn = []
        for axes, panel in zip(grid.flat, panels, strict=False):
            drawn.append((axes, panel, _draw(axes, panel, shown)))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            # Numbers are written when the picture is saved, in the size that all figures have then.
            axes.tick_params(labelsize=8.0)
            axes.set_ylabel(panel.y_label.partition(":")[0] + ", %")  # the page of the panel says it in full
            if not panel.more_x:
                axes.invert_xaxis()
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        figure.suptitle(title, fontsize=11.5)
        _finish(figure, drawn, shown, 7.0, ("focus", "reference", "front"))
    figure.charts = [_chart(panel, corners) for _, panel, corners in drawn]
    return figure


def _finish(
    figure: Figure, drawn: Sequence[tuple[Any, Panel, Any]], shown: Mapping[str, Any], size: float, kinds: Sequence[str]
) -> None:
    """Add the legend, and labels at the points of some kinds once the layout is settled."""
    order = [name for name, _ in _KINDS.values() if name in shown]
    figure.legend(
        [shown[name] for name in order], order, loc="outside lower center", ncols=5, fontsize=9, handletextpad=0.4
    )
    figure.draw_without_rendering()
    for axes, panel, corners in drawn:
        named = {label for label, point in panel.points.items() if point.kind in kinds}
        _place_labels(axes, panel.points, corners, named=named, size=size)
    figure.set_layout_engine("none")


def _draw(axes: Any, panel: Panel, shown: dict[str, Any]) -> list[tuple[float, float]]:
    """Draw points and front; returns the bends of the front, and adds what was drawn to the legend's entries."""
    points = panel.points
    for point in points.values():
        name, mark = _KINDS[point.kind]
        shown[name] = axes.errorbar(
            point.x.mean,
            point.y.mean,
            xerr=[[point.x.mean - point.x.low], [point.x.high - point.x.mean]],
            yerr=[[point.y.mean - point.y.low], [point.y.high - point.y.mean]],
            elinewidth=1.1,
            linestyle="none",
            zorder=4 if point.kind == "focus" else 3,
            **mark,
        )
    # From the best x, where y is small, to the worst.
    front = sorted(
        ((point.x.mean, point.y.mean) for point in points.values() if point.on_front),
        key=lambda corner: (-corner[0] if panel.more_x else corner[0], corner[1]),
    )
    axes.margins(x=0.09, y=0.08)
    corners: list[tuple[float, float]] = []
    if front:
        x, y = zip(*front, strict=True)
        limits = axes.get_xlim(), axes.get_ylim()
        corners = [(x[0], limits[1][0]), (x[0], y[0])]
        for before, after, across in zip(y, y[1:], x[1:], strict=False):
            corners += [(across, before), (across, after)]
        corners.append((limits[0][0 if panel.more_x else 1], y[-1]))
        axes.plot(*zip(*corners, strict=True), color="#0072B2", alpha=0.45)
        axes.set(xlim=limits[0], ylim=limits[1])
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
    return corners


_RINGS = (7.0, 14.0, 24.0, 36.0, 50.0, 66.0, 84.0, 104.0, 128.0, 156.0)


def _place_labels(
    axes: Any,
    points: Mapping[str, Point],
    corners: Sequence[tuple[float, float]],
    *,
    named: Collection[str],
    size: float,
) -> None:
    """Write a label beside each point, as near as there is room, with a line to it where that is not next to it.

    Labels keep off points, their bars, other labels, and the line through ``corners``, all level or upright.

    Boxes are estimated from the number of letters: the result is then the same with every font.
    """
    scale = axes.figure.dpi / 72.0

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = axes.transData.transform((x, y)) / scale  # in typographic points
        return float(across), float(up)

    at = {label: place(point.x.mean, point.y.mean) for label, point in points.items()}
    left, bottom, right, top = (value / scale for value in axes.get_window_extent().extents)
    taken: list[tuple[float, float, float, float]] = [(x - 4.0, y - 4.0, x + 4.0, y + 4.0) for x, y in at.values()]
    bends = [place(*corner) for corner in corners]
    drawn = list(pairwise(bends))
    for point in points.values():
        drawn.append((place(point.x.low, point.y.mean), place(point.x.high, point.y.mean)))
        drawn.append((place(point.x.mean, point.y.low), place(point.x.mean, point.y.high)))
    for (x0, y0), (x1, y1) in drawn:
        taken.append((min(x0, x1) - 1.0, min(y0, y1) - 1.0, max(x0, x1) + 1.0, max(y0, y1) + 1.0))
    # Points with few neighbours first would waste the near places of the crowded ones.
    crowd = {a: sum(abs(at[a][0] - x) + abs(at[a][1] - y) < 60.0 for x, y in at.values()) for a in at}
    for label in sorted([one for one in at if one in named], key=lambda name: -crowd[name]):
        x, y = at[label]
        width, height = 0.6 * size * len(label) + 2.0, 1.2 * size
        best, least = None, np.inf
        for ring in _RINGS:
            for step in range(16):
                angle = step * np.pi / 8.0
                dx, dy = ring * np.cos(angle), ring * np.sin(angle)
                # The box touches the ring with the side that looks at the point.
                x0 = x + dx - width * (0.5 - 0.5 * np.cos(angle))
                y0 = y + dy - height * (0.5 - 0.5 * np.sin(angle))
                box = (x0, y0, x0 + width, y0 + height)
                if box[0] < left or box[2] > right or box[1] < bottom or box[3] > top:
                    continue
                overlap = sum(
                    max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
                    * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
                    for other in taken
                )
                if overlap < least:
                    best, least = (box, ring), overlap
            if least == 0.0:
                break
        if best is None:  # wider than the picture
            best = ((x, y, x + width, y + height), 0.0)
        box, ring = best
        taken.append(box)
        axes.annotate(
            label,
            (points[label].x.mean, points[label].y.mean),
            xytext=(0.5 * (box[0] + box[2]) - x, 0.5 * (box[1] + box[3]) - y),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            color="#222222",
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
            if ring > _RINGS[0]
            else None,
        )
