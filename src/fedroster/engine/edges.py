"""Edge servers by their labels: which of them reach a node, and what using it costs their budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError
from fedroster.engine.contexts import NodeContext

_LEAST_PRICE = 0.01  # prices that nodes declare are raised to it: a free node would always be chosen


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
    share = np.array([node.cpu_share for node in nodes])
    features: FloatArray = np.clip([share, (np.log10(bandwidth_bps) - 3.0) / 9.0], 0.0, 1.0).T
    return features


@dataclass(frozen=True, slots=True)
class EdgeMap:
    """Which edge servers reach a node, and what using it costs.  What the operator says goes before what nodes say.

    Attributes:
        edges: Labels of the edge servers that reach a node, by its name.
        prices: What using a node costs, by its name, >= 0.
        price: Price of a node that has no registered or reported price, >= 0.
        trust_nodes: Whether the labels and prices that nodes report count, where the operator says nothing.
    """

    edges: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    price: float = 1.0
    trust_nodes: bool = True

    def __post_init__(self) -> None:
        """Raise a ConfigurationError if a price is out of its range, or labels are a string."""
        check_number("price", self.price, least=0.0)
        for name, price in self.prices.items():
            check_number(f"price of node {name!r}", price, least=0.0)
        for name, labels in self.edges.items():
            if isinstance(labels, str):
                raise ConfigurationError(f"edges of node {name!r} are the string {labels!r}; expected a list of labels")

    def edges_of(self, node: NodeContext) -> tuple[str, ...]:
        """Labels of the edge servers that reach a node, of which this is what it reported."""
        if node.name in self.edges:
            return tuple(self.edges[node.name])
        labels = node.edge.split(",") if self.trust_nodes else []
        return tuple(label for each in labels if (label := each.strip()))

    def price_of(self, node: NodeContext) -> float:
        """Price of using a node, of which this is what it reported."""
        if node.name in self.prices:
            return float(self.prices[node.name])
        if node.price is None or not self.trust_nodes:
            return self.price
        return max(node.price, _LEAST_PRICE)
