"""The round that is under way, and its messages."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Message

from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.state import write_text_atomically

_FORMAT = "fedroster-flower-round"


@dataclass(slots=True)
class Round:
    """The round that was begun last.

    Attributes:
        number: The selector's round number; 0 before the first.
        clients: Names of the chosen nodes.
        is_done: Whether the strategy has gone on since: its aggregation is through.
        edges: Edge server of each chosen node, where there are any.
        bandwidth_bps: Bandwidths that the server has measured, by the node's name, bit/s.
    """

    number: int = 0
    clients: tuple[str, ...] = ()
    is_done: bool = True
    edges: dict[str, str] = field(default_factory=dict)
    bandwidth_bps: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the round to a file, atomically."""
        text = json.dumps(
            {
                "format": _FORMAT,
                "format_version": 1,
                "round": self.number,
                "clients": list(self.clients),
                "is_done": self.is_done,
                "edges": self.edges,
                "bandwidth_bps": self.bandwidth_bps,
            }
        )
        write_text_atomically(path, text)

    @classmethod
    def load(cls, path: Path) -> Round:
        """Read what :meth:`save` wrote; no file, no round.

        Raises:
            StateFileError: If the file is damaged or foreign.
        """
        if not path.exists():
            return cls()
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            if saved["format"] != _FORMAT or saved["format_version"] != 1:
                raise KeyError("format")
            return cls(
                int(saved["round"]),
                tuple(str(name) for name in saved["clients"]),
                bool(saved["is_done"]),
                {str(name): str(edge) for name, edge in saved["edges"].items()},
                {str(name): float(bps) for name, bps in saved["bandwidth_bps"].items() if 0.0 < bps < math.inf},
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateFileError(f"{str(path)!r} is damaged or not a fedroster round ({error!r})") from error


def addressed(messages: Sequence[Message], node_ids: Sequence[int]) -> list[Message]:
    """One message for each of some nodes.

    Args:
        messages: What the strategy made, for whomever it sampled; not empty.
        node_ids: Who is to be sent one.

    Raises:
        ConfigurationError: If a node was made no message, and they are not all the same.
    """
    made = {message.metadata.dst_node_id: message for message in messages}
    sample = messages[0]
    missing = [node_id for node_id in node_ids if node_id not in made]
    if missing and any(message.content is not sample.content for message in messages):
        raise ConfigurationError(
            f"the strategy makes a message of its own for each node, and made none for {len(missing)} of the "
            f"{len(node_ids)} chosen nodes; expected one for every connected node: set fraction_train = 1.0"
        )
    for node_id in missing:
        made[node_id] = Message(
            content=sample.content,
            dst_node_id=node_id,
            message_type=sample.metadata.message_type,
            ttl=sample.metadata.ttl,
            group_id=sample.metadata.group_id,
        )
    return [made[node_id] for node_id in node_ids]
