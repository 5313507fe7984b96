"""Refilling servers: the window of undecided links."""

import numpy as np

from fedroster.optimization.assignment.refill import _window


def test_the_window_and_its_counts_belong_together():
    """A hundred thousand clients crashed the interpreter: as many links were read as a wider window had counted."""
    share = np.full(500, 0.01)
    profit = share + np.linspace(-0.002, 0.002, 500)  # the last of the steps that narrow the window comes among these
    half, room, undecided, _ = _window(share, profit, 500, 1.0, 0.5, 384)
    reduced = profit - share
    assert undecided == np.count_nonzero(np.abs(reduced) <= half)
    assert room == 1.0 - share[reduced > half].sum()
