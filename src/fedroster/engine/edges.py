"""Edge servers by their labels: which of them reach a node, and what using it costs their budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError
from fedroster.engine.contexts import NodeContext

_EARTH_RADIUS_M = 6_371_000.0

Place = tuple[float, float]
"""Latitude and longitude, degrees."""


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
class EdgeMap:
    """Which edge servers reach a node, and what using it costs.  What the operator says goes before what nodes say.

    Attributes:
        edges: Labels of the edge servers that reach a node, by its name.
        places: Where edge servers are, by label.  They reach nodes whose location is registered with the SuperLink
            (``flwr supernode register --location``) and within ``reach_m``, unless ``edges`` names the node.
        reach_m: How far, metres, > 0.
        prices: What using a node costs, by its name, >= 0.
        price: Price of a node that has no registered or reported price, >= 0.
        least_price: Prices that nodes declare are raised to it, >= 0: a free node would always be chosen.
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
