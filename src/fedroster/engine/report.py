"""What operators see of a round: a :class:`RoundReport`, and a file that takes one.

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
from types import MappingProxyType
from typing import IO, Any, cast

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.ids import ClientId
from fedroster.core.outside import plain
from fedroster.core.problem import Status
from fedroster.engine.choose import Choice
from fedroster.engine.outcomes import OpenRound, Outcomes
from fedroster.folder.events import Decided, Told
from fedroster.selector import Selector, settings_of


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
        round_s: Time from sending until every node was settled, or to the round's end by its rules, seconds.
        used_s: Time from sending to the last reply that counts, seconds; NaN without one.
        predicted_s: What the policy expected ``round_s`` to be; NaN for policies without a belief about times.
        members: Names of all members.
        rate: Rounds in which each member was chosen, by rounds since it joined, shape (members,).
        backlog: Virtual queue of each member, shape (members,), rounds owed; empty for policies without queues.
        edges: Edge server that each chosen node serves, by name; empty without edges.
        capped: Times of each member so far that were longer than ``longest_s``, shape (members,).
        resumed: Whether the round had been chosen before the server was restarted.
        reasons: Why the reply of a chosen node failed, was refused or is not used, by name.
        refused: Chosen nodes whose reply was refused.
        paused: Members that failed again and again, and the rounds for which they are not chosen now, by name.
        num_capped: Times of this round that were longer than ``longest_s``.
        broken: Members that take part less than the policy promises (:meth:`Selector.below_promise`).
        sway: How far the cohorts' losses sway (:class:`~fedroster.engine.losses.Sway`); NaN where it is not known.
        at_s: When the report was made, seconds since 1970.
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
    used_s: float = math.nan
    refused: frozenset[str] = frozenset()
    sway: float = math.nan
    at_s: float = field(default_factory=time.time)

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
        """Chosen nodes that dropped out or failed, those whose reply was refused among them."""
        return sum(status in (Status.DROPPED, Status.FAILED) for status in self.status.values())

    @property
    def least_rate(self) -> float:
        """The least participation rate of a member; NaN without members."""
        return float(self.rate.min()) if self.rate.size else math.nan

    def metrics(self) -> dict[str, float]:
        """The round in numbers, always under the same names; NaN for what is not known.

        ``expected_s`` is ``predicted_s``, or ``round_s`` without a prediction.  ``capped`` counts all times so far that
        were longer than ``longest_s``; ``capped_share`` is their share of this round's.
        """
        return {
            "round": self.round,
            "chosen": len(self.clients),
            "in_time": self.num_in_time,
            "missed": self.num_missed,
            "lost": self.num_lost,
            "available": self.num_available,
            "connected": self.num_connected,
            "select_s": self.select_s,
            "round_s": self.round_s,
            "used_s": self.used_s,
            "predicted_s": self.predicted_s if self.predicted_s > 0.0 else math.nan,
            "least_rate": self.least_rate,
            "longest_queue": float(self.backlog.max()) if self.backlog.size else math.nan,
            "resumed": int(self.resumed),
            "capped": int(self.capped.sum()),
            "paused": len(self.paused),
            "broken": len(self.broken),
            "expected_s": self.predicted_s if self.predicted_s > 0.0 else self.round_s,
            "capped_share": self.num_capped / len(self.times_s) if self.times_s else 0.0,
            "at_s": self.at_s,
        }

    def lines(self, paused_before: Mapping[str, int]) -> list[tuple[int, str]]:
        """What a log should say of the round: levels of :mod:`logging` and lines; given ``paused`` of the last one."""
        used, late, waited, failed, lost = (
            [name for name, each in self.status.items() if each is wanted and name not in self.refused]
            for wanted in (Status.COMPLETED, Status.LATE, None, Status.FAILED, Status.DROPPED)
        )
        expected = f" (expected {self.predicted_s:.1f} s)" if self.predicted_s > 0.0 else ""
        parts = [f"{len(used)} of {len(self.status)} updates used in {self.round_s:.1f} s{expected}: {_listed(used)}"]
        if self.round_s > self.used_s + 0.05:
            parts[0] += f", the last after {self.used_s:.1f} s"
        parts += [f"late {_listed(late)}"] * bool(late) + [f"not answered yet {_listed(waited)}"] * bool(waited)
        for what, names in (("failed", failed), ("refused", sorted(self.refused)), ("lost", lost)):
            if names:
                parts.append(f"{what} " + _listed([f"{name} ({self.reasons.get(name) or 'gone'})" for name in names]))
        if self.sway > 0.0:
            parts.append(f"losses sway {self.sway:.1f} times as much as by chance")
        resumed = " (resumed)" * self.resumed
        lines = [(logging.INFO, f"round {self.round}{resumed}: {'; '.join(parts)}")]
        newly = {name: left for name, left in self.paused.items() if left >= paused_before.get(name, left)}
        pausing = [f"{name} for {left} rounds" for name, left in newly.items()]
        if pausing:
            said = f"round {self.round}: failed again and again, and pause, owed nothing: {_listed(pausing)}"
            lines.append((logging.WARNING, said))
        if not used:
            lines.append((logging.WARNING, f"round {self.round} has no update: the model stays as it is"))
        return [(level, plain(said)) for level, said in lines]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more or "none"


_NAMED = 20


def report_of(selector: Selector, round_: OpenRound, *, capped_before: int, sway: float = math.nan) -> RoundReport:
    """The report of a round, with what the selector knows of its members after it.

    ``capped_before`` is how many times had been cut before the round, of all members.
    """
    choice = round_.choice
    outcomes = round_.outcomes
    capped = np.array([*selector.participation("capped").values()])
    return RoundReport(
        round=choice.round,
        clients=tuple(choice.clients),
        num_connected=round_.num_connected,
        num_available=round_.num_available,
        status=dict(outcomes.status),
        times_s=dict(outcomes.times_s),
        select_s=round_.select_s,
        round_s=round_.round_s,
        predicted_s=choice.predicted_s,
        members=tuple(map(str, selector.clients)),
        rate=np.array([*selector.participation_rates().values()], np.float64),
        backlog=np.array([*selector.backlog().values()], np.float64),
        edges=dict(choice.edges),
        capped=capped,
        resumed=choice.is_resumed,
        reasons=dict(outcomes.reasons),
        paused={str(name): left for name, left in selector.paused().items()},
        num_capped=max(int(capped.sum()) - capped_before, 0),
        broken=tuple(map(str, selector.below_promise())),
        used_s=round_.used_s,
        refused=frozenset(outcomes.refused),
        sway=sway,
    )


class RoundSink:
    """An observer of a selector that takes a report of each round: ``observers=[RoundSink(reports.append)]``.

    Behind an engine it takes the engine's reports.  Without one, a round is reported when all its answers are in, or
    the next one begins.  One that fills places (``select(at_most=...)``) waits for its answers until the selector gives
    it up.
    """

    behind_engine = False
    """Whether an engine's adapter sends reports; it sets this."""
    _open: Mapping[int, _Open] = MappingProxyType({})

    def __init__(self, take: Callable[[RoundReport], object]) -> None:
        """Call ``take`` with each report; a subclass with a :meth:`show` of its own needs none."""
        self._take = take

    def show(self, report: RoundReport) -> None:
        """Take a report."""
        self._take(report)

    def __call__(self, event: Any, selector: Selector | None = None, /) -> None:
        """Take a report, or an event of a selector."""
        if isinstance(event, RoundReport):
            self.show(event)
        elif not self.behind_engine and selector is not None:
            self._look(event, selector)

    def _look(self, event: Any, selector: Selector) -> None:
        over: set[int] = set()
        if isinstance(event, Decided):
            given_up = event.round - settings_of(selector).patience_rounds
            over = {number for number, one in self._open.items() if not one.in_places or number <= given_up}
            self._open = {**self._open, event.round: _Open(event, selector)}
        elif isinstance(event, Told) and event.round in self._open:
            self._open[event.round].add(event, selector)
        known = self._open
        over |= {number for number, one in known.items() if None not in one.round.outcomes.status.values()}
        self._open = {number: one for number, one in known.items() if number not in over}
        for number in sorted(over):
            self.show(report_of(selector, known[number].round, capped_before=known[number].capped_before))


class _Open:
    """A round that is not reported yet, as far as a selector has told of it."""

    def __init__(self, event: Decided, selector: Selector) -> None:
        clients = selector.ids_of(event.chosen)
        predicted_s = math.nan
        if clients and event.servers is None:
            named = cast("tuple[ClientId, ...]", clients)
            predicted_s = float(np.max([*selector.expected_times_s(event.features, clients=named).values()]))
        choice = Choice(event.round, dict.fromkeys(map(str, clients), 0), predicted_s=predicted_s)
        num_there = int(np.count_nonzero(event.seen))
        num_free = num_there - sum(map(len, event.excluded.values()))
        known = Outcomes(dict.fromkeys(choice.clients))
        self.round = OpenRound(choice, num_there, num_free, math.nan, outcomes=known, round_s=math.nan)
        self.in_places = event.asked.places is not None
        self.capped_before = sum(selector.participation("capped").values())

    def add(self, event: Told, selector: Selector) -> None:
        """Add what was reported."""
        told, outcomes = event.feedback, self.round.outcomes
        names = list(map(str, selector.ids_of(told.client)))
        outcomes.status |= zip(names, map(Status, told.status.tolist()), strict=True)
        measured = zip(names, told.exchange_time_s.tolist(), strict=True)
        outcomes.times_s |= {name: time_s for name, time_s in measured if not math.isnan(time_s)}
        known_s = outcomes.times_s.values() if event.round_s is None else [event.round_s]
        self.round.round_s = float(np.fmax.reduce([self.round.round_s, *known_s]))


class CsvLog(RoundSink):
    """Appends the metrics of each round to a CSV file; a run that was interrupted goes on in the same file.

    A last line that has no end, as a full disk leaves it, is taken away first.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Log to a file, whose folder must exist."""
        self._path = path

    def show(self, report: RoundReport) -> None:
        """Append a line."""
        metrics = report.metrics()
        with open(self._path, "a+b", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            lines = io.StringIO(newline="")
            writer = csv.writer(lines)
            if _cut_to_whole_lines(file) == 0:
                writer.writerow(metrics)
            writer.writerow([f"{value:.6f}" if isinstance(value, float) else value for value in metrics.values()])
            file.write(lines.getvalue().encode())


def _cut_to_whole_lines(file: IO[bytes]) -> int:
    """Take away what comes after the last end of a line; returns how many bytes are left."""
    file.seek(max(file.seek(0, os.SEEK_END) - _LONGEST_LINE, 0))
    start, tail = file.tell(), file.read()
    return file.truncate(start + tail.rfind(b"\n") + 1)


_LONGEST_LINE = 4096
"""More than a line of the log ever has, bytes."""
