"""What is kept of a selector, in files and in the folder of a record, and how it goes on from there."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple
from typing import Any, ClassVar, Self, TypedDict, TypeVar, Unpack

from fedroster.core.checks import path_of
from fedroster.core.errors import ConfigurationError, FedrosterError, LogFileError, StateFileError
from fedroster.core.ids import ClientId
from fedroster.core.protocols import AnyPolicy, commits, draws
from fedroster.core.sources import code_of
from fedroster.core.state import as_labelled, is_label_of, save_arrays
from fedroster.folder.events import Began, Joined, Noted, NotKeptError, Observer, Observers, Snapshot
from fedroster.folder.record import Record
from fedroster.rules.rulebook import checked_rules
from fedroster.rules.rules import Rules
from fedroster.selector.booking import Books
from fedroster.selector.calls import Calls
from fedroster.selector.failures import FailureRules, checked_failures
from fedroster.selector.files import Book, SavedFiles, distinct, opened, packed
from fedroster.selector.guard import LongestTime

S = TypeVar("S", bound="Kept")

_log = logging.getLogger(__name__)


class Options(TypedDict, total=False):
    """What may be other after a restart than before: see :class:`Selector`."""

    patience_rounds: int
    longest_s: LongestTime
    guarded: bool
    longest_absence: int | None
    failures: FailureRules | None
    rules: Rules | None


class Beginnings(Options, total=False):
    """What a federation may begin with beside policy and cohort size: see :class:`Selector`."""

    num_features: int | None
    seed: int
    clients: Iterable[ClientId]
    clock: Callable[[], float]
    observers: Iterable[Observer]


class Kept(Books):
    """The methods that keep a selector, and that make one of what was kept."""

    _KIND: ClassVar[str] = "selector"
    _SETTINGS: ClassVar[tuple[str, ...]] = ("cohort_size", "num_features", "seed", "patience_rounds", "longest_s")
    _GUARDS: ClassVar[dict[str, Any]] = {"guarded": False, "longest_absence": None}  # of files of 0.1.0
    _num_servers: int | None = None
    _calls: Calls
    _clock: Callable[[], float]
    _files: SavedFiles

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Save everything that :meth:`load` needs, atomically and without pickles.

        Args:
            path: File to create, or one that this selector was loaded from or has saved.
            replace: Whether to replace any other file, too.

        Raises:
            InUseError: If another selector has written the file since this one loaded or saved it.
            OSError: If it cannot be written; the old file stays as it was.
        """
        path = path_of(path)
        with self._calls, self._files.replacing(path, replace=replace):
            header, arrays = self._snapshot()
            save_arrays(path, arrays, header, kind=self._KIND, private=True)

    @property
    def _books(self) -> tuple[Book, ...]:
        return self._learner, self._members, self._rounds, self._failures, self._guard, self._book, self._notes

    def _settings(self) -> dict[str, Any]:
        """What the selector was made with, as far as a log says it."""
        settings = {name: value for name, value in self._options.items() if name not in ("failures", "rules")}
        rules = {} if self._book.is_empty else {"rules": self._book.rules.as_table()}
        return {
            "cohort_size": self._learner.spec.cohort_size,
            "seed": int(self._learner.streams.seed),
            **settings,
            "failures": list(astuple(self._failures.rules)),
            **rules,
        }

    def _header(self) -> dict[str, Any]:
        """What the constructor is given, for a file's header, and where an observer's own file is."""
        placed = self._observers.placed
        place = {} if placed is None or placed.place is None else {"place": placed.place}
        settings = {name: value for name, value in self._settings().items() if name not in ("failures", "rules")}
        return settings | {"num_features": self.num_features} | place

    def _snapshot(self) -> Snapshot:
        return packed(self._header(), self._books)

    def _catch_up(self, place: Any, asked: Rules, *, is_all: bool) -> None:
        """Book what a sink has kept after a place; ``is_all`` if it is an error that something cannot be booked.

        A last decision that cannot be booked, because contexts are not kept, was not acknowledged: it is taken back.
        """
        if (placed := self._observers.placed) is None:
            return
        booked = 0
        try:
            for event in placed.missing(place, self._members, lambda: [self._book.rules.as_table(), asked.as_table()]):
                self.apply(event)
                booked += 1
        except FedrosterError as error:
            if not isinstance(error, NotKeptError) or not placed.take_back():
                if is_all:
                    raise
                _log.exception("the log cannot be booked after %d events", booked)
        if booked:
            _log.info("%d events of the log were not in the selector's file; they are booked", booked)

    def _began(self, place: Any, *, is_new: bool = False, **changed: Any) -> Began:
        """The event of a beginning, from a sink's place and under other settings."""
        code = code_of(type(self._learner.policy)) if self._observers.keep else {}
        return Began(
            round=self.round,
            kind=self._KIND,
            policy=repr(self._learner.policy),
            settings=self._settings() | changed,
            num_features=self.num_features,
            draws=draws(self._learner.policy),
            code=code,
            place=place,
            is_new=is_new,
            reads_all=commits(self._learner.policy) == "all",
            snapshot=self._snapshot,
        )

    @property
    def _options(self) -> Options:
        """What :meth:`load` takes to go on as this selector does."""
        return Options(
            patience_rounds=self._rounds.patience,
            longest_s=self._guard.longest_s,
            guarded=self._guard.is_on,
            longest_absence=self._guard.longest_absence,
            failures=self._failures.rules,
            rules=self._book.rules,
        )

    def _warn(self, *, is_quiet: bool = False) -> None:
        """Warn of what the rules in force make impossible."""
        self._book.warn(self._beta, self._members, self._members.availability(), is_quiet=is_quiet)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        policy: AnyPolicy,
        *,
        clock: Callable[[], float] = time.time,
        observers: Iterable[Observer] = (),
        catch_up: bool = True,
        **options: Unpack[Options],
    ) -> Self:
        """Continue where :meth:`save` stopped: the next decisions equal those of a run without interruption.

        Args:
            path: The file.
            policy: The same policy; a file never says which code to run.
            clock: As for the constructor.
            observers: As for the constructor.
            catch_up: Whether what the log of a :class:`~fedroster.Record` has and the file lacks, because a process was
                killed between the two, is booked; else the log goes on from the file.
            **options: Any of ``patience_rounds``, ``longest_s``, ``guarded``, ``longest_absence``, ``failures`` and
                ``rules`` that hold from now on.  The others, sizes, budgets and seed are those of the file.

        Raises:
            ConfigurationError: If an option is out of its range.
            FileNotFoundError: If there is no such file.
            StateFileError: If the file is damaged, foreign, or belongs to another policy.
        """
        if unknown := options.keys() - Options.__annotations__.keys():
            known = ", ".join(Options.__annotations__)
            raise ConfigurationError(f"{min(unknown)} is no option; expected some of {known}")
        path = path_of(path)
        files = SavedFiles()
        files.has_read(path)  # before its content: if another writer comes between, the next save notices
        selector, place = cls._read(path, policy, clock)
        selector._files = files
        return selector._go_on(observers, place, options, catch_up=catch_up)

    def _go_on(
        self, observers: Iterable[Observer], place: Any, options: Options | None = None, *, catch_up: bool = False
    ) -> Self:
        """Go on as :func:`go_on` says; ``catch_up`` if what the sink has kept since is booked."""
        self._observers = Observers(observers)
        changed: dict[str, Any] = {} if options is None else {**options}
        is_ruled = "rules" in changed
        if catch_up:
            self._catch_up(place, checked_rules(changed.get("rules")), is_all=False)
        if is_ruled:
            changed["rules"] = checked_rules(changed["rules"]).as_table()
        if "failures" in changed:
            changed["failures"] = list(astuple(checked_failures(changed["failures"])))
        self._commit(self._began(place, **changed))
        self._warn(is_quiet=not is_ruled)
        return self

    @classmethod
    def _read(
        cls, path: str | os.PathLike[str], policy: AnyPolicy, clock: Callable[[], float], **read: Any
    ) -> tuple[Self, Any]:
        """The selector of a file, without observers, and where the sink among them was."""
        with opened(path, policy, kind=cls._KIND, **read) as (policy, header, arrays):
            saved = {name: header[name] for name in cls._SETTINGS}
            if "budgets" in saved:
                saved["budgets"] = distinct(saved["budgets"])
            guards = {name: header.get(name, value) for name, value in cls._GUARDS.items()}
            made: Any = cls
            selector: Self = made(policy, **saved, **guards, clock=clock)
            for book in selector._books:
                book.unpack(header, arrays)
            selector._learner.rehearse(selector._rounds.imagined())
        return selector, header.get("place")


def beginnings_of(event: Began) -> dict[str, Any]:
    """What a selector was made with, as its constructor takes it."""
    settings: dict[str, Any] = {**event.settings, "num_features": event.num_features}
    settings["failures"] = FailureRules(*settings["failures"])
    settings["rules"] = Rules.from_table(settings.get("rules", {}))
    if "budgets" in settings:
        settings["budgets"] = distinct(settings["budgets"])
    return settings


def note(
    selector: Kept, name: str, numbers: Mapping[Any, float], *, of_all: bool = True, is_synced: bool = False
) -> None:
    """Keep a number of some clients beside a selector; see :class:`~fedroster.folder.events.Noted`."""
    with selector._calls:
        slots = (int(slot) for slot in selector._members.known_slots(numbers))
        selector._commit(Noted(name, dict(zip(slots, numbers.values(), strict=True)), of_all, is_synced))


def noted(selector: Kept, name: str) -> tuple[int, dict[ClientId, float]]:
    """The round in which :func:`note` was called last, and the numbers by client; 0 and none if it never was."""
    round, by_slot = selector._notes.of(name)
    ids: list[Any] = selector._members.ids
    return round, {ids[slot]: value for slot, value in by_slot.items()}


def entered(fresh: S, record: Record, options: Options | None = None) -> S:
    """The selector of a record's folder: a new one begins there, or the one goes on that was left there.

    Args:
        fresh: A new selector, which has the record among its observers or gets it.
        record: Its record.
        options: What holds from now on if one goes on; None for all options of the new one.

    Raises:
        ConfigurationError: If the folder's run has another cohort size, number of features or budgets.
        LogFileError: If the log is damaged, or of another policy or kind.
    """
    observers = tuple(fresh._observers)
    if record not in observers:
        observers = record, *observers
    if record.place is None:
        if record not in fresh._observers:
            _begin_in(fresh, record, observers)
        return fresh
    began = record.beginning(fresh._book.rules.as_table())
    expected = f"expected {fresh._learner.policy!r}, a {fresh._KIND}"
    wrong = f"the log is of {began.policy}, a {began.kind}; {expected}"
    if began.kind != fresh._KIND:
        raise LogFileError(wrong)
    state, place = record.newest(fresh._KIND)
    try:
        if state is None:
            policy = as_labelled(began.policy, fresh._learner.policy)
            made: Any = type(fresh)
            selector: S = made(policy, clock=fresh._clock, **beginnings_of(began))
        else:
            selector, _ = fresh._read(state, fresh._learner.policy, fresh._clock, any_parameters=True)
    except StateFileError as error:
        raise LogFileError(f"{wrong} ({error})") from error
    selector._observers = Observers(observers)
    selector._catch_up(place, fresh._book.rules, is_all=True)
    if not is_label_of(repr(selector._learner.policy), fresh._learner.policy):
        raise LogFileError(
            f"the log is of {selector._learner.policy!r}; expected {fresh._learner.policy!r}: begin with the policy "
            "that it has, and set the selector's policy"
        )
    for name in ("budgets", "cohort_size", "num_features"):
        now, before = getattr(fresh, name, None), getattr(selector, name, None)
        if now is not None and now != before:
            raise ConfigurationError(f"{name} is {now}, and the folder's run has {before}; expected the same")
    return go_on(selector, observers, place, options_of(fresh) if options is None else options)


def _begin_in(fresh: Kept, record: Record, observers: tuple[Observer, ...]) -> None:
    """Let a selector begin in an empty folder; clients that joined at once are in the log, too."""
    fresh._observers = Observers(observers)
    members = fresh._members
    is_simple = not fresh.round and len(members.clients) == len(members.ids) == (members.capacity if members.ids else 0)
    record.before(fresh._began(None, is_new=is_simple), fresh)
    if is_simple and members.ids:
        record.before(joined := Joined(fresh._members.clients), fresh)
        record(joined, fresh)


def trust_of(selector: Kept) -> dict[ClientId, float]:
    """How much the contexts of each member count, in [0, 1]."""
    trust = selector._guard.trust(selector._members.slots())
    return dict(zip(selector.clients, trust.tolist(), strict=True))


def options_of(selector: Kept) -> Options:
    """What :meth:`Selector.load` takes to go on as a selector does."""
    return selector._options


def state_of(selector: Kept) -> Snapshot:
    """Header and arrays of a selector's whole state."""
    return selector._snapshot()


def go_on(selector: S, observers: Iterable[Observer], place: Any, options: Options | None = None) -> S:
    """Let a selector that was read go on under observers, from a sink's place; the options hold from now on."""
    return selector._go_on(observers, place, options)
