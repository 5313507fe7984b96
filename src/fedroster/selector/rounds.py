"""Rounds that are not answered in full: what is awaited, what is reported, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.checks import shown
from fedroster.core.errors import FeedbackError, InvalidInputError, StateFileError
from fedroster.core.ids import ClientId, is_id, listed
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import take, whole
from fedroster.folder.lines import OPEN

Again = Literal["error", "ignore"]

_MEASURED: dict[str, tuple[str, str, Callable[[Any], bool]]] = {
    "losses": ("loss", "", lambda value: True),
    "squared_losses": ("squared_loss", " >= 0", lambda value: value >= 0.0),
    "num_samples": ("num_samples", " > 0", lambda value: value > 0.0),
    "signatures": ("signature", "", lambda value: True),
}
"""What clients measure: as feedback has it, and which numbers it is."""


@dataclass(frozen=True, slots=True)
class PendingRound:
    """A round that has not been answered in full; arrays begin with k."""

    slot: IntArray  # of the chosen clients
    features: FloatArray  # contexts under which they were chosen, shape (k, D)
    told: FloatArray  # their own contexts, as they said them, shape (k, D)
    status: StatusArray  # what came back so far; ``OPEN`` where nothing did
    server: IntArray | None = None  # that they serve; None when there is one

    def rows(self, rows: IntArray | BoolArray | slice) -> PendingRound:
        """A part of it."""
        server = None if self.server is None else self.server[rows]
        return PendingRound(self.slot[rows], self.features[rows], self.told[rows], self.status[rows], server)


def _number(value: object, length: int = 0) -> Any:
    """A real number, or as many as ``length``, or NaN."""
    try:
        if length:
            found = np.array(value, np.float64)
            return found if found.shape == (length,) else float("nan")
        return float(value) if hasattr(value, "__float__") and not isinstance(value, bool | np.bool_) else float("nan")
    except Exception:  # a number beyond any float, or an object that is none
        return float("nan")


def with_contexts(feedback: Feedback, slot: IntArray, features: FloatArray, server: IntArray | None) -> Feedback:
    """Feedback that was read of a log, with the contexts and servers of the slots from which it is awaited.

    Raises:
        FeedbackError: If a client answers of whom none is.
    """
    row_of = {each: row for row, each in enumerate(slot.tolist())}
    clients = feedback.client.tolist()
    if not row_of.keys() >= set(clients) or len(set(clients)) != len(clients):
        raise FeedbackError(f"a client answers round {feedback.round} that was not chosen in it, or answers twice")
    rows = np.array([row_of[each] for each in clients], np.int64)
    return replace(feedback, features=features[rows], server=None if server is None else server[rows])


def outcomes(
    status: Mapping[ClientId, Status | None],
    late: Collection[ClientId],
    dropped: Collection[ClientId],
    failed: Collection[ClientId],
) -> Iterator[tuple[ClientId, Status]]:
    """How exchanges ended, for the clients that the caller names."""
    if not isinstance(status, Mapping):
        raise InvalidInputError(f"status is a {type(status).__name__}; expected a mapping from client to Status")
    for client, how in status.items():
        if not isinstance(how, Status | None):
            raise InvalidInputError(
                f"status of client {shown(client)} is {shown(how)}; expected a fedroster.types.Status"
            )
        if how is not None:
            yield client, how
    for name, clients in {"late": late, "dropped": dropped, "failed": failed}.items():
        for client in listed(name, clients):
            yield client, Status[name.upper()]


class _Answer:
    """What one call reports of one round, row by row; everything is checked before anything is learned."""

    def __init__(self, number: int, pending: PendingRound, ids: Sequence[ClientId | None], again: Again) -> None:
        """Begin without an answer."""
        self._number = number
        self._status = pending.status
        self._row_of = {ids[slot]: row for row, slot in enumerate(pending.slot)}
        self._again = again
        self.outcomes: dict[int, Status] = {}
        self.times_s: dict[int, float] = {}

    def _row(self, client: ClientId) -> int | None:
        """Row of a chosen client; None if it was reported before and may be ignored."""
        row = self._row_of.get(client) if is_id(client) else None
        if row is None:
            chosen = list(self._row_of)
            raise FeedbackError(f"client {shown(client)} was not chosen in round {self._number}; chosen: {chosen}")
        if self._status[row] == OPEN:
            return row
        if self._again == "ignore":
            return None
        raise FeedbackError(
            f"client {client!r} has given feedback for round {self._number} before; expected it once, or again='ignore'"
        )

    def take(self, times_s: Mapping[ClientId, float], outcomes: Iterable[tuple[ClientId, Status]]) -> None:
        """Take times and outcomes; a client with a time and no outcome has completed."""
        two = f"has two outcomes in one feedback for round {self._number}"
        for client, status in outcomes:
            if (row := self._row(client)) is None:
                continue
            if status <= Status.LATE and client not in times_s:
                how = "late" if status is Status.LATE else "completed"
                raise FeedbackError(f"client {client!r} is {how} in round {self._number}, but has no time in times_s")
            if row in self.outcomes:
                raise FeedbackError(f"client {client!r} {two}")
            self.outcomes[row] = status
        for client, value in times_s.items():
            if (row := self._row(client)) is None:
                continue
            if self.outcomes.setdefault(row, Status.COMPLETED) > Status.LATE:
                raise FeedbackError(f"client {client!r} {two}")
            self.times_s[row] = time_s = _number(value)
            if not 0.0 < time_s < float("inf"):
                raise InvalidInputError(
                    f"time of client {client!r} is {shown(value)}; expected a finite number of seconds > 0"
                )

    def measured(self, name: str, values: Mapping[ClientId, Any], length: int) -> FloatArray:
        """What clients measured, a number or ``length`` ones a row; NaN where they did not."""
        if not isinstance(values, Mapping):
            raise InvalidInputError(f"{name} are a {type(values).__name__}; expected a mapping from client to number")
        _, wanted, in_range = _MEASURED[name]
        found: dict[int, Any] = {}
        for client, value in values.items():
            row = self._row_of.get(client) if is_id(client) else None
            if row is not None and self._status[row] != OPEN and self._again == "ignore":
                continue
            if row not in self.times_s:
                raise FeedbackError(
                    f"client {shown(client)} is in {name} of round {self._number}, but has no time in times_s"
                )
            number = _number(value, length)
            if not (np.isfinite(number).all() and in_range(number)):
                expected = f"{length} finite numbers" if length else f"a finite number{wanted}"
                raise InvalidInputError(f"{name} of client {client!r} is {shown(value)}; expected {expected}")
            found[row] = number
        nothing = np.full(length, np.nan) if length else np.nan
        return np.array([found.get(row, nothing) for row in sorted(self.outcomes)])


class OpenRounds:
    """The rounds of a federation that still miss feedback."""

    def __init__(self) -> None:
        """Begin before the first round."""
        self.last = 0  # that was begun
        self.filled = 0  # places that were filled one by one since they last added up to a whole round
        self.patience = 1  # rounds after which missing feedback is given up
        self._pending: dict[int, PendingRound] = {}

    def follow(self, patience: int) -> None:
        """Take another patience, and give up the rounds for which it is over."""
        self.patience = patience
        self._pending = {number: part for number, part in self._pending.items() if number > self.last - patience}

    def begin(
        self, number: int, slot: IntArray, features: FloatArray, told: FloatArray, server: IntArray | None
    ) -> None:
        """Begin a round with the slots of its cohort, and give one up that began ``patience`` rounds before."""
        self.last = number
        self._keep(number, PendingRound(slot, features, told, np.full(slot.shape[0], OPEN, np.uint8), server))
        self._pending.pop(number - self.patience, None)

    def _keep(self, number: int, pending: PendingRound) -> None:
        if (pending.status == OPEN).any():
            self._pending[number] = pending
        else:
            self._pending.pop(number, None)

    def cohort(self, number: int) -> tuple[IntArray, FloatArray]:
        """Slots of an open round's cohort, and their own contexts."""
        pending = self._pending[number]
        return pending.slot, pending.told

    def waiting(self) -> dict[int, IntArray]:
        """Slots of the clients whose feedback is missing, by round."""
        return {number: pending.slot[pending.status == OPEN] for number, pending in self._pending.items()}

    def busy(self, capacity: int) -> BoolArray:
        """Which slots' clients still owe an answer."""
        mask = np.zeros(capacity, np.bool_)
        for slots in self.waiting().values():
            mask[slots] = True
        return mask

    def forget(self, slots: IntArray) -> None:
        """Wait no longer for some clients."""
        for number, pending in list(self._pending.items()):
            self._keep(number, pending.rows(~np.isin(pending.slot, slots)))

    def read(
        self,
        number: int,
        ids: Sequence[ClientId | None],
        times_s: Mapping[ClientId, float],
        outcomes: Iterable[tuple[ClientId, Status]],
        measured: Mapping[str, Mapping[ClientId, Any] | None],
        *,
        length: int = 0,
        again: Again,
    ) -> Feedback | None:
        """Check what :meth:`~fedroster.Selector.observe` is told of a round; nothing is booked.

        ``ids`` are those of slots, and a signature has ``length`` numbers.  The feedback is by ascending row of the
        cohort; None if there is nothing new.
        """
        if not isinstance(again, str) or again not in ("error", "ignore"):
            raise InvalidInputError(f"again is {shown(again)}; expected 'error' or 'ignore'")
        if not isinstance(times_s, Mapping):
            raise InvalidInputError(f"times_s is a {type(times_s).__name__}; expected a mapping from client to seconds")
        is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
        pending = self._pending.get(int(number)) if is_number else None
        if pending is None:
            if again == "ignore" and is_number and 0 < number <= self.last:
                return None
            raise FeedbackError(self._not_open(number, is_number=is_number))
        answer = _Answer(int(number), pending, ids, again)
        answer.take(times_s, outcomes)
        found: dict[str, Any] = {
            _MEASURED[name][0]: answer.measured(name, values, length if name == "signatures" else 0)
            for name, values in measured.items()
            if values is not None
        }
        if not answer.outcomes:
            return None
        rows = sorted(answer.outcomes)
        return Feedback(
            round=int(number),
            client=pending.slot[rows],
            features=pending.features[rows],
            status=np.array([answer.outcomes[row] for row in rows], np.uint8),
            exchange_time_s=np.array([answer.times_s.get(row, np.nan) for row in rows]),
            server=None if pending.server is None else pending.server[rows],
            staleness=self.last - int(number),
            **found,
        )

    def matched(self, feedback: Feedback) -> Feedback:
        """Feedback that was read of a log, with the contexts and servers of its round.

        Raises:
            FeedbackError: If it cannot have been told now.
        """
        if (pending := self._pending.get(feedback.round)) is None:
            raise FeedbackError(f"round {feedback.round} is not open")
        part = pending.rows(pending.status == OPEN)
        found = with_contexts(feedback, part.slot, part.features, part.server)
        return replace(found, staleness=self.last - feedback.round)

    def _not_open(self, number: int, *, is_number: bool) -> str:
        open_ = f"open rounds: {sorted(self._pending) or 'none'}"
        if not is_number or not 0 < number <= self.last:
            return f"feedback for round {shown(number)}, which has not begun; the last one was {self.last}, {open_}"
        if number <= self.last - self.patience:
            return (
                f"feedback for round {number}, which is given up: patience_rounds = {self.patience} later rounds have "
                f"begun; expected it earlier, a larger patience_rounds, or again='ignore'; {open_}"
            )
        return f"feedback for round {number}, which has all its feedback; expected it once, or again='ignore'; {open_}"

    def close(self, feedback: Feedback) -> None:
        """Book feedback that was learned."""
        pending = self._pending[feedback.round]
        pending.status[np.isin(pending.slot, feedback.client)] = feedback.status
        self._keep(feedback.round, pending)

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays of all rounds, one after the other."""
        numbers = sorted(self._pending)
        parts = [self._pending[number] for number in numbers]
        pending = [[n, len(part.slot)] for n, part in zip(numbers, parts, strict=True)]
        header = {"round": self.last, "pending": pending, "filled": self.filled}
        none = np.empty((0, 0))
        empty = PendingRound(np.empty(0, np.int64), none, none, np.empty(0, np.uint8))
        arrays = {
            f"pending.{name}": np.concatenate([getattr(part, name) for part in parts or [empty]])
            for name in ("slot", "features", "told", "status")
        }
        servers = [part.server for part in parts if part.server is not None]
        return header, arrays | ({"pending.server": np.concatenate(servers)} if servers else {})

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave."""
        self.last = header["round"]
        self.filled = whole(header, "filled", 0, header["settings"]["cohort_size"] - 1)
        pending = [dict(enumerate(entry)) for entry in header["pending"]]
        numbers = [whole(entry, 0, 1, self.last) for entry in pending]
        sizes = [whole(entry, 1, 1, header["capacity"]) for entry in pending]
        total, length = sum(sizes), header["num_features"]
        if numbers != sorted(set(numbers)) or (numbers and (numbers[0] <= self.last - self.patience or length is None)):
            raise StateFileError(f"open rounds in the state file are {numbers[:5]}...; expected some of the last ones")
        slot = take(arrays, "pending.slot", np.int64, (total,), most=header["capacity"] - 1)
        status = take(arrays, "pending.status", np.uint8, (total,))
        features = take(arrays, "pending.features", np.float64, (total, length if total else None))
        told = take(arrays, "pending.told", np.float64, features.shape)
        server = None
        if total and (budgets := header["settings"].get("budgets")):
            server = take(arrays, "pending.server", np.int64, (total,), most=len(budgets) - 1)
        kept = PendingRound(slot, features, told, status, server)
        waiting = np.bincount(slot[status == OPEN], minlength=header["capacity"])
        for name in ("trained", "used", "capped"):
            if (arrays[name] + waiting > arrays["chosen"]).any():
                raise StateFileError(f"{name!r} in the state file counts more answers than were awaited")
        named = [client is not None for client in header["ids"]] + [False] * header["capacity"]
        for number, count, end in zip(numbers, sizes, np.cumsum(sizes).tolist(), strict=True):
            self._pending[number] = part = kept.rows(slice(end - count, end))
            known = all(named[each] for each in part.slot) and np.unique(part.slot).shape[0] == count
            if not known or not np.isin(part.status, (*Status, OPEN)).all() or not (part.status == OPEN).any():
                raise StateFileError(f"open round {number} in the state file has impossible clients or outcomes")

    def imagined(self) -> Iterator[Feedback]:
        """Feedback that would close each round: a second from each client."""
        for number, pending in self._pending.items():
            part = pending.rows(pending.status == OPEN)
            done = np.full(part.slot.shape[0], Status.COMPLETED, np.uint8)
            yield Feedback(number, part.slot, part.features, done, np.ones(part.slot.shape[0]), server=part.server)
