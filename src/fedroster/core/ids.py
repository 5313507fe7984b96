"""Ids by which the outside knows clients."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import InvalidInputError

ClientId: TypeAlias = str | int

_LONGEST_ID, _LONGEST_NUMBER = 1000, 4096  # characters, bits: every page, message and line of a log may hold it
_UNSEEN = {"Cc", "Cf"}  # Unicode's categories of marks that are not seen, such as a zero-width space
_DASHES = dict.fromkeys([*range(0x2010, 0x2016), 0x2212], "-")  # the last is the minus


class ClientSlots(Protocol):
    """Which client has which slot.

    Attributes:
        ids: Id of each slot; None for a free one.
        here: Whether the slot's client is a member.
        chosen: Rounds in which it was chosen.
        last_round: The last round in which it took part; 0 for none.
        last_s: When that was, by the time that rules count, seconds.
        changes: How often the names of slots may have changed.
    """

    ids: list[ClientId | None]
    here: BoolArray
    chosen: IntArray
    last_round: IntArray
    last_s: FloatArray
    changes: int

    @property
    def capacity(self) -> int:
        """Number of slots."""
        ...

    def slots(self) -> IntArray:
        """Slots of the members, ascending."""
        ...


def checked_id(client: object) -> ClientId:
    """Return a client's id.

    Raises:
        InvalidInputError: If it is neither a string of at most 1,000 characters nor an integer of at most 4,096 bits.
    """
    if isinstance(client, np.integer):
        return int(client)
    if isinstance(client, bool) or not isinstance(client, str | int):
        raise InvalidInputError(f"client id is {shown(client)}; expected a string or an integer")
    if isinstance(client, int) and client.bit_length() > _LONGEST_NUMBER:
        raise InvalidInputError(f"client id is {shown(client)}; expected an integer of at most {_LONGEST_NUMBER} bits")
    if isinstance(client, str) and len(client) > _LONGEST_ID:
        raise InvalidInputError(
            f"client id is {shown(client)}, of {len(client):,} characters; expected at most {_LONGEST_ID:,}"
        )
    return client


def is_id(client: object) -> bool:
    """Whether something can be a client's id: 1.0 equals the id 1 and is none."""
    return isinstance(client, str | int | np.integer) and not isinstance(client, bool)


def look_of(client: ClientId) -> str:
    """An id as people read it: what looks the same is one name, 1 and "1" as well as both ways to write an accent.

    Every dash is a hyphen, and blanks at the ends or in a row are not seen.  Letters of different alphabets that look
    alike stay apart.
    """
    text = str(client)
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", text).translate(_DASHES)
        text = "".join(mark for mark in text if unicodedata.category(mark) not in _UNSEEN)
    return " ".join(text.split()) if " " in text else text


def listed(name: str, clients: object) -> list[Any]:
    """What a caller names in a collection.

    Raises:
        InvalidInputError: If it is none, or a text, whose letters would count as ids.
    """
    if isinstance(clients, str | bytes | bytearray | memoryview):
        raise InvalidInputError(f"{name} is the string {shown(clients)}; expected a collection of ids")
    if not isinstance(clients, Iterable) or (isinstance(clients, np.ndarray) and clients.ndim != 1):
        raise InvalidInputError(f"{name} are {shown(clients)}; expected a collection of ids")
    return list(clients)


def checked_ids(clients: Iterable[ClientId]) -> list[ClientId]:
    """Return ids of distinct clients.

    Raises:
        InvalidInputError: If one is no id or occurs twice.
    """
    ids = [checked_id(client) for client in listed("clients", clients)]
    if len(set(ids)) != len(ids):
        twice = next(client for client, count in Counter(ids).items() if count > 1)
        raise InvalidInputError(f"client {twice!r} occurs twice in one call; expected distinct ids")
    return ids
