"""What is kept of a selector, in files and in the folder of a record, and how it goes on from there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypedDict, TypeVar, Unpack

from msgspec import to_builtins
from msgspec.structs import replace as replaced

from fedroster.core.checks import check_flag, check_integer, check_number, path_of, shown
from fedroster.core.errors import ConfigurationError, FolderError, LogFileError, StateFileError
from fedroster.core.ids import ClientId
from fedroster.core.protocols import AnyPolicy, commits, draws
from fedroster.core.sources import code_of
from fedroster.core.state import as_labelled, is_label_of, load_arrays, save_arrays
from fedroster.folder.events import BegunLine, Joined, NotKeptError, Observer, Snapshot
from fedroster.folder.record import Observers, Record
from fedroster.folder.settings import RulesSaid, Settings
from fedroster.rules.rulebook import checked_rules
from fedroster.rules.rules import Rules
from fedroster.selector.booking import Booking
from fedroster.selector.files import SavedFiles
from fedroster.selector.guard import FailureRules, LongestTime
from fedroster.version import __version__

S = TypeVar("S", bound="Kept")


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


class Kept(Booking):
    """The methods that keep a selector, and that make one of what was kept."""

    _KIND: ClassVar[Literal["selector", "edge-selector"]] = "selector"
    _budgets: list[tuple[str, float]] | None = None  # of edge servers
    _clock: Callable[[], float]
    _files: SavedFiles

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Save everything that :meth:`load` needs, atomically and without pickles.

        Args:
            path: File to create, or one that this selector was loaded from or has saved.
            replace: Whether to replace any other file, too.

        Raises:
            InUseError: If another selector has written the file since this one loaded or saved it.
            FolderError: If its folder does not exist.
            OSError: If it cannot be written; the old file stays as it was.
        """
        path = path_of(path)
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FolderError(f"{path!r} cannot be saved: there is no folder {str(folder)!r}; make it first")
        with self._calls, self._files.replacing(path, replace=replace):
            header, arrays = state_of(self)
            save_arrays(path, arrays, header, kind=self._KIND, private=True)

    @property
    def _books(self) -> tuple[Any, ...]:  # each has pack(), which gives entries of a header and arrays, and unpack()
        return self._learner, self._members, self._rounds, self._guard, self._book, self._notes

    def _begin(self, place: Any, *, is_new: bool = False, tells: bool = True, **changed: Any) -> None:
        """Begin, or go on from a record's place under other settings; the record alone is told unless it ``tells``."""
        policy, record = self._learner.policy, self._observers.record
        began = BegunLine(
            of=self._KIND,
            fedroster=__version__,
            code="",  # the record knows it
            policy=repr(policy),
            settings=replaced(self._settings, **changed),
            num_features=self.num_features,
            draws=draws(policy),
            round=self.round,
        )

        def keep() -> None:
            if record is not None:
                reads_all, code = commits(policy) == "all", code_of(type(policy))
                record.begin(
                    began, place, partial(state_of, self), is_new=is_new, reads_all=reads_all, policy_code=code
                )

        self._booked(began, keep)
        if tells:
            self._observers.after(began, self)

    def _unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any], settings: Settings) -> None:
        """Take over what was kept."""
        for book in self._books:
            book.unpack(header, arrays)
        self._follow(settings)
        self._learner.rehearse(self._rounds.imagined())

    def _warn(self) -> None:
        """Warn of what the rules in force make impossible."""
        self._book.warn(self._beta, self._members, self._members.availability())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        policy: AnyPolicy,
        *,
        clock: Callable[[], float] = time.time,
        observers: Iterable[Observer] = (),
        **options: Unpack[Options],
    ) -> Self:
        """Continue where :meth:`save` stopped: the next decisions equal those of a run without interruption.

        Args:
            path: The file.
            policy: The same policy; a file never says which code to run.
            clock: As for the constructor.
            observers: As for the constructor.  What the log of a :class:`~fedroster.Record` among them has and the file
                lacks, because a process was killed between the two, is booked.
            **options: Any of ``patience_rounds``, ``longest_s``, ``guarded``, ``longest_absence``, ``failures`` and
                ``rules`` that hold from now on.  The others, sizes, budgets and seed are those of the file.

        Raises:
            ConfigurationError: If an option is out of its range.
            FileNotFoundError: If there is no such file.
            LogFileError: If what the log has and the file lacks cannot be booked.
            StateFileError: If the file is damaged, foreign, or belongs to another policy.
        """
        changed = said(options)
        path = path_of(path)
        files = SavedFiles()
        files.has_read(path)  # before its content: if another writer comes between, the next save notices
        arrays, header = load_arrays(path, kind=cls._KIND)
        try:
            selector = in_state(cls, (header, arrays), policy, clock)
        except StateFileError as error:
            raise StateFileError(f"{path!r}: {error}") from error
        selector._files, selector._observers = files, Observers(observers)
        _catch_up(selector, header.get("place"), changed.get("rules", RulesSaid()))
        return go_on(selector, selector._observers, header.get("place"), changed)


def state_of(selector: Kept) -> Snapshot:
    """Header and arrays of a selector's whole state."""
    record = selector._observers.record
    place = {} if record is None or record.place is None else {"place": record.place}
    settings, num_features = to_builtins(selector._settings), selector.num_features
    header: dict[str, Any] = {"settings": settings, "num_features": num_features} | place
    arrays: dict[str, Any] = {}
    for book in selector._books:
        more, values = book.pack()
        header, arrays = header | more, arrays | values
    return header, arrays


def in_state(
    kind: type[S],
    state: Snapshot,
    policy: AnyPolicy,
    clock: Callable[[], float] = time.time,
    *,
    any_parameters: bool = False,
) -> S:
    """The selector of a class in a state, without observers; the state may give the policy ``any_parameters``.

    Raises:
        StateFileError: If the state is damaged, foreign, or belongs to another policy.
    """
    header, arrays = state
    label = header.get("policy")
    if not any_parameters and not is_label_of(label, policy):
        raise StateFileError(
            f"it belongs to {label}; expected {policy!r}, the same policy with the same parameters: load it with "
            "those that it has, and set the selector's policy"
        )
    try:
        settings = Settings.read(header)
        begun = made_with(replaced(settings, rules=RulesSaid()), header["num_features"])
        made: Any = kind
        selector: S = made(as_labelled(str(label), policy), **begun, clock=clock)
        selector._unpack(header, arrays, settings)
    except StateFileError:
        raise
    except (KeyError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise StateFileError(f"it is no {kind._KIND} ({shown(error)})") from error
    return selector


def made_with(settings: Settings, num_features: int | None) -> dict[str, Any]:
    """Settings, and the length of contexts, as a selector's constructor takes them."""
    made = {name: getattr(settings, name) for name in ("cohort_size", "seed", *Options.__annotations__)}
    made |= {"failures": FailureRules(*settings.failures), "rules": Rules.from_table(settings.rules.table)}
    if settings.budgets is not None:
        made["budgets"] = dict(settings.budgets)
        if len(made["budgets"]) < len(settings.budgets):
            raise StateFileError(f"budgets are {shown(settings.budgets)}; expected each server once")
    return made | {"num_features": num_features}


def said(options: Options) -> dict[str, Any]:
    """Options as settings have them.

    Raises:
        ConfigurationError: If one is out of its range, or there is no such option.
    """
    if unknown := options.keys() - Options.__annotations__.keys():
        known = ", ".join(Options.__annotations__)
        raise ConfigurationError(f"{min(unknown)} is no option; expected some of {known}")
    checked: dict[str, Any] = {}
    value: Any
    for name, value in options.items():
        if name == "rules":
            value = checked_rules(value).as_table()
        elif name == "failures":
            rules = FailureRules() if value is None else value
            if not isinstance(rules, FailureRules):
                raise ConfigurationError(f"failures are {shown(rules)}; expected a fedroster.FailureRules")
            value = bool(rules.learned), int(rules.pause_after), int(rules.longest_pause)
        elif name == "guarded":
            check_flag(name, value)
            value = bool(value)
        elif name == "patience_rounds" or (name == "longest_absence" and value is not None):
            check_integer(name, value, least=1)
            value = int(value)
        elif value is not None and not (isinstance(value, str) and value == "auto"):
            check_number(name, value, above=0.0)
            value = float(value)
        checked[name] = value
    try:
        settings = Settings.read({"settings": {"cohort_size": 1, "seed": 0} | checked})
    except StateFileError as error:
        raise ConfigurationError(str(error)) from error
    return {name: getattr(settings, name) for name in checked}


def entered(fresh: S, record: Record, changed: Mapping[str, Any]) -> S:
    """The selector of a record's folder: a new one begins there, or the one goes on that was left there.

    Args:
        fresh: A new selector, which has the record among its observers or gets it.
        record: Its record.
        changed: Settings that hold from now on if one goes on.

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
    settings = fresh._settings
    state = record.newest(fresh._KIND)
    began = record.beginning(settings.rules, has_state=state is not None)
    expected = f"expected {fresh._learner.policy!r}, a {fresh._KIND}"
    wrong = f"the log is of {began.policy}, a {began.of}; {expected}"
    if began.of != fresh._KIND:
        raise LogFileError(wrong)
    place = None if state is None else state[0]["place"]
    try:
        if state is None:
            policy = as_labelled(began.policy, fresh._learner.policy)
            made: Any = type(fresh)
            selector: S = made(policy, clock=fresh._clock, **made_with(began.settings, began.num_features))
        else:
            selector = in_state(type(fresh), state, fresh._learner.policy, fresh._clock, any_parameters=True)
    except (StateFileError, TypeError) as error:  # a selector of a kind that has budgets, or has none
        raise LogFileError(f"{wrong} ({error})") from error
    selector._observers = Observers(observers)
    _catch_up(selector, place, settings.rules)
    if not is_label_of(repr(selector._learner.policy), fresh._learner.policy):
        raise LogFileError(
            f"the log is of {selector._learner.policy!r}; expected {fresh._learner.policy!r}: begin with the policy "
            "that it has, and set the selector's policy"
        )
    for name in ("budgets", "cohort_size", "num_features"):
        now, before = getattr(fresh, name, None), getattr(selector, name, None)
        if now is not None and now != before:
            raise ConfigurationError(f"{name} is {now}, and the folder's run has {before}; expected the same")
    return go_on(selector, observers, place, changed)


def _begin_in(fresh: Kept, record: Record, observers: tuple[Observer, ...]) -> None:
    """Let a selector begin in an empty folder; clients that joined at once are in the log, too."""
    fresh._observers = Observers(observers)
    members = fresh._members
    is_simple = not fresh.round and len(members.clients) == len(members.ids) == (members.capacity if members.ids else 0)
    fresh._begin(None, is_new=is_simple, tells=False)
    if is_simple and members.ids:
        record.before(joined := Joined(clients=members.clients))
        record(joined, fresh)


def _catch_up(selector: Kept, place: Any, asked: RulesSaid) -> None:
    """Book what the record has after a place, under its rules or, where they are hidden, ``asked``.

    A last decision that cannot be booked, because contexts are not kept, was not acknowledged: it is taken back.
    """
    if (record := selector._observers.record) is None:
        return
    try:
        for event in record.missing(place, selector._members, lambda: [selector._settings.rules, asked]):
            selector.apply(event)
    except NotKeptError:
        if not record.take_back():
            raise


def go_on(selector: S, observers: Iterable[Observer], place: Any, changed: Mapping[str, Any]) -> S:
    """Let a selector that was read go on under observers, from the record's place, with settings that changed."""
    selector._observers = Observers(observers)
    selector._begin(place, **changed)
    if "rules" in changed:
        selector._warn()
    return selector


def trust_of(selector: Kept) -> dict[ClientId, float]:
    """How much the contexts of each member count, in [0, 1]."""
    trust = selector._guard.trust(selector._members.slots())
    return dict(zip(selector.clients, trust.tolist(), strict=True))


def settings_of(selector: Kept) -> Settings:
    """What a selector was made with, or follows now."""
    return selector._settings
