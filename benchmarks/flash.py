"""The charging sessions of 300 devices of the FLASH trace, from the state changes that a subset of it records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from fedroster.lab.worlds.population import deal
from fedroster.lab.worlds.table import Sessions, Speeds

END_S = 518_400.0
"""Where the records are cut: six days."""
START_S = 300.0
"""Before this the subset has all devices charging, which is not measured."""


def flash_sessions(path: Path) -> Sessions:
    """Read ``offsets_2st``, ``time_s_2st`` and ``state_2st``; devices that never charge are left out.

    A device is in a state from a row's time on; state 2 is charging, FedScale's rule of being there.  What the subset
    says of the time before :data:`START_S` is replaced by the state at that time.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in ("offsets_2st", "time_s_2st", "state_2st")}
    offsets, state = arrays["offsets_2st"].astype(np.int64), arrays["state_2st"]
    time_s = arrays["time_s_2st"].astype(np.float64)
    device = np.repeat(np.arange(offsets.shape[0] - 1), np.diff(offsets))
    end_s = np.append(time_s[1:], END_S)
    end_s[offsets[1:] - 1] = END_S
    end_s = np.minimum(end_s, END_S)
    start_s = np.where(time_s <= START_S, 0.0, time_s)
    charging = (state == 2) & (end_s > np.maximum(start_s, START_S))
    count = np.unique(device[charging], return_counts=True)[1]
    return Sessions(np.concatenate(([0], np.cumsum(count))), start_s[charging], end_s[charging], END_S)


def convert(source: Path, target: Path) -> Path:
    """Make a table of the subsets in a folder; each device of the sessions has the speeds of one of FedScale's."""
    sessions = flash_sessions(source / "flash_availability_300.npz")
    speeds = fedscale_speeds(source / "fedscale_capacity_first10000.npz")
    row = deal(speeds.compute_s.shape[0], sessions.num_devices, rng=np.random.default_rng(0))[sessions.device]
    changes = [
        pl.DataFrame(
            {
                "client": sessions.device,
                "time": time_s,
                "available": available,
                "compute": speeds.compute_s[row] * 1e3,
                "bandwidth": speeds.bandwidth_bps[row] / 1e6,
            }
        )
        for time_s, available in ((sessions.start_s, True), (sessions.end_s, False))
    ]
    # A session that goes on from the one before needs no end; the sort puts that end before the start, and it goes.
    pl.concat(changes).sort("client", "time", "available").unique(["client", "time"], keep="last").sort(
        "client", "time"
    ).write_parquet(target / "flash.parquet")
    return target / "flash.parquet"


def fedscale_speeds(path: Path) -> Speeds:
    """Read ``computation_ms_per_sample`` and ``communication_kbps`` of 10,000 of FedScale's devices."""
    with np.load(path, allow_pickle=False) as file:
        return Speeds(file["computation_ms_per_sample"] / 1e3, file["communication_kbps"] * 1e3)
