"""Cells: one scenario, policy and seed, run in parallel, each kept as a file of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Generic, Literal, Protocol, TypeVar

from fedroster import __version__
from fedroster.catalogue import find_scenario, make_policy, make_scenario
from fedroster.core.checks import check_integer
from fedroster.core.errors import PausedError, StateFileError, WorkerLostError
from fedroster.core.parallel import num_threads
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.simulation import simulate
from fedroster.study.measures import Recorder, Trajectory
from fedroster.study.store import code

DEFAULT_RATE = 0.15
"""Rate at which queues are measured for policies that have none (paper A, Table 2)."""


def measured_rate(policy: AnyPolicy) -> float:
    """The policy's own beta, or paper A's."""
    return float(getattr(policy, "beta", DEFAULT_RATE))


def _ignore(rounds: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which circumstances a cell runs; its result does not depend on them.

    Attributes:
        checkpoint: File for a half-finished run, which goes on from it; None to keep none.
        stop_at: Time (:func:`time.time`) after which a run that keeps a checkpoint stops and returns None.
        played: Called with the number of rounds that were played since the last call.
        device: "cpu", "cuda" or "auto", for training; floats may differ in the last digits.
        data_dir: Folder of the data sets; None for where they are looked for anyway.
    """

    checkpoint: Path | None = None
    stop_at: float = math.inf
    played: Callable[[int], None] = _ignore
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    data_dir: Path | None = None


ALONE = Conditions()
"""No checkpoint, no end, nobody who watches."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run without training.

    Attributes:
        scenario: Name, optionally with version.
        policy: Policy as text.
        seed: Seed.
        num_rounds: T.
        settings: Parameters of the scenario that are overridden, as text.
    """

    scenario: str
    policy: str
    seed: int
    num_rounds: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise what :meth:`run` would, without running: unknown names, bad values, promises that cannot be kept."""
        check_integer("rounds", self.num_rounds, least=1)
        make_policy(self.policy).check(make_scenario(self.scenario, self.settings).spec)

    def run(self, conditions: Conditions = ALONE) -> Trajectory:
        """Play the rounds; short, so it keeps no checkpoint."""
        policy = make_policy(self.policy)
        environment = make_scenario(self.scenario, self.settings)
        recorder = Recorder(environment.spec.num_clients, rate=measured_rate(policy))
        for played in simulate(policy, environment, num_rounds=self.num_rounds, seed=self.seed):
            recorder.add(played)
        conditions.played(self.num_rounds)
        return recorder.trajectory()

    @property
    def work(self) -> float:
        """Rough cost in seconds, to decide whether processes pay."""
        clients = int(self.settings.get("num_clients", "40"))
        return self.num_rounds * (8e-5 + 6e-8 * clients)


R = TypeVar("R", covariant=True)


class Runnable(Protocol[R]):
    """A frozen dataclass that says all about a run and can be run anywhere."""

    @property
    def num_rounds(self) -> int:
        """Rounds of the run."""
        ...

    def run(self, conditions: Conditions = ALONE) -> R | None:
        """Run it; None if it stopped in the middle."""
        ...

    @property
    def work(self) -> float:
        """Rough cost in seconds."""
        ...


C = TypeVar("C", bound=Runnable[Any])


@dataclass(frozen=True, slots=True)
class Done(Generic[C]):
    """A finished cell.

    Attributes:
        cell: The cell.
        result: What it returned.
        index: Its place in the sequence that was asked for.
        code: By which state of fedroster's code it was made (:func:`~fedroster.study.store.code`).
    """

    cell: C
    result: Any
    index: int
    code: str


def digest(cell: Any) -> str:
    """A name for the cell's file.

    Equal for equal cells of one version of fedroster and of the scenario, with the same content of the files that the
    scenario reads.
    """
    entry = find_scenario(cell.scenario)
    versions: list[Any] = [__version__, entry.version]
    texts = {name for name, default in entry.parameters().items() if isinstance(default, str)}
    read = [_content(value) for name, value in sorted(getattr(cell, "settings", {}).items()) if name in texts]
    versions += [content for content in read if content]
    content = json.dumps([type(cell).__name__, dataclasses.asdict(cell), versions], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


class Engine(Protocol):
    """Where cells run.  What they return does not depend on it."""

    def results(
        self,
        cells: Sequence[Runnable[Any]],
        jobs: Mapping[int, Conditions],
        *,
        workers: int | None,
        progress: Callable[[int], None],
    ) -> Iterator[tuple[int, Any]]:
        """Run cells; yield place and result of each as soon as it is there, None for one that stopped in the middle.

        Args:
            cells: All cells.
            jobs: By the place of each cell that is to be run, its conditions.
            workers: Cells at the same time; None for as many as there are cores.
            progress: Called now and then with the number of rounds that these cells have played together.
        """
        ...


def _content(path: str) -> str:
    """Digest of a file, or of the files of a folder; empty if there is nothing of that name."""
    place = Path(path).expanduser()
    try:
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        seen = [(file.name, str(file), file.stat()) for file in files if file.is_file()]
    except (OSError, ValueError):  # no name of a file, or not readable: the run will say so
        return ""
    whole = [(name, _digest_of(where, stat.st_mtime_ns, stat.st_size)) for name, where, stat in seen]
    # A file may be called something else the next time.
    return ",".join(found if place.is_file() else f"{name}:{found}" for name, found in whole)


@cache
def _digest_of(path: str, changed_ns: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_PLAYED: Any = None  # rounds of each cell, shared by the processes of a pool; only the one that runs it writes there


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


def _run(cell: Runnable[Any], index: int, conditions: Conditions) -> Any:
    def count(rounds: int) -> None:
        _PLAYED[index] += rounds

    return cell.run(dataclasses.replace(conditions, played=count))


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that start inside are never interrupted by Ctrl-C: whoever started them is, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_turn(
    cells: Sequence[Runnable[Any]], jobs: Mapping[int, Conditions], progress: Callable[[int], None]
) -> Iterator[tuple[int, Any]]:
    played = 0

    def count(rounds: int) -> None:
        nonlocal played
        played += rounds
        progress(played)

    for index, job in jobs.items():
        yield index, cells[index].run(dataclasses.replace(job, played=count))


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes of this machine, or none where they do not pay."""

    def results(
        self,
        cells: Sequence[Runnable[Any]],
        jobs: Mapping[int, Conditions],
        *,
        workers: int | None,
        progress: Callable[[int], None],
    ) -> Iterator[tuple[int, Any]]:
        """As :meth:`Engine.results`.

        Workers end at once when this does before its time: by Ctrl-C, by a fault, or because the process was killed.

        Raises:
            WorkerLostError: If a process was killed.
        """
        workers = min(workers if workers is not None else num_threads(), len(jobs))
        # A process takes a second or two to import what it needs.
        if workers <= 1 or sum(cells[index].work for index in jobs) < 6.0:
            yield from _in_turn(cells, jobs, progress)
            return
        # Not forked: a fork of a process with threads (PyTorch, Numba) may hang.
        context = multiprocessing.get_context("spawn")
        played = context.RawArray("q", len(cells))  # without a lock, which a worker that is killed might hold
        lifeline, ours = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            max_workers=workers, mp_context=context, initializer=_begin, initargs=(played, lifeline)
        )
        try:
            with _uninterrupted():
                futures = {pool.submit(_run, cells[index], index, job): index for index, job in jobs.items()}
            waiting = set(futures)
            while waiting:
                finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                progress(sum(played))
                for future in finished:
                    yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise WorkerLostError(
                "a worker process was killed, perhaps for want of memory; finished runs are kept, and the same command "
                "goes on"
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            ours.close()
            lifeline.close()


PROCESSES = Processes()
"""The engine where none is named."""


def run_cells(
    cells: Sequence[C],
    *,
    workers: int | None = None,
    engine: Engine = PROCESSES,
    folder: Path | None = None,
    result_type: Callable[..., Any] = Trajectory,
    conditions: Conditions = ALONE,
    progress: Callable[[int], None] = _ignore,
) -> Iterator[Done[C]]:
    """Run cells, in parallel when that pays; yields each as soon as it is there.

    Args:
        cells: What to run.
        workers: Cells at the same time; None for one for each core.
        engine: Where they run.
        folder: Keep each result there as a file, and take results that are there already: a killed study goes on where
            it stopped, and so does a run that keeps checkpoints, which lie there too.
        result_type: Dataclass of arrays that cells return.
        conditions: Device, data and the end of the time; a cell that stops in the middle is not yielded.
        progress: Called now and then with the number of rounds that are played, of all cells together.

    Yields:
        Finished cells, in any order.
    """
    missing: list[int] = []
    names = [] if folder is None else [digest(cell) for cell in cells]
    for index, cell in enumerate(cells):
        kept = _load(folder / f"{names[index]}.npz", result_type) if folder is not None else None
        if kept is None:
            missing.append(index)
        else:
            result, made_by = kept
            yield Done(cell, result, index, made_by)
    if folder is not None and missing:
        folder.mkdir(parents=True, exist_ok=True)
    played = finished = sum(cell.num_rounds for cell in cells) - sum(cells[index].num_rounds for index in missing)

    def advance(rounds: int) -> None:
        nonlocal played
        if rounds > played:
            played = rounds
            progress(played)

    progress(finished)
    kept_rounds = finished
    jobs = {
        index: dataclasses.replace(
            conditions, checkpoint=None if folder is None else folder / f"{names[index]}.checkpoint.npz"
        )
        for index in missing
    }
    results = engine.results(cells, jobs, workers=workers, progress=lambda rounds: advance(kept_rounds + rounds))
    for index, result in results if jobs else ():
        if result is None:
            continue
        if folder is not None:
            header = {"cell": repr(cells[index]), "code": code()}
            save_arrays(folder / f"{names[index]}.npz", pack(result), header, kind="cell")
            (folder / f"{names[index]}.checkpoint.npz").unlink(missing_ok=True)
        finished += cells[index].num_rounds
        advance(finished)
        yield Done(cells[index], result, index, code())


def _load(path: Path, result_type: Callable[..., Any]) -> tuple[Any, str] | None:
    """A kept result and the code that made it."""
    if not path.exists():
        return None
    try:
        arrays, header = load_arrays(path, kind="cell")
        result = result_type(**{name: value if value.ndim else value[()] for name, value in arrays.items()})
        return result, str(header.get("code", "unknown"))
    except (StateFileError, TypeError, FileNotFoundError):
        return None  # damaged, of an older version, or just taken away: run it again


def finish(cells: Sequence[C], **options: Any) -> list[Done[C]]:
    """Run cells to the end, in order.

    Args:
        cells: What to run.
        **options: As for :func:`run_cells`.

    Raises:
        PausedError: If the time was up first; the same call goes on.
    """
    finished = sorted(run_cells(cells, **options), key=lambda done: done.index)
    if len(finished) < len(cells):
        raise PausedError.of(len(finished), len(cells))
    return finished


def gather(cells: Sequence[C], **options: Any) -> list[Any]:
    """Return the results of :func:`finish` alone."""
    return [done.result for done in finish(cells, **options)]


def provenance(finished: Iterable[Done[Any]]) -> str:
    """Say which state of the code made the results.

    Kept results are known by what was run and by fedroster's version: an edit of the code does not cost a night's work.
    Whether it would change them is for the reader to judge, who must be told.

    Args:
        finished: The results.
    """
    made = Counter(done.code for done in finished)
    others = ", ".join(f"{count:,} by {found}" for found, count in sorted(made.items()) if found != code())
    return f"{code()} (of {made.total():,} runs kept from before: {others})" if others else code()
