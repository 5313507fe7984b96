"""Trials on the cores of this machine."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from fedroster.catalogue import is_of_this_session
from fedroster.core.errors import WorkerLostError
from fedroster.core.parallel import num_threads
from fedroster.study.measures import Run
from fedroster.study.trial import Conditions, Jobs, Trial

_TELL_S = 0.1  # a round may take less than what it takes to tell of it

_PLAYED: Any = None  # rounds of each trial, shared by the processes of a pool; only the one that runs it writes there


def _begin(played: Any, lifeline: Connection) -> None:
    """Make a worker ready: it counts in ``played``, and ends with the process that asked."""
    global _PLAYED
    _PLAYED = played
    Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    # Nothing is ever sent: this returns when the other end is closed, on purpose or because its process was killed.
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def _run(trial: Trial, index: int, conditions: Conditions) -> Run | None:
    def count(rounds: int) -> None:
        _PLAYED[index] += rounds

    return trial.run(dataclasses.replace(conditions, played=count))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that start inside are never interrupted by Ctrl-C: the process that started them is, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_turn(trials: Sequence[Trial], jobs: Jobs, progress: Callable[[int], None]) -> Iterator[tuple[int, Run | None]]:
    played, told_at = 0, time.monotonic()

    def count(rounds: int) -> None:
        nonlocal played, told_at
        played += rounds
        if time.monotonic() - told_at > _TELL_S:
            told_at = time.monotonic()
            progress(played)

    for index, job in jobs.items():
        yield index, trials[index].run(dataclasses.replace(job, played=count))


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes of this machine, or none where they do not pay."""

    def results(
        self, trials: Sequence[Trial], jobs: Jobs, *, workers: int | None, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, Run | None]]:
        """See :meth:`fedroster.study.run.Engine.results`.

        Workers end at once when this does before its time: by Ctrl-C, by a fault, or because the process was killed.

        Raises:
            WorkerLostError: If a process was killed.
        """
        workers = min(workers if workers is not None else num_threads(), len(jobs))
        own = any(is_of_this_session(trials[index].policy) for index in jobs)  # other processes do not know it
        # A process takes a second or two to import what it needs.
        if workers <= 1 or own or sum(trials[index].work for index in jobs) < 6.0:
            yield from _in_turn(trials, jobs, progress)
            return
        # Not forked: a fork of a process with threads (PyTorch, Numba) may hang.
        context = multiprocessing.get_context("spawn")
        played = context.RawArray("q", len(trials))  # without a lock, which a worker that is killed might hold
        lifeline, ours = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            max_workers=workers, mp_context=context, initializer=_begin, initargs=(played, lifeline)
        )
        try:
            with _uninterrupted():
                futures = {pool.submit(_run, trials[index], index, job): index for index, job in jobs.items()}
            waiting = set(futures)
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                progress(sum(played))
                for future in finished:
                    yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise WorkerLostError(
                "a worker process was killed, perhaps because memory ran out; finished runs are kept, and the same "
                "command continues"
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            ours.close()
            lifeline.close()
