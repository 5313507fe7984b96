"""The main job: policies compared over seeds, with real federated training or without, and one page about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.catalogue import find_scenario, make_policy
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError
from fedroster.study.compare.contrasts import against_of
from fedroster.study.compare.page import render
from fedroster.study.measures import Run
from fedroster.study.run import PROCESSES, Engine, finish, provenance
from fedroster.study.store import machine, read_json, write_json, write_table
from fedroster.study.trial import ALONE, DEFAULT_RATE, Conditions, Trial
from fedroster.task import Task


def compare(
    *,
    scenario: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    num_rounds: int,
    task: Task | None,
    target_accuracy: float,
    settings: Mapping[str, str],
    folder: Path,
    command: str,
    rate: float = DEFAULT_RATE,
    left_out: Mapping[str, str] | None = None,
    against: Sequence[str] = (),
    workers: int | None = None,
    engine: Engine = PROCESSES,
    conditions: Conditions = ALONE,
    progress: Callable[[float], None] | None = None,
) -> pl.DataFrame:
    """Play every policy with every seed, and write tables, figures and one page.

    Finished runs are kept in ``folder/trials``: a killed comparison goes on where it stopped.  All policies of a seed
    come before the next seed: they share its division of the data.

    Args:
        scenario: Name of a scenario.
        policies: Policies as text (:func:`~fedroster.study.compare.line_up.line_up`).
        seeds: Seeds; every policy meets the same worlds, partitions and first models.
        num_rounds: T.
        task: What is trained; None for no training.
        target_accuracy: For the time to accuracy, in (0, 1).
        settings: Parameters of the scenario that are overridden, as text.
        folder: Where to write.
        command: The command that makes it again, for the page.
        rate: beta at which participation and the queues (6) are measured, the same for every policy.
        left_out: Why further policies are not compared, by name, for the page.
        against: What the others are tested against; empty for what
            :func:`~fedroster.study.compare.contrasts.against_of` says.
        workers: Runs at the same time; None for one for each core.
        engine: Where they run.
        conditions: Device, data and the end of the time.
        progress: Called with the number of runs that are done, parts of runs included.

    Returns:
        The summary, with a row for each policy.

    Raises:
        ConfigurationError: If a parameter is out of its range, or ``folder`` belongs to another comparison.
        PausedError: If the time was up first; the same call goes on.
    """
    check_number("target accuracy", target_accuracy, above=0.0, below=1.0)
    trials = trials_of(scenario, policies, seeds, num_rounds=num_rounds, rate=rate, task=task, settings=settings)
    description: dict[str, Any] = {
        "scenario": scenario,
        "settings": dict(settings),
        "policies": list(policies),
        "seeds": list(seeds),
        "rounds": num_rounds,
        "rate": rate,
        "task": None if task is None else asdict(task),
        "target_accuracy": target_accuracy,
        "omniscient": [text for text in policies if make_policy(text).omniscient],
        "left_out": dict(left_out or {}),
        "against": list(against_of(policies, against)),
        "optimal": find_scenario(scenario).optimal,
    }
    _claim_folder(folder, description)
    finished = finish(
        trials,
        workers=workers,
        engine=engine,
        folder=folder / "trials",
        conditions=conditions,
        progress=lambda rounds: progress(rounds / num_rounds) if progress is not None else None,
    )
    runs = [(done.trial, done.run) for done in sorted(finished, key=lambda done: policies.index(done.trial.policy))]
    write_table(_rounds_table(runs), folder / "rounds.csv")
    write_table(_participation_table(runs), folder / "participation.parquet")
    # What has prices is known by its runs: an environment need not say it before.
    description["has_prices"] = any(np.isfinite(run.budget).any() for _, run in runs)
    description["machine"] = machine() | {"code": provenance(finished)}
    write_json(folder / "settings.json", {"command": command, **description})
    return render(folder)


def trials_of(
    scenario: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    num_rounds: int,
    rate: float,
    task: Task | None,
    settings: Mapping[str, str],
) -> list[Trial]:
    """The runs of a comparison, in the order in which they are played; see :func:`compare`.

    Raises:
        ConfigurationError: If a parameter is out of its range, or a policy cannot run in the scenario.
    """
    for name, values in (("policies", policies), ("seeds", seeds)):
        if not values or len(set(values)) != len(values):
            raise ConfigurationError(f"{name} are {list(values)}; expected at least one, and each once")
    trials = [
        Trial(scenario, policy, seed, num_rounds, settings, task, rate=rate) for seed in seeds for policy in policies
    ]
    for trial in trials[: len(policies)]:
        trial.check()
    return trials


def _claim_folder(folder: Path, description: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another comparison; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if not known.exists():
        return
    found = read_json(known)
    for name in ("scenario", "settings", "rounds", "rate", "task"):
        if found.get(name) != description[name]:
            raise ConfigurationError(
                f"{folder} holds a comparison with {name} = {found.get(name)!r}; expected {description[name]!r}: "
                "choose another folder or delete it"
            )


def _rounds_table(runs: Sequence[tuple[Trial, Run]]) -> pl.DataFrame:
    """Every round of every run, a row each."""
    return pl.concat(
        pl.DataFrame(
            {
                "policy": trial.policy,
                "seed": trial.seed,
                "round": np.arange(1, run.num_rounds + 1),
                "elapsed_s": run.round_time_s.cumsum(),
                "round_time_s": run.round_time_s,
                "decision_s": run.decision_s,
                "cohort_size": run.cohort_size,
                "participants": run.participants,
                "mean_backlog": run.mean_backlog,
                "accuracy": run.accuracy,
                "test_loss": run.test_loss,
                "refused": run.refused,
                "budget_used": run.budget_used,
            }
        )
        for trial, run in runs
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
