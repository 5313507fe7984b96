"""Rounds that are not answered in full: what is awaited, what is told of it, and when it is given up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.checks import check_integer
from fedroster.core.errors import FeedbackError, InvalidInputError
from fedroster.core.problem import Feedback, Status
from fedroster.federation.members import ClientId

Again = Literal["error", "ignore"]

_OPEN = 255  # no feedback yet
_MEASURED: dict[str, tuple[str, Callable[[float], bool]]] = {
    "losses": ("", lambda value: True),
    "squared_losses": (" >= 0", lambda value: value >= 0.0),
    "num_samples": (" > 0", lambda value: value > 0.0),
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a caller says of a round, as it says it.

    Attributes:
        times_s: Exchange times, seconds, by client.
        status: How the exchange ended, by client; None where that is not known yet.  Who has a time and no status has
            completed.
        late: More clients that were late.
        dropped: More clients that dropped out.
        failed: More clients that failed.
        measured: ``losses``, ``squared_losses`` and ``num_samples``, each by client, or None.
    """

    times_s: Mapping[ClientId, float]
    status: Mapping[ClientId, Status | None] = field(default_factory=dict)
    late: Collection[ClientId] = ()
    dropped: Collection[ClientId] = ()
    failed: Collection[ClientId] = ()
    measured: Mapping[str, Mapping[ClientId, float] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the containers.

        Raises:
            InvalidInputError: If something is no mapping, or an id stands where a collection of ids is expected.
        """
        for name, values, of in (
            ("times_s is", self.times_s, "seconds"),
            ("status is", self.status, "Status"),
            *((f"{name} are", values, "number") for name, values in self.measured.items() if values is not None),
        ):
            if not isinstance(values, Mapping):
                raise InvalidInputError(f"{name} a {type(values).__name__}; expected a mapping from client to {of}")
        for name in ("late", "dropped", "failed"):
            if isinstance(getattr(self, name), str):
                raise InvalidInputError(f"{name} is the string {getattr(self, name)!r}; expected a collection of ids")

    def outcomes(self) -> Iterator[tuple[ClientId, Status]]:
        """Clients whose exchange is said to be over, and how it ended; without those of whom only a time is told.

        Raises:
            InvalidInputError: If a status is none.
        """
        for client, status in self.status.items():
            if status is not None:
                if not isinstance(status, Status):
                    raise InvalidInputError(f"status of client {client!r} is {status!r}; expected a fedroster Status")
                yield client, status
        for clients, status in ((self.late, Status.LATE), (self.dropped, Status.DROPPED), (self.failed, Status.FAILED)):
            for client in clients:
                yield client, status


@dataclass(frozen=True, slots=True)
class _Pending:
    """A round that has not been answered in full.

    Attributes:
        slot: Slots of the chosen clients, shape (k,).
        features: Their contexts, shape (k, D).
        status: What came back so far; ``_OPEN`` where nothing did, shape (k,).
        server: Servers that they serve, shape (k,); None when there is one server.
    """

    slot: IntArray
    features: FloatArray
    status: StatusArray
    server: IntArray | None = None

    def rows(self, rows: IntArray | BoolArray | slice) -> _Pending:
        """A part of it."""
        server = None if self.server is None else self.server[rows]
        return _Pending(self.slot[rows], self.features[rows], self.status[rows], server)


def _number(value: object) -> float:
    """A real number, or NaN."""
    try:
        return float("nan") if isinstance(value, bool | np.bool_ | str | bytes) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")


class _Answer:
    """What one call tells of one round, row by row; everything is checked before anything is learned."""

    def __init__(self, number: int, pending: _Pending, ids: Sequence[ClientId | None], again: Again) -> None:
        """Begin without an answer."""
        self._number = number
        self._status = pending.status
        self._row_of = {ids[slot]: row for row, slot in enumerate(pending.slot)}
        self._again = again
        self.outcomes: dict[int, Status] = {}
        self.times_s: dict[int, float] = {}

    def _row(self, client: ClientId) -> int | None:
        """Row of a chosen client; None if it was told before and that may be ignored."""
        row = self._row_of.get(client) if isinstance(client, Hashable) else None
        if row is None or isinstance(client, bool):
            chosen = list(self._row_of)
            raise FeedbackError(f"client {client!r} was not chosen in round {self._number}; chosen: {chosen}")
        if self._status[row] == _OPEN:
            return row
        if self._again == "ignore":
            return None
        raise FeedbackError(
            f"client {client!r} has given feedback for round {self._number} before; expected it once, or again='ignore'"
        )

    def take(self, told: Told) -> None:
        """Take what is told of times and outcomes."""
        for client, status in told.outcomes():
            row = self._row(client)
            if row is None:
                continue
            if status <= Status.LATE and client not in told.times_s:
                how = "late" if status is Status.LATE else "completed"
                raise FeedbackError(f"client {client!r} is {how} in round {self._number}, but has no time in times_s")
            if row in self.outcomes:
                raise self._two_outcomes(client)
            self.outcomes[row] = status
        for client, value in told.times_s.items():
            row = self._row(client)
            if row is None:
                continue
            if self.outcomes.setdefault(row, Status.COMPLETED) > Status.LATE:
                raise self._two_outcomes(client)
            self.times_s[row] = time_s = _number(value)
            if not 0.0 < time_s < float("inf"):
                raise InvalidInputError(
                    f"time of client {client!r} is {value!r}; expected a finite number of seconds > 0"
                )

    def _two_outcomes(self, client: ClientId) -> FeedbackError:
        return FeedbackError(f"client {client!r} has two outcomes in one feedback for round {self._number}")

    def measured(self, name: str, values: Mapping[ClientId, float] | None) -> FloatArray | None:
        """What clients measured, in the order of their rows; NaN where they did not, None if no client did."""
        if values is None:
            return None
        wanted, in_range = _MEASURED[name]
        found = {}
        for client, value in values.items():
            row = self._row_of.get(client) if isinstance(client, Hashable) and not isinstance(client, bool) else None
            if row is not None and self._status[row] != _OPEN and self._again == "ignore":
                continue
            if row not in self.times_s:
                raise FeedbackError(
                    f"client {client!r} is in {name} of round {self._number}, but has no time in times_s"
                )
            number = _number(value)
            if not (np.isfinite(number) and in_range(number)):
                raise InvalidInputError(f"{name} of client {client!r} is {value!r}; expected a finite number{wanted}")
            found[row] = number
        return np.array([found.get(row, np.nan) for row in sorted(self.outcomes)])


class OpenRounds:
    """The rounds of a federation that still miss feedback.

    Attributes:
        last: Number of the last round that was begun; 0 before the first.
        patience: Rounds after which missing feedback is given up.
    """

    def __init__(self, patience: int) -> None:
        """Begin before the first round.

        Raises:
            ConfigurationError: If the patience is no positive integer.
        """
        check_integer("patience_rounds", patience, least=1)
        self.last = 0
        self.patience = int(patience)
        self._pending: dict[int, _Pending] = {}

    def begin(self, number: int, slot: IntArray, features: FloatArray, server: IntArray | None) -> None:
        """Begin a round, and give one up that began ``patience`` rounds before.

        Args:
            number: Its number.
            slot: Slots of the chosen clients, shape (k,).
            features: Their contexts, shape (k, D).
            server: Servers that they serve, shape (k,); None when there is one server.
        """
        self.last = number
        self._keep(number, _Pending(slot, features, np.full(slot.shape[0], _OPEN, np.uint8), server))
        self._pending.pop(number - self.patience, None)

    def _keep(self, number: int, pending: _Pending) -> None:
        if (pending.status == _OPEN).any():
            self._pending[number] = pending
        else:
            self._pending.pop(number, None)

    def waiting(self) -> dict[int, IntArray]:
        """Slots of the clients whose feedback is missing, by round."""
        return {number: pending.slot[pending.status == _OPEN] for number, pending in self._pending.items()}

    def forget(self, slots: IntArray) -> None:
        """Wait no longer for some clients."""
        for number, pending in list(self._pending.items()):
            self._keep(number, pending.rows(~np.isin(pending.slot, slots)))

    def read(self, number: int, told: Told, ids: Sequence[ClientId | None], *, again: Again) -> Feedback | None:
        """Check what is told of a round; nothing is booked until :meth:`close`.

        Args:
            number: The round.
            told: What the caller says.
            ids: Id of each slot.
            again: Whether what was told before, or is given up, is an error or ignored.

        Returns:
            The feedback, by ascending row of the cohort; None if there is nothing new.

        Raises:
            FeedbackError: If the round is not open, or a client was not chosen in it, was told before, or has two
                outcomes, or none where one is needed.
            InvalidInputError: If a value is out of its range.
        """
        if again not in ("error", "ignore"):
            raise InvalidInputError(f"again is {again!r}; expected 'error' or 'ignore'")
        is_number = isinstance(number, int | np.integer) and not isinstance(number, bool)
        pending = self._pending.get(int(number)) if is_number else None
        if pending is None:
            if again == "ignore" and is_number and 0 < number <= self.last:
                return None
            raise FeedbackError(self._not_open(number, is_number=is_number))
        answer = _Answer(int(number), pending, ids, again)
        answer.take(told)
        loss, squared_loss, num_samples = (answer.measured(name, told.measured.get(name)) for name in _MEASURED)
        if not answer.outcomes:
            return None
        rows = np.array(sorted(answer.outcomes), np.int64)
        return Feedback(
            round=int(number),
            client=pending.slot[rows],
            features=pending.features[rows],
            status=np.array([answer.outcomes[row] for row in rows], np.uint8),
            exchange_time_s=np.array([answer.times_s.get(row, np.nan) for row in rows]),
            server=None if pending.server is None else pending.server[rows],
            loss=loss,
            squared_loss=squared_loss,
            num_samples=num_samples,
        )

    def _not_open(self, number: int, *, is_number: bool) -> str:
        open_ = f"open rounds: {sorted(self._pending) or 'none'}"
        if not is_number or not 0 < number <= self.last:
            return f"feedback for round {number!r}, which has not begun; the last one was {self.last}, {open_}"
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

    def header(self) -> dict[str, Any]:
        """What a file says of it, besides ``arrays``."""
        return {
            "round": self.last,
            "patience_rounds": self.patience,
            "pending": [[number, int(self._pending[number].slot.shape[0])] for number in sorted(self._pending)],
        }

    def arrays(self, num_features: int) -> dict[str, Any]:
        """The open rounds, one after the other; ``num_features`` is the length of contexts where there is none."""
        parts = [self._pending[number] for number in sorted(self._pending)]
        parts.append(_Pending(np.empty(0, np.int64), np.empty((0, num_features)), np.empty(0, np.uint8)))
        arrays = {
            f"pending.{name}": np.concatenate([getattr(part, name) for part in parts])
            for name in ("slot", "features", "status")
        }
        servers = [part.server for part in parts if part.server is not None]
        return arrays | ({"pending.server": np.concatenate(servers)} if servers else {})

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Take back what :meth:`header` and :meth:`arrays` gave."""
        self.last = header["round"]
        slot, features, status = (arrays[f"pending.{name}"] for name in ("slot", "features", "status"))
        kept = _Pending(slot, features, status, arrays.get("pending.server"))
        low = 0
        for number, count in header["pending"]:
            self._pending[number] = kept.rows(slice(low, low + count))
            low += count
