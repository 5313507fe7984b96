"""Policies between a cost or a yield and how the least served fare: the Pareto front."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from fedroster.catalogue import REFERENCE
from fedroster.lab.pages.charts import GREY, INK, WIDTH, Figure, colour_of, finished, rounded, table, tips
from fedroster.lab.pages.looks import look
from fedroster.lab.statistics import Interval, Points, pareto_front

# What the legend calls each kind, and its mark; the first kinds have labels before the others.
_KINDS = {
    "in focus": "M0,.5L.6,.8L.5,.1L1,-.3L.3,-.4L0,-1L-.3,-.4L-1,-.3L-.5,.1L-.6,.8L0,.5Z",  # a star
    "the reference": "diamond",
    "on the Pareto front": "circle",
    "knows the truth": "triangle-up",
    "beaten": "square",
}
_HEIGHT = 400.0  # pixels


def pareto_figure(
    points: Points,
    x_label: str,
    y_label: str,
    *,
    title: str = "",
    more_x: bool = False,
    aided: Collection[str] = (),
    focus: Collection[str] = (),
) -> Figure:
    """Policies with their intervals, the Pareto front as steps, and labels where there is room.

    More of y is better, and less or ``more_x``; those ``aided`` know the truth, and those in ``focus`` are marked.
    """
    front = pareto_front(points, more_x=more_x, aided=aided)
    marked = dict.fromkeys(front, "on the Pareto front") | dict.fromkeys(focus, "in focus")
    marked |= dict.fromkeys(aided, "knows the truth") | {REFERENCE: "the reference"}
    kinds = {label: marked.get(label, "beaten") for label in points}
    ends_x = _ends([x for x, _ in points.values()], np.inf)
    ends_y = _ends([y for _, y in points.values()], 100.0)  # a share in percent
    x = alt.X("x:Q", title=x_label, scale=alt.Scale(domain=ends_x, nice=False))
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=ends_y, nice=False))
    corners = [(points[label][0].mean, points[label][1].mean) for label in front]
    if corners:  # from below the best x to the worst
        corners = [(corners[0][0], ends_y[0]), *corners, (ends_x[0 if more_x else 1], corners[-1][1])]
    steps = table(*({"x": across, "y": up, "step": step} for step, (across, up) in enumerate(corners)))
    line = alt.Chart(steps).mark_line(interpolate="step-after", color=GREY, strokeWidth=1.5)
    at = {
        label: (float(np.interp(x.mean, ends_x, (0.0, WIDTH))), float(np.interp(y.mean, ends_y, (_HEIGHT, 0.0))))
        for label, (x, y) in points.items()
    }
    places = _placed(at, sorted(at, key=lambda label: list(_KINDS).index(kinds[label])))
    rows = []
    for label, own in points.items():
        row: dict[str, Any] = {"label": label, "kind": kinds[label], "place": places.get(label)}
        for axis, part in zip("xy", own, strict=True):
            ends = {axis: part.mean, f"{axis}_low": part.low, f"{axis}_high": part.high}
            row |= {name: rounded(end) for name, end in ends.items()}
        rows.append(row)
    base = alt.Chart().encode(x=x, y=y, color=colour_of({label: look(label) for label in points}))
    marks = {kind: mark for kind, mark in _KINDS.items() if kind in kinds.values()}
    shapes = alt.Scale(domain=list(marks), range=list(marks.values()))
    shape = alt.Shape("kind:N", scale=shapes, legend=_LEGEND)
    told = tips(x=x_label, x_low="from", x_high="to", y="up", y_low="from", y_high="to")
    texts = (
        base.transform_filter(f"datum.place === {place}")
        .mark_text(align="left" if to_right else "right", dx=8 if to_right else -8, dy=down)
        .encode(text="label:N", color=alt.value(INK))
        for place, (to_right, down) in enumerate(_PLACES)
    )
    chart = alt.layer(
        line.encode(x=x, y=y, order="step:Q"),
        base.mark_rule(clip=True).encode(x=alt.X("x_low:Q"), x2="x_high:Q"),
        base.mark_rule(clip=True).encode(y=alt.Y("y_low:Q"), y2="y_high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(shape=shape, tooltip=told),
        *texts,
        data=table(*rows),
        width=WIDTH,
        height=_HEIGHT,
    )
    return finished(chart, title, y_label)


_LEGEND = alt.Legend(symbolType="circle", symbolSize=90, symbolStrokeWidth=0, symbolFillColor=GREY)


def _ends(found: Sequence[Interval], most: float) -> tuple[float, float]:
    """Ends of an axis that shows intervals as far as the measure goes, from 0 to ``most``."""
    low = min((one.low for one in found), default=0.0)
    high = max((one.high for one in found), default=0.0)
    margin = 0.08 * (high - low) or 1.0
    return max(low - margin, 0.0), min(high + margin, most)


_PLACES = ((True, -8.0), (False, -8.0), (True, 10.0), (False, 10.0))
"""Where a label may stand beside its point: whether to the right, and how far below, pixels."""
_LETTER, _LINE = 6.2, 12.0  # size of a letter, pixels


def _placed(at: Mapping[str, tuple[float, float]], labels: Sequence[str]) -> dict[str, int]:
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
            # Inwards from the right half: on a page the picture may be narrower.
            outwards = to_right and (2.0 * x > WIDTH or box[2] > WIDTH)
            is_inside = left >= 0.0 and box[3] <= _HEIGHT and not outwards
            covers = (box[0] < x_1 and x_0 < box[2] and box[1] < y_1 and y_0 < box[3] for x_0, y_0, x_1, y_1 in taken)
            if is_inside and not any(covers):
                taken.append(box)
                found[label] = place
                break
    return found
