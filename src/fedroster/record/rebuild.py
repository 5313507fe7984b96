"""A selector from the lines of a log: everything is booked again, with the decisions in the log.

Where contexts were kept, the policy also decides again, from the state to which the lines before have led; a decision,
or anything else that a selector would have written otherwise, is a :class:`Difference`.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.core.arrays import FloatArray
from fedroster.core.checks import shown
from fedroster.core.errors import FairnessWarning, FedrosterError, LogFileError
from fedroster.core.problem import RoundContext, Selection, check_selection
from fedroster.core.protocols import AnyPolicy
from fedroster.core.state import is_label_of
from fedroster.edge_selector import EdgeSelector
from fedroster.federation.composing import Limits
from fedroster.federation.events import Decided, Event, Joined, Left, Observers, Told
from fedroster.federation.failures import FailureRules
from fedroster.federation.learner import Learner
from fedroster.federation.rules import Rules
from fedroster.record.chain import Line
from fedroster.record.lines import (
    FORMAT,
    VERSION,
    Decision,
    decided,
    feedback_of,
    hashed,
    read_decided,
    read_ids,
    read_start,
    read_told,
    state_digest,
    told,
)
from fedroster.selector import Selector

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the log and the policy.

    Attributes:
        line: Number of the line.
        round: Its round.
        what: Names of what differs, such as ``chosen``.
    """

    line: int
    round: int
    what: tuple[str, ...]


class NotKeptError(LogFileError):
    """The log was kept without contexts or names that its decisions depend on."""


class _Following:
    """Chooses as the log says, in a learner's place; what policy and rules would have chosen is kept."""

    def __init__(self, learner: Learner, decision: Decision, *, decides: bool) -> None:
        self._learner, self._choose = learner, learner._choose
        self.told = np.sort(decision.links)
        self.own: Any = None
        self.decides = decides

    def __call__(self, context: RoundContext, limits: Limits | None) -> Selection:
        self.own = self._choose(context, limits).links if self.decides else None
        told = Selection(context.round, self.told)
        check_selection(told, context, fills_cohort=limits is None and self._learner.policy.fills_cohort)
        return told


@contextmanager
def _replaced(owner: object, name: str, value: Any) -> Iterator[None]:
    """While another function stands in the place of a method of one object."""
    vars(owner)[name] = value
    try:
        yield
    finally:
        del vars(owner)[name]


class Rebuild:
    """Takes the lines of a log, one after the other.

    Attributes:
        selector: What they have led to; None before the first.
        num_decided: Decisions that were made again.
        num_unknown: Decisions that could not be, without contexts.
        differences: Where the log differs.
        has_contexts: Whether contexts were kept when the last line was written.
    """

    def __init__(
        self,
        policy: AnyPolicy,
        folder: Path,
        *,
        selector: Selector | None = None,
        verify: bool = False,
    ) -> None:
        """Begin with nothing, or with a selector that lacks the lines.

        Args:
            policy: The policy; a log never says which code to run.
            folder: The log's folder.
            selector: A selector that goes on; None for a new one.
            verify: Whether the policy decides again, and each line is compared with what a record would write.
        """
        self._policy, self._folder, self._verify = policy, folder, verify
        self.selector = selector
        self.num_decided = self.num_unknown = 0
        self.differences: list[Difference] = []
        self.has_contexts = True
        self._held: Line | None = None
        self._booked: tuple[Line, Decision | None, _Following | None]
        self._is_other_state = self._is_free_of_contexts = False

    def take(self, line: Line) -> None:
        """Take a line; it is booked when the next one does not take it back.

        Raises:
            LogFileError: If it says what cannot be.
        """
        held, self._held = self._held, line
        if line.kind == "undone":
            self._held = None
            if held is None or line.content.get("of") != held.number:
                raise LogFileError(
                    f"line {line.number} takes back {shown(line.content.get('of'))}, not the line before"
                )
            return
        if held is not None:
            self._book(held)

    def finish(self) -> None:
        """Book the last line."""
        held, self._held = self._held, None
        if held is not None:
            self._book(held)

    def _book(self, line: Line) -> None:
        books = {
            "begun": self._begun,
            "gap": self._gap,
            "settings": self._settings,
            "joined": self._joined,
            "left": self._left,
            "decided": self._decided,
            "told": self._told,
        }
        if line.kind not in books:
            raise LogFileError(f"line {line.number} is a {shown(line.kind)}; expected one of {', '.join(books)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FairnessWarning)
                books[line.kind](line)
        except LogFileError as error:
            raise type(error)(f"line {line.number}: {error}") from error
        except (FedrosterError, KeyError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise LogFileError(f"line {line.number} cannot be booked: {shown(error, str)}") from error

    # ---------------------------------------------------------------- beginnings

    def _begun(self, line: Line) -> None:
        content = line.content
        check_begun(content)
        self.has_contexts = content.get("contexts") is True
        if not is_label_of(content.get("policy"), self._policy):
            raise LogFileError(f"the log is of {shown(content.get('policy'), str)}; expected {self._policy!r}")
        if content.get("start") is not None:
            self._start(content)
        elif self.selector is None:
            self.selector = _new(content, self._policy)
        self._settings(line)

    def _gap(self, line: Line) -> None:
        self._start(line.content)
        self._settings(line)

    def _start(self, content: Mapping[str, Any]) -> None:
        """Go on from a state that is kept beside the log."""
        start: Any = content["start"]
        read_start(self._folder, start)
        self.selector = _KINDS[start["kind"]].load(self._folder / start["file"], self._policy)
        self.selector._book.file = None

    def _settings(self, line: Line) -> None:
        follow(self.known, line.content["settings"])

    @property
    def known(self) -> Selector:
        """The selector that the lines have led to.

        Raises:
            LogFileError: If no line says which policy decides.
        """
        if self.selector is None:
            raise LogFileError("no line before it says which policy decides")
        return self.selector

    # ---------------------------------------------------------------- what happened

    def _joined(self, line: Line) -> None:
        with self._watched(line):
            self.known.join(read_ids(line.content))

    def _left(self, line: Line) -> None:
        with self._watched(line):
            self.known.leave(read_ids(line.content), forget=line.content.get("forgotten") is True)

    def _decided(self, line: Line) -> None:
        selector = self.known
        decision = read_decided(line.content, selector._members)
        if decision.round != selector.round + 1:
            raise LogFileError(f"round {decision.round} follows round {selector.round}")
        if (decision.asked.links is None) != (selector._num_servers is None):
            has = "no links" if decision.asked.links is None else "links"
            raise LogFileError(f"round {decision.round} has {has} to edge servers, other than its selector")
        if not decision.has_contexts and self._books_contexts(decision):
            raise self._needs_contexts()
        decides = decision.has_contexts and self._verify
        following = _Following(selector._learner, decision, decides=decides)
        with _replaced(selector._learner, "_choose", following), self._watched(line, decision, following):
            if decision.has_contexts:
                selector._play(decision.asked)
            else:
                self._play_without_contexts(selector, decision, decision.asked.rows)
        self.num_decided += following.decides
        self.num_unknown += not decision.has_contexts

    def _play_without_contexts(self, selector: Selector, decision: Decision, others: FloatArray) -> None:
        """Book a decision of which the cohort's contexts are known."""
        asked, guard = decision.asked, selector._guard
        row_of = np.zeros(decision.capacity, np.int64)
        row_of[asked.slot] = np.arange(asked.slot.shape[0])
        rows, told = others.copy(), others.copy()
        rows[row_of[decision.chosen]], told[row_of[decision.chosen]] = decision.features, decision.believed
        with _replaced(guard, "plausible", lambda *_: (told, rows)):
            selector._play(replace(asked, rows=rows))

    def check_state(self, decision: Decision) -> None:
        """Hold the policy's state before a decision against its digest in the log.

        Raises:
            LogFileError: If they differ because contexts were not kept.
        """
        if state_digest(self.known._learner.state) == decision.state:
            return
        if not decision.has_contexts:
            raise self._needs_contexts()
        if not self._verify and not self._is_other_state:
            self._is_other_state = True
            _log.warning("the policy's state differs from the log's, from round %d on", decision.round)

    def _needs_contexts(self) -> NotKeptError:
        return NotKeptError(
            f"{type(self._policy).__name__} learns from the contexts of all clients, which the log does not have; "
            "expected a log that a Record with contexts=True wrote"
        )

    def _books_contexts(self, decision: Decision) -> bool:
        """Whether the policy's state depends on contexts of others than the cohort; looked at once."""
        if self._is_free_of_contexts or decision.asked.slot.shape[0] <= decision.chosen.shape[0]:
            return False
        digests = set()
        for other in (0.0, 1.0, 7.25):
            selector = copy.deepcopy(self.known)
            rows = np.full(decision.asked.rows.shape, other)
            following = _Following(selector._learner, decision, decides=False)
            with _replaced(selector._learner, "_choose", following):
                self._play_without_contexts(selector, decision, rows)
            digests.add(state_digest(selector._learner.state))
        self._is_free_of_contexts = len(digests) == 1
        return not self._is_free_of_contexts

    def _told(self, line: Line) -> None:
        selector = self.known
        answer = read_told(line.content, selector._members.capacity)
        pending = selector._rounds.pending(answer.round)
        if pending is None:
            raise LogFileError(f"round {answer.round} is not open")
        stale = selector.round - answer.round
        feedback = feedback_of(answer, pending.slot, pending.features, pending.server, staleness=stale)
        if not np.isin(feedback.client, selector._rounds.waiting()[answer.round]).all():
            raise LogFileError(f"a client answers round {answer.round} twice")
        with self._watched(line):
            selector._tell(feedback, answer.round_s, answer.costs, answer.unlearned)

    @contextmanager
    def _watched(
        self, line: Line, decision: Decision | None = None, following: _Following | None = None
    ) -> Iterator[None]:
        """While a line is booked: the time is the line's, and what a record would write of it is compared with it."""
        selector, at_s = self.known, line.content.get("at_s", 0.0)
        kept = selector._observers, selector._clock
        self._booked = line, decision, following
        selector._observers, selector._clock = Observers([self]), lambda: at_s
        try:
            yield
        finally:
            selector._observers, selector._clock = kept

    def __call__(self, event: Event, selector: Selector) -> None:
        """Do nothing: the event was compared before it was booked."""

    def before(self, event: Event, selector: Selector) -> None:
        """Compare what a record would write of an event with the line that is booked."""
        line, decision, following = self._booked
        if decision is not None:
            self.check_state(decision)
        if not self._verify or (decision is not None and not decision.has_contexts):
            return
        written = content_of(event, selector, contexts=self.has_contexts, key=None)[1]
        logged = {name: value for name, value in line.content.items() if name not in _OF_THE_RECORD}
        differing = [name for name in sorted({*written, *logged}) if written.get(name) != logged.get(name)]
        if following is not None and following.own is not None and not np.array_equal(following.own, following.told):
            differing.insert(0, "chosen")
        if differing:
            number = int(line.content.get("round", selector.round))
            self.differences.append(Difference(line.number, number, tuple(dict.fromkeys(differing))))


def sign_of(selector: Selector) -> Any:
    """What differs where ``settings_of`` does, and costs less."""
    guard = selector._guard
    watched = guard.longest_s, guard.is_on, guard.longest_absence, selector._rounds.patience
    return watched, selector._failures.rules, selector.rules


def settings_of(selector: Selector) -> dict[str, Any]:
    """What a selector was made with, and may be set again while it runs."""
    settings = selector._settings()
    del settings["num_features"]
    settings["failures"] = list(astuple(selector._failures.rules))
    if selector.rules != Rules():
        settings["rules"] = selector.rules.as_table()
    return settings


def content_of(event: Event, selector: Selector, *, contexts: bool, key: bytes | None) -> tuple[str, dict[str, Any]]:
    """Kind and content of an event's line; what a decision's line says of its maker is added by the record."""
    if isinstance(event, Joined | Left):
        named = [client if key is None else hashed(key, client) for client in event.clients]
        if isinstance(event, Joined):
            return "joined", {"clients": named}
        return "left", {"clients": named, "forgotten": event.forgotten}
    if isinstance(event, Told):
        return "told", told(event)
    if not isinstance(event, Decided):
        raise TypeError(f"a {type(event).__name__} has no line")
    learner = selector._learner
    line = decided(
        event,
        contexts=contexts,
        expects=learner.expected_times_s if learner.expects_times else None,
        slots=event.asked.slot,
        owed=learner.backlog(),
        hides=key is not None,
    )
    return "decided", line | {"state": state_digest(learner.state)}


_OF_THE_RECORD = frozenset({"line", "before", "kind", "by"})
_KINDS: dict[str, type[Selector]] = {Selector._KIND: Selector, EdgeSelector._KIND: EdgeSelector}


def check_begun(content: Mapping[str, Any]) -> None:
    """Refuse a line that does not begin a log of ours."""
    if content.get("format") != FORMAT or content.get("version") != VERSION:
        raise LogFileError(
            f"it is a {shown(content.get('format'))} of version {shown(content.get('version'))}; "
            f"expected a {FORMAT} of version {VERSION}"
        )


def follow(selector: Selector, settings: Mapping[str, Any]) -> None:
    """Let a selector have the rules of a line from now on."""
    selector._rounds.follow(settings["patience_rounds"])
    selector._guard.follow(
        settings["longest_s"], is_on=settings["guarded"], longest_absence=settings["longest_absence"]
    )
    selector._failures.follow(FailureRules(*settings["failures"]), selector.round)
    rules = _rules(settings)
    if selector.rules != rules:
        selector._book.give(rules)


def _rules(settings: Mapping[str, Any]) -> Rules:
    table = settings.get("rules", {})
    if "digest" in table:
        raise NotKeptError("the rules name clients, and the log has only hashes of names; expected a log without a key")
    return Rules.from_table(table)


def _new(content: Mapping[str, Any], policy: AnyPolicy) -> Selector:
    settings: Any = dict(content["settings"])
    kind = _KINDS.get(str(content.get("of")))
    if kind is None:
        raise LogFileError(f"the log is of a {shown(content.get('of'))}; expected one of {', '.join(_KINDS)}")
    settings |= {"failures": FailureRules(*settings["failures"]), "rules": _rules(settings)}
    if "budgets" in settings:
        settings["budgets"] = dict(settings["budgets"])
    return kind(policy, num_features=content.get("num_features"), **settings)
