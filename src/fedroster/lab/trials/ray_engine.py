"""Trials on Ray: the cores of this machine, or those of a cluster.

A node needs the same version of fedroster, and the data sets and traces that a trial reads.  It needs no shared folder.
A trial that trains is played in parts of half a minute: its checkpoint comes back after each to the process that asked,
which writes the files and sends the next part.  So it goes on after the loss of a worker, a node or that process.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedroster.errors import ConfigurationError, MissingDependencyError, WorkerLostError
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.trial import ALONE, Conditions, Jobs, Trial
from fedroster.parts import check_integer, num_threads, write_bytes_atomically
from fedroster.version import __version__

_log = logging.getLogger(__name__)

RETRIES = 3
"""How often a trial's worker may be killed before its last attempt."""
_MOST = 1000  # trials that Ray knows of at the same time, where the cluster has no more cores
_PATIENCE_S = 5.0


class Piece(NamedTuple):
    """What comes back from a node: a run, or a checkpoint where there is more to play; and all rounds played so far."""

    run: Run | None
    checkpoint: bytes | None
    rounds: int


def work(trial: Trial, conditions: Conditions, start: bytes | None, part_s: float) -> Piece:
    """Play a part of a trial on a node, all of it without training."""
    # A trial has one core; set before the first kernel asks.
    os.environ.setdefault("FEDROSTER_NUM_THREADS", "1")
    played: list[int] = []
    stop_at = conditions.stop_at if trial.task is None else min(conditions.stop_at, time.time() + part_s)
    with tempfile.TemporaryDirectory(prefix="fedroster-") as folder:
        file = Path(folder) / "checkpoint.npz"
        if start is not None:
            file.write_bytes(start)
        here = dataclasses.replace(conditions, checkpoint=file, stop_at=stop_at, played=played.append)
        run = trial.run(here)
        return Piece(run, file.read_bytes() if run is None and file.exists() else None, sum(played))


def _asked_of(ray: Any) -> Any:
    """The task of a node, which needs nothing of fedroster before it knows that it has the right version.

    A function within another one is pickled whole, and what it works on are bytes: a node without fedroster, or with
    another version, answers in words.
    """

    def ask(work_on: bytes, wanted: str) -> Any:
        import pickle
        import socket
        from importlib import import_module

        try:
            found = f"fedroster {import_module('fedroster').__version__}"
        except Exception as error:
            found = f"no fedroster that can be imported ({error})"
        if found != f"fedroster {wanted}":
            return f"node {socket.gethostname()} of Ray has {found}; expected fedroster {wanted}, the version that asks"
        return import_module("fedroster.lab.trials.ray_engine").work(*pickle.loads(work_on))

    # Without retries of Ray's own: a trial that starts again gets the newest checkpoint.
    return ray.remote(max_retries=0)(ask)


def _check_reachable(address: str) -> None:
    """Refuse an address without an answer: Ray itself would try for two minutes and then end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigurationError(f"the address of Ray is {address!r}; expected HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
    except (OSError, OverflowError, ValueError) as error:
        raise ConfigurationError(f"there is no Ray at {address!r}: {error}") from error


@dataclass(frozen=True, slots=True)
class RayEngine:
    """Ray: a cluster, or one of its own on this machine that ends with the study.

    Each trial asks for one core, and for a GPU where it trains on one.  A trial whose worker is killed (node gone,
    memory short) starts again, from its last checkpoint if it trains, at most :data:`RETRIES` times; the others go on
    meanwhile.  Inside a program that has connected to Ray already, that connection is used and left open.

    Attributes:
        address: Of a cluster: ``HOST:PORT``, ``ray://HOST:PORT``, or ``auto`` for one that runs on this machine.  None
            for one of its own.
        part_s: After how many seconds of training a checkpoint comes back.
    """

    address: str | None = None
    part_s: float = 30.0

    def __call__(
        self, trials: Sequence[Trial], jobs: Jobs, *, workers: int | None, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, Run]]:
        """See :class:`fedroster.lab.trials.run.Engine`.

        Raises:
            MissingDependencyError: If Ray is not installed.
            ConfigurationError: If there is no Ray at the address, or a node has another version of fedroster.
            WorkerLostError: If a trial lost its worker too often.
        """
        if workers is not None:
            check_integer("workers", workers, least=1)
        with self._connected(workers) as ray:
            yield from self._play(ray, trials, jobs, workers, progress)

    @contextmanager
    def _connected(self, workers: int | None) -> Iterator[Any]:
        """Ray; a connection that is ours is closed."""
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
            yield ray
            return
        own: dict[str, Any] = {}
        if self.address is None:
            own = {"num_cpus": workers or num_threads(), "include_dashboard": False}
        try:
            ray.init(address=self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as error:  # Ray raises bare ones, too
            raise ConfigurationError(f"Ray at {self.address!r} cannot be used: {error}") from error
        try:
            yield ray
        finally:
            ray.shutdown()

    def _play(
        self, ray: Any, trials: Sequence[Trial], jobs: Jobs, workers: int | None, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, Run]]:
        resources = ray.cluster_resources()
        most = workers or max(_MOST, 2 * int(resources.get("CPU", 0)))
        has_gpu = resources.get("GPU", 0) >= 1
        if not has_gpu and any(job.device == "cuda" for job in jobs.values()):
            raise ConfigurationError("the device is 'cuda', and no node of Ray has a GPU; expected one, or cpu or auto")
        task = _asked_of(ray)
        waiting, running = deque(jobs), dict[Any, int]()
        checkpoints = dict[int, bytes]()
        deaths, rounds = dict.fromkeys(jobs, 0), dict.fromkeys(jobs, 0)

        def submit(index: int) -> None:
            job = jobs[index]
            if job.checkpoint is not None and index not in checkpoints:
                with suppress(FileNotFoundError):  # none yet, or another process has finished this run
                    checkpoints[index] = job.checkpoint.read_bytes()
            folder = None if job.data_dir is None else job.data_dir.absolute()
            bare = dataclasses.replace(job, played=ALONE.played, data_dir=folder, checkpoint=None)
            work_on = ray.cloudpickle.dumps((trials[index], bare, checkpoints.get(index), self.part_s))
            trains_on_gpu = job.device == "cuda" or (job.device == "auto" and has_gpu)
            asked = task.options(num_cpus=1, num_gpus=1 if trains_on_gpu else 0)
            running[asked.remote(work_on, __version__)] = index

        try:
            while waiting or running:
                while waiting and len(running) < most:
                    submit(waiting.popleft())
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                index = running.pop(done)
                try:
                    part: Piece | str = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise (error.cause if isinstance(error.cause, Exception) else error) from error
                except ray.exceptions.RayError as error:
                    deaths[index] += 1
                    why = str(error).partition("\n")[0] or type(error).__name__
                    attempt = f"attempt {deaths[index]} of {RETRIES + 1}"
                    _log.warning("the worker of %s is lost, %s (%s)", trials[index], attempt, why)
                    if deaths[index] > RETRIES:
                        raise WorkerLostError(
                            f"{trials[index]} lost its worker {RETRIES + 1} times ({why}); finished runs are kept, and "
                            "the same command continues"
                        ) from error
                    waiting.append(index)
                    continue
                if isinstance(part, str):
                    raise ConfigurationError(part)
                if (content := part.checkpoint) is not None:
                    checkpoints[index] = content
                    if (path := jobs[index].checkpoint) is not None:
                        write_bytes_atomically(path, content)
                rounds[index] = part.rounds
                progress(sum(rounds.values()))
                if part.run is not None:
                    checkpoints.pop(index, None)
                    # Copied: Ray's arrays are read-only, and lie in memory that goes when it does.
                    yield index, copy.deepcopy(part.run)
                elif time.time() < jobs[index].stop_at:
                    waiting.appendleft(index)
        finally:
            for reference in running:
                with suppress(Exception):  # Ray may be gone already
                    ray.cancel(reference, force=True)
