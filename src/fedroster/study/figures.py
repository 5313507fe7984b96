"""How figures look: one style, readable on a phone, colours that do not depend on how many curves there are."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedroster.core.arrays import FloatArray
from fedroster.core.state import write_atomically

# Okabe and Ito's palette: told apart by colour-blind readers too.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
_LINES = ("-", "--", "-.", ":")

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
    "savefig.dpi": 160,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """A mean over seeds with its band.

    Attributes:
        x: Shape (points,).
        mean: Shape (points,).
        low: Lower end of the band, shape (points,).
        high: Upper end of the band, shape (points,).
    """

    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


def colour(index: int) -> str:
    """Colour of the curve with this place in the legend."""
    return _PALETTE[index % len(_PALETTE)]


def line_style(index: int) -> str:
    """Line of the curve with this place in the legend: a second cue beside the colour."""
    # One step further for each turn of the palette: 32 curves differ.
    return _LINES[(index // 2 + index // len(_PALETTE)) % len(_LINES)]


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
    places: Mapping[str, int] | None = None,
) -> Figure:
    """Curves with bands.

    Args:
        curves: By label, in the order of the legend.
        x_label: With its unit.
        y_label: With its unit.
        title: What the figure says; empty for none.
        reference: A horizontal line and its label.
        log_x: Logarithmic abscissa.
        log_y: Logarithmic ordinate.
        percent_y: Values are shares in (0, 1), shown in percent on an axis that is stretched towards 100 %.
        places: Colour and line of each label, so that a policy looks alike in every figure; None for their order.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 4.0))
        axes = figure.subplots()
        for order, (label, curve) in enumerate(curves.items()):
            place = order if places is None else places[label]
            axes.plot(curve.x, curve.mean, line_style(place), color=colour(place), label=label)
            axes.fill_between(curve.x, curve.low, curve.high, color=colour(place), alpha=0.18, linewidth=0)
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
            shown = np.concatenate([curve.mean for curve in curves.values()])
            low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
            low = max(low - 0.05, 0.05)
            # Before the scale: it cannot find limits of its own where all is 0, all is 1, or nothing is there.
            axes.set_ylim(low, max(min(high + 0.01, 0.9995), low + 0.04))
            axes.set_yscale("logit", nonpositive="clip")  # bands may leave (0, 1)
            ticks = (0.01, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
            axes.set_yticks(ticks, [f"{100 * tick:g}" for tick in ticks])
            axes.yaxis.set_minor_locator(NullLocator())
            axes.set_ylim(low, max(min(high + 0.01, 0.9995), low + 0.04))  # again: ticks have widened them
        axes.set(xlabel=x_label, ylabel=y_label, title=title)
        axes.margins(x=0)
        _legend_below(figure, len(curves))
    return figure


def _legend_below(figure: Figure, entries: int) -> None:
    # Outside, so that it hides no data, whatever the data.
    figure.legend(loc="outside lower center", ncols=min(entries, 3), fontsize=9.5, handlelength=2.4)


def pull_record_figure(counts: Mapping[str, FloatArray], *, title: str = "") -> Figure:
    """Paper A's Fig. 4: how often each client was chosen, clients sorted by it; brighter is more often.

    Args:
        counts: For each policy, sorted mean counts, shape (clients,).
        title: What the figure says.
    """
    with mpl.rc_context(_STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(6.4, 0.8 + 0.42 * len(counts)))
        axes = figure.subplots()
        image = axes.imshow(
            np.stack(list(counts.values())), aspect="auto", cmap="viridis", interpolation="nearest", vmin=0
        )
        axes.set_yticks(range(len(counts)), list(counts))
        axes.set(xlabel="clients, sorted by how often they were chosen", title=title)
        figure.colorbar(image, ax=axes, label="times chosen")
    return figure


def sorted_lines_figure(
    rates: Mapping[str, FloatArray],
    *,
    y_label: str,
    title: str = "",
    reference: tuple[float, str] | None = None,
    places: Mapping[str, int] | None = None,
) -> Figure:
    """Values of all clients, sorted, as one line for each policy.

    Args:
        rates: Sorted values, shape (clients,), by label.
        y_label: With its unit.
        title: What the figure says.
        reference: A horizontal line and its label.
        places: As for :func:`curves_figure`.
    """
    curves = {}
    for label, values in rates.items():
        share = np.linspace(0.0, 100.0, values.shape[0])
        curves[label] = Curve(share, values, values, values)
    return curves_figure(
        curves,
        x_label="clients, sorted, %",
        y_label=y_label,
        title=title,
        reference=reference,
        places=places,
    )


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, atomically; without a date in it, so that equal figures are equal files."""
    with mpl.rc_context(_STYLE):
        write_atomically(path, lambda file: figure.savefig(file, format="png", metadata={"Software": "fedroster"}))


def svg_text(figure: Figure) -> str:
    """The figure as an SVG element for an HTML page: it scales, and its text can be searched."""
    buffer = io.StringIO()
    with mpl.rc_context(_STYLE):
        metadata: dict[str, Any] = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", metadata=metadata)
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def places(labels: Sequence[str]) -> dict[str, int]:
    """Give every label its colour and line."""
    return {label: index for index, label in enumerate(labels)}
