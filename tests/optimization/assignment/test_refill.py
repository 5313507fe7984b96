"""Refilling servers: the window of undecided links."""

import itertools

import numpy as np
import pytest

from fedroster.optimization.assignment.refill import CELLS, _window, fill_server


def test_the_window_and_its_counts_belong_together():
    """A hundred thousand clients crashed the interpreter: as many links were read as a wider window had counted."""
    share = np.full(500, 0.01)
    profit = share + np.linspace(-0.002, 0.002, 500)  # the last of the steps that narrow the window comes among these
    half, room, undecided, _ = _window(share, profit, 500, 1.0, 0.5, 384)
    reduced = profit - share
    assert undecided == np.count_nonzero(np.abs(reduced) <= half)
    assert room == 1.0 - share[reduced > half].sum()


def test_of_too_many_undecided_links_the_least_clear_are_searched():
    """Of equally clear ones the later; what is not searched is left out."""
    rng = np.random.default_rng(3)
    for case in range(100):
        share, most = rng.uniform(0.1, 0.6, 30), int(rng.integers(1, 7))
        profit = share * 1.0 + (rng.integers(-3, 4, 30) / 100 if case % 2 else rng.uniform(-0.1, 0.1, 30))
        picks = np.zeros(30, np.bool_)
        table = np.empty((most + 1, 1, CELLS))
        # No node spent on a window that fits: one so small that it stays as it is, and all links lie inside.
        total, *_ = fill_server(share, profit, 30, 1.0, 0.5, 0.0, 0.0, 100_000, table, picks)
        half, _, undecided, _ = _window(share, profit, 30, 1.0, 0.5, most)
        if undecided <= most:
            continue
        reduced = np.abs(profit - share)
        searched = sorted(np.flatnonzero(reduced <= half), key=lambda p: (reduced[p], -p))[:most]
        sure = np.flatnonzero(profit - share > half)
        best = max(
            profit[list(some)].sum()
            for size in range(most + 1)
            for some in itertools.combinations(searched, size)
            if share[list(some)].sum() <= 1.0 - share[sure].sum()
        )
        assert set(np.flatnonzero(picks)) <= {*searched, *sure}
        assert total == pytest.approx(best + profit[sure].sum())
