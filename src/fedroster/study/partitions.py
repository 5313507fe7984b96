"""Pictures of how samples are divided among clients."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from fedroster.core.arrays import IntArray
from fedroster.core.errors import InvalidInputError
from fedroster.study.figures import styled

_MOST_TICKS = 12


def partitions_figure(partitions: Mapping[str, IntArray]) -> Figure:
    """Which classes each client holds: a field for each client and class, darker for more samples, white for none.

    Counts have shape (clients, classes).

    Raises:
        InvalidInputError: If counts have another number of dimensions, or no client or class.
    """
    heights = []
    for counts in partitions.values():
        if np.ndim(counts) != 2 or 0 in np.shape(counts):
            raise InvalidInputError(f"counts have shape {np.shape(counts)}; expected (clients, classes)")
        heights.append(1.2 + 0.21 * min(max(np.shape(counts)[1], 8), 40))
    with styled({"axes.grid": False}):
        figure = Figure(figsize=(6.4, sum(heights)))
        rows = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        for row, (title, counts) in zip(rows, partitions.items(), strict=True):
            _draw(row, np.asarray(counts), title)
    return figure


def _draw(figure: SubFigure, counts: IntArray, title: str) -> None:
    num_clients, num_classes = counts.shape
    # Without the palest colours: one sample must differ from none.
    shades = mpl.colormaps["YlGnBu"](np.linspace(0.15, 1.0, 256))
    colours = ListedColormap(shades).with_extremes(under="white")
    axes = figure.subplots()
    # Thin gaps keep neighbours apart as long as the fields are wide enough for them.
    gap = 0.4 if num_clients <= 100 and num_classes <= 40 else 0.0
    image = axes.pcolormesh(
        np.arange(num_clients + 1) - 0.5,
        np.arange(num_classes + 1) - 0.5,
        counts.T,
        cmap=colours,
        vmin=0.5,
        vmax=max(int(counts.max()), 1),
        edgecolors="white" if gap else "face",
        linewidth=gap,
    )
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
    axes.set(xlabel="client", ylabel="class", title=title)
    figure.colorbar(image, ax=axes, label="samples", ticks=MaxNLocator(5, integer=True))
