"""Partial pooling without each of its parts, and with other settings: shares of Oracle-p's utility.

Run as ``python -m benchmarks.partial_pooling [--seeds 0-9] [--rounds 400] [--workers N] [--out FOLDER]``.  Every
variant plays the same seeds in networks where some part matters; the table is ``partial-pooling.md`` of the folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.rows import RESULTS
from fedroster.core.arrays import FloatArray
from fedroster.core.state import write_text_atomically
from fedroster.lab.papers.partial_pooling.figures import OURS, utility
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.run import gather
from fedroster.lab.trials.trial import Trial

VARIANTS: Mapping[str, str] = {
    "as it is": OURS,
    "no deviations": f"{OURS}:variances=(),memories=()",
    "no contexts": f"{OURS}:intervals=0",
    "straight lines": f"{OURS}:intervals=1",
    "nothing fades": f"{OURS}:memories=0",
    "all fades": f"{OURS}:memories=30",
    "one variance, 0.1": f"{OURS}:variances=0.1",
    "one variance, 1": f"{OURS}:variances=1",
    "no sharing of weight": f"{OURS}:share=0",
    "4 intervals": f"{OURS}:intervals=4",
    "16 intervals": f"{OURS}:intervals=16",
    "variances 0.05, 0.5": f"{OURS}:variances=0.05/0.5",
    "variances 0.2, 2": f"{OURS}:variances=0.2/2",
    "memory 15": f"{OURS}:memories=0/15",
    "memory 60": f"{OURS}:memories=0/60",
    "share 1e-4": f"{OURS}:share=0.0001",
    "share 1e-2": f"{OURS}:share=0.01",
}
"""Policies as text by their labels: the parts first, then the settings."""
NETWORKS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "CIFAR-10, static": ("cocs/cifar-10", {"static_resources": "true"}),
    "CIFAR-10, moving": ("cocs/cifar-10-geometric", {}),
    **{cause: ("hidden/mnist", {"cause": cause}) for cause in ("clients", "exclusive", "turns")},
}
"""Scenario and changed settings; the last three are hidden causes."""


def table(seeds: Sequence[int], num_rounds: int, workers: int) -> str:
    """Mean share of Oracle-p's utility of each variant in each network, with its 95 % interval, as Markdown."""

    def utilities(policy: str, network: str) -> FloatArray:
        scenario, settings = NETWORKS[network]
        trials = [Trial(scenario, policy, seed, num_rounds, settings) for seed in seeds]
        return np.array([utility(run) for run in gather(trials, workers=workers)])

    most = {network: utilities("oracle-p", network) for network in NETWORKS}
    lines = [
        f"| {num_rounds} rounds, {len(seeds)} seeds | {' | '.join(NETWORKS)} |",
        f"| --- |{' --- |' * len(NETWORKS)}",
    ]
    for label, policy in VARIANTS.items():
        shares = [mean_interval(100.0 * utilities(policy, network) / most[network]) for network in NETWORKS]
        cells = [f"{share.mean:.1f} % ({share.low:.1f} to {share.high:.1f})" for share in shares]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Play all, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partial_pooling", description=__doc__)
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    found = table(seeds, given.rounds, given.workers)
    given.out.mkdir(parents=True, exist_ok=True)
    command = f"python -m benchmarks.partial_pooling --seeds {given.seeds} --rounds {given.rounds}"
    write_text_atomically(
        given.out / "partial-pooling.md",
        f"# partial-pooling\n\nShares of Oracle-p's utility, with 95 % intervals. Made by `{command}`.\n\n{found}",
    )
    print(found)


if __name__ == "__main__":
    main()
