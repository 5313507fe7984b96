"""The page of a federation, from its log: who was promised what and got it, and how long rounds take."""

from __future__ import annotations

import math
import shlex
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedroster.catalogue import policy_of_label
from fedroster.errors import FedrosterError
from fedroster.lab.pages.charts import Axes, Curve, Figure, lines
from fedroster.lab.pages.report import Number, Report, Section, Table, as_html, picture
from fedroster.parts import ClientId, StatusArray, counted, write_text_atomically
from fedroster.queues import falls_short
from fedroster.record import OPEN, Log, LoggedRound
from fedroster.simulation import promised_rate
from fedroster.types import FloatArray, IntArray, Status

_ROUNDS = 40
"""Number of the last rounds that are shown; a phone shows them all."""
_SHOWN = 10
"""So many rounds and members are shown at once; the others are folded."""
_MOST_CLIENTS = 500
_LATELY = 20  # rounds
_NAMED = 12  # clients in a cell
_LOOK_S = 2.0
_LENGTHS = "Length of each round, and what the policy expected"

_ROUND_COLUMNS = (
    "round", "at", "there", "in time", "late", "lost", "open", "took, s", "longest expected, s", "cohort", "kept out",
)  # fmt: skip
_ROUND_TEXTS = ("cohort", "kept out")
_CLIENT_COLUMNS = (
    "client", "chosen in", "promised", "promise", "owed", "there", "used", "lost", "last round", "expected, s",
)  # fmt: skip

_COUNTS = np.dtype(
    [(name, np.int64) for name in ("rounds", "there", "chosen", "used", "lost", "last")]
    + [(name, np.float64) for name in ("owed", "expected_s")]
)
_UNKNOWN = np.array((0, 0, 0, 0, 0, 0, math.nan, math.nan), _COUNTS)
_NOBODY = 0
"""The row of a slot that no client has."""


class View:
    """What the page shows of a log: rounds are counted as they are decided, and again when they are answered.

    As in what a policy promises, ``cohort_size`` places that ``select(at_most=...)`` filled are one round.

    Attributes:
        names: Ids of those that ever were members, after an empty one.
        counts: What was counted of each.
        members: Rows of ``counts`` of those that are members now.
        lengths: By round its length and what was expected, seconds; NaN where it is not known.
        has_places: Whether some rounds filled places that were free while other clients were at work.
    """

    def __init__(self, log: Log) -> None:
        """Count the rounds of a log."""
        self.log = log
        self._beta, self._of = 0.0, "rounds"
        with suppress(FedrosterError):  # a plug-in that is not installed here
            self._beta, self._of = promised_rate(policy_of_label(log.header.policy))
        self.names, self.counts = [""], np.full(1, _UNKNOWN)
        self.members = np.zeros(0, np.int64)
        self.lengths: dict[int, tuple[float, float]] = {}
        self.has_places = False
        self._filled = 0
        self._row_of: dict[ClientId | None, int] = {None: _NOBODY}
        self._changes, self._rows = -1, np.zeros(0, np.int64)
        self._answered: dict[int, StatusArray] = {}
        for played in log.rounds:
            self._take(played)

    @property
    def promised(self) -> float:
        """The share of its rounds that each client is promised; 0 for none, and where the policy changed meanwhile."""
        return 0.0 if self.log.changes_policy else self._beta

    @property
    def no_promise(self) -> str:
        """Why there is none."""
        return "the policy changed, so no promise is judged" if self.log.changes_policy else "nothing is promised"

    def read_on(self) -> bool:
        """Read what the log has got since; False where it must be read again, because a line was taken back."""
        rounds = self.log.read_on()
        for number in rounds or ():
            self._take(self.log.find(number))
        return rounds is not None

    def _rows_of(self, round: int) -> IntArray:
        """The row of each slot's client in a round."""
        if (changes := self.log.memberships_at(round)) != self._changes:
            ids = self.log.ids_at(round)
            new = [each for each in dict.fromkeys(ids) if each not in self._row_of]
            self._row_of |= {each: row for row, each in enumerate(new, start=len(self.names))}
            self.names += map(str, new)
            self.counts = np.append(self.counts, np.full(len(new), _UNKNOWN))
            self._changes = changes
            self._rows = np.array([self._row_of[each] for each in ids], np.int64)
        return self._rows

    def _take(self, played: LoggedRound) -> None:
        """Count a round that is new, or the answers of one that is known."""
        rows = self._rows_of(played.round)
        chosen = rows[played.chosen]
        if played.round not in self._answered:
            self._decided(played, rows)
            self._answered[played.round] = np.full(played.chosen.shape, OPEN, np.uint8)
        for sign, status in ((-1, self._answered[played.round]), (1, played.status)):
            self.counts["used"][chosen] += sign * (status == Status.COMPLETED)
            self.counts["lost"][chosen] += sign * np.isin(status, (Status.DROPPED, Status.FAILED))
        self._answered[played.round] = played.status
        # By the server's clock, else the longest answer in time.
        length_s = played.round_s if math.isfinite(played.round_s) else played.used_s
        expected_s = math.nan
        if played.expected_s is not None and played.chosen.shape[0]:
            expected_s = float(played.expected_s[played.chosen].max())
        self.lengths[played.round] = length_s, expected_s

    def _decided(self, played: LoggedRound, rows: IntArray) -> None:
        size, ends_round = self.log.header.settings.cohort_size, True
        if played.asked.places is not None:
            filled = self._filled + played.chosen.shape[0]
            ends_round = filled >= size
            self._filled = filled % size
            self.has_places = True
        is_left_in = np.ones(rows.shape[0], np.bool_) if self._of == "rounds" else played.available.copy()
        for reason, slots in played.excluded.items():  # a client that is at work is in the round, and not available
            is_left_in[slots] = reason == "busy" and self._of == "rounds"
        slots = np.flatnonzero(played.members & (rows != _NOBODY))
        self.members = here = rows[slots]
        self.counts["rounds"][here] += ends_round & is_left_in[slots]
        self.counts["there"][here] += played.available[slots]
        if played.owed is not None:
            self.counts["owed"][here] = played.owed[slots]
        if played.expected_s is not None:
            known = np.isfinite(played.expected_s[slots])
            self.counts["expected_s"][here[known]] = played.expected_s[slots][known]
        self.counts["chosen"][rows[played.chosen]] += 1
        self.counts["last"][rows[played.chosen]] = played.round

    def members_table(self) -> tuple[Table, FloatArray]:
        """The members, the least served first, and in which share of its rounds each was chosen.

        Those that the rules leave no round come last; their share is not a number.
        """
        counts, promised = self.counts[self.members], self.promised
        rate = np.full(counts.shape, math.nan)
        np.divide(counts["chosen"], counts["rounds"], out=rate, where=counts["rounds"] > 0)
        falls = falls_short(counts["chosen"], counts["rounds"], beta=promised)
        names = [self.names[row] for row in self.members.tolist()]
        order = sorted(range(len(names)), key=lambda one: (not counts["rounds"][one], rate[one], names[one]))
        cells = []
        for one in order:
            of = counts[one]
            share = f"{rate[one]:.1%}" if counts["rounds"][one] else "kept out"
            promise = "" if not promised else "kept" if rate[one] >= promised else "broken" if falls[one] else ""
            cells.append(
                (
                    names[one], share, f"{promised:.1%}" if promised else "", promise, _number(of["owed"], ".2f"),
                    *(str(of[name]) for name in ("there", "used", "lost")), str(of["last"] or ""),
                    _number(of["expected_s"]),
                )
            )  # fmt: skip
        return Table(_CLIENT_COLUMNS, cells, text=("client",)), rate[order]

    def headline(self, least: str, rate: FloatArray, mean_s: float) -> str:
        """The answer to "is all well?" in one sentence."""
        if not self.lengths:
            return "No round has begun."
        length = f"A mean round takes {mean_s:.3g} s. " if math.isfinite(mean_s) else ""
        if not rate.shape[0] or math.isnan(rate[0]):
            return f"{length}No member is left in."
        served = f"client {least} is served least, in {rate[0]:.1%} of its rounds"
        if not self.promised:
            return f"{length}{self.no_promise.capitalize()}; {served}."
        if num_short := np.count_nonzero(rate < self.promised):
            return (
                f"{length}{num_short} of {rate.shape[0]} members are below the promised {self.promised:.1%}; {served}."
            )
        return f"{length}Each member has its promised {self.promised:.1%} of the rounds; {served}."


def page_of(view: View | None, folder: Path, *, trouble: str = "", follows: bool = False) -> str:
    """The page as HTML; without a view it says what is the trouble with the log.

    One that ``follows`` is written again when the log grows, and so loads itself again.
    """
    why = shlex.join(["fedroster", "log", "why", str(folder)])
    why = f"Read from {folder}. {why} CLIENT ROUND says why a client was chosen, or was not."
    lead = [why]
    sections = list[Section]()
    numbers = list[Number]()
    if view is not None:
        members, rate = view.members_table()
        least = members.rows[0] if members.rows else ("",) * 4
        lengths = [length for length, _ in view.lengths.values() if math.isfinite(length)]
        mean_s = float(np.mean(lengths)) if lengths else math.nan
        numbers.append(Number(str(len(view.lengths)), "rounds", there := counted(len(members.rows), "member")))
        if lengths:
            note = f"{np.mean(lengths[-_LATELY:]):.3g} s lately: expect the next ones to take as long"
            numbers.append(Number(f"{mean_s:.3g} s", "mean length of a round", note))
        if rate.shape[0] and math.isfinite(rate[0]):
            tone = {"broken": "fails", "kept": "holds"}.get(least[3], "")
            promised = f"promised {view.promised:.1%}" if view.promised else view.no_promise
            numbers.append(Number(least[1], "of its rounds for the client served least", promised, tone))
        known = f"{view.log.header.policy}: {counted(len(view.lengths), 'round')}, {there}. {view.log.lacks}".strip()
        lead, sections = [known, why], _sections(view, members)
        trouble = trouble or view.headline(least[0], rate, mean_s)
    page = Report(f"Federation in {folder.resolve().name}", lead, sections, "", headline=trouble, numbers=numbers)
    return as_html(page, template="log.html.j2", follows=follows)


def _sections(view: View, members: Table) -> list[Section]:
    rounds = Table(_ROUND_COLUMNS, [_cells(view, played) for played in view.log.rounds[-_ROUNDS:]][::-1], _ROUND_TEXTS)
    left = len(members.rows) - _MOST_CLIENTS
    notes = [f"The other {left} members are served more."] if left > 0 else []
    places = ["Rounds that fill free places are counted by places: as many as a cohort has are one round."]

    def part(table: Table, first: int, end: int) -> Table:
        return replace(table, rows=table.rows[first:end])

    # Without what a reader points at: a page that is made again with each round stays small.
    lengths = replace(picture(_lengths_figure(view), _LENGTHS, None, "lengths"), spec={})
    found = [
        Section("Length of rounds", figures=[lengths]),
        Section("Last rounds", table=part(rounds, 0, _SHOWN)),
        Section("Rounds before", table=part(rounds, _SHOWN, _ROUNDS), folded=True),
        Section("Members, the least served first", table=part(members, 0, _SHOWN), notes=places * view.has_places),
        Section("Other members", table=part(members, _SHOWN, _MOST_CLIENTS), notes=notes, folded=True),
    ]
    return [section for section in found if section.table is None or section.table.rows]


def _lengths_figure(view: View) -> Figure:
    """Lengths of rounds, and what the policy expected."""
    rounds = np.array([*view.lengths], np.float64)
    values = np.array([*view.lengths.values()], np.float64).reshape(-1, 2).T
    curves = {
        label: Curve(rounds, own, own, own) for label, own in zip(("took", "longest expected"), values, strict=True)
    }
    most = float(values[np.isfinite(values)].max(initial=0.0))
    return lines(curves, Axes("round", "seconds", range_y=(0.0, 1.05 * most or 1.0)))


def _cells(view: View, played: LoggedRound) -> tuple[str, ...]:
    names = view.log.ids_at(played.round)

    def named(slots: IntArray) -> str:
        more = f" and {slots.shape[0] - _NAMED} more" if slots.shape[0] > _NAMED else ""
        return ", ".join(str(names[slot]) for slot in slots[:_NAMED].tolist()) + more

    ends = ((Status.COMPLETED,), (Status.LATE,), (Status.DROPPED, Status.FAILED), (OPEN,))
    return (
        str(played.round),
        played.at,
        str(np.count_nonzero(played.available & played.members)),
        *(str(np.isin(played.status, end).sum()) for end in ends),
        *map(_number, view.lengths[played.round]),
        named(played.chosen),
        "; ".join(f"{reason}: {named(slots)}" for reason, slots in played.excluded.items()),
    )


def _number(value: float, form: str = ".3g") -> str:
    """A number as a cell shows it; empty where it is not known."""
    return f"{value:{form}}" if math.isfinite(value) else ""


def follow(folder: Path, file: Path) -> None:
    """Write the page again whenever the log has grown, and read only what is new; it ends by an interrupt."""
    view: View | None = None
    seen: object = None
    trouble = ""
    try:
        while True:
            now: dict[str, int] = {}
            with suppress(FileNotFoundError):  # dropped in this moment
                now = {each.name: each.stat().st_size for each in folder.glob("rounds-*")}
            if now != seen:
                seen, trouble = now, ""
                try:
                    view = view if view is not None and view.read_on() else View(Log(folder))
                except FileNotFoundError:
                    trouble = "There is no log yet; this page follows it as soon as a round begins."
                except FedrosterError as error:
                    view, trouble = None, f"The log cannot be read: {error}"
                write_text_atomically(file, page_of(view, folder, trouble=trouble, follows=True))
            time.sleep(_LOOK_S)
    finally:
        write_text_atomically(file, page_of(view, folder, trouble=trouble))  # which stays as it is
