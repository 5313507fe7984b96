"""What a record adds to a round: a decision and its answers written, chained and on the disk, in units of a sort.

A selector of RBCS-F plays rounds of 100 clients, with two features and 70 % of the clients there, in turn with and
without a record; availability stands in the log as a compressed bitmap.  The unit is ``np.sort`` of a million numbers
of 8 bytes, measured between the rounds.  Medians of the time inside the record.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import Row, Session
from fedroster import RBCSF, Record, Selector
from fedroster.folder import chain

SIZES = {10_000: "record-10000", 1_000_000: "record-1000000"}


class Timed(Record):
    """A record, how long it takes, and how long of that it waits for the disk."""

    def __init__(self, folder: str, *, contexts: bool) -> None:
        """Begin a log."""
        super().__init__(folder, contexts=contexts)
        self.seconds = self.disk_s = 0.0
        chain._sync = self._sync

    def _sync(self, file: int) -> None:
        start = time.perf_counter()
        os.fdatasync(file)
        self.disk_s += time.perf_counter() - start

    def before(self, event: Any) -> None:
        """Write an event."""
        start = time.perf_counter()
        super().before(event)
        self.seconds += time.perf_counter() - start


def _sort_s(numbers: Any) -> float:
    start = time.perf_counter()
    np.sort(numbers)
    return time.perf_counter() - start


def measured(num_clients: int, *, rounds: int, contexts: bool) -> tuple[float, float, float, float]:
    """Median seconds of a round in the log, of its wait for the disk and of a sort; and the log's bytes a round."""
    rng = np.random.default_rng(0)
    numbers = rng.random(1_000_000)
    rows = rng.uniform(0.5, 2.0, (num_clients, 2))
    ours, disk, sorts = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        record = Timed(folder, contexts=contexts)
        selector = Selector(RBCSF(beta=0.0), cohort_size=100, clients=range(num_clients), observers=[record])
        begun = sum(file.stat().st_size for file in Path(folder).iterdir())
        for number in range(rounds + 2):
            sorts.append(_sort_s(numbers))
            record.seconds = record.disk_s = 0.0
            cohort = selector.select(rows, available=rng.random(num_clients) < 0.7)
            selector.observe(cohort.round, times_s={client: 1.0 + rng.random() for client in cohort.clients})
            if number >= 2:
                ours.append(record.seconds)
                disk.append(record.disk_s)
        written = sum(file.stat().st_size for file in Path(folder).iterdir()) - begun
        record.close()
    return statistics.median(ours), statistics.median(disk), statistics.median(sorts), written / (rounds + 2)


def main() -> None:
    """Measure and publish."""
    session = Session("record", __doc__, seed="0")
    quick = session.parser.parse_args().quick
    rows = []
    for num_clients, target in SIZES.items():
        for contexts in (False, True):
            rounds = (5 if quick else 15) if num_clients > 100_000 else (20 if quick else 100)
            ours_s, disk_s, sort_s, size = measured(num_clients, rounds=rounds, contexts=contexts)
            what = f"a round in the log, N = {num_clients:,}, {'with' if contexts else 'without'} contexts"
            rows.append(Row(what, ours_s / sort_s, "sorts", "" if contexts else target))
            rows.append(Row(f"{what}: of this, waiting for the disk", disk_s / sort_s, "sorts"))
            rows.append(Row(f"{what}: bytes", size / 1000.0, "kB"))
    session.publish(rows)


if __name__ == "__main__":
    main()
