r"""Traces of real devices: when each is available, how fast it computes and how fast its link is.

A file of traces is a plain ``.npz`` with some of these arrays, the names and units of FedScale's published records:

============================= ============= ===========================================================================
array                         shape         meaning
============================= ============= ===========================================================================
``session_offsets``           (devices + 1) device k has the sessions offsets[k] to offsets[k + 1]
``session_active_s``          (sessions,)   start of each session, seconds
``session_inactive_s``        (sessions,)   its end, seconds
``finish_time_s``             (devices,)    period of each device's trace, seconds
``computation_ms_per_sample`` (devices,)    inference on one sample, milliseconds
``communication_kbps``        (devices,)    speed of the link, kbit/s
============================= ============= ===========================================================================

Both speeds may instead have one entry for each session, for devices whose speeds change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import DataFileError, MissingDataError
from fedroster.core.state import write_atomically

SESSION_ARRAYS = ("session_offsets", "session_active_s", "session_inactive_s", "finish_time_s")
SPEED_ARRAYS = ("computation_ms_per_sample", "communication_kbps")


@dataclass(frozen=True, slots=True)
class Sessions:
    """When devices are available: from each start until before the end that belongs to it.

    Attributes:
        offsets: Device k has the sessions offsets[k] to offsets[k + 1], shape (devices + 1,).
        start_s: Start of each session, ascending for each device, shape (sessions,), seconds, in [0, period].
        end_s: Its end, shape (sessions,), seconds, in [start, start of the next one or period].
        period_s: Length of each device's trace, shape (devices,), seconds, > 0.
    """

    offsets: IntArray
    start_s: FloatArray
    end_s: FloatArray
    period_s: FloatArray

    @property
    def num_devices(self) -> int:
        """Number of devices."""
        return int(self.period_s.shape[0])

    @property
    def device(self) -> IntArray:
        """Device of each session, shape (sessions,)."""
        return np.repeat(np.arange(self.num_devices), np.diff(self.offsets))

    def share(self) -> FloatArray:
        """Share of its period for which each device is available, shape (devices,), in [0, 1]."""
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


def _device_name(device: int) -> str:
    return f"client {device}"


def check_sessions(sessions: Sessions, *, source: str, name: Callable[[int], str] = _device_name) -> None:
    """Check session tables that come from ``source``, a name for messages, as ``name`` is for a device.

    Raises:
        DataFileError: If the tables are empty or do not fit together, a number is not finite or out of its range,
            sessions overlap or are out of order, or a device has none.
    """
    offsets, start, end, period = sessions.offsets, sessions.start_s, sessions.end_s, sessions.period_s
    if period.shape[0] == 0:
        raise DataFileError(f"{source} holds no devices; expected at least one")
    if offsets.shape != (period.shape[0] + 1,) or start.shape != end.shape:
        raise DataFileError(
            f"{source} holds {offsets.shape[0]} offsets, {period.shape[0]} periods, {start.shape[0]} starts and "
            f"{end.shape[0]} ends; expected one offset more than periods, and as many starts as ends"
        )
    if offsets[0] != 0 or offsets[-1] != start.shape[0] or (np.diff(offsets) < 0).any():
        raise DataFileError(
            f"{source} is truncated or damaged: its offsets run from {offsets[0]} to {offsets[-1]}; "
            f"expected ascending ones from 0 to {start.shape[0]}, the number of sessions"
        )
    wrong = np.flatnonzero(~(np.isfinite(period) & (period > 0.0)))
    if wrong.size:
        device = int(wrong[0])
        raise DataFileError(f"{source}: {name(device)} has the period {period[device]} s; expected a finite one > 0")
    idle = np.flatnonzero(np.diff(offsets) == 0)
    if idle.size:
        raise DataFileError(f"{source}: {name(int(idle[0]))} has no sessions; expected at least one")

    device_of = sessions.device

    def refuse(rows: NDArray[np.bool_], what: Callable[[int], str]) -> None:
        found = np.flatnonzero(rows)
        if found.size:
            row = int(found[0])
            device = int(device_of[row])
            raise DataFileError(f"{source}: session {row - int(offsets[device])} of {name(device)} {what(row)}")

    refuse(
        ~(np.isfinite(start) & np.isfinite(end)),
        lambda row: f"runs from {start[row]} to {end[row]} s; expected finite numbers",
    )
    refuse(end < start, lambda row: f"ends at {end[row]:.12g} s, before it starts at {start[row]:.12g} s")
    refuse(start < 0.0, lambda row: f"starts at {start[row]:.12g} s; expected 0 or later")
    refuse(
        end > period[device_of],
        lambda row: f"ends at {end[row]:.12g} s; expected at most the period {period[device_of[row]]:.12g} s",
    )
    early = np.zeros(start.shape[0], np.bool_)
    early[1:] = (start[1:] < end[:-1]) & (device_of[1:] == device_of[:-1])
    refuse(
        early,
        lambda row: (
            f"starts at {start[row]:.12g} s, before the one before it ends at {end[row - 1]:.12g} s; "
            "expected sessions in order that do not overlap"
        ),
    )


def check_speeds(speeds: Speeds, *, source: str, name: Callable[[int], str] = _device_name) -> None:
    """Check that speeds that come from outside are finite, positive, and as many of one kind as of the other."""
    compute, bandwidth = speeds.compute_s, speeds.bandwidth_bps
    if compute.shape != bandwidth.shape or compute.ndim != 1 or compute.shape[0] == 0:
        raise DataFileError(
            f"{source} holds compute and bandwidth of shapes {compute.shape} and {bandwidth.shape}; "
            "expected one of each for every client"
        )
    for what, values, scale, unit in (
        ("compute", compute, 1e3, "ms a sample"),
        ("bandwidth", bandwidth, 1e-3, "kbit/s"),
    ):
        wrong = np.flatnonzero(~(np.isfinite(values) & (values > 0.0)))
        if wrong.size:
            row = int(wrong[0])
            raise DataFileError(
                f"{source}: {name(row)} has the {what} {values[row] * scale:.12g} {unit}; expected a finite number > 0"
            )


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read a plain ``.npz`` whole; nothing in it is executed."""
    if not Path(path).is_file():
        raise MissingDataError(f"there is no file {os.fspath(path)!r}; expected an .npz of device traces")
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # damaged archives make zipfile and NumPy raise nearly anything
        raise DataFileError(
            f"{os.fspath(path)!r} is truncated, damaged or no .npz of plain arrays ({type(error).__name__}: {error})"
        ) from error


def take(arrays: dict[str, NDArray[Any]], name: str, *, source: str) -> NDArray[Any]:
    """One array of numbers, in one dimension, from a file's content."""
    if name not in arrays:
        raise DataFileError(f"{source} holds no {name!r}; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise DataFileError(f"{source}: {name!r} is {array.dtype} of shape {array.shape}; expected numbers in a row")
    return array


def sessions_of(arrays: dict[str, NDArray[Any]], *, source: str) -> Sessions:
    """The session tables of a file's content, checked."""
    offsets, start, end, period = (take(arrays, name, source=source) for name in SESSION_ARRAYS)
    if offsets.dtype.kind == "f":
        raise DataFileError(f"{source}: 'session_offsets' is {offsets.dtype}; expected integers")
    sessions = Sessions(
        offsets.astype(np.int64), start.astype(np.float64), end.astype(np.float64), period.astype(np.float64)
    )
    check_sessions(sessions, source=source)
    return sessions


def speeds_of(arrays: dict[str, NDArray[Any]], *, source: str, num_sessions: int | None = None) -> Speeds:
    """The speeds of a file's content, checked; by session if they are as many as its sessions, not as its devices."""
    compute, bandwidth = (take(arrays, name, source=source).astype(np.float64) for name in SPEED_ARRAYS)
    by_session = False
    if num_sessions is not None:
        num_devices = arrays["finish_time_s"].shape[0]
        by_session = compute.shape[0] == num_sessions != num_devices
        if not by_session and compute.shape[0] != num_devices:
            raise DataFileError(
                f"{source} holds the speeds of {compute.shape[0]} clients and the sessions of {num_devices}; "
                "expected the same clients"
            )
    speeds = Speeds(compute_s=compute / 1e3, bandwidth_bps=bandwidth * 1e3, by_session=by_session)
    check_speeds(speeds, source=source, name=(lambda row: f"session row {row}") if by_session else _device_name)
    return speeds


def save_traces(
    path: str | os.PathLike[str], *, sessions: Sessions | None = None, speeds: Speeds | None = None
) -> None:
    """Write a file of traces, atomically; what is None is left out."""
    arrays: dict[str, NDArray[Any]] = {}
    if sessions is not None:
        values = (sessions.offsets, sessions.start_s, sessions.end_s, sessions.period_s)
        arrays |= dict(zip(SESSION_ARRAYS, values, strict=True))
    if speeds is not None:
        arrays |= dict(zip(SPEED_ARRAYS, (speeds.compute_s * 1e3, speeds.bandwidth_bps / 1e3), strict=True))
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]
