"""Sends messages and times their replies at the server.

Flower's own ``send_and_receive`` hands over all replies at once, and over HTTP it looks every three seconds.  Here
every reply is timed: it arrived between two looks, and the middle of them is at most half a pause wrong.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedroster.engine.outcomes import LEAST_TIME_S

log = logging.getLogger("flwr.fedroster")
"""A child of Flower's own logger, whose handlers and level it has: its lines are those that operators read."""

_SHORTEST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.08
_GROWTH = 1.3
REST_S = 0.5


class Clock:
    """Where time comes from: this machine's, seconds, which never runs backwards."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


@dataclass(slots=True, eq=False)
class Flight:
    """A message under way, and its reply.

    Replies name ``message_id``; a message that is sent again gets another one.  ``sent_s`` is when it could be fetched,
    seconds of the exchange's clock, and ``time_s`` how long its reply then took, seconds, > 0; ``then`` takes the
    flight once its reply is there, which has content or an error.
    """

    message: Message
    message_id: str
    sent_s: float
    then: Callable[[Flight], None]
    reply: Any = None
    time_s: float = math.nan

    @property
    def node_id(self) -> int:
        """Where it went."""
        return int(self.message.metadata.dst_node_id)


class Exchange:
    """Everything that is under way between the server and its nodes.

    A reply goes to what its message was sent with, whenever it comes and whatever is waited for then.  ``open`` has the
    flights without a reply, by message id.
    """

    def __init__(self, grid: Grid, clock: Clock) -> None:
        """Wrap a grid."""
        self.clock = clock
        self.open: dict[str, Flight] = {}
        self._grid = grid
        self._looked_s = clock.now()
        self._pause_s = _SHORTEST_PAUSE_S

    def send(
        self,
        messages: Sequence[Message],
        then: Callable[[Flight], None],
    ) -> list[Flight]:
        """Send messages, at most one for each node, whose replies ``then`` takes; returns those that the grid took."""
        if not messages:
            return []
        taken = set(self._grid.push_messages(messages))  # every grid writes the ids on the messages, too
        sent_s = self.clock.now()
        flights = [Flight(message, message.metadata.message_id, sent_s, then) for message in messages]
        flights = [flight for flight in flights if flight.message_id in taken]
        self.open |= {flight.message_id: flight for flight in flights}
        if len(flights) < len(messages):
            log.warning("%d of %d messages could not be sent", len(messages) - len(flights), len(messages))
        self._pause_s = _SHORTEST_PAUSE_S
        return flights

    def wait(
        self, flights: Iterable[Flight], until_s: float, is_enough: Callable[[], bool] = lambda: False
    ) -> list[Flight]:
        """Take replies, of these flights and all others, until these are in, enough have come, or it is too late.

        ``is_enough`` is asked after each look.

        Returns:
            Those of the flights that are still open.
        """
        waited = [flight for flight in flights if flight.message_id in self.open]
        while waited:
            self.look()
            waited = [flight for flight in waited if flight.message_id in self.open]
            now_s = self.clock.now()
            if not waited or is_enough() or now_s >= until_s:
                break
            # A look that takes long, over a slow network, is followed by as long a pause.
            self.clock.sleep(min(max(self._pause_s, min(now_s - self._looked_s, _LONGEST_PAUSE_S)), until_s - now_s))
        return waited

    def look(self) -> None:
        """Look once for replies to whatever is open, and hand them over.

        An error that the server itself makes up, for a message that expired, comes from another node than the message
        went to; so do forgeries.  Errors are matched by the message alone, content also by its sender.
        """
        if not self.open:
            return
        before_s = self._looked_s
        self._looked_s = self.clock.now()
        arrived = []
        for reply in self._grid.pull_messages(list(self.open)):
            flight = self.open.get(reply.metadata.reply_to_message_id)
            if flight is None or (reply.has_content() and reply.metadata.src_node_id != flight.node_id):
                continue
            del self.open[flight.message_id]
            arrived_s = (max(before_s, flight.sent_s) + self._looked_s) / 2.0
            flight.reply = reply
            flight.time_s = max(arrived_s - flight.sent_s, LEAST_TIME_S)
            arrived.append(flight)
        self._pause_s = _SHORTEST_PAUSE_S if arrived else min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)
        for flight in arrived:
            flight.then(flight)

    def rest(self, seconds: float) -> None:
        """Take the replies that are there, and pause for a moment, or for so long if that is shorter."""
        self.look()
        if seconds > 0.0:
            self.clock.sleep(min(REST_S, seconds))

    def forget(self, flights: Iterable[Flight]) -> None:
        """Wait no longer for replies."""
        for flight in flights:
            self.open.pop(flight.message_id, None)


def readdressed(message: Message, node_id: int, content: RecordDict) -> Message:
    """A message like another one, to a node and with a content of its own."""
    about = message.metadata
    return Message(
        content=content,
        dst_node_id=node_id,
        message_type=about.message_type,
        ttl=about.ttl,
        group_id=about.group_id,
    )
