"""The nodes from which a cohort is chosen: connected, with a fresh context."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedroster.adapters.flower.context import ACTION
from fedroster.adapters.flower.exchange import Arrival, Exchange, Flight
from fedroster.adapters.flower.nodes import NodeBook
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import ContextOptions
from fedroster.engine.outcomes import shown
from fedroster.engine.pushed import PushedRounds
from fedroster.engine.rules import RoundRules


class Roster(NodeBook, Clients):
    """Asks nodes for their contexts, and says which can be chosen.

    Attributes:
        num_connected: How many nodes were connected when it was last asked.
        late: Messages of rounds that are over, whose replies are awaited further, by the name of the node.
        at_work: Nodes that are at work in free places.
    """

    def __init__(
        self, grid: Grid, exchange: Exchange, contexts: ContextOptions | None, desk: PushedRounds, rules: RoundRules
    ) -> None:
        """Start without nodes."""
        super().__init__(contexts, desk.rounds.bandwidth_bps)
        self._grid = grid
        self._exchange = exchange
        self._desk = desk
        self._cohort_size = desk.selector.cohort_size
        self._min_nodes = rules.min_nodes
        self.late: dict[str, Flight] = {}
        self.at_work: set[int] = set()
        self._asked: dict[int, Flight] = {}
        self._ids: list[int] = []
        self._silent: set[int] = set()

    def nodes(self, cohort: Mapping[str, int] | None) -> list[Node]:
        """Nodes with a fresh context, or those of a cohort that are connected.

        One of a cohort whose id is connected, or whose name is registered for one that is, counts as connected even if
        it has not given a context since.  Others may be back under a new id, which their context shows.
        """
        self._look()
        if cohort is None:
            self._silent = self._ask_for_contexts()
            return self._known()
        self.expect(cohort, self._ids)
        if len(self.named(cohort)) < len(cohort):
            self._ask_for_contexts()
        return self.named(cohort)

    def busy(self) -> set[int]:
        """Nodes at work, and those whose late replies are awaited; gives up on those that take too long."""
        busy = self._desk.busy()
        self._exchange.forget(flight for name, flight in self.late.items() if name not in busy)
        self.late = {name: flight for name, flight in self.late.items() if name in busy}
        return {flight.node_id for flight in self.late.values()} | self.at_work

    def may_more_come(self) -> bool:
        """Whether a node has been asked for its context and not answered yet, or too few are connected."""
        return any(node_id in self._asked for node_id in self._silent) or len(self._ids) < self._min_nodes

    def why_none(self, num_busy: int) -> str:
        """Why no node can be chosen."""
        known = self._known()
        doubts = [f"; node {node_id}: {reason}" for node_id in self._ids if (reason := self._doubts.get(node_id))]
        return (
            f"{len(self._ids)} nodes are connected, of which {len(self._ids) - len(known)} gave no fresh context (do "
            "their apps have the mod report_context, and report_context.register(app)?), "
            f"{sum(not node.context.willing for node in known)} are not willing and {num_busy} are still busy"
            + "".join(doubts)
        )

    def _known(self) -> list[Node]:
        return self.known(node_id for node_id in self._ids if node_id not in self._silent)

    def _look(self) -> None:
        """Look which nodes are connected."""
        self._ids = list(self._grid.get_node_ids())
        self.num_connected = len(self._ids)
        if hasattr(self._grid, "get_nodes") and any(node_id not in self._registered for node_id in self._ids):
            self.introduce(self._grid.get_nodes())
        self.keep(self._ids, self._exchange.clock.now())

    def _ask_for_contexts(self) -> set[int]:
        """Ask for contexts at half their life, wait for those that are past it, and return the nodes without one.

        Newcomers are not waited for when there are nodes enough; their answers are met while others train.
        """
        contexts = self.rules
        busy = self.busy()
        if contexts is None:
            return set()
        now_s = self._exchange.clock.now()
        there = set(self._ids)
        for node_id, flight in list(self._asked.items()):
            if node_id not in there or now_s - flight.sent_s > 10.0 * contexts.timeout_s:
                del self._asked[node_id]
                self._exchange.forget([flight])
        aging = self.stale(self._ids, now_s, age=0.5)
        queries = [
            Message(
                content=RecordDict(), message_type=f"query.{ACTION}", dst_node_id=node_id, ttl=10.0 * contexts.timeout_s
            )
            for node_id in aging
            if node_id not in self._asked and node_id not in busy
        ]
        flights, _ = self._exchange.send(queries, self._take_context)
        self._asked |= {flight.node_id: flight for flight in flights}
        stale = set(self.stale(aging, now_s))
        if len(self._ids) - len(stale) >= self._cohort_size:
            stale = {node.node_id for node in self.known(stale)}
        # A node that did not answer in time before is not waited for again.
        waited = [flight for flight in flights if flight.node_id in stale]
        for flight in self._exchange.wait(waited, now_s + contexts.timeout_s):
            self.doubt(flight.node_id, f"it gave no context within {contexts.timeout_s:g} s")
        return set(self.stale(aging, self._exchange.clock.now()))

    def _take_context(self, arrival: Arrival) -> None:
        node_id = arrival.flight.node_id
        reply = arrival.reply
        if self._asked.get(node_id) is arrival.flight:
            del self._asked[node_id]
        if reply.has_content():
            self.note(node_id, reply.content, self._exchange.clock.now())
        else:
            self.doubt(node_id, f"the query for its context failed: {shown(str(reply.error.reason))}")
