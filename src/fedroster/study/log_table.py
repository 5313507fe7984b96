"""A log as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars

from fedroster.core.problem import Status
from fedroster.core.state import write_atomically
from fedroster.record.lines import OPEN
from fedroster.record.log import Log, LoggedRound

_ROWS = 2_000_000  # of one file
_TEXTS = dict.fromkeys(("client", "excluded", "status"), polars.String)
"""Columns of text, also in a round where all are empty."""
_WORDS = {OPEN: None} | {int(status): status.name.lower() for status in Status}


def export(log: Log, file: str | os.PathLike[str], *, cohorts: bool = False) -> list[Path]:
    """Write a log as Parquet: a row for each member and round, or each chosen client and round.

    Args:
        log: The log.
        file: The file; what is beyond two million rows goes to files beside it, ``NAME-2.parquet`` and so on.
        cohorts: Whether to write those that were chosen only.

    Returns:
        The files.
    """
    target = Path(file)
    written: list[Path] = []
    for part in _parts(log, cohorts):
        number = len(written) + 1
        written.append(target if number == 1 else target.with_name(f"{target.stem}-{number}{target.suffix}"))
        frame = polars.concat(part, how="diagonal")
        write_atomically(written[-1], frame.write_parquet)
    return written


def _parts(log: Log, cohorts: bool) -> Iterator[list[polars.DataFrame]]:
    held: list[Any] = []
    rows = 0
    ids: tuple[int, list[Any]] = (-1, [])
    for played in log.rounds:
        changes = log.memberships_at(played.round)
        if changes != ids[0]:
            ids = changes, [None if client is None else str(client) for client in log.ids_at(played.round)]
        frame = polars.DataFrame(_columns(played, ids[1], cohorts), schema_overrides=_TEXTS, strict=False)
        if held and rows + frame.height > _ROWS:
            yield held
            held, rows = [], 0
        held.append(frame)
        rows += frame.height
    if held:
        yield held


def _columns(played: LoggedRound, ids: list[Any], cohorts: bool) -> dict[str, Any]:
    """The columns of a round's rows."""
    capacity = played.members.shape[0]
    slots = played.chosen if cohorts else np.flatnonzero(played.members)
    place = np.full(capacity, -1)
    place[played.chosen] = np.arange(played.chosen.shape[0])
    at = place[slots]
    chosen = at >= 0
    reason = np.full(capacity, None, object)
    for why, who in played.excluded.items():
        reason[who] = why

    def of_cohort(values: Any, missing: Any) -> Any:
        column = np.full(slots.shape[0], missing, np.asarray(values).dtype)
        column[chosen] = values[at[chosen]]
        return column

    def of_slots(values: Any) -> Any:
        return np.full(slots.shape[0], np.nan) if values is None else values[slots]

    columns: dict[str, Any] = {
        "round": np.full(slots.shape[0], played.round),
        "at_s": np.full(slots.shape[0], played.at_s),
        "client": [ids[slot] for slot in slots.tolist()],
        "available": played.available[slots],
        "excluded": reason[slots].tolist(),
        "chosen": chosen,
        "inclusion": of_slots(played.inclusion),
        "expected_s": of_slots(played.expected_s),
        "owed": of_slots(played.owed),
        "server": of_cohort(played.chosen * 0 - 1 if played.servers is None else played.servers, -1),
        "status": [_WORDS[status] for status in of_cohort(played.status, OPEN).tolist()],
        "time_s": of_cohort(played.exchange_time_s, np.nan),
        "learned_s": of_cohort(played.learned_s, np.nan),
        "round_s": np.full(slots.shape[0], played.round_s),
    }
    if played.contexts is not None:
        columns |= {f"context_{d}": played.contexts[slots, d] for d in range(played.contexts.shape[1])}
    return columns
