"""The connected nodes, their stable names, what is known of each, and which of them can be chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedroster.adapters.flower.context import ACTION, RECORD
from fedroster.adapters.flower.exchange import Exchange, Flight, log
from fedroster.core.errors import InvalidInputError
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import ContextOptions, NodeContext, checked_name, measured_bandwidth, read_context
from fedroster.engine.outcomes import OpenRound, shown
from fedroster.engine.pushed import PushedRounds


class Roster(Clients):
    """Nodes by id and by name: asks them for their contexts, and says which can be chosen.

    A name that an operator registered with a node's key at the SuperLink (``flwr supernode register --name``) is that
    node's, whatever it or others report.  A node without one keeps the first name that it reports until it registers
    again.  A name belongs to one connected node: a second one that claims it is refused while the first is connected,
    so that no node can train, or be counted, under another's name.

    ``under_way`` has training messages and their rounds, by the name of the node.
    """

    def __init__(
        self,
        grid: Grid,
        exchange: Exchange,
        contexts: ContextOptions | None,
        desk: PushedRounds,
    ) -> None:
        """Start without nodes; without ``contexts`` nodes report nothing: all are alike, and named by their id."""
        self._grid = grid
        self.exchange = exchange
        self.desk = desk
        self._contexts = contexts
        self._trusts = contexts is not None and contexts.trust_names
        self._by_id: dict[int, Node] = {}
        self._id_of: dict[str, int] = {}
        self._refused: set[int] = set()
        self._registered: dict[int, str] = {}
        self._owned: set[str] = set()
        self._doubts: dict[int, str] = {}
        self.under_way: dict[str, tuple[OpenRound, Flight]] = {}
        self._asked: dict[int, Flight] = {}
        self._ids: list[int] = []
        self._silent: set[int] = set()

    # ---------------------------------------------------------------- what is known

    def known(self, node_ids: Iterable[int]) -> list[Node]:
        """The given nodes that have a context, of any age."""
        return [node for node in map(self._by_id.get, node_ids) if node is not None]

    def named(self, names: Iterable[str]) -> list[Node]:
        """The connected nodes of some names."""
        return [self._by_id[self._id_of[name]] for name in names if name in self._id_of]

    def _meet(self, node_id: int, context: NodeContext, *, is_registered: bool) -> Node:
        """Meet a node; rules hold for a name that is registered, or where those that nodes report are trusted."""
        self._id_of[context.name] = node_id
        node = Node(node_id, context, self.exchange.clock.now(), registered=is_registered or self._trusts)
        self._by_id[node_id] = node
        return node

    def doubt(self, node_id: int, reason: str) -> None:
        """Book why a node cannot be chosen, empty for nothing any more, and warn of it once."""
        if reason and self._doubts.get(node_id) != reason:
            log.warning("node %d is excluded: %s", node_id, reason)
        self._doubts[node_id] = reason

    def _introduce(self, node_id: int, name: str) -> None:
        """Take in the name that an operator registered for a node; empty for none."""
        self._registered[node_id] = name
        if not name:
            return
        self._owned.add(name)
        known = self._by_id.get(node_id)
        if known is not None:
            known.registered = known.name == name or self._trusts
        holder = self._id_of.get(name)
        if holder is not None and self._registered.get(holder, "") != name:
            self.doubt(holder, f"its name {name!r} is registered for node {node_id}")
            del self._by_id[holder], self._id_of[name]
            self._refused.add(holder)

    def stale(self, node_ids: Iterable[int], *, age: float = 1.0) -> list[int]:
        """Nodes whose context is older than a share ``age`` of the time that it counts for, or is not known."""
        if self._contexts is None:
            return []
        oldest_s = self.exchange.clock.now() - age * self._contexts.fresh_s
        return [
            node_id
            for node_id in node_ids
            if (node := self._by_id.get(node_id)) is None or node.seen_s < oldest_s
            if node_id not in self._refused
        ]

    def note(self, node_id: int, content: RecordDict) -> Node | None:
        """Take in a context that a node sent; what is no context, or under another's name, changes nothing."""
        registered = self._registered.get(node_id, "")
        record = content.get(RECORD)
        if self._contexts is None or not isinstance(record, ConfigRecord):
            return None
        try:
            context = read_context(record, registered=registered)
        except InvalidInputError as error:
            self.doubt(node_id, str(error))
            return None
        known = self._by_id.get(node_id)
        is_taken = self._id_of.get(context.name, node_id) != node_id or (not registered and context.name in self._owned)
        if is_taken or (known is not None and known.name != context.name):
            self.doubt(node_id, f"it claims the name {context.name!r}, which is not its own")
            if known is None:
                self._refused.add(node_id)
            return None
        self.doubt(node_id, context.doubt)
        if known is None:
            return self._meet(node_id, context, is_registered=bool(registered))
        known.context = context
        known.seen_s = self.exchange.clock.now()
        return known

    def time_transfer(self, node: Node, model_bit: float, exchange_time_s: float) -> None:
        """Measure a node's bandwidth from an exchange, half of it from earlier ones."""
        busy_s = node.context.busy_s
        if busy_s is None or model_bit <= 0.0:
            return
        now_bps = measured_bandwidth(2.0 * model_bit, exchange_time_s, busy_s)  # there and back
        known_bps = self.desk.rounds.bandwidth_bps  # by name: it outlives a node's id
        known_bps[node.name] = 0.5 * (known_bps.get(node.name, now_bps) + now_bps)

    # ---------------------------------------------------------------- who can be chosen

    def nodes(self, cohort: Mapping[str, int] | None) -> list[Node]:
        """Nodes with a fresh context, or those of a cohort that are connected.

        One of a cohort whose id is connected, or whose name is registered for one that is, counts as connected even if
        it has not given a context since.  Others may be back under a new id, which their context shows.
        """
        self._look()
        if cohort is None:
            self._silent = self._ask_for_contexts()
            return self._known()
        registered = {name: node_id for node_id, name in self._registered.items() if name}
        for name, id_before in cohort.items():
            node_id = registered.get(name, id_before)
            if name not in self._id_of and node_id in self._ids and node_id not in self._by_id:
                self._meet(node_id, NodeContext(name), is_registered=name in registered).seen_s = -math.inf
        if len(self.named(cohort)) < len(cohort):
            self._ask_for_contexts()
        return self.named(cohort)

    def busy(self) -> set[int]:
        """Nodes whose replies are awaited, in time or late; gives up on those that take too long."""
        self.desk.busy()
        for name, (round_, flight) in list(self.under_way.items()):
            if not self.desk.awaits(round_, name):
                self.exchange.forget([flight])
                del self.under_way[name]
        return {flight.node_id for _, flight in self.under_way.values()}

    def may_more_come(self) -> bool:
        """Whether a node has been asked for its context and not answered yet, or too few are connected."""
        return (
            any(node_id in self._asked for node_id in self._silent) or len(self._ids) < self.desk.rounds.rules.min_nodes
        )

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
        """Look which nodes are connected, and forget those that are gone; without reports, meet those that are new."""
        self._ids = list(self._grid.get_node_ids())
        self.num_connected = len(self._ids)
        if hasattr(self._grid, "get_nodes") and any(node_id not in self._registered for node_id in self._ids):
            for info in self._grid.get_nodes():
                self._introduce(info.node_id, checked_name(getattr(info, "name", "")))  # older versions know ids only
        there = set(self._ids)
        gone = self._by_id.keys() - there
        for node_id in gone:
            del self._id_of[self._by_id.pop(node_id).name]
        for known in (self._registered, self._doubts):
            for node_id in known.keys() - there:
                del known[node_id]
        if gone:
            self._refused.clear()  # the name that they claim may be free now
        for node_id in there - self._by_id.keys() if self._contexts is None else ():
            name = self._registered.get(node_id, "")
            is_named = bool(name) and name not in self._id_of
            self._meet(node_id, NodeContext(name if is_named else f"node-{node_id}"), is_registered=is_named)

    def _ask_for_contexts(self) -> set[int]:
        """Ask for contexts at half their life, wait for those that are past it, and return the nodes without one.

        Newcomers are not waited for when there are nodes enough; their answers are met while others train.
        """
        contexts = self._contexts
        busy = self.busy()
        if contexts is None:
            return set()
        now_s = self.exchange.clock.now()
        there = set(self._ids)
        for node_id, flight in list(self._asked.items()):
            if node_id not in there or now_s - flight.sent_s > 10.0 * contexts.timeout_s:
                del self._asked[node_id]
                self.exchange.forget([flight])
        aging = self.stale(self._ids, age=0.5)
        queries = [
            Message(
                content=RecordDict(), message_type=f"query.{ACTION}", dst_node_id=node_id, ttl=10.0 * contexts.timeout_s
            )
            for node_id in aging
            if node_id not in self._asked and node_id not in busy
        ]
        flights = self.exchange.send(queries, self._take_context)
        self._asked |= {flight.node_id: flight for flight in flights}
        stale = set(self.stale(aging))
        if len(self._ids) - len(stale) >= self.desk.selector.cohort_size:
            stale = {node.node_id for node in self.known(stale)}
        # A node that did not answer in time before is not waited for again.
        waited = [flight for flight in flights if flight.node_id in stale]
        for flight in self.exchange.wait(waited, now_s + contexts.timeout_s):
            self.doubt(flight.node_id, f"it gave no context within {contexts.timeout_s:g} s")
        return set(self.stale(aging))

    def _take_context(self, flight: Flight) -> None:
        node_id, reply = flight.node_id, flight.reply
        if self._asked.get(node_id) is flight:
            del self._asked[node_id]
        if reply.has_content():
            self.note(node_id, reply.content)
        else:
            self.doubt(node_id, f"the query for its context failed: {shown(str(reply.error.reason))}")
