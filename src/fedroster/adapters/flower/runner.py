"""Plays a round: sends its messages, takes replies until it ends, and keeps an eye on its stragglers afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Message

from fedroster.adapters.flower.context import RECORD
from fedroster.adapters.flower.exchange import Arrival, Exchange, Flight
from fedroster.adapters.flower.nodes import NodeBook
from fedroster.adapters.flower.replies import ReplyCheck, is_dropout
from fedroster.engine.choose import Node
from fedroster.engine.pushed import OpenRound, PushedRounds, Reply


class RoundRunner:
    """Plays rounds, one after the other."""

    def __init__(self, desk: PushedRounds, exchange: Exchange, book: NodeBook, check: ReplyCheck) -> None:
        """Start without rounds; the desk books replies by the exchange's clock."""
        self._desk = desk
        self._exchange = exchange
        self._book = book
        self._check = check
        self._flights: dict[str, Flight] = {}
        self._warm: set[int] = set()

    def busy(self) -> dict[str, int]:
        """Nodes whose late replies are awaited: ids by name; gives up on those that take too long."""
        busy = self._desk.busy()
        self._exchange.forget(flight for name, flight in self._flights.items() if name not in busy)
        self._flights = {name: flight for name, flight in self._flights.items() if name in busy}
        return {name: flight.node_id for name, flight in self._flights.items()}

    def play(
        self,
        round_: OpenRound,
        nodes: Sequence[Node],
        messages: Sequence[Message],
        *,
        model_bit: float,
        timeout_s: float | None = None,
    ) -> tuple[list[Message], list[Message]]:
        """Play a round with a message for each node, within the strategy's own limit too, if it has one.

        Returns:
            Replies that count, fastest first, and replies with an error.
        """
        by_id = {node.node_id: node for node in nodes}
        errors: list[Message] = []

        def take(arrival: Arrival) -> None:
            if arrival.reply.has_error() and not round_.is_over:
                errors.append(arrival.reply)
            self._take(round_, by_id[arrival.flight.node_id], arrival, model_bit)

        def odd(usable: Sequence[Reply]) -> dict[str, str]:
            return self._check.odd({reply.name: reply.content for reply in usable})

        flights, refused = self._exchange.send(messages, take)
        ending = self._desk.sent(round_, timeout_s=timeout_s)
        for node_id in refused:
            self._desk.lost(round_, by_id[node_id].name, "its message could not be sent")
        left = self._exchange.wait(flights, ending.until_s, lambda: self._desk.is_complete(round_))
        self._flights |= {by_id[flight.node_id].name: flight for flight in left}
        return [reply.content for reply in self._desk.close(round_, odd)], errors

    def _take(self, round_: OpenRound, node: Node, arrival: Arrival, model_bit: float) -> None:
        """Take a reply to a training message, in time or late."""
        reply = arrival.reply
        if reply.has_error():
            book = self._desk.lost if is_dropout(reply) else self._desk.failed
            book(round_, node.name, str(reply.error.reason))
            return
        known = self._book.note(node.node_id, reply.content, self._exchange.clock.now())
        if known is node and not round_.is_over:
            self._book.time_transfer(node, model_bit, arrival.time_s)
        if RECORD in reply.content:
            del reply.content[RECORD]  # the strategy gets what it would get without us
        records = list(reply.content.metric_records.values())[::-1]
        is_cold = self._book.rules is None and node.node_id not in self._warm  # no query has started its process before
        wrong = self._check.wrong(arrival.flight.message, reply)
        if wrong is None:
            self._warm.add(node.node_id)
        self._desk.answered(
            round_,
            node.name,
            reply,
            wrong=wrong,
            metrics={key: value for record in records for key, value in record.items()},
            time_s=arrival.time_s,
            is_learned=not is_cold,
        )
