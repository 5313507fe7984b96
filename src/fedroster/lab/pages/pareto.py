"""Policies between a cost or a yield and how the least served fare: the Pareto front, one picture or many panels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import altair as alt
import numpy as np

from fedroster.lab.pages.charts import GREY, INK, WIDTH, Figure, colour_of, finished, rounded, table, tips
from fedroster.lab.pages.looks import look
from fedroster.lab.statistics import Interval

Kind: TypeAlias = Literal["focus", "front", "reference", "aided", "other"]

# What the legend calls each kind, and its mark. Where there is room for few labels, the first kinds have them.
_KINDS: Mapping[Kind, tuple[str, str]] = {
    "focus": ("in focus", "M0,.5L.6,.8L.5,.1L1,-.3L.3,-.4L0,-1L-.3,-.4L-1,-.3L-.5,.1L-.6,.8L0,.5Z"),  # a star
    "reference": ("the reference", "diamond"),
    "front": ("on the Pareto front", "circle"),
    "aided": ("knows the truth", "triangle-up"),
    "other": ("beaten", "square"),
}


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
    kind: Kind
    on_front: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """What one picture shows: points by label, and whether more of x is better."""

    points: Mapping[str, Point]
    x_label: str
    y_label: str
    title: str = ""
    more_x: bool = False


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
    """Policies between two measures, with intervals, the Pareto front as steps, and labels where there is room."""
    return finished(_layers(panel, WIDTH, 400, tuple(_KINDS)), panel.title, panel.y_label)


def pareto_panels_figure(panels: Sequence[Panel], *, title: str = "") -> Figure:
    """A panel for each of many pictures; up and to the right is better in all of them.

    Labels are given to the policy in focus, to the reference and to the corners of the fronts; the pages of the single
    pictures have the others.
    """
    drawn = []
    for panel in panels:
        one = _layers(panel, 300, 200, ("focus", "reference", "front"), falls=not panel.more_x)
        y_label = panel.y_label.partition(":")[0] + ", %"  # the page of the panel says it in full
        drawn.append(one.properties(title=alt.Title(panel.title, subtitle=y_label, fontSize=13, subtitleFontSize=12)))
    return finished(alt.concat(*drawn, columns=2), title)


def _layers(panel: Panel, width: float, height: float, kinds: Collection[Kind], *, falls: bool = False) -> Figure:
    """A picture; ``falls`` is for an abscissa that falls to the right."""
    points = panel.points
    most = {"x": np.inf, "y": 100.0}  # y is a share in percent
    ends = {axis: _ends([getattr(point, axis) for point in points.values()], most[axis]) for axis in "xy"}
    x = alt.X("x:Q", title=panel.x_label, scale=alt.Scale(domain=ends["x"], nice=False, reverse=falls))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=ends["y"], nice=False))
    # From the best x, where y is small, to the worst.
    front = sorted(
        ((point.x.mean, point.y.mean) for point in points.values() if point.on_front),
        key=lambda corner: (-corner[0] if panel.more_x else corner[0], corner[1]),
    )
    corners = [(front[0][0], ends["y"][0]), *front, (ends["x"][not panel.more_x], front[-1][1])] if front else []
    steps = table(*({"x": across, "y": up, "step": step} for step, (across, up) in enumerate(corners)))
    line = alt.Chart(steps).mark_line(interpolate="step-after", color=GREY, strokeWidth=1.5)
    across, upwards = (width, 0.0) if falls else (0.0, width), (height, 0.0)
    at = {
        label: (float(np.interp(point.x.mean, ends["x"], across)), float(np.interp(point.y.mean, ends["y"], upwards)))
        for label, point in points.items()
    }
    places = _placed(
        at, [label for kind in _KINDS if kind in kinds for label in at if points[label].kind == kind], width
    )
    rows = [
        {
            "label": label,
            "kind": _KINDS[point.kind][0],
            "place": places.get(label),
            **{axis + end: rounded(getattr(getattr(point, axis), of)) for axis in "xy" for end, of in _PARTS.items()},
        }
        for label, point in points.items()
    ]
    base = alt.Chart().encode(x=x, y=y, color=colour_of({label: look(label) for label in points}))
    marks = dict(_KINDS[kind] for kind in _KINDS if any(point.kind == kind for point in points.values()))
    shapes = alt.Scale(domain=list(marks), range=list(marks.values()))
    told = tips(x=panel.x_label, x_low="from", x_high="to", y="up", y_low="from", y_high="to")
    texts = (
        base.transform_filter(f"datum.place === {place}")
        .mark_text(align="left" if to_right else "right", dx=8 if to_right else -8, dy=down)
        .encode(text="label:N", color=alt.value(INK))
        for place, (to_right, down) in enumerate(_PLACES)
    )
    return alt.layer(
        line.encode(x=x, y=y, order="step:Q"),
        base.mark_rule(clip=True).encode(x=alt.X("x_low:Q"), x2="x_high:Q"),
        base.mark_rule(clip=True).encode(y=alt.Y("y_low:Q"), y2="y_high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            shape=alt.Shape("kind:N", scale=shapes, legend=_LEGEND), tooltip=told
        ),
        *texts,
        data=table(*rows),
        width=width,
        height=height,
    )


_PARTS = {"": "mean", "_low": "low", "_high": "high"}
_LEGEND = alt.Legend(symbolType="circle", symbolSize=90, symbolStrokeWidth=0, symbolFillColor=GREY)


def _ends(found: Sequence[Interval], most: float) -> tuple[float, float]:
    """Ends of an axis that shows intervals as far as the measure goes, from 0 to ``most``."""
    low, high = min(one.low for one in found), max(one.high for one in found)
    margin = 0.08 * (high - low) or 1.0
    return max(low - margin, 0.0), min(high + margin, most)


_PLACES = ((True, -8.0), (False, -8.0), (True, 10.0), (False, 10.0))
"""Where a label may stand beside its point: whether to the right, and how far below, pixels."""
_LETTER, _LINE = 6.2, 12.0  # size of a letter, pixels


def _placed(at: Mapping[str, tuple[float, float]], labels: Sequence[str], width: float) -> dict[str, int]:
    """Places of labels beside their points, the first labels first; one that would cover anything is left out.

    Boxes are estimated from the number of letters: the result is then the same with every font.
    """
    taken = [(x - 5.0, y - 5.0, x + 5.0, y + 5.0) for x, y in at.values()]
    found: dict[str, int] = {}
    for label in labels:
        x, y = at[label]
        wide = _LETTER * len(label)
        for place, (to_right, down) in enumerate(_PLACES):
            left = x + 8.0 if to_right else x - 8.0 - wide
            box = (left, y + down - _LINE / 2, left + wide, y + down + _LINE / 2)
            covers = any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
            # Inwards from the right half: on a page the picture may be narrower.
            if not covers and box[0] >= 0.0 and not (to_right and (2.0 * x > width or box[2] > width)):
                taken.append(box)
                found[label] = place
                break
    return found
