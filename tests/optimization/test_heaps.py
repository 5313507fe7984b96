"""Heaps and quickselect, alone: a rare fault in them would hide in large instances."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from fedroster.core.compiled import njit
from fedroster.optimization.heaps import greatest_first, push, replace_least


@njit()
def largest(values, size, owners):
    """As the solvers use it: the ``size`` greatest, and every least key on the way."""
    keys = np.empty(size)
    least = np.empty(values.shape[0])
    filled = 0
    for i in range(values.shape[0]):
        if filled < size:
            push(keys, owners, filled, values[i], i)
            filled += 1
        elif values[i] > keys[0]:
            replace_least(keys, owners, size, values[i], i)
        least[i] = keys[0]
    return keys[:filled], least


def cases(num_cases=1500):
    rng = np.random.default_rng(38)
    for case in range(num_cases):
        num = int(rng.integers(1, 40))
        yield rng.integers(0, 6, num) * 1.0 if case % 2 else rng.random(num), int(rng.integers(1, num + 1)), rng


@pytest.mark.parametrize("owned", [False, True])
def test_a_heap_holds_the_greatest_and_shows_the_least(owned):
    for values, size, _ in cases():
        owners = np.full(size, -1) if owned else None
        keys, least = largest(values, size, owners)
        assert sorted(keys) == sorted(values)[-size:]
        expected, heap = [], []
        for value in values:
            (heapq.heappush if len(heap) < size else heapq.heappushpop)(heap, value)
            expected.append(heap[0])
        np.testing.assert_array_equal(least, expected)
        if owned:
            assert len(set(owners)) == size
            np.testing.assert_array_equal(values[owners], keys)


def test_quickselect_puts_the_greatest_in_front():
    for values, size, _ in cases():
        found = values.copy()
        greatest_first(found, None, 0, len(values), size)
        assert sorted(found) == sorted(values)
        assert sorted(found[:size]) == sorted(values)[-size:]


def test_quickselect_of_rows_moves_only_these_rows():
    for values, _, rng in cases():
        rows = rng.permutation(len(values))
        begin, end = sorted(rng.integers(0, len(values) + 1, 2).tolist())
        size = int(rng.integers(0, end - begin + 1))
        kept, found = values.copy(), rows.copy()
        greatest_first(kept, found, begin, end, size)
        np.testing.assert_array_equal(kept, values)
        np.testing.assert_array_equal(found[:begin], rows[:begin])
        np.testing.assert_array_equal(found[end:], rows[end:])
        assert sorted(found[begin:end]) == sorted(rows[begin:end])
        assert sorted(values[found[begin : begin + size]]) == sorted(values[rows[begin:end]])[end - begin - size :]
