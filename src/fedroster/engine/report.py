"""What operators see of a round: files and endpoints that take a :class:`RoundReport`.

A sink is an observer: ``Selector(..., observers=[CsvLog("rounds.csv")])`` works with any engine and with none.  Behind
one of our adapters its reports also have what only the engine knows, such as nodes that are connected.
"""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import MissingDependencyError
from fedroster.core.problem import Status
from fedroster.federation.events import Decided, Told
from fedroster.federation.members import ClientId
from fedroster.selector import Selector


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
        num_capped: Times of this round that were longer than ``longest_s``.
        broken: Members that take part less than the policy promises (:meth:`Selector.below_promise`).
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
    num_capped: int = 0
    broken: tuple[str, ...] = ()

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

    @property
    def expected_s(self) -> float:
        """What a round is expected to take: as predicted, or without a prediction as long as this one, seconds."""
        return self.predicted_s if self.predicted_s > 0.0 else self.round_s

    @property
    def capped_share(self) -> float:
        """Times of this round that were longer than ``longest_s``, of those that were measured; 0 for none."""
        return self.num_capped / len(self.times_s) if self.times_s else 0.0

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


class RoundSink:
    """An observer of a selector that takes a report of each round: ``observers=[RoundSink(reports.append)]``.

    Without an engine it makes the reports itself.  A round is reported when all its answers are in, or the next one
    begins.  One that fills places (``select(at_most=...)``) waits for its answers until the selector gives it up.
    """

    behind_engine = False
    """Whether an engine's adapter sends reports; it sets this."""
    _gathered: Mapping[int, _Gathered] = MappingProxyType({})

    def __init__(self, take: Callable[[RoundReport], object]) -> None:
        """Hand reports on; a subclass with a :meth:`show` of its own needs no ``take``.

        Args:
            take: Called with each report.
        """
        self._take = take

    def show(self, report: RoundReport) -> None:
        """Take a report."""
        self._take(report)

    def __call__(self, event: Any, selector: Selector | None = None, /) -> None:
        """Take a report, or an event of a selector."""
        if isinstance(event, RoundReport):
            self.show(event)
        elif not self.behind_engine and selector is not None:
            self._gather(event, selector)

    def _gather(self, event: Any, selector: Selector) -> None:
        over: list[_Gathered] = []
        if isinstance(event, Decided):
            given_up = event.round - selector.options["patience_rounds"]
            over = [one for one in self._gathered.values() if not one.in_places or one.round <= given_up]
            self._gathered = {**self._gathered, event.round: _Gathered(event, selector)}
        elif isinstance(event, Told) and event.round in self._gathered:
            self._gathered[event.round].add(event, selector)
        over += [one for one in self._gathered.values() if one.is_whole and one not in over]
        self._gathered = {number: one for number, one in self._gathered.items() if one not in over}
        for one in over:
            self.show(one.report(selector))


class _Gathered:
    """A round, as far as a selector has reported it."""

    def __init__(self, event: Decided, selector: Selector) -> None:
        clients = selector.ids_of(event.chosen)
        self.round, self.in_places = event.round, event.asked.places is not None
        self._clients = tuple(map(str, clients))
        self._status: dict[str, Status | None] = dict.fromkeys(self._clients)
        self._times_s: dict[str, float] = {}
        self._round_s, self._capped = math.nan, selector.capped(as_array=True).sum()
        there = event.seen & event.members
        self._num_there = int(np.count_nonzero(there))
        self._num_out = int(sum(np.count_nonzero(there[slots]) for slots in event.excluded.values()))
        self._predicted_s = math.nan
        if clients and event.servers is None:
            rows, named = event.context.features[event.selection.links], cast("tuple[ClientId, ...]", clients)
            self._predicted_s = float(selector.expected_times_s(rows, clients=named, as_array=True).max())

    def add(self, event: Told, selector: Selector) -> None:
        """Add what was reported."""
        told = event.feedback
        for client, how, time_s in zip(
            selector.ids_of(told.client), told.status.tolist(), told.exchange_time_s.tolist(), strict=True
        ):
            self._status[str(client)] = Status(how)
            if not math.isnan(time_s):
                self._times_s[str(client)] = time_s
        measured_s = (
            [self._round_s, *self._times_s.values()] if event.round_s is None else [self._round_s, event.round_s]
        )
        self._round_s = max((each for each in measured_s if not math.isnan(each)), default=math.nan)

    @property
    def is_whole(self) -> bool:
        """Whether all answers are in."""
        return None not in self._status.values()

    def report(self, selector: Selector) -> RoundReport:
        """The report."""
        return report_of(
            selector,
            capped_before=int(self._capped),
            round=self.round,
            clients=self._clients,
            num_connected=self._num_there,
            num_available=self._num_there - self._num_out,
            status=self._status,
            times_s=self._times_s,
            select_s=math.nan,
            round_s=self._round_s,
            predicted_s=self._predicted_s,
        )


def report_of(selector: Selector, *, capped_before: int, **known: Any) -> RoundReport:
    """A report with what a selector knows of its members.

    Args:
        selector: The selector, after the round.
        capped_before: Times that had been cut before the round, of all members.
        **known: The other fields.
    """
    capped = selector.capped(as_array=True)
    return RoundReport(
        members=tuple(map(str, selector.clients)),
        rate=selector.participation_rates(as_array=True),
        backlog=selector.backlog(as_array=True),
        capped=capped,
        num_capped=max(int(capped.sum()) - capped_before, 0),
        paused={str(name): left for name, left in selector.paused().items()},
        broken=tuple(map(str, selector.below_promise())),
        **known,
    )


COLUMNS: Mapping[str, Callable[[RoundReport], float | None]] = {
    "round": lambda report: report.round,
    "chosen": lambda report: len(report.clients),
    "in_time": lambda report: report.num_in_time,
    "missed": lambda report: report.num_missed,
    "lost": lambda report: report.num_lost,
    "available": lambda report: report.num_available,
    "connected": lambda report: report.num_connected,
    "select_s": lambda report: report.select_s,
    "round_s": lambda report: report.round_s,
    "predicted_s": lambda report: report.predicted_s,
    "least_rate": lambda report: report.least_rate,
    "longest_queue": lambda report: float(report.backlog.max()) if report.backlog.shape[0] else None,
    "resumed": lambda report: int(report.resumed),
    "capped": lambda report: int(report.capped.sum()),
    "paused": lambda report: len(report.paused),
    "broken": lambda report: len(report.broken),
}
"""A round in numbers: columns of :class:`CsvLog` and scalars of :class:`TensorBoardLog`; None where there is none."""


class CsvLog(RoundSink):
    """Appends one line for each round to a CSV file; a run that was interrupted goes on in the same file.

    A last line that has no end, as a full disk leaves it, is taken away first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Log to a file.

        Args:
            path: The file; its folder must exist.
        """
        self._path = Path(path)

    def show(self, report: RoundReport) -> None:
        """Append a line."""
        with self._path.open("a+b") as file:
            lines = io.StringIO(newline="")
            writer = csv.writer(lines)
            if _cut_to_whole_lines(file) == 0:
                writer.writerow(COLUMNS)
            values = [value(report) for value in COLUMNS.values()]
            writer.writerow([f"{value:.6f}" if isinstance(value, float) else value for value in values])
            file.write(lines.getvalue().encode())


def _cut_to_whole_lines(file: IO[bytes]) -> int:
    """Take away what comes after the last end of a line; returns how many bytes are left."""
    file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_LINE, 0))
    start, tail = file.tell(), file.read()
    return file.truncate(start + tail.rfind(b"\n") + 1)


_LONGEST_LINE = 4096
"""More than a line of the log ever has, bytes."""


GAUGES: Mapping[str, tuple[str, Callable[[RoundReport], float]]] = {
    "round": ("Number of the last round", lambda report: report.round),
    "nodes_connected": ("Nodes that are connected", lambda report: report.num_connected),
    "nodes_available": ("Nodes that could be chosen", lambda report: report.num_available),
    "nodes_paused": ("Nodes that pause after failures in a row", lambda report: len(report.paused)),
    "round_seconds": ("Time of the last round", lambda report: report.round_s),
    "round_predicted_seconds": ("Predicted time of the round", lambda report: report.predicted_s),
    "round_expected_seconds": ("Predicted time, or that of the last round", lambda report: report.expected_s),
    "select_seconds": ("Time to gather contexts and choose", lambda report: report.select_s),
    "times_capped": ("Exchange times that were cut", lambda report: int(report.capped.sum())),
    "times_capped_share": ("Share of the last round's times that were cut", lambda report: report.capped_share),
    "promises_broken": ("Members that take part less than promised", lambda report: len(report.broken)),
}
"""Metrics of a round by name, with what they are; Prometheus and OpenTelemetry have the same."""


def outcomes_of(report: RoundReport) -> dict[str, int]:
    """Counts of how exchanges ended."""
    return {"in time": report.num_in_time, "missed": report.num_missed, "lost": report.num_lost}


class PrometheusEndpoint(RoundSink):
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
        self._gauges = {name: gauge(f"fedroster_{name}", what, registry=registry) for name, (what, _) in GAUGES.items()}
        self._ended = gauge("fedroster_round_end_timestamp_seconds", "When the last round ended", registry=registry)
        self._rate = gauge("fedroster_participation_rate", "Share of rounds", ["node"], registry=registry)
        self._queue = gauge("fedroster_queue_rounds", "Virtual queue, rounds owed", ["node"], registry=registry)
        self._time = gauge("fedroster_exchange_seconds", "Last exchange time", ["node"], registry=registry)
        self._outcomes = counter("fedroster_exchanges", "Exchanges by outcome", ["outcome"], registry=registry)
        self._members: set[str] = set()
        self._server: Any = None
        if port:
            started = prometheus_client.start_http_server(port, addr=address, registry=registry)
            self._server = None if started is None else started[0]

    def show(self, report: RoundReport) -> None:
        """Show a report."""
        for name, (_, value) in GAUGES.items():
            self._gauges[name].set(value(report))
        self._ended.set_to_current_time()
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
        for outcome, count in outcomes_of(report).items():
            self._outcomes.labels(outcome).inc(count)

    def close(self) -> None:
        """Stop to serve."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class TensorBoardLog(RoundSink):
    """Writes scalars for each round with any writer that has ``add_scalar(name, value, step)``."""

    def __init__(self, writer: Any) -> None:
        """Log to a writer, such as ``torch.utils.tensorboard.SummaryWriter``."""
        self._writer = writer

    def show(self, report: RoundReport) -> None:
        """Write one round's scalars."""
        for name, value in COLUMNS.items():
            if name != "round" and (number := value(report)) is not None and not math.isnan(number):
                self._writer.add_scalar(f"fedroster/{name}", number, report.round)


class OpenTelemetryMetrics(RoundSink):
    """Sends each round's metrics by any meter of OpenTelemetry, under the names that Prometheus has them by.

    They are ``fedroster_round_seconds`` and so on; rates, queues and exchange times have the attribute ``node``, and
    the counter ``fedroster_exchanges`` has the attribute ``outcome``.
    """

    def __init__(self, meter: Any) -> None:
        """Send by a meter, such as ``opentelemetry.metrics.get_meter("fedroster")``."""
        self._gauges = {name: meter.create_gauge(f"fedroster_{name}", "", what) for name, (what, _) in GAUGES.items()}
        self._ended = meter.create_gauge("fedroster_round_end_timestamp_seconds", "", "When the last round ended")
        self._rate = meter.create_gauge("fedroster_participation_rate", "", "Share of rounds")
        self._queue = meter.create_gauge("fedroster_queue_rounds", "", "Virtual queue, rounds owed")
        self._time = meter.create_gauge("fedroster_exchange_seconds", "", "Last exchange time")
        self._outcomes = meter.create_counter("fedroster_exchanges", "", "Exchanges by outcome")

    def show(self, report: RoundReport) -> None:
        """Send a report."""
        for name, (_, value) in GAUGES.items():
            if not math.isnan(number := value(report)):
                self._gauges[name].set(number)
        self._ended.set(time.time())
        for gauge, values in ((self._rate, report.rate), (self._queue, report.backlog)):
            for node, number in zip(report.members, values.tolist(), strict=False):
                gauge.set(number, {"node": node})
        for node, number in report.times_s.items():
            self._time.set(number, {"node": node})
        for outcome, count in outcomes_of(report).items():
            self._outcomes.add(count, {"outcome": outcome})
