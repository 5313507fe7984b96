"""Results on disk: tidy tables and what is needed to make them again."""

from __future__ import annotations

import io
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.errors import InvalidInputError
from fedroster.lab.spreadsheet import as_csv
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.trial import Trial
from fedroster.parts import num_threads, write_bytes_atomically, write_text_atomically


def machine() -> dict[str, str | int]:
    """The machine and the versions that results depend on."""
    packages = {}
    for name in ("fedroster", "numpy", "numba", "scipy", "torch"):
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "system": platform.system(),
        "processor": _processor(),
        "cores": num_threads(),
        "python": platform.python_version(),
        **packages,
    }


def _processor() -> str:
    with suppress(OSError):
        if found := re.search(r"^model name\s*:(.*)", Path("/proc/cpuinfo").read_text(errors="replace"), re.M):
            return found[1].strip()
    return platform.processor() or platform.machine()


def rounds_table(runs: Iterable[tuple[Trial, Run]]) -> pl.DataFrame:
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
                "exploring": run.exploring,
            }
        )
        for trial, run in runs
    )


def clients_table(runs: Iterable[tuple[Trial, Run]]) -> pl.DataFrame:
    """Every client of every run, a row each: in how many rounds it was chosen and available."""
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


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write a table as CSV, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        table.write_parquet(content := io.BytesIO())  # polars has errors of its own for a full disk
    write_bytes_atomically(path, content.getvalue() if path.suffix == ".parquet" else as_csv(table))


def read_table(path: Path) -> pl.DataFrame:
    """Read a table that :func:`write_table` wrote.

    Raises:
        InvalidInputError: If it is missing or damaged.
    """
    try:
        with path.open("rb") as file:  # polars would take a name with * or ~ for other files
            return pl.read_parquet(file) if path.suffix == ".parquet" else pl.read_csv(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(f"{os.fspath(path)!r} is not a readable table ({error})") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomically(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read JSON.

    Raises:
        InvalidInputError: If it is missing or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{os.fspath(path)!r} is not a readable JSON file ({error})") from error
    if not isinstance(content, dict):
        raise InvalidInputError(f"{os.fspath(path)!r} holds a {type(content).__name__}; expected an object")
    return content
