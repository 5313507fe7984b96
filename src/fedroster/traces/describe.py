"""Device traces on the command line: converted once, checked, and set beside the published quantiles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import InvalidInputError
from fedroster.traces import fedscale
from fedroster.traces.files import Sessions, Speeds, save_traces
from fedroster.traces.population import BANDWIDTH_MBPS, COMPUTE_MS, LEVELS, SHARE, read_traces
from fedroster.traces.table import read_table

_TABLES = (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles of a measure at :data:`~fedroster.traces.population.LEVELS`, beside what is published of it."""

    what: str
    values: tuple[float, ...]
    published: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Description:
    """Sound traces; None for what nothing is said of."""

    sessions: Sessions | None
    speeds: Speeds | None

    def counts(self) -> dict[str, int | float]:
        """How much there is, by name."""
        found: dict[str, int | float] = {}
        if self.sessions is not None:
            found |= {
                "devices": self.sessions.num_devices,
                "sessions": self.sessions.start_s.shape[0],
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


def describe(path: str | os.PathLike[str]) -> Description:
    """Read traces whole, and so check them: an ``.npz``, a table, or a folder with capacities, sessions or both."""
    path = Path(path).expanduser()
    return Description(*(read_table(path) if path.suffix in _TABLES else read_traces(path)))


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], *, period_s: float | None = None
) -> tuple[Path, ...]:
    """Convert a table (``.csv``, ``.parquet``) or a folder with FedScale's pickles once; return the files written.

    ``target`` is the ``.npz`` for a table, a folder for FedScale's; ``period_s`` is the length of a table's trace,
    seconds, None for its last time.  If the source is damaged or malformed, nothing is written.
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
    sessions, speeds = read_table(source, period_s=period_s)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_traces(target, sessions=sessions, speeds=speeds)
    return (target,)
