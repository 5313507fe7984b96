"""The links that a decision may use, as every kernel of this package takes them, and the check of what callers give."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.errors import InvalidInputError


class Links(NamedTuple):
    """Links sorted by client; all arrays contiguous and of one type, so that each kernel is compiled once.

    Attributes:
        first: Where each client's links start, shape (clients + 1,).
        value: Value of each link, shape (links,), > 0.
        share: Share of its server's budget that each link uses, shape (links,), in [0, 1].
        server: Server of each link, shape (links,).
        owner: Client of each link, shape (links,).
        server_first: Where each server's links start in ``server_links``, shape (servers + 1,).
        server_links: Links sorted by server, shape (links,).
    """

    first: IntArray
    value: FloatArray
    share: FloatArray
    server: IntArray
    owner: IntArray
    server_first: IntArray
    server_links: IntArray


def firsts(ascending: IntArray) -> BoolArray:
    """Which entries differ from the one before."""
    begins = np.ones(ascending.size, np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    return begins


def compact(
    value: FloatArray,
    cost: FloatArray,
    client: IntArray,
    server: IntArray,
    limit: FloatArray,
    visit: IntArray,
    client_rank: IntArray,
    server_rank: IntArray,
) -> tuple[Links, IntArray]:
    """The usable links, value above 0 and cost within the budget, and the row of each.

    Rows are taken in the order of ``visit``, and clients and servers are renumbered by their ranks, so that random
    permutations here make every later tie-break random. Clients without a usable link vanish.
    """
    row = visit[((value > 0.0) & (cost <= limit[server]))[visit]]
    rank = client_rank[client[row]]
    order = np.argsort(rank, kind="stable")
    row, rank = row[order], rank[order]
    begins = firsts(rank)
    first = np.append(np.flatnonzero(begins), row.size)
    owner = np.cumsum(begins) - 1
    budget = limit[server[row]]
    share = np.divide(cost[row], budget, out=np.zeros(row.size), where=budget > 0.0)
    new_server = server_rank[server[row]]
    server_first = np.concatenate(([0], np.cumsum(np.bincount(new_server, minlength=limit.size))))
    server_links = np.argsort(new_server, kind="stable")
    return Links(first, value[row], share, new_server, owner, server_first, server_links), row


def value_step(value: FloatArray) -> float:
    """The least value if every value is a whole multiple of it (0/1 participation, counting), else 0."""
    step = float(value.min())
    if float(value.max()) > 1e6 * step:
        return 0.0
    multiple = value / step
    if (np.abs(multiple - np.rint(multiple)) > 1e-12 * multiple).any():
        return 0.0
    return step


def _floats(name: str, values: ArrayLike) -> FloatArray:
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} has shape {array.shape}, expected one dimension")
    return array


def _indices(name: str, values: ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidInputError(f"{name} has dtype {array.dtype}, expected integers")
    if array.ndim != 1:
        raise InvalidInputError(f"{name} has shape {array.shape}, expected one dimension")
    return np.ascontiguousarray(array, dtype=np.int64)


def _refuse(name: str, array: FloatArray | IntArray, right: BoolArray, expected: str, place: str = "row") -> None:
    if not right.all():
        row = int(np.argmin(right))
        raise InvalidInputError(f"{name} is {array[row]} at {place} {row}, expected {expected}")


def check_links(
    value: ArrayLike, cost: ArrayLike, client: ArrayLike, server: ArrayLike, budget: ArrayLike, num_clients: int
) -> tuple[FloatArray, FloatArray, IntArray, IntArray, FloatArray]:
    """The arguments as contiguous arrays, checked.

    Raises:
        InvalidInputError: A length, dtype or entry is not as expected; the message names array, entry and row.
    """
    values, costs, budgets = _floats("value", value), _floats("cost", cost), _floats("budget", budget)
    clients, servers = _indices("client", client), _indices("server", server)
    if not values.size == costs.size == clients.size == servers.size:
        raise InvalidInputError(
            f"value, cost, client and server have {values.size}, {costs.size}, {clients.size} and {servers.size} rows, "
            "expected one each per link"
        )
    if num_clients < 0:
        raise InvalidInputError(f"num_clients is {num_clients}, expected at least 0")
    number = "a finite number of at least 0"
    _refuse("budget", budgets, (budgets >= 0.0) & (budgets < np.inf), number, "server")
    _refuse("value", values, (values >= 0.0) & (values < np.inf), number)
    _refuse("cost", costs, (costs >= 0.0) & (costs < np.inf), number)
    _refuse("client", clients, (clients >= 0) & (clients < num_clients), f"0 to num_clients - 1 = {num_clients - 1}")
    _refuse("server", servers, (servers >= 0) & (servers < budgets.size), f"0 to {budgets.size - 1}")
    return values, costs, clients, servers, budgets
