"""Threads of torch, and clients on threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from threading import Barrier
from types import ModuleType


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside.  A process-wide setting, restored at the end."""
    import torch

    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _pool(process_id: int, workers: int, torch: ModuleType | None) -> ThreadPoolExecutor:
    # Keyed by process: a pool does not survive a fork.  OpenMP's number of threads belongs to each thread.
    begin = None if torch is None else partial(torch.set_num_threads, 1)
    pool = ThreadPoolExecutor(workers, "fedroster-client", initializer=begin)
    # All start now: who sets his own number sets that of later threads of the process, too, which the caller restores.
    met = Barrier(workers)
    list(pool.map(lambda _: met.wait(), range(workers)))
    return pool


def each_client(work: Callable[[int], None], num_clients: int, *, num_threads: int) -> None:
    """Call ``work`` with 0, 1, ... on several threads, for which torch, if it is loaded, is set to one thread.

    Operations of torch and compiled kernels release the GIL, so that the clients do run at the same time.
    """
    if num_threads == 1 or num_clients <= 1:
        for client in range(num_clients):
            work(client)
        return
    for _ in _pool(os.getpid(), num_threads, sys.modules.get("torch")).map(work, range(num_clients)):
        pass


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed, up to some 60 MB a thread, in place of returning it after every operation.

    The tensors of a step are just large enough that glibc maps each again and every page of it faults: a third of the
    time of a step of a small CNN.  Freeing one block of nearly 32 MiB once raises the limits (mallopt(3),
    M_MMAP_THRESHOLD).  Other C libraries are not affected.
    """
    import torch

    torch.empty(31 * 2**20, dtype=torch.uint8)
