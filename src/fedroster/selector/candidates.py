"""The clients that a caller names for a round, and their contexts, in each of the forms in which it may name them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import InvalidInputError
from fedroster.core.ids import ClientId, is_id
from fedroster.folder.events import Asked
from fedroster.selector.members import Members

Contexts = Mapping[ClientId, ArrayLike] | ArrayLike | Collection[ClientId] | None
"""Context of each client by its id, or an array of them, or ids of clients without contexts, or nothing."""


def read_candidates(
    members: Members,
    num_features: int | None,
    contexts: Contexts,
    *,
    clients: Iterable[ClientId] | None = None,
    available: ArrayLike | None = None,
    not_registered: Collection[ClientId] = (),
) -> Asked:
    """Read what a caller says of the clients of a round; takes and raises what :meth:`~fedroster.Selector.select` does.

    Without contexts, every client has the context ``[1.0]``, or as many ones as ``num_features`` says.
    """
    given: Any = contexts
    if isinstance(contexts, Mapping) or _are_ids(contexts, clients):
        what = "a mapping names" if isinstance(contexts, Mapping) else "ids name"
        if clients is not None or available is not None:
            raise InvalidInputError(f"{what} clients and availability itself; expected no other argument")
        clients = given
        given = list(contexts.values()) if isinstance(contexts, Mapping) else None
    slot = members.slots() if clients is None else members.distinct_slots(clients)
    of_all = clients is None or np.array_equal(slot, members.slots())
    unknown = members.distinct_slots(not_registered)
    usable = np.ones(slot.shape[0], np.bool_)
    if available is not None:
        try:
            usable = np.asarray(available)
        except Exception as error:
            raise InvalidInputError(f"available is no array ({shown(error, str)}); expected one") from error
    if usable.dtype != np.bool_ or usable.shape != slot.shape:
        raise InvalidInputError(
            f"available has type {usable.dtype} and shape {usable.shape}; expected booleans of shape {slot.shape}"
        )
    if given is None or (not slot.shape[0] and not isinstance(given, np.ndarray)):
        if slot.shape[0] and num_features not in (None, 1):
            raise InvalidInputError(
                f"no contexts are given; expected {num_features} numbers for each client (num_features={num_features})"
            )
        ones = np.ones((slot.shape[0], num_features or 1))
        return Asked(slot, ones, usable, given=False, of_all=of_all, not_registered=unknown)
    rows = _rows(given, slot.shape[0], num_features)
    _check_values(rows, usable, slot, members)
    return Asked(slot, rows, usable, of_all=of_all, not_registered=unknown)


def _are_ids(contexts: object, clients: object) -> bool:
    """Whether plain ids stand where contexts may stand."""
    if isinstance(contexts, str | bytes | bytearray | memoryview):
        raise InvalidInputError(f"contexts are the string {shown(contexts)}; expected contexts, or a collection of ids")
    if isinstance(contexts, np.ndarray):
        return contexts.ndim == 1 and contexts.dtype.kind in "iuU"
    if contexts is None or clients is not None or not isinstance(contexts, Collection):
        return False
    return all(isinstance(client, str | int | np.integer) for client in contexts)


def _numbers(values: Any) -> FloatArray:
    """An array of what may be numbers, but no text."""
    given = np.asarray(values)
    if given.dtype.kind not in "biufO":
        raise TypeError(f"they are of type {given.dtype}")
    return given.astype(np.float64, copy=False)


def _rows(contexts: ArrayLike, num_clients: int, num_features: int | None) -> FloatArray:
    """Contexts as an array of the right shape."""
    length = "D" if num_features is None else num_features
    wanted = f"a list of num_features = {length} numbers for each client"
    try:
        rows = _numbers(contexts)
    except Exception as error:  # an entry may be any object, or a number beyond any float
        why = shown(error, str)
        raise InvalidInputError(f"contexts are not an array of numbers ({why}); expected {wanted}") from error
    right = rows.ndim == 2 and rows.shape[0] == num_clients and rows.shape[1] >= 1
    if not right or num_features not in (None, rows.shape[1]):
        raise InvalidInputError(f"contexts have shape {rows.shape}; expected ({num_clients}, {length}), {wanted}")
    return rows


def _check_values(rows: FloatArray, available: BoolArray, slot: IntArray, members: Members) -> None:
    known = rows if available.all() else rows[available]
    # Two passes without a temporary; NaN fails the first comparison.
    if not known.size or (known.min() >= 0.0 and known.max() < np.inf):
        return
    wrong = available & ~((rows >= 0.0) & (rows < np.inf)).all(axis=1)
    row = int(np.flatnonzero(wrong)[0])
    raise InvalidInputError(
        f"contexts of client {members.ids[slot[row]]!r} are {rows[row].tolist()}; expected finite numbers >= 0"
    )


def links_of(members: Members, labels: list[str], servers: Any, slots: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of the clients of ``slots`` and numbers of the edge servers that reach them, one entry for each link.

    ``servers`` are labels for each client, by id or in the order of ``slots``; None for all.

    Raises:
        InvalidInputError: If that of a client is missing, or a label is no string.
    """
    number_of = {label: number for number, label in enumerate(labels)}
    reached = [labels] * slots.shape[0] if servers is None else _each("servers", members, servers, slots)
    links = [
        (row, number_of[label])
        for row, near in enumerate(reached)
        for label in dict.fromkeys(_labels(near))
        if label in number_of
    ]
    row, server = np.array(links, np.int64).reshape(-1, 2).T
    return row, server


def prices_of(members: Members, prices: Any, slots: IntArray) -> FloatArray:
    """The price of each client.

    Raises:
        InvalidInputError: If one is missing or no finite number >= 0.
    """
    if prices is None:
        return np.ones(slots.shape[0])
    given = _each("prices", members, prices, slots)
    try:
        cost = _numbers(given)
    except Exception:  # an entry may be any object, or a number beyond any float
        cost = np.full(slots.shape[0], np.nan)
    if cost.ndim != 1 or not ((cost >= 0.0) & (cost < math.inf)).all():
        raise InvalidInputError(f"prices are {shown(given)}; expected a finite number >= 0 for each client")
    return cost


def _each(name: str, members: Members, values: Any, slots: IntArray) -> Any:
    """Values of each client, in the order in which the clients are named."""
    if isinstance(values, Mapping):
        missing = [client for slot in slots if (client := members.ids[slot]) not in values]
        if missing or not all(is_id(client) for client in values):
            what = f"{name} lacks client {missing[0]!r}" if missing else f"{name} names a client that does not exist"
            raise InvalidInputError(f"{what}; expected one entry for each client")
        return [values[members.ids[slot]] for slot in slots]
    is_sequence = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str | bytes)
    if not is_sequence or getattr(values, "ndim", 1) == 0 or len(values) != slots.shape[0]:
        raise InvalidInputError(f"{name} are {shown(values)}; expected one entry for each of {slots.shape[0]} clients")
    return values


def _labels(near: object) -> list[str]:
    """Labels of the edge servers that reach a client."""
    is_one = isinstance(near, str) or not isinstance(near, Iterable) or getattr(near, "ndim", 1) == 0
    labels: list[Any] = [near] if is_one else list(cast("Iterable[Any]", near))
    if not all(isinstance(label, str) for label in labels):
        raise InvalidInputError(f"servers of a client are {shown(near)}; expected labels, which are strings")
    return labels
