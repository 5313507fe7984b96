"""Runs trials in parallel, and keeps each run as a file of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from fedroster.catalogue import entries_of, find_scenario
from fedroster.errors import PausedError, StateFileError
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.processes import in_processes
from fedroster.lab.trials.trial import ALONE, Conditions, Jobs, Trial
from fedroster.parts import code, code_of, load_arrays, pack, remove_leftovers, save_arrays
from fedroster.version import __version__

_CHECKPOINT = ".checkpoint.npz"
_TELL_S = 0.1  # a round may take less than what it takes to tell of it


@dataclass(frozen=True, slots=True)
class Done:
    """A finished trial, its course, its place in what was asked for, the code that made it, and its digest."""

    trial: Trial
    run: Run
    index: int
    code: str
    registry: str = ""


class Engine(Protocol):
    """Where trials run.  Their runs do not depend on it."""

    def __call__(
        self, trials: Sequence[Trial], jobs: Jobs, *, workers: int | None, progress: Callable[[int], None]
    ) -> Iterator[tuple[int, Run]]:
        """Run trials; yield place and run of each as soon as it is done, and nothing of one whose time was up before.

        Args:
            trials: All trials.
            jobs: By the place of each trial that is to be run, its conditions.
            workers: Trials at the same time; None for as many as there are cores.
            progress: Called with the number of rounds that these trials have played together.
        """
        ...


class Where(TypedDict, total=False):
    """Where trials run, as :func:`run_trials` takes it and others hand it on."""

    workers: int | None
    engine: Engine
    conditions: Conditions


class RunOptions(Where, total=False):
    """All options of :func:`run_trials`."""

    folder: Path | None
    progress: Callable[[int], None]


def key(trial: Trial) -> str:
    """A name for the file of a trial's run.

    Equal for equal trials of one version of fedroster, with the same code of scenario, policy and policies inside it
    (:func:`~fedroster.core.sources.code_of`) and the same content of the files that the scenario reads.

    Raises:
        UnknownNameError: If there is no such scenario or policy.
    """
    scenario = find_scenario(trial.scenario)
    texts = {name for name, default in scenario.parameters().items() if isinstance(default, str)}
    read = {name: _content(value) for name, value in trial.settings.items() if name in texts}
    made_by = [__version__, code_of(scenario.make), *(code_of(policy.make) for policy in entries_of(trial.policy))]
    content = json.dumps([dataclasses.asdict(trial), made_by, read], sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()


def _content(path: str) -> str:
    """Digest of a file; empty if there is none of that name."""
    try:
        place = Path(path).expanduser()
        stat = place.stat()
        return _digest_of(str(place), stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError, RuntimeError):  # no name of a file, or of a home, or not readable: the run will say so
        return ""


@cache
def _digest_of(path: str, changed_ns: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run_trials(
    trials: Sequence[Trial],
    *,
    workers: int | None = None,
    engine: Engine = in_processes,
    folder: Path | None = None,
    conditions: Conditions = ALONE,
    progress: Callable[[int], None] = ALONE.played,
) -> Iterator[Done]:
    """Run trials, in parallel when that pays; yields each as soon as it is done.

    Args:
        trials: What to run.
        workers: Trials at the same time; None for one for each core.
        engine: Where they run.
        folder: Keep each run there as a file, and use runs that exist already: a killed study goes on where it
            stopped, and so does a run that keeps checkpoints, which lie there too.
        conditions: Device, data and the end of the time; a trial that stops in the middle is not yielded.
        progress: Called now and then with the number of rounds that are played, of all trials together.

    Yields:
        Finished trials, in any order.
    """
    if folder is not None:
        remove_leftovers(folder)
    files = [folder and folder / f"{key(trial)}.npz" for trial in trials]
    jobs: dict[int, Conditions] = {}
    kept_rounds = 0
    for index, (trial, file) in enumerate(zip(trials, files, strict=True)):
        kept = None if file is None else _load(file)
        if kept is None:
            jobs[index] = dataclasses.replace(conditions, checkpoint=file and file.with_suffix(_CHECKPOINT))
        else:
            kept_rounds += trial.rounds
            yield Done(trial, kept[0], index, *kept[1:])
    finished = played = kept_rounds
    told_at = time.monotonic()

    def advance(rounds: int) -> None:
        nonlocal played, told_at
        if kept_rounds + rounds > played and time.monotonic() - told_at > _TELL_S:
            played, told_at = kept_rounds + rounds, time.monotonic()
            progress(played)

    progress(played)
    if not jobs:
        return
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    for index, result in engine(trials, jobs, workers=workers, progress=advance):
        trial, file = trials[index], files[index]
        if file is not None:
            made_by = {"code": code(), "registry": conditions.registry}
            save_arrays(file, pack(result), {"trial": repr(trial), **made_by}, kind="run")
            file.with_suffix(_CHECKPOINT).unlink(missing_ok=True)
        finished += trial.rounds
        if finished > played:
            progress(played := finished)
        yield Done(trial, result, index, code(), conditions.registry)


def _load(path: Path) -> tuple[Run, str, str] | None:
    """A kept run, the code that made it, and the digest that it carries."""
    try:
        arrays, header = load_arrays(path, kind="run")
        return Run(**arrays), str(header.get("code", "unknown")), str(header.get("registry", ""))
    except (StateFileError, KeyError, TypeError, FileNotFoundError):
        return None  # none yet, damaged, of an older version, or just taken away: run it


def finish(trials: Sequence[Trial], **options: Unpack[RunOptions]) -> list[Done]:
    """Run trials to the end, in order; options are those of :func:`run_trials`.

    Raises:
        PausedError: If the time was up first; the same call continues.
    """
    finished = sorted(run_trials(trials, **options), key=lambda done: done.index)
    if len(finished) < len(trials):
        raise PausedError.of(len(finished), len(trials))
    return finished


def gather(trials: Sequence[Trial], **options: Unpack[RunOptions]) -> list[Run]:
    """Return the runs of :func:`finish` alone."""
    return [done.run for done in finish(trials, **options)]


def provenance(finished: Iterable[Done]) -> str:
    """Say which state of the code made the runs.

    Kept runs are known by what was run, by fedroster's version, and by the code of policy and scenario: an edit of
    anything else does not cost a night's work.  The page says so, and the reader judges whether it would change them.
    """
    made = Counter(done.code for done in finished)
    others = ", ".join(f"{count:,} by {found}" for found, count in sorted(made.items()) if found != code())
    return f"{code()} (of {made.total():,} runs kept from before: {others})" if others else code()
