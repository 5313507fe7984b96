"""Convert device traces once to what the scenario traces/devices reads: arrays in an .npz.

FedScale (Lai et al., ICML 2022; Apache-2.0) publishes two pickles, dictionaries from client to numbers:
client_device_capacity to computation (milliseconds a sample) and communication (kbit/s), and client_behave_trace to
active, inactive (starts and ends of sessions, seconds) and finish_time (period, seconds).

    python examples/traces/convert.py device_info device_npz

A table (.csv, .parquet) can be used as it is; as an .npz it is read faster, and its period may be another one than its
last time.

    python examples/traces/convert.py phones.csv phones.npz --period 86400
"""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.lab.worlds.files import Sessions, Speeds, check_sessions, check_speeds, save_traces
from fedroster.lab.worlds.population import (
    BANDWIDTH_MBPS,
    CAPACITY_FILE,
    COMPUTE_MS,
    LEVELS,
    SESSION_FILE,
    SHARE,
)
from fedroster.lab.worlds.table import read_table

_KNOWN = {("numpy", "dtype"), ("numpy._core.multiarray", "scalar"), ("_codecs", "encode")}


class Plain(pickle.Unpickler):
    """Makes containers and numbers, NumPy's too; a pickle that names anything else is refused before that runs."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Import what a pickle names, if it is one of NumPy's numbers."""
        if (module.replace("numpy.core.", "numpy._core."), name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}; expected containers and numbers")
        return super().find_class(module, name)


def read_clients(path: Path) -> dict[Any, dict[str, Any]]:
    """The dictionary in one of FedScale's files, by client."""
    with path.open("rb") as file:
        clients = Plain(file, encoding="latin-1").load()
    return dict(clients)


def speeds_of(clients: dict[Any, dict[str, Any]]) -> Speeds:
    """FedScale's capacities, in the file's order."""
    rows = [(client["computation"], client["communication"]) for client in clients.values()]
    compute_ms, bandwidth_kbps = np.array(rows, np.float64).reshape(-1, 2).T
    return Speeds(compute_s=compute_ms / 1e3, bandwidth_bps=bandwidth_kbps * 1e3)


def sessions_of(clients: dict[Any, dict[str, Any]]) -> Sessions:
    """FedScale's sessions, in the file's order."""
    starts, ends = ([client[name] for client in clients.values()] for name in ("active", "inactive"))
    for client, start, end in zip(clients, starts, ends, strict=True):
        if len(start) != len(end):
            raise ValueError(f"client {client!r} has {len(start)} starts and {len(end)} ends of sessions")
    return Sessions(
        offsets=np.cumsum([0, *map(len, starts)]),
        start_s=np.array([value for start in starts for value in start], np.float64),
        end_s=np.array([value for end in ends for value in end], np.float64),
        period_s=np.array([client["finish_time"] for client in clients.values()], np.float64),
    )


def convert(source: Path, target: Path, *, period_s: float | None = None) -> tuple[Sessions, Speeds]:
    """Convert a table, or a folder with FedScale's files; if something is malformed, nothing is written."""
    if not source.is_dir():
        sessions, speeds = read_table(source, period_s=period_s)
        save_traces(target, sessions=sessions, speeds=speeds)
        return sessions, speeds
    sessions = sessions_of(read_clients(source / SESSION_FILE.removesuffix(".npz")))
    speeds = speeds_of(read_clients(source / CAPACITY_FILE.removesuffix(".npz")))
    check_sessions(sessions, source=str(source))
    check_speeds(speeds, source=str(source))
    target.mkdir(parents=True, exist_ok=True)
    save_traces(target / SESSION_FILE, sessions=sessions)
    save_traces(target / CAPACITY_FILE, speeds=speeds)
    return sessions, speeds


def main() -> None:
    """Convert, and print the quantiles beside the published ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a folder with FedScale's two files, or a table")
    parser.add_argument("target", type=Path, help="a folder for FedScale's, FILE.npz for a table")
    parser.add_argument("--period", type=float, help="length of a table's trace, seconds; its last time if not given")
    given = parser.parse_args()
    sessions, speeds = convert(given.source, given.target, period_s=given.period)
    print(
        f"{sessions.num_devices:,} devices with {sessions.start_s.shape[0]:,} sessions, "
        f"{speeds.compute_s.shape[0]:,} speeds, in {given.target}"
    )
    for what, values, published in (
        ("compute, ms a sample", speeds.compute_s * 1e3, COMPUTE_MS),
        ("bandwidth, Mbit/s", speeds.bandwidth_bps / 1e6, BANDWIDTH_MBPS),
        ("share of time available", sessions.share(), SHARE),
    ):
        found = np.quantile(values, LEVELS)
        print(f"{what}: " + ", ".join(f"{level:.0%} {value:.3g}" for level, value in zip(LEVELS, found, strict=True)))
        print(
            "  published: "
            + ", ".join(f"{level:.0%} {value:.3g}" for level, value in zip(LEVELS, published, strict=True))
        )


if __name__ == "__main__":
    main()
