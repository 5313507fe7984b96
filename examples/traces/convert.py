"""Make a table of FedScale's device traces, as the scenario traces/devices reads it.

FedScale (Lai et al., ICML 2022; Apache-2.0) publishes two pickles, dictionaries from client to numbers:
client_device_capacity to computation (milliseconds a sample) and communication (kbit/s), and client_behave_trace to
active, inactive (starts and ends of sessions, seconds) and finish_time (period, seconds).

    python examples/traces/convert.py device_info devices.parquet

The records are of different devices: each device of the sessions gets the speeds of one of the capacities, drawn once
with seed 0, each as often as any other.  A trace that is shorter than the longest one repeats until its end.  Sessions
of no length are left out, and so are devices that have no others.
"""

from __future__ import annotations

import argparse
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.lab.worlds.population import BANDWIDTH_MBPS, COMPUTE_MS, LEVELS, SHARE, deal
from fedroster.lab.worlds.table import COLUMNS, Sessions, Speeds, read_table

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


def changes(trace: dict[str, Any], period_s: float) -> list[tuple[float, bool]]:
    """Times at which a device comes, or goes, until the end of the longest trace."""
    starts, ends, own_s = trace["active"], trace["inactive"], float(trace["finish_time"])
    if len(starts) != len(ends):
        raise ValueError(f"it has {len(starts)} starts and {len(ends)} ends of sessions")
    found: list[tuple[float, bool]] = []
    for lap in range(math.ceil(period_s / own_s)):
        for start, end in zip(starts, ends, strict=True):
            if end > own_s:
                raise ValueError(f"a session ends at {end} s, after the trace, at {own_s} s")
            from_s, to_s = lap * own_s + start, min(lap * own_s + end, period_s)
            if from_s >= to_s and start <= end:
                continue
            if found and found[-1] == (from_s, False):  # it goes on from the session before
                found.pop()
            else:
                found.append((from_s, True))
            found.append((to_s, False))
    return found


def convert(source: Path, target: Path) -> tuple[Sessions, Speeds]:
    """Convert a folder with FedScale's files; if something is malformed, nothing is written."""
    traces = read_clients(source / "client_behave_trace")
    capacities = [*read_clients(source / "client_device_capacity").values()]
    if not traces or not capacities:
        raise ValueError("a file holds no devices")
    period_s = max(float(trace["finish_time"]) for trace in traces.values())
    drawn = deal(len(capacities), len(traces), rng=np.random.default_rng(0))
    rows: list[tuple[str, float, bool, float, float]] = []
    for (client, trace), place in zip(traces.items(), drawn.tolist(), strict=True):
        speeds = float(capacities[place]["computation"]), float(capacities[place]["communication"]) / 1e3
        try:
            rows += [(str(client), time_s, there, *speeds) for time_s, there in changes(trace, period_s)]
        except ValueError as error:
            raise ValueError(f"client {client!r}: {error}") from None
    if rows and rows[-1][1] < period_s:
        rows.append((rows[-1][0], period_s, False, *rows[-1][3:]))  # the last time of a table is the end of the traces
    begun = target.with_name(f"new-{target.name}")
    try:
        pl.DataFrame(rows, schema=COLUMNS, orient="row").write_parquet(begun)
        found = read_table(begun)  # which checks it
        begun.replace(target)
    finally:
        begun.unlink(missing_ok=True)
    return found


def main() -> None:
    """Convert, and print the quantiles beside the published ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the folder with FedScale's two files")
    parser.add_argument("target", type=Path, help="FILE.parquet")
    given = parser.parse_args()
    sessions, speeds = convert(given.source, given.target)
    print(f"{sessions.num_devices:,} devices with {sessions.start_s.shape[0]:,} sessions, in {given.target}")
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
