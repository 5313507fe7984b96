"""Which of Flower's replies a strategy may see: its strategies stop the whole run at one malformed reply."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict

from fedroster.core.checks import real
from fedroster.engine.outcomes import Reply
from fedroster.engine.remembered import RememberedUpdates, factors, scaled
from fedroster.engine.replies import (
    ArrayForm,
    Form,
    Judge,
    check_array,
    check_weight,
    named,
    wrong_with,
)

_NUMPY = "numpy.ndarray"
CheckReply = Callable[[Message, Message], str | None]
"""Given what was sent and the reply with content, returns what is wrong with the reply, or None."""

NODE_UNAVAILABLE = 5
NO_ANSWER = (3, 4, NODE_UNAVAILABLE)
"""Codes of errors that are no answer: the message or its reply has expired, or the node is gone.  Flower has them in a
module that is not public."""


def check_reply(sent: Message, reply: Message) -> str | None:
    """Say what no strategy can use in a reply with content; None when there is nothing.

    Arrays must hold finite numbers that can be read, and have the names, shapes, and kinds of numbers that were sent.
    Metrics must be finite.  Records that were not sent are not compared with anything.
    """
    arrays = reply.content.array_records
    if kind_of(sent) == "train" and sent.content.array_records and not arrays:
        return "it holds no arrays; expected those that were sent, trained"
    for name, record in arrays.items():
        known = _sent_arrays(sent.content, name, len(arrays))
        if known is not None and set(known) != set(record):
            return f"its arrays are {named(record)}; expected {named(known)}"
        for key, array in record.items():
            wrong = _wrong_array(array, None if known is None else known[key])
            if wrong is not None:
                return f"array {key[:80]!r} {wrong}"
    for name, metrics in reply.content.metric_records.items():
        for key, value in metrics.items():
            if not np.isfinite(value).all():
                return f"metric {key[:80]!r} of {name[:80]!r} is {str(value)[:80]}; expected finite numbers"
    return None


def kind_of(message: Message) -> str:
    """What a message is for: the first part of its type."""
    return str(message.metadata.message_type).partition(".")[0]


def samples_of(reply: Message, weight_key: str) -> Any:
    """What a reply counts in the strategy's average; 1 where its metric is not known."""
    return next(iter(reply.content.metric_records.values()))[weight_key] if weight_key else 1.0


def _wrong_array(array: Array, sent: Array | None) -> str | None:
    if sent is not None and array.stype != sent.stype:
        return f"is a {array.stype[:40]!r}; expected a {sent.stype!r}"
    if array.stype != _NUMPY:  # only its strategy knows how to read it
        return None if sent is not None else f"is a {array.stype[:40]!r}; expected a {_NUMPY!r}"
    if sent is not None and array.dtype == sent.dtype == "":  # what the legacy workflow sends says no type
        known = sent.numpy()
        return check_array(ArrayForm(known.shape, known.dtype.name), None, array.numpy)
    claimed = ArrayForm(tuple(array.shape), array.dtype)
    return check_array(claimed, None if sent is None else ArrayForm(tuple(sent.shape), sent.dtype), array.numpy)


def _sent_arrays(content: RecordDict, name: str, num_records: int) -> ArrayRecord | None:
    if name in content.array_records:
        return content.array_records[name]
    # One record went out and one came back: the strategies of Flower let its name differ.
    only = list(content.array_records.values())
    return only[0] if len(only) == 1 and num_records == 1 else None


def form_of(reply: Message, *, of_metrics: bool) -> Form:
    """Names of a reply's arrays and records of metrics, and of the metrics in them."""
    arrays = {("array", name, key) for name, record in reply.content.array_records.items() for key in record}
    metrics = {
        ("metric", name, key)
        for name, record in reply.content.metric_records.items()
        for key in (record if of_metrics else ("",))
    }
    return frozenset(arrays | metrics)


class ReplyCheck(Judge[Message]):
    """Everything that a reply must be before a strategy sees it.

    A strategy that weighs replies by the metric ``weight_key``, empty where that is not known, wants exactly one record
    of metrics, and of arrays from training.  It cannot do without further ``metrics`` of training, numbers >= 0; of
    QFedAvg its loss is a weight.
    """

    def __init__(
        self,
        check: CheckReply | None,
        weight_key: str = "",
        metrics: frozenset[str] = frozenset(),
    ) -> None:
        """Judge by a check, and by what a strategy needs."""
        # A strategy that is not known may need any metric that most replies have.
        form = partial(form_of, of_metrics=not weight_key)
        super().__init__(check, _pairs, partial(samples_of, weight_key=weight_key), form)
        self.weight_key, self.metrics = weight_key, metrics

    def wrong(self, sent: Message, reply: Message) -> str | None:
        """What is wrong with one reply with content; None when nothing is.  Its arrays get the order that was sent."""
        wrong = wrong_with(self.check, sent, reply) or wrong_with(self._check_records, sent, reply)
        if wrong is None and self.check is not None:
            for name, record in reply.content.array_records.items():
                known = _sent_arrays(sent.content, name, len(reply.content.array_records))
                if known is not None and list(known) != list(record) and set(known) == set(record):
                    reply.content[name] = ArrayRecord({key: record[key] for key in known})
        return wrong

    def _check_records(self, sent: Message, reply: Message) -> str | None:
        content = reply.content
        if not self.weight_key or self.check is None:
            return None
        if kind_of(sent) == "train" and len(content.array_records) != 1:
            return f"it holds {len(content.array_records)} records of arrays; expected one"
        if len(content.metric_records) != 1:
            return f"it holds {len(content.metric_records)} records of metrics; expected one"
        (metrics,) = content.metric_records.values()
        if missing := {self.weight_key, *self.metrics} - set(metrics):
            return f"it lacks the metric {min(missing)!r}, which the strategy needs"
        for key in sorted(self.metrics):
            if not real(metrics[key]) >= 0.0:
                return f"metric {key!r} is {str(metrics[key])[:80]}; expected a number >= 0"
        wrong = check_weight(metrics[self.weight_key])
        return None if wrong is None else f"its weight {self.weight_key!r} {wrong}"

    def odd(self, replies: Mapping[str, tuple[Message, Message]]) -> dict[str, str]:
        """What is wrong with the replies of a round beside each other; others lose what not all of them measure."""
        wrong = super().odd(replies)
        if self.check is not None:
            for key in sorted(self.metrics) if self.weight_key else ():
                known = {name: reply for name, (_, reply) in replies.items() if name not in wrong}
                losses = {name: max(float(samples_of(reply, key)), 1.0) for name, reply in known.items()}
                wrong |= self.sizes.odd(key, losses)  # below 1 they may differ a thousandfold
            cut([reply.content for name, (_, reply) in replies.items() if name not in wrong])
        return wrong


def _pairs(sent: Message, reply: Message) -> Iterator[tuple[Any, Any]]:
    """The arrays of a reply to training, and before each what was sent for it."""
    records = {} if kind_of(sent) == "evaluate" else reply.content.array_records
    for name, record in records.items():
        known = _sent_arrays(sent.content, name, len(records)) or {}
        for key, array in record.items():
            if key in known and array.stype == known[key].stype == _NUMPY:
                yield known[key].numpy(), array.numpy()


def cut(contents: Sequence[RecordDict]) -> None:
    """Cut replies down to the metrics that all of them hold, lists of one length."""
    forms: list[set[tuple[object, ...]]] = [
        {
            (name, key, len(value) if isinstance(value, list) else None)
            for name, record in content.metric_records.items()
            for key, value in record.items()
        }
        for content in contents
    ]
    for content, form in zip(contents, forms, strict=True):
        for name, key, _ in form - forms[0].intersection(*forms):
            del content.metric_records[str(name)][str(key)]


def arrays_of(content: RecordDict) -> dict[str, Any]:
    """The arrays of a content, NumPy's, by name; those of several records must differ in their names."""
    records = content.array_records.values()
    return {name: array.numpy() for record in records for name, array in record.items() if array.stype == _NUMPY}


def rewrite(
    sent: Message,
    replies: Sequence[Reply],
    weight_key: str,
    updates: RememberedUpdates | None,
) -> None:
    """Rewrite replies as :mod:`fedroster.engine.remembered` says, so that a strategy's own average takes its step.

    Only arrays of floats that were sent are changed.

    Args:
        sent: A training message, with the model x.
        replies: Replies with content, whose arrays are replaced; they have their weights, or are averaged by samples.
        weight_key: Metric that holds the samples, > 0; empty for 1.
        updates: What is remembered, in a round that has begun; None for nothing.
    """
    samples = [float(samples_of(reply.content, weight_key)) for reply in replies]
    before = arrays_of(sent.content)
    weighed = factors([reply.weight for reply in replies], samples)
    for reply, count, factor in zip(replies, samples, weighed, strict=True):
        found = arrays_of(reply.content.content)
        if updates is None:
            moved = scaled(before, found, factor)
        else:
            moved = updates.rewritten(reply.name, found, samples=count, weight=factor)
        for record in reply.content.content.array_records.values():
            for key in moved.keys() & record.keys():
                record[key] = Array(np.asarray(moved[key]))  # of a 0-d array NumPy makes a scalar
