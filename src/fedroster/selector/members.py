"""The members of a running federation: ids and the slots of arrays that they have, and what is counted of each.

A client that leaves keeps its slot, and all that was learned of it.  A client that is forgotten gives its slot back.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import InvalidInputError, StateFileError, UnknownNameError
from fedroster.core.ids import ClientId, checked_id, listed, look_of
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import grow, pack, per_client, reset, unpack
from fedroster.folder.events import Joined, Left
from fedroster.queues import AVAILABILITY_PERIOD, seen_too_rarely

_TYPES: dict[Any, Any] = {"BoolArray": np.bool_, "IntArray": np.int64, "FloatArray": np.float64}


@dataclass
class Slots:
    """What is kept of each slot's client, shape (slots,)."""

    here: BoolArray = per_client()  # whether the client is a member
    cold: BoolArray = per_client()  # whether it did not take part in the last round, the s of Huang et al. 2021
    # Rounds:
    chosen: IntArray = per_client(least=0, most="round")
    trained: IntArray = per_client(least=0, most="round")  # it answered, in time or late
    used: IntArray = per_client(least=0, most="round")  # it answered in time
    present: IntArray = per_client(least=0, most="round")  # it was a member when they began, and did not pause
    due: IntArray = per_client(least=0, most="round")  # the same for rates: cohort_size single places are one
    seen: IntArray = per_client(least=0, most="round")  # it was available
    capped: IntArray = per_client(least=0, most="round")  # its time was cut to the longest
    chosen_before: IntArray = per_client(least=0, most="round")  # chosen before the policy promised what it does
    due_before: IntArray = per_client(least=0, most="round")  # due before that
    last_round: IntArray = per_client(least=0, most="round")  # the last in which it took part; 0 for none
    last_s: FloatArray = per_client(least=0.0)  # when that was, by the time that rules count, seconds
    failed: IntArray = per_client(least=0, most="round")  # failures in a row
    paused_until: IntArray = per_client(least=0)  # the last round in which it pauses for them
    away: IntArray = per_client(least=0, most="round")  # rounds of absence in a row
    # What the guard has found:
    reports: FloatArray = per_client(least=0.0)  # times that it reported; without the first when there is a second
    mean_s: FloatArray = per_client(least=0.0)  # their mean over the last reports, seconds
    context_error: FloatArray = per_client(least=0.0)  # discounted squares of errors of its contexts, in mean times
    own_error: FloatArray = per_client(least=0.0)  # the same of its mean time
    told: FloatArray = per_client(least=0.0)  # rounds that its cohort reported in full, and whose length is known
    contradicted: FloatArray = per_client(least=0.0)  # those of them that took longer than all reported times
    costs: FloatArray = per_client(least=0.0)  # costs that were measured
    cost: FloatArray = per_client(least=0.0)  # their mean over the last ones

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return int(self.here.shape[0])

    def become(self, other: Slots) -> None:
        """Take over all arrays."""
        for each in fields(Slots):
            setattr(self, each.name, getattr(other, each.name))


def blank(capacity: int) -> Slots:
    """Slots without clients."""
    arrays = {each.name: np.zeros(capacity, _TYPES[each.type]) for each in fields(Slots)}
    return Slots(**arrays | {"cold": np.ones(capacity, np.bool_)})


_NAMED = 8  # ids that an error names
_COMPARED = 10_000  # ids among which it looks for the nearest: comparing a million takes seconds
_NUMBER = re.compile("0|-?[1-9][0-9]{0,1232}")  # texts that are an id's, too: none has more than 4,096 bits


class Members(Slots):
    """Ids of the slots, and what is kept of the clients in them."""

    def __init__(self) -> None:
        """Begin without clients, and with one slot."""
        self.ids: list[ClientId | None] = []  # None for a free slot
        self._slot_of: dict[ClientId, int] = {}
        self._odd: dict[str, ClientId] = {}  # those that do not read as they are written
        self._free: list[int] = []
        self.changes = 0  # of the names of slots, at least
        self.become(blank(1))

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Ids of the members, in the order of their slots."""
        return tuple(
            client for client, here in zip(self.ids, self.here.tolist(), strict=False) if here and client is not None
        )

    def slots(self) -> IntArray:
        """Slots of the members, ascending."""
        return np.flatnonzero(self.here)

    def slot(self, client: ClientId) -> int:
        """Slot of a member.

        Raises:
            InvalidInputError: If it is no id.
            UnknownNameError: If it is not a member.
        """
        slot = self._slot_of.get(checked_id(client))
        if slot is None or not self.here[slot]:
            raise UnknownNameError(self._unknown(client))
        return slot

    def known_slots(self, clients: Iterable[ClientId]) -> list[int]:
        """Slots of clients that are members or were, in the order in which they are named.

        Raises:
            UnknownNameError: If one has no slot.
        """
        try:
            return [self._slot_of[client] for client in clients]
        except KeyError as error:
            raise UnknownNameError(self._unknown(error.args[0])) from error

    def distinct_slots(self, clients: Iterable[ClientId]) -> IntArray:
        """Slots of distinct members, in the order in which they are named; raises as :meth:`slot` does."""
        slots = np.array([self.slot(client) for client in listed("clients", clients)], np.int64)
        distinct, count = np.unique(slots, return_counts=True)
        if distinct.shape[0] != slots.shape[0]:
            twice = self.ids[distinct[count > 1][0]]
            raise InvalidInputError(f"client {twice!r} is named twice; expected each client once")
        return slots

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

    def wanted_capacity(self, joining: Iterable[ClientId]) -> int:
        """How many slots it takes to let clients in.

        An exact fit for the first ones, doubling afterwards: joining one by one costs O(1) each on average.

        Raises:
            InvalidInputError: If one is already a member, or looks like another client that is known.
        """
        num_used = len(self.ids) - len(self._free)
        fresh: dict[str, ClientId] = {}
        for client in joining:
            slot = self._slot_of.get(client)
            if slot is None:
                num_used += 1
                twin = self._twin(client, look := look_of(client))
                if (twin := fresh.setdefault(look, client) if twin is None else twin) != client:
                    raise InvalidInputError(f"client {client!r} joins, and its name reads as that of {twin!r}")
            elif self.here[slot]:
                raise InvalidInputError(f"client {client!r} joins and is already a member")
        if num_used <= self.capacity:
            return self.capacity
        return max(num_used, 2 * self.capacity) if self.ids else num_used

    def _twin(self, client: ClientId, look: str) -> ClientId | None:
        """Another known client whose name reads the same; None if there is none."""
        others = (look, int(look) if _NUMBER.fullmatch(look) else None, self._odd.get(look))
        return next((each for each in others if each not in (None, client) and each in self._slot_of), None)

    def _note_look(self, client: ClientId) -> None:
        if isinstance(client, str) and (look := look_of(client)) != client:
            self._odd[look] = client

    def book(self, event: Joined | Left) -> None:
        """Let clients join or leave as an event says, with room for them; slots of forgotten clients are free."""
        if isinstance(event, Left):
            slots = self.distinct_slots(event.clients)
            self.here[slots] = False
            if event.forgotten:
                for client in event.clients:
                    self.ids[self._slot_of.pop(client)] = None
                    self._odd.pop(look_of(client), None)
                # The lowest slot is taken first, whatever the order of leaving: a loaded selector does the same.
                self._free = sorted((*self._free, *slots.tolist()), reverse=True)
                reset(self, blank(self.capacity), slots)
            return
        if (capacity := self.wanted_capacity(event.clients)) > self.capacity:
            self.become(grow(self, blank(capacity)))
        self.changes += 1
        for client in event.clients:
            slot = self._slot_of.get(client)
            if slot is None:
                slot = self._slot_of[client] = self._free.pop() if self._free else len(self.ids)
                self.ids[slot : slot + 1] = [client]
                self._note_look(client)
            self.here[slot] = self.cold[slot] = True

    def promise_anew(self) -> None:
        """Count from now on for what the policy promises."""
        self.chosen_before, self.due_before = self.chosen.copy(), self.due.copy()

    def rename(self, names: Mapping[ClientId, ClientId]) -> None:
        """Give clients their names back, by what stood in their place."""
        for old, name in names.items():
            slot = self._slot_of.pop(old)
            self._slot_of[name], self.ids[slot] = slot, name
            self._note_look(name)
            self.changes += 1

    def count_answers(self, feedback: Feedback) -> None:
        """Count answers of which the selector has learned."""
        self.trained[feedback.client[feedback.status <= Status.LATE]] += 1
        self.used[feedback.client[feedback.status == Status.COMPLETED]] += 1

    def count_round(self, chosen: IntArray, available: BoolArray, resting: BoolArray, *, is_whole: bool) -> None:
        """Count a round, by the slots of its cohort, which clients could be chosen, and which are owed nothing for it.

        A round is whole that does not fill places one by one, or completes those that were filled so.
        """
        self.cold[:] = True
        self.cold[chosen] = False
        self.chosen[chosen] += 1
        self.present += self.here & ~resting
        if is_whole:
            self.due += self.here & ~resting
        self.seen += available

    def availability(self) -> FloatArray:
        """Share of the rounds in which each slot's client is there; 1 as long as there were few, shape (slots,)."""
        share = self.seen / np.maximum(self.present, 1)
        return np.where(self.present < AVAILABILITY_PERIOD, 1.0, np.minimum(share, 1.0))

    def seen_too_rarely(self, rate: float) -> list[ClientId | None]:
        """Members that are available too rarely to be chosen at a rate (Choice A6)."""
        rare = self.here & seen_too_rarely(self.seen, self.present, beta=rate)
        return [self.ids[slot] for slot in np.flatnonzero(rare)]

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        return {"ids": self.ids}, pack(self)

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave."""
        capacity = header["capacity"]
        self.changes += 1
        self.ids = list(header["ids"])
        self._slot_of = {checked_id(client): slot for slot, client in enumerate(self.ids) if client is not None}
        for client in self._slot_of:
            self._note_look(client)
        self._free = [slot for slot, client in enumerate(self.ids) if client is None][::-1]
        self.become(copy.deepcopy(unpack(blank(capacity), arrays, round=header["round"])))  # others may read them, too
        nameless = [*self._free, *range(len(self.ids), capacity)]
        if len(self.ids) > capacity or len(self._slot_of) + len(nameless) != capacity or self.here[nameless].any():
            raise StateFileError(
                f"ids in the state file are {len(self._slot_of)} of {len(self.ids)} for {capacity} slots; expected "
                "distinct ones, and one for each member"
            )
        if (self.present < self.chosen).any() or (self.due > self.present).any():
            raise StateFileError("'present' or 'due' in the state file counts more rounds than there were")
