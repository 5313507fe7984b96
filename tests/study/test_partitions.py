"""The picture of a partition: every client and class has its field, and its colour is its number of samples."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster.core.errors import InvalidInputError
from fedroster.study.figures import save_png, svg_text
from fedroster.study.partitions import partitions_figure

COUNTS = np.random.default_rng(0).integers(0, 3, (40, 10)) * 100


def test_every_field_shows_its_count():
    axes, bar = partitions_figure({"A title": COUNTS}).axes
    mesh = axes.collections[0]
    np.testing.assert_array_equal(mesh.get_array(), COUNTS.T)
    shown = mesh.cmap(mesh.norm(np.array([0, 100, 200])))
    assert shown[0].tolist() == [1.0, 1.0, 1.0, 1.0]  # nothing is white
    assert shown[1].sum() > shown[2].sum()  # more is darker
    assert shown[1].tolist() != shown[0].tolist()
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("client", "class", "A title")
    assert bar.get_ylabel() == "samples"
    assert axes.get_ylim()[0] > axes.get_ylim()[1]  # class 0 above


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (50, 10), (40, 100), (3000, 10)])
@pytest.mark.filterwarnings("error")
def test_other_sizes(tmp_path, shape):
    figure = partitions_figure({"": np.arange(np.prod(shape)).reshape(shape) % 7})
    save_png(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    ticks = [tick for tick in figure.axes[0].get_xticks() if 0 <= tick <= shape[0] - 1]
    assert ticks == [round(tick) for tick in ticks]
    assert 1 <= len(ticks) <= 13


def test_partitions_stand_below_each_other():
    first, second = (axes for axes in partitions_figure({"a": COUNTS, "b": COUNTS[:5]}).axes if axes.get_title())
    assert (first.get_title(), second.get_title()) == ("a", "b")
    np.testing.assert_array_equal(second.collections[0].get_array(), COUNTS[:5].T)


def test_the_same_figure_is_the_same_file():
    assert svg_text(partitions_figure({"x": COUNTS})) == svg_text(partitions_figure({"x": COUNTS}))


@pytest.mark.parametrize("shape", [(10,), (0, 10), (10, 0), (2, 3, 4)])
def test_no_partition(shape):
    with pytest.raises(InvalidInputError, match="expected \\(clients, classes\\)"):
        partitions_figure({"one": COUNTS, "": np.zeros(shape, np.int64)})
