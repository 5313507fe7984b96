"""Two or more cores for array kernels that release the GIL.

Numba's own ``prange`` needs a threading layer that is not safe to enter from several Python threads; a range split over
a plain thread pool is, costs no extra compilation and gives bit-for-bit the same result for any number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import Any

MIN_ROWS_PER_THREAD = 65_536
"""Below this many rows a thread costs more than it saves."""


@cache
def num_threads() -> int:
    """Threads to use: ``FEDROSTER_NUM_THREADS`` if set, else the cores that this process may use."""
    configured = os.environ.get("FEDROSTER_NUM_THREADS", "")
    if configured.isdecimal() and int(configured) > 0:
        return int(configured)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@cache
def _pool(process_id: int, workers: int) -> ThreadPoolExecutor:
    # Keyed by process: a pool does not survive a fork.
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="fedroster")


def for_ranges(kernel: Callable[..., Any], num_rows: int, *args: Any) -> None:
    """Call ``kernel(*args, start, stop)`` so that the ranges cover ``0..num_rows`` exactly once.

    The kernel mostly releases the GIL and writes only to its own rows.  When this returns or raises, by Ctrl-C, too, no
    call is under way any more: the arrays are the caller's again.
    """
    parts = min(num_threads(), num_rows // MIN_ROWS_PER_THREAD)
    if parts <= 1:
        kernel(*args, 0, num_rows)
        return
    edges = [num_rows * part // parts for part in range(parts + 1)]
    pool = _pool(os.getpid(), parts - 1)
    others = [pool.submit(kernel, *args, edges[part], edges[part + 1]) for part in range(1, parts)]
    try:
        kernel(*args, edges[0], edges[1])
    finally:
        _end(others)
    for other in others:
        other.result()


def _end(calls: list[Future[Any]]) -> None:
    """Wait until all calls have ended; Ctrl-C comes through afterwards."""
    try:
        wait(calls)
    finally:
        if not all(call.done() for call in calls):
            _end(calls)
