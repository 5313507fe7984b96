"""The rounds of a run: they choose, save, tell the selector and report, whatever engine carries the messages."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.aggregation.signatures import signatures_of
from fedroster.core.arrays import FloatArray
from fedroster.core.errors import (
    ConfigurationError,
    FedrosterError,
    FolderError,
    InvalidInputError,
    RoundNotBegunError,
)
from fedroster.core.outside import plain
from fedroster.core.problem import Status
from fedroster.core.protocols import refuse_unseen, refuse_weights, signs
from fedroster.engine.choose import Choice, Node
from fedroster.engine.contexts import ASSUMED_BANDWIDTH_BPS, ContextOptions
from fedroster.engine.edges import EdgeMap
from fedroster.engine.losses import MOST_SWAY, Sway
from fedroster.engine.outcomes import OpenRound, Outcomes
from fedroster.engine.report import RoundSink, report_of
from fedroster.engine.rules import RoundRules
from fedroster.folder.record import Record
from fedroster.record.log import Log
from fedroster.selector import EdgeCohort, Options, Selector, entered, note, noted, settings_of
from fedroster.selector.edges import EdgeSelector

_FILLINGS = 10**6
"""Patience where each answer is a round."""
_ROUND, _EDGES, _BANDWIDTH, _SETTLED, _WEIGHTS = "round", "edges", "bandwidth_bps", "settled", "weights"


class Rounds:
    """A selector, the folder that keeps it, and what is reported of each round.

    Nodes become members by themselves, and leave when they have been gone for long.  A decision is on the disk before a
    node is called; which ids its nodes had, and what the engine measured of them, are notes beside it.

    Attributes:
        selector: The selector, resumed if there was a saved one; its clients are the nodes' names.
        current: The round that was begun last; its number is 0 before the first.
        is_done: Whether training has gone on since: its aggregation is through.
        bandwidth_bps: Bandwidths that the server has measured, by the node's name, bit/s.
        is_resuming: Whether the saved round was interrupted and is not played yet.
        rules: When rounds end, and the longest time that is learned.
        log: Where rounds are logged.
    """

    def __init__(
        self,
        selector: Selector,
        *,
        rules: RoundRules,
        contexts: ContextOptions | None = None,
        edge_rules: EdgeMap | None = None,
        state_dir: str | Path | None = None,
        log: logging.Logger,
        weighs: bool = False,
        tells_signatures: bool = False,
        is_in_places: bool = False,
    ) -> None:
        """Begin, or go on with what is saved.

        Args:
            selector: Chooses; its clients are the nodes' names.  Sinks among its observers take a report of each, and
                if there is a :class:`~fedroster.Record`, the run is kept in its folder.
            rules: When rounds end, and the longest time that is learned.
            contexts: What the policy sees of nodes; None for the defaults.
            edge_rules: Which edge servers reach a node, and its price; None for what nodes report.
            state_dir: Folder in which the run is kept, without contexts of nodes, and from which it is resumed; None
                for that of the selector's record, or nowhere.
            log: Where rounds are logged.
            weighs: Whether the adapter applies the weights that a policy gives the updates of its cohort.
            tells_signatures: Whether the adapter tells a policy that learns from them the signatures of updates.
            is_in_places: Whether free places are filled: then a round is a filling, and the adapter gives clients up.

        Raises:
            ConfigurationError: If the run has another cohort size, number of features or budgets, or two folders; or
                the policy weighs updates, and the adapter does not, or needs to know of them what that does not tell.
            InUseError: If another process holds ``state_dir``.
            LogFileError: If it is damaged or belongs to another policy.
        """
        refuse_unseen(selector.policy, tells_signatures=tells_signatures)
        if not weighs:
            refuse_weights(selector.policy, "this engine, as it is set up here, averages updates by its own weights")
        self.rules = rules
        self.log = log
        self._sinks = [each for each in selector.observers if isinstance(each, RoundSink)]
        for sink in self._sinks:
            sink.behind_engine = True
        self._paused: Mapping[str, int] = {}
        record = next((each for each in selector.observers if isinstance(each, Record)), None)
        if record is not None and state_dir is not None and Path(state_dir).resolve() != record.folder.resolve():
            raise ConfigurationError(
                f"state_dir is {str(state_dir)!r}, and the selector's Record keeps the run in {str(record.folder)!r}; "
                "expected one of the two"
            )
        if record is None and state_dir is not None:
            record = Record(state_dir, contexts=False)
        settings = settings_of(selector)
        changed = {name: getattr(settings, name) for name in Options.__annotations__}
        if is_in_places:
            changed["patience_rounds"] = max(selector.patience_rounds, _FILLINGS)
        resumed = selector
        if record is not None:
            try:
                resumed = entered(selector, record, changed)
            except BaseException:
                record.close()
                raise
        self._record = record
        if resumed is not selector:
            log.info("resumed after round %d with %d members", resumed.round, len(resumed.clients))
        self.current = _last_round(resumed)
        self.is_done = noted(resumed, _SETTLED)[0] == resumed.round
        self.bandwidth_bps = {str(name): bps for name, bps in noted(resumed, _BANDWIDTH)[1].items()}
        self._known_bps = dict(self.bandwidth_bps)
        self._sway, self._swayed = Sway(), False
        self._capped = sum(resumed.participation("capped").values())
        self.is_resuming = not self.is_done
        # What the operator says now goes before what was saved.
        resumed.longest_s = rules.cap_s(selector.longest_s)
        resumed.patience_rounds = changed["patience_rounds"]
        self.selector = resumed
        self._contexts = contexts or ContextOptions()
        self._edge_rules = edge_rules or EdgeMap()
        self._is_in_places = is_in_places
        self._absent_rounds = rules.absent_rounds * (resumed.cohort_size if is_in_places else 1)
        self._last_seen: dict[str, int] = {}
        self._twins: set[str] = set()  # names that were refused
        if weighs and record and self.current.clients and noted(resumed, _ROUND)[0] < resumed.round:
            kept = Log(record.folder)  # a kill came between the decision and its notes
            for decided in kept.rounds[-1:]:
                if decided.round == resumed.round:  # else the folder begins later
                    names = map(str, resumed.ids_of(decided.chosen))
                    self.current = replace(self.current, weights=self._weights([*names], decided.weights_by_client))
                    self._note()

    def _weights(self, clients: Sequence[str], weights: Sequence[float] | None) -> dict[str, float] | None:
        """What each update counts, by name: in places, for as many as are filled together."""
        num = len(clients) if self._is_in_places else 1
        return None if weights is None else {name: num * each for name, each in zip(clients, weights, strict=True)}

    @property
    def folder(self) -> Path | None:
        """Where the run is kept; None for nowhere."""
        return None if self._record is None else self._record.folder

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raise a :class:`~fedroster.errors.FolderError` where the folder cannot be written; other errors pass."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FedrosterError) or self.folder is None:
                raise
            if not str(error.filename or "").startswith((str(self.folder), str(self.folder.resolve()))):
                raise
            raise FolderError(
                f"round {self.selector.round}: {str(self.folder)!r} cannot be written ({error.strerror}): the run "
                "ends, and nothing that it acknowledged is lost; make room and start it again"
            ) from error

    def release(self) -> None:
        """Release the folder for another process, before this one ends."""
        if self._record is not None:
            self._record.close()

    def choose(
        self,
        nodes: Sequence[Node],
        model_bit: float,
        *,
        is_last: bool = True,
        at_most: int | None = None,
        at_work: Collection[str] = (),
    ) -> Choice:
        """Choose a cohort; it is on the disk when this returns.

        Args:
            nodes: Nodes that can be chosen, each with a name of its own.
            model_bit: Size of the model, bit.
            is_last: Whether a round that cannot begin is booked as an empty one; else nothing has happened then.
            at_most: Fill so many free places; None for a whole round.
            at_work: Clients that work for other places: they are not absent.

        Raises:
            RoundNotBegunError: If the selector's rules leave none of the nodes, or fewer than a least number.
        """
        nodes = self._let_in(nodes)
        self._let_go({node.name for node in nodes} | set(at_work))
        names = [node.name for node in nodes]
        strangers = [node.name for node in nodes if not node.registered]
        excluded = ""
        if names and not self.selector.allowed(clients=names, not_registered=strangers):
            number = self.selector.round + 1
            excluded = f"round {number} is not begun: the rules exclude all {len(names)} clients that are there"
            if not is_last:
                raise RoundNotBegunError(excluded)
        contexts = [node.context for node in nodes]
        # A node that was never measured is like the others, whose bandwidths have the start of a process in them, too.
        measured = [self.bandwidth_bps[name] for name in names if name in self.bandwidth_bps]
        assumed_bps = float(np.median(measured)) if measured else ASSUMED_BANDWIDTH_BPS
        cold = self.selector.cold()
        known_bps = [each.bandwidth_bps or self.bandwidth_bps.get(each.name, assumed_bps) for each in contexts]
        features = self._contexts.features(
            contexts,
            bandwidth_bps=np.array(known_bps),
            cold=np.array([cold[name] for name in names], np.bool_),
            model_bit=model_bit,
        )
        named: dict[str, Any] = {"clients": names, "not_registered": strangers, "at_most": at_most}
        if isinstance(self.selector, EdgeSelector):
            named["servers"] = [self._edge_rules.edges_of(node.context) for node in nodes]
            named["prices"] = np.array([self._edge_rules.price_of(context) for context in contexts])
        if not is_last and self.selector.rules.has_least:
            decided = self.selector.decide(features, **named)
            if decided.not_begun:
                raise RoundNotBegunError(decided.not_begun)
        cohort = self.selector.select(features, **named)
        if excluded:
            raise RoundNotBegunError(excluded)
        clients = tuple(map(str, cohort.clients))
        edges = dict(zip(clients, cohort.servers, strict=True)) if isinstance(cohort, EdgeCohort) else {}
        row_of = {name: row for row, name in enumerate(names)}
        chosen = features[[row_of[name] for name in clients]]
        expected_s = [*self.selector.expected_times_s(chosen, clients=clients).values()] or [math.nan]
        longest_s = self.selector.longest_s  # nothing longer is ever learned
        most_s = longest_s if isinstance(longest_s, float) else math.inf
        ids = {name: nodes[row_of[name]].node_id for name in clients}
        predicted_s = min(float(np.max(expected_s)), most_s)
        self.current = Choice(cohort.round, ids, edges, predicted_s, weights=self._weights(clients, cohort.weights))
        self.is_done = False
        self._note()
        return self.current

    def signature(self, sent: Mapping[str, Any], returned: Mapping[str, Any]) -> FloatArray | None:
        """Signature of a client's update, shape (s,), of its arrays of floats; None if it lacks one of those sent.

        Raises:
            ConfigurationError: If the policy wants that of a bias which the model does not have.
        """
        wanted = signs(self.selector.policy)
        before = {name: array for name, array in sent.items() if array.dtype.kind == "f"}
        shapes = {name: np.shape(array) for name, array in returned.items()}
        if wanted is None or any(shapes.get(name) != array.shape for name, array in before.items()):
            return None
        models = {name: returned[name][None] for name in before}
        found: FloatArray = signatures_of(models, before, wanted, seed=settings_of(self.selector).seed)[0]
        return found

    def _note(self) -> None:
        """Keep the ids of the round's nodes."""
        if self._record is None:
            return
        if self.current.weights is not None:  # in places, also those of earlier fillings, which go on
            note(self.selector, _WEIGHTS, self.current.weights, of_all=not self._is_in_places)
        if isinstance(self.selector, EdgeSelector):
            labels = [*self.selector.budgets]
            note(self.selector, _EDGES, {name: labels.index(edge) for name, edge in self.current.edges.items()})
        note(self.selector, _ROUND, self.current.clients)  # last: it says that the others are there

    def _note_measured(self) -> None:
        """Keep the bandwidths of members that were measured since."""
        members = set(self.selector.clients)
        known = self._known_bps
        fresh = {name: bps for name, bps in self.bandwidth_bps.items() if name in members and known.get(name) != bps}
        if self._record is not None and fresh:
            known |= fresh
            note(self.selector, _BANDWIDTH, fresh, of_all=False)

    def _let_in(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes that are members now; one whose name reads as that of another client stays out."""
        members = set(self.selector.clients)
        fresh = [node.name for node in nodes if node.name not in members]
        twins = set()
        try:
            if fresh:
                self.selector.join(fresh)
        except InvalidInputError:
            for name in fresh:
                try:
                    self.selector.join([name])
                except InvalidInputError as error:
                    twins.add(name)
                    if name not in self._twins:
                        self.log.warning("a node stays out: %s", error)
            self._twins |= twins
        return [node for node in nodes if node.name not in twins]

    def _let_go(self, names: Collection[str]) -> None:
        """Let members go that have been absent for long, given who is there."""
        round_, absent_rounds = self.selector.round, self._absent_rounds
        self._last_seen |= dict.fromkeys(names, round_)
        seen = ((name, self._last_seen.setdefault(str(name), round_)) for name in self.selector.clients)
        gone = [name for name, last in seen if round_ - last >= absent_rounds]  # in the order of members
        if gone:
            self.log.info("%d members have been absent for %d rounds and leave", len(gone), absent_rounds)
            self.selector.leave(gone)

    def may_evaluate(self, nodes: Sequence[Node]) -> set[str]:
        """Names of the nodes that the selector's rules let evaluate; none if they are fewer than the least cohort."""
        strangers = [node.name for node in nodes if not node.registered]
        names = self.selector.allowed("evaluation", clients=[node.name for node in nodes], not_registered=strangers)
        return set(map(str, names)) if len(names) >= self.selector.rules.least_cohort else set()

    def alias(self, name: str) -> str:
        """What stands for a node's name before it is said: a hash where the record has a key, else the name itself."""
        return name if self._record is None else str(self._record.alias(name))

    def meet(self, nodes: Sequence[Node]) -> None:
        """Let in nodes with which rounds go on, if their names are hashes until they are said."""
        if self.alias(""):
            self._let_in(nodes)
            self.current = _last_round(self.selector)

    def go_on(self, here: Sequence[Node]) -> Choice | None:
        """Go on with the round that was begun before a restart, so that no node is counted twice.

        Those of its nodes that are not ``here`` have dropped out.  Returns the others' round; None if none is here.
        """
        self.is_resuming = False
        cohort = self.current.clients
        self.log.info("round %d goes on with %d of %d nodes", self.current.round, len(here), len(cohort))
        there = {node.name: node.node_id for node in here}
        self.miss(self.current.round, cohort.keys() - there)
        clients = {name: there[name] for name in cohort if name in there}  # a site that is gone cannot be called
        self.current = replace(self.current, clients=clients, is_resumed=True)
        if not here:
            return None
        self._note()
        return self.current

    def miss(self, number: int, lost: Collection[str]) -> None:
        """Book that clients of a round are not there any more after a restart."""
        if lost:
            round_s = min(self.rules.of(number).deadline_s, self.rules.waits_s(is_first=True) or 1.0, 60.0)
            Outcomes(dict.fromkeys(lost, Status.DROPPED)).tell(self.selector, number, round_s)
            self.log.warning("gone since round %d was interrupted: %s", number, plain(", ".join(sorted(lost))))

    def awaited(self) -> dict[str, Choice]:
        """What was decided on each client that has not answered; its id is 0 where it is not known."""
        ids = self.current.clients
        noted_in, known = noted(self.selector, _WEIGHTS)
        weights = {str(name): weight for name, weight in known.items()}
        found: dict[str, Choice] = {}
        for number, names in self.selector.open_rounds().items():
            for name in map(str, names):
                weight = {name: weights[name]} if number <= noted_in and name in weights else None
                found[name] = Choice(number, {name: ids.get(name, 0)}, weights=weight, is_resumed=True)
        return found

    def end(self, round_: OpenRound) -> None:
        """End a round: tell the selector, whose record keeps it, and report."""
        round_.outcomes.tell(self.selector, round_.choice.round, round_.round_s)
        self._note_measured()
        losses = [told["losses"] for told in round_.outcomes.told.values() if "losses" in told]
        report = report_of(self.selector, round_, capped_before=self._capped, sway=self._sway.add(losses))
        self._capped = int(report.capped.sum())
        for level, line in report.lines(self._paused):
            self.log.log(level, line)
        if report.sway > MOST_SWAY and not self._swayed:
            self._swayed = True
            self.log.warning(
                "round %d: the policy brings clients together whose data are alike, and the model sways from cohort to "
                "cohort; expected an update memory (docs/explanation/sooner.md)",
                report.round,
            )
        self._paused = report.paused
        for sink in self._sinks:
            try:
                sink(report)
            except Exception:  # training goes on without its dashboards
                self.log.exception("a sink failed in round %d", report.round)

    def settle(self, *, save: bool = True) -> None:
        """Book that training has continued: the last round's replies are done with.

        It is on the disk when this returns, or without ``save`` with the next decision.
        """
        if not self.is_done and not self.is_resuming:
            self.is_done = True
            if self._record is not None:
                note(self.selector, _SETTLED, {}, is_synced=save)


def _last_round(selector: Selector) -> Choice:
    """The round that an engine began last; where it was killed before it noted more, only who has not answered."""
    number = selector.round

    def known(what: str) -> dict[str, float] | None:
        noted_in, numbers = noted(selector, what)
        return {str(name): value for name, value in numbers.items()} if noted_in == number else None

    ids = known(_ROUND)
    if ids is None:
        ids = dict.fromkeys(map(str, selector.open_rounds().get(number, ())), 0)
    labels = [*selector.budgets] if isinstance(selector, EdgeSelector) else []
    edges = {name: labels[int(at)] for name, at in (known(_EDGES) or {}).items()}
    return Choice(
        number,
        {name: int(node_id) for name, node_id in ids.items()},
        edges,
        weights=known(_WEIGHTS),
    )


def warn_of_untested(
    engine: str,
    package: str,
    tested: tuple[int, ...],
    log: logging.Logger,
) -> None:
    """Say that an engine's package is newer than the major and minor version that was tested."""
    version = metadata.version(package)
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if found > tested:
        log.warning(
            "%s is %s, and fedroster's adapter was tested up to %s", engine, version, ".".join(map(str, tested))
        )
