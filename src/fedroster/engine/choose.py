"""From connected nodes to a cohort: members join and leave by themselves, and the selector chooses."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedroster.core.errors import ConfigurationError, RoundNotBegunError
from fedroster.edge_selector import EdgeSelector
from fedroster.engine.contexts import Features, NodeContext, paper_features
from fedroster.engine.edges import EdgeRules, Place
from fedroster.selector import Cohort, EdgeCohort, Selector


@dataclass(slots=True)
class Node:
    """A connected node.

    Attributes:
        node_id: The engine's own id, which may change when the node comes back.
        context: What it last reported.
        seen_s: When, seconds of the server's clock.
        measured_bps: Bandwidth that the server measured, bit/s; None before the first transfer.
        place: Where the operator says that it is; None where nothing is said.
        registered: Whether its name is the operator's or the engine's word, not only its own: rules that name clients
            hold for such names only.
    """

    node_id: int
    context: NodeContext
    seen_s: float
    measured_bps: float | None = None
    place: Place | None = None
    registered: bool = False

    @property
    def name(self) -> str:
        """Stable name."""
        return self.context.name

    def bandwidth_bps(self, assumed_bps: float) -> float:
        """Bandwidth: declared, else measured, else assumed, bit/s."""
        return self.context.bandwidth_bps or self.measured_bps or assumed_bps


@dataclass(frozen=True, slots=True)
class Choice:
    """A cohort.

    Attributes:
        round: Its number.
        clients: Names of the chosen nodes.
        edges: Edge server of each, where there are any.
        predicted_s: How long the policy expects them to take, seconds; NaN when it believes nothing about times.
        is_resumed: Whether it had been chosen before the server was restarted.
    """

    round: int
    clients: tuple[str, ...]
    edges: Mapping[str, str] = field(default_factory=dict)
    predicted_s: float = math.nan
    is_resumed: bool = False


class Chooser:
    """Turns candidates into contexts, keeps the members, and lets the selector choose.

    Attributes:
        selector: Chooses; its clients are the nodes' names.
    """

    def __init__(
        self,
        selector: Selector,
        *,
        features: Features = paper_features,
        assumed_bps: float = 1e7,
        edge_rules: EdgeRules | None = None,
        absent_rounds: int = 100,
        log: logging.Logger | None = None,
    ) -> None:
        """Put a selector before candidates.

        Args:
            selector: Chooses.
            features: Makes the policy's contexts.
            assumed_bps: Bandwidth of nodes that declare none and were not measured, bit/s.
            edge_rules: Which edge servers reach a node, and its price; None for what nodes report.
            absent_rounds: Rounds after which a member that cannot be chosen leaves, until it comes back.
            log: Where members that leave are logged; None for this module's own.
        """
        self.selector = selector
        self._features = features
        self._assumed_bps = assumed_bps
        self._edge_rules = EdgeRules() if edge_rules is None else edge_rules
        self._absent_rounds = absent_rounds
        self._log = logging.getLogger(__name__) if log is None else log
        self._last_seen: dict[str, int] = {}

    def choose(self, nodes: Sequence[Node], model_bit: float) -> Choice:
        """Begin a round.

        Args:
            nodes: Nodes that can be chosen, each with a name of its own.
            model_bit: Size of the model, bit.

        Raises:
            RoundNotBegunError: If the rules leave none of the nodes, or fewer than a least number.
        """
        names = [node.context.name for node in nodes]
        self._update_members(names)
        strangers = [node.name for node in nodes if not node.registered]
        if names and not self.selector.allowed(clients=names, not_registered=strangers):
            raise RoundNotBegunError(
                f"round {self.selector.round + 1} is not begun: the rules exclude all {len(names)} clients "
                "that are there"
            )
        contexts = [node.context for node in nodes]
        cold = self.selector.cold()
        features = self._features(
            contexts,
            bandwidth_bps=np.array([node.bandwidth_bps(self._assumed_bps) for node in nodes]),
            cold=np.fromiter(map(cold.__getitem__, names), np.bool_, len(names)),
            model_bit=model_bit,
        )
        if isinstance(self.selector, EdgeSelector):
            cohort: Cohort = self.selector.select(
                features,
                clients=names,
                servers=[self._edge_rules.edges_of(node.context, node.place) for node in nodes],
                prices=np.array([self._edge_rules.price_of(context) for context in contexts]),
                not_registered=strangers,
            )
        else:
            cohort = self.selector.select(features, clients=names, not_registered=strangers)
        clients = tuple(map(str, cohort.clients))
        edges = dict(zip(clients, cohort.servers, strict=True)) if isinstance(cohort, EdgeCohort) else {}
        row_of = dict(zip(names, range(len(names)), strict=True))
        chosen = features[[row_of[name] for name in clients]]
        expected_s = self.selector.expected_times_s(chosen, clients=clients, as_array=True) if clients else np.empty(0)
        return Choice(cohort.round, clients, edges, float(expected_s.max()) if clients else math.nan)

    def may_evaluate(self, nodes: Sequence[Node]) -> set[str]:
        """Names of the nodes that the rules let evaluate; none if they are fewer than the least cohort.

        Args:
            nodes: Nodes that are asked for.
        """
        strangers = [node.name for node in nodes if not node.registered]
        names = self.selector.allowed("evaluation", clients=[node.name for node in nodes], not_registered=strangers)
        return set(map(str, names)) if len(names) >= self.selector.rules.least_cohort else set()

    def _update_members(self, names: Sequence[str]) -> None:
        round_ = self.selector.round
        members = set(self.selector.clients)
        fresh = [name for name in names if name not in members]
        if fresh:
            self.selector.join(fresh)
        self._last_seen |= dict.fromkeys(names, round_)
        gone = [
            name
            for name in members.difference(names)
            if round_ - self._last_seen.setdefault(str(name), round_) >= self._absent_rounds
        ]
        if gone:
            self._log.info("%d members have been absent for %d rounds and leave", len(gone), self._absent_rounds)
            self.selector.leave(gone)


def check_same(fresh: Selector, saved: Selector, where: str) -> None:
    """Refuse to go on with a saved selector that is not what the operator asks for now.

    Args:
        fresh: What is asked for.
        saved: What was saved.
        where: Where.

    Raises:
        ConfigurationError: If cohort size, number of features or budgets differ.
    """
    for name in ("budgets", "cohort_size", "num_features"):
        now, before = getattr(fresh, name, None), getattr(saved, name, None)
        if now is not None and now != before:
            what = f"{name} are" if name == "budgets" else f"{name} is"
            raise ConfigurationError(
                f"{what} {now}, and the selector saved in {where!r} has {before}; expected the same, or another folder"
            )
