"""Figures: each is one Altair chart, which a page, a notebook and a file show alike (``figure.save("figure.pdf")``).

What is drawn has a field ``label``, and a colour by it: a page makes its legend from the domain of that colour's scale.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import altair as alt
import numpy as np
import polars as pl
import vl_convert

from fedroster.lab.pages.looks import MANY, PALETTE, Look, in_order
from fedroster.lab.spreadsheet import as_csv
from fedroster.lab.statistics import Interval
from fedroster.parts import check_number, write_text_atomically
from fedroster.types import FloatArray, IntArray

Figure: TypeAlias = alt.LayerChart | alt.FacetChart | alt.ConcatChart

WIDTH, HEIGHT = 560, 320  # of a panel that stands alone, pixels

_DASHES = {"-": [1, 0], "--": [7, 4], "-.": [8, 3, 2, 3], ":": [2, 3]}
_POINTS = 100  # of a curve
_LETTERS = 88  # of a line that is as wide as a panel that stands alone
_SHORT = 22  # letters of a label in a legend with three columns
INK, GREY, _GRID = "#1c2430", "#8a929c", "#dfe4ea"
_STYLE: dict[str, Any] = {
    "aria": False,  # a picture has one description, and not one for each of its marks
    "background": "white",
    "font": "Arial, sans-serif",
    "axis": {
        **{f"{part}Color": INK for part in ("label", "title")},
        **{f"{part}Color": _GRID for part in ("grid", "domain", "tick")},
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelOverlap": True,
        "labelFlush": False,
        "labelSeparation": 4,
    },
    "axisY": {"labelLimit": 0},
    "header": {"labelColor": INK, "labelFontSize": 12, "labelLimit": 0, "labelAnchor": "start", "title": None},
    "legend": {
        "orient": "bottom",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 0,
        "titleColor": INK,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "symbolType": "stroke",
        "symbolSize": 400,
        "symbolStrokeWidth": 2,
        "symbolOpacity": 1,
    },
    "title": {"anchor": "start", "color": INK, "fontSize": 15, "subtitleColor": INK, "subtitleFontSize": 13},
    "text": {"fill": INK, "fontSize": 12},
    "view": {"stroke": None},
}


def finished(chart: Figure, title: str, y_label: str = "") -> Figure:
    """A chart in the style of all figures; what goes up stands above it, where it is easiest to read."""
    if title or y_label:
        chart = chart.properties(title=alt.Title(title, subtitle=textwrap.wrap(y_label, _LETTERS)))
    styled: Figure = chart.properties(description=title or y_label).configure(**_STYLE)
    return styled


def table(*rows: Mapping[str, Any]) -> alt.InlineData:
    """Rows as the data of a chart, however many they are."""
    return alt.InlineData(values=[dict(row) for row in rows])


def colour_of(looks: Mapping[str, Look], *, columns: int = 0) -> alt.Color:
    """The colour of each label, with a legend of this many columns."""
    scale = alt.Scale(domain=list(looks), range=[look.colour for look in looks.values()])
    return alt.Color("label:N", scale=scale, legend=alt.Legend(columns=columns) if columns else None)


def dash_of(looks: Mapping[str, Look], *, legend: bool) -> alt.StrokeDash:
    """The line of each label; with a legend it is one with that of the colours."""
    scale = alt.Scale(domain=list(looks), range=[_DASHES[look.line] for look in looks.values()])
    return alt.StrokeDash("label:N", scale=scale, legend=alt.Undefined if legend else None)


def tips(**columns: str) -> list[alt.Tooltip]:
    """What is told of the mark that a reader points at: its label, and columns with their names."""
    numbers = (alt.Tooltip(f"{name}:Q", title=title, format=".4~g") for name, title in columns.items())
    return [alt.Tooltip("label:N", title=" "), *numbers]


def rounded(value: float) -> float | None:
    """A number of five digits, and None for one that is none: JSON has no NaN."""
    return float(f"{value:.5g}") if np.isfinite(value) else None


# -------------------------------------------------------------------- curves


@dataclass(frozen=True, slots=True)
class Curve:
    """A mean over seeds with the ends of its band, all of shape (points,)."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of curves, in words; ``range_y`` are both ends of the ordinate, None for those of curves and bands."""

    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    range_y: tuple[float, float] | None = None


def lines(
    curves: Mapping[str, Curve],
    axes: Axes,
    *,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
    level: tuple[float, str] | None = None,
    apart: bool = False,
    behind: str = "",
) -> Figure:
    """Curves with bands.

    Without ``looks``, which may be of more labels than these, curves are no policies: each has the look of its place.
    ``level`` is a line across, and what it is.  Where curves stand ``apart``, each in a panel of its own, one is
    ``behind`` all others in grey.
    """
    looks = in_order(curves) if looks is None else {label: looks[label] for label in curves}
    if not apart:
        whole = _drawn({"": curves}, axes, looks, level, columns=_columns(looks))
        return finished(whole.properties(width=WIDTH, height=HEIGHT), title, axes.y_label)
    small = _drawn({"": curves}, axes, looks, level, behind=curves.get(behind)).properties(width=165, height=95)
    name = "length(datum.value) > 26 ? split(replace(datum.value, /([:,])/g, '$1\\n'), '\\n') : datum.value"
    by_label = alt.Facet("label:N", sort=list(curves), header=alt.Header(labelExpr=name))
    return finished(small.facet(by_label, columns=3, align="each"), title, axes.y_label)


def panels(
    groups: Mapping[str, Mapping[str, Curve]], axes: Axes, *, title: str = "", looks: Mapping[str, Look]
) -> Figure:
    """Panels of curves with bands beside each other, with one ordinate and one legend."""
    width = {1: WIDTH, 2: 300}.get(len(groups), 220)
    shown = {label: looks[label] for curves in groups.values() for label in curves}
    one = _drawn(groups, axes, shown, columns=_columns(shown)).properties(width=width, height=260)
    return finished(one.facet(alt.Facet("panel:N", sort=list(groups)), columns=3), title, axes.y_label)


def _columns(labels: Iterable[str]) -> int:
    return 3 if max(map(len, labels), default=0) <= _SHORT else 2


def _drawn(
    groups: Mapping[str, Mapping[str, Curve]],
    axes: Axes,
    looks: Mapping[str, Look],
    level: tuple[float, str] | None = None,
    *,
    columns: int = 0,
    behind: Curve | None = None,
) -> Figure:
    """Bands and lines of curves, one of them in grey, and a level; with a legend of so many columns."""
    curves = [curve for group in groups.values() for curve in group.values()]
    scale_x, scale_y = _scales(curves, axes, ticks=10 if columns else 4)
    x = alt.X("x:Q", title=textwrap.wrap(axes.x_label, _LETTERS), **scale_x)

    def up(field: str) -> alt.Y:
        return alt.Y(field, title=None, **scale_y)

    own = alt.Chart().encode(x=x, color=colour_of(looks, columns=columns))
    layers = []
    if behind is not None:
        grey = alt.Chart(table(*_points({"": {"": behind}}, axes)))
        layers.append(grey.mark_line(color=GREY, strokeWidth=1.2, clip=True).encode(x=x, y=up("mean:Q")))
    if any((curve.high > curve.low).any() for curve in curves):
        band = own.mark_area(opacity=0.16, clip=True)
        layers.append(band.encode(y=up("low:Q"), y2="high:Q"))
    told = tips(x=axes.x_label, mean="mean", low="from", high="to")
    line = own.mark_line(strokeWidth=2, clip=True)
    layers.append(
        line.encode(
            y=up("mean:Q"),
            strokeDash=dash_of(looks, legend=columns > 0),
            tooltip=told,
        )
    )
    if level is not None:
        flat = alt.Chart(table({"level": level[0], "text": level[1]})).encode(y=up("level:Q"))
        layers.append(flat.mark_rule(color=INK, strokeDash=[4, 3], opacity=0.7))
        if columns:
            named = flat.mark_text(align="right", dx=-4, dy=-8)
            layers.append(named.encode(x=alt.value("width"), text="text:N"))
    return alt.layer(*layers, data=table(*_points(groups, axes)))


def _spread(count: int, most: int) -> IntArray:
    """At most so many of ``count`` places, the first and the last among them."""
    places = np.linspace(0, count - 1, min(count, most)).round()
    return np.unique(places.astype(np.int64))


def _points(groups: Mapping[str, Mapping[str, Curve]], axes: Axes) -> Iterator[dict[str, Any]]:
    """A row for each point of a curve, but for those that lie closer than a reader can see, or have no logarithm."""
    for panel, curves in groups.items():
        for label, curve in curves.items():
            named = {"panel": panel, "label": label} if panel else {"label": label}
            for at in _spread(curve.x.shape[0], _POINTS):
                in_x = curve.x[at] > 0.0 or not axes.log_x
                in_y = curve.mean[at] > 0.0 or not axes.log_y
                if in_x and in_y:
                    yield named | {name: rounded(getattr(curve, name)[at]) for name in ("x", *_ENDS)}


def _scales(curves: Sequence[Curve], axes: Axes, *, ticks: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scale and ticks of abscissa and ordinate."""
    across: dict[str, Any] = {"scale": alt.Scale(zero=False, nice=False), "axis": alt.Axis(tickCount=ticks)}
    if axes.log_x:
        across = _logarithmic(np.concatenate([curve.x for curve in curves]))
    if axes.log_y:
        ends = [end for curve in curves for end in (curve.mean, curve.low)]
        return across, _logarithmic(np.concatenate(ends))
    if axes.range_y is not None:
        return across, {"scale": alt.Scale(domain=axes.range_y, nice=False)}
    return across, {"scale": alt.Scale(zero=False)}


def _logarithmic(values: FloatArray) -> dict[str, Any]:
    """A logarithmic scale and its ticks, without the many between; clamped, for an end of a band may have no place."""
    known = values[values > 0.0]
    low, high = 1.0, 10.0
    if known.size:
        low, high = float(known.min()), float(known.max())
    steps = (1.0,) if high > 1e3 * low else (1.0, 2.0, 5.0)
    ticks = [step * 10.0**power for power in range(-12, 13) for step in steps]
    shown = alt.Axis(values=[tick for tick in ticks if low <= tick <= high], format=",~g")
    return {"scale": alt.Scale(type="log", domain=(low, high), clamp=True, nice=False), "axis": shown}


# -------------------------------------------------------------------- intervals


def intervals(
    groups: Mapping[str, Mapping[str, Interval]], *, title: str = "", looks: Mapping[str, Look] | None = None
) -> Figure:
    """Means with their intervals, a row for each label, and a panel for each measure."""
    labels = list(next(iter(groups.values())))
    letters = max((_LETTERS - max(map(len, labels))) // len(groups), 10)
    names = {measure: textwrap.fill(measure, letters) for measure in groups}
    rows = [
        {"panel": names[measure], "label": label} | {end: rounded(getattr(found[label], end)) for end in _ENDS}
        for measure, found in groups.items()
        for label in found
    ]
    colour = alt.value(PALETTE[0]) if looks is None else colour_of(looks)
    base = alt.Chart().encode(y=alt.Y("label:N", sort=labels, title=None), color=colour)
    scale = alt.Scale(zero=False)
    ticks = alt.Axis(tickCount=4 if len(groups) > 1 else 8)
    bar = base.mark_rule(strokeWidth=1.6).encode(
        x=alt.X("low:Q", title=None, scale=scale),
        x2="high:Q",
    )
    dot = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("mean:Q", title=None, scale=scale, axis=ticks),
        tooltip=tips(mean="mean", low="from", high="to"),
    )
    one = alt.layer(
        bar,
        dot,
        data=table(*rows),
        width=6.4 * letters,
        height=alt.Step(24),
    )
    header = alt.Header(labelExpr="split(datum.value, '\\n')")
    whole = one.facet(
        alt.Facet("panel:N", sort=list(names.values()), header=header),
        columns=len(groups),
    )
    return finished(whole.resolve_scale(x="independent"), title)


_ENDS = ("mean", "low", "high")


# -------------------------------------------------------------------- in a paper


def narrow(figure: Figure, width: float) -> Figure:
    """The same, so many points wide, for a paper: without title, a legend in place of labels, letters as they are.

    Raises:
        ConfigurationError: If the width is less than 150 points.
    """
    check_number("width", width, least=150.0)
    spec = figure.to_dict()
    letters = int(width / 6.0)
    panels = 1
    inner = spec.get("spec", spec)
    if "layer" not in inner:  # of another package, and no chart of ours
        return figure
    if inner is not spec:
        panels = min(spec["columns"], int(width / 120.0))
        spec["columns"] = panels
    words = " ".join(spec.get("title", {}).get("subtitle", ()))
    spec["title"] = {"text": textwrap.wrap(words, letters), "fontSize": 12, "fontWeight": "normal"}
    inner["layer"] = [one for one in inner["layer"] if one["encoding"].get("text", {}).get("field") != "label"]
    for encoding in (one["encoding"] for one in inner["layer"]):
        if across := encoding.get("x", {}).get("title"):
            encoding["x"]["title"] = textwrap.wrap(" ".join(np.atleast_1d(across)), letters)
        for name, orient in {"color": "bottom", "shape": "top"}.items() if inner is spec else ():
            if "field" in encoding.get(name, {}):
                legend = {"orient": orient, "columns": max(int(width / 130.0), 1)}
                encoding[name]["legend"] = (encoding[name].get("legend") or {}) | legend
    inner |= {"width": width / panels - 35.0, "height": 0.62 * width / panels}
    found: Figure = type(figure).from_dict(spec)
    return found


# -------------------------------------------------------------------- on a page, and in a table


def svg_of(spec: Mapping[str, Any], name: str) -> str:
    """A figure's specification as an SVG element, always the same; ``name`` tells it from others on a page."""
    drawn = str(vl_convert.vegalite_to_svg(dict(spec), vl_version=_VEGA_LITE))
    places = {part: place for place, part in enumerate(dict.fromkeys(re.findall(r'(?<= id=")\w+', drawn)))}
    drawn = re.sub(r'(id="|url\(#)(\w+)', lambda found: f"{found[1]}{name}-{places[found[2]]}", drawn)
    drawn = re.sub(_PLAIN, "", drawn)
    # A tenth of a pixel is enough for a path.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(?:\.0|(\.\d))\d*", r"\1", path[0]), drawn)


_PLAIN = r' (?:(?:class|role|pointer-events|aria-[a-z]+)="[^"]*"|(?:opacity|stroke-width)="1")'
"""Attributes that are as they would be anyway, or speak to screen readers: the page describes the picture itself."""

_VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])  # the version that Altair writes


def by_column(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A figure's specification with its data by column, which are a third as long as rows."""
    datasets = spec.get("datasets", {})
    tables = {name: {key: [row[key] for row in rows] for key in rows[0]} for name, rows in datasets.items() if rows}
    return {**spec, "datasets": tables}


def data_of(figure: Figure) -> pl.DataFrame:
    """The numbers of what a figure shows by label, a row for each."""
    datasets = figure.to_dict().get("datasets", {})
    shown = [pl.DataFrame(rows) for rows in datasets.values() if rows and "label" in rows[0]]
    return pl.concat(shown, how="diagonal_relaxed") if shown else pl.DataFrame()


def told(numbers: pl.DataFrame) -> str:
    """What :func:`data_of` found in a figure, in a sentence: the last known point of each curve, or each point."""
    are_curves = {"x", "mean"} <= {*numbers.columns}
    known = numbers.drop_nulls("mean") if are_curves else numbers
    start = "In the end" if are_curves else "Across and up" if "y" in numbers.columns else "Means"
    parts = []
    for row in (part.row(-1, named=True) for part in _curves(known)):
        value = _short(row["mean"]) if "mean" in row else f"{_short(row['x'])} and {_short(row['y'])}"
        parts.append(f"{row.get('panel', '')} {row['label']} {value}".strip().replace("\n", " "))
    more = f", and {len(parts) - MANY} more" if len(parts) > MANY else ""
    return f"{start}: {', '.join(parts[:MANY])}{more}." if parts else "There is nothing to show yet."


def numbers_of(numbers: pl.DataFrame) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns and rows of what :func:`data_of` found in a figure: of a curve, as many points as a reader takes in."""
    names = [name for name in numbers.columns if name != "place"]
    shown = (part[_spread(part.height, _TOLD)].select(names) for part in _curves(numbers))
    return names, [tuple(map(_short, row)) for part in shown for row in part.iter_rows()]


def _curves(numbers: pl.DataFrame) -> list[pl.DataFrame]:
    keys = [name for name in ("panel", "label") if name in numbers.columns]
    return numbers.partition_by(keys, maintain_order=True) if keys else []


def csv_of(numbers: pl.DataFrame) -> str:
    """What :func:`data_of` found in a figure as the address of a CSV file, which holds the file itself."""
    return f"data:text/csv;charset=utf-8,{quote(as_csv(numbers), safe=_SAFE)}"


_TOLD = 6  # points of a curve
_SAFE = " ,;:/()=+*!'$@?[]"  # in a quoted address


def _short(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@cache
def library() -> str:
    """Vega-Lite and what it needs, as one script.

    It is put together once, in two seconds, and kept in the user's cache folder.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedroster"
    file = folder / f"vega-lite-{_VEGA_LITE}-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_VEGA_LITE))
    script = script.replace("</script", "<\\/script")  # it stands inside a page
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(file, script)
    return script
