"""Medians of interleaved runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(works: Mapping[str, Callable[[], object]], *, repeats: int, warmup: int = 2) -> dict[str, float]:
    """Median seconds of each work, run in turn so that a slow moment of the machine hits all.

    Args:
        works: By name.
        repeats: Counted runs of each.
        warmup: Runs of each that are not counted (compilation, caches).
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + warmup):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            elapsed = time.perf_counter() - start
            if turn >= warmup:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}
