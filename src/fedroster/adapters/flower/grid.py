"""A Flower grid on which a policy chooses the nodes that train.

The strategy samples as it always does and builds its messages; they are then kept, dropped or addressed again so that
exactly the chosen nodes are sent one.  Nothing of the strategy is overridden or changed: its own ``configure_train``
runs in full (FedAdam keeps its state, FedProx adds its mu) and its own ``aggregate_train`` gets ordinary replies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Error, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedroster.adapters.flower.context import RECORD
from fedroster.adapters.flower.exchange import Clock, Exchange, Flight, log, readdressed
from fedroster.adapters.flower.needs import needs_of
from fedroster.adapters.flower.places import FilledPlaces, Out
from fedroster.adapters.flower.replies import (
    NO_ANSWER,
    NODE_UNAVAILABLE,
    CheckReply,
    ReplyCheck,
    arrays_of,
    check_reply,
    kind_of,
    rewrite,
)
from fedroster.adapters.flower.roster import Roster
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError
from fedroster.core.protocols import signs
from fedroster.engine.choose import Node
from fedroster.engine.contexts import ContextOptions
from fedroster.engine.edges import EdgeMap
from fedroster.engine.losses import LossMetrics
from fedroster.engine.outcomes import OpenRound, Reply, shown
from fedroster.engine.pushed import PushedRounds, Resumed
from fedroster.engine.remembered import RememberedUpdates
from fedroster.engine.rounds import Rounds, warn_of_untested
from fedroster.engine.rules import RoundRules
from fedroster.rules.rules import Rules
from fedroster.selector import EdgeSelector, Selector

_TESTED = (1, 42)
"""Newest version of Flower with which this adapter's tests were run."""


def _as_it_is(name: str) -> Callable[..., Any]:
    """A method of the wrapped grid."""
    return lambda grid, *given, **named: getattr(grid._grid, name)(*given, **named)


class SelectingGrid(Resumed, Grid):
    """Any Flower grid, on which a policy chooses the nodes that train.

    Example, in a server app::

        selector = Selector(RBCSF(V=20.0, beta=0.1), cohort_size=10)
        SelectingGrid(grid, selector, FedAvg()).start(arrays, num_rounds=100)

    With ``contexts``, nodes must run the client mod :data:`~.context.report_context`; without, all nodes look alike and
    have no stable names.
    """

    def __init__(
        self,
        grid: Grid,
        selector: Selector,
        strategy: object,
        *,
        contexts: ContextOptions | None = None,
        rules: RoundRules | None = None,
        edge_rules: EdgeMap | None = None,
        losses: LossMetrics | None = None,
        check: CheckReply | None = check_reply,
        memory: UpdateMemory | None = None,
        places: FreePlaces | None = None,
        state_dir: str | Path | None = None,
        kinds: Collection[str] = ("train",),
        clock: Clock | None = None,
    ) -> None:
        """Wrap a grid.

        Args:
            grid: The server app's grid.
            selector: Chooses; clients are the nodes' stable names, and join by themselves.  Sinks among its observers
                (:class:`~fedroster.engine.report.RoundSink`) take a report of every round.
            strategy: The strategy whose ``start`` is called, the outermost one: it is asked what it needs, such as the
                number of updates that its noise is for.  None when no strategy aggregates: nothing is guarded then.
            contexts: When to ask nodes for their contexts; None when they report nothing.
            rules: When rounds end, and the longest time that is learned.
            edge_rules: Which edge servers reach a node, and its price; None for what nodes report.
            losses: Where replies hold losses, for policies that learn from them; None for the names of
                :class:`~fedroster.engine.losses.LossMetrics`.
            check: Says what is wrong with a reply; None to let everything pass.
            memory: Remembers each node's last update, and rewrites replies so that the strategy's average takes its
                step; None for not.  Strategies that do not average, and noise for privacy, are refused.
            places: Free places in place of rounds: a node that has answered is followed by another at once, and
                answers change the model, which is kept in ``state_dir``; None for rounds.  A round of the strategy then
                is as many answers as a cohort has clients, and one of the selector's a filling.
            state_dir: Folder in which the selector, measured bandwidths and remembered updates are saved in every
                round, and from which they are resumed; None for nowhere.
            kinds: Kinds of messages for which nodes are chosen; "query", say, for an app that trains nothing.  Others
                pass as they are.
            clock: Where time comes from; None for this machine's clock.

        Raises:
            ConfigurationError: If a saved selector has another cohort size, number of features or budgets, the grid
                selects already, or strategy, rules or selector do not go with a memory or with free places.
            InUseError: If another server app holds ``state_dir``.
            StateFileError: If a saved file is damaged or belongs to another policy.
        """
        if isinstance(grid, SelectingGrid):
            raise ConfigurationError("the grid is a SelectingGrid, whose policy would never be asked; expected one")
        warn_of_untested("Flower", "flwr", _TESTED, log)
        self._grid = grid
        self._strategy = strategy
        needs = self._needs = needs_of(strategy)
        is_in_places = places is not None
        needs.check_options(selector.policy, has_memory=memory is not None, is_in_places=is_in_places)
        self._rules = rules or RoundRules()
        self._rounds = Rounds(
            selector,
            rules=self._rules,
            contexts=contexts,
            edge_rules=edge_rules,
            state_dir=state_dir,
            log=log,
            weighs=True,
            tells_signatures=not is_in_places,
            is_in_places=is_in_places,
        )
        folder = self._rounds.folder
        self._updates: RememberedUpdates | None = None
        if memory is not None:
            self._updates = RememberedUpdates(memory, folder and folder / "updates", is_judged=check is not None)
        self._exchange = Exchange(grid, clock or Clock())
        self._checks = {
            "train": ReplyCheck(check, needs.weight_key, needs.metrics),
            "evaluate": ReplyCheck(check, needs.weight_key),
            "": ReplyCheck(check),
        }
        self._desk = PushedRounds(
            self._rounds,
            losses=losses,
            now=self._exchange.clock.now,
            pause=self._exchange.rest,
        )
        self._roster = Roster(grid, self._exchange, contexts, self._desk)
        self._cohort_size = self.selector.cohort_size
        self._places: FilledPlaces | None = None
        if places is not None:
            if isinstance(self.selector, EdgeSelector) or self._rules.first or self._rules.min_replies:
                raise ConfigurationError(
                    "free places have no edge servers, no first k and no min_replies: each answer counts when it comes"
                )
            self._places = FilledPlaces(
                places,
                self._roster,
                self._checks["train"],
                self._updates,
            )
        self._kinds = frozenset(kinds)
        self._has_said = False
        if "FedXgbCyclic" in needs.kinds:
            log.warning("the strategy asks its nodes in an order of its own; the policy's choice takes its place")

    @property
    def round(self) -> int:
        """Rounds of the strategy that are done, before a restart, too."""
        return super().round if self._places is None else self._places.round

    @property
    def cohort_size(self) -> int:
        """Nodes of a round, or places; it may be set again between rounds, from 1 to the selector's.

        A round of fewer nodes counts as such a part of one for whatever the policy promises.
        """
        return self._cohort_size

    @cohort_size.setter
    def cohort_size(self, value: int) -> None:
        check_integer("cohort_size", value, least=1)
        if value > self.selector.cohort_size:
            raise ConfigurationError(f"cohort_size is {value}; expected at most {self.selector.cohort_size}")
        self._cohort_size = int(value)

    def start(self, initial_arrays: ArrayRecord, *, num_rounds: int, **options: Any) -> Result:
        """Start the strategy that the grid was given, on this grid.

        Args:
            initial_arrays: The model; after a restart, the one that was saved last.  With free places the one that is
                kept takes its place.
            num_rounds: Number of the last round: after a restart the rest is played, and numbers go on.
            **options: Further arguments of the strategy's own ``start``.

        Returns:
            What the strategy's ``start`` returns, with a model in any case; rounds of a restarted run begin at 1.

        Raises:
            ConfigurationError: If the grid was given no strategy that can be started.
        """
        strategy = self._strategy
        done = self.round
        if not isinstance(strategy, Strategy):
            raise ConfigurationError(f"the strategy is {shown(repr(strategy))}; expected one of Flower's message API")
        if done and type(strategy).start is Strategy.start:
            strategy = continued(strategy, done)
            if evaluate := options.get("evaluate_fn"):
                options["evaluate_fn"] = _after(done, evaluate)
        if self._places is not None:
            initial_arrays = self._places.newest(initial_arrays)
        left = max(num_rounds - done, 0)
        result = strategy.start(grid=self, initial_arrays=initial_arrays, num_rounds=left, **options)
        if isinstance(result, Result) and not result.arrays:
            result.arrays = initial_arrays
        return result

    # ---------------------------------------------------------------- a grid

    set_run = _as_it_is("set_run")
    run = property(attrgetter("_grid.run"))
    create_message = _as_it_is("create_message")
    get_node_ids = _as_it_is("get_node_ids")  # all: a strategy that waits for more than there are waits as ever
    get_nodes = _as_it_is("get_nodes")
    push_messages = _as_it_is("push_messages")  # only send_and_receive selects
    pull_messages = _as_it_is("pull_messages")

    def __getattr__(self, name: str) -> Any:
        """Any other attribute of the wrapped grid."""
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
            AllRefusedError: If every reply of the first round is refused for one reason.
            FolderError: If the run's folder cannot be written.
            ConfigurationError: If training and other messages are mixed, if messages that differ are meant for nodes
                that were not chosen, or if the strategy needs what this selection cannot give.
            NoNodesError: If no node can be chosen for longer than ``wait_s`` allows.
            RoundNotBegunError: If the selector's rules leave too few nodes for as long.
        """
        outgoing = list(messages)
        is_training = [kind_of(message) in self._kinds for message in outgoing]
        with self._rounds.writing():
            self._rounds.settle(save=not any(is_training))
            if not any(is_training):
                self._say_what_passes(outgoing)
                return self._ask(outgoing, timeout)
            if not all(is_training):
                raise ConfigurationError(
                    f"{sum(is_training)} of {len(outgoing)} messages are for training; expected all of them or none"
                )
            self._has_said = True  # nothing passes by mistake
            return self._train(outgoing, timeout)

    def _say_what_passes(self, messages: Sequence[Message]) -> None:
        """Warn once of messages that pass although nothing was ever selected; strategies begin with others, too."""
        kinds = {kind_of(message) for message in messages} - {"evaluate", "get_parameters"}
        if kinds and not self._has_said:
            self._has_said = True
            log.warning(
                "messages of the kind %s go to all nodes that they are for: this grid selects for %s only (kinds=)",
                ", ".join(sorted(kinds)),
                ", ".join(sorted(self._kinds)),
            )

    # ---------------------------------------------------------------- training

    def _train(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Play a round: send the chosen nodes a message each, and take replies until it ends."""
        needs = self._needs
        desk = self._desk
        size = self.cohort_size
        needs.check(self._rules.first or size, messages[0])
        model_bit = _size_bit(messages[0])
        send = partial(self._send, messages=messages, timeout=timeout)
        if self._places is not None:
            return self._places.play(arrays_of(messages[0].content), model_bit, size, send)
        round_ = desk.begin(self._roster, model_bit, at_most=size if size < self.selector.cohort_size else None)
        out = send(round_)

        def odd(usable: Sequence[Reply]) -> dict[str, str]:
            pairs = {reply.name: (out.flights[reply.name].message, reply.content) for reply in usable}
            return self._checks["train"].odd(pairs)

        self._exchange.wait(out.flights.values(), round_.ending.until_s, lambda: desk.is_complete(round_))
        used = desk.close(round_, odd, least=needs.num_updates)
        if self._updates is not None:
            self._updates.begin(arrays_of(messages[0].content), self.selector.clients)
            rewrite(messages[0], used, needs.weight_key, self._updates)
            self._updates.end(round_.choice.round, [reply.name for reply in used])
        elif round_.choice.weights is not None:
            rewrite(messages[0], used, needs.weight_key, None)
        replies = [reply.content for reply in used]
        if not needs.num_updates:
            return [*replies, *out.errors]
        # Without all of its updates a strategy is shown an error, at which Flower's wrappers skip the round.
        return replies or out.errors or [Message(Error(NODE_UNAVAILABLE, "too few"), reply_to=messages[0])]

    def _send(
        self,
        round_: OpenRound,
        messages: Sequence[Message],
        timeout: float | None,
    ) -> Out:
        """Send the clients of a round a message each; what comes back is booked whenever this grid looks."""
        by_id = {node.node_id: node for node in self._roster.named(round_.choice.clients)}
        outgoing = addressed(messages, list(by_id), self._strategy)
        if self._places is not None:
            outgoing = self._places.renewed(outgoing)
        out = Out(round_)

        def take(flight: Flight) -> None:
            if flight.reply.has_error() and not round_.is_over:
                out.errors.append(flight.reply)
            self._take(round_, by_id[flight.node_id], flight)

        out.flights = {by_id[flight.node_id].name: flight for flight in self._exchange.send(outgoing, take)}
        flaw = self._checks["train"].flaw(outgoing[0]) if outgoing else ""
        self._desk.sent(round_, flaw, timeout_s=timeout)
        self._roster.under_way |= {name: (round_, flight) for name, flight in out.flights.items()}
        for node in by_id.values():
            if node.name not in out.flights:
                self._desk.lost(round_, node.name, "its message could not be sent")
        return out

    def _take(self, round_: OpenRound, node: Node, flight: Flight) -> None:
        """Take a reply to a training message, in time or late."""
        sent, reply = flight.message, flight.reply
        if reply.has_error():
            book = self._desk.lost if reply.error.code in NO_ANSWER else self._desk.failed
            book(round_, node.name, str(reply.error.reason))
            return
        known = self._roster.note(node.node_id, reply.content)
        if known is node and not round_.is_over:
            self._roster.time_transfer(node, _size_bit(sent), flight.time_s)
        if RECORD in reply.content:
            del reply.content[RECORD]  # the strategy gets what it would get without us
        records = list(reply.content.metric_records.values())[::-1]
        wrong = self._checks["train"].wrong(sent, reply)
        signature = None
        if wrong is None and signs(self.selector.policy) is not None:
            signature = self._rounds.signature(arrays_of(sent.content), arrays_of(reply.content))
        self._desk.answered(
            round_,
            node.name,
            reply,
            wrong=wrong,
            metrics={key: value for record in records for key, value in record.items()},
            signature=signature,
            time_s=flight.time_s,
        )

    # ---------------------------------------------------------------- everything else

    def _ask(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Evaluate, or whatever else the strategy sends."""
        limit_s = math.inf if timeout is None else timeout
        check = self._checks[""]
        if messages and all(kind_of(message) == "evaluate" for message in messages):
            check = self._checks["evaluate"]
            who, cohort = self._rules.who_evaluates, set(self._rounds.current.clients)
            if self._places is not None:  # nodes at work would answer when they have trained
                who, cohort = self._rules.evaluate or "idle", self._places.last
            if who == "cohort":
                ids = [node.node_id for node in self._roster.named(cohort)]
                messages = addressed(messages, ids, self._strategy)
            elif who == "idle":
                busy = self._roster.busy()
                messages = [message for message in messages if message.metadata.dst_node_id not in busy]
            messages = self._allowed_to_evaluate(messages)
            limit_s = self._rules.evaluation_limit_s(timeout)
        arrived: list[Flight] = []
        started_s = self._exchange.clock.now()
        flights = self._exchange.send(messages, arrived.append)
        left = self._exchange.wait(flights, started_s + limit_s)
        self._exchange.forget(left)
        if check is self._checks["evaluate"] and flights:
            took_s = self._exchange.clock.now() - started_s
            self._desk.evaluated(len(flights), len(flights) - len(left), took_s)
        if left:
            log.warning("%d of %d nodes have not answered in %.0f s", len(left), len(flights), limit_s)
        good = {f"node {each.node_id}": (each.message, each.reply) for each in arrived if each.reply.has_content()}
        wrong = {name: reason for name, pair in good.items() if (reason := check.wrong(*pair)) is not None}
        wrong |= check.odd({name: pair for name, pair in good.items() if name not in wrong})
        for name, reason in wrong.items():
            log.warning("the reply of %s is refused: %s", name, shown(reason))
        return [each.reply for each in arrived if f"node {each.node_id}" not in wrong]

    def _allowed_to_evaluate(self, messages: list[Message]) -> list[Message]:
        """Messages to the nodes that the rules let evaluate; to all of them if there are no rules."""
        if self.selector.rules == Rules():
            return messages
        nodes = self._roster.known(message.metadata.dst_node_id for message in messages)
        names = self._rounds.may_evaluate(nodes)
        ids = {node.node_id for node in nodes if node.name in names}
        if len(ids) < len(messages):
            log.info("%d of %d nodes do not evaluate: the rules exclude them", len(messages) - len(ids), len(messages))
        return [message for message in messages if message.metadata.dst_node_id in ids]


def _size_bit(message: Message) -> float:
    """Size of the arrays of a message."""
    records = message.content.array_records.values()
    return 8.0 * sum(len(array.data) for record in records for array in record.values())


def continued(strategy: Strategy, done: int) -> Strategy:
    """A strategy whose rounds have the numbers after those that were played before a restart."""
    log.info("%s goes on after round %d", type(strategy).__name__, done)
    later = copy(strategy)
    for name in ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"):
        setattr(later, name, _after(done, getattr(strategy, name)))
    return later


def _after(done: int, method: Callable[..., Any]) -> Callable[..., Any]:
    return lambda number, *given, **named: method(number + done, *given, **named)


def addressed(messages: Sequence[Message], node_ids: Sequence[int], strategy: object) -> list[Message]:
    """One message for each of some nodes, of what the strategy made for those that it sampled, which is not empty.

    Raises:
        ConfigurationError: If a node was made no message, and they are not all the same.
    """
    made = {message.metadata.dst_node_id: message for message in messages}
    sample = messages[0]
    missing = [node_id for node_id in node_ids if node_id not in made]
    fraction = "fraction_fit" if hasattr(strategy, "fraction_fit") else "fraction_train"
    if missing and any(message.content is not sample.content for message in messages):
        raise ConfigurationError(
            f"the strategy makes a message of its own for each node, and made none for {len(missing)} of the "
            f"{len(node_ids)} chosen nodes; expected one for every connected node: set {fraction} = 1.0"
        )
    made |= {node_id: readdressed(sample, node_id, sample.content) for node_id in missing}
    return [made[node_id] for node_id in node_ids]
