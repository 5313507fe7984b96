"""Ward's clusters in O(n^2), by distances that need not be Euclidean (Müllner 2011, arXiv:1109.2378, section 3)."""

from __future__ import annotations

import math

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import interpreted_at_first, njit


@njit(cache=True, nogil=True)
def _chain(square, gone, into, cost):
    """Merge nearest neighbours: merge t puts `gone[t]` into `into[t]` at `cost[t]`, a square; in no order of it."""
    n = square.shape[0]
    size = np.ones(n)
    left = np.arange(n)
    chain = np.zeros(n, np.int64)
    depth = 0
    for t in range(n - 1):
        count = n - t
        if depth == 0:
            chain[0] = left[0]
            depth = 1
        while True:
            x = chain[depth - 1]
            row = square[x]
            before = chain[depth - 2] if depth > 1 else -1  # it wins ties, or the chain would go round in a circle
            y = before
            least = row[y] if depth > 1 else math.inf
            for k in range(count):
                j = left[k]
                if row[j] < least and j != x:
                    y = j
                    least = row[j]
            if y == before:
                break
            chain[depth] = y
            depth += 1
        depth -= 2
        gone[t] = x
        into[t] = y
        cost[t] = least
        for k in range(np.searchsorted(left[:count], x), count - 1):  # in order, as memory is read fastest
            left[k] = left[k + 1]
        other = square[y]
        for k in range(count - 1):
            j = left[k]
            if j != y:  # Lance and Williams's rule; rounding must bring none nearer, or a chain may meet itself
                third = size[j]
                both = (size[x] + third) * row[j] + (size[y] + third) * other[j] - third * least
                mean = both / (size[x] + size[y] + third)
                other[j] = max(mean, min(row[j], other[j]))
                square[j, y] = other[j]
        size[y] += size[x]


def ward(square: FloatArray, count: int) -> IntArray:
    """Label of each point's cluster, from 0, shape (n,): Ward's tree, cut where at most ``count`` clusters are left.

    Args:
        square: Squares of distances, symmetric, shape (n, n); overwritten.
        count: Clusters, >= 1.
    """
    n = square.shape[0]
    into = np.arange(n)
    if count < n:
        found = np.empty((2, n - 1), np.int64)
        cost = np.empty(n - 1)
        run = interpreted_at_first(_chain, square.size)
        run(square, found[0], found[1], cost)
        done = cost <= np.partition(cost, n - count - 1)[n - count - 1]  # merges of equal cost together, or not at all
        into[found[0, done]] = found[1, done]
    while (into != into[into]).any():
        into = into[into]
    return np.unique(into, return_inverse=True)[1]
