"""What nodes report about themselves: the client's side.

On a node, :data:`report_context` answers the server's queries and attaches the same record to every training reply.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

_log = logging.getLogger("flwr.fedroster")

ACTION = "fedroster"
"""Action of the query: a message of type ``query.fedroster`` asks a node for its context."""
RECORD = "fedroster.context"
"""Name of the record that carries a context."""

Measure = Callable[[Context], Mapping[str, str | int | float | bool]]
"""What an application knows better than the defaults: values by the names of :meth:`ContextReporter.report`."""


def free_cpu_share() -> float:
    """Share of this machine's processors that its load of the last minute leaves free, in [0.01, 1]."""
    try:
        load = os.getloadavg()[0]
    except (OSError, AttributeError):  # not every system measures it
        return 1.0
    return min(1.0, max(0.01, 1.0 - load / (os.cpu_count() or 1)))


class ContextReporter:
    """The node's side: a Flower client mod that also answers queries.

    Example, in a client app::

        app = ClientApp(mods=[report_context])
        report_context.register(app)

    An app that is made from a ``client_fn`` needs the mod alone.
    """

    def __init__(self, measure: Measure | None = None) -> None:
        """Report what ``measure`` knows better than the defaults of the node's Flower context; None for nothing."""
        self._measure = measure

    def register(self, app: ClientApp) -> None:
        """Let an app that is made of registered functions answer queries for its context."""
        app.query(ACTION)(self.answer)

    def report(self, context: Context) -> dict[str, str | int | float | bool]:
        """What the node says, by name.

        The node's configuration (``flower-supernode --node-config``) gives ``name``, ``cpu-share``, ``bandwidth-bps``,
        ``num-examples``, ``willing``, ``edge`` and ``price``.  Without a name, nodes inside NVFlare are called by
        their ``client-name`` (their ``partition-id`` is a rank, and moves to another site when one is missing),
        simulated nodes by their partition, others by their node id, which changes when they register again.  Without a
        CPU share the free one is measured.  What is None counts as not told.
        """
        config = context.node_config
        partition = config.get("partition-id")
        name = config.get("client-name") or (
            f"node-{context.node_id}" if partition is None else f"partition-{partition}"
        )
        values: dict[str, str | int | float | bool] = {"name": name}
        keys = ("name", "cpu-share", "bandwidth-bps", "num-examples", "willing", "edge", "price")
        values |= {key: config[key] for key in keys if key in config}
        if self._measure is not None:
            values |= {key: value for key, value in self._measure(context).items() if value is not None}
        if "cpu-share" not in values:
            values["cpu-share"] = free_cpu_share()
        return values

    def answer(self, message: Message, context: Context) -> Message:
        """Answer a query."""
        return Message(RecordDict({RECORD: ConfigRecord(self.report(context))}), reply_to=message)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Act as a mod: answer our query, attach the context to a training reply, leave the rest alone."""
        kind = message.metadata.message_type
        if kind == f"query.{ACTION}":
            return self.answer(message, context)
        started = time.monotonic()
        reply = call_next(message, context)
        if kind.split(".")[0] == "train" and reply.has_content():
            busy_s = time.monotonic() - started
            try:
                reply.content[RECORD] = ConfigRecord(self.report(context) | {"busy-s": busy_s})
            except Exception:  # a finished training is worth more than its context, which the server asks for again
                _log.exception("the training reply goes without a context: the function that measures it failed")
        return reply


report_context = ContextReporter()
"""The reporter with defaults: ``ClientApp(mods=[report_context])``."""
