"""Edge servers on a flat grid: nodes carry their labels, and a policy such as COCS assigns nodes within budgets.

Flower's grid is flat: every node talks to the one SuperLink.  An edge server is a label here, and what it would do, to
aggregate its nodes' models, is done for it at the server app (:mod:`~fedroster.adapters.flower.edge_models`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedroster.adapters.flower.context import NodeContext
from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.core.problem import RoundContext, check_context, check_selection
from fedroster.core.protocols import AnyPolicy
from fedroster.ledger import ClientId, Ledger
from fedroster.selector import Cohort

_EARTH_RADIUS_M = 6_371_000.0

Place = tuple[float, float]
"""Latitude and longitude, degrees."""


@dataclass(frozen=True, slots=True)
class EdgeCohort(Cohort):
    """Who takes part in a round, and where.

    Attributes:
        edges: Edge server of each chosen client.
    """

    edges: tuple[str, ...] = ()


def edge_features(
    nodes: Sequence[NodeContext], *, bandwidth_bps: FloatArray, cold: BoolArray, model_bit: float
) -> FloatArray:
    r"""Contexts in :math:`[0, 1]^2` for COCS: the CPU share, and where log B lies between 1 kbit/s and 1 Tbit/s.

    Args:
        nodes: What is known of the nodes.
        bandwidth_bps: B, shape (nodes,), bit/s, in [1e3, 1e12].
        cold: Not used.
        model_bit: Not used: every node gets the same model.

    Returns:
        Shape (nodes, 2).
    """
    features = np.empty((2, len(nodes))).T
    features[:, 0] = [node.cpu_share for node in nodes]
    features[:, 1] = (np.log10(bandwidth_bps) - 3.0) / 9.0
    return np.clip(features, 0.0, 1.0)


def distance_m(here: Place, there: Place) -> float:
    r"""Great-circle distance, :math:`2 R \arcsin \sqrt{h}`, metres.

    .. math:: h = \sin^2 \tfrac{\Delta\varphi}{2} + \cos\varphi_1 \cos\varphi_2 \sin^2 \tfrac{\Delta\lambda}{2}

    Args:
        here: Latitude and longitude, degrees.
        there: The same of another place.
    """
    (latitude, longitude), (latitude_2, longitude_2) = map(math.radians, here), map(math.radians, there)
    half = math.sin((latitude_2 - latitude) / 2.0) ** 2
    half += math.cos(latitude) * math.cos(latitude_2) * math.sin((longitude_2 - longitude) / 2.0) ** 2
    return 2.0 * _EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(half)))


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """Which edge servers reach a node, and what using it costs.  What the operator says goes before what nodes say.

    Attributes:
        edges: Labels of the edge servers that reach a node, by its name.
        places: Where edge servers are, by label.  They reach nodes whose location is registered with the SuperLink
            (``flwr supernode register --location``) and within ``reach_m``, unless ``edges`` names the node.
        reach_m: How far, metres, > 0.
        prices: What using a node costs, by its name, >= 0.
        price: Price of a node for which nobody names one, >= 0.
        least_price: Prices that nodes declare are raised to it, >= 0: who costs nothing is always chosen.
        trust_nodes: Whether the labels and prices that nodes report count, where the operator says nothing.
    """

    edges: Mapping[str, Sequence[str]] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    reach_m: float = 50_000.0
    prices: Mapping[str, float] = field(default_factory=dict)
    price: float = 1.0
    least_price: float = 0.01
    trust_nodes: bool = True

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a price, a place or the reach is out of its range, or labels are a string.
        """
        check_number("reach_m", self.reach_m, above=0.0)
        for name in ("price", "least_price"):
            check_number(name, getattr(self, name), least=0.0)
        for name, price in self.prices.items():
            check_number(f"price of node {name!r}", price, least=0.0)
        for name, labels in self.edges.items():
            if isinstance(labels, str):
                raise ConfigurationError(f"edges of node {name!r} are the string {labels!r}; expected a list of labels")
        for edge, (latitude, longitude) in self.places.items():
            check_number(f"latitude of edge server {edge!r}", latitude, least=-90.0, most=90.0)
            check_number(f"longitude of edge server {edge!r}", longitude, least=-180.0, most=180.0)

    def edges_of(self, node: NodeContext, place: Place | None) -> tuple[str, ...]:
        """Labels of the edge servers that reach a node.

        Args:
            node: What it reported.
            place: Where the SuperLink says that it is; None where it says nothing.
        """
        if node.name in self.edges:
            return tuple(self.edges[node.name])
        if place is not None and self.places:
            return tuple(edge for edge, there in self.places.items() if distance_m(place, there) <= self.reach_m)
        labels = node.edge.split(",") if self.trust_nodes else []
        return tuple(label for each in labels if (label := each.strip()))

    def price_of(self, node: NodeContext) -> float:
        """Price of using a node.

        Args:
            node: What it reported.
        """
        if node.name in self.prices:
            return float(self.prices[node.name])
        if node.price is None or not self.trust_nodes:
            return self.price
        return max(node.price, self.least_price)


class EdgeSelector(Ledger):
    """Chooses cohorts of a federation with edge servers; takes a :class:`~fedroster.selector.Selector`'s place.

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
        for edge, budget in budgets.items():
            check_number(f"budget of edge server {edge!r}", budget, least=0.0)
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
        self.budgets = {str(edge): float(budget) for edge, budget in budgets.items()}
        self._server_of = {edge: number for number, edge in enumerate(self.budgets)}

    def select(
        self,
        features: ArrayLike,
        *,
        clients: Sequence[ClientId],
        edges: Sequence[Sequence[str]],
        prices: FloatArray | None = None,
    ) -> EdgeCohort:
        """Begin a round, choose its cohort and assign it to edge servers.

        Args:
            features: Contexts, shape (clients, D), finite and >= 0.
            clients: Names of available members.
            edges: Labels of the edge servers that reach each of them; unknown labels are passed over.
            prices: Cost of using each of them, shape (clients,), >= 0; None for 1.

        Raises:
            InvalidInputError: If a context or a price is malformed.
            UnknownNameError: If a client is no member.
        """
        self._report_unseen()  # before anything is booked
        slots = self._distinct_slots(clients)
        rows = self._vectors(features, slots)
        self._check_vectors(slots, rows, np.ones(slots.shape[0], np.bool_))
        links = [
            (row, self._server_of[edge])
            for row, labels in enumerate(edges)
            for edge in dict.fromkeys(labels)
            if edge in self._server_of
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
