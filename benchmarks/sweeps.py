"""A sweep on Ray with two workers against one.

Run as ``python -m benchmarks.sweeps``.  What two workers can gain is the machine's to say: two virtual cores may be one
real core.  So the same trials run on one and on two plain processes, too.  A second sweep has trials that mostly wait,
as those do that train on an accelerator: there only Ray and the engine can be in the way.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.rows import Row, Session
from benchmarks.timing import interleaved
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.ray_engine import RayEngine
from fedroster.lab.trials.run import gather
from fedroster.lab.trials.trial import ALONE, Conditions, Trial

TRIALS = 40
ROUNDS = 5000
WAIT_S = 0.5


@dataclass(frozen=True)
class Waiting(Trial):
    """A trial that waits for another program's work, and then does a little of its own."""

    @property
    def work(self) -> float:
        """Seconds."""
        return WAIT_S

    def run(self, conditions: Conditions = ALONE) -> Run | None:
        """Wait, and play."""
        time.sleep(WAIT_S)
        return Trial.run(self, conditions)


def sweep(num_rounds: int, kind: type[Trial] = Trial) -> list[Trial]:
    """Two policies, and so many seeds that there are 40 trials."""
    policies = ("rbcs-f:V=20", "random")
    return [kind("rbcs-f/table-1", policy, seed, num_rounds) for policy in policies for seed in range(TRIALS // 2)]


def _play(trial: Trial) -> Run | None:
    return trial.run()


def _on_ray(trials: Sequence[Trial], workers: int) -> Callable[[], object]:
    return lambda: gather(trials, engine=RayEngine(), workers=workers)


def _on_processes(trials: Sequence[Trial], pool: ProcessPoolExecutor) -> Callable[[], object]:
    return lambda: list(pool.map(_play, trials))


def measure(repeats: int) -> tuple[dict[str, float], float]:
    """Median seconds of each sweep by name, and those that Ray takes to start; all workers are warm."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    start = time.perf_counter()
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    started_s = time.perf_counter() - start
    if Waiting.__module__ != "__main__":
        ray.cloudpickle.register_pickle_by_value(sys.modules[Waiting.__module__])
    context = multiprocessing.get_context("spawn")
    pools = {workers: ProcessPoolExecutor(workers, mp_context=context) for workers in (1, 2)}
    busy, short = sweep(ROUNDS), sweep(10)
    waiting = sweep(10, Waiting)
    works: dict[str, Callable[[], object]] = {}
    try:
        gather(waiting[:8], engine=RayEngine(), workers=2)  # both have imported what they need
        for workers, pool in pools.items():
            list(pool.map(_play, short))
            works[f"processes {workers}"] = _on_processes(busy, pool)
            works[f"ray {workers}"] = _on_ray(busy, workers)
            works[f"waiting {workers}"] = _on_ray(waiting, workers)
        return interleaved(works, repeats=repeats, warmup=0), started_s
    finally:
        for pool in pools.values():
            pool.shutdown()
        ray.shutdown()


def main() -> None:
    """Measure everything and publish it."""
    session = Session("sweeps", __doc__, seed=f"0-{TRIALS // 2 - 1}")
    took, started_s = measure(1 if session.parser.parse_args().quick else 3)
    rows = [
        Row(what=what, ours=took[f"{name} 2"], unit="s", target=target, peer=took[f"{name} 1"], peer_name=f"1 {one}")
        for name, what, one, target in (
            ("waiting", f"{TRIALS} trials that wait, Ray, 2 workers", "worker", "ray"),
            ("ray", f"{TRIALS} trials that compute, Ray, 2 workers", "worker", "ray"),
            ("processes", "the same on 2 plain processes: what this machine gives", "process", ""),
        )
    ]
    # Two full cores would halve the time, so that the target asks for 2 / 1.7 of what is possible.
    rows.append(
        Row(
            what="time with 2 over time with 1, trials that compute, Ray",
            ours=took["ray 2"] / took["ray 1"],
            unit="",
            peer=took["processes 2"] / took["processes 1"],
            peer_name="plain processes",
        )
    )
    rows.append(Row("Ray starts on this machine", started_s, "s"))
    session.publish(rows)


if __name__ == "__main__":
    main()
