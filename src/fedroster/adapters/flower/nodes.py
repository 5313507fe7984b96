"""The connected nodes, their stable names, and what is known of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from fedroster.adapters.flower.context import RECORD
from fedroster.adapters.flower.exchange import log
from fedroster.core.errors import InvalidInputError
from fedroster.engine.choose import Node
from fedroster.engine.contexts import ContextOptions, NodeContext, checked_name, measured_bandwidth, read_context


class NodeBook:
    """Nodes by id and by name.

    A name that an operator registered with a node's key at the SuperLink (``flwr supernode register --name``) is that
    node's, whatever it or others report.  A node without one keeps the first name that it reports until it registers
    again.  A name belongs to one connected node: a second one that claims it is refused while the first is connected,
    so that no node can train, or be counted, under another's name.

    Attributes:
        rules: When contexts count.
        measured_bps: Bandwidths that the server has measured, by name, bit/s; they outlive a node's id.
    """

    def __init__(self, rules: ContextOptions | None, measured_bps: dict[str, float]) -> None:
        """Start without nodes; without rules, nodes report nothing: then all are alike, and named by their id."""
        self.rules = rules
        self._by_id: dict[int, Node] = {}
        self._id_of: dict[str, int] = {}
        self._refused: set[int] = set()
        self._registered: dict[int, str] = {}
        self._owned: set[str] = set()
        self._doubts: dict[int, str] = {}
        self.measured_bps = measured_bps

    def known(self, node_ids: Iterable[int]) -> list[Node]:
        """The given nodes that have a context, of any age."""
        return [node for node in map(self._by_id.get, node_ids) if node is not None]

    def named(self, names: Iterable[str]) -> list[Node]:
        """The connected nodes of some names."""
        return [self._by_id[self._id_of[name]] for name in names if name in self._id_of]

    def expect(self, ids: Mapping[str, int], connected: Iterable[int]) -> None:
        """Meet nodes of which something is known from before a restart, though they have given no context since.

        ``ids`` are those that they had, 0 where it is not known.
        """
        there = set(connected)
        registered = {name: node_id for node_id, name in self._registered.items() if name}
        for name, id_before in ids.items():
            node_id = registered.get(name, id_before)
            if name not in self._id_of and node_id in there and node_id not in self._by_id:
                self._meet(node_id, NodeContext(name=name), -math.inf, self._counts(name in registered))

    def _meet(self, node_id: int, context: NodeContext, seen_s: float, is_registered: bool) -> Node:
        self._id_of[context.name] = node_id
        measured_bps = self.measured_bps.get(context.name)
        node = self._by_id[node_id] = Node(node_id, context, seen_s, measured_bps, is_registered)
        return node

    def doubt(self, node_id: int, reason: str) -> None:
        """Book why a node cannot be chosen, empty for nothing any more, and warn of it once."""
        if reason and self._doubts.get(node_id) != reason:
            log.warning("node %d is excluded: %s", node_id, reason)
        self._doubts[node_id] = reason

    def _counts(self, is_registered: bool) -> bool:
        """Whether rules hold for a name."""
        return is_registered or (self.rules is not None and self.rules.trust_names)

    def introduce(self, infos: Iterable[Any]) -> None:
        """Take in what the SuperLink itself knows of nodes: the name that an operator registered.

        Older versions of Flower know ids only.
        """
        for info in infos:
            name = self._registered[info.node_id] = checked_name(getattr(info, "name", ""))
            if not name:
                continue
            self._owned.add(name)
            known = self._by_id.get(info.node_id)
            if known is not None:
                known.registered = self._counts(known.name == name)
            holder = self._id_of.get(name)
            if holder is not None and self._registered.get(holder, "") != name:
                self.doubt(holder, f"its name {name!r} is registered for node {info.node_id}")
                del self._by_id[holder], self._id_of[name]
                self._refused.add(holder)

    def keep(self, connected: Iterable[int], now_s: float) -> None:
        """Forget the nodes that are gone; without reports, meet those that are new."""
        there = set(connected)
        gone = self._by_id.keys() - there
        for node_id in gone:
            del self._id_of[self._by_id.pop(node_id).name]
        for known in (self._registered, self._doubts):
            for node_id in known.keys() - there:
                del known[node_id]
        if gone:
            self._refused.clear()  # the name that they claim may be free now
        if self.rules is None:
            for node_id in there:
                if node_id not in self._by_id:
                    name = self._registered.get(node_id, "")
                    is_named = bool(name) and name not in self._id_of
                    self._meet(node_id, NodeContext(name=name if is_named else f"node-{node_id}"), now_s, is_named)

    def stale(self, connected: Iterable[int], now_s: float, *, age: float = 1.0) -> list[int]:
        """Nodes whose context is older than a share ``age`` of the time that it counts for, or is not known."""
        if self.rules is None:
            return []
        oldest_s = now_s - age * self.rules.fresh_s
        return [
            node_id
            for node_id in connected
            if (node := self._by_id.get(node_id)) is None or node.seen_s < oldest_s
            if node_id not in self._refused
        ]

    def note(self, node_id: int, content: RecordDict, now_s: float) -> Node | None:
        """Take in a context that a node sent; what is no context, or under another's name, changes nothing."""
        registered = self._registered.get(node_id, "")
        record = content.get(RECORD)
        if self.rules is None or not isinstance(record, ConfigRecord):
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
            return self._meet(node_id, context, now_s, self._counts(bool(registered)))
        known.context = context
        known.seen_s = now_s
        return known

    def time_transfer(self, node: Node, model_bit: float, exchange_time_s: float) -> None:
        """Measure a node's bandwidth from an exchange, half of it from earlier ones."""
        busy_s = node.context.busy_s
        if busy_s is None or model_bit <= 0.0:
            return
        now_bps = measured_bandwidth(2.0 * model_bit, exchange_time_s, busy_s)  # there and back
        before_bps = node.measured_bps
        node.measured_bps = now_bps if before_bps is None else 0.5 * (before_bps + now_bps)
        self.measured_bps[node.name] = node.measured_bps
