"""Runs with training as TensorBoard scalars."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedroster.core.errors import MissingDependencyError
from fedroster.study.measures import Run
from fedroster.study.run import key
from fedroster.study.trial import Trial


def write_scalars(runs: Iterable[tuple[Trial, Run]], folder: Path) -> None:
    """Write a folder of event files for each run: accuracy, test loss, round time, cohort and queues per round.

    A run's folder is named after its scenario, task, policy and seed; existing files stay unchanged.

    Raises:
        MissingDependencyError: If TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise MissingDependencyError.of("tensorboard", "tensorboard") from error
    for trial, run in runs:
        task = "untrained" if trial.task is None else trial.task.name
        name = f"{task}/{trial.scenario}/{trial.policy}/seed-{trial.seed}-{key(trial)[:6]}"
        target = folder / name.replace(":", "_").replace("=", "-").replace(",", "_")
        if target.exists():
            continue
        elapsed_s = run.round_time_s.cumsum()
        # Under another name until it is whole: a process that is killed here leaves no part of a run.
        unfinished = target.with_name(f".{target.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with SummaryWriter(str(unfinished)) as writer:
            writer.add_text("configuration", repr(trial))
            for row in range(run.num_rounds):
                scalars = {
                    "test/accuracy": run.accuracy[row],
                    "test/loss": run.test_loss[row],
                    "round/time_s": run.round_time_s[row],
                    "round/elapsed_s": elapsed_s[row],
                    "round/cohort_size": run.cohort_size[row],
                    "round/updates_in_time": run.participants[row],
                    "queues/mean_backlog": run.mean_backlog[row],
                }
                for tag, value in scalars.items():
                    if np.isfinite(value):
                        writer.add_scalar(tag, float(value), row + 1)
        unfinished.replace(target)
