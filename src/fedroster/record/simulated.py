"""The log of a simulation, in the lines of a federation's log; client *n* of the scenario has slot and id *n*."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedroster.core.because import because
from fedroster.core.errors import FeedbackError, LogFileError
from fedroster.core.locks import FolderLock
from fedroster.core.problem import Outcome, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import AnyPolicy, draws, weighed
from fedroster.core.sources import code
from fedroster.core.streams import Streams
from fedroster.folder.chain import Writer
from fedroster.folder.events import (
    Asked,
    BegunLine,
    Decided,
    Event,
    Joined,
    NotKeptError,
    Reach,
    Scenario,
    Told,
)
from fedroster.folder.lines import line_of
from fedroster.folder.settings import Settings
from fedroster.selector.learner import beliefs_of
from fedroster.selector.rounds import with_contexts
from fedroster.simulation import Round
from fedroster.version import __version__

KIND: Literal["simulation"] = "simulation"
_ROTATE_BYTES = 2**24


class SimulationRecord:
    """Writes the log of one run: ``simulate(..., witness=record.decided)``, and :meth:`played` for each round.

    The time of a round is the scenario's own clock where its state has a ``time_s``, else the sum of the rounds before.
    Lines are on the disk when the log is closed: a run that is killed is played again.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        policy: AnyPolicy,
        spec: ProblemSpec,
        *,
        policy_text: str,
        scenario: str,
        settings: Mapping[str, str],
        seed: int,
    ) -> None:
        """Begin a log in a folder without one; ``settings`` are the scenario's parameters that are overridden, as text.

        Raises:
            InUseError: If another process holds the folder.
            LogFileError: If it holds a log.
        """
        self._policy = policy
        self._elapsed_s = 0.0
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        begun = BegunLine(
            of=KIND,
            fedroster=__version__,
            code=code(),
            policy=repr(policy),
            policy_text=policy_text,
            settings=Settings(**dataclasses.asdict(spec), seed=seed),
            scenario=Scenario(name=scenario, settings=dict(settings)),
            draws=draws(policy),
            contexts=True,
        )
        self._lock = FolderLock(place)
        try:
            self._writer = Writer(place, rotate_bytes=_ROTATE_BYTES, sync=False)
            if self._writer.number:
                self._writer.close()
                raise LogFileError(f"{os.fspath(folder)!r} holds a log; expected an empty folder")
            self._writer.append(begun)
            self._writer.append(Joined(clients=tuple(range(spec.num_clients))))
        except BaseException:
            self._lock.release()
            raise
        self._num_clients = spec.num_clients

    def decided(self, context: RoundContext, outcome: Outcome, selection: Selection, state: Any, network: Any) -> None:
        """Write a decision, before it is booked."""
        self._at_s = float(getattr(network, "time_s", self._elapsed_s))
        asked = _asked(context, self._at_s, self._num_clients)
        event = _decided(self._policy, state, asked, context, selection, self._num_clients)
        event = replace(event, deadline_s=float(outcome.deadline_s))
        self._writer.append(line_of(event, contexts=True, key=None))

    def played(self, played: Round) -> None:
        """Write what came back from a round."""
        feedback = played.feedback
        at_s = self._at_s + played.time_s
        told = Told(played.number, at_s, feedback, played.time_s or None, feedback.exchange_time_s)
        self._writer.append(line_of(told, contexts=True, key=None))
        self._elapsed_s += played.time_s

    def close(self) -> None:
        """Bring the log to the disk, and let others have its folder."""
        self._writer.close()
        self._lock.release()


class SimulatedBooks:
    """The books of a simulation: a policy without a selector, which books the same events."""

    def __init__(self, policy: AnyPolicy, event: BegunLine) -> None:
        """Begin before the first round.

        Raises:
            NotKeptError: If the policy knows the network's true times, which no log has.
        """
        if policy.omniscient:
            raise NotKeptError(f"{type(policy).__name__} knows the network's true times, which no log has")
        names = (field.name for field in dataclasses.fields(ProblemSpec))
        self._spec = ProblemSpec(**{name: getattr(event.settings, name) for name in names})
        self._policy, self._streams = policy, Streams(event.settings.seed)
        self._state = policy.init(self._spec, rng=self._streams.at("policy-init"))
        self._open: Decided | None = None

    def decide(self, asked: Asked, /, *, explain: bool) -> Decided:
        """Decide a round without booking it."""
        context = self._context(asked)
        selection = self._policy.select(self._state, context, rng=self._streams.at("policy", context.round))
        selection = weighed(self._policy, self._state, context, selection)
        decided = _decided(self._policy, self._state, asked, context, selection, self._spec.num_clients)
        return replace(decided, because=partial(because, self._policy, self._state, context, selection))

    def _context(self, asked: Asked) -> RoundContext:
        number = 1 if self._open is None else self._open.round + 1
        links, budget = asked.links, asked.budget
        return RoundContext(
            round=number,
            features=asked.rows,
            available=asked.available,
            cohort_size=self._spec.cohort_size,
            client=None if links is None else asked.slot,
            server=None if links is None or self._spec.num_servers == 1 else links.server,
            cost=None if links is None or budget is None else links.price,
            budget=budget,
            members=asked.members,
        )

    def apply(self, event: Event, /) -> Event:
        """Book an event."""
        if isinstance(event, Decided):
            context, links = self._context(event.asked), np.sort(event.links)
            if event.round != context.round:
                raise FeedbackError(f"round {event.round} follows round {context.round - 1}")
            self._state = self._policy.commit(self._state, context, Selection(event.round, links))
            self._open = event
        elif isinstance(event, Told):
            if (open_ := self._open) is None or open_.round != event.round:
                raise FeedbackError(f"round {event.round} is not open")
            feedback = with_contexts(event.feedback, open_.chosen, open_.features, open_.servers)
            self._state = self._policy.update(self._state, feedback)
        return event


def _asked(context: RoundContext, at_s: float, num_clients: int) -> Asked:
    """What a simulation asks its policy; a row is a client, or a link with contexts of its own."""
    links, slot = None, np.arange(num_clients)
    if context.client is not None:
        slot = context.client
        server = np.zeros(slot.size, np.int64) if context.server is None else context.server
        cost = np.zeros(slot.size) if context.cost is None else context.cost
        links = Reach(np.arange(slot.size), server, cost)
    return Asked(
        slot,
        context.features,
        context.available,
        at_s=at_s,
        of_all=links is None,
        of_links=links is not None,
        links=links,
        members=context.members,
        budget=context.budget,
    )


def _decided(
    policy: AnyPolicy, state: Any, asked: Asked, context: RoundContext, selection: Selection, num_clients: int
) -> Decided:
    """A decision, with what the policy believes before it is booked."""
    links, chosen = selection.links, context.clients_of(selection.links)
    return Decided(
        round=context.round,
        asked=asked,
        capacity=num_clients,
        places=context.cohort_size,
        excluded={},
        chosen=chosen,
        links=links,
        servers=None if asked.links is None else asked.links.server[links],
        features=context.features[links],
        believed=context.features[links],
        weights=selection.weights,
        **beliefs_of(policy, state, context, np.flatnonzero(context.available), chosen),
    )
