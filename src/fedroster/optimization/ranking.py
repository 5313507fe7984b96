r"""The best k of many rows, and samples of k rows: without sorting, ties broken by the caller's generator."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because, Limit, Reason


def greatest(score: FloatArray | IntArray, size: int, *, rng: Generator) -> IntArray:
    """Rows of the ``size`` greatest scores, ascending, shape (min(size, rows),).

    Args:
        score: Score of each row, shape (rows,); infinities are allowed, NaN is not.
        size: How many, >= 0.
        rng: Chooses among rows that tie for the last places.

    Cost: O(rows).
    """
    count = score.shape[0]
    if size >= count:
        return np.arange(count)
    if size <= 0:
        return np.zeros(0, np.int64)
    cut = np.partition(score, count - size)[count - size]
    above = np.flatnonzero(score > cut)
    tied = np.flatnonzero(score == cut)
    missing = size - above.shape[0]
    if missing < tied.shape[0]:
        tied = rng.choice(tied, size=missing, replace=False, shuffle=False)
    rows = np.concatenate((above, tied))
    rows.sort()
    return rows


def cut_for(score: FloatArray | IntArray, own: BoolArray, size: int) -> tuple[float, float]:
    """The score above which one row, marked by ``own``, is among the ``size`` greatest, and below which it is not.

    Returns:
        That score, -inf if there is room for all; and the probability with which the row is drawn among those that tie
        for the last places, NaN if it does not tie.
    """
    others = score[~own]
    if size > others.shape[0]:
        return -math.inf, math.nan
    cut = float(np.partition(others, -size)[-size]) if size > 0 else math.inf
    chance = (size - np.count_nonzero(others > cut)) / (1 + np.count_nonzero(others == cut))
    return cut, chance if score[own][0] == cut else math.nan


def ranked(reason: Reason, chance: float, limits: tuple[Limit, ...]) -> Because:
    """Why a row is among the greatest, or is not: ``reason``, or chance if it ties for the last places."""
    return Because(reason if math.isnan(chance) else "drawn", limits, chance)


def sample_by_weight(weight: FloatArray, size: int, *, rng: Generator) -> IntArray:
    r"""Successive sampling without replacement, each next row with probability proportional to its weight.

    Drawn as an exponential race: row i arrives at :math:`E_i / w_i` with E_i ~ Exp(1), and the first ``size`` arrivals
    are taken (Efraimidis and Spirakis 2006).

    Args:
        weight: Weight of each row, shape (rows,), >= 0.  Rows of weight zero come last, in random order.
        size: How many, >= 0.
        rng: Draws them.

    Returns:
        Rows, ascending, shape (min(size, rows),).

    Cost: O(rows).
    """
    if size >= weight.shape[0]:
        return np.arange(weight.shape[0])
    with np.errstate(divide="ignore", over="ignore"):
        arrival = rng.standard_exponential(weight.shape[0]) / weight
    return greatest(-arrival, size, rng=rng)


def sample_systematically(inclusion: FloatArray, *, rng: Generator) -> IntArray:
    r"""Sample without replacement in which row i is included with probability exactly :math:`p_i` (Madow 1949).

    The rows are laid out in random order on a line, row i with length :math:`p_i`, and every row is taken in which one
    of the points :math:`U, U + 1, U + 2, \dots` lies, U uniform on [0, 1).

    Args:
        inclusion: p, shape (rows,), in [0, 1]; their sum is an integer k up to rounding.
        rng: Draws the order and U.

    Returns:
        Rows, ascending, shape (k,).

    Cost: O(rows).
    """
    size = round(float(inclusion.sum()))
    certain = np.flatnonzero(inclusion >= 1.0)
    rest = np.flatnonzero((inclusion > 0.0) & (inclusion < 1.0))
    missing = size - certain.shape[0]
    if missing <= 0 or missing >= rest.shape[0]:
        return np.sort(np.concatenate((certain, rest if missing > 0 else rest[:0])))
    order = rng.permutation(rest)
    ends = np.cumsum(inclusion[order])
    # Rounding must not move the last point beyond the last end.
    ends *= missing / ends[-1]
    hits = np.searchsorted(ends, rng.random() + np.arange(missing), side="right")
    taken = np.zeros(order.shape[0], np.bool_)
    taken[np.minimum(hits, order.shape[0] - 1)] = True
    lost = missing - int(np.count_nonzero(taken))  # two points in one row: lengths of 1 less a rounding error
    if lost:
        taken[np.flatnonzero(~taken)[:lost]] = True
    rows = np.concatenate((certain, order[taken]))
    rows.sort()
    return rows


def sample_above(score: FloatArray, size: int, *, cut_off: float, rng: Generator) -> IntArray:
    """Sample by score among those above a cut-off, as Oort exploits (Lai et al. 2021); positions, ascending.

    Candidates have at least ``cut_off``, in [0, 1], times the score of the first that would not be among the best
    ``size``, or of the last if there is none.
    """
    place = max(score.shape[0] - 1 - size, 0)
    candidates = np.flatnonzero(score >= cut_off * float(np.partition(score, place)[place]))
    return candidates[sample_by_weight(score[candidates], size, rng=rng)]


def fill_up(chosen: BoolArray, rows: IntArray, size: int, *, rng: Generator) -> None:
    """Choose random ones of ``rows`` for the places of ``size`` that remain; writes to ``chosen``."""
    missing = size - int(np.count_nonzero(chosen))
    if missing > 0:
        rows = rows[~chosen[rows]]
        chosen[rows if rows.shape[0] <= missing else rng.choice(rows, missing, replace=False, shuffle=False)] = True
