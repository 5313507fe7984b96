"""The object that callers hold: ask for a cohort, tell what came back.

:class:`Selector` is the edge of the library: it checks everything that comes from outside, maps outside client ids to
rows, lets clients join and leave, holds the random streams, and saves and loads itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.problem import ProblemSpec, RoundContext, check_context, check_selection
from fedroster.core.protocols import AnyPolicy
from fedroster.ledger import ClientId, Ledger, checked_ids

__all__ = ["ClientId", "Cohort", "EdgeCohort", "EdgeSelector", "Selector"]


@dataclass(frozen=True, slots=True)
class Cohort:
    """Who takes part in a round.

    Attributes:
        round: Round number; feedback refers to it.
        clients: Ids of the chosen clients.  Empty when nobody was available.
    """

    round: int
    clients: tuple[ClientId, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nobody was chosen."""
        return not self.clients


@dataclass(frozen=True, slots=True)
class EdgeCohort(Cohort):
    """Who takes part in a round, and where.

    Attributes:
        servers: Edge server of each chosen client.
    """

    servers: tuple[str, ...] = ()


class Selector(Ledger):
    """Chooses cohorts in a running federation (ask/tell).

    Example:
        >>> from fedroster import RBCSF, Selector
        >>> selector = Selector(RBCSF(V=5.0, beta=0.2), cohort_size=2, num_features=1, clients=["a", "b", "c"])
        >>> cohort = selector.select({"a": [1.0], "b": [2.0], "c": [4.0]})
        >>> len(cohort.clients)
        2
        >>> selector.observe(cohort.round, times_s={client: 1.5 for client in cohort.clients})
        >>> selector.participation().sum()
        np.int64(2)

    Rounds are numbered from 1.  The feedback of a round may come late, in parts, or never: a client's row is open
    until it is answered or ``patience_rounds`` later rounds have begun.

    One thread at a time may use it.
    """

    _KIND: ClassVar[str] = "selector"

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        cohort_size: int,
        num_features: int = 3,
        seed: int = 0,
        clients: Iterable[ClientId] = (),
        patience_rounds: int = 100,
        longest_s: float | None = None,
    ) -> None:
        """Start a federation.

        Args:
            policy: Decides; must not be omniscient.
            cohort_size: Largest number of clients in a round, m.
            num_features: Length D of a client's context; 3 for ``[1/mu, s, M/B]`` of paper A.
            seed: Seed of the random streams that break ties.
            clients: Ids of the first members.
            patience_rounds: Rounds after which missing feedback is given up.
            longest_s: Longer exchange times count as this, seconds, > 0, so that one report cannot outweigh all others;
                None for no cap.

        Raises:
            ConfigurationError: If a parameter is out of its range or the policy needs a simulation.
            InfeasibleError: If the policy's promise cannot be kept for these clients.
        """
        super().__init__(
            policy,
            cohort_size=cohort_size,
            num_features=num_features,
            seed=seed,
            patience_rounds=patience_rounds,
            longest_s=longest_s,
        )
        first = checked_ids(clients)
        if first:
            policy.check(ProblemSpec(num_clients=len(first), cohort_size=cohort_size, num_features=num_features))
            self.join(first)

    def select(
        self,
        contexts: Mapping[ClientId, ArrayLike] | ArrayLike,
        *,
        clients: Sequence[ClientId] | None = None,
        available: ArrayLike | None = None,
    ) -> Cohort:
        """Begin a round and choose its cohort.

        Args:
            contexts: Contexts.  A mapping from id to vector: whoever is missing is not available.  Or an array of shape
                (clients, D), with a row for each of ``clients``.
            clients: Ids of the rows of an array; None for all members, in the order of :attr:`clients`.
            available: Which rows of an array are available, shape (clients,); None for all.

        Returns:
            The cohort; empty, and a round all the same, when nobody is available.

        Raises:
            InvalidInputError: If a context is not of finite numbers >= 0, or a client is named twice.
            UnknownNameError: If a client is not a member.
        """
        self._report_unseen()  # before anything is booked
        if isinstance(contexts, Mapping):
            if clients is not None or available is not None:
                raise InvalidInputError("a mapping names clients and availability itself; expected no other argument")
            slots = np.array([self._member_slot(client) for client in contexts], np.int64)
            rows = self._vectors(list(contexts.values()), slots)
            usable = np.ones(slots.shape[0], np.bool_)
        else:
            slots = self._order() if clients is None else self._distinct_slots(clients)
            rows = self._vectors(contexts, slots)
            usable = np.ones(slots.shape[0], np.bool_) if available is None else np.asarray(available)
            if usable.dtype != np.bool_ or usable.shape != slots.shape:
                raise InvalidInputError(
                    f"available has type {usable.dtype} and shape {usable.shape}; "
                    f"expected booleans of shape {slots.shape}"
                )
        self._check_vectors(slots, rows, usable)
        context = self._context(slots, rows, usable)
        check_context(context, self._spec)
        selection = self._policy.select(self._state, context, rng=self._streams.at("policy", context.round))
        check_selection(selection, context, fills_cohort=self._policy.fills_cohort)
        chosen = self._book(context, selection)
        return Cohort(context.round, tuple(self._ids[slot] for slot in chosen))

    def _context(self, slots: IntArray, rows: FloatArray, usable: BoolArray) -> RoundContext:
        capacity = self._spec.num_clients
        if slots.shape[0] == capacity and (slots[:-1] < slots[1:]).all():
            features, available = rows, usable
        else:
            features = np.zeros((self._spec.num_features, capacity)).T
            features[slots] = rows
            available = np.zeros(capacity, np.bool_)
            available[slots] = usable
        return RoundContext(
            round=self._round + 1,
            features=features,
            available=available,
            cohort_size=self._spec.cohort_size,
            members=None if self._members.all() else self._members,
        )


class EdgeSelector(Ledger):
    """Chooses cohorts of a federation with edge servers; takes a :class:`Selector`'s place.

    A client may be reached by some edge servers; the policy uses it on one of them at most (paper B, (10d)) and keeps
    every server's budget (10b).
    """

    _KIND: ClassVar[str] = "edge-selector"

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        budgets: Mapping[str, float],
        cohort_size: int,
        num_features: int = 2,
        seed: int = 0,
        patience_rounds: int = 100,
        longest_s: float | None = None,
    ) -> None:
        """Start a federation without clients.

        Args:
            policy: Decides among links with prices, such as COCS.
            budgets: What each edge server may spend in a round, by its label, >= 0.
            cohort_size: Largest number of clients in a round.
            num_features: Length D of a client's context.
            seed: Seed of the random streams that break ties.
            patience_rounds: Rounds after which missing feedback is given up.
            longest_s: Longer exchange times count as this, seconds, > 0; None for no cap.

        Raises:
            ConfigurationError: If a parameter is out of its range or the policy needs a simulation.
        """
        if not budgets:
            raise ConfigurationError("budgets is empty; expected the budget of each edge server by its label")
        for label, budget in budgets.items():
            check_number(f"budget of server {label!r}", budget, least=0.0)
        super().__init__(
            policy,
            cohort_size=cohort_size,
            num_features=num_features,
            num_servers=len(budgets),
            seed=seed,
            patience_rounds=patience_rounds,
            longest_s=longest_s,
        )
        policy.check(self._spec)
        self.budgets = {str(label): float(budget) for label, budget in budgets.items()}
        self._server_of = {label: number for number, label in enumerate(self.budgets)}

    def select(
        self,
        contexts: ArrayLike,
        *,
        clients: Sequence[ClientId],
        servers: Sequence[Sequence[str]],
        prices: FloatArray | None = None,
    ) -> EdgeCohort:
        """Begin a round, choose its cohort and assign it to edge servers.

        Args:
            contexts: Contexts, shape (clients, D), finite and >= 0.
            clients: Names of available members.
            servers: Labels of the edge servers that reach each of them; unknown labels are passed over.
            prices: Cost of using each of them, shape (clients,), >= 0; None for 1.

        Raises:
            InvalidInputError: If a context or a price is malformed.
            UnknownNameError: If a client is no member.
        """
        self._report_unseen()  # before anything is booked
        slots = self._distinct_slots(clients)
        rows = self._vectors(contexts, slots)
        self._check_vectors(slots, rows, np.ones(slots.shape[0], np.bool_))
        links = [
            (row, self._server_of[label])
            for row, labels in enumerate(servers)
            for label in dict.fromkeys(labels)
            if label in self._server_of
        ]
        row, server = np.array(links, np.int64).reshape(-1, 2).T
        cost = np.ones(len(clients)) if prices is None else np.asarray(prices, np.float64)
        if cost.shape != (len(clients),) or not ((cost >= 0.0) & (cost < math.inf)).all():
            raise InvalidInputError(f"prices are {cost.tolist()}; expected a finite number >= 0 for each client")
        context = RoundContext(
            round=self.round + 1,
            features=rows[row],
            available=np.ones(row.shape[0], np.bool_),
            cohort_size=self.cohort_size,
            client=slots[row],
            server=server,
            cost=cost[row],
            budget=np.array(list(self.budgets.values())),
            members=self._members.copy(),
        )
        check_context(context, self._spec)
        selection = self.policy.select(self._state, context, rng=self._streams.at("policy", context.round))
        check_selection(selection, context, fills_cohort=False)
        chosen = self._book(context, selection)
        labels = list(self.budgets)
        return EdgeCohort(
            self.round,
            tuple(self._ids[slot] for slot in chosen),
            tuple(labels[number] for number in server[selection.links]),
        )

    def _settings(self) -> dict[str, Any]:
        return {"budgets": list(self.budgets.items())}  # a list keeps the order, which numbers the servers

    @classmethod
    def _arguments(cls, header: Mapping[str, Any]) -> dict[str, Any]:
        return {"budgets": dict(header["budgets"])}
