"""A user's own device traces: a table of what changed when, as CSV or Parquet, converted once to ``.npz``.

====================== =========================================================
column                 meaning
====================== =========================================================
``client``             name or number of the client
``time``               seconds from the start of the trace, ascending for each client
``available``          from then on: 1 or true if the client is available, 0 or false if not
``compute``            from then on: inference on one sample, milliseconds
``bandwidth``          from then on: speed of the link, Mbit/s
====================== =========================================================

A row holds until the client's next one, its last row until the end of the trace.  The two speeds are needed where the
client is available.  Rows of different clients may be mixed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import DataFileError, InvalidInputError, MissingDataError, MissingDependencyError
from fedroster.traces.files import Sessions, Speeds

if TYPE_CHECKING:
    import polars

COLUMNS = ("client", "time", "available", "compute", "bandwidth")
"""Columns of a table; further ones are ignored."""
_TRUE, _FALSE = ("1", "true", "1.0", "yes"), ("0", "false", "0.0", "no")


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table, sorted by client and then as in the file; the names are those of the clients, by first rows."""

    source: str
    names: list[Any]
    client: IntArray
    line: IntArray
    time_s: FloatArray
    available: BoolArray
    compute_ms: FloatArray
    bandwidth_mbps: FloatArray

    def refuse(self, wrong: BoolArray, what: str, values: NDArray[Any]) -> None:
        """Raise an error for the first wrong row in the file, if there is one."""
        rows = np.flatnonzero(wrong)
        if rows.size:
            row = int(rows[self.line[rows].argmin()])
            client = self.names[self.client[row]]
            raise DataFileError(f"{self.source}, line {self.line[row]}, client {client!r}: {what} {values[row]}")


def _load(path: Path) -> polars.DataFrame:
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("polars", "study") from error
    if not path.is_file():
        raise MissingDataError(f"there is no file {str(path)!r}; expected a table of traces")
    if path.suffix not in (".csv", ".parquet"):
        raise InvalidInputError(f"{path} ends in {path.suffix!r}; expected .csv or .parquet")
    try:
        if path.suffix == ".csv":
            return pl.read_csv(path, infer_schema=False)  # as text: so that a wrong value can be shown with its line
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataFileError(f"{path} is empty, truncated or damaged: {error}") from error


def _read(path: Path) -> _Rows:
    table = _load(path)
    import polars as pl

    lacking = [name for name in COLUMNS if name not in table.columns]
    if lacking:
        raise DataFileError(
            f"{path} has no column {lacking[0]!r}; expected {', '.join(COLUMNS)}, found {', '.join(table.columns)}"
        )
    if table.height == 0:
        raise DataFileError(f"{path} is empty; expected a row for each change of a client")
    nested = [name for name in COLUMNS if table[name].dtype.is_nested()]
    if nested:
        raise DataFileError(f"{path}: the column {nested[0]!r} is {table[nested[0]].dtype}; expected plain values")
    first = 2 if path.suffix == ".csv" else 1
    line = np.arange(first, first + table.height)

    def complain(wrong: polars.Series, name: str, expected: str) -> None:
        if wrong.any():
            row = int(wrong.arg_true()[0])
            client, value = table["client"][row], table[name][row]
            raise DataFileError(
                f"{path}, line {line[row]}, client {client!r}: {name} is {value!r}; expected {expected}"
            )

    complain(table["client"].is_null() | (table["client"].cast(pl.String) == ""), "client", "a name or number")

    def numbers(name: str, *, needed: bool) -> FloatArray:
        column = table[name]
        said = column.is_not_null()
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            said &= column != ""
        if not (column.dtype == pl.String or column.dtype.is_numeric() or column.dtype == pl.Null):
            raise DataFileError(f"{path}: the column {name!r} is {column.dtype}; expected numbers")
        values = column.cast(pl.Float64, strict=False)
        complain((said & values.is_null()) | (~said if needed else said & ~said), name, "a number")
        numbers_: FloatArray = values.fill_null(float("nan")).to_numpy().astype(np.float64)
        return numbers_

    text = table["available"].cast(pl.String).str.strip_chars().str.to_lowercase()
    known = text.is_in([*_TRUE, *_FALSE]).fill_null(value=False)
    complain(~known, "available", "0, 1, false or true")
    available = text.is_in(list(_TRUE)).to_numpy().astype(np.bool_)
    names = table["client"].unique(maintain_order=True)
    index = pl.DataFrame({"client": names, "index": np.arange(names.len())})
    client = table.select("client").join(index, on="client", how="left", maintain_order="left")["index"].to_numpy()
    order = np.argsort(client, kind="stable")
    rows = _Rows(
        source=str(path),
        names=names.to_list(),
        client=client[order].astype(np.int64),
        line=line[order],
        time_s=numbers("time", needed=True)[order],
        available=available[order],
        compute_ms=numbers("compute", needed=False)[order],
        bandwidth_mbps=numbers("bandwidth", needed=False)[order],
    )
    _check(rows)
    return rows


def _check(rows: _Rows) -> None:
    time_s = rows.time_s
    rows.refuse(~(np.isfinite(time_s) & (time_s >= 0.0)), "expected a finite time >= 0, found", time_s)
    same = rows.client[1:] == rows.client[:-1]
    late = np.zeros(time_s.shape, np.bool_)
    late[1:] = same & (time_s[1:] <= time_s[:-1])
    rows.refuse(late, "expected times that ascend for each client, found after a later or equal one", time_s)
    for what, values in (("compute", rows.compute_ms), ("bandwidth", rows.bandwidth_mbps)):
        wrong = rows.available & ~(np.isfinite(values) & (values > 0.0))
        rows.refuse(wrong, f"expected a finite {what} > 0 where the client is available, found", values)


def read_table(path: str | os.PathLike[str], *, period_s: float | None = None) -> tuple[Sessions, Speeds]:
    """Read a table of traces; client n of a simulation is the n-th that appears in it.

    Args:
        path: The table, ``.csv`` or ``.parquet``.
        period_s: Length of the trace, seconds; None for the last time in the table.

    Returns:
        When the clients are available; and their speeds, by session where those of a client change.

    Raises:
        FedrosterError: If there is no such file, or it is damaged or empty, lacks a column, or a row is malformed, out
            of order, later than the end, or of a client that is never available: names line and client.
    """
    if period_s is not None and not (np.isfinite(period_s) and period_s > 0.0):
        raise InvalidInputError(f"period_s is {period_s!r}; expected a finite number > 0")
    rows = _read(Path(path))
    end = float(rows.time_s.max()) if period_s is None else float(period_s)
    if end == 0.0:
        raise DataFileError(f"{rows.source} says nothing after 0 s; expected a last row at the end, or period_s")
    rows.refuse(rows.time_s > end, f"expected times up to period_s = {end:.12g} s, found", rows.time_s)

    last = np.append(rows.client[1:] != rows.client[:-1], True)
    end_s = np.where(last, end, np.append(rows.time_s[1:], end))
    there = rows.available & (end_s > rows.time_s)
    count = np.bincount(rows.client[there], minlength=len(rows.names))
    idle = np.flatnonzero(count == 0)
    if idle.size:
        line = rows.line[rows.client.searchsorted(idle[0])]
        raise DataFileError(
            f"{rows.source}, line {line}, client {rows.names[idle[0]]!r}: it is never available; leave it out"
        )
    sessions = Sessions(
        offsets=np.concatenate(([0], np.cumsum(count))).astype(np.int64),
        start_s=rows.time_s[there],
        end_s=end_s[there],
        period_s=np.full(len(rows.names), end),
    )
    compute_s, bandwidth_bps = rows.compute_ms[there] / 1e3, rows.bandwidth_mbps[there] * 1e6
    first = sessions.offsets[:-1]
    device = sessions.device
    if (compute_s == compute_s[first][device]).all() and (bandwidth_bps == bandwidth_bps[first][device]).all():
        return sessions, Speeds(compute_s[first], bandwidth_bps[first])
    return sessions, Speeds(compute_s, bandwidth_bps, by_session=True)
