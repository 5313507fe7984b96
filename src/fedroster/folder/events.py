"""What happens in a running federation, as values, and the protocol of those who are told.

An event says all that booking it takes: a live call, a loaded log and a verification book the same values.  A
:class:`~fedroster.Record` is told of an event before it is booked; what it raises ends the call, and then nothing has
happened.  An *observer* is anything that can be called with an event and the selector.  It is told when the event is
booked, and what it raises is logged and stops nothing.

Arrays of an event belong to the selector and change later: an observer that keeps one copies it.  *Slots* are the
places of clients in arrays; ``selector.ids_of(slots)`` names the clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import numpy as np
from msgspec import Meta

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because
from fedroster.core.errors import LogFileError
from fedroster.core.ids import ClientId
from fedroster.core.problem import Feedback
from fedroster.folder.settings import Content, Count, Digest, LinePart, Settings, Size, Word

Snapshot: TypeAlias = tuple[dict[str, Any], dict[str, Any]]
"""Header and arrays of a selector's whole state."""


class NotKeptError(LogFileError):
    """A log was kept without contexts or names that its decisions depend on."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which edge servers reach the clients of a round.

    Attributes:
        row: Row of each link's client, shape (links,).
        server: Number of its edge server, shape (links,).
        price: Price of each client as it is reported, shape (k,).
    """

    row: IntArray
    server: IntArray
    price: FloatArray


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller asks for: clients, their contexts, and how many of them.

    Attributes:
        slot: Slot of each client, shape (k,).
        rows: Their contexts, shape (k, D).
        available: Whether they can be chosen, shape (k,).
        at_s: When, seconds since 1970; in a simulation since its beginning.
        given: Whether the caller gave contexts; without, each is ``[1.0]`` or as many ones as are known of others.
        of_all: Whether they are all members, in the order of their slots.
        of_links: Whether rows are links with contexts of their own, as in a simulation.
        known: Whether ``rows`` are known: a log may have those of the cohort only.
        links: Edge servers that reach them; None without edge servers.
        not_registered: Slots of clients whose name is only what they say of themselves.
        places: Places that are free while other clients are at work; None for a whole round.
        busy_too: Whether clients that still owe an answer can be chosen.
        members: Of a simulation, which clients belong to the federation, shape (slots,); None for all.
        budget: Of a simulation, what each server may spend in this round, shape (servers,); None where nothing has a
            price.
    """

    slot: IntArray
    rows: FloatArray
    available: BoolArray
    at_s: float = 0.0
    given: bool = True
    of_all: bool = False
    of_links: bool = False
    known: bool = True
    links: Reach | None = None
    not_registered: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    places: int | None = None
    busy_too: bool = True
    members: BoolArray | None = None
    budget: FloatArray | None = None

    def seen(self, capacity: int) -> BoolArray:
        """Which slots' clients are available, shape (slots,); where there are edge servers, for one of them."""
        slot, there = self.slot, self.available
        if self.links is not None:
            slot, there = slot[self.links.row], there[self.links.row]
        elif slot.size == capacity and (slot[:-1] < slot[1:]).all():
            return there
        seen = np.zeros(capacity, np.bool_)
        seen[slot[there]] = True
        return seen


class Scenario(LinePart, kw_only=True, frozen=True):
    """A simulation's scenario, and its parameters that are overridden."""

    name: Word
    settings: dict[str, str] = {}


class StartSaid(LinePart, kw_only=True, frozen=True):
    """A state from which a log goes on, which is kept beside it."""

    kind: Literal["selector", "edge-selector"]
    file: Annotated[str, Meta(pattern=r"^snapshot-[0-9]{12}\.npz$")]
    sha256: Digest


class BegunLine(Content, tag="begun", kw_only=True):
    """A process or a file begins, or lines are missing: which policy decides, under what, from which state.

    Attributes:
        of: What decides: a "selector", an "edge-selector" or a "simulation".
        fedroster: Version of fedroster.
        code: Digest of its code.
        policy: The policy and its parameters, as Python writes them.
        policy_text: The same as commands take it; empty where it is not known.
        settings: What the selector was made with, or follows now.
        scenario: Of a simulation, its name and the settings that are overridden; None for a federation.
        num_features: Length D of contexts; None until the first contexts say it.
        draws: How chance decides, as the policy says.
        contexts: Whether the contexts of all clients are kept.
        hashed: Whether ids are hashes: false, or a word that only the holder of the key can tell; true in older logs.
        round: Last round that was begun.
        start: The state from which the log goes on; None without.
        follows: Whether the lines before lead to that state.
        repaired: Bytes of a torn last line that were cut off.
    """

    format: Literal["fedroster-log"] = "fedroster-log"
    version: Literal[2] = 2
    of: Literal["selector", "edge-selector", "simulation"]
    fedroster: Word
    code: Word
    policy: Annotated[str, Meta(max_length=1_000_000)]
    policy_text: Word = ""
    settings: Settings
    scenario: Scenario | None = None
    num_features: Size | None = None
    draws: Word = "unknown"
    contexts: bool = False
    hashed: bool | Word = False
    round: Count = 0
    start: StartSaid | None = None
    follows: bool = False
    repaired: Count = 0

    @property
    def num_servers(self) -> int:
        """Number of edge servers; 1 without."""
        budgets = self.settings.budgets
        return (self.settings.num_servers or 1) if budgets is None else len(budgets)


class Set(Content, tag="settings", kw_only=True):
    """Other settings, rules, or parameters of the policy come into force.

    Attributes:
        settings: All that hold from now on.
        policy: The policy from now on, of the same class, as Python writes it; empty for the one before.
    """

    settings: Settings
    policy: Annotated[str, Meta(max_length=1_000_000)] = ""


class Joined(Content, tag="joined", kw_only=True):
    """Clients join.

    Attributes:
        clients: Their ids.
    """

    clients: tuple[ClientId, ...]


class Left(Content, tag="left", kw_only=True):
    """Members leave.

    Attributes:
        clients: Their ids.
        forgotten: Whether what was learned of them is deleted.
    """

    clients: tuple[ClientId, ...]
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """A cohort is chosen.

    Attributes:
        round: Its number.
        asked: What the caller asked for.
        capacity: Number of slots.
        places: Largest number of clients that could be chosen.
        excluded: Slots of members that could not be chosen although they are available, by the reason.
        chosen: Slots of the cohort, shape (k,).
        links: Rows of the policy's context that were chosen, shape (k,): slots, or links of an edge federation.
        servers: Number of the edge server of each, shape (k,); None without edge servers.
        features: Contexts under which they were chosen, as the policy got them, shape (k, D).
        believed: Their own contexts as they were told, shape (k, D).
        busy: Slots of clients that still owe an answer and were therefore not chosen.
        deadline_s: Of a simulation, answers that take longer are late, seconds; infinite for none.
        expected_s: Exchange times that the policy expects, seconds, of all slots or, in a large federation, of the
            cohort; NaN where it is not known.  None from a policy that expects none, or if it was not asked for.
        owed: Rounds that the policy owes to each client before the decision, in the same form.
        state: Digest of the policy's state before the decision; empty if it was not asked for.
        not_begun: Why the round could not begin: then the cohort is empty, and nothing but its number counts.
        weights: How much each client's update counts, shape (k,), >= 0; None for weights by samples.
        found: What the selector found out on the way; None for a decision that was read.
        because: Says of the client of a slot why it was chosen, or was not, until the decision is booked; None from a
            policy that does not say, where rules decided, or if it was not asked for.
    """

    round: int
    asked: Asked
    capacity: int
    places: int
    excluded: Mapping[str, IntArray]
    chosen: IntArray
    links: IntArray
    servers: IntArray | None
    features: FloatArray
    believed: FloatArray
    busy: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    deadline_s: float = math.inf
    expected_s: FloatArray | None = None
    owed: FloatArray | None = None
    state: str = ""
    not_begun: str = ""
    weights: FloatArray | None = None
    found: Any = field(default=None, compare=False, repr=False)
    because: Callable[[int], Because | None] | None = field(default=None, compare=False, repr=False)

    @property
    def at_s(self) -> float:
        """When, seconds since 1970; in a simulation since its beginning."""
        return self.asked.at_s

    @property
    def weights_by_client(self) -> tuple[float, ...] | None:
        """Weights as a cohort has them."""
        return None if self.weights is None else tuple(self.weights.tolist())

    @property
    def seen(self) -> BoolArray:
        """Which slots' clients are available, shape (slots,)."""
        return self.asked.seen(self.capacity)


@dataclass(frozen=True, slots=True)
class Told:
    """Feedback comes in.

    Attributes:
        round: The round that it is of.
        at_s: When, seconds since 1970.
        feedback: What the caller said, by slots: NaN where no time was measured.
        round_s: How long the round took by the server's clock, seconds; None if it is not known.
        learned_s: Times that the policy learns of it, shape (j,), seconds: implausible times cut, failures as the time
            that they cost.
        costs: Measured costs of edge servers' clients, by slot.
        unlearned: Slots of clients whose times are not learned, and then ``round_s`` is not either; None for none.
        found: What the selector found out on the way; None for feedback that was read.
    """

    round: int
    at_s: float
    feedback: Feedback
    round_s: float | None
    learned_s: FloatArray
    costs: Mapping[int, float] = field(default_factory=dict)
    unlearned: tuple[int, ...] | None = None
    found: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Noted:
    """An engine keeps a number of some clients beside a selector, such as the ids of the nodes of its round.

    Attributes:
        name: What it is.
        by_slot: The number of each client, by slot.
        of_all: Whether it takes the place of all that was noted under this name; else it is added.
        is_synced: Whether it is on the disk when it is booked; else with the next decision.
    """

    name: str
    by_slot: Mapping[int, float]
    of_all: bool = True
    is_synced: bool = False


Event: TypeAlias = BegunLine | Set | Joined | Left | Decided | Told | Noted


class Observer(Protocol):
    """A callable that gets every event."""

    def __call__(self, event: Any, selector: Any, /) -> None:
        """Take an event that is booked."""
        ...
