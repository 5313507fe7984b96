"""Traces of devices: when each is available, how fast it computes and how fast its link is.

They are read from a table of what changed when, as CSV or Parquet.

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

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedroster.errors import DataFileError, MissingDataError, MissingDependencyError
from fedroster.types import FloatArray, IntArray, kept

if TYPE_CHECKING:
    import polars

COLUMNS = ("client", "time", "available", "compute", "bandwidth")
"""Columns of a table; further ones are ignored."""
_NUMBERS = ("time", "compute", "bandwidth")
_TRUE, _FALSE = ("1", "true", "1.0", "yes"), ("0", "false", "0.0", "no")


@dataclass(frozen=True, slots=True)
class Sessions:
    """When devices are available: from each start until before the end that belongs to it.

    Attributes:
        offsets: Device k has the sessions offsets[k] to offsets[k + 1], shape (devices + 1,).
        start_s: Start of each session, ascending for each device, shape (sessions,), seconds, in [0, period].
        end_s: Its end, shape (sessions,), seconds, in [start, start of the next one or period].
        period_s: Length of the trace, seconds, > 0.
    """

    offsets: IntArray = kept(0)
    start_s: FloatArray = kept(0.0)
    end_s: FloatArray = kept(0.0)
    period_s: float = kept(fixed=True)

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return int(self.offsets.shape[0]) - 1

    @property
    def device(self) -> IntArray:
        """Device of each session, shape (sessions,)."""
        return np.repeat(np.arange(self.num_devices), np.diff(self.offsets))

    def share(self) -> FloatArray:
        """Share of the period for which each device is available, shape (devices,), in [0, 1]."""
        length = np.concatenate(([0.0], np.cumsum(self.end_s - self.start_s)))
        return (length[self.offsets[1:]] - length[self.offsets[:-1]]) / self.period_s


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast devices are.

    Attributes:
        compute_s: Inference on one sample, shape (devices,) or (sessions,), seconds, > 0.
        bandwidth_bps: Speed of the link, shape (devices,) or (sessions,), bit/s, > 0.
        by_session: Whether there is one entry for each session rather than for each device.
    """

    compute_s: FloatArray
    bandwidth_bps: FloatArray
    by_session: bool = False


def _load(path: Path) -> polars.DataFrame:
    """The table with numbers for numbers, null for what is none, and the number of each line; clients together."""
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise MissingDependencyError.of("polars", "study") from error
    if not path.is_file():
        raise MissingDataError(f"there is no file {str(path)!r}; expected a table of traces")
    said = pl.col("available").cast(pl.String).str.to_lowercase()
    try:
        is_csv = path.suffix == ".csv"
        with path.open("rb") as file:  # polars would take a name with * or ~ for other files
            table = pl.read_csv(file, infer_schema=False) if is_csv else pl.read_parquet(file)
        table = table.select(COLUMNS)
        for name in _NUMBERS:
            if (kind := table.schema[name]).is_temporal() or kind == pl.Boolean:  # a cast would make numbers of them
                raise DataFileError(f"{path}: {name} is {kind!r}; expected numbers")
        return (
            table.with_columns(pl.col(pl.String).str.strip_chars())
            .with_columns(
                pl.col("client").cast(pl.String),
                pl.col(_NUMBERS).cast(pl.Float64, strict=False),
                pl.when(said.is_in(_TRUE)).then(True).when(said.is_in(_FALSE)).then(False).alias("available"),
            )
            .with_row_index("line", offset=2 if is_csv else 1)
            .sort(pl.col("line").min().over("client"), "line")
        )
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise DataFileError(f"{path} is no table with the columns {', '.join(COLUMNS)}: {error}") from error


def read_table(path: Path) -> tuple[Sessions, Speeds]:
    """Read a table of traces; client n of a simulation is the n-th that appears in it.

    Args:
        path: The table, ``.csv`` or ``.parquet``.  The last time in it is the end of the trace.

    Returns:
        When the clients are available; and their speeds, by session where those of a client change.

    Raises:
        FedrosterError: If there is no such file, or it is damaged or empty, lacks a column, or a row is malformed, out
            of order, or of a client that is never available: names line and client.
    """
    table = _load(path)
    import polars as pl

    time, available = pl.col("time"), pl.col("available")
    end = float(table["time"].max() or 0.0)  # type: ignore[arg-type]
    until = time.shift(-1, fill_value=end).over("client")
    table = table.with_columns(until=until, there=available & (until > time))
    rules = {
        "a client": pl.col("client").is_null() | (pl.col("client") == ""),
        "a finite time >= 0": ~(time.is_finite() & (time >= 0.0)).fill_null(value=False),
        "a time later than the client's one before": time <= time.shift(1).over("client"),
        "0, 1, false or true for available": available.is_null(),
    }
    for name, unit in (("compute", 1e-3), ("bandwidth", 1e6)):
        speed = unit * pl.col(name)
        is_speed = speed.is_finite() & (speed > 0.0)
        rules[f"a finite {name} > 0 where the client is available"] = available & ~is_speed.fill_null(value=False)
    rules["a client that is available for some time"] = ~pl.col("there").any().over("client")
    for expected, wrong in rules.items():
        found = table.filter(wrong).sort("line")
        if found.height:
            row = found.row(0, named=True)
            shown = ", ".join(f"{name} {row[name]}" for name in COLUMNS[1:])
            raise DataFileError(
                f"{path}, line {row['line']}, client {row['client']!r}: expected {expected}, not {shown}"
            )
    if table.height == 0:
        raise DataFileError(f"{path} is empty; expected a row for each change of a client")

    counts = table.group_by("client", maintain_order=True).agg(pl.col("there").sum())["there"].to_numpy()
    rows = table.filter(pl.col("there"))
    sessions = Sessions(
        offsets=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        start_s=np.array(rows["time"]),
        end_s=np.array(rows["until"]),
        period_s=end,
    )
    compute_s, bandwidth_bps = rows["compute"].to_numpy() / 1e3, rows["bandwidth"].to_numpy() * 1e6
    first = sessions.offsets[:-1]
    device = sessions.device
    if (compute_s == compute_s[first][device]).all() and (bandwidth_bps == bandwidth_bps[first][device]).all():
        return sessions, Speeds(compute_s[first], bandwidth_bps[first])
    return sessions, Speeds(compute_s, bandwidth_bps, by_session=True)
