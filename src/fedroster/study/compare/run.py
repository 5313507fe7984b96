"""Policies compared over seeds, with real federated training or without: the runs, their tables, and one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.catalogue import find_scenario, make_policy
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError
from fedroster.federation.locks import FolderLock
from fedroster.study.compare.contrasts import against_of, focus_of, named
from fedroster.study.compare.line_up import LineUp
from fedroster.study.compare.page import Compared, render
from fedroster.study.compare.tables import Settings
from fedroster.study.measures import Run
from fedroster.study.run import finish, provenance
from fedroster.study.store import machine, read_json, rounds_table, write_json, write_table
from fedroster.study.trial import Trial
from fedroster.task import Task


@dataclass(frozen=True, slots=True)
class Design:
    """What is the same in every scenario of a comparison.

    Attributes:
        seeds: Seeds; every policy meets the same worlds, partitions and first models.
        task: What is trained; None for no training.
        target_accuracy: For the time to accuracy, in (0, 1).
        against: Policies that the others are tested against (:func:`~fedroster.study.compare.contrasts.against_of`).
        focus: Policy from whose side pages are told (:func:`~fedroster.study.compare.contrasts.focus_of`).
        command: The command that makes it again, for the pages.
    """

    seeds: Sequence[int]
    task: Task | None = None
    target_accuracy: float = 0.9
    against: Sequence[str] = ()
    focus: str = ""
    command: str = ""

    def check(self, lines: Iterable[LineUp]) -> None:
        """Check everything that can be checked without a run.

        Raises:
            ConfigurationError: If a parameter is out of its range, or a policy cannot run in its scenario.
        """
        check_number("target accuracy", self.target_accuracy, above=0.0, below=1.0)
        policies = [text for line in lines for text in line.policies]
        for option, names in (("--against", self.against), ("--focus", [self.focus] if self.focus else [])):
            for name in names:
                if not named(policies, name):
                    raise ConfigurationError(
                        f"{option} is {name!r}, which does not take part; expected one of "
                        f"{', '.join(dict.fromkeys(policies))}"
                    )
        for line in lines:
            for trial in self.trials(line)[: len(line.policies)]:
                trial.check()

    def trials(self, line: LineUp) -> list[Trial]:
        """The runs in a scenario, in the order in which they are played.

        All policies of a seed come before the next seed: they share its division of the data.

        Raises:
            ConfigurationError: If there is no policy or no seed, or one comes twice.
        """
        for name, values in (("policies", line.policies), ("seeds", self.seeds)):
            if not values or len(set(values)) != len(values):
                raise ConfigurationError(f"{name} are {list(values)}; expected at least one, and each once")
        return [
            Trial(line.scenario, policy, seed, line.num_rounds, line.settings, self.task, rate=line.rate)
            for seed in self.seeds
            for policy in line.policies
        ]

    def settings(self, line: LineUp) -> Settings:
        """A scenario's comparison, as far as it is known before the runs."""
        entry, focus = find_scenario(line.scenario), focus_of(line.policies, self.focus)
        return Settings(
            command=self.command,
            scenario=line.scenario,
            settings=dict(line.settings),
            policies=list(line.policies),
            seeds=list(self.seeds),
            rounds=line.num_rounds,
            rate=line.rate,
            task=None if self.task is None else asdict(self.task),
            target_accuracy=self.target_accuracy,
            omniscient=[text for text in line.policies if make_policy(text).omniscient],
            left_out=dict(line.left_out),
            against=list(against_of(line.policies, self.against, focus)),
            focus=focus,
            optimal=entry.optimal,
            yardstick=entry.yardstick,
            has_prices=False,
            machine=machine(),
        )


def compare(line: LineUp, design: Design, folder: Path, **options: Any) -> Compared:
    """Play every policy with every seed, and write tables, figures and one page.

    Finished runs are kept in ``folder/trials``: a killed comparison goes on where it stopped.

    Args:
        line: What is compared, and where (:func:`~fedroster.study.compare.line_up.line_up`).
        design: With which seeds, and how.
        folder: Where to write; held until the page is written.
        **options: Of :func:`~fedroster.study.run.run_trials`: workers, engine, conditions; ``progress`` is called
            with the number of runs that are done, parts of runs included.

    Raises:
        ConfigurationError: If a parameter is out of its range, or ``folder`` belongs to another comparison.
        InUseError: If another process writes there.
        PausedError: If the time was up first; the same call goes on.
    """
    design.check([line])
    with held(folder):
        return play(line, design, folder, **options)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is not there; InUseError says which process holds it already."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


def play(
    line: LineUp, design: Design, folder: Path, *, progress: Callable[[float], None] | None = None, **options: Any
) -> Compared:
    """As :func:`compare`, for what is checked and a folder that is held already."""
    settings = design.settings(line)
    _check_folder(folder, settings)
    finished = finish(
        design.trials(line),
        folder=folder / "trials",
        progress=lambda rounds: progress(rounds / line.num_rounds) if progress is not None else None,
        **options,
    )
    finished.sort(key=lambda done: line.policies.index(done.trial.policy))
    runs = [(done.trial, done.run) for done in finished]
    write_table(rounds_table(runs), folder / "rounds.csv")
    write_table(_participation_table(runs), folder / "participation.parquet")
    # What has prices is known by its runs: an environment need not say it before.
    known = {
        "has_prices": any(np.isfinite(run.budget).any() for _, run in runs),
        "machine": {**settings.machine, "code": provenance(finished)},
    }
    write_json(folder / "settings.json", asdict(settings) | known)
    return render(folder)


def _check_folder(folder: Path, settings: Settings) -> None:
    """Refuse a folder that holds another comparison; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if not known.exists():
        return
    found, wanted = read_json(known), asdict(settings)
    for name in ("scenario", "settings", "rounds", "rate", "task"):
        if found.get(name) != wanted[name]:
            raise ConfigurationError(
                f"{folder} holds a comparison with {name} = {found.get(name)!r}; expected {wanted[name]!r}: choose "
                "another folder or delete it"
            )


def _participation_table(runs: Sequence[tuple[Trial, Run]]) -> pl.DataFrame:
    """Every client of every run, a row each."""
    return pl.concat(
        pl.DataFrame(
            {
                "policy": trial.policy,
                "seed": trial.seed,
                "client": np.arange(run.chosen.shape[0], dtype=np.int32),
                "chosen": run.chosen.astype(np.int32),
                "available": run.available.astype(np.int32),
            }
        )
        for trial, run in runs
    )
