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
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from fedroster.catalogue import is_of_this_session
from fedroster.errors import WorkerLostError
from fedroster.lab.data.load import check_dataset
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.trial import Conditions, Jobs, Trial
from fedroster.parts import num_threads

_PLAYED: Any = None  # rounds of each trial, shared by the processes; only the one that runs it writes there


def _begin(played: Any, lifeline: Connection) -> None:
    """Make a worker ready: it counts in ``played``, and ends with the process that asked."""
    global _PLAYED
    _PLAYED = played
    _PLAYED[-1] = 1  # there is a process that came this far
    Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    # Nothing is ever sent: this returns when the other end is closed, on purpose or because its process was killed.
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()
    os._exit(1)


def _run(trial: Trial, index: int, conditions: Conditions) -> Run | None:
    if time.time() >= conditions.stop_at and any(_PLAYED[:-1]):  # with no round at all, nothing would ever go on
        return None

    def count(rounds: int) -> None:
        _PLAYED[index] += rounds

    return trial.run(dataclasses.replace(conditions, played=count))


def in_processes(
    trials: Sequence[Trial], jobs: Jobs, *, workers: int | None, progress: Callable[[int], None]
) -> Iterator[tuple[int, Run]]:
    """An :class:`~fedroster.lab.trials.run.Engine`: processes of this machine, or none where they do not pay.

    When the time is up, those that play stop and no other begins; one plays a round at least.
    Workers end at once when this does before its time: by Ctrl-C, by a fault, or because the process was killed.

    Raises:
        MissingDataError: If a trial lacks its data set; then none begins.
        WorkerLostError: If a process was killed.
    """
    needed = {(task.local().dataset, job.data_dir) for index, job in jobs.items() if (task := trials[index].task)}
    for name, data_dir in needed:
        check_dataset(name, folder=data_dir)
    workers = min(workers if workers is not None else num_threads(), len(jobs))
    own = any(is_of_this_session(trials[index].policy) for index in jobs)  # other processes do not know it
    # A process takes a second or two to import what it needs.
    pays = workers > 1 and not own and sum(trials[index].work for index in jobs) >= 6.0
    yield from (_together(trials, jobs, workers, progress) if pays else _in_turn(trials, jobs, progress))


def _in_turn(trials: Sequence[Trial], jobs: Jobs, progress: Callable[[int], None]) -> Iterator[tuple[int, Run]]:
    played = 0

    def count(rounds: int) -> None:
        nonlocal played
        progress(played := played + rounds)

    for index, job in jobs.items():
        if played and time.time() >= job.stop_at:
            return
        if (run := trials[index].run(dataclasses.replace(job, played=count))) is not None:
            yield index, run


def _together(
    trials: Sequence[Trial], jobs: Jobs, workers: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, Run]]:
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads (PyTorch, Numba) may hang
    played = context.RawArray("q", len(trials) + 1)  # without a lock, which a worker that is killed might hold
    lifeline, ours = context.Pipe(duplex=False)
    with (
        closing(lifeline),
        ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(played, lifeline)) as pool,
        closing(ours),  # before the pool waits for its workers
    ):
        # Processes that start while it is blocked never hear Ctrl-C: this one does, and ends them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else ()
        try:
            futures = {pool.submit(_run, trials[index], index, job): index for index, job in jobs.items()}
        finally:
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        waiting = set(futures)
        try:
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                progress(sum(played[:-1]))
                for future in finished:
                    if (run := future.result()) is not None:
                        yield futures[future], run
        except BrokenProcessPool as error:
            if not played[-1]:
                raise WorkerLostError(
                    "no worker process came to life: each begins by running the script that started it, and must not "
                    'come to this call again; put it under `if __name__ == "__main__":`, or pass workers=1'
                ) from error
            raise WorkerLostError(
                "a worker process was killed, perhaps because memory ran out; finished runs are kept, and the same "
                "command continues"
            ) from error
