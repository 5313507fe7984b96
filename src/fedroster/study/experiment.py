"""Cells: one scenario, policy and seed, run in parallel, each kept as a file of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from fedroster import __version__
from fedroster.catalogue import find_scenario, make_policy, make_scenario
from fedroster.core.checks import check_integer
from fedroster.core.errors import StateFileError
from fedroster.core.parallel import num_threads
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import load_arrays, pack, save_arrays
from fedroster.simulate import simulate
from fedroster.study.measures import Recorder, Trajectory

DEFAULT_RATE = 0.15
"""Rate at which queues are measured for policies that have none (paper A, Table 2)."""


def measured_rate(policy: AnyPolicy) -> float:
    """The policy's own beta, or paper A's."""
    return float(getattr(policy, "beta", DEFAULT_RATE))


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

    def run(self) -> Trajectory:
        """Play the rounds."""
        policy = make_policy(self.policy)
        environment = make_scenario(self.scenario, self.settings)
        recorder = Recorder(environment.spec.num_clients, rate=measured_rate(policy))
        for played in simulate(policy, environment, num_rounds=self.num_rounds, seed=self.seed):
            recorder.add(played)
        return recorder.trajectory()

    @property
    def work(self) -> float:
        """Rough cost in seconds, to decide whether processes pay."""
        clients = int(self.settings.get("num_clients", "40"))
        return self.num_rounds * (8e-5 + 6e-8 * clients)


R = TypeVar("R", covariant=True)


class Runnable(Protocol[R]):
    """A frozen dataclass that says all about a run and can be run anywhere."""

    def run(self) -> R:
        """Run it."""
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
    """

    cell: C
    result: Any
    index: int


def digest(cell: Any) -> str:
    """A name for the cell's file: equal for equal cells of one version of fedroster and of the scenario."""
    versions = [__version__, find_scenario(cell.scenario).version]
    content = json.dumps([type(cell).__name__, dataclasses.asdict(cell), versions], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def _run(cell: Runnable[Any]) -> Any:
    return cell.run()


def run_cells(
    cells: Sequence[C],
    *,
    workers: int | None = None,
    folder: Path | None = None,
    result_type: Callable[..., Any] = Trajectory,
) -> Iterator[Done[C]]:
    """Run cells, in parallel when that pays; yields each as soon as it is there.

    Args:
        cells: What to run.
        workers: Processes; None for one for each core.
        folder: Keep each result there as a file, and take results that are there already: a killed study goes on where
            it stopped.
        result_type: Dataclass of arrays that cells return.

    Yields:
        Finished cells, in any order.
    """
    missing: list[int] = []
    for index, cell in enumerate(cells):
        kept = _load(folder / f"{digest(cell)}.npz", result_type) if folder is not None else None
        if kept is None:
            missing.append(index)
        else:
            yield Done(cell, kept, index)
    workers = min(workers if workers is not None else num_threads(), len(missing))
    for index, result in _results(cells, missing, workers):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            header = {"cell": repr(cells[index])}
            save_arrays(folder / f"{digest(cells[index])}.npz", pack(result), header, kind="cell")
        yield Done(cells[index], result, index)


def _results(cells: Sequence[Runnable[Any]], wanted: list[int], workers: int) -> Iterator[tuple[int, Any]]:
    # A process takes a second or two to import what it needs.
    if workers <= 1 or sum(cells[index].work for index in wanted) < 6.0:
        for index in wanted:
            yield index, cells[index].run()
        return
    # Not forked: a fork of a process with threads (PyTorch, Numba) may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(max_workers=workers, mp_context=context)
    try:
        futures = {pool.submit(_run, cells[index]): index for index in wanted}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _load(path: Path, result_type: Callable[..., Any]) -> Any:
    if not path.exists():
        return None
    try:
        arrays, _ = load_arrays(path, kind="cell")
        return result_type(**{name: value if value.ndim else value[()] for name, value in arrays.items()})
    except (StateFileError, TypeError):
        return None  # damaged or of an older version: run it again


def gather(cells: Sequence[C], **options: Any) -> list[Any]:
    """Run cells and return their results in order.

    Args:
        cells: What to run.
        **options: As for :func:`run_cells`.
    """
    results: list[Any] = [None] * len(cells)
    for done in run_cells(cells, **options):
        results[done.index] = done.result
    return results
