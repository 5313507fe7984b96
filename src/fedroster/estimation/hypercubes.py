r"""Participation probabilities by context hypercube, for every client-server pair (Qu et al. 2021, section IV-B).

The context space :math:`[0,1]^D` is divided into :math:`h_T^D` hypercubes.  For client n, server m and hypercube l,

.. math:: \hat p_{n,m}(l) = \frac{1}{C_{n,m}(l)} \sum_{X \in \mathcal E_{n,m}(l)} X \qquad\text{(12)},

where :math:`C_{n,m}(l)` counts every selection of the pair while its context lay in l, in time or not (Choice B1), and
X is 1 for an update in time.  There are :math:`N M h_T^D` cells; memory is kept only for those that were seen, in one
hash table of open addressing.

A selection is counted when it is booked (:func:`count_selections`) and an update in time when it is reported
(:func:`count_successes`).  So silence counts like lateness, and what is learned does not depend on the order of
feedback.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.compiled import interpreted_at_first, njit
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.problem import ProblemSpec
from fedroster.core.state import kept, per_client
from fedroster.estimation.slots import EMPTY, FIRST_SLOTS, FULLEST, places, roomier, slot_of, table_flaw, tag_flaw

_LARGEST_KEY = 2**62


@dataclass(frozen=True, slots=True)
class HypercubeState:
    """The cells that were seen: 16 bytes a slot, at least a quarter of the slots in use once the table has grown.

    A client's cells are found by its tag, drawn when it is first chosen.  So a client that is forgotten is a stranger
    again, and one that is renumbered keeps its cells.

    Attributes:
        num_tags: Tags that were given.
        num_cells: Slots in use.
        num_servers: M.
        cells_each: Hypercubes of each pair, h_T^D.
        key: (tag M + server) h_T^D + hypercube of each slot, shape (slots,), a power of two; -1 for an empty slot.
        count: C of each slot, shape (slots,).
        success: Updates in time of each slot, shape (slots,).
        tag: Tag of each client, shape (clients,); -1 before its first selection.
    """

    num_tags: int = kept(0)
    num_cells: int = kept(0)
    num_servers: int = kept(fixed=True)
    cells_each: int = kept(fixed=True)
    key: IntArray = kept(-1, 2**62, sized=True)
    count: NDArray[np.int32] = kept(0, "round", sized=True)
    success: NDArray[np.int32] = kept(0, sized=True)
    tag: IntArray = per_client(least=-1)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        if not self.key.shape == self.count.shape == self.success.shape:
            return "keys, counts and successes differ in length"
        if (self.success > self.count).any():
            return "more updates came in time than were asked for"
        return table_flaw(self.key, self.num_cells) or tag_flaw(
            self.tag, self.num_tags, self.key, self.num_servers * self.cells_each
        )


def exploration_exponent(holder: float) -> float:
    r"""Exponent z of the control function, :math:`z = 2\alpha / (3\alpha + 2)` (Qu et al. 2021, Theorem 2).

    Deviations: Theorem 4 prints :math:`K(t) = t^{(2\alpha+2)/(3\alpha+2)} \log t`, the exponent of its regret; its
    proof follows Theorem 2's, whose z is used for both.
    """
    check_number("holder", holder, above=0.0)
    return 2.0 * holder / (3.0 * holder + 2.0)


def cells_per_axis(horizon: int, holder: float) -> int:
    r"""Number of intervals on each axis, :math:`h_T = \lceil T^{1/(3\alpha+2)} \rceil` (Qu et al. 2021, Theorem 2)."""
    check_integer("horizon", horizon, least=1)
    check_number("holder", holder, above=0.0)
    return math.ceil(math.pow(horizon, 1.0 / (3.0 * holder + 2.0)) - 1e-9)


def control(round: int, *, exponent: float, scale: float = 1.0) -> float:
    r"""Control function :math:`K(t) = s\, t^z \log t`: a cell of at most this many selections is under-explored (13).

    The scale s is 1 in the paper (Choice B11).
    """
    return scale * math.pow(round, exponent) * math.log(round)


def context_cells(
    features: FloatArray,
    *,
    cells_per_axis: int,
    available: BoolArray | None = None,
    low: tuple[float, ...] = (),
    high: tuple[float, ...] = (),
) -> IntArray:
    r"""Hypercube of each context, :math:`\sum_i \lfloor h \phi_i \rfloor h^i`; the last one has the upper face.

    Args:
        features: Contexts phi, shape (links, D).
        cells_per_axis: h.
        available: Links in use, shape (links,); the contexts of others are not looked at.  None for all.
        low: Value of each feature that counts as 0, length D; empty for contexts that are in [0, 1] already.
        high: Value of each feature that counts as 1, length D; or empty.

    Returns:
        Shape (links,), in 0..h^D - 1; 0 for links that are not in use.

    Raises:
        InvalidInputError: If a context in use is outside [0, 1] after scaling, or no number.
    """
    num_links, num_features = features.shape
    if low or high:
        if not len(low) == len(high) == num_features:
            raise ConfigurationError(
                f"low and high have {len(low)} and {len(high)} entries; expected one each for {num_features} features"
            )
        features = (features - np.array(low)) / (np.array(high) - np.array(low))
    cell = np.zeros(num_links, np.int64)
    outside = np.zeros(num_links, np.bool_)
    for i in range(num_features - 1, -1, -1):
        column = features[:, i]
        outside |= ~((column >= 0.0) & (column <= 1.0))
        with np.errstate(invalid="ignore", over="ignore"):
            interval = np.minimum(np.clip(column * cells_per_axis, 0.0, cells_per_axis), cells_per_axis - 1)
        cell = cell * cells_per_axis + np.where(outside, 0.0, interval).astype(np.int64)
    if outside.any():
        cell[outside] = 0
        wrong = outside if available is None else outside & available
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            scaled = ", scaled with low and high," if low else ""
            remedy = "" if low else ", or bounds low and high that scale them"
            raise InvalidInputError(
                f"features of row {row}{scaled} are {features[row].tolist()}; expected numbers in [0, 1]{remedy}"
            )
    return cell


def check_hypercubes(num_clients: int, num_servers: int, num_features: int, cells_per_axis: int) -> None:
    """Refuse a partition so fine that its N M h^D cells, 2^62 or more, cannot be numbered."""
    if num_clients * num_servers * cells_per_axis**num_features >= _LARGEST_KEY:
        raise ConfigurationError(
            f"{cells_per_axis} intervals on each of {num_features} features for {num_clients} clients and "
            f"{num_servers} servers make more than 2^62 cells; expected fewer intervals or features"
        )


def hypercubes_init(num_clients: int, num_servers: int, num_features: int, *, cells_per_axis: int) -> HypercubeState:
    """Before the first round: :math:`C = 0` everywhere (Algorithm 1, line 2); with h = 1 a pair has one cell."""
    check_integer("cells_per_axis", cells_per_axis, least=1)
    check_hypercubes(num_clients, num_servers, num_features, cells_per_axis)
    return HypercubeState(
        tag=np.full(num_clients, -1, np.int64),
        num_tags=0,
        num_cells=0,
        num_servers=num_servers,
        cells_each=cells_per_axis**num_features,
        key=np.full(FIRST_SLOTS, EMPTY, np.int64),
        count=np.zeros(FIRST_SLOTS, np.int32),
        success=np.zeros(FIRST_SLOTS, np.int32),
    )


@njit(cache=True, nogil=True)
def _look_up(table, count, success, tag, client, server, cell, num_servers, cells_each, counts, successes):
    for row in range(client.shape[0]):
        t = tag[client[row]]
        if t < 0:
            continue
        key = (t * num_servers + server[row]) * cells_each + cell[row]
        slot = slot_of(table, key)
        if table[slot] == key:
            counts[row] = count[slot]
            successes[row] = success[slot]


def _places(state: HypercubeState, client: IntArray, server: IntArray | None, cell: IntArray) -> IntArray:
    """Slot of each link's cell, where it is put if it was not seen, shape (links,)."""
    pair = state.tag[client] * state.num_servers + _servers(server, client.shape[0])
    slots: IntArray = interpreted_at_first(places, client.shape[0])(state.key, pair * state.cells_each + cell)
    return slots


def _servers(server: IntArray | None, num_links: int) -> IntArray:
    return np.zeros(num_links, np.int64) if server is None else server


def look_up(
    state: HypercubeState, client: IntArray, server: IntArray | None, cell: IntArray
) -> tuple[IntArray, IntArray]:
    """Selections C and updates in time of each link's cell, each of shape (links,); 0 for cells never seen.

    The server of each link is None where there is one server.
    """
    num_links = client.shape[0]
    counts, successes = np.zeros(num_links, np.int64), np.zeros(num_links, np.int64)
    where = (client, _servers(server, num_links), cell, state.num_servers, state.cells_each)
    _look_up(state.key, state.count, state.success, state.tag, *where, counts, successes)
    return counts, successes


def estimates(counts: IntArray, successes: IntArray) -> FloatArray:
    """Estimated participation probabilities (12), shape (links,); 0 where nothing is known (Algorithm 1, line 2)."""
    return successes / np.maximum(counts, 1)


def count_selections(
    state: HypercubeState, client: IntArray, server: IntArray | None, cell: IntArray
) -> HypercubeState:
    r"""Count the chosen links, :math:`C_{n,m}(l) \gets C_{n,m}(l) + 1` (Algorithm 1, line 20, Choice B1).

    Clients come once each; the state's arrays are written to.
    """
    chosen = client.shape[0]
    if chosen == 0:
        return state
    if state.num_cells + chosen > FULLEST * state.key.shape[0]:
        key, used, place = roomier(state.key, state.num_servers * state.cells_each, state.tag, chosen)
        count, success = np.zeros(key.shape[0], np.int32), np.zeros(key.shape[0], np.int32)
        count[place], success[place] = state.count[used], state.success[used]
        state = replace(state, key=key, count=count, success=success, num_cells=used.shape[0])
    fresh = client[state.tag[client] < 0]
    state.tag[fresh] = state.num_tags + np.arange(fresh.shape[0])
    added = int(np.count_nonzero(look_up(state, client, server, cell)[0] == 0))
    state.count[_places(state, client, server, cell)] += 1
    return replace(state, num_tags=state.num_tags + fresh.shape[0], num_cells=state.num_cells + added)


def count_successes(state: HypercubeState, client: IntArray, server: IntArray | None, cell: IntArray) -> HypercubeState:
    """Count updates in time, X = 1; with :func:`count_selections` this is Algorithm 1, line 19.

    The cell is the one in which a link was chosen; a client that was forgotten since is ignored.  Clients come once
    each; the state's arrays are written to.
    """
    counts, successes = look_up(state, client, server, cell)
    known = successes < counts
    server = None if server is None else server[known]
    state.success[_places(state, client[known], server, cell[known])] += 1
    return state
