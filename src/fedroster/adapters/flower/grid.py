"""A Flower grid on which a policy chooses who trains.

The strategy samples as it always does and builds its messages; they are then kept, dropped or addressed anew so that
exactly the chosen nodes are sent one.  Nothing of the strategy is overridden or changed: its own ``configure_train``
runs in full (FedAdam keeps its state, FedProx adds its mu) and its own ``aggregate_train`` gets ordinary replies.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedroster.adapters.flower.context import ACTION, RECORD, ContextRules, NodeContext, paper_features
from fedroster.adapters.flower.edge_models import EdgeAggregation
from fedroster.adapters.flower.edges import EdgeRules
from fedroster.adapters.flower.exchange import Arrival, Exchange, Flight
from fedroster.adapters.flower.losses import Losses, LossReader, LossRules
from fedroster.adapters.flower.nodes import Node, NodeBook
from fedroster.adapters.flower.privacy import PrivacyNeeds, privacy_needs
from fedroster.adapters.flower.replies import CheckReply, check_reply, is_dropout, odd_ones
from fedroster.adapters.flower.report import RoundReport, Sink
from fedroster.adapters.flower.rounds import Round, addressed
from fedroster.adapters.flower.rules import NoNodesError, RoundRules
from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Status
from fedroster.core.protocols import wants_losses
from fedroster.selector import ClientId, Cohort, EdgeSelector, Selector

_log = logging.getLogger(__name__)

_SELECTOR_FILE, _ROUND_FILE, _EDGES_FILE = "selector.npz", "round.json", "edges.npz"
_WAITING_CALLS_S = 10.0
"""Calls of ``get_node_ids`` that are closer than this belong to one loop that waits for nodes."""
_WAITING_PAUSE_S = 0.5


class Features(Protocol):
    """Turns what is known of nodes into the policy's contexts."""

    def __call__(
        self, nodes: Sequence[NodeContext], /, *, bandwidth_bps: FloatArray, cold: BoolArray, model_bit: float
    ) -> FloatArray:
        """Return contexts, shape (nodes, D), finite and >= 0; :func:`~.context.paper_features` says what is given."""
        ...


@dataclass(frozen=True, slots=True)
class _Straggler:
    """A chosen node whose reply is awaited after its round.

    Attributes:
        number: Its round.
        name: The node.
        until_s: When it counts as dropped.
    """

    number: int
    name: str
    until_s: float


class SelectingGrid(Grid):
    """Any Flower grid, on which a policy chooses who trains.

    Example, in a server app::

        selector = Selector(RBCSF(V=20.0, beta=0.1), cohort_size=10)
        strategy.start(grid=SelectingGrid(grid, selector), initial_arrays=arrays, num_rounds=100)

    With ``contexts``, nodes must run the client mod :data:`~.context.report_context`; without, all nodes look alike and
    have no stable names.
    """

    def __init__(
        self,
        grid: Grid,
        selector: Selector | EdgeSelector,
        *,
        contexts: ContextRules | None = None,
        rules: RoundRules | None = None,
        features: Features = paper_features,
        edges: EdgeAggregation | None = None,
        edge_rules: EdgeRules | None = None,
        losses: LossRules | None = None,
        state_dir: str | Path | None = None,
        sinks: Iterable[Sink] = (),
        check: CheckReply | None = check_reply,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wrap a grid.

        Args:
            grid: The server app's grid.
            selector: Chooses; clients are the nodes' stable names, and join by themselves.
            contexts: When to ask nodes for their contexts; None when they report nothing.
            rules: When rounds end, and the longest time that is learned.
            features: Makes the policy's contexts; paper A's by default.
            edges: Aggregates at edge servers first; needs an :class:`~fedroster.selector.EdgeSelector`.
            edge_rules: Which edge servers reach a node, and its price; None for what nodes report.
            losses: Where replies hold losses, for policies that learn from them; None for the names of
                :class:`~.losses.LossRules`.
            state_dir: Folder in which the selector, measured bandwidths and edge models are saved in every round, and
                from which they are resumed; None for nowhere.
            sinks: Take a report of every round.
            check: Says what is wrong with a reply; None to let everything pass.
            now: A clock that never runs backwards, seconds.
            sleep: Pauses for so many seconds.

        Raises:
            ConfigurationError: If edges are aggregated that the selector does not assign, or a saved selector has
                another cohort size, number of features or budgets.
            StateFileError: If a saved file is damaged or belongs to another policy.
        """
        if edges is not None and not isinstance(selector, EdgeSelector):
            raise ConfigurationError(f"a {type(selector).__name__} assigns no edge servers; expected an EdgeSelector")
        self._grid = grid
        self._selector = selector
        self._edges = edges
        self._edge_rules = EdgeRules() if edge_rules is None else edge_rules
        self._losses = LossReader(LossRules() if losses is None else losses) if wants_losses(selector.policy) else None
        self._rules = RoundRules() if rules is None else rules
        self._features = features
        self._sinks = tuple(sinks)
        self._check = check
        self._now = now
        self._exchange = Exchange(grid, now=now, sleep=sleep)
        self._book = NodeBook(contexts)
        self._asked: dict[int, Flight] = {}
        self._stragglers: dict[str, _Straggler] = {}
        self._last_seen: dict[str, int] = {}
        self._round = Round()
        self._is_resuming = False
        self._num_connected = 0
        self._waiting_since_s, self._asked_ids_s = math.inf, -math.inf
        self._folder = None if state_dir is None else Path(state_dir)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._resume()
        # What the operator says now goes before what was saved.
        self._selector.longest_s = self._rules.cap_s(selector.longest_s)

    @property
    def selector(self) -> Selector | EdgeSelector:
        """The selector, resumed if there was a saved one."""
        return self._selector

    # ---------------------------------------------------------------- a grid

    def set_run(self, run: Any) -> None:
        """Set the run of the wrapped grid."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Run of the wrapped grid."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message, as the wrapped grid does."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """All connected nodes.

        Raises:
            NoNodesError: If a caller keeps asking for longer than ``wait_s``, as strategies do while they wait for more
                nodes than are there; they would wait forever.
        """
        ids = list(self._grid.get_node_ids())
        now_s = self._now()
        if now_s - self._asked_ids_s > _WAITING_CALLS_S:
            self._waiting_since_s = now_s
        self._asked_ids_s = now_s
        if now_s - self._waiting_since_s > self._rules.wait_s:
            raise NoNodesError(
                f"{len(ids)} nodes are connected, and the strategy has waited for more for {self._rules.wait_s:g} s; "
                "connect more, lower its min_train_nodes, min_evaluate_nodes and min_available_nodes, or raise wait_s"
            )
        return ids

    def get_nodes(self) -> Iterable[Any]:
        """All connected nodes, with what the wrapped grid knows of them."""
        nodes: Iterable[Any] = self._grid.get_nodes()
        return nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages, as they are: only :meth:`send_and_receive` selects."""
        message_ids: Iterable[str] = self._grid.push_messages(messages)
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull replies to messages that were pushed by :meth:`push_messages`."""
        replies: Iterable[Message] = self._grid.pull_messages(message_ids)
        return replies

    def __getattr__(self, name: str) -> Any:
        """Whatever else the wrapped grid can do."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return replies; training messages go to the nodes that the policy chooses.

        Args:
            messages: Of one kind: all for training, or none.
            timeout: Longest time to wait, seconds; None for no limit.

        Returns:
            Replies that a strategy can use, and errors that nodes reported.  Fewer than were sent, when nodes are late,
            silent, or answer with garbage.

        Raises:
            ConfigurationError: If training and other messages are mixed, if messages that differ are meant for nodes
                that were not chosen, or if a differential-privacy wrapper needs what this selection cannot give.
            NoNodesError: If nobody can be chosen for longer than ``wait_s``.
        """
        needs = privacy_needs(sys._getframe(1).f_locals.get("self"))
        outgoing = list(messages)
        self._asked_ids_s = -math.inf  # whoever asks from now on begins anew
        self._settle()
        is_training = [_category(message) == "train" for message in outgoing]
        if not any(is_training):
            return self._ask(outgoing, timeout)
        if not all(is_training):
            raise ConfigurationError(
                f"{sum(is_training)} of {len(outgoing)} messages are for training; expected all of them or none"
            )
        return self._train(outgoing, timeout, needs)

    # ---------------------------------------------------------------- training

    def _train(self, messages: list[Message], timeout: float | None, needs: PrivacyNeeds | None) -> list[Message]:
        if needs is not None and self._edges is not None:
            raise ConfigurationError(f"{needs.wrapper} needs every client's update; expected no aggregation at edges")
        if needs is not None:
            needs.check(self._rules.first or self._selector.cohort_size)
        started_s = self._now()
        model_bit = 8.0 * sum(
            len(array.data) for record in messages[0].content.array_records.values() for array in record.values()
        )
        nodes = self._nodes_that_can_train()
        predicted_s = math.nan
        chosen = self._chosen_before() if self._is_resuming else []
        self._is_resuming, resumed = False, bool(chosen)
        if not chosen:
            chosen, predicted_s = self._choose(nodes, model_bit)
        self._save()
        select_s = self._now() - started_s

        outgoing = addressed(messages, [node.node_id for node in chosen])
        edge_of = {node.node_id: self._round.edges.get(node.name, "") for node in chosen}
        if self._edges is not None:
            outgoing = self._edges.outgoing(outgoing, edge_of)
        flights, refused = self._exchange.send(outgoing)
        sent_s = self._now()
        name_of = {node.node_id: node.name for node in chosen}
        node_of = {node.node_id: node for node in chosen}
        usable: list[Arrival] = []
        errors: list[Arrival] = []
        status: dict[str, Status | None] = {name_of[node_id]: Status.DROPPED for node_id in refused}
        times_s: dict[str, float] = {}
        told: dict[str, Losses] = {}

        def take(arrival: Arrival) -> None:
            node = node_of[arrival.flight.node_id]
            if arrival.reply.has_error():
                status[node.name] = Status.DROPPED if is_dropout(arrival.reply) else Status.FAILED
                errors.append(arrival)
                return
            self._read_context(node, arrival, model_bit)
            wrong = self._check(arrival.flight.message, arrival.reply) if self._check is not None else None
            if wrong is None:
                usable.append(arrival)
                times_s[node.name] = arrival.time_s
                told[node.name] = self._losses_of(arrival)
            else:
                _log.warning("the reply of %s in round %d is refused: %s", node.name, self._round.number, wrong)
                status[node.name] = Status.FAILED

        wanted = self._rules.first or len(flights)

        def is_enough() -> bool:
            if len(usable) >= wanted:
                return True
            past_deadline = self._now() >= sent_s + self._rules.deadline_s
            return past_deadline and len(usable) >= self._rules.min_replies

        limit_s = math.inf if timeout is None else timeout
        straggling_s = self._rules.give_up_s or 10.0 * min(self._rules.deadline_s, limit_s)
        hard_s = sent_s + limit_s
        last_s = sent_s + self._rules.deadline_s if self._rules.min_replies == 0 else hard_s
        open_ids = self._collect(flights, take, is_enough, min(last_s, hard_s))

        usable.sort(key=lambda arrival: arrival.time_s)
        odd = {id(usable[position]) for position in (odd_ones([a.reply for a in usable]) if self._check else [])}
        used: list[Arrival] = []
        for arrival in usable:
            name = name_of[arrival.flight.node_id]
            in_time = arrival.time_s <= self._rules.deadline_s or len(used) < self._rules.min_replies
            if id(arrival) in odd:
                _log.warning("the reply of %s in round %d is refused: its records differ", name, self._round.number)
                status[name] = Status.FAILED
                del times_s[name]
            elif in_time and len(used) < wanted:
                status[name] = Status.COMPLETED
                used.append(arrival)
            else:
                status[name] = Status.LATE
        for flight in flights:
            if flight.message_id in open_ids:
                status[name_of[flight.node_id]] = None
                self._stragglers[flight.message_id] = _Straggler(
                    self._round.number, name_of[flight.node_id], sent_s + straggling_s
                )
        round_s = used[-1].time_s if used and not open_ids else self._now() - sent_s
        self._observe(self._round.number, status, times_s, told)
        self._save_selector()
        self._publish(status, times_s, len(nodes), select_s, round_s, predicted_s, resumed)
        replies = [arrival.reply for arrival in used]
        if self._edges is not None:
            replies = self._edges.incoming(replies, edge_of, sent=messages[0])
        replies += [arrival.reply for arrival in errors]
        return replies if needs is None else needs.usable(replies)

    def _collect(
        self, flights: Sequence[Flight], take: Callable[[Arrival], None], is_enough: Callable[[], bool], until_s: float
    ) -> set[str]:
        """Take replies until all, or enough, are there, or it is too late; returns the ids that are still open."""
        waited = {flight.message_id for flight in flights}
        while waited:
            for arrival in self._exchange.look():
                if arrival.flight.message_id in waited:
                    waited.remove(arrival.flight.message_id)
                    take(arrival)
                else:
                    self._take_stray(arrival)
            if not waited or is_enough() or self._now() >= until_s:
                break
            self._exchange.rest(until_s)
        return waited

    def _take_stray(self, arrival: Arrival) -> None:
        """Take a reply that nobody waits for now: of a straggler, or to a query."""
        node_id, reply = arrival.flight.node_id, arrival.reply
        if self._asked.get(node_id) is arrival.flight:
            del self._asked[node_id]
            if reply.has_content():
                self._book.note(node_id, reply.content, self._now())
            return
        straggler = self._stragglers.pop(arrival.flight.message_id, None)
        if straggler is None:
            return
        name = straggler.name
        times_s: dict[str, float] = {}
        told: dict[str, Losses] = {}
        if reply.has_error():
            outcome = Status.DROPPED if is_dropout(reply) else Status.FAILED
        elif self._check is not None and self._check(arrival.flight.message, reply) is not None:
            outcome = Status.FAILED
        else:
            outcome, times_s, told = Status.LATE, {name: arrival.time_s}, {name: self._losses_of(arrival)}
            self._book.note(node_id, reply.content, self._now())
        self._observe(straggler.number, {name: outcome}, times_s, told)

    def _read_context(self, node: Node, arrival: Arrival, model_bit: float) -> None:
        content = arrival.reply.content
        if self._book.note(node.node_id, content, self._now()) is node:
            self._book.time_transfer(node, model_bit, arrival.time_s)
        if RECORD in content:
            del content[RECORD]  # the strategy gets what it would get without us

    def _losses_of(self, arrival: Arrival) -> Losses:
        return Losses() if self._losses is None else self._losses.read(arrival.reply.content)

    def _observe(
        self,
        number: int,
        status: Mapping[str, Status | None],
        times_s: Mapping[str, float],
        told: Mapping[str, Losses],
    ) -> None:
        """Tell the selector what it does not know yet."""
        open_ = set(self._selector.open_rounds().get(number, ()))
        known = {name: outcome for name, outcome in status.items() if outcome is not None and name in open_}
        if not known:
            return
        answered = [name for name, outcome in known.items() if outcome <= Status.LATE]

        def measured(kind: str) -> dict[ClientId, float] | None:
            values = {name: getattr(told[name], kind) for name in answered if name in told}
            return {name: value for name, value in values.items() if value is not None} or None

        self._selector.observe(
            number,
            times_s={name: times_s[name] for name in answered},
            late=[name for name, outcome in known.items() if outcome is Status.LATE],
            dropped=[name for name, outcome in known.items() if outcome is Status.DROPPED],
            failed=[name for name, outcome in known.items() if outcome is Status.FAILED],
            losses=measured("loss"),
            squared_losses=measured("squared_loss"),
            num_samples=measured("num_samples"),
        )

    # ---------------------------------------------------------------- choosing

    def _nodes_that_can_train(self) -> list[Node]:
        """Connected nodes with a fresh context that are willing and not busy; waits for a first one."""
        give_up_s = self._now() + self._rules.wait_s
        while True:
            connected = list(self._grid.get_node_ids())
            self._num_connected = len(connected)
            self._drop_stragglers()
            if self._book.strangers(connected) and hasattr(self._grid, "get_nodes"):
                self._book.introduce(self._grid.get_nodes())
            self._book.keep(connected, self._now())
            silent = self._ask_for_contexts(connected)
            busy = {straggler.name for straggler in self._stragglers.values()}
            known = self._book.known(node_id for node_id in connected if node_id not in silent)
            nodes = [node for node in known if node.context.willing and node.context.name not in busy]
            if nodes:
                return nodes
            now_s = self._now()
            if now_s >= give_up_s:
                raise NoNodesError(
                    f"nobody can be chosen after {self._rules.wait_s:g} s: {len(connected)} nodes are connected, of "
                    f"which {len(connected) - len(known)} gave no fresh context (do they run the mod report_context?), "
                    f"{sum(not node.context.willing for node in known)} are not willing and {len(busy)} are still busy"
                )
            for arrival in self._exchange.look():
                self._take_stray(arrival)
            self._exchange.pause(min(_WAITING_PAUSE_S, give_up_s - now_s))

    def _drop_stragglers(self) -> None:
        """Give up on stragglers that take too long."""
        now_s = self._now()
        for message_id, straggler in list(self._stragglers.items()):
            if now_s >= straggler.until_s:
                del self._stragglers[message_id]
                self._exchange.forget([self._exchange.open[message_id]])
                self._observe(straggler.number, {straggler.name: Status.DROPPED}, {}, {})

    def _ask_for_contexts(self, connected: Sequence[int]) -> set[int]:
        """Ask for contexts at half their life, wait for those that are past it, and return who has none.

        Newcomers are not waited for when there are nodes enough; their answers are met while others train.
        """
        contexts = self._book.rules
        if contexts is None:
            return set()
        now_s = self._now()
        there = set(connected)
        for node_id, flight in list(self._asked.items()):
            if node_id not in there or now_s - flight.sent_s > 10.0 * contexts.timeout_s:
                del self._asked[node_id]
                self._exchange.forget([flight])
        busy = {self._exchange.open[message_id].node_id for message_id in self._stragglers}
        aging = self._book.stale(connected, now_s, age=0.5)
        queries = [
            Message(
                content=RecordDict(), message_type=f"query.{ACTION}", dst_node_id=node_id, ttl=10.0 * contexts.timeout_s
            )
            for node_id in aging
            if node_id not in self._asked and node_id not in busy
        ]
        flights, _ = self._exchange.send(queries)
        self._asked |= {flight.node_id: flight for flight in flights}
        stale = set(self._book.stale(aging, now_s))
        if len(connected) - len(stale) >= self._selector.cohort_size:
            stale = {node.node_id for node in self._book.known(stale)}

        def take(arrival: Arrival) -> None:
            del self._asked[arrival.flight.node_id]
            if arrival.reply.has_content():
                self._book.note(arrival.flight.node_id, arrival.reply.content, self._now())

        # Whoever did not answer in time before is not waited for again.
        waited = [flight for flight in flights if flight.node_id in stale]
        self._collect(waited, take, lambda: False, self._now() + contexts.timeout_s)
        return set(self._book.stale(aging, self._now()))

    def _choose(self, nodes: Sequence[Node], model_bit: float) -> tuple[list[Node], float]:
        """Let the policy choose; returns the chosen nodes and how long it expects them to take."""
        names = [node.context.name for node in nodes]
        self._update_members(names)
        members = self._selector.clients
        position = dict(zip(members, range(len(members)), strict=True))
        rows = np.fromiter(map(position.__getitem__, names), np.int64, len(names))
        assumed_bps = 1e7 if self._book.rules is None else self._book.rules.assumed_bandwidth_bps
        features = self._features(
            [node.context for node in nodes],
            bandwidth_bps=np.array([node.bandwidth_bps(assumed_bps) for node in nodes]),
            cold=self._selector.cold(as_array=True)[rows],
            model_bit=model_bit,
        )
        edges: dict[str, str] = {}
        if isinstance(self._selector, EdgeSelector):
            assigned = self._selector.select(
                features,
                clients=names,
                servers=[self._edge_rules.edges_of(node.context, node.place) for node in nodes],
                prices=np.array([self._edge_rules.price_of(node.context) for node in nodes]),
            )
            edges = dict(zip(map(str, assigned.clients), assigned.servers, strict=True))
            cohort: Cohort = assigned
        else:
            everyone = np.zeros((features.shape[1], len(members))).T
            everyone[rows] = features
            available = np.zeros(len(members), np.bool_)
            available[rows] = True
            cohort = self._selector.select(everyone, available=available)
        clients = tuple(map(str, cohort.clients))
        row_of = dict(zip(names, range(len(names)), strict=True))
        chosen = [row_of[name] for name in clients]
        expected_s = self._selector.expected_times_s(features[chosen], clients=clients, as_array=True)
        predicted_s = float(expected_s.max()) if clients else math.nan
        self._round = Round(cohort.round, clients, False, edges, self._book.measured_bps)
        return [nodes[row] for row in chosen], predicted_s

    def _update_members(self, names: Sequence[str]) -> None:
        round_ = self._selector.round
        members = set(self._selector.clients)
        fresh = [name for name in names if name not in members]
        if fresh:
            self._selector.join(fresh)
        self._last_seen |= dict.fromkeys(names, round_)
        gone = [
            name
            for name in members.difference(names)
            if round_ - self._last_seen.setdefault(str(name), round_) >= self._rules.absent_rounds
        ]
        if gone:
            _log.info("%d members have been absent for %d rounds and leave", len(gone), self._rules.absent_rounds)
            self._selector.leave(gone)

    def _chosen_before(self) -> list[Node]:
        """Nodes of the round that was begun before a restart: it goes on, and nobody is counted twice."""
        busy = {straggler.name for straggler in self._stragglers.values()}
        present = {name: self._book.named(name) for name in self._round.clients}
        here = [node for name, node in present.items() if node is not None and name not in busy]
        lost = {name: Status.DROPPED for name, node in present.items() if node is None}
        self._observe(self._round.number, lost, {}, {})
        _log.info("round %d goes on with %d of %d nodes", self._round.number, len(here), len(self._round.clients))
        return here

    # ---------------------------------------------------------------- everything else

    def _ask(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Evaluate, or whatever else the strategy sends."""
        if messages and all(_category(message) == "evaluate" for message in messages):
            if self._rules.evaluate == "cohort":
                last = [self._book.named(name) for name in self._round.clients]
                messages = addressed(messages, [node.node_id for node in last if node is not None])
            elif self._rules.evaluate == "idle":
                busy = {self._exchange.open[message_id].node_id for message_id in self._stragglers}
                messages = [message for message in messages if message.metadata.dst_node_id not in busy]
            timeout = min(math.inf if timeout is None else timeout, self._rules.evaluate_deadline_s)
        flights, _ = self._exchange.send(messages)
        arrivals: list[Arrival] = []
        until_s = self._now() + (math.inf if timeout is None else timeout)
        open_ids = self._collect(flights, arrivals.append, lambda: False, until_s)
        self._exchange.forget([flight for flight in flights if flight.message_id in open_ids])
        good = [arrival for arrival in arrivals if arrival.reply.has_content()]
        if self._check is not None:
            odd = odd_ones([arrival.reply for arrival in good])
            refused = {id(good[position].reply) for position in odd} | {
                id(arrival.reply) for arrival in good if self._check(arrival.flight.message, arrival.reply) is not None
            }
            if refused:
                _log.warning("%d of %d replies are refused", len(refused), len(arrivals))
            arrivals = [arrival for arrival in arrivals if id(arrival.reply) not in refused]
        return [arrival.reply for arrival in arrivals]

    def _publish(
        self,
        status: Mapping[str, Status | None],
        times_s: Mapping[str, float],
        num_available: int,
        select_s: float,
        round_s: float,
        predicted_s: float,
        resumed: bool,
    ) -> None:
        if not self._sinks:
            return
        report = RoundReport(
            round=self._round.number,
            clients=self._round.clients,
            num_connected=self._num_connected,
            num_available=num_available,
            status=dict(status),
            times_s=dict(times_s),
            select_s=select_s,
            round_s=round_s,
            predicted_s=predicted_s,
            members=tuple(str(name) for name in self._selector.clients),
            rate=self._selector.participation_rates(as_array=True),
            backlog=self._selector.backlog(as_array=True),
            capped=self._selector.capped(as_array=True),
            edges=dict(self._round.edges),
            resumed=resumed,
        )
        for sink in self._sinks:
            try:
                sink(report)
            except Exception:  # training goes on without its dashboards
                _log.exception("a sink failed in round %d", report.round)

    # ---------------------------------------------------------------- keeping

    def _settle(self) -> None:
        """Book that the strategy has gone on: whatever it did with the last round's replies is done."""
        if not self._round.is_done and not self._is_resuming:
            if self._edges is not None and self._folder is not None:
                self._edges.save(self._folder / _EDGES_FILE, round=self._round.number)
            self._round.is_done = True
            self._save_round()

    def _save(self) -> None:
        self._save_selector()
        self._save_round()

    def _save_selector(self) -> None:
        if self._folder is not None:
            self._selector.save(self._folder / _SELECTOR_FILE)

    def _save_round(self) -> None:
        if self._folder is not None:
            self._round.save(self._folder / _ROUND_FILE)

    def _resume(self) -> None:
        assert self._folder is not None
        saved = self._folder / _SELECTOR_FILE
        if not saved.exists():
            return
        fresh = self._selector
        self._selector = type(fresh).load(saved, fresh.policy)
        now, before = getattr(fresh, "budgets", None), getattr(self._selector, "budgets", None)
        if now != before:
            raise ConfigurationError(
                f"budgets are {now}, and the selector saved in {str(self._folder)!r} has {before}; expected the same, "
                "or another folder"
            )
        for name in ("cohort_size", "num_features"):
            now, before = getattr(fresh, name), getattr(self._selector, name)
            if now is not None and now != before:
                raise ConfigurationError(
                    f"{name} is {now}, and the selector saved in {str(self._folder)!r} has {before}; expected the "
                    "same, or another folder"
                )
        number = self._selector.round
        self._round = Round.load(self._folder / _ROUND_FILE)
        self._book.measured_bps = self._round.bandwidth_bps
        if self._round.number != number:  # stopped between the two files: the cohort is whoever has not answered
            cohort = tuple(map(str, self._selector.open_rounds().get(number, ())))
            self._round = Round(number, cohort, is_done=False, bandwidth_bps=self._book.measured_bps)
        if self._edges is not None and (self._folder / _EDGES_FILE).exists():
            # Edge models are saved once the strategy has gone on, just before the round is booked as done.
            self._round.is_done |= self._edges.load(self._folder / _EDGES_FILE) >= number
        self._is_resuming = not self._round.is_done
        _log.info("resumed after round %d with %d members", number, len(self._selector.clients))


def _category(message: Message) -> str:
    return str(message.metadata.message_type).partition(".")[0]
