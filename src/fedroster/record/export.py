"""A log as a table."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedroster.core.outside import cell
from fedroster.core.problem import Status
from fedroster.core.state import write_atomically
from fedroster.folder.lines import OPEN
from fedroster.record.log import Log, LoggedRound

_WORDS = {OPEN: None} | {int(status): status.name.lower() for status in Status}


def write_csv(log: Log, file: Path, *, cohorts: bool = False) -> None:
    """Write a row for each member and round, or each chosen client and round; what is not known is an empty cell.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    told = (each.contexts for each in log.rounds if each.asked.slot.size)  # an empty round knows no length
    dimension = next((contexts.shape[1] for contexts in told if contexts is not None), 0)

    def write(stream: IO[bytes]) -> None:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
        table = csv.writer(text)  # its ends of lines, \r\n, quote each of them that stands in a text
        for place, played in enumerate(log.rounds):
            columns = _columns(log, played, dimension, cohorts=cohorts)
            if place == 0:
                table.writerow(columns)
            table.writerows(zip(*map(_cells, columns.values()), strict=True))
        text.detach()

    write_atomically(file, write)


def _cells(column: Any) -> Iterator[Any]:
    """A column's values as a table of text shows them; floats are read back exactly."""
    for value in column.tolist():
        if isinstance(value, bool):
            yield "true" if value else "false"
        else:
            yield None if isinstance(value, float) and math.isnan(value) else cell(value)


def _columns(log: Log, played: LoggedRound, dimension: int, *, cohorts: bool) -> dict[str, Any]:
    """The columns of a round's rows: first of all slots, then of those that are wanted."""
    capacity = played.members.size

    def of_cohort(values: Any, missing: Any = np.nan) -> Any:
        column = np.full(capacity, missing)
        if values is not None:
            column[played.chosen] = values
        return column

    unknown, reason = of_cohort(None), np.full(capacity, None, object)
    for why, who in played.excluded.items():
        reason[who] = why
    contexts = np.full((capacity, dimension), np.nan)
    if played.contexts is not None and played.contexts.shape[1] == dimension:
        contexts = played.contexts
    columns = {
        "round": np.full(capacity, played.round),
        "at_s": np.full(capacity, played.at_s),
        "client": np.array(log.ids_at(played.round), object),
        "available": played.available,
        "excluded": reason,
        "chosen": of_cohort(True, False),
        "expected_s": unknown if played.expected_s is None else played.expected_s,
        "owed": unknown if played.owed is None else played.owed,
        "server": of_cohort(played.servers, -1),
        "status": np.array([_WORDS[status] for status in of_cohort(played.status, OPEN).tolist()], object),
        "time_s": of_cohort(played.exchange_time_s),
        "learned_s": of_cohort(played.learned_s),
        "weight": of_cohort(played.weights),
        "round_s": np.full(capacity, played.round_s),
        **{f"context_{d}": contexts[:, d] for d in range(dimension)},
    }
    slots = played.chosen if cohorts else np.flatnonzero(played.members)
    return {name: column[slots] for name, column in columns.items()}
