"""Who belongs to a running federation, who was chosen, what came back, and what is still missing.

:class:`Ledger` is what selectors of flat federations and of ones with edge servers share: ids and rows, joining and
leaving, feedback in parts, counters, files.  How a cohort is asked for is theirs.
"""

from __future__ import annotations

import difflib
import os
import warnings
from abc import ABC
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import (
    ConfigurationError,
    FairnessWarning,
    FeedbackError,
    InfeasibleError,
    InvalidInputError,
    StateFileError,
    UnknownNameError,
)
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import AnyPolicy, check_policy
from fedroster.core.state import grow, is_label_of, load_arrays, pack, reset, save_arrays, unpack
from fedroster.core.streams import Streams
from fedroster.estimation.ridge import RidgeState, lower_bounds

ClientId: TypeAlias = str | int

_OPEN = 255  # no feedback yet
_AVAILABILITY_PERIOD = 64  # rounds between two looks at who is seen too rarely
_NAMED = 8  # ids that an error names
_MEASURED: dict[str, tuple[str, Callable[[float], bool]]] = {
    "losses": ("", lambda value: True),
    "squared_losses": (" >= 0", lambda value: value >= 0.0),
    "num_samples": (" > 0", lambda value: value > 0.0),
}
_COMPARED = 10_000  # ids among which it looks for the nearest: comparing a million takes seconds


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
    status: np.ndarray[Any, np.dtype[np.uint8]]
    server: IntArray | None = None

    def rows(self, rows: IntArray | BoolArray) -> _Pending:
        """A part of it."""
        server = None if self.server is None else self.server[rows]
        return _Pending(self.slot[rows], self.features[rows], self.status[rows], server)


def checked_id(client: object) -> ClientId:
    """Return a client's id.

    Raises:
        InvalidInputError: If it is neither a string nor an integer.
    """
    if isinstance(client, np.integer):
        return int(client)
    if isinstance(client, bool) or not isinstance(client, str | int):
        raise InvalidInputError(f"client id is {client!r}; expected a string or an integer")
    return client


def checked_ids(clients: Iterable[ClientId]) -> list[ClientId]:
    """Return ids of distinct clients.

    Raises:
        InvalidInputError: If one is no id or occurs twice.
    """
    if isinstance(clients, str):
        raise InvalidInputError(f"clients are the string {clients!r}; expected a collection of ids")
    ids = [checked_id(client) for client in clients]
    if len(set(ids)) != len(ids):
        twice = next(client for client, count in Counter(ids).items() if count > 1)
        raise InvalidInputError(f"client {twice!r} occurs twice in one call; expected distinct ids")
    return ids


class Ledger(ABC):
    """Members, counters, open rounds and files of a running federation.

    Rounds are numbered from 1.  The feedback of a round may come late, in parts, or never: a client's row is open
    until it is answered or ``patience_rounds`` later rounds have begun.
    """

    _KIND: ClassVar[str]
    """What its files are."""

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        cohort_size: int,
        num_features: int,
        num_servers: int = 1,
        seed: int = 0,
        patience_rounds: int = 100,
        longest_s: float | None = None,
    ) -> None:
        """Start a federation without clients.

        Args:
            policy: Decides; must not be omniscient.
            cohort_size: Largest number of clients in a round, m.
            num_features: Length D of a client's context.
            num_servers: Number of servers.
            seed: Seed of the random streams that break ties.
            patience_rounds: Rounds after which missing feedback is given up.
            longest_s: Longer exchange times count as this, seconds, > 0; None for no cap.

        Raises:
            ConfigurationError: If a parameter is out of its range or the policy needs a simulation.
        """
        check_policy(policy)
        if policy.omniscient:
            raise ConfigurationError(
                f"{type(policy).__name__} knows the network's true times; it runs in simulations only"
            )
        check_integer("patience_rounds", patience_rounds, least=1)
        self._policy = policy
        self._streams = Streams(seed)
        self._patience = int(patience_rounds)
        self.longest_s = longest_s
        self._round = 0
        self._strangers = 0
        self._last_look = 0
        self._ids: list[ClientId | None] = []
        self._slot_of: dict[ClientId, int] = {}
        self._free: list[int] = []
        self._pending: dict[int, _Pending] = {}
        # Checks the sizes before the first client is there.
        self._spec = ProblemSpec(1, cohort_size, num_features, num_servers)
        # Python's own integers, which a file's header can hold.
        self._spec = ProblemSpec(1, int(cohort_size), int(num_features), int(num_servers))
        self._state = policy.init(self._spec, rng=self._init_rng())
        self._members = np.zeros(1, np.bool_)
        self._cold = np.ones(1, np.bool_)
        self._chosen = np.zeros(1, np.int64)
        self._present = np.zeros(1, np.int64)
        self._seen = np.zeros(1, np.int64)
        self._capped = np.zeros(1, np.int64)

    def _init_rng(self) -> np.random.Generator:
        # A stranger in a forgotten client's slot draws anew.
        return self._streams.at("policy-init", *([self._strangers] if self._strangers else []))

    # ---------------------------------------------------------------- who belongs

    @property
    def policy(self) -> AnyPolicy:
        """The policy."""
        return self._policy

    @property
    def round(self) -> int:
        """Number of the last round that was begun; 0 before the first."""
        return self._round

    @property
    def cohort_size(self) -> int:
        """Largest number of clients in a round, m."""
        return self._spec.cohort_size

    @property
    def num_features(self) -> int:
        """Length D of a client's context."""
        return self._spec.num_features

    @property
    def longest_s(self) -> float | None:
        """Longer exchange times count as this, seconds; None for no cap.  It may be set anew between rounds."""
        return self._longest_s

    @longest_s.setter
    def longest_s(self, value: float | None) -> None:
        if value is not None:
            check_number("longest_s", value, above=0.0)
        self._longest_s = None if value is None else float(value)

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Ids of the members, in the order of rows that array arguments follow."""
        return tuple(client for client in self._ids if client is not None and self._members[self._slot_of[client]])

    def join(self, clients: Iterable[ClientId]) -> None:
        """Let clients in, new ones or ones that had left (they keep what was learned of them).

        Args:
            clients: Ids.

        Raises:
            InvalidInputError: If an id is neither a string nor an integer, occurs twice or is a member already.

        Warns:
            FairnessWarning: If the policy's promise cannot be kept for so many members.
        """
        ids = checked_ids(clients)
        for client in ids:
            if client in self._slot_of and self._members[self._slot_of[client]]:
                raise InvalidInputError(f"client {client!r} joins and is a member already")
        unknown = [client for client in ids if client not in self._slot_of]
        self._reserve(len(self._ids) - len(self._free) + len(unknown))
        for client in unknown:
            if self._free:
                slot = self._free.pop()
                self._ids[slot] = client
            else:
                slot = len(self._ids)
                self._ids.append(client)
            self._slot_of[client] = slot
        slots = np.array([self._slot_of[client] for client in ids], np.int64)
        self._members[slots] = True
        self._cold[slots] = True
        self._check_promise()

    def leave(self, clients: Iterable[ClientId], *, forget: bool = False) -> None:
        """Let members go.  Their queues rest, and late feedback from them is still accepted.

        Args:
            clients: Ids.
            forget: Also delete what was learned of them; a client of the same id is a stranger then.

        Raises:
            InvalidInputError: If an id occurs twice.
            UnknownNameError: If one is not a member.
        """
        slots = [self._member_slot(client) for client in checked_ids(clients)]
        self._members[slots] = False
        if forget:
            for slot in slots:
                del self._slot_of[self._ids[slot]]  # type: ignore[arg-type]
                self._ids[slot] = None
            # The lowest slot is taken first, whatever the order of leaving: a loaded selector does the same.
            self._free = sorted((*self._free, *slots), reverse=True)
            gone = np.array(slots, np.int64)
            self._forget(gone)
            for number, pending in list(self._pending.items()):
                stays = ~np.isin(pending.slot, gone)
                self._keep_open(number, pending.rows(stays))

    def _member_slot(self, client: ClientId) -> int:
        slot = self._slot_of.get(checked_id(client))
        if slot is None or not self._members[slot]:
            raise UnknownNameError(self._unknown(client))
        return slot

    def _unknown(self, client: ClientId) -> str:
        members = self.clients
        near = difflib.get_close_matches(
            str(client), [str(known) for known in islice(members, _COMPARED)], n=1, cutoff=0.5
        )
        nearest = next((known for known in members if near and str(known) == near[0]), None)
        hint = "" if nearest is None else f" Did you mean {nearest!r}?"
        named = ", ".join(repr(known) for known in members[:_NAMED]) or "none"
        rest = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        return f"unknown client {client!r}.{hint} Members: {named}{rest}."

    def _reserve(self, wanted: int) -> None:
        capacity = self._spec.num_clients
        if wanted <= capacity:
            return
        # An exact fit for the first batch, doubling afterwards: joining one by one costs O(1) each on average.
        capacity = wanted if not self._ids else max(wanted, 2 * capacity)
        spec = replace(self._spec, num_clients=capacity)
        fresh = self._policy.init(spec, rng=self._init_rng())
        self._state = grow(self._state, fresh) if self._ids else fresh
        more = capacity - self._spec.num_clients
        self._spec = spec
        self._members = np.append(self._members, np.zeros(more, np.bool_))
        self._cold = np.append(self._cold, np.ones(more, np.bool_))
        for name in ("_chosen", "_present", "_seen", "_capped"):
            setattr(self, name, np.append(getattr(self, name), np.zeros(more, np.int64)))

    def _forget(self, slots: IntArray) -> None:
        self._strangers += 1
        reset(self._state, self._policy.init(self._spec, rng=self._init_rng()), slots)
        self._cold[slots] = True
        for counter in (self._chosen, self._present, self._seen, self._capped):
            counter[slots] = 0

    def _check_promise(self) -> None:
        num_members = int(np.count_nonzero(self._members))
        if num_members == 0:
            return
        try:
            self._policy.check(replace(self._spec, num_clients=num_members))
        except InfeasibleError as error:
            warnings.warn(str(error), FairnessWarning, stacklevel=3)

    # ---------------------------------------------------------------- what is known

    def cold(self) -> BoolArray:
        """The paper's s: whether each member, in the order of ``clients``, did not take part in the last round."""
        return self._cold[self._order()]

    def participation(self) -> IntArray:
        """How often each member, in the order of ``clients``, was chosen."""
        return self._chosen[self._order()]

    def participation_rates(self) -> FloatArray:
        """How often each member, in the order of ``clients``, was chosen, by the rounds in which it was a member."""
        order = self._order()
        return self._chosen[order] / np.maximum(self._present[order], 1)

    def capped(self) -> IntArray:
        """How many times of each member, in the order of ``clients``, were cut to ``longest_s``."""
        return self._capped[self._order()]

    def backlog(self) -> FloatArray:
        """Virtual queue of each member, in the order of ``clients``, rounds owed; empty for policies without queues."""
        queues: FloatArray | None = getattr(self._state, "backlog", None)
        return np.empty(0) if queues is None else queues[self._order()]

    def expected_times_s(self, features: ArrayLike, *, clients: Sequence[ClientId]) -> FloatArray:
        """Exchange times that the policy expects, without its optimism, shape (clients,), seconds.

        Args:
            features: Contexts, shape (clients, D).
            clients: Ids of members.

        Returns:
            NaN from policies that believe nothing about times.

        Raises:
            InvalidInputError: If the contexts are malformed.
            UnknownNameError: If a client is not a member.
        """
        slots = np.array([self._member_slot(client) for client in clients], np.int64)
        rows = self._vectors(features, slots)
        belief = getattr(self._state, "ridge", None)
        if not isinstance(belief, RidgeState) or not slots.shape[0]:
            return np.full(slots.shape[0], np.nan)
        return lower_bounds(belief, rows, alpha=0.0, client=slots)

    def open_rounds(self) -> dict[int, tuple[ClientId, ...]]:
        """Rounds with missing feedback, and the clients that it is missing from."""
        return {
            number: tuple(self._ids[slot] for slot in pending.slot[pending.status == _OPEN])
            for number, pending in self._pending.items()
        }

    def _order(self) -> IntArray:
        return np.flatnonzero(self._members)

    # ---------------------------------------------------------------- ask

    def _vectors(self, features: ArrayLike | list[ArrayLike], slots: IntArray) -> FloatArray:
        """Contexts of some slots as an array, of the right shape."""
        rows = (
            self._matrix(features) if len(slots) or not isinstance(features, list) else np.empty((0, self.num_features))
        )
        expected = (slots.shape[0], self.num_features)
        if rows.shape != expected:
            raise InvalidInputError(f"features have shape {rows.shape}; expected {expected}, (clients, features)")
        return rows

    def _matrix(self, features: ArrayLike | list[ArrayLike]) -> FloatArray:
        try:
            given = np.asarray(features)
            if given.dtype.kind not in "biufO":
                raise TypeError(f"they are of type {given.dtype}")
            rows = given.astype(np.float64, copy=False)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"features are not an array of numbers ({error}); expected {self._spec.num_features} for each client"
            ) from error
        if rows.ndim != 2:
            raise InvalidInputError(
                f"features have shape {rows.shape}; expected (clients, {self._spec.num_features}), a list of "
                f"{self._spec.num_features} for each client"
            )
        return rows

    def _check_vectors(self, slots: IntArray, rows: FloatArray, usable: BoolArray) -> None:
        known = rows if usable.all() else rows[usable]
        # Two passes without a temporary; NaN fails the first comparison.
        if not known.size or (known.min() >= 0.0 and known.max() < np.inf):
            return
        wrong = usable & ~((rows >= 0.0) & (rows < np.inf)).all(axis=1)
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"features of client {self._ids[slots[row]]!r} are {rows[row].tolist()}; expected finite numbers >= 0"
        )

    def _distinct_slots(self, clients: Sequence[ClientId]) -> IntArray:
        slots = np.array([self._member_slot(client) for client in clients], np.int64)
        if np.unique(slots).shape[0] != slots.shape[0]:
            twice = next(client for client in clients if list(clients).count(client) > 1)
            raise InvalidInputError(f"client {twice!r} has two rows; expected one for each client")
        return slots

    def _book(self, context: RoundContext, selection: Selection) -> IntArray:
        """Begin the round that was decided; returns the slots of the chosen clients."""
        links = selection.links
        chosen = context.clients_of(links)
        self._state = self._policy.commit(self._state, context, selection)
        self._round = context.round
        self._cold[:] = True
        self._cold[chosen] = False
        self._chosen[chosen] += 1
        self._present += self._members
        if context.client is None:
            self._seen += context.available
        else:
            self._seen[np.unique(context.client[context.available])] += 1
        server = None if context.server is None else context.server[links]
        status = np.full(chosen.shape[0], _OPEN, np.uint8)
        self._keep_open(context.round, _Pending(chosen, context.features[links], status, server))
        self._pending.pop(context.round - self._patience, None)
        return chosen

    def _keep_open(self, number: int, pending: _Pending) -> None:
        if (pending.status == _OPEN).any():
            self._pending[number] = pending
        else:
            self._pending.pop(number, None)

    def _report_unseen(self) -> None:
        """Warn of members whose availability makes their guaranteed rate impossible (Choice A6)."""
        rate = getattr(self._policy, "beta", 0.0)
        if not rate or self._round == self._last_look or self._round % _AVAILABILITY_PERIOD:
            return
        self._last_look = self._round  # once: whoever turns warnings into errors can go on
        rounds = self._present
        # Three standard deviations below the rate, so that chance alone hardly ever warns.
        margin = 3.0 * np.sqrt(rate * (1.0 - rate) * np.maximum(rounds, 1))
        rare = self._members & (rounds >= _AVAILABILITY_PERIOD) & (self._seen < rate * rounds - margin)
        if rare.any():
            named = [self._ids[slot] for slot in np.flatnonzero(rare)[:5]]
            warnings.warn(
                f"beta = {rate} cannot be met for {int(rare.sum())} clients that are available less often, "
                f"such as {named}; their queues grow without bound",
                FairnessWarning,
                stacklevel=3,
            )

    # ---------------------------------------------------------------- tell

    def observe(
        self,
        round: int,
        *,
        times_s: Mapping[ClientId, float] | None = None,
        late: Collection[ClientId] = (),
        dropped: Collection[ClientId] = (),
        failed: Collection[ClientId] = (),
        losses: Mapping[ClientId, float] | None = None,
        squared_losses: Mapping[ClientId, float] | None = None,
        num_samples: Mapping[ClientId, float] | None = None,
    ) -> None:
        """Tell what came back from a round: all of it, a part, or a part that comes late.

        Args:
            round: The cohort's round.
            times_s: Measured exchange times of clients that answered, seconds, > 0; those beyond ``longest_s`` count as
                it.
            late: Those of ``times_s`` that missed the deadline.
            dropped: Clients that will not answer.
            failed: Clients that answered with an error.
            losses: Mean loss, over a client's samples, of the model that it was sent, for any of ``times_s``.  Policies
                that set ``wants_losses`` learn from it and from the next two; others do not.
            squared_losses: Mean over the same samples of the squared loss, >= 0, likewise.
            num_samples: How many samples they are, > 0, likewise.

        Raises:
            FeedbackError: If the round is unknown, a client was not chosen, or its feedback came before; or a loss or
                sample count is of a client without a time.  Nothing is learned then.
            InvalidInputError: If a time is not a positive, finite number, or a loss or sample count not in its range.
        """
        times = {} if times_s is None else times_s
        if not isinstance(times, Mapping):
            raise InvalidInputError(f"times_s is a {type(times).__name__}; expected a mapping from client to seconds")
        is_number = isinstance(round, int | np.integer) and not isinstance(round, bool)
        pending = self._pending.get(int(round)) if is_number else None
        if pending is None:
            raise FeedbackError(
                f"feedback for round {round!r}, which is unknown or has all its feedback; "
                f"open rounds: {sorted(self._pending) or 'none'}"
            )
        for name, clients in (("late", late), ("dropped", dropped), ("failed", failed)):
            if isinstance(clients, str):
                raise InvalidInputError(f"{name} is the string {clients!r}; expected a collection of ids")
        row_of = {self._ids[slot]: row for row, slot in enumerate(pending.slot)}
        answers: dict[int, tuple[Status, float]] = {}
        for clients, status in ((times, Status.COMPLETED), (dropped, Status.DROPPED), (failed, Status.FAILED)):
            for client in clients:
                row = self._open_row(client, round, row_of, pending)
                if row in answers:
                    raise FeedbackError(f"client {client!r} has two outcomes in one feedback for round {round}")
                time_s = self._checked_time(client, times[client]) if status is Status.COMPLETED else float("nan")
                answers[row] = (status, time_s)
        for client in late:
            row = self._open_row(client, round, row_of, pending)
            if row not in answers or answers[row][0] is not Status.COMPLETED:
                raise FeedbackError(f"client {client!r} is late in round {round}, but has no time in times_s")
            answers[row] = (Status.LATE, answers[row][1])
        rows = np.array(sorted(answers), np.int64)
        loss, squared_loss, counts = (
            self._measured(name, values, round, row_of, answers, rows)
            for name, values in (("losses", losses), ("squared_losses", squared_losses), ("num_samples", num_samples))
        )
        if not answers:
            return
        measured_s = np.array([answers[row][1] for row in rows])
        longest_s = np.inf if self._longest_s is None else self._longest_s
        feedback = Feedback(
            round=int(round),
            client=pending.slot[rows],
            features=pending.features[rows],
            status=np.array([answers[row][0] for row in rows], np.uint8),
            exchange_time_s=np.minimum(measured_s, longest_s),
            server=None if pending.server is None else pending.server[rows],
            loss=loss,
            squared_loss=squared_loss,
            num_samples=counts,
        )
        self._state = self._policy.update(self._state, feedback)
        pending.status[rows] = feedback.status
        self._capped[feedback.client[measured_s > longest_s]] += 1
        self._keep_open(int(round), pending)

    def _open_row(self, client: ClientId, round: int, row_of: Mapping[ClientId | None, int], pending: _Pending) -> int:
        row = row_of.get(client) if isinstance(client, Hashable) else None
        if row is None or isinstance(client, bool):
            raise FeedbackError(f"client {client!r} was not chosen in round {round}; chosen: {list(row_of)}")
        if pending.status[row] != _OPEN:
            raise FeedbackError(f"client {client!r} has given feedback for round {round} before")
        return row

    @staticmethod
    def _measured(
        name: str,
        values: Mapping[ClientId, float] | None,
        round: int,
        row_of: Mapping[ClientId | None, int],
        answers: Mapping[int, tuple[Status, float]],
        rows: IntArray,
    ) -> FloatArray | None:
        """What clients measured, in the order of ``rows``; NaN where they did not, None if nobody did."""
        if values is None:
            return None
        if not isinstance(values, Mapping):
            raise InvalidInputError(f"{name} are a {type(values).__name__}; expected a mapping from client to number")
        found = {}
        for client, value in values.items():
            row = row_of.get(client) if isinstance(client, Hashable) and not isinstance(client, bool) else None
            if row is None or np.isnan(answers.get(row, (Status.FAILED, np.nan))[1]):
                raise FeedbackError(f"client {client!r} is in {name} of round {round}, but has no time in times_s")
            try:
                number = float("nan") if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
            except (TypeError, ValueError):
                number = float("nan")
            wanted, in_range = _MEASURED[name]
            if not (np.isfinite(number) and in_range(number)):
                raise InvalidInputError(f"{name} of client {client!r} is {value!r}; expected a finite number{wanted}")
            found[row] = number
        return np.array([found.get(row, np.nan) for row in rows])

    @staticmethod
    def _checked_time(client: ClientId, value: float) -> float:
        try:
            time_s = float("nan") if isinstance(value, bool | np.bool_ | str | bytes) else float(value)
        except (TypeError, ValueError):
            time_s = float("nan")
        if not 0.0 < time_s < float("inf"):
            raise InvalidInputError(f"time of client {client!r} is {value!r}; expected a finite number of seconds > 0")
        return time_s

    # ---------------------------------------------------------------- keep

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything that :meth:`load` needs, atomically and without pickles.

        Args:
            path: File to create or replace.
        """
        numbers = sorted(self._pending)
        pending = [self._pending[number] for number in numbers]
        header = {
            "policy": repr(self._policy),
            **self._settings(),
            "cohort_size": self._spec.cohort_size,
            "num_features": self._spec.num_features,
            "capacity": self._spec.num_clients,
            "seed": int(self._streams.seed),
            "patience_rounds": self._patience,
            "longest_s": self._longest_s,
            "round": self._round,
            "strangers": self._strangers,
            "ids": self._ids,
            "pending": [[number, int(part.slot.shape[0])] for number, part in zip(numbers, pending, strict=True)],
        }
        empty = _Pending(np.empty(0, np.int64), np.empty((0, self._spec.num_features)), np.empty(0, np.uint8))
        arrays = pack(self._state, "policy.") | {
            "members": self._members,
            "cold": self._cold,
            "chosen": self._chosen,
            "present": self._present,
            "seen": self._seen,
            "capped": self._capped,
            "pending.slot": np.concatenate([part.slot for part in (*pending, empty)]),
            "pending.features": np.concatenate([part.features for part in (*pending, empty)]),
            "pending.status": np.concatenate([part.status for part in (*pending, empty)]),
        }
        servers = [part.server for part in pending if part.server is not None]
        if servers:
            arrays["pending.server"] = np.concatenate(servers)
        save_arrays(path, arrays, header, kind=self._KIND)

    def _settings(self) -> dict[str, Any]:
        """What the constructor is given beyond the policy and the sizes, as it stands in a file's header."""
        return {}

    @classmethod
    def load(cls, path: str | os.PathLike[str], policy: AnyPolicy) -> Self:
        """Go on where :meth:`save` stopped: the next decisions equal those of a run without interruption.

        Args:
            path: The file.
            policy: The same policy; a file never says which code to run.

        Raises:
            FileNotFoundError: If there is no such file.
            StateFileError: If the file is damaged, foreign, or belongs to another policy.
        """
        arrays, header = load_arrays(path, kind=cls._KIND)
        if not is_label_of(header.get("policy"), policy):
            raise StateFileError(f"{os.fspath(path)!r} belongs to {header.get('policy')}; expected {policy!r}")
        try:
            selector = cls(
                policy,
                cohort_size=header["cohort_size"],
                num_features=header["num_features"],
                seed=header["seed"],
                patience_rounds=header["patience_rounds"],
                longest_s=header.get("longest_s"),  # files from before there was a cap have none
                **cls._arguments(header),
            )
            selector._restore(arrays, header)
        except (KeyError, TypeError, IndexError) as error:
            raise StateFileError(f"{os.fspath(path)!r} lacks a part of a {cls._KIND} ({error!r})") from error
        return selector

    @classmethod
    def _arguments(cls, header: Mapping[str, Any]) -> dict[str, Any]:
        """The reverse of :meth:`_settings`."""
        return {}

    def _restore(self, arrays: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        self._spec = replace(self._spec, num_clients=header["capacity"])
        self._state = unpack(self._policy.init(self._spec, rng=self._init_rng()), arrays, "policy.")
        self._round = header["round"]
        self._strangers = header["strangers"]
        self._ids = list(header["ids"])
        self._slot_of = {client: slot for slot, client in enumerate(self._ids) if client is not None}
        self._free = [slot for slot, client in enumerate(self._ids) if client is None][::-1]
        for name in ("members", "cold", "chosen", "present", "seen"):
            setattr(self, f"_{name}", arrays[name])
        self._capped = arrays["capped"] if "capped" in arrays else np.zeros(self._spec.num_clients, np.int64)
        low = 0
        server = arrays.get("pending.server")
        for number, count in header["pending"]:
            part = slice(low, low + count)
            self._pending[number] = _Pending(
                arrays["pending.slot"][part],
                arrays["pending.features"][part],
                arrays["pending.status"][part],
                None if server is None else server[part],
            )
            low += count
