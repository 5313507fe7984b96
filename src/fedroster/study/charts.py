"""Figures that a reader can point at: Vega-Lite specifications, and the library that draws them without a network.

A chart has a parameter ``shown``, the labels that are not hidden, which the page sets from its legend.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from fedroster.core.state import write_text_atomically
from fedroster.study.looks import Look
from fedroster.study.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedroster.study.figures import Curve

_DASHES = {"-": [1, 0], "--": [7, 4], "-.": [8, 3, 2, 3], ":": [2, 3]}
_POINTS = 160  # of a curve
_SHOWN = "!isValid(shown) || indexof(shown, datum.label) >= 0"
_ZOOM = {"name": "zoom", "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"}, "bind": "scales"}
_HOVER = {
    "name": "hover",
    "select": {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"},
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A specification without data, its data by column, and how its labels look.

    Attributes:
        spec: Vega-Lite; its data are called "table".
        data: Columns of the same length; "label" names what is drawn.
        looks: Colours and lines by label.
        title: Of a panel beside others; else empty.
        y_label: What goes up, in words.
    """

    spec: Mapping[str, Any]
    data: Mapping[str, Sequence[Any]]
    looks: Mapping[str, Look]
    title: str = ""
    y_label: str = ""


def _colours(looks: Mapping[str, Look]) -> dict[str, Any]:
    colours = {"domain": list(looks), "range": [look.colour for look in looks.values()]}
    return {"field": "label", "type": "nominal", "scale": colours, "legend": None}


def _axis(label: str, *, log: bool = False) -> dict[str, Any]:
    return {"type": "quantitative", "title": label, "scale": {"type": "log"} if log else {"zero": False}}


def _tips(*columns: tuple[str, str]) -> list[dict[str, Any]]:
    policy = {"field": "label", "type": "nominal", "title": "policy"}
    return [policy, *({"field": f, "type": "quantitative", "title": t, "format": ".4~g"} for f, t in columns)]


def lines(
    curves: Mapping[str, Curve],
    looks: Mapping[str, Look],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    scale: float = 1.0,
    log_x: bool = False,
    log_y: bool = False,
    level: tuple[float, str] | None = None,
) -> Chart:
    """Curves with bands; ``level`` is a line across and its label."""
    data: dict[str, list[Any]] = {name: [] for name in ("label", "x", "mean", "low", "high")}
    for label, curve in curves.items():
        points = curve.x.shape[0]
        kept = np.unique(np.linspace(0, max(points - 1, 0), min(points, _POINTS)).round().astype(np.int64))[:points]
        data["label"] += [label] * kept.shape[0]
        data["x"] += _rounded(curve.x[kept])
        for name, values in (("mean", curve.mean), ("low", curve.low), ("high", curve.high)):
            data[name] += _rounded(scale * values[kept])
    line = {
        "scale": {"domain": list(looks), "range": [_DASHES[look.line] for look in looks.values()]},
        "field": "label",
        "type": "nominal",
        "legend": None,
    }
    is_near = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    drawn = "datum.mean > 0 && datum.x > 0" if log_x and log_y else "datum.mean > 0" if log_y else "isValid(datum.mean)"
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "area", "opacity": 0.15, "clip": True},
            "encoding": {"y": {"field": "low"}, "y2": {"field": "high"}},
        },
        {
            "params": [_ZOOM],
            "mark": {"type": "line", "strokeWidth": 2, "clip": True},
            "encoding": {"y": {"field": "mean"}, "strokeDash": line},
        },
        {
            "params": [_HOVER],
            "mark": {"type": "point", "filled": True, "size": 70, "clip": True},
            "encoding": {
                "y": {"field": "mean"},
                "opacity": is_near,
                "tooltip": _tips(("x", x_label), ("mean", "mean"), ("low", "from"), ("high", "to")),
            },
        },
    ]
    for layer in layers:
        layer["encoding"]["y"] |= _axis("", log=log_y) | {"title": None}
    if level is not None:
        layers.append(
            {
                "data": {"values": [{"level": level[0], "text": level[1]}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "opacity": 0.7},
                "encoding": {"y": {"field": "level", "type": "quantitative"}, "tooltip": {"field": "text"}},
            }
        )
    shared = {"x": {"field": "x", **_axis(x_label, log=log_x)}, "color": _colours(looks)}
    for layer in layers[:3]:
        layer["encoding"] |= shared
        layer["transform"] = [{"filter": _SHOWN}, {"filter": drawn}]
    return Chart({"layer": layers}, data, looks, title, y_label)


def points(
    found: Mapping[str, tuple[Interval, Interval]],
    looks: Mapping[str, Look],
    corners: Sequence[tuple[float, float]],
    named: Sequence[str],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
) -> Chart:
    """Points with intervals, a line through ``corners``, and labels at those that are ``named``."""
    data: dict[str, list[Any]] = {"label": list(found), "text": [label if label in named else "" for label in found]}
    for axis, name in enumerate("xy"):
        for part, suffix in (("mean", ""), ("low", "_low"), ("high", "_high")):
            data[name + suffix] = _rounded(np.array([getattr(both[axis], part) for both in found.values()]))
    x, y = {"field": "x", **_axis(x_label)}, {"field": "y", **_axis("")} | {"title": None}
    faint = {"condition": {"test": _SHOWN, "value": 1}, "value": 0.2}
    both = {"x": x, "y": y, "color": _colours(looks), "opacity": faint}
    tips = _tips(("x", x_label), ("x_low", "from"), ("x_high", "to"), ("y", "up"), ("y_low", "from"), ("y_high", "to"))
    front = {"values": [{"x": a, "y": b} for a, b in corners]}
    layers = [
        {
            "data": front,
            "mark": {"type": "line", "opacity": 0.45, "strokeWidth": 1.5, "clip": True},
            "encoding": {"x": x, "y": y, "order": None},
        },
        {
            "mark": {"type": "rule", "clip": True},
            "encoding": {**both, "x": x | {"field": "x_low"}, "x2": {"field": "x_high"}},
        },
        {
            "mark": {"type": "rule", "clip": True},
            "encoding": {**both, "y": y | {"field": "y_low"}, "y2": {"field": "y_high"}},
        },
        {
            "params": [_ZOOM],
            "mark": {"type": "point", "filled": True, "size": 110, "clip": True},
            "encoding": {**both, "tooltip": tips},
        },
        {
            "mark": {"type": "text", "align": "left", "dx": 8, "dy": -8, "clip": True},
            "encoding": {"x": x, "y": y, "text": {"field": "text"}, "opacity": faint},
        },
    ]
    return Chart({"layer": layers}, data, looks, title, y_label)


def intervals(found: Mapping[str, Interval], looks: Mapping[str, Look], *, x_label: str, title: str = "") -> Chart:
    """Means with their intervals, a row for each label."""
    data: dict[str, list[Any]] = {"label": list(found)}
    for part in ("mean", "low", "high"):
        data[part] = _rounded(np.array([getattr(one, part) for one in found.values()]))
    x = {"field": "mean", **_axis(x_label)}
    y = {"field": "label", "type": "nominal", "sort": list(found), "title": None, "axis": {"labelLimit": 150}}
    both = {"y": y, "color": _colours(looks)}
    layers = [
        {"mark": "rule", "encoding": {**both, "x": x | {"field": "low"}, "x2": {"field": "high"}}},
        {
            "mark": {"type": "point", "filled": True, "size": 90},
            "encoding": {**both, "x": x, "tooltip": _tips(("mean", x_label), ("low", "from"), ("high", "to"))},
        },
    ]
    return Chart({"transform": [{"filter": _SHOWN}], "layer": layers, "height": {"step": 24}}, data, looks, title)


def data_of(figure: Figure) -> pl.DataFrame:
    """The numbers that a figure shows, a row for each point of each panel; without rows for one that has no charts."""
    shown: Sequence[Chart] = getattr(figure, "charts", ())
    panels = [pl.DataFrame({"panel": chart.title, **chart.data}, strict=False) for chart in shown]
    return pl.concat(panels, how="diagonal_relaxed").drop("text", strict=False) if panels else pl.DataFrame()


def _rounded(values: Any) -> list[Any]:
    """Numbers of five digits, and None for those that are none: JSON has no NaN."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, np.float64).tolist()]


@cache
def library() -> str:
    """Vega-Lite and what it needs, as one script; empty where the package that brings it is not installed.

    It is put together once, in two seconds, and kept in the user's cache folder.
    """
    try:
        import vl_convert

        name = f"vega-{version('vl-convert-python')}.js"
    except (ImportError, PackageNotFoundError):
        return ""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedroster"
    with suppress(OSError, UnicodeDecodeError):
        return (folder / name).read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    script = script.replace("</script", "<\\/script")  # it stands inside a page
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_text_atomically(folder / name, script)
    return script
