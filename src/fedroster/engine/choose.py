"""Connected nodes, and a cohort of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedroster.engine.contexts import NodeContext


@dataclass(slots=True)
class Node:
    """A connected node.

    Attributes:
        node_id: The engine's own id, which may change when the node comes back.
        context: What it last reported.
        seen_s: When, seconds of the server's clock; NaN where contexts do not age.
        registered: Whether its name is the operator's or the engine's word, not only its own: rules that name clients
            hold for such names only.
    """

    node_id: int
    context: NodeContext
    seen_s: float = math.nan
    registered: bool = False

    @property
    def name(self) -> str:
        """Stable name."""
        return self.context.name


@dataclass(eq=False)
class Clients:
    """The clients of an engine, from which a cohort is chosen; an adapter that knows more of them has its own.

    Attributes:
        connected: The connected clients, with what is known of each.
        look: Called before each question; raises to end a wait, and may book failures.
        are_all: Whether no other clients ever come.
        num_connected: How many were connected when :meth:`nodes` was last asked.
    """

    connected: Callable[[], Sequence[Node]]
    look: Callable[[], None] = lambda: None
    are_all: bool = field(default=False, kw_only=True)
    num_connected: int = field(default=0, init=False)

    def nodes(self, cohort: Mapping[str, int] | None) -> Sequence[Node]:
        """Clients that are connected and known well enough.

        Args:
            cohort: Clients of a round that was interrupted by a restart and goes on: the engine's id of each, which may
                be another one now, by name; None for any clients.
        """
        self.look()
        nodes = self.connected()
        self.num_connected = len(nodes)
        return nodes

    def may_more_come(self) -> bool:
        """Whether it is worth to wait for more clients than have come."""
        return not self.are_all

    def why_none(self, num_busy: int) -> str:
        """Why no client can be chosen, if this many are busy."""
        return f"{self.num_connected} clients are connected and {num_busy} are still busy"


@dataclass(frozen=True, slots=True)
class Choice:
    """A cohort.

    Attributes:
        round: Its number.
        clients: The engine's id of each chosen node, by its name; 0 where it is not known.
        edges: Edge server of each, where there are any.
        predicted_s: How long the policy expects them to take, seconds; NaN when it believes nothing about times.
        is_resumed: Whether it had been chosen before the server was restarted.
        weights: How much the update of each counts, by name, >= 0; None for weights by samples.
    """

    round: int
    clients: Mapping[str, int]
    edges: Mapping[str, str] = field(default_factory=dict)
    predicted_s: float = field(default=math.nan, compare=False)
    is_resumed: bool = False
    weights: Mapping[str, float] | None = None
