"""The example for Flower: mean round time and least participation rate beside FedAvg's own sampling, in a simulation.

Run as ``python -m benchmarks.example`` in an environment with the extra ``flower``; ``python -m benchmarks example``
makes one.  Ten nodes, two of them four times slower; each way of sampling is a run of its own, one after the other.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from benchmarks.rows import Row, Session

SCRIPT = Path("examples/flower/run.py")
SECONDS = 240.0  # for one way of sampling
OURS, PEER = "rbcs-f", "fedavg"
BETA = 0.099  # what the script promises with its 10 nodes and cohorts of 3


def main() -> None:
    """Run the example and publish what its reports say."""
    session = Session("example", __doc__, seed="the example's own")
    quick = session.parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(SCRIPT), "simulation", "--out", folder, "--limit", str(SECONDS)]
        command += ["--samplings", PEER, OURS, *(("--rounds", "5") if quick else ())]
        subprocess.run(command, check=True)
        reports = {
            name: json.loads((Path(folder) / f"{name}.json").read_text(encoding="utf-8")) for name in (OURS, PEER)
        }
    ours, peer = reports[OURS], reports[PEER]
    about = "Flower simulation, 10 nodes, 2 of them 4 times slower, cohort 3"
    rows = [
        Row(f"mean round of RBCS-F, {about}", ours["mean_s"], "s", "example-time", peer["mean_s"], "FedAvg's sampling"),
        Row(
            f"beta less the least participation rate ({ours['least_rate']:.3f}), {about}",
            BETA - ours["least_rate"],
            "",
            "example-rate",
        ),
    ]
    session.publish(rows, notes=[f"Flower {metadata.version('flwr')}"])


if __name__ == "__main__":
    main()
