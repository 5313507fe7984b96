r"""Exact solver of P4 (Huang et al. 2021, Eq. 21): least drift plus penalty over all cohorts of k clients.

.. math:: \min_{S \subseteq \{n : I_n = 1\},\ |S| = k}\ V \max_{n \in S} \bar\tau_n - \sum_{n \in S} Z_n

Algorithm 1 of the paper fixes the slowest client's time T among the N possible values and takes the k longest queues
among the clients that are not slower: :math:`F(T) = V T - (\text{sum of the } k \text{ largest } Z_n \text{ with }
\bar\tau_n \le T)`. That is O(N^2).  In order of time, a heap of the k longest queues gives every F(T) in O(N log N)
(:func:`_sweep`). For many clients, most thresholds are ruled out before anything is sorted (:func:`_prune`):

1. One pass counts the clients in a grid of time bins x queue bins.  Prefix sums over the time bins bound the k largest
   queues of every prefix from both sides, hence F over every bin from below and F at every bin's end from above.
2. Time bins whose lower bound exceeds the least upper bound hold no optimum.  Of what comes before the first remaining
   bin only the k longest queues matter; of what comes later, only longer queues than those.
3. What is left is the same problem, smaller.  Repeat while it shrinks, then sweep.

Ties in the queues and between equal optima are broken by the caller's generator (Choice A5).
"""

from __future__ import annotations

import heapq
import math
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import interpreted_at_first, njit

_TIME_BINS = 128
_QUEUE_BINS = 256
_SWEEP_AT_ONCE = 4096  # fewer rows than this are swept without pruning


@njit(cache=True, nogil=True)
def _replace_least(heap, key):
    """Put a key in the place of the least of a heap, which stands first."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= heap.shape[0]:
            break
        if child + 1 < heap.shape[0] and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = key


@njit(cache=True, nogil=True)
def _greatest_first(keys, size):
    """Three-way quickselect in place: afterwards the ``size`` greatest stand first, in any order."""
    low, high = 0, keys.shape[0]
    while high - low > 1:
        a, b, c = keys[low], keys[(low + high) >> 1], keys[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        larger, smaller, i = low, high, low
        while i < smaller:
            key = keys[i]
            if key > pivot:
                keys[i], keys[larger] = keys[larger], key
                larger += 1
                i += 1
            elif key < pivot:
                smaller -= 1
                keys[i], keys[smaller] = keys[smaller], key
            else:
                i += 1
        if size <= larger:
            high = larger
        elif size <= smaller:
            break
        else:
            low = smaller


@njit(cache=True, nogil=True)
def _sweep(time, backlog, order, size, penalty):
    """F at every threshold, in order of time.  Returns all best thresholds and the k-th longest queue at each."""
    heap = np.full(size, -np.inf)
    filled = 0
    total = 0.0
    best = np.inf
    thresholds = np.empty(order.shape[0])
    cuts = np.empty(order.shape[0])
    num_best = 0
    i = 0
    while i < order.shape[0]:
        threshold = time[order[i]]
        if threshold == np.inf:
            break
        improved = False
        while i < order.shape[0] and time[order[i]] == threshold:
            queue = backlog[order[i]]
            if queue > heap[0]:
                total += queue - heap[0] if filled == size else queue
                filled = min(filled + 1, size)
                _replace_least(heap, queue)
                improved = True
            i += 1
        if improved and filled == size:  # otherwise the same cohort was met at an earlier threshold
            objective = penalty * threshold - total
            if objective < best:
                best = objective
                num_best = 0
            if objective == best:
                thresholds[num_best] = threshold
                cuts[num_best] = heap[0]
                num_best += 1
    return thresholds[:num_best], cuts[:num_best]


@njit(cache=True, nogil=True, error_model="numpy")
def _extent(time, backlog):
    """Number of available rows; least and largest time; shortest and longest queue."""
    count = 0
    least, largest = np.inf, -np.inf
    shortest, longest = np.inf, -np.inf
    for n in range(time.shape[0]):
        usable = time[n] < np.inf
        count += usable
        least = min(least, time[n])
        largest = max(largest, time[n] if usable else -np.inf)
        shortest = min(shortest, backlog[n])
        longest = max(longest, backlog[n])
    return count, least, largest, shortest, longest


@njit(cache=True, nogil=True, error_model="numpy")
def _count_grid(time, backlog, least, time_scale, shortest, queue_scale):
    # Branch-free: a mispredicted branch for each row would cost more than all the arithmetic.
    counts = np.zeros((_TIME_BINS + 3, _QUEUE_BINS), np.int32)
    for n in range(time.shape[0]):
        # Unavailable rows (infinite) are clipped into the bin behind the last.
        offset = min((time[n] - least) * time_scale, _TIME_BINS + 1.0)
        row = int(offset) + (1 if time[n] > least else 0)
        column = int(min((backlog[n] - shortest) * queue_scale, _QUEUE_BINS - 1.0))
        counts[row, column] += 1
    return counts


@njit(cache=True, nogil=True, error_model="numpy")
def _prune(time, backlog, size, penalty):
    """Shrink the problem until a sweep is cheap.  Rows of the result are (time, queue) pairs without identity."""
    while True:
        count, least, largest, shortest, longest = _extent(time, backlog)
        if count <= _SWEEP_AT_ONCE or not largest > least:
            return time, backlog
        # The last bin holds the largest time itself, wherever rounding puts it.
        time_width = (largest - least) / (_TIME_BINS - 0.5)
        time_scale = 1.0 / time_width
        queue_width = (longest - shortest) / _QUEUE_BINS
        queue_scale = 1.0 / queue_width if queue_width > 0.0 else 0.0
        if time_scale == np.inf or queue_scale == np.inf:  # differences below 1e-306 cannot be told apart by bins
            return time, backlog
        counts = _count_grid(time, backlog, least, time_scale, shortest, queue_scale)

        bound = np.full(_TIME_BINS + 1, np.inf)
        attained = np.inf
        for row in range(_TIME_BINS + 1):
            if row > 0:
                for column in range(_QUEUE_BINS):
                    counts[row, column] += counts[row - 1, column]
            need = size
            most, fewest = 0.0, 0.0
            for column in range(_QUEUE_BINS - 1, -1, -1):
                take = min(need, counts[row, column])
                most += take * (shortest + (column + 1) * queue_width)
                fewest += take * (shortest + column * queue_width)
                need -= take
                if need == 0:
                    break
            if need > 0:
                continue
            start = least + max(row - 1, 0) * time_width
            bound[row] = penalty * start - most
            attained = min(attained, penalty * (least + row * time_width) - fewest)
        # Bin edges and grid arithmetic are rounded: what lies within rounding of the bound stays.
        slack = 1e-9 * (abs(attained) + penalty * abs(largest) + size * max(abs(shortest), abs(longest)))
        first, last = -1, -1
        for row in range(_TIME_BINS + 1):
            if bound[row] <= attained + slack:
                if first < 0:
                    first = row
                last = row

        # Everything up to `base` counts only through its k longest queues.  Bin 0 has a single threshold, so it may
        # serve as the base although it may hold the optimum: the sweep evaluates the base's own threshold first.
        base = 0 if first == 0 else first - 1
        in_base = 0
        for column in range(_QUEUE_BINS):
            in_base += counts[base, column]
        cut_column = 0
        if in_base < size:
            base = -1
        else:
            need = size
            for column in range(_QUEUE_BINS - 1, -1, -1):
                need -= counts[base, column]
                if need <= 0:
                    cut_column = column
                    break
        kept, from_base = 0, 0
        for column in range(cut_column, _QUEUE_BINS):
            kept += counts[last, column]
            from_base += counts[base, column] if base >= 0 else 0
        base_queue = np.empty(from_base + 1)
        new_time = np.empty(size + kept - from_base + 1)
        new_queue = np.empty(size + kept - from_base + 1)
        num_base = 0
        num_new = size if base >= 0 else 0
        for n in range(time.shape[0]):
            offset = min((time[n] - least) * time_scale, _TIME_BINS + 1.0)
            row = int(offset) + (1 if time[n] > least else 0)
            column = int(min((backlog[n] - shortest) * queue_scale, _QUEUE_BINS - 1.0))
            if column >= cut_column:
                if row <= base:
                    base_queue[num_base] = backlog[n]
                    num_base += 1
                elif row <= last:
                    new_time[num_new] = time[n]
                    new_queue[num_new] = backlog[n]
                    num_new += 1
        if base >= 0:
            _greatest_first(base_queue[:num_base], size)
            # As if all of the base had the base's largest time: its own threshold, or one that no optimum has.
            base_time = least + base * time_width
            cut = base_queue[0]
            for i in range(size):
                new_time[i] = base_time
                new_queue[i] = base_queue[i]
                cut = min(cut, base_queue[i])
            after = size
            for i in range(size, num_new):
                if new_queue[i] > cut:
                    new_time[after] = max(new_time[i], base_time)
                    new_queue[after] = new_queue[i]
                    after += 1
            num_new = after
        time, backlog = new_time[:num_new], new_queue[:num_new]
        if num_new > 0.8 * count and last > _TIME_BINS // 2:
            return time, backlog


def least_drift_plus_penalty(
    time_s: FloatArray, backlog: FloatArray, *, penalty: float, cohort_size: int, rng: Generator
) -> IntArray:
    r"""Solve P4 exactly (Huang et al. 2021, Eq. 21).

    Args:
        time_s: Estimated exchange times, shape (clients,), seconds, >= 0; infinite for clients that are not available.
        backlog: Queue lengths Z, shape (clients,), >= 0.
        penalty: V >= 0.
        cohort_size: m; :math:`k = \min\{m, \sum_n I_n\}` clients are chosen.
        rng: Breaks ties in the queues and between equal optima (Choice A5).

    Returns:
        Indices of the chosen clients, ascending, shape (k,).

    Cost: a few passes over the clients, plus O(M log M) for the M rows that pruning leaves; M = N at worst.
    """
    finite = time_s < math.inf
    if np.count_nonzero(finite) <= cohort_size:
        return np.flatnonzero(finite)
    if penalty == 0.0:
        # Time costs nothing: every threshold with the longest queues ties, and the last one admits all of them.
        cut = float(np.partition(backlog[finite], -cohort_size)[-cohort_size])
        threshold = float(time_s[finite].max())
    else:
        times, queues = time_s, backlog
        if times.shape[0] > _SWEEP_AT_ONCE:
            times, queues = _prune(times, queues, cohort_size, penalty)
        sweep = interpreted_at_first(_sweep, times.shape[0])
        thresholds, cuts = sweep(times, queues, np.argsort(times), cohort_size, penalty)
        which = int(rng.integers(thresholds.shape[0])) if thresholds.shape[0] > 1 else 0
        threshold, cut = float(thresholds[which]), float(cuts[which])
    long = np.flatnonzero(backlog >= cut)
    long = long[time_s[long] <= threshold]
    is_longer = backlog[long] > cut
    chosen, tied = long[is_longer], long[~is_longer]
    missing = cohort_size - chosen.shape[0]
    if missing < tied.shape[0]:
        tied = tied[rng.choice(tied.shape[0], size=missing, replace=False, shuffle=False)]
    links = np.concatenate((chosen, tied))
    links.sort()
    return links


def _best_sums(queues: FloatArray, size: int) -> FloatArray:
    """Sum of the ``size`` longest of the first i + 1 queues, by i; -inf while there are fewer."""
    heap: list[float] = []
    sums = np.full(queues.shape[0], -math.inf if size else 0.0)
    total = 0.0
    for i, queue in enumerate(queues.tolist() if size else ()):
        heapq.heappush(heap, queue)
        total += queue - (heapq.heappop(heap) if len(heap) > size else 0.0)
        if len(heap) == size:
            sums[i] = total
    return sums


def explained(
    time_s: FloatArray, backlog: FloatArray, row: int, links: IntArray, *, penalty: float, cohort_size: int
) -> tuple[Literal["price", "time", "drawn"], float, float]:
    r"""What decided on a client in P4, its queue or its time, and where the decision turns, all else as it is.

    With :math:`F_0` the least objective without the client, T_j the times of the others in ascending order, and A_j the
    sum of the k - 1 longest queues among the first j of them, it is in every best cohort if and only if some j has
    :math:`V \max\{\bar\tau, T_j\} < F_0 + Z + A_j`, and in none if all have more on the left.

    The client's row has a finite time, ``links`` are the cohort's rows, all else is :func:`least_drift_plus_penalty`'s;
    more than ``cohort_size`` times are finite.

    Returns:
        What decided; the queue above which it is in the cohort and below which it is not; and the time, seconds, below
        which it is if it was not chosen, and above which it is not if it was.
    """
    rest = np.flatnonzero(time_s < math.inf)
    rest = rest[rest != row]
    rest, chosen = rest[np.argsort(time_s[rest], kind="stable")], row in links
    base = float((penalty * time_s[rest] - _best_sums(backlog[rest], cohort_size)).min())
    beside = _best_sums(backlog[rest], cohort_size - 1)
    waits = time_s[rest] if cohort_size > 1 else np.zeros(rest.shape[0])
    rounding = 1e-12 * (abs(base) + penalty * float(time_s[rest].max()) + float(np.abs(backlog[rest]).sum()))
    least = float((penalty * np.maximum(waits, time_s[row]) - beside).min()) - base
    worth = base + backlog[row] + beside
    fits = penalty * waits < worth + (rounding if chosen else -rounding)
    longest_s = math.inf if penalty == 0.0 else float(worth[fits].max(initial=-math.inf)) / penalty
    if abs(least - backlog[row]) <= rounding:
        return "drawn", float(backlog[row]), longest_s
    others = np.setdiff1d(rest, links) if chosen else links
    by_time = backlog[row] <= backlog[others].max() if chosen else time_s[row] > time_s[others].max()
    return "time" if by_time else "price", least, longest_s
