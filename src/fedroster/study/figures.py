"""How figures look: one style, readable on a phone; the colour of each policy is :mod:`fedroster.study.looks`'."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator
from PIL import Image

from fedroster.core.arrays import FloatArray
from fedroster.core.state import write_atomically
from fedroster.study import charts
from fedroster.study.looks import PALETTE, Look, in_order
from fedroster.study.statistics import Interval

_STYLE: Any = {
    "font.size": 10.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "fedroster",  # the same figure is the same file
    "svg.fonttype": "none",
    "savefig.dpi": 110,
}


def styled(changes: Mapping[str, Any]) -> AbstractContextManager[None]:
    """The style of all figures, for one that is drawn elsewhere."""
    return mpl.rc_context(_STYLE | dict(changes))


class Pointed(Figure):
    """A figure that a reader of a page can point at: by its charts, one for each panel, which are its data, too."""

    charts: Sequence[charts.Chart] = ()

    def _repr_png_(self) -> bytes:
        """What a notebook shows, whether or not Matplotlib's pyplot was imported."""
        drawn = io.BytesIO()
        with mpl.rc_context(_STYLE):
            self.savefig(drawn, format="png")
        return drawn.getvalue()


@dataclass(frozen=True, slots=True)
class Curve:
    """A mean over seeds with the ends of its band, all of shape (points,)."""

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


def _draw(axes: Any, curve: Curve, look: Look, label: str, *, scale: int = 1) -> Any:
    """Draw a curve with its band; returns its line."""
    (line,) = axes.plot(curve.x, scale * curve.mean, look.line, color=look.colour, label=label)
    axes.fill_between(curve.x, scale * curve.low, scale * curve.high, color=look.colour, alpha=0.18, linewidth=0)
    return line


_LONG = 22  # letters of a label in a legend with three columns
_TALL = 32  # letters of a line beside an ordinate: a longer one leaves the figure where the legend is large


def curves_figure(
    curves: Mapping[str, Curve],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    reference: tuple[float, str] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    percent_y: bool = False,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """Curves with bands; ``reference`` is a level and its label, ``percent_y`` shows shares stretched towards 100 %.

    Without ``looks``, as for curves that are not policies, each has the look of its place.
    """
    looks = in_order(curves) if looks is None else looks
    with mpl.rc_context(_STYLE):
        figure = Pointed(figsize=(6.4, 4.0))
        axes = figure.subplots()
        for label, curve in curves.items():
            _draw(axes, curve, looks[label], label)
        if reference is not None:
            axes.axhline(reference[0], color="#666666", linewidth=1.0, linestyle=(0, (4, 3)))
            axes.annotate(
                reference[1],
                (1.0, reference[0]),
                xycoords=("axes fraction", "data"),
                xytext=(-4, 3),
                textcoords="offset points",
                ha="right",
                fontsize=9,
                color="#444444",
            )
        if log_x and any(curve.x.size for curve in curves.values()):
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        if percent_y:
            _percent_axis(axes, np.concatenate([curve.mean for curve in curves.values()]))
        axes.set(xlabel=x_label, ylabel=textwrap.fill(y_label, _TALL), title=title)
        axes.margins(x=0)
        # Outside, so that it hides no data, whatever the data.
        columns = 3 if max(map(len, curves), default=0) <= _LONG else 2  # three long labels are wider than the figure
        figure.legend(loc="outside lower center", ncols=min(len(curves), columns), fontsize=9.5, handlelength=2.4)
    axis: dict[str, Any] = {"x_label": x_label, "y_label": y_label, "log_x": log_x, "log_y": log_y}
    figure.charts = [charts.lines(curves, looks, scale=100.0 if percent_y else 1.0, level=reference, **axis)]
    return figure


def panels_figure(
    panels: Mapping[str, Mapping[str, Curve]],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    looks: Mapping[str, Look],
) -> Figure:
    """Panels of curves with bands beside each other, with one ordinate in percent and one legend."""
    with mpl.rc_context(_STYLE):
        count = len(panels)
        figure = Pointed(figsize=(max(6.4, 3.3 * count), 3.9))
        row = figure.subplots(1, count, sharey=True, squeeze=False)[0]
        shown: dict[str, Any] = {}
        for axes, (name, curves) in zip(row, panels.items(), strict=True):
            for label, curve in curves.items():
                shown[label] = _draw(axes, curve, looks[label], label, scale=100)
            axes.set(xlabel=x_label)
            axes.set_title(name, fontsize=10.5)
            axes.margins(x=0)
        row[0].set_ylabel(textwrap.fill(y_label, _TALL))
        means = np.concatenate([curve.mean for curves in panels.values() for curve in curves.values()])
        top = 100 * float(means.max())
        row[0].set_ylim(max(100 * float(means.min()) - 2.0, 0.0), top + 0.05 * top)  # bands may leave the picture
        figure.suptitle(title, fontsize=11.5)
        figure.legend(
            shown.values(),
            shown.keys(),
            loc="outside lower center",
            ncols=min(len(shown), 2 * count if count > 1 else 3),
            fontsize=9.5,
            handlelength=2.4,
        )
    figure.charts = [
        charts.lines(
            curves, {label: looks[label] for label in curves}, x_label=x_label, y_label=y_label, title=name, scale=100.0
        )
        for name, curves in panels.items()
    ]
    return figure


_LINE = 80  # letters beside each other in a figure: labels of rows, and below the panels


def intervals_figure(
    panels: Mapping[str, Mapping[str, Interval]],
    *,
    title: str = "",
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """Means with their intervals, a row for each label, and a panel for each measure."""
    with mpl.rc_context(_STYLE):
        labels = list(next(iter(panels.values())))
        letters = max((_LINE - max(map(len, labels))) // len(panels), 10)
        figure = Pointed(figsize=(6.4, 1.3 + 0.34 * len(labels)))
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (measure, intervals) in zip(row, panels.items(), strict=True):
            for height, label in enumerate(labels):
                shown = intervals[label]
                drawn = PALETTE[0] if looks is None else looks[label].colour
                axes.plot((shown.low, shown.high), (height, height), color=drawn, linewidth=1.6)
                axes.plot(shown.mean, height, "o", color=drawn, markersize=5.5)
            lines = measure.split("\n")
            axes.set(xlabel="\n".join(textwrap.fill(line, letters) for line in lines))
        row[0].set_yticks(range(len(labels)), labels)
        row[0].set_ylim(len(labels) - 0.5, -0.5)
        figure.suptitle(title, fontsize=11.5)
    looks = dict.fromkeys(labels, Look(PALETTE[0])) if looks is None else looks
    figure.charts = [
        charts.intervals(found, {label: looks[label] for label in found}, x_label=measure, title=measure)
        for measure, found in panels.items()
    ]
    return figure


MANY = 8
"""With more curves than colours, each gets a panel of its own."""

_POINTS = 160  # of a curve in a small panel


def _thinned(curve: Curve) -> Curve:
    if curve.x.shape[0] <= _POINTS:
        return curve
    kept = np.unique(np.linspace(0, curve.x.shape[0] - 1, _POINTS).round().astype(np.int64))
    return Curve(curve.x[kept], curve.mean[kept], curve.low[kept], curve.high[kept])


def _percent_axis(axes: Any, means: FloatArray) -> None:
    """Shares on an axis in percent that is stretched towards 100 %, wide enough for some means."""
    low, high = (float(means.min()), float(means.max())) if means.size else (0.0, 1.0)
    low = max(low - 0.05, 0.05)
    limits = (low, max(min(high + 0.01, 0.9995), low + 0.04))
    # Before the scale: it cannot find limits of its own where all is 0, all is 1, or nothing is there.
    axes.set_ylim(*limits)
    axes.set_yscale("logit", nonpositive="clip")  # bands may leave (0, 1)
    ticks = (0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
    axes.set_yticks(ticks, [f"{100 * tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(*limits)  # again: ticks have widened them


def small_multiples_figure(
    curves: Mapping[str, Curve],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    reference: str = "",
    level: tuple[float, str] | None = None,
    log_x: bool = False,
    log_y: bool = False,
    percent_y: bool = False,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """A panel for each curve, all with the same axes; the curve of ``reference`` in grey, and a line at ``level``."""
    thin = {label: _thinned(curve) for label, curve in curves.items()}
    columns = 3
    rows = -(-len(thin) // columns)
    with mpl.rc_context(_STYLE | {"font.size": 9.0, "lines.linewidth": 1.4}):
        figure = Pointed(figsize=(6.4, 0.9 + 1.35 * rows))
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for axes, (label, curve) in zip(grid.flat, thin.items(), strict=False):
            if reference in thin and reference != label:
                axes.plot(thin[reference].x, thin[reference].mean, color="#999999", linewidth=1.2)
            colour = PALETTE[0] if looks is None else looks[label].colour
            axes.plot(curve.x, curve.mean, color=colour)
            axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.22, linewidth=0)
            if level is not None:
                axes.axhline(level[0], color="#666666", linewidth=0.9, linestyle=(0, (4, 3)))
            axes.set_title(_wrapped(label), fontsize=8.5, loc="left", pad=3)
            axes.margins(x=0)
        if log_x and any(curve.x.size for curve in thin.values()):
            grid[0, 0].set_xscale("log")
            grid[0, 0].xaxis.set_minor_formatter(NullFormatter())
        if log_y and any((curve.mean > 0.0).any() for curve in thin.values()):
            grid[0, 0].set_yscale("log")
            grid[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        if percent_y:
            _percent_axis(grid[0, 0], np.concatenate([curve.mean for curve in thin.values()]))
        for place, axes in enumerate(grid.flat):
            if place >= len(thin):
                axes.set_axis_off()
            elif place + columns >= len(thin):
                axes.tick_params(labelbottom=True)
        figure.suptitle(title, fontsize=11.5)
        figure.supxlabel(x_label, fontsize=9.5)
        figure.supylabel(textwrap.fill(y_label, _TALL), fontsize=9.5)
    looks = in_order(curves) if looks is None else looks
    axis: dict[str, Any] = {"x_label": x_label, "y_label": y_label, "log_x": log_x, "log_y": log_y}
    figure.charts = [charts.lines(curves, looks, scale=100.0 if percent_y else 1.0, level=level, **axis)]
    return figure


def _wrapped(label: str, width: int = 24) -> str:
    """A label on two lines where its parameters make it long."""
    if len(label) <= width:
        return label
    name, colon, rest = label.partition(":")
    return f"{name}{colon}\n{rest}" if rest else label


def _save(figure: Figure, file: IO[Any], **options: Any) -> None:
    """Save a figure that is laid out once: Matplotlib does it for each file, which takes longer than to draw."""
    with mpl.rc_context(_STYLE | {"figure.constrained_layout.use": False}):
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(file, **options)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as a small PNG, atomically; without a date in it, so that equal figures are equal files."""
    drawn = io.BytesIO()
    _save(figure, drawn, format="png", metadata={"Software": None})
    with Image.open(drawn) as image:
        # This method keeps the colours of thin lines, where those that count pixels merge them.
        small = image.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    write_atomically(path, lambda file: small.save(file, format="png", optimize=True))


def svg_text(figure: Figure) -> str:
    """The figure as an SVG element for an HTML page: it scales, and its text can be searched."""
    buffer = io.StringIO()
    _save(figure, buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
