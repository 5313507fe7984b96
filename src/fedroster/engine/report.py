"""What operators see of a round: files and endpoints that take a :class:`RoundReport`."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import MissingDependencyError
from fedroster.core.problem import Status


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round of training, when its last reply that counts was in.

    Attributes:
        round: The selector's round number.
        clients: Names of the chosen nodes.
        num_connected: Nodes that the grid shows.
        num_available: Nodes that could be chosen.
        status: How the exchange with each chosen node ended, by name; None while a straggler is awaited.
        times_s: Exchange times by name, seconds, where one was measured.
        select_s: Time to gather contexts and to choose, seconds.
        round_s: Time from sending to the last reply that counts, or to the deadline, seconds.
        predicted_s: What the policy expected ``round_s`` to be; NaN for policies without a belief about times.
        members: Names of all members.
        rate: Rounds in which each member was chosen, by rounds since it joined, shape (members,).
        backlog: Virtual queue of each member, shape (members,), rounds owed; empty for policies without queues.
        edges: Edge server that each chosen node serves, by name; empty without edges.
        capped: Times of each member so far that were longer than ``longest_s``, shape (members,).
        resumed: Whether the round had been chosen before the server was restarted.
        reasons: Why the reply of a chosen node failed or was refused, by name.
        paused: Members that failed again and again, and the rounds for which they are not chosen now, by name.
    """

    round: int
    clients: tuple[str, ...]
    num_connected: int
    num_available: int
    status: Mapping[str, Status | None]
    times_s: Mapping[str, float]
    select_s: float
    round_s: float
    predicted_s: float
    members: tuple[str, ...]
    rate: FloatArray
    backlog: FloatArray
    edges: Mapping[str, str] = field(default_factory=dict)
    capped: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    resumed: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    paused: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_in_time(self) -> int:
        """Chosen nodes whose update is used."""
        return sum(status is Status.COMPLETED for status in self.status.values())

    @property
    def num_missed(self) -> int:
        """Chosen nodes that missed the deadline, or came after the first k."""
        return sum(status in (Status.LATE, None) for status in self.status.values())

    @property
    def num_lost(self) -> int:
        """Chosen nodes that dropped out or failed."""
        return sum(status in (Status.DROPPED, Status.FAILED) for status in self.status.values())

    @property
    def least_rate(self) -> float:
        """The least participation rate of a member; NaN without members."""
        return float(self.rate.min()) if self.rate.shape[0] else math.nan

    def lines(self, paused_before: Mapping[str, int]) -> list[tuple[int, str]]:
        """What a log should say of the round: levels of :mod:`logging` and lines.

        Args:
            paused_before: ``paused`` of the report before.
        """
        used, late, waited, lost = (
            [name for name, status in self.status.items() if status in wanted]
            for wanted in ((Status.COMPLETED,), (Status.LATE,), (None,), (Status.DROPPED, Status.FAILED))
        )
        expected = f" (expected {self.predicted_s:.1f} s)" if self.predicted_s > 0.0 else ""
        parts = [f"{len(used)} of {len(self.status)} updates used in {self.round_s:.1f} s{expected}: {_listed(used)}"]
        parts += [f"late {_listed(late)}"] * bool(late) + [f"not answered yet {_listed(waited)}"] * bool(waited)
        if lost:
            parts.append("lost " + _listed([f"{name} ({self.reasons.get(name) or 'gone'})" for name in lost]))
        resumed = " (resumed)" * self.resumed
        lines = [(logging.INFO, f"round {self.round}{resumed}: {'; '.join(parts)}")]
        newly = {name: left for name, left in self.paused.items() if left >= paused_before.get(name, left)}
        pausing = [f"{name} for {left} rounds" for name, left in newly.items()]
        if pausing:
            said = f"round {self.round}: failed again and again, and pause, owed nothing: {_listed(pausing)}"
            lines.append((logging.WARNING, said))
        if not used:
            lines.append((logging.WARNING, f"round {self.round} has no update: the model stays as it is"))
        return lines


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more or "none"


_NAMED = 20

Sink = Callable[[RoundReport], None]
"""Whatever takes reports."""


class CsvLog:
    """Appends one line for each round to a CSV file; a run that was interrupted goes on in the same file.

    A last line that has no end, as a full disk leaves it, is taken away first.
    """

    COLUMNS = (
        "round",
        "chosen",
        "in_time",
        "missed",
        "lost",
        "available",
        "connected",
        "select_s",
        "round_s",
        "predicted_s",
        "least_rate",
        "longest_queue",
        "resumed",
        "capped",
        "paused",
    )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Log to a file.

        Args:
            path: The file; its folder must exist.
        """
        self._path = Path(path)

    def __call__(self, report: RoundReport) -> None:
        """Append a line."""
        with self._path.open("a+b") as file:
            lines = io.StringIO(newline="")
            writer = csv.writer(lines)
            if _cut_to_whole_lines(file) == 0:
                writer.writerow(self.COLUMNS)
            writer.writerow(
                (
                    report.round,
                    len(report.clients),
                    report.num_in_time,
                    report.num_missed,
                    report.num_lost,
                    report.num_available,
                    report.num_connected,
                    f"{report.select_s:.6f}",
                    f"{report.round_s:.6f}",
                    f"{report.predicted_s:.6f}",
                    f"{report.least_rate:.6f}",
                    f"{report.backlog.max():.6f}" if report.backlog.shape[0] else "",
                    int(report.resumed),
                    int(report.capped.sum()),
                    len(report.paused),
                )
            )
            file.write(lines.getvalue().encode())


def _cut_to_whole_lines(file: IO[bytes]) -> int:
    """Take away what comes after the last end of a line; returns how many bytes are left."""
    file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_LINE, 0))
    start, tail = file.tell(), file.read()
    return file.truncate(start + tail.rfind(b"\n") + 1)


_LONGEST_LINE = 4096
"""More than a line of the log ever has, bytes."""


class PrometheusEndpoint:
    """Serves the last report to Prometheus; needs the extra ``metrics``."""

    def __init__(self, port: int = 9464, *, address: str = "127.0.0.1", registry: Any = None) -> None:
        """Start to serve.

        Args:
            port: TCP port; 0 for none, when the application serves the registry itself.
            address: Where to listen; this machine only, unless told otherwise.
            registry: A ``prometheus_client.CollectorRegistry``; None for a new one.

        Raises:
            MissingDependencyError: If ``prometheus-client`` is not installed.
        """
        try:
            import prometheus_client
        except ModuleNotFoundError as error:
            raise MissingDependencyError.of("prometheus-client", "metrics") from error
        self.registry = registry = prometheus_client.CollectorRegistry() if registry is None else registry
        gauge, counter = prometheus_client.Gauge, prometheus_client.Counter
        self._round = gauge("fedroster_round", "Number of the last round", registry=registry)
        self._connected = gauge("fedroster_nodes_connected", "Nodes that are connected", registry=registry)
        self._available = gauge("fedroster_nodes_available", "Nodes that could be chosen", registry=registry)
        self._measured = gauge("fedroster_round_seconds", "Time of the last round", registry=registry)
        self._predicted = gauge("fedroster_round_predicted_seconds", "Predicted time of the round", registry=registry)
        self._selecting = gauge("fedroster_select_seconds", "Time to gather contexts and choose", registry=registry)
        self._rate = gauge("fedroster_participation_rate", "Share of rounds", ["node"], registry=registry)
        self._queue = gauge("fedroster_queue_rounds", "Virtual queue, rounds owed", ["node"], registry=registry)
        self._time = gauge("fedroster_exchange_seconds", "Last exchange time", ["node"], registry=registry)
        self._paused = gauge("fedroster_nodes_paused", "Nodes that pause after failures in a row", registry=registry)
        self._capped = gauge("fedroster_times_capped", "Exchange times that were cut", registry=registry)
        self._outcomes = counter("fedroster_exchanges", "Exchanges by outcome", ["outcome"], registry=registry)
        self._members: set[str] = set()
        self._server: Any = None
        if port:
            started = prometheus_client.start_http_server(port, addr=address, registry=registry)
            self._server = None if started is None else started[0]

    def __call__(self, report: RoundReport) -> None:
        """Show a report."""
        self._round.set(report.round)
        self._connected.set(report.num_connected)
        self._available.set(report.num_available)
        self._measured.set(report.round_s)
        self._predicted.set(report.predicted_s)
        self._selecting.set(report.select_s)
        self._capped.set(int(report.capped.sum()))
        self._paused.set(len(report.paused))
        for name in self._members - set(report.members):
            for gauge in (self._rate, self._queue):
                gauge.remove(name)
        queues = report.backlog.tolist() or [math.nan] * len(report.members)
        for name, rate, queue in zip(report.members, report.rate.tolist(), queues, strict=True):
            self._rate.labels(name).set(rate)
            self._queue.labels(name).set(queue)
        self._members = set(report.members)
        for name, time_s in report.times_s.items():
            self._time.labels(name).set(time_s)
        for outcome, count in (
            ("in time", report.num_in_time),
            ("missed", report.num_missed),
            ("lost", report.num_lost),
        ):
            self._outcomes.labels(outcome).inc(count)

    def close(self) -> None:
        """Stop to serve."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class TensorBoardLog:
    """Writes scalars for each round with any writer that has ``add_scalar(name, value, step)``."""

    def __init__(self, writer: Any) -> None:
        """Log to a writer, such as ``torch.utils.tensorboard.SummaryWriter``."""
        self._writer = writer

    def __call__(self, report: RoundReport) -> None:
        """Write one round's scalars."""
        scalars = {
            "round_s": report.round_s,
            "predicted_s": report.predicted_s,
            "select_s": report.select_s,
            "in_time": report.num_in_time,
            "missed": report.num_missed,
            "lost": report.num_lost,
            "available": report.num_available,
            "capped": int(report.capped.sum()),
            "paused": len(report.paused),
            "least_rate": report.least_rate,
            "longest_queue": float(report.backlog.max()) if report.backlog.shape[0] else math.nan,
        }
        for name, value in scalars.items():
            if not math.isnan(value):
                self._writer.add_scalar(f"fedroster/{name}", value, report.round)
