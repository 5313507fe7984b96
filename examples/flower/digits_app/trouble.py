"""Nodes that do what nodes should not, and that keep a log of their own: the client's side of ``run.py faults``.

The node's configuration says what a node does: ``fault`` is empty, or one of ``fails``, ``malformed``, ``lies`` and
``late``; ``extra-s`` is how much longer each of its exchanges takes; ``journal`` is the file of its own log.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from digits_app.client_app import evaluate_here, train_here
from fedroster.adapters.flower import report_context


def _arrays(change: Callable[[Array], Array]) -> Callable[[RecordDict], None]:
    """Spoil every array."""

    def spoil(content: RecordDict) -> None:
        content["arrays"] = ArrayRecord({name: change(array) for name, array in content["arrays"].items()})

    return spoil


def _weight(value: object) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content["metrics"]["num-examples"] = value

    return spoil


def _no_weight(content: RecordDict) -> None:
    del content["metrics"]["num-examples"]


def _one_array(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"bias": content["arrays"]["bias"]})


def _nothing(content: RecordDict) -> None:
    for name in list(content):
        del content[name]


MALFORMED = {
    "no weight": _no_weight,
    "complex arrays": _arrays(lambda array: Array(array.numpy().astype(complex))),
    "a list as weight": _weight([1, 2]),
    "no records": _nothing,
    "unreadable bytes": _arrays(
        lambda array: Array(dtype=array.dtype, shape=array.shape, stype=array.stype, data=b"garbage")
    ),
    "other shapes": _arrays(lambda array: Array(np.zeros((7, 7)))),
    "a negative weight": _weight(-10),
    "text": _arrays(lambda array: Array(np.full(array.shape, "x"))),
    "an array is missing": _one_array,
    "not a number": _arrays(lambda array: Array(array.numpy() * np.nan)),
}
"""Ten kinds of malformed replies to training, in the order in which a node sends them."""


def _note(path: Path, **what: object) -> None:
    """Add a line to the node's own log, in one write."""
    line = (json.dumps({"at": time.time(), **what}) + "\n").encode()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def misbehave(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
    """Act as a Flower mod: note what begins and what ends, and do what the node's configuration says."""
    kind, config = message.metadata.message_type.split(".")[0], context.node_config
    if kind == "query":
        return call_next(message, context)
    journal, fault = Path(str(config["journal"])), str(config["fault"])
    what = {"kind": kind, "round": int(message.content["config"]["server-round"]), "node_id": str(context.node_id)}
    _note(journal, event="start", **what)
    time.sleep(float(config["extra-s"]))
    if fault == "fails":
        raise RuntimeError("this node always fails")
    reply = call_next(message, context)
    if kind == "train" and fault == "malformed":
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        turn = sum(event["kind"] == "train" and event["event"] == "start" for event in events) - 1
        name = list(MALFORMED)[turn % len(MALFORMED)]
        MALFORMED[name](reply.content)
        what["spoiled"] = name
    elif kind == "train" and fault == "lies":
        reply.content["fedroster.context"]["busy-s"] = 0.001
    _note(journal, event="end", **what)
    return reply


app = ClientApp(mods=[misbehave, report_context])
report_context.register(app)
app.train()(train_here)
app.evaluate()(evaluate_here)
