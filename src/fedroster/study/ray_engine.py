"""Trials on Ray: the cores of this machine, or those of a cluster.

A node needs the same version of fedroster, and the data sets and traces that a trial reads.  It needs no shared folder:
results and checkpoints come back to the process that asked, which writes the files.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import os
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedroster import __version__
from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError, MissingDependencyError, WorkerLostError
from fedroster.core.parallel import num_threads
from fedroster.core.state import write_bytes_atomically
from fedroster.study.measures import Run
from fedroster.study.trial import ALONE, Conditions, Jobs, Trial

_log = logging.getLogger(__name__)

RETRIES = 3
"""How often a trial starts again whose worker was killed."""
_MOST = 1000  # trials that Ray knows of at the same time, where the cluster has no more cores
_WATCH_S = 0.5
_REPORT_S = 1.0
_PATIENCE_S = 5.0


class Answer(NamedTuple):
    """What comes back from a node: a run, or the content of a checkpoint if it stopped in the middle."""

    run: Run | None
    checkpoint: bytes | None


class Board:
    """Where trials at work report; an actor."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._rounds: dict[int, int] = {}
        self._checkpoints: dict[int, tuple[int, bytes]] = {}
        self._written = time.time_ns()  # so that a board that starts again counts on from above

    def report(self, index: int, rounds: int, checkpoint: bytes | None) -> None:
        """Report on a trial."""
        self._rounds[index] = rounds
        if checkpoint is not None:
            self._written += 1
            self._checkpoints[index] = self._written, checkpoint

    def take(self, seen: int) -> tuple[dict[int, int], dict[int, bytes], int]:
        """What was left since the last call: rounds and checkpoints by place, and the number of the last checkpoint.

        No checkpoint is lost if an answer is: it stays until a later call says that it was seen.
        """
        self._checkpoints = {index: kept for index, kept in self._checkpoints.items() if kept[0] > seen}
        new = {index: content for index, (_, content) in self._checkpoints.items()}
        rounds, self._rounds = self._rounds, {}
        return rounds, new, self._written


@dataclass(slots=True)
class _Reporter:
    """Counts a trial's rounds on its node, and reports now and then."""

    board: Any
    index: int
    file: Path | None
    rounds: int = 0
    reported_at: float = field(default_factory=time.monotonic)
    written_ns: int = 0

    def __call__(self, rounds: int) -> None:
        self.rounds += rounds
        if time.monotonic() - self.reported_at < _REPORT_S:
            return
        self.reported_at = time.monotonic()
        content = None
        if self.file is not None and self.file.exists() and self.file.stat().st_mtime_ns != self.written_ns:
            self.written_ns = self.file.stat().st_mtime_ns
            content = self.file.read_bytes()
        self.board.report.remote(self.index, self.rounds, content)


def _asked_of(ray: Any) -> Any:
    """The task of a node, which needs nothing of fedroster before it knows that it has the right version.

    A function within another one is pickled whole, and what it works on are bytes: a node without fedroster, or with
    another version, answers in words.
    """

    def ask(work_on: bytes, board: Any, wanted: str) -> Any:
        import pickle
        import socket
        from importlib import import_module

        try:
            found = f"fedroster {import_module('fedroster').__version__}"
        except Exception as error:
            found = f"no fedroster that can be imported ({error})"
        if found != f"fedroster {wanted}":
            return f"node {socket.gethostname()} of Ray has {found}; expected fedroster {wanted}, the version that asks"
        return import_module("fedroster.study.ray_engine").work(*pickle.loads(work_on), board)

    # Without retries of Ray's own: a trial that starts again gets the newest checkpoint.
    return ray.remote(max_retries=0)(ask)


def work(trial: Trial, index: int, conditions: Conditions, start: bytes | None, board: Any) -> Answer:
    """Run a trial on a node."""
    # A trial has one core; set before the first kernel asks.
    os.environ.setdefault("FEDROSTER_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="fedroster-") as folder:
        file = Path(folder) / "checkpoint.npz" if conditions.checkpoint is not None else None
        if file is not None and start is not None:
            file.write_bytes(start)
        reporter = _Reporter(board, index, file)
        if file is not None and start is not None:
            reporter.written_ns = file.stat().st_mtime_ns
        run = trial.run(dataclasses.replace(conditions, checkpoint=file, played=reporter))
        stopped = run is None and file is not None and file.exists()
        return Answer(run, file.read_bytes() if stopped and file is not None else None)


def _check_reachable(address: str) -> None:
    """Refuse an address without an answer: Ray itself would try for two minutes and then end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigurationError(f"the address of Ray is {address!r}; expected HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"there is no Ray at {address!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Ray: a cluster, or one of its own on this machine that ends with the study.

    Each trial asks for one core, and for a GPU where it trains on one.  A trial whose worker is killed (node gone,
    memory short) starts again, from its last checkpoint if it keeps one, at most :data:`RETRIES` times; the others go
    on meanwhile.  Inside a program that has connected to Ray already, that connection is used and left open.

    Attributes:
        address: Of a cluster: ``HOST:PORT``, ``ray://HOST:PORT``, or ``auto`` for one that runs on this machine.  None
            for one of its own.
    """

    address: str | None = None

    def results(
        self, trials: Sequence[Trial], jobs: Jobs, *, workers: int | None, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, Run | None]]:
        """See :meth:`fedroster.study.run.Engine.results`.

        Raises:
            MissingDependencyError: If Ray is not installed.
            ConfigurationError: If there is no Ray at the address, or a node has another version of fedroster.
            WorkerLostError: If a trial lost its worker too often; all others are done first.
        """
        if workers is not None:
            check_integer("workers", workers, least=1)
        ray, ours = self._connect(workers)
        try:
            most = workers or max(_MOST, 2 * int(ray.cluster_resources().get("CPU", 0)))
            yield from _results(ray, trials, jobs, most, progress)
        finally:
            if ours:
                ray.shutdown()

    def _connect(self, workers: int | None) -> tuple[Any, bool]:
        """Ray, and whether the connection is ours to close."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Older versions of Ray warn that tasks that ask for no GPU will be let see one.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            import ray
        except ImportError as error:
            raise MissingDependencyError.of("ray", "ray") from error
        if self.address not in (None, "auto"):
            _check_reachable(str(self.address))
        if ray.is_initialized():
            if self.address is not None:
                raise ConfigurationError(
                    f"this process is connected to Ray already; expected no address, found {self.address!r}"
                )
            return ray, False
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address is None:
            ray.init(address="local", num_cpus=workers or num_threads(), include_dashboard=False, **quiet)
            return ray, True
        try:
            ray.init(address=self.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigurationError(f"Ray at {self.address!r} cannot be used: {error}") from error
        return ray, True


class _Watch:
    """What the process that asked knows of trials at work: their rounds, and their checkpoints, which it writes."""

    def __init__(self, ray: Any, jobs: Jobs) -> None:
        self._ray, self._jobs = ray, jobs
        ray.cloudpickle.register_pickle_by_value(here := sys.modules[__name__])  # for any node, with fedroster or not
        try:
            self.board = ray.remote(num_cpus=0, max_restarts=-1)(Board).remote()
        finally:
            ray.cloudpickle.unregister_pickle_by_value(here)
        self.rounds: dict[int, int] = {}
        self._finished: set[int] = set()
        self._seen = 0
        self._looked_at = -math.inf

    def look(self, every_s: float = 0.0) -> int:
        """Take what was left at the board, unless it was looked at less than so long ago; rounds of all trials."""
        ray = self._ray
        if time.monotonic() - self._looked_at >= every_s:
            with suppress(ray.exceptions.RayError, TimeoutError):  # the board starts again without a memory
                new, checkpoints, self._seen = ray.get(self.board.take.remote(self._seen), timeout=_PATIENCE_S)
                self.rounds |= {index: played for index, played in new.items() if index not in self._finished}
                for index in checkpoints.keys() - self._finished:
                    self._write(index, checkpoints[index])
            self._looked_at = time.monotonic()
        return sum(self.rounds.values())

    def finish(self, index: int, num_rounds: int, answer: Answer) -> None:
        self._finished.add(index)
        if answer.run is not None:
            self.rounds[index] = num_rounds
        if answer.checkpoint is not None:
            self._write(index, answer.checkpoint)

    def _write(self, index: int, checkpoint: bytes) -> None:
        path = self._jobs[index].checkpoint
        if path is not None:
            write_bytes_atomically(path, checkpoint)


def _results(
    ray: Any, trials: Sequence[Trial], jobs: Jobs, most: int, progress: Callable[[int], None]
) -> Iterator[tuple[int, Run | None]]:
    has_gpu = ray.cluster_resources().get("GPU", 0) >= 1
    if not has_gpu and any(job.device == "cuda" for job in jobs.values()):
        raise ConfigurationError("the device is 'cuda', and no node of Ray has a GPU; expected one, or cpu or auto")
    task = _asked_of(ray)
    watch = _Watch(ray, jobs)
    waiting = deque(jobs)
    running: dict[Any, int] = {}
    starts = dict.fromkeys(jobs, 0)
    lost: dict[int, Exception] = {}

    def submit(index: int) -> None:
        job = jobs[index]
        trains_on_gpu = job.device == "cuda" or (job.device == "auto" and has_gpu)
        content = None
        if job.checkpoint is not None:
            with suppress(FileNotFoundError):  # none yet, or another process has finished this run
                content = job.checkpoint.read_bytes()
        folder = None if job.data_dir is None else job.data_dir.absolute()
        bare = dataclasses.replace(job, played=ALONE.played, data_dir=folder)  # the board hears of what is played
        asked = task.options(num_cpus=1, num_gpus=1 if trains_on_gpu else 0)
        starts[index] += 1
        work_on = ray.cloudpickle.dumps((trials[index], index, bare, content))
        running[asked.remote(work_on, watch.board, __version__)] = index

    try:
        while waiting or running:
            while waiting and len(running) < most:
                submit(waiting.popleft())
            done, _ = ray.wait(list(running), num_returns=1, timeout=_WATCH_S)
            progress(watch.look(_WATCH_S))
            for reference in done:
                index = running.pop(reference)
                try:
                    answer: Answer | str = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause if isinstance(error.cause, Exception) else error) from error
                except ray.exceptions.RayError as error:
                    _log.warning(
                        "the worker of %s is lost, attempt %d of %d (%s)",
                        *(trials[index], starts[index], RETRIES + 1, _first_line(error)),
                    )
                    watch.look()  # for its last checkpoint
                    watch.rounds.pop(index, None)
                    if starts[index] > RETRIES:
                        lost[index] = error
                    else:
                        waiting.append(index)
                    continue
                if isinstance(answer, str):
                    raise ConfigurationError(answer)
                watch.finish(index, trials[index].num_rounds, answer)
                # Copied: Ray's arrays are read-only, and lie in memory that goes when it does.
                yield index, copy.deepcopy(answer.run)
    finally:
        for reference in running:
            with suppress(Exception):  # Ray may be gone already
                ray.cancel(reference, force=True)
        with suppress(Exception):
            ray.kill(watch.board)
    if lost:
        index, fault = next(iter(lost.items()))
        raise WorkerLostError(
            f"{len(lost)} of {len(jobs)} runs lost their worker {RETRIES + 1} times, the first of them "
            f"{trials[index]}; the others are kept, and the same command continues ({_first_line(fault)})"
        ) from fault


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
