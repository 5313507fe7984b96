"""What nodes tell about themselves: the client's side that reports, and the server's side that trusts none of it.

On a node, :data:`report_context` answers the server's queries and attaches the same record to every training reply.  At
the server, :func:`read_context` turns a record into a :class:`NodeContext` whose values are bounded.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError

ACTION = "fedroster"
"""Action of the query: a message of type ``query.fedroster`` asks a node for its context."""
RECORD = "fedroster.context"
"""Name of the record that carries a context."""

_LONGEST_NAME = 128
_LEAST_SHARE = 0.01
_LEAST_BANDWIDTH_BPS, _MOST_BANDWIDTH_BPS = 1e3, 1e12
_MOST_EXAMPLES = 10**12
_MOST_BUSY_S = 1e7
_MOST_PRICE = 1e12

Measure = Callable[[Context], Mapping[str, str | int | float | bool]]
"""What an application knows better than the defaults: values by the names of :meth:`ContextReporter.report`."""


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the server believes of a node, all of it in range.

    Attributes:
        name: Stable name; participation is counted under it.
        cpu_share: Free share of the node's processors, mu of paper A, in [0.01, 1].
        bandwidth_bps: Bandwidth, bit/s, in [1e3, 1e12]; None when the node declares none.
        num_examples: Training examples, >= 0.
        willing: Whether the node wants to take part now.
        edge: Labels of the edge servers that reach it, separated by commas; empty for none.
        price: What using the node costs, as it declares, in [0, 1e12]; None when it declares none.
        busy_s: Time that the last training took on the node, as it says, seconds, >= 0; None when it says nothing.
    """

    name: str
    cpu_share: float = 1.0
    bandwidth_bps: float | None = None
    num_examples: int = 0
    willing: bool = True
    edge: str = ""
    price: float | None = None
    busy_s: float | None = None


def free_cpu_share() -> float:
    """Share of this machine's processors that its load of the last minute leaves free, in [0.01, 1]."""
    try:
        load = os.getloadavg()[0]
    except OSError:  # not every system measures it
        return 1.0
    return min(1.0, max(_LEAST_SHARE, 1.0 - load / (os.cpu_count() or 1)))


class ContextReporter:
    """The node's side: a Flower client mod that also answers queries.

    Example, in a client app::

        app = ClientApp(mods=[report_context])
        report_context.register(app)

    An app that is made from a ``client_fn`` needs the mod alone.
    """

    def __init__(self, measure: Measure | None = None) -> None:
        """Make a reporter.

        Args:
            measure: Given the node's Flower context, returns what it knows better than the defaults; None for nothing.
        """
        self._measure = measure

    def register(self, app: ClientApp) -> None:
        """Let an app that is made of registered functions answer queries for its context."""
        app.query(ACTION)(self.answer)

    def report(self, context: Context) -> dict[str, str | int | float | bool]:
        """What the node says, by name.

        The node's configuration (``flower-supernode --node-config``) gives ``name``, ``cpu-share``, ``bandwidth-bps``,
        ``num-examples``, ``willing``, ``edge`` and ``price``.  Without a name, simulated nodes are called by their
        partition, others by their node id, which changes when they register anew.  Without a CPU share the free one is
        measured.
        """
        config = context.node_config
        partition = config.get("partition-id")
        values: dict[str, str | int | float | bool] = {
            "name": f"node-{context.node_id}" if partition is None else f"partition-{partition}",
        }
        for key in ("name", "cpu-share", "bandwidth-bps", "num-examples", "willing", "edge", "price"):
            if key in config:
                values[key] = config[key]
        if self._measure is not None:
            values |= self._measure(context)
        if "cpu-share" not in values:
            values["cpu-share"] = free_cpu_share()
        return values

    def answer(self, message: Message, context: Context) -> Message:
        """Answer a query."""
        return Message(RecordDict({RECORD: ConfigRecord(dict(self.report(context)))}), reply_to=message)

    def __call__(self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        """Act as a mod: answer our query, attach the context to a training reply, leave the rest alone."""
        kind = message.metadata.message_type
        if kind == f"query.{ACTION}":
            return self.answer(message, context)
        started = time.monotonic()
        reply = call_next(message, context)
        if kind.split(".")[0] == "train" and reply.has_content():
            values = self.report(context) | {"busy-s": time.monotonic() - started}
            reply.content[RECORD] = ConfigRecord(dict(values))
        return reply


report_context = ContextReporter()
"""The reporter with defaults: ``ClientApp(mods=[report_context])``."""


def _number(record: Mapping[str, object], key: str, least: float, most: float) -> float | None:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(min(max(value, least), most))


def checked_name(value: object) -> str:
    """A name or label from outside; empty when it is no string or integer, too long or not printable."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    text = str(value)
    return text if len(text) <= _LONGEST_NAME and text.isprintable() else ""


def read_context(content: RecordDict, *, registered: str = "") -> NodeContext | None:
    """Read and bound what a node sent.

    Numbers outside their range are clipped, those that are none count as not given.

    Args:
        content: Content of a reply.
        registered: Name that the SuperLink holds for the node, which goes before the one that it reports; empty for
            none.

    Returns:
        The context; None when the record is missing or names nobody.
    """
    record = content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        return None
    name = registered or checked_name(record.get("name"))
    if not name:
        return None
    share = _number(record, "cpu-share", _LEAST_SHARE, 1.0)
    willing = record.get("willing", True)
    return NodeContext(
        name=name,
        cpu_share=1.0 if share is None else share,
        bandwidth_bps=_number(record, "bandwidth-bps", _LEAST_BANDWIDTH_BPS, _MOST_BANDWIDTH_BPS),
        num_examples=int(_number(record, "num-examples", 0, _MOST_EXAMPLES) or 0),
        willing=willing if isinstance(willing, bool) else False,
        edge=checked_name(record.get("edge")),
        price=_number(record, "price", 0.0, _MOST_PRICE),
        busy_s=_number(record, "busy-s", 0.0, _MOST_BUSY_S),
    )


def measured_bandwidth(model_bit: float, exchange_time_s: float, busy_s: float) -> float:
    r"""Bandwidth from a transfer that the server timed, :math:`B = M / (\tau - \tau^{busy})`, bit/s, clipped.

    A node that claims to have been busy for longer than its whole exchange gets the upper bound and gains nothing: its
    time is learned from the server's clock all the same.

    Args:
        model_bit: Bits that went to the node and came back, > 0.
        exchange_time_s: The exchange's time at the server, seconds, > 0.
        busy_s: What the node says that it worked, seconds, >= 0.
    """
    transfer_s = max(exchange_time_s - busy_s, 1e-9)
    return min(max(model_bit / transfer_s, _LEAST_BANDWIDTH_BPS), _MOST_BANDWIDTH_BPS)


def paper_features(
    nodes: Sequence[NodeContext], *, bandwidth_bps: FloatArray, cold: BoolArray, model_bit: float
) -> FloatArray:
    r"""Paper A's context :math:`[1/\mu, s, M/B]` of every node.

    Args:
        nodes: What is known of the nodes.
        bandwidth_bps: B, declared, measured or assumed, shape (nodes,), bit/s, > 0.
        cold: s, whether the node did not take part in the last round, shape (nodes,).
        model_bit: M, size of the model, bit.

    Returns:
        Shape (nodes, 3), >= 0.
    """
    share = np.fromiter((node.cpu_share for node in nodes), np.float64, len(nodes))
    features = np.empty((3, len(nodes))).T  # the selector's order, never copied
    features[:, 0] = 1.0 / share
    features[:, 1] = cold
    features[:, 2] = model_bit / bandwidth_bps
    return features


@dataclass(frozen=True, slots=True)
class ContextRules:
    """When contexts are asked for, and how long they count.

    Attributes:
        fresh_s: Age up to which a context counts, seconds, > 0.  Older ones are asked for before a selection.
        timeout_s: How long answers are waited for, seconds, > 0.  A node that has not answered is unavailable in this
            round.
        assumed_bandwidth_bps: Bandwidth of a node that neither declares one nor has been measured, bit/s, > 0.
    """

    fresh_s: float = 300.0
    timeout_s: float = 10.0
    assumed_bandwidth_bps: float = 1e7

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigurationError: If a parameter is out of its range.
        """
        for name in ("fresh_s", "timeout_s", "assumed_bandwidth_bps"):
            check_number(name, getattr(self, name), above=0.0)
        if self.assumed_bandwidth_bps < _LEAST_BANDWIDTH_BPS:
            raise ConfigurationError(
                f"assumed_bandwidth_bps is {self.assumed_bandwidth_bps!r}; expected at least {_LEAST_BANDWIDTH_BPS:g}"
            )
