"""What happens in a running federation, as values, and the protocol of observers.

An observer is anything that can be called with an event and the selector.  It is called when the event is booked, and
what it raises is logged and stops nothing.  An observer with a method ``before(event, selector)``, such as one that
keeps a log, is also told before anything is booked; what that raises ends the call, and then nothing has happened.

Arrays of an event belong to the selector and change later: an observer that keeps one copies it.  *Slots* are the
places of clients in arrays; ``selector.ids_of(slots)`` names the clients.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Feedback, RoundContext, Selection
from fedroster.federation.candidates import Candidates
from fedroster.federation.members import ClientId

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Began:
    """A selector begins, or goes on from a file.

    Attributes:
        round: Last round that was begun.
        place: What the file says of the observer's own place (:class:`Placed`); None for a new selector.
        catch_up: Whether what an observer has and the file lacks is to be booked; else the selector stays as it is.
    """

    round: int
    place: Any = None
    catch_up: bool = True


@dataclass(frozen=True, slots=True)
class Ruled:
    """Other rules come into force.

    Attributes:
        rules: The rules, by :meth:`~fedroster.Rules.as_table`; empty for none.
        path: The file that they are read from; None for none.
    """

    rules: Mapping[str, Any]
    path: str | None


@dataclass(frozen=True, slots=True)
class Joined:
    """Clients join.

    Attributes:
        clients: Their ids.
    """

    clients: tuple[ClientId, ...]


@dataclass(frozen=True, slots=True)
class Left:
    """Members leave.

    Attributes:
        clients: Their ids.
        forgotten: Whether what was learned of them is deleted.
    """

    clients: tuple[ClientId, ...]
    forgotten: bool


@dataclass(frozen=True, slots=True)
class Decided:
    """A cohort is chosen.

    Attributes:
        round: Its number.
        at_s: When, seconds since 1970.
        asked: What the caller named: slots, contexts as reported, available clients, and links to edge servers.
        context: What the policy got; its rows are slots, or links of an edge federation.
        believed: Contexts of the chosen as they were told, as far as they are plausible, shape (k, D).
        members: Which slots' clients are members, shape (slots,).
        seen: Which of them are available, shape (slots,).
        excluded: Slots of members that could not be chosen although they are available, by the reason.
        selection: The decision: rows of ``context``.
        chosen: Slots of the cohort, shape (k,).
        servers: Number of the edge server of each, shape (k,); None without edge servers.
        places: Largest number of clients that could be chosen.
        busy: Slots of clients that still owe an answer and were therefore not chosen.
    """

    round: int
    at_s: float
    asked: Candidates
    context: RoundContext
    believed: FloatArray
    members: BoolArray
    seen: BoolArray
    excluded: Mapping[str, IntArray]
    selection: Selection
    chosen: IntArray
    servers: IntArray | None = None
    places: int = 0
    busy: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Feedback comes in.

    Attributes:
        round: The round that it is of.
        at_s: When, seconds since 1970.
        feedback: What the caller said, by slots: NaN where no time was measured.
        round_s: How long the round took by the server's clock, seconds; None if it is not known.
        learned: What the policy learns of it: implausible times cut, failures as the time that they cost.
        costs: Measured costs of edge servers' clients, by slot.
        unlearned: Slots of clients whose times are not learned, and then ``round_s`` is not either; None for none.
    """

    round: int
    at_s: float
    feedback: Feedback
    round_s: float | None
    learned: Feedback
    costs: Mapping[int, float] = field(default_factory=dict)
    unlearned: tuple[int, ...] | None = None


Event: TypeAlias = Began | Ruled | Joined | Left | Decided | Told


class Observer(Protocol):
    """A callable that gets every event."""

    def __call__(self, event: Any, selector: Any, /) -> None:
        """Take an event that is booked."""
        ...


@runtime_checkable
class Placed(Protocol):
    """An observer that keeps a file of its own, and finds its place in it again when a selector is loaded."""

    @property
    def place(self) -> Any:
        """Where it is, for the header of the selector's file; None for nowhere."""
        ...


class Observers:
    """The observers of one selector.  A copy of the selector has none: two writers would spoil one file."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        """Look on from now on.

        Raises:
            ConfigurationError: If one cannot be called.
        """
        self._observers = tuple(observers) if isinstance(observers, Iterable) else (observers,)
        for observer in self._observers:
            if not callable(observer):
                raise ConfigurationError(f"an observer is {shown(observer)}; expected a callable of event and selector")

    def __reduce__(self) -> tuple[type[Observers], tuple[()]]:
        """Copy nothing."""
        return Observers, ()

    def __iter__(self) -> Any:
        """One after the other."""
        return iter(self._observers)

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._observers)

    @property
    def place(self) -> Any:
        """The place of the first that keeps one."""
        places = (observer.place for observer in self._observers if isinstance(observer, Placed))
        return next(places, None)

    def before(self, event: Event, selector: Any) -> None:
        """Announce an event that is about to be booked; an error ends the call that books it."""
        for observer in self._observers:
            before = getattr(observer, "before", None)
            if before is not None:
                before(event, selector)

    def after(self, event: Event, selector: Any) -> None:
        """Tell of an event that is booked."""
        for observer in self._observers:
            try:
                observer(event, selector)
            except Exception:  # rounds go on without their dashboards
                _log.exception("an observer failed: %s", type(observer).__name__)
