"""The log of a simulation, in the lines of a federation's log; client *n* of the scenario has slot and id *n*."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.core.errors import FedrosterError, LogFileError
from fedroster.core.problem import Outcome, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import AnyPolicy, ExpectsTimes, Owes, draws
from fedroster.core.sources import code
from fedroster.core.streams import Streams
from fedroster.federation.candidates import Candidates, Links
from fedroster.federation.events import Decided, Told
from fedroster.federation.locks import FolderLock
from fedroster.federation.members import Members
from fedroster.record.chain import Line, Writer
from fedroster.record.codec import pack_bits, pack_floats, unpack_bits, unpack_floats
from fedroster.record.lines import (
    FORMAT,
    VERSION,
    Decision,
    book_members,
    decided,
    feedback_of,
    read_decided,
    read_told,
    state_digest,
    told,
)
from fedroster.record.rebuild import Difference
from fedroster.simulation import Round
from fedroster.version import __version__

KIND = "simulation"
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
        """Begin a log.

        Args:
            folder: A folder without a log.
            policy: The policy.
            spec: What stays fixed in the scenario.
            policy_text: The policy as text.
            scenario: Name of the scenario.
            settings: Its parameters that are overridden, as text.
            seed: Seed of the run.

        Raises:
            InUseError: If another process holds the folder.
            LogFileError: If it holds a log.
        """
        self._policy = policy
        self._elapsed_s = 0.0
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(place)
        self._writer = Writer(place, rotate_bytes=_ROTATE_BYTES, sync=False)
        if self._writer.number:
            self.close()
            raise LogFileError(f"{os.fspath(folder)!r} holds a log; expected an empty folder")
        begun = {
            "format": FORMAT,
            "version": VERSION,
            "of": KIND,
            "fedroster": __version__,
            "code": code(),
            "policy": repr(policy),
            "draws": draws(policy),
            "policy_text": policy_text,
            "settings": {**dataclasses.asdict(spec), "seed": seed},
            "scenario": {"name": scenario, "settings": dict(settings)},
            "contexts": True,
            "hashed": False,
            "round": 0,
            "start": None,
        }
        self._writer.append("begun", begun)
        self._writer.append("joined", {"clients": list(range(spec.num_clients))})
        self._num_clients = spec.num_clients

    def decided(self, context: RoundContext, outcome: Outcome, selection: Selection, state: Any, network: Any) -> None:
        """Write a decision, before it is booked."""
        self._at_s = float(getattr(network, "time_s", self._elapsed_s))
        links = None
        slot = np.arange(self._num_clients) if context.client is None else context.client
        if context.client is not None:
            links_server = np.zeros(slot.shape[0], np.int64) if context.server is None else context.server
            cost = np.zeros(slot.shape[0]) if context.cost is None else context.cost
            links = Links(np.arange(slot.shape[0]), links_server, cost)
        members = np.ones(self._num_clients, np.bool_)
        seen = np.zeros(self._num_clients, np.bool_)
        seen[slot[context.available]] = True
        event = Decided(
            round=context.round,
            at_s=self._at_s,
            asked=Candidates(slot, context.features, context.available, links=links),
            context=context,
            believed=context.features[selection.links],
            members=members,
            seen=seen,
            excluded={},
            selection=selection,
            chosen=context.clients_of(selection.links),
            servers=None if links is None else links.server[selection.links],
            places=context.cohort_size,
        )
        policy = self._policy
        line = decided(
            event,
            contexts=True,
            expects=partial(policy.expected_times_s, state) if isinstance(policy, ExpectsTimes) else None,
            slots=np.flatnonzero(seen),
            owed=policy.backlog(state) if isinstance(policy, Owes) else None,
        )
        line["state"] = state_digest(state)
        if not math.isinf(outcome.deadline_s):
            line["deadline_s"] = float(outcome.deadline_s)
        if context.budget is not None:
            line["budget"] = pack_floats(context.budget)
        if context.members is not None:
            line["members"] = pack_bits(context.members)
        self._writer.append("decided", line)

    def played(self, played: Round) -> None:
        """Write what came back from a round."""
        feedback = played.feedback
        at_s = self._at_s + played.time_s
        self._writer.append("told", told(Told(played.number, at_s, feedback, played.time_s or None, feedback)))
        self._elapsed_s += played.time_s

    def close(self) -> None:
        """Bring the log to the disk, and let others have its folder."""
        self._writer.close()
        self._lock.release()


class Replayed:
    """Decides a simulation's log again, and learns its feedback.

    Attributes:
        num_decided: Decisions that were made again.
        num_unknown: Those that could not be: none.
        differences: Where the policy decides otherwise than the log.
    """

    def __init__(self, policy: AnyPolicy, begun: Mapping[str, Any]) -> None:
        """Begin before the first round.

        Raises:
            LogFileError: If the policy knows the network's true times, which no log has.
        """
        if policy.omniscient:
            raise LogFileError(f"{type(policy).__name__} knows the network's true times, which no log has")
        settings = begun["settings"]
        names = [field.name for field in dataclasses.fields(ProblemSpec)]
        self._policy, self._spec = policy, ProblemSpec(**{name: settings[name] for name in names})
        self._streams = Streams(settings["seed"])
        self._state = policy.init(self._spec, rng=self._streams.at("policy-init"))
        self._open: Decision | None = None
        self._members = Members()
        self.num_decided = self.num_unknown = 0
        self.differences: list[Difference] = []

    def take(self, line: Line) -> None:
        """Take a line.

        Raises:
            LogFileError: If it says what cannot be.
        """
        try:
            if line.kind == "joined":
                book_members(self._members, line.kind, line.content)
            elif line.kind == "decided":
                self._decide(line)
            elif line.kind == "told":
                self._learn(line)
        except LogFileError:
            raise
        except (FedrosterError, KeyError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise LogFileError(f"line {line.number} cannot be booked: {error}") from error

    def finish(self) -> None:
        """Do nothing: every line is booked at once."""

    def _decide(self, line: Line) -> None:
        """Decide a round again, and book the decision of the log."""
        content = line.content
        decision = read_decided(content, self._members)
        asked = decision.asked
        links = asked.links
        budget = content.get("budget")
        context = RoundContext(
            round=decision.round,
            features=asked.rows,
            available=asked.available,
            cohort_size=decision.cohort_size,
            client=None if links is None else asked.slot,
            server=None if links is None or self._spec.num_servers == 1 else links.server,
            cost=None if links is None or budget is None else links.price,
            budget=None if budget is None else unpack_floats(budget, self._spec.num_servers),
            members=unpack_bits(content["members"], decision.capacity) if "members" in content else None,
        )
        own = self._policy.select(self._state, context, rng=self._streams.at("policy", decision.round))
        differing = [] if np.array_equal(own.links, np.sort(decision.links)) else ["chosen"]
        if state_digest(self._state) != decision.state:
            differing.append("state")
        if differing:
            self.differences.append(Difference(line.number, decision.round, tuple(differing)))
        self.num_decided += 1
        self._state = self._policy.commit(self._state, context, Selection(decision.round, np.sort(decision.links)))
        self._open = decision

    def _learn(self, line: Line) -> None:
        """Learn what came back."""
        answer = read_told(line.content, self._spec.num_clients)
        decision, self._open = self._open, None
        if decision is None or decision.round != answer.round:
            raise LogFileError(f"line {line.number}: round {answer.round} is not open")
        feedback = feedback_of(answer, decision.chosen, decision.features, decision.servers)
        self._state = self._policy.update(self._state, feedback)
