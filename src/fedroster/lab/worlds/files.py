r"""Traces of real devices: when each is available, how fast it computes and how fast its link is.

A file of traces is a table (:mod:`fedroster.lab.worlds.table`) or a plain ``.npz`` with some of these arrays, the names
and units of FedScale's published records:

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.errors import DataFileError, MissingDataError
from fedroster.parts import write_atomically
from fedroster.types import FloatArray, IntArray

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


def check_sessions(sessions: Sessions, *, source: str) -> None:
    """Check session tables that come from ``source``, a name for messages.

    Raises:
        DataFileError: If the tables are empty or do not fit together, a number is not finite or out of its range,
            sessions overlap or are out of order, or a device has none.
    """
    offsets, start, end, period = sessions.offsets, sessions.start_s, sessions.end_s, sessions.period_s
    if (
        period.shape[0] == 0
        or offsets.shape != (period.shape[0] + 1,)
        or start.shape != end.shape
        or (offsets[0], offsets[-1]) != (0, start.shape[0])
        or (np.diff(offsets) < 1).any()
    ):
        raise DataFileError(
            f"{source} is truncated or damaged: it holds {offsets.shape[0]} offsets, {period.shape[0]} periods, "
            f"{start.shape[0]} starts and {end.shape[0]} ends; expected a session or more for each device, and offsets "
            "that ascend from 0 to the number of sessions"
        )
    device = sessions.device
    earliest = np.append(0.0, end[:-1])
    earliest[offsets[:-1]] = 0.0
    for wrong, expected in (
        (~(np.isfinite(period) & (period > 0.0))[device], "a finite period > 0"),
        (~(np.isfinite(start) & np.isfinite(end)), "finite times"),
        (end < start, "an end that is not before the start"),
        (end > period[device], "an end within the period"),
        (start < earliest, "a start at 0 or later, and not before the end of the session before it"),
    ):
        if wrong.any():
            row = int(wrong.argmax())
            raise DataFileError(
                f"{source}: session {row - offsets[device[row]]} of client {device[row]} runs from {start[row]:.12g} "
                f"to {end[row]:.12g} s, in a period of {period[device[row]]:.12g} s; expected {expected}"
            )


def check_speeds(speeds: Speeds, *, source: str) -> None:
    """Check that speeds that come from outside are finite, positive, and as many of one kind as of the other."""
    compute, bandwidth = speeds.compute_s, speeds.bandwidth_bps
    if compute.shape != bandwidth.shape or compute.shape[0] == 0:
        raise DataFileError(
            f"{source} holds compute and bandwidth of shapes {compute.shape} and {bandwidth.shape}; expected one of "
            "each for every client"
        )
    both = np.stack((compute, bandwidth))
    wrong = ~(np.isfinite(both) & (both > 0.0)).all(axis=0)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataFileError(
            f"{source}: {'session' if speeds.by_session else 'client'} {row} has the compute {compute[row] * 1e3:.12g} "
            f"ms a sample and the bandwidth {bandwidth[row] / 1e3:.12g} kbit/s; expected finite numbers > 0"
        )


def read_arrays(path: Path) -> tuple[Sessions | None, Speeds | None]:
    """What an ``.npz`` of traces says, checked; nothing in it is executed.

    Speeds are by session if they are as many as the sessions, and not as the devices.

    Raises:
        MissingDataError: If there is no such file.
        DataFileError: If it is damaged, malformed, or holds neither sessions nor speeds.
    """
    if not path.is_file():
        raise MissingDataError(f"there is no file {str(path)!r}; expected device traces")
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
    except Exception as error:  # damaged archives make zipfile and NumPy raise nearly anything
        raise DataFileError(
            f"{str(path)!r} is truncated, damaged or no .npz of plain arrays ({type(error).__name__}: {error})"
        ) from error

    def take(name: str, kinds: str = "iuf") -> NDArray[Any]:
        found = arrays.get(name)
        if found is None or found.ndim != 1 or found.dtype.kind not in kinds:
            what = "is not there" if found is None else f"is {found.dtype} of shape {found.shape}"
            raise DataFileError(
                f"{path}: {name!r} {what}; expected {'integers' if kinds == 'iu' else 'numbers'} in a row"
            )
        return found.astype(np.int64 if kinds == "iu" else np.float64)

    sessions, speeds = None, None
    if SESSION_ARRAYS[0] in arrays:
        sessions = Sessions(take(SESSION_ARRAYS[0], "iu"), *(take(name) for name in SESSION_ARRAYS[1:]))
        check_sessions(sessions, source=str(path))
    if SPEED_ARRAYS[0] in arrays:
        compute, bandwidth = (take(name) for name in SPEED_ARRAYS)
        by_session = False
        if sessions is not None and compute.shape[0] != sessions.num_devices:
            by_session = compute.shape == sessions.start_s.shape
            if not by_session:
                raise DataFileError(
                    f"{path} holds speeds of {compute.shape[0]} clients and sessions of {sessions.num_devices}; "
                    "expected the same clients"
                )
        speeds = Speeds(compute_s=compute / 1e3, bandwidth_bps=bandwidth * 1e3, by_session=by_session)
        check_speeds(speeds, source=str(path))
    if sessions is None and speeds is None:
        raise DataFileError(f"{path} holds neither sessions nor speeds of devices")
    return sessions, speeds


def save_traces(
    path: str | os.PathLike[str], *, sessions: Sessions | None = None, speeds: Speeds | None = None
) -> None:
    """Write an ``.npz`` of traces, atomically; what is None is left out."""
    arrays: dict[str, NDArray[Any]] = {}
    if sessions is not None:
        values = (sessions.offsets, sessions.start_s, sessions.end_s, sessions.period_s)
        arrays |= dict(zip(SESSION_ARRAYS, values, strict=True))
    if speeds is not None:
        arrays |= dict(zip(SPEED_ARRAYS, (speeds.compute_s * 1e3, speeds.bandwidth_bps / 1e3), strict=True))
    write_atomically(path, lambda file: np.savez_compressed(file, **arrays))  # type: ignore[arg-type]
