"""FedScale's device records, converted once from the published pickles to plain ``.npz``; no pickle's code runs.

FedScale (Lai et al., ICML 2022; Apache-2.0) publishes two files, dictionaries from client to numbers:
``client_device_capacity`` to ``computation`` (milliseconds a sample) and ``communication`` (kbit/s), and
``client_behave_trace`` to ``active``, ``inactive`` (starts and ends of sessions, seconds) and ``finish_time`` (period,
seconds).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import DataFileError, MissingDataError
from fedroster.data.plain_pickle import read_plain_pickle
from fedroster.traces.files import Sessions, Speeds, check_sessions, check_speeds, save_traces

CAPACITIES = "client_device_capacity"
"""Published name of the capacities."""
SESSIONS = "client_behave_trace"
"""Published name of the sessions."""


def _clients(path: Path) -> dict[Any, Any]:
    """The dictionary in a file, by client."""
    if not path.is_file():
        raise MissingDataError(f"there is no file {str(path)!r}; expected FedScale's {CAPACITIES} or {SESSIONS}")
    clients = read_plain_pickle(path.read_bytes(), name=str(path))
    if not isinstance(clients, dict) or not clients:
        raise DataFileError(f"{path} holds no clients; expected a dictionary with an entry for each")
    return clients


def _entry(path: Path, client: Any, entry: Any, name: str) -> Any:
    if not isinstance(entry, dict) or name not in entry:
        raise DataFileError(f"{path}: client {client!r} has no {name!r}")
    return entry[name]


def _number(path: Path, client: Any, entry: Any, name: str) -> float:
    value = _entry(path, client, entry, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataFileError(f"{path}: {name!r} of client {client!r} is {type(value).__name__}; expected a number")
    return float(value)


def _numbers(path: Path, client: Any, entry: Any, name: str) -> list[Any]:
    values = _entry(path, client, entry, name)
    if not isinstance(values, list | tuple):
        raise DataFileError(f"{path}: {name!r} of client {client!r} is {type(values).__name__}; expected a list")
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataFileError(f"{path}: {name!r} of client {client!r} holds {value!r} at {row}; expected numbers")
    return list(values)


def read_capacities(path: str | os.PathLike[str]) -> Speeds:
    """Read the published capacities, in the file's order, and check them."""
    path = Path(path)
    clients = _clients(path)
    names = list(clients)
    rows = [(_number(path, c, e, "computation"), _number(path, c, e, "communication")) for c, e in clients.items()]
    table: FloatArray = np.array(rows, np.float64)
    speeds = Speeds(compute_s=table[:, 0] / 1e3, bandwidth_bps=table[:, 1] * 1e3)
    check_speeds(speeds, source=str(path), name=lambda row: f"client {names[row]!r}")
    return speeds


def read_sessions(path: str | os.PathLike[str]) -> Sessions:
    """Read the published sessions, in the file's order, and check them."""
    path = Path(path)
    clients = _clients(path)
    names = list(clients)

    def numbers(name: str) -> Iterator[list[Any]]:
        for client, entry in clients.items():
            yield _numbers(path, client, entry, name)

    starts, ends = list(numbers("active")), list(numbers("inactive"))
    for client, start, end in zip(names, starts, ends, strict=True):
        if len(start) != len(end):
            raise DataFileError(
                f"{path} is truncated or damaged: client {client!r} has {len(start)} starts and {len(end)} ends of "
                "sessions; expected as many"
            )
    sessions = Sessions(
        offsets=np.concatenate(([0], np.cumsum([len(start) for start in starts]))).astype(np.int64),
        start_s=np.array([value for start in starts for value in start], np.float64),
        end_s=np.array([value for end in ends for value in end], np.float64),
        period_s=np.array([_number(path, c, e, "finish_time") for c, e in clients.items()], np.float64),
    )
    check_sessions(sessions, source=str(path), name=lambda row: f"client {names[row]!r}")
    return sessions


def convert(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Convert the published files of a folder, both or one, to ``.npz``; if one is malformed, nothing is written."""
    folder, to = Path(source), Path(target)
    found = [name for name in (CAPACITIES, SESSIONS) if (folder / name).is_file()]
    if not found:
        raise MissingDataError(f"the folder {str(folder)!r} holds neither {CAPACITIES} nor {SESSIONS}")
    speeds = read_capacities(folder / CAPACITIES) if CAPACITIES in found else None
    sessions = read_sessions(folder / SESSIONS) if SESSIONS in found else None
    to.mkdir(parents=True, exist_ok=True)
    if speeds is not None:
        save_traces(to / f"{CAPACITIES}.npz", speeds=speeds)
    if sessions is not None:
        save_traces(to / f"{SESSIONS}.npz", sessions=sessions)
    return tuple(to / f"{name}.npz" for name in found)
