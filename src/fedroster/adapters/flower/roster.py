"""The nodes that can be chosen now: connected, with a fresh context, willing and not busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedroster.adapters.flower.context import ACTION
from fedroster.adapters.flower.exchange import Arrival, Exchange, Flight
from fedroster.adapters.flower.nodes import NodeBook
from fedroster.adapters.flower.runner import RoundRunner
from fedroster.engine.choose import Node
from fedroster.engine.outcomes import shown
from fedroster.engine.rules import NoNodesError, RoundRules

_WAITING_PAUSE_S = 0.5


class Roster:
    """Asks nodes for their contexts, and says which can be chosen.

    Attributes:
        num_connected: How many nodes were connected when it was last asked.
    """

    def __init__(
        self, grid: Grid, exchange: Exchange, book: NodeBook, runner: RoundRunner, rules: RoundRules, cohort_size: int
    ) -> None:
        """Start without nodes."""
        self._grid = grid
        self._exchange = exchange
        self._book = book
        self._runner = runner
        self._rules = rules
        self._cohort_size = cohort_size
        self._asked: dict[int, Flight] = {}
        self._is_first = True
        self.num_connected = 0

    def available(self) -> list[Node]:
        """Nodes that can be chosen; waits for one, and for the first round for enough.

        Raises:
            NoNodesError: If there is none for longer than ``wait_s``.
        """
        clock = self._exchange.clock
        give_up_s = clock.now() + self._rules.wait_s
        wanted = (self._rules.min_nodes or self._cohort_size) if self._is_first else 1
        while True:
            connected = self._connected()
            silent = self._ask_for_contexts(connected)
            known = self._book.known(node_id for node_id in connected if node_id not in silent)
            busy = self._runner.busy()
            nodes = [node for node in known if node.context.willing and node.name not in busy]
            now_s = clock.now()
            may_more_come = any(node_id in self._asked for node_id in silent) or len(connected) < self._rules.min_nodes
            if nodes and (len(nodes) >= wanted or not may_more_come or now_s >= give_up_s):
                self._is_first = False
                return nodes
            if now_s >= give_up_s:
                raise NoNodesError(self._why_none(connected, known, len(busy)))
            self.pause(give_up_s)

    def again(self, cohort: Mapping[str, int]) -> list[Node]:
        """Nodes of a round that was interrupted; waits for those that are not there.

        A node whose id is connected, or whose name is registered for one that is, counts as connected even if it has
        not given a context since.  Others may be back under a new id, which their context shows.
        """
        give_up_s = self._exchange.clock.now() + self._rules.wait_s
        while True:
            connected = self._connected()
            self._book.expect(cohort, connected)
            if any(self._book.named(name) is None for name in cohort):
                self._ask_for_contexts(connected)
            here = [node for node in map(self._book.named, cohort) if node is not None]
            if len(here) == len(cohort) or self._exchange.clock.now() >= give_up_s:
                return here
            self.pause(give_up_s)

    def pause(self, until_s: float) -> None:
        """Wait a moment for nodes, until a time at most."""
        self._exchange.look()
        self._exchange.pause(min(_WAITING_PAUSE_S, until_s - self._exchange.clock.now()))

    def _why_none(self, connected: Sequence[int], known: Sequence[Node], num_busy: int) -> str:
        reasons = "; ".join(self._book.reasons(connected))
        return (
            f"no node can be chosen after {self._rules.wait_s:g} s: {len(connected)} nodes are connected, of which "
            f"{len(connected) - len(known)} gave no fresh context (do their apps have the mod report_context, and "
            f"report_context.register(app)?), {sum(not node.context.willing for node in known)} are not willing and "
            f"{num_busy} are still busy" + (f"; {reasons}" if reasons else "")
        )

    def _connected(self) -> list[int]:
        connected = list(self._grid.get_node_ids())
        self.num_connected = len(connected)
        if self._book.strangers(connected) and hasattr(self._grid, "get_nodes"):
            self._book.introduce(self._grid.get_nodes())
        self._book.keep(connected, self._exchange.clock.now())
        return connected

    def _ask_for_contexts(self, connected: Sequence[int]) -> set[int]:
        """Ask for contexts at half their life, wait for those that are past it, and return the nodes without one.

        Newcomers are not waited for when there are nodes enough; their answers are met while others train.
        """
        contexts = self._book.rules
        if contexts is None:
            return set()
        now_s = self._exchange.clock.now()
        there = set(connected)
        for node_id, flight in list(self._asked.items()):
            if node_id not in there or now_s - flight.sent_s > 10.0 * contexts.timeout_s:
                del self._asked[node_id]
                self._exchange.forget([flight])
        busy = self._runner.busy().values()
        aging = self._book.stale(connected, now_s, age=0.5)
        queries = [
            Message(
                content=RecordDict(), message_type=f"query.{ACTION}", dst_node_id=node_id, ttl=10.0 * contexts.timeout_s
            )
            for node_id in aging
            if node_id not in self._asked and node_id not in busy
        ]
        flights, _ = self._exchange.send(queries, self._take_context)
        self._asked |= {flight.node_id: flight for flight in flights}
        stale = set(self._book.stale(aging, now_s))
        if len(connected) - len(stale) >= self._cohort_size:
            stale = {node.node_id for node in self._book.known(stale)}
        # A node that did not answer in time before is not waited for again.
        waited = [flight for flight in flights if flight.node_id in stale]
        for flight in self._exchange.wait(waited, now_s + contexts.timeout_s):
            self._book.doubt(flight.node_id, f"it gave no context within {contexts.timeout_s:g} s")
        return set(self._book.stale(aging, self._exchange.clock.now()))

    def _take_context(self, arrival: Arrival) -> None:
        node_id, reply = arrival.flight.node_id, arrival.reply
        if self._asked.get(node_id) is arrival.flight:
            del self._asked[node_id]
        if reply.has_content():
            self._book.note(node_id, reply.content, self._exchange.clock.now())
        else:
            self._book.doubt(node_id, f"the query for its context failed: {shown(str(reply.error.reason))}")
