"""What the page shows of a log: the last rounds, and what each client was guaranteed and got."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedroster.catalogue import policy_of_label
from fedroster.core.arrays import IntArray
from fedroster.core.errors import FedrosterError
from fedroster.core.problem import Status
from fedroster.queues import falls_short
from fedroster.record import Log, LoggedRound
from fedroster.record.lines import OPEN

_ROUNDS = 40
"""Number of the last rounds that are shown; a phone shows them all."""

_LATELY = 20  # rounds
_NAMED = 12  # clients in a cell


@dataclass(slots=True)
class ClientRow:
    """One member: rounds that the rules and pauses leave it, in which it was available, was chosen, and was used.

    As in what a policy promises, ``cohort_size`` places that ``select(at_most=...)`` filled are one of the ``rounds``.
    """

    name: str
    rounds: int = 0
    there: int = 0
    chosen: int = 0
    used: int = 0
    lost: int = 0
    last: int = 0
    owed: float = math.nan
    expected_s: float = math.nan

    @property
    def rate(self) -> float:
        """Share of its rounds in which it was chosen; NaN where it has none."""
        return self.chosen / self.rounds if self.rounds else math.nan

    def promise(self, promised: float) -> str:
        """Whether it has its share: "kept" or "broken"; empty where nothing is promised, or it is too early to say."""
        if not promised or not self.rounds:
            return ""
        if self.rate >= promised:
            return "kept"
        return "broken" if falls_short(self.chosen, self.rounds, beta=promised) else ""


@dataclass(frozen=True, slots=True)
class View:
    """The state of a federation, from its log.

    Attributes:
        policy: The policy.
        promised: Share of the rounds that it promises each client; 0 for none.
        num_rounds: Rounds in the log.
        num_lines: Lines in the log; the page is made again when it changes.
        rounds: The last rounds, the newest first, as cells: number, when it was decided, members
            that were available, in time, late, lost, not answered, seconds that it took and should have, cohort, and
            clients that were kept out.
        clients: Members, the least served first.
        lengths: Length of each round, seconds, and what was expected, for the picture.
        has_places: Whether some rounds filled places that were free while other clients were at work.
        mean_s: Mean length of a round, seconds; NaN where none is known.
        lately_s: The same of the last rounds.
    """

    policy: str
    promised: float
    num_rounds: int
    num_lines: int
    rounds: tuple[tuple[str, ...], ...]
    clients: tuple[ClientRow, ...]
    lengths: tuple[tuple[int, float, float], ...]
    has_places: bool
    mean_s: float
    lately_s: float

    @property
    def headline(self) -> str:
        """The answer to "is all well?" in one sentence."""
        if not self.num_rounds:
            return "No round has begun."
        length = f"A mean round takes {self.mean_s:.3g} s. " if math.isfinite(self.mean_s) else ""
        if not self.clients:
            return f"{length}The federation has no members."
        least = self.clients[0]
        if not least.rounds:
            return f"{length}The rules leave no client in."
        if not self.promised:
            return (
                f"{length}Client {least.name} is served least, in {least.rate:.1%} of its rounds; nothing is promised."
            )
        short = [each for each in self.clients if each.rate < self.promised]
        if not short:
            return (
                f"{length}Each member has its promised {self.promised:.1%} of the rounds, the least {least.rate:.1%}."
            )
        return (
            f"{length}{len(short)} of {len(self.clients)} members are below the promised {self.promised:.1%}; "
            f"client {least.name} is served least, in {least.rate:.1%} of its rounds."
        )


def view_of(log: Log) -> View:
    """Read a log."""
    clients: dict[str, ClientRow] = {}
    rows: list[tuple[str, ...]] = []
    lengths = []
    first = len(log.rounds) - _ROUNDS
    members: set[str] = set()
    filled, has_places = 0, False
    for place, played in enumerate(log.rounds):
        names = [None if each is None else str(each) for each in log.ids_at(played.round)]
        ends_round = True
        if played.asked.places is not None:
            ends_round = filled + played.chosen.shape[0] >= log.header.cohort_size
            filled, has_places = (filled + played.chosen.shape[0]) % log.header.cohort_size, True
        members = _count(played, names, clients, ends_round=ends_round)
        length_s, expected_s = _length_s(played), math.nan
        if played.expected_s is not None and played.chosen.shape[0]:
            expected_s = float(played.expected_s[played.chosen].max())
        lengths.append((played.round, length_s, expected_s))
        if place >= first:
            rows.append(_cells(played, names, length_s, expected_s))
    present = sorted((clients[name] for name in members), key=lambda each: (not each.rounds, each.rate, each.name))
    known = [length for _, length, _ in lengths if math.isfinite(length)]
    lately = [length for _, length, _ in lengths[-_LATELY:] if math.isfinite(length)]
    return View(
        policy=log.header.policy,
        promised=_promised(log),
        num_rounds=len(log.rounds),
        num_lines=log.num_lines,
        rounds=tuple(reversed(rows)),
        clients=tuple(present),
        lengths=tuple(lengths),
        has_places=has_places,
        mean_s=float(np.mean(known)) if known else math.nan,
        lately_s=float(np.mean(lately)) if lately else math.nan,
    )


def _promised(log: Log) -> float:
    try:
        policy: Any = policy_of_label(log.header.policy)
    except FedrosterError:  # a plug-in that is not installed here
        return 0.0
    return float(getattr(policy, "beta", 0.0))


def _count(
    played: LoggedRound, names: list[str | None], clients: dict[str, ClientRow], *, ends_round: bool
) -> set[str]:
    """Count one round; the names of its members."""
    members, available = set(), played.available
    kept_out = np.zeros(played.members.shape[0], np.bool_)
    for reason, slots in played.excluded.items():
        kept_out[slots] = reason != "busy"  # a client that is at work is in the round
    for slot in np.flatnonzero(played.members).tolist():
        name = names[slot]
        if name is None:
            continue
        members.add(name)
        client = clients.setdefault(name, ClientRow(name))
        client.rounds += ends_round and not kept_out[slot]
        client.there += bool(available[slot])
        if played.owed is not None:
            client.owed = float(played.owed[slot])
        if played.expected_s is not None and math.isfinite(played.expected_s[slot]):
            client.expected_s = float(played.expected_s[slot])
    for slot, status in zip(played.chosen.tolist(), played.status.tolist(), strict=True):
        if (name := names[slot]) is None:
            continue
        client = clients.setdefault(name, ClientRow(name))
        client.chosen += 1
        client.used += status == Status.COMPLETED
        client.lost += status in (Status.DROPPED, Status.FAILED)
        client.last = played.round
    return members


def _length_s(played: LoggedRound) -> float:
    """How long a round took: by the server's clock, else the longest answer in time; NaN where neither is known."""
    if math.isfinite(played.round_s):
        return played.round_s
    times_s = played.exchange_time_s[(played.status == Status.COMPLETED) & np.isfinite(played.exchange_time_s)]
    return float(times_s.max()) if times_s.shape[0] else math.nan


def _cells(played: LoggedRound, names: list[str | None], length_s: float, expected_s: float) -> tuple[str, ...]:
    def named(slots: IntArray) -> str:
        more = f" and {slots.shape[0] - _NAMED} more" if slots.shape[0] > _NAMED else ""
        return ", ".join(str(names[slot]) for slot in slots[:_NAMED].tolist()) + more

    ends = ((Status.COMPLETED,), (Status.LATE,), (Status.DROPPED, Status.FAILED), (OPEN,))
    return (
        str(played.round),
        played.at,
        str(np.count_nonzero(played.available & played.members)),
        *(str(np.isin(played.status, end).sum()) for end in ends),
        number(length_s),
        number(expected_s),
        named(played.chosen),
        "; ".join(f"{reason}: {named(slots)}" for reason, slots in played.excluded.items()),
    )


def number(value: float, form: str = ".3g") -> str:
    """A number as a cell shows it; empty where it is not known."""
    return f"{value:{form}}" if math.isfinite(value) else ""
