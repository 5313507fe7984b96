"""Partial pooling without each of its parts, and with other settings: shares of Oracle-p's utility.

Run as ``python -m benchmarks.partial_pooling [--seeds 0-9] [--rounds 400] [--workers N] [--out FOLDER]``.  Every
variant plays the same seeds in networks where some part matters; the table is ``partial-pooling.md`` of the folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.rows import table_of_seeds
from fedroster.core.arrays import FloatArray
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


if __name__ == "__main__":
    ABOUT = "Shares of Oracle-p's utility, with 95 % intervals."
    table_of_seeds("partial_pooling", __doc__, table, ABOUT, "0-9 400")
