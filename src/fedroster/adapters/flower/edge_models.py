"""The models of edge servers, all of which live in the server app."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from fedroster.core.checks import check_integer
from fedroster.core.errors import InvalidInputError, StateFileError
from fedroster.core.state import load_arrays, save_arrays

_KIND = "flower-edge-models"


def weighted_mean(contents: Sequence[RecordDict], weight_key: str) -> RecordDict:
    r"""One reply for many: :math:`\sum_n a_n w_n / \sum_n a_n` of arrays and metrics, with weight :math:`\sum_n a_n`.

    Args:
        contents: Contents of the same form, each with one record of metrics, which holds the weight; not empty.
        weight_key: Name of the weight a.

    Raises:
        InvalidInputError: If a weight is missing or not positive.
    """
    weights = []
    for content in contents:
        held = [record[weight_key] for record in content.metric_records.values() if weight_key in record]
        weight = held[0] if held else None
        if not isinstance(weight, int | float) or not weight > 0:
            raise InvalidInputError(f"the weight {weight_key!r} of a reply is {weight!r}; expected a number > 0")
        weights.append(float(weight))
    share = np.array(weights) / sum(weights)
    merged: dict[str, ArrayRecord | MetricRecord] = {}
    for name, record in contents[0].array_records.items():
        merged[name] = ArrayRecord(
            {
                key: Array(
                    sum(
                        part * content[name][key].numpy() for part, content in zip(share, contents, strict=True)
                    ).astype(array.dtype)
                )
                for key, array in record.items()
            }
        )
    for name, record in contents[0].metric_records.items():
        means = {
            key: np.tensordot(share, np.array([content[name][key] for content in contents], np.float64), 1).tolist()
            for key in record
        }
        means[weight_key] = sum(weights)
        merged[name] = MetricRecord(means)
    return RecordDict(merged)


@dataclass(slots=True)
class EdgeAggregation:
    r"""Aggregates at edge servers, all of which live in the server app, and every few rounds in the cloud.

    In each round the replies of an edge server's nodes become its model, their weighted mean (Qu et al. 2021, Eqs. 3
    and 6).  In every ``every``-th round the strategy gets one reply for each edge server, weighted by its examples, and
    aggregates as always; in the rounds between it gets none and keeps its model, and nodes train on their edge
    server's.  With a grid's ``state_dir`` they outlive the server app.

    With ``every = 1`` and a strategy that averages, the result is that of the flat federation.

    Attributes:
        every: Rounds between two global aggregations, T_ES of Qu et al. 2021, >= 1.
        weight_key: Name of the metric that holds a node's weight.
        models: The edge models since the last global aggregation, by label.
        since: Rounds since then.
    """

    every: int = 1
    weight_key: str = "num-examples"
    models: dict[str, RecordDict] = field(default_factory=dict)
    since: int = 0

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            ConfigurationError: If ``every`` is no positive integer.
        """
        check_integer("every", self.every, least=1)

    def outgoing(self, messages: Sequence[Message], edge_of: Mapping[int, str]) -> list[Message]:
        """Give nodes their edge server's model, where it has one.

        Args:
            messages: What the strategy sends.
            edge_of: Edge server by node id.
        """
        changed = []
        for message in messages:
            model = self.models.get(edge_of[message.metadata.dst_node_id])
            if model is not None:
                content = RecordDict(dict(message.content))
                for name, sent in message.content.array_records.items():
                    content[name] = _named_like(model, name, sent)
                message = Message(
                    content=content,
                    dst_node_id=message.metadata.dst_node_id,
                    message_type=message.metadata.message_type,
                    ttl=message.metadata.ttl,
                    group_id=message.metadata.group_id,
                )
            changed.append(message)
        return changed

    def incoming(self, replies: Sequence[Message], edge_of: Mapping[int, str], *, sent: Message) -> list[Message]:
        """Aggregate at the edge servers.

        Args:
            replies: Usable replies.
            edge_of: Edge server by node id.
            sent: A message of this round; the reply of an edge server without nodes in this round answers it.

        Returns:
            One reply for each edge server when the global aggregation is due, else none.
        """
        groups: dict[str, list[Message]] = {}
        for reply in replies:
            groups.setdefault(edge_of[reply.metadata.src_node_id], []).append(reply)
        for edge, group in groups.items():
            self.models[edge] = weighted_mean([reply.content for reply in group], self.weight_key)
        self.since += 1
        if self.since < self.every:
            return []
        merged = []
        for edge, model in self.models.items():
            if edge in groups:
                carrier = groups[edge][0]
                carrier.content = model
            else:
                carrier = Message(model, reply_to=sent)
            merged.append(carrier)
        self.models, self.since = {}, 0
        return merged

    def save(self, path: str | os.PathLike[str], *, round: int) -> None:
        """Save the edge models, atomically and without pickles.

        Args:
            path: File to create or replace.
            round: Last round that is in them.
        """
        arrays, held = {}, []
        for number, (edge, model) in enumerate(self.models.items()):
            names = {name: list(record) for name, record in model.array_records.items()}
            metrics = {name: dict(record) for name, record in model.metric_records.items()}
            held.append({"edge": edge, "arrays": names, "metrics": metrics})
            for place, (name, keys) in enumerate(names.items()):
                for position, key in enumerate(keys):
                    arrays[f"{number}.{place}.{position}"] = model[name][key].numpy()
        save_arrays(path, arrays, {"round": round, "since": self.since, "models": held}, kind=_KIND)

    def load(self, path: str | os.PathLike[str]) -> int:
        """Go on with the models that :meth:`save` saved.

        Args:
            path: The file.

        Returns:
            The last round that is in them.

        Raises:
            FileNotFoundError: If there is no such file.
            StateFileError: If the file is damaged or foreign.  Nothing changes then.
        """
        arrays, header = load_arrays(path, kind=_KIND)
        models: dict[str, RecordDict] = {}
        try:
            for number, held in enumerate(header["models"]):
                records: dict[str, ArrayRecord | MetricRecord] = {}
                for place, (name, keys) in enumerate(held["arrays"].items()):
                    parts = {key: Array(arrays[f"{number}.{place}.{n}"]) for n, key in enumerate(keys)}
                    records[name] = ArrayRecord(parts)
                records |= {name: MetricRecord(values) for name, values in held["metrics"].items()}
                models[str(held["edge"])] = RecordDict(records)
            round_, since = int(header["round"]), int(header["since"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateFileError(f"{os.fspath(path)!r} lacks a part of the edge models ({error!r})") from error
        self.models, self.since = models, since
        return round_


def _named_like(model: RecordDict, name: str, sent: ArrayRecord) -> ArrayRecord:
    records = model.array_records
    if name in records:
        return records[name]
    only = list(records.values())
    if len(only) == 1 and set(only[0]) == set(sent):
        return only[0]
    raise InvalidInputError(f"nodes answer with arrays that {name!r} does not hold; expected those that were sent")
