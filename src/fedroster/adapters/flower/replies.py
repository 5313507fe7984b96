"""Which of Flower's replies a strategy may see: its strategies stop the whole run at one malformed reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Array, ArrayRecord, Message, RecordDict

from fedroster.engine.replies import (
    ArrayForm,
    Form,
    UsualForm,
    check_array,
    check_number,
    check_weight,
    named,
    wrong_with,
)

CheckReply = Callable[[Message, Message], str | None]
"""Given what was sent and the reply with content, returns what is wrong with the reply, or None."""

_UNAVAILABLE = (3, 4, 5)  # message expired, reply expired, node gone: no answer


def is_dropout(reply: Message) -> bool:
    """Whether an error reply says that there was no answer, rather than that the node failed."""
    return reply.has_error() and reply.error.code in _UNAVAILABLE


def check_reply(sent: Message, reply: Message) -> str | None:
    """Look for what no strategy can use.

    Arrays must hold finite numbers that can be read, and have the names, shapes, and kinds of numbers that were sent.
    Metrics must be finite.  Records that were not sent are not compared with anything.

    Args:
        sent: The training or evaluation message.
        reply: A reply with content.

    Returns:
        What is wrong; None when nothing is.
    """
    arrays = reply.content.array_records
    if _kind(sent) == "train" and sent.content.array_records and not arrays:
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
            if not check_number(value):
                return f"metric {key[:80]!r} of {name[:80]!r} is {str(value)[:80]}; expected finite numbers"
    return None


def _kind(message: Message) -> str:
    return str(message.metadata.message_type).partition(".")[0]


def _wrong_array(array: Array, sent: Array | None) -> str | None:
    if sent is not None and array.stype != sent.stype:
        return f"is a {array.stype[:40]!r}; expected a {sent.stype!r}"
    if array.stype != "numpy.ndarray":  # only its strategy knows how to read it
        return None if sent is not None else f"is a {array.stype[:40]!r}; expected a 'numpy.ndarray'"
    claimed = ArrayForm(tuple(array.shape), array.dtype)
    return check_array(claimed, None if sent is None else ArrayForm(tuple(sent.shape), sent.dtype), array.numpy)


def _sent_arrays(content: RecordDict, name: str, num_records: int) -> ArrayRecord | None:
    if name in content.array_records:
        return content.array_records[name]
    # One record went out and one came back: the strategies of Flower let its name differ.
    only = list(content.array_records.values())
    return only[0] if len(only) == 1 and num_records == 1 else None


def form_of(content: RecordDict) -> Form:
    """Names of a content's arrays and metrics, and which metrics are lists of what length."""
    arrays = {("array", name, key) for name, record in content.array_records.items() for key in record}
    return frozenset(arrays) | {
        ("metric", name, key, len(value) if isinstance(value, list) else None)
        for name, record in content.metric_records.items()
        for key, value in record.items()
    }


@dataclass(slots=True)
class ReplyCheck:
    """Everything that a reply must be before a strategy sees it.

    Attributes:
        check: Looks at each reply; None to let everything pass.
        weight_key: Metric by which the strategy weighs replies; it then wants exactly one record of metrics, and of
            arrays from training.  Empty when it is not known.
        usual: Compares the forms of a round's replies.
    """

    check: CheckReply | None
    weight_key: str = ""
    usual: UsualForm = field(default_factory=UsualForm)

    def wrong(self, sent: Message, reply: Message) -> str | None:
        """What is wrong with one reply with content; None when nothing is."""
        return wrong_with(self.check, sent, reply) or wrong_with(self._check_records, sent, reply)

    def _check_records(self, sent: Message, reply: Message) -> str | None:
        content = reply.content
        if not self.weight_key or self.check is None:
            return None
        if _kind(sent) == "train" and len(content.array_records) != 1:
            return f"it holds {len(content.array_records)} records of arrays; expected one"
        if len(content.metric_records) != 1:
            return f"it holds {len(content.metric_records)} records of metrics; expected one"
        (metrics,) = content.metric_records.values()
        if self.weight_key not in metrics:
            return f"it lacks the metric {self.weight_key!r}, its weight"
        wrong = check_weight(metrics[self.weight_key])
        return None if wrong is None else f"its weight {self.weight_key!r} {wrong}"

    def odd(self, replies: Mapping[str, Message]) -> dict[str, str]:
        """What is wrong with a round's replies, compared with each other, by the names of those that are refused.

        In each by itself nothing is wrong; they may be reduced to what all of them hold.
        """
        if self.check is None or not replies:
            return {}
        odd, common = self.usual.settle({name: form_of(reply.content) for name, reply in replies.items()})
        wrong = dict.fromkeys(odd, "its records differ from those of other nodes")
        if common is not None:
            for reply in replies.values():
                _cut(reply.content, common)
        rest = [next(iter(reply.content.metric_records.values())) for name, reply in replies.items() if name not in odd]
        if self.weight_key and rest and not any(metrics[self.weight_key] for metrics in rest):
            wrong |= dict.fromkeys(replies.keys() - odd, f"the weights {self.weight_key!r} of all replies are 0")
        return wrong


def _cut(content: RecordDict, form: Form) -> None:
    kept = {part[:3] for part in form}
    for kind, records in (("array", content.array_records), ("metric", content.metric_records)):
        for name, record in records.items():
            for key in [key for key in record if (kind, name, key) not in kept]:
                del record[key]
            if not record:
                del content[name]
