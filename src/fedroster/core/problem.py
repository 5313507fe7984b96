"""The values that travel through a round: what is known, what is decided, what happened, what is reported.

A *row is a link*: one (client, server) pair.  A flat federation is the case of one server, where the rows of a
:class:`RoundContext` usually are the clients themselves (``client is None``).  Nothing is ragged: everything is an
array over rows, and ``available`` says which rows may be used this round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError, InvalidInputError, SelectionError
from fedroster.core.parameters import Count, Parameters

Poll: TypeAlias = Callable[[IntArray], FloatArray]
"""Asks clients for a number: rows of a context, shape (k,), to mean losses of the present model over their samples, or
to norms of the updates that they have trained but not sent (``asks``); NaN for one that does not answer."""


class Status(IntEnum):
    """How the exchange with a chosen client ended."""

    COMPLETED = 0
    """The update came in time; its exchange time is known."""
    LATE = 1
    """The update came, but not in time; its exchange time is known."""
    DROPPED = 2
    """Nothing came; no exchange time."""
    FAILED = 3
    """The client answered with an error or with an update that was refused; no exchange time."""


@dataclass(frozen=True, slots=True)
class ProblemSpec(Parameters):
    """What stays fixed over all rounds of one federation.

    Attributes:
        num_clients: Number of clients N, >= 1.
        cohort_size: Largest number of clients in a round, m of Huang et al. 2021, Eq. 4, >= 1.
        num_features: Length D of a link's feature vector, >= 1.
        num_servers: Number of (edge) servers M, >= 1.
    """

    num_clients: Count
    cohort_size: Count
    num_features: Count
    num_servers: Count = 1

    def __post_init__(self) -> None:
        """Check the ranges, and that no array of a state is beyond any memory.

        Raises:
            ConfigurationError: If a number is not a positive integer, or beyond 10,000 features or 2^31 servers.
        """
        Parameters.__post_init__(self)
        for name, most in {"cohort_size": 2**31 - 1, "num_features": 10_000, "num_servers": 2**31 - 1}.items():
            if getattr(self, name) > most:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; expected an integer <= {most}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What would happen on every link this round; only the simulator holds it.

    Attributes:
        exchange_time_s: Realised model exchange time tau of each link, shape (links,), seconds, > 0.
        expected_time_s: Its expectation, c . theta* in Huang et al. 2021, shape (links,), seconds, > 0; infinite where
            it has none, as under Rayleigh fading.
        expected_upload_s: The part of the expectation that is upload, shape (links,), seconds, >= 0.
        responds: Whether the link's client, if chosen, would send its update at all, shape (links,).
        deadline_s: Updates that take longer are late, tau_dead of Qu et al. 2021, seconds; infinite for none.
        participation_probability: Computes the probability of being in time given the context, p of Qu et al. 2021,
            shape (links,), in [0, 1]; a function, because few policies look at it; None where it is not known.
        min_updates: Z of Qu et al. 2021, Eq. 6: beyond the deadline, a server still waits for this many updates, >= 1.
        edge_time_s: EC of Qu et al. 2021, time of an edge aggregation, seconds, >= 0.
        cloud_time_s: Time of a global aggregation, seconds, >= 0.
        global_round: Whether a global aggregation closes this round, t = T_ES, 2 T_ES, ...; always so with one server.
        stay_s: How much longer each link's client stays, shape (links,), seconds, >= 0; None where no client leaves
            in the middle of a round.  A client that leaves before its exchange is over does not respond.
    """

    exchange_time_s: FloatArray
    expected_time_s: FloatArray
    expected_upload_s: FloatArray
    responds: BoolArray
    deadline_s: float = math.inf
    participation_probability: Callable[[], FloatArray] | None = None
    min_updates: int = 1
    edge_time_s: float = 0.0
    cloud_time_s: float = 0.0
    global_round: bool = True
    stay_s: FloatArray | None = None

    def after(self, wait_s: float) -> Outcome:
        """Return what would happen if the exchanges began ``wait_s`` later; their times stay as they are."""
        if self.stay_s is None:
            return self
        return replace(self, responds=self.responds & (wait_s + self.exchange_time_s <= self.stay_s))

    @property
    def training_s(self) -> FloatArray:
        """Time of each link until its client has trained, shape (links,), seconds: upload has its expected part."""
        times_s: FloatArray = self.exchange_time_s * (1.0 - self.expected_upload_s / self.expected_time_s)
        return times_s

    def after_training(self, wait_s: float) -> Outcome:
        """Return what would happen if clients that have trained uploaded ``wait_s`` after the round began."""
        upload_s = self.exchange_time_s - self.training_s
        left_s = max(self.deadline_s - wait_s, 0.0)
        uploads = replace(self, exchange_time_s=upload_s, expected_time_s=self.expected_upload_s, deadline_s=left_s)
        return uploads.after(wait_s)

    @property
    def in_time(self) -> BoolArray:
        """X of Qu et al. 2021: whether each link's update would be there by the deadline, shape (links,)."""
        return self.responds & (self.exchange_time_s <= self.deadline_s)

    def reveal(self, context: RoundContext, selection: Selection) -> Feedback:
        """Return what the server learns when ``selection`` is played: the chosen links and no other."""
        links = selection.links
        responds = self.responds[links]
        time_s = self.exchange_time_s[links]
        answered = np.where(time_s <= self.deadline_s, np.uint8(Status.COMPLETED), np.uint8(Status.LATE))
        return Feedback(
            round=context.round,
            client=context.clients_of(links),
            features=context.features[links],
            status=np.where(responds, answered, np.uint8(Status.DROPPED)),
            exchange_time_s=np.where(responds, time_s, np.nan),
            server=None if context.server is None else context.server[links],
        )


@dataclass(frozen=True, slots=True)
class RoundContext:
    """What is known before the decision of one round (stage 1 of Huang et al. 2021, section 3).

    Attributes:
        round: Round number t = 1, 2, ...
        features: Context vectors c of the links, shape (links, D).  Column-major order is fastest and never copied.
        available: I of Huang et al. 2021, Eq. 3: whether the link may be used this round, shape (links,).
        cohort_size: Largest number of clients that may be chosen, m of Huang et al. 2021, Eq. 4, >= 1.
        client: Client of each row, shape (links,); None when row i is client i.
        server: Server of each row, shape (links,); None when there is one server.
        cost: Price of using each link, c_n(y) of Qu et al. 2021, shape (links,), >= 0; None where nothing has a price.
        budget: What each server may spend, B of Qu et al. 2021, shape (servers,), >= 0; None without prices.
        members: Which clients belong to the federation now, shape (clients,); None for all.  Others owe and are owed
            nothing.
        truth: The outcome of every link; set by the simulator for policies that declare ``omniscient``.
        poll: Asks available clients for a loss or a norm before the decision; set for policies that declare ``polls``
            where there is a model to ask about, else None.
    """

    round: int
    features: FloatArray
    available: BoolArray
    cohort_size: int
    client: IntArray | None = None
    server: IntArray | None = None
    cost: FloatArray | None = None
    budget: FloatArray | None = None
    members: BoolArray | None = None
    truth: Outcome | None = None
    poll: Poll | None = None

    @property
    def num_links(self) -> int:
        """Number of rows."""
        return int(self.available.shape[0])

    def clients_of(self, links: IntArray) -> IntArray:
        """Return the client index of each of the given rows, shape (k,)."""
        return links if self.client is None else self.client[links]

    def require_truth(self, policy: str) -> Outcome:
        """Return the outcome of every link, for an omniscient policy; outside of a simulation, raise an error."""
        if self.truth is None:
            raise ConfigurationError(f"{policy} knows the network's true times; it runs in simulations only")
        return self.truth

    def with_truth(self, truth: Outcome) -> RoundContext:
        """Return this context with the outcome of every link in it, for an omniscient policy."""
        return replace(self, truth=truth)

    def with_poll(self, poll: Poll) -> RoundContext:
        """Return this context with the means to ask for losses in it, for a policy that polls."""
        return replace(self, poll=poll)


@dataclass(frozen=True, slots=True)
class Selection:
    """The decision of one round.

    Attributes:
        round: Round number.
        links: Rows of the context that were chosen, ascending and without repetition, shape (k,).  Empty when no
            client was available: an empty round is an ordinary, explicit event.
        polled: Rows whose clients were asked for their loss on the way, ascending, shape (d,); None for none.  Set by
            the loop, because asking takes time.
        heard: What these clients answered, shape (d,), NaN for no answer; set by a policy whose ``commit`` learns from
            it.  No log holds it: where logs are written, there is nothing to ask.
        gap: What the policy maximised can be better by this share of the best at most, for policies that solve P2
            (Qu et al. 2021): 0 for a proven optimum, NaN where their solver proves nothing; None from other policies.
        drawn: For how many draws each link stands, shape (k,), > 0: r for a client that was drawn r times, 1 / p for
            one that was kept with probability p.  The policy's ``weights`` read it; ``commit`` does not, since a log
            holds the weights alone.  None for 1.
        weights: How much each link's update counts, shape (k,), >= 0; set by the loop, from the policy's ``weights``.
            None for weights by samples.
    """

    round: int
    links: IntArray
    polled: IntArray | None = None
    heard: FloatArray | None = None
    gap: float | None = None
    drawn: FloatArray | None = None
    weights: FloatArray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no client was chosen."""
        return bool(self.links.shape[0] == 0)


@dataclass(frozen=True, slots=True)
class Feedback:
    """What came back from some or all of the chosen links of one round; it may be late and in parts.

    Attributes:
        round: Round in which the links were chosen.
        client: Client of each row, shape (k,).
        features: Context vectors under which they were chosen, shape (k, D).
        status: :class:`Status` of each row, shape (k,).
        exchange_time_s: Measured exchange time, shape (k,), seconds; NaN where none was measured.
        server: Server of each row, shape (k,); None when there is one server.
        loss: Mean loss, over the client's samples, of the model that it was sent, shape (k,); NaN where it is not
            known; None when no client measures losses.
        squared_loss: Mean over the same samples of the squared loss, same shape, >= 0.
        num_samples: Number of these samples, same shape, > 0.
        signature: Signature of the client's update, shape (k, s); NaN where it is not known; None where none is.
        staleness: Rounds that began after this one and before it was reported.
    """

    round: int
    client: IntArray
    features: FloatArray
    status: StatusArray
    exchange_time_s: FloatArray
    server: IntArray | None = None
    loss: FloatArray | None = None
    squared_loss: FloatArray | None = None
    num_samples: FloatArray | None = None
    signature: FloatArray | None = None
    staleness: int = 0

    @property
    def observed(self) -> BoolArray:
        """Rows whose exchange time was measured, shape (k,)."""
        return ~np.isnan(self.exchange_time_s)

    def rows(self, rows: IntArray | BoolArray) -> Feedback:
        """Return a part of the feedback, by indices or by a mask of shape (k,)."""
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        known: dict[str, Any] = {name: array[rows] for name, array in arrays.items() if isinstance(array, np.ndarray)}
        return replace(self, **known)


def check_context(context: RoundContext, spec: ProblemSpec) -> None:
    """Check a context that comes from outside, once, at the edge; an InvalidInputError names the first wrong row."""
    links = context.num_links
    if context.available.dtype != np.bool_ or context.available.ndim != 1:
        raise InvalidInputError(
            f"available has type {context.available.dtype} and shape {context.available.shape}; "
            "expected booleans of shape (links,)"
        )
    expected = (links, spec.num_features)
    if context.features.shape != expected:
        raise InvalidInputError(f"features have shape {context.features.shape}; expected {expected}, (links, features)")
    usable = context.features if bool(context.available.all()) else context.features[context.available]
    with np.errstate(over="ignore", invalid="ignore"):
        total = usable.sum()
    if not np.isfinite(total) and not np.isfinite(usable).all():
        wrong = ~np.isfinite(context.features).all(axis=1) & context.available
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidInputError(
            f"features of row {row} are {context.features[row].tolist()}; expected finite numbers for an available link"
        )
    if context.client is None and links != spec.num_clients:
        raise InvalidInputError(
            f"the context has {links} rows and names no clients; "
            f"expected one row for each of {spec.num_clients} clients"
        )
    for name, index, bound in (
        ("client", context.client, spec.num_clients),
        ("server", context.server, spec.num_servers),
    ):
        if index is None:
            continue
        if index.shape != (links,) or index.dtype.kind not in "iu":
            raise InvalidInputError(f"{name} has shape {index.shape}; expected integers of shape ({links},)")
        if links and (index.min() < 0 or index.max() >= bound):
            row = int(np.flatnonzero((index < 0) | (index >= bound))[0])
            raise InvalidInputError(f"{name} of row {row} is {int(index[row])}; expected 0 <= {name} < {bound}")


def check_selection(selection: Selection, context: RoundContext, *, fills_cohort: bool) -> None:
    r"""Check the hard constraints of Huang et al. 2021 on a decision, and Qu et al.'s where links have prices.

    (3): only available clients; (4): :math:`|S_t| = \min\{m, \sum_n I_{t,n}\}`, if the policy promises it with
    ``fills_cohort``; every server keeps its budget, every client serves one server.

    Raises:
        SelectionError: If a constraint is broken.
    """
    if not isinstance(selection, Selection) or not isinstance(selection.links, np.ndarray):
        raise SelectionError(
            f"the decision is {selection!r}; expected Selection(context.round, rows), rows an array of integers"
        )
    links = selection.links
    if selection.round != context.round:
        raise SelectionError(f"the decision is for round {selection.round}; expected round {context.round}")
    if links.ndim != 1 or links.dtype.kind not in "iu":
        raise SelectionError(f"links have type {links.dtype} and shape {links.shape}; expected integers of shape (k,)")
    if links.shape[0]:
        if links[0] < 0 or links[-1] >= context.num_links or not (links[1:] > links[:-1]).all():
            raise SelectionError(f"links are {shown(links)}; expected ascending rows of 0..{context.num_links - 1}")
        if not context.available[links].all():
            row = int(links[~context.available[links]][0])
            raise SelectionError(f"row {row} was chosen and is not available in round {context.round}")
        if context.client is not None and np.unique(context.client[links]).shape[0] != links.shape[0]:
            raise SelectionError("a client was chosen on more than one link; expected at most one")
        if context.cost is not None and context.budget is not None:
            server = np.zeros(links.shape[0], np.int64) if context.server is None else context.server[links]
            spent = np.bincount(server, weights=context.cost[links], minlength=context.budget.shape[0])
            over = ~(spent <= context.budget * (1.0 + 1e-9))  # a price that is NaN, too
            if over.any():
                worst = int(np.flatnonzero(over)[0])
                raise SelectionError(
                    f"server {worst} spends {spent[worst]:g}; expected at most its budget {context.budget[worst]:g}"
                )
    if selection.drawn is not None:
        check_weights("drawn", selection.drawn, links.shape[0])
    if fills_cohort:
        expected = min(context.cohort_size, int(np.count_nonzero(context.available)))
        if links.shape[0] != expected:
            raise SelectionError(
                f"{links.shape[0]} clients were chosen; expected {expected}; "
                "the policy declares fills_cohort = True; one that may choose fewer declares fills_cohort = False"
            )


def check_weights(name: str, weights: Any, size: int) -> None:
    """Check numbers that a policy gives ``size`` links, its ``weights`` or how often they were ``drawn``.

    Raises:
        SelectionError: If they are not finite numbers >= 0, one for each link.
    """
    is_array = isinstance(weights, np.ndarray) and weights.dtype == np.float64
    if not is_array or weights.shape != (size,) or not np.isfinite(weights).all() or (weights < 0.0).any():
        raise SelectionError(f"{name} is {shown(weights)}; expected {size} float64 numbers >= 0, one a link")
