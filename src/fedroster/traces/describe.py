"""Device traces on the command line: converted once, checked, and set beside the published quantiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import DataFileError, InvalidInputError, MissingDataError
from fedroster.traces import fedscale, table
from fedroster.traces.files import (
    SESSION_ARRAYS,
    SPEED_ARRAYS,
    Sessions,
    Speeds,
    read_arrays,
    sessions_of,
    speeds_of,
)
from fedroster.traces.population import (
    BANDWIDTH_MBPS,
    CAPACITY_FILES,
    COMPUTE_MS,
    LEVELS,
    SESSION_FILES,
    SHARE,
    flash_sessions,
)

_TABLES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Quantiles:
    """What a fleet is like, beside what is published.

    Attributes:
        what: Measure and unit.
        values: Quantiles at :data:`~fedroster.traces.population.LEVELS`.
        published: Those of FedScale's capacities or of the FLASH trace.
    """

    what: str
    values: tuple[float, ...]
    published: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """Sound traces.

    Attributes:
        sessions: When devices are there; None if nothing is said of it.
        speeds: How fast they are; None if nothing is said of it.
    """

    sessions: Sessions | None
    speeds: Speeds | None

    def counts(self) -> dict[str, int | float]:
        """How much there is, by name."""
        found: dict[str, int | float] = {}
        if self.sessions is not None:
            number = np.diff(self.sessions.offsets)
            found |= {
                "devices": self.sessions.num_devices,
                "never_there": int(np.count_nonzero(number == 0)),
                "sessions": int(number.sum()),
                "shortest_period_s": float(self.sessions.period_s.min()),
                "longest_period_s": float(self.sessions.period_s.max()),
            }
        if self.speeds is not None:
            found["speeds"] = self.speeds.compute_s.shape[0]
        return found

    def sentences(self) -> list[str]:
        """The same in words, a part each."""
        found = []
        if self.sessions is not None:
            count = self.counts()
            low, high = (count[name] / 86_400.0 for name in ("shortest_period_s", "longest_period_s"))
            days = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
            found.append(f"sessions: {count['sessions']:,}, of devices: {count['devices']:,}, in days: {days}")
            if count["never_there"]:
                found.append(f"devices that are never there: {count['never_there']:,}")
        if self.speeds is not None:
            of = "sessions" if self.speeds.by_session else "devices"
            found.append(f"{of} with speeds: {self.speeds.compute_s.shape[0]:,}")
        return found

    def quantiles(self) -> list[Quantiles]:
        """Speeds and shares of time beside the published ones."""

        def at_levels(values: FloatArray) -> tuple[float, ...]:
            return tuple(float(value) for value in np.quantile(values, LEVELS))

        rows = []
        if self.speeds is not None:
            rows.append(Quantiles("compute, ms a sample", at_levels(self.speeds.compute_s * 1e3), COMPUTE_MS))
            rows.append(Quantiles("bandwidth, Mbit/s", at_levels(self.speeds.bandwidth_bps / 1e6), BANDWIDTH_MBPS))
        if self.sessions is not None:
            rows.append(Quantiles("share of time available", at_levels(self.sessions.share()), SHARE))
        return rows


def _present(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def describe(path: str | os.PathLike[str]) -> Description:
    """Read traces whole, and so check them.

    Args:
        path: An ``.npz`` of traces, a table of them (``.csv``, ``.parquet``), or a folder with capacities, sessions or
            both, as :func:`fedroster.traces.population.read_source` reads it.

    Raises:
        MissingDataError: If there are no traces.
        DataFileError: If they are damaged or malformed; names client and line or session.
    """
    path = Path(path).expanduser()
    if path.suffix in _TABLES:
        return Description(*table.read_table(path))
    if path.is_dir():
        capacity_file, session_file = _present(path, CAPACITY_FILES), _present(path, SESSION_FILES)
        if capacity_file is None and session_file is None:
            raise MissingDataError(
                f"the folder {str(path)!r} holds no traces; expected {', '.join((*CAPACITY_FILES, *SESSION_FILES))}"
            )
        # Capacities and sessions of a folder are of different devices.
        sessions = None if session_file is None else _read(session_file).sessions
        return Description(sessions, None if capacity_file is None else _read(capacity_file).speeds)
    return _read(path)


def _read(file: Path) -> Description:
    source, arrays = repr(str(file)), read_arrays(file)
    sessions, speeds, num_sessions = None, None, None
    if SESSION_ARRAYS[0] in arrays:
        sessions = sessions_of(arrays, source=source)
        num_sessions = sessions.start_s.shape[0]
    elif "offsets_2st" in arrays:
        sessions = flash_sessions(arrays, source=source)
    if SPEED_ARRAYS[0] in arrays:
        speeds = speeds_of(arrays, source=source, num_sessions=num_sessions)
    if sessions is None and speeds is None:
        raise DataFileError(f"{source} holds neither sessions nor speeds of devices")
    return Description(sessions, speeds)


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, period_s: float | None = None
) -> tuple[Path, ...]:
    """Convert a table, or FedScale's pickles, once.

    Args:
        source: A table of traces (``.csv``, ``.parquet``), or a folder with FedScale's pickles.
        target: The ``.npz`` for a table; a folder for FedScale's.
        period_s: Length of a table's trace, seconds; None for its last time.

    Returns:
        The files that were written.

    Raises:
        MissingDataError: If the source is not there.
        InvalidInputError: If the target's name does not fit, or a length is given for pickles.
        DataFileError: If the source is damaged or malformed; nothing is written then.
    """
    source, target = Path(source).expanduser(), Path(target).expanduser()
    if source.is_dir():
        if period_s is not None:
            raise InvalidInputError("FedScale's records have periods of their own; expected no period")
        if target.suffix == ".npz" or target.is_file():
            raise InvalidInputError(f"the target is {str(target)!r}; expected a folder for FedScale's records")
        return fedscale.convert(source, target)
    if target.suffix != ".npz" or target.is_dir():
        raise InvalidInputError(f"the target is {str(target)!r}; expected a file that ends in .npz")
    if source.suffix not in _TABLES:
        raise InvalidInputError(
            f"the source is {str(source)!r}; expected a table that ends in {' or '.join(_TABLES)}, "
            "or a folder with FedScale's pickles"
        )
    table.convert(source, target, period_s=period_s)
    return (target,)
