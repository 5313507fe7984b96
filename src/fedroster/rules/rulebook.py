"""The rules of a running federation: which clients they exclude now, and what they must remember for this."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, IntArray
from fedroster.core.errors import FairnessWarning, StateFileError
from fedroster.core.ids import ClientId, Roster
from fedroster.core.state import take, whole
from fedroster.rules.composing import Limits
from fedroster.rules.promises import check_possible, debts_rest, flaws
from fedroster.rules.rule_files import GivenRules, RuleFile, given_rules
from fedroster.rules.rules import Names, Rules

_KEPT_ROUNDS, _KEPT_ENTRIES = 1024, 1_000_000  # that are remembered for a window which later rules may name
NOT_REGISTERED = "it reports its own name, and the rules name clients"


_NONE = Rules()


@dataclass(frozen=True, slots=True)
class Barred:
    """Clients that cannot be chosen now.

    Attributes:
        out: Whether each slot's client is kept out, shape (slots,).
        away: Whether it is owed nothing meanwhile, shape (slots,).
        now_s: When, seconds.
        reasons: Slots that each rule keeps out, by the reason; each slot once.
    """

    out: BoolArray
    away: BoolArray
    now_s: float
    reasons: dict[str, IntArray] = field(default_factory=dict)

    def bar(self, reason: str, slots: BoolArray, *, away: bool) -> None:
        """Exclude more clients; those already excluded keep their reason."""
        fresh = np.flatnonzero(slots & ~self.out)
        if fresh.shape[0]:
            self.reasons[reason] = np.concatenate((self.reasons.get(reason, fresh[:0]), fresh))
            self.out[fresh] = True
            self.away[fresh] = away


class Register:
    """What one set of rules says of each client by its name; one entry for each slot."""

    def __init__(self, rules: Rules) -> None:
        """Begin without clients."""
        self._rules = rules
        self._allow = None if rules.allow is None else Names(rules.allow, rules.tags)
        self._deny = Names(rules.deny, rules.tags)
        self._groups = [(name, Names(group.clients, rules.tags)) for name, group in rules.groups.items()]
        first = sorted(rules.priorities, key=lambda name: -rules.priorities[name])
        self._ranked = Names(first, rules.tags)
        self.reasons = [""]
        self._number_of = {"": 0}
        self.reason, self.group, self.priority = (np.zeros(0, np.int64) for _ in range(3))
        self._names: list[ClientId | None] = []
        self._changes = -1

    def judge(self, client: ClientId) -> tuple[str, int, int]:
        """Why a client may not take part, empty if it may; its group, -1 for none; its priority."""
        name = str(client)
        denied = self._deny.entry(name)
        mine = [number for number, (_, group) in enumerate(self._groups) if group.entry(name) is not None]
        reason = ""
        if denied is not None:
            reason = f"denied by {denied!r}"
        elif self._allow is not None and self._allow.entry(name) is None:
            reason = "not on the allow list"
        elif len(mine) > 1:
            reason = "named by the groups " + " and ".join(repr(self._groups[number][0]) for number in mine)
        ranks = [self._rules.priorities[entry] for entry in self._ranked.entries(name)]
        return reason, mine[0] if mine else -1, max(ranks, default=0)

    def meet(self, members: Roster) -> None:
        """Judge the clients of all slots that were not judged before."""
        if not self._rules.name_clients:
            return
        more = members.capacity - self.reason.shape[0]
        if more:
            self.reason, self.priority = (
                np.append(each, np.zeros(more, np.int64)) for each in (self.reason, self.priority)
            )
            self.group = np.append(self.group, np.full(more, -1))  # a slot without a client is in no group
        if self._changes == members.changes:
            return
        self._changes = members.changes
        self._names += [None] * (len(members.ids) - len(self._names))
        for slot, client in enumerate(members.ids):
            if client is not None and client != self._names[slot]:
                reason, self.group[slot], self.priority[slot] = self.judge(client)
                if reason not in self._number_of:
                    self._number_of[reason] = len(self.reasons)
                    self.reasons.append(reason)
                self.reason[slot] = self._number_of[reason]
        self._names = list(members.ids)


class RuleBook:
    """The rules that are in force, and what clients did that they count.

    Attributes:
        rules: The rules in force; ``Rules()`` for none.
        excluded: Slots that were kept out of the last round that was asked for, by the reason.
        closest: Fewest rounds from one participation of a client to its next so far; None before there is any.
        has_forgotten: Whether a client that took part was forgotten: its participations do not count any more.
        drew_from_all: Whether every member could be chosen in every round so far, and no rule was in force.
    """

    def __init__(self, given: GivenRules, *, cohort_size: int, beta: float) -> None:
        """Begin before the first round, with one slot.

        Raises:
            ConfigurationError: If the rules are malformed, or the file cannot be read.
            InfeasibleError: If no cohort can keep them.
        """
        self._cohort_size, self._beta = cohort_size, beta
        self._last_round = np.zeros(1, np.int64)
        self._last_s = np.zeros(1)
        self._recent: deque[tuple[int, IntArray]] = deque()
        self._told: set[str] = set()
        self.closest: int | None = None
        self.has_forgotten = False
        self.drew_from_all = True
        self.excluded: dict[str, IntArray] = {}
        rules, file = given_rules(given)
        self.check(rules)
        self.adopt(rules, beta=beta, file=file)

    # ---------------------------------------------------------------- which rules

    def check(self, rules: Rules) -> None:
        """Refuse rules that no cohort can keep.

        Raises:
            InfeasibleError: If there are such.
        """
        check_possible(rules, self._cohort_size)

    def adopt(self, rules: Rules, *, beta: float, file: RuleFile | None = None) -> None:
        """Put rules into force that were checked.

        Args:
            rules: The rules.
            beta: Participation rate that the policy promises; 0 for none.
            file: The file that they are read from; None for none.
        """
        self.rules, self.file = rules, file
        self._register = Register(rules)
        self._rests = debts_rest(rules, beta)
        self._told = set()

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return self.rules == _NONE

    @property
    def path(self) -> str | None:
        """The file that the rules are read from; None for none."""
        return None if self.file is None else self.file.path

    # ---------------------------------------------------------------- promises

    def num_allowed(self, members: Roster, joining: Iterable[ClientId] = ()) -> int:
        """How many members, and clients that join, the lists let take part."""
        self._register.meet(members)
        here = members.slots()
        if self.rules.name_clients:
            here = here[self._register.reason[here] == 0]
            joining = [client for client in joining if not self._register.judge(client)[0]]
        return int(here.shape[0]) + len(list(joining))

    def warn(self, beta: float, members: Roster, *, is_quiet: bool = False) -> None:
        """Warn of what the rules make impossible, each thing once; or only remember it, if ``is_quiet``."""
        if self.is_empty:
            return
        self._register.meet(members)
        here = members.slots()
        named = self.rules.name_clients
        allowed = here[self._register.reason[here] == 0] if named else here
        none = np.zeros(allowed.shape[0], np.int64)
        found = flaws(
            self.rules,
            beta=beta,
            cohort_size=self._cohort_size,
            group=self._register.group[allowed] if named else none - 1,
            priority=self._register.priority[allowed] if named else none,
        )
        if here.shape[0] and not allowed.shape[0] and self.rules.allow != ():  # an empty list is meant
            found["lists"] = f"no client can take part: the lists exclude all {here.shape[0]} members"
        if is_quiet:
            return
        fresh = [text for kind, text in found.items() if kind not in self._told]
        self._told |= set(found)  # before a warning that a caller may turn into an error
        if fresh:
            warnings.warn("rules: " + "; ".join(fresh), FairnessWarning, stacklevel=4)

    # ---------------------------------------------------------------- members

    def grow(self, capacity: int) -> None:
        """Make room for more clients."""
        more = max(0, capacity - self._last_round.shape[0])
        self._last_round = np.append(self._last_round, np.zeros(more, np.int64))
        self._last_s = np.append(self._last_s, np.zeros(more))

    def forget(self, slots: IntArray) -> None:
        """Forget what some clients did."""
        self.has_forgotten |= bool(self._last_round[slots].any())
        self._last_round[slots], self._last_s[slots] = 0, 0.0
        self._recent = deque((number, cohort[~np.isin(cohort, slots)]) for number, cohort in self._recent)

    # ---------------------------------------------------------------- eligibility

    def bar(self, members: Roster, round: int, now_s: float, not_registered: IntArray) -> Barred:
        """Which clients the rules exclude from a round; depends on names, rounds and times only."""
        out, away = np.zeros((2, members.capacity), np.bool_)
        barred = Barred(out, away, now_s)
        if self.is_empty:
            return barred
        if self.rules.name_clients:
            self._register.meet(members)
            unknown = np.zeros(members.capacity, np.bool_)
            unknown[not_registered] = True
            barred.bar(NOT_REGISTERED, unknown, away=True)
            listed = np.flatnonzero((self._register.reason > 0) & members.here & ~out)
            numbers, which = np.unique(self._register.reason[listed], return_inverse=True)
            parts = np.split(listed[np.argsort(which, kind="stable")], np.cumsum(np.bincount(which))[:-1])
            for number, slots in zip(numbers.tolist(), parts, strict=True) if listed.shape[0] else ():
                barred.reasons[self._register.reasons[number]] = slots
            barred.out[listed] = barred.away[listed] = True
        self._bar_for_now(barred, members, round)
        return barred

    def _bar_for_now(self, barred: Barred, members: Roster, round: int) -> None:
        """Clients that took part too often, or too recently."""
        rules, here = self.rules, members.here
        took_part = (self._last_round > 0) & here
        if rules.most_participations is not None:
            reason = f"has taken part {rules.most_participations} times (most_participations)"
            barred.bar(reason, here & (members.chosen >= rules.most_participations), away=True)
        if rules.most_per_window is not None and rules.window is not None:
            recent = [slots for number, slots in self._recent if round - rules.window < number < round]
            counts = np.bincount(np.concatenate([np.zeros(0, np.int64), *recent]), minlength=members.capacity)
            reason = f"has taken part {rules.most_per_window} times in {rules.window} rounds (most_per_window)"
            barred.bar(reason, here & (counts >= rules.most_per_window), away=self._rests)
        if rules.least_separation > 1:
            reason = f"took part less than {rules.least_separation} rounds ago (least_separation)"
            barred.bar(reason, took_part & (round - self._last_round < rules.least_separation), away=self._rests)
        if rules.least_separation_s:
            reason = f"took part less than {rules.least_separation_s:g} s ago (least_separation_s)"
            barred.bar(reason, took_part & (barred.now_s - self._last_s < rules.least_separation_s), away=True)

    def bar_from_evaluation(self, members: Roster, round: int, now_s: float, not_registered: IntArray) -> Barred:
        """Which clients the rules exclude from evaluating after a round: its cohort may, as part of the same round."""
        barred = self.bar(members, max(round, 1), now_s, not_registered)
        if not round:
            return barred
        listed = np.zeros(members.capacity, np.bool_)
        for reason in (NOT_REGISTERED, *self._register.reasons[1:]):
            listed[barred.reasons.get(reason, [])] = True
        cohort = (self._last_round == round) & ~listed
        reasons = {why: slots[~cohort[slots]] for why, slots in barred.reasons.items()}
        return replace(
            barred, out=barred.out & ~cohort, reasons={why: slots for why, slots in reasons.items() if slots.size}
        )

    def lists_allow(self, client: ClientId, not_registered: Collection[ClientId]) -> bool:
        """Whether the lists let a client take part, a member or not."""
        return not self.rules.name_clients or (client not in not_registered and not self._register.judge(client)[0])

    def limits(self, members: Roster, busy: BoolArray) -> Limits | None:
        """What the cohort keeps; None if there is no rule."""
        if self.is_empty:
            return None
        none = np.zeros(members.capacity, np.int64)
        named = self.rules.name_clients
        most = [group.most for group in self.rules.groups.values()]
        return Limits(
            names=tuple(self.rules.groups),
            least=np.array([group.least for group in self.rules.groups.values()], np.int64),
            most=np.array([np.iinfo(np.int64).max if each is None else each for each in most], np.int64),
            group=self._register.group if named else none - 1,
            priority=self._register.priority if named else none,
            least_cohort=self.rules.least_cohort,
            busy=busy,
        )

    def count(self, round: int, chosen: IntArray, now_s: float) -> None:
        """Count the participations of a round."""
        before = self._last_round[chosen]
        if before.any():
            self.closest = min(self.closest or round, round - int(before.max()))
        self._last_round[chosen] = round
        if self.is_empty:
            return
        self._last_s[chosen] = now_s
        kept = max(self.rules.window or 0, _KEPT_ROUNDS)
        if chosen.shape[0]:
            self._recent.append((round, chosen.copy()))
        entries = sum(slots.shape[0] for _, slots in self._recent)
        while self._recent and self._recent[0][0] <= round - (self.rules.window or 0):
            if self._recent[0][0] > round - kept and entries <= _KEPT_ENTRIES:
                break
            entries -= self._recent.popleft()[1].shape[0]

    # ---------------------------------------------------------------- keep

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        recent = [*self._recent]
        arrays = {
            "rules.last_round": self._last_round,
            "rules.last_s": self._last_s,
            "rules.recent_round": np.repeat(
                [number for number, _ in recent], [len(slots) for _, slots in recent]
            ).astype(np.int64),
            "rules.recent_slot": np.concatenate([np.zeros(0, np.int64), *(slots for _, slots in recent)]),
        }
        so_far = {name: getattr(self, name) for name in ("closest", "has_forgotten", "drew_from_all")}
        return {"rules": {"in_force": self.rules.as_table(), "path": self.path} | so_far}, arrays

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave; a file of an earlier version has no rules."""
        capacity, round = header["capacity"], header["round"]
        self.grow(capacity)
        self.drew_from_all = not round  # an earlier version kept no note of it
        if "rules" not in header:
            return
        path, closest = header["rules"]["path"], header["rules"]["closest"]
        self.closest = None if closest is None else whole(header["rules"], "closest", 1, round)
        self.has_forgotten = bool(header["rules"]["has_forgotten"])
        self.drew_from_all = bool(header["rules"].get("drew_from_all", self.drew_from_all))
        rules = Rules.from_table(header["rules"]["in_force"])
        self.check(rules)
        self.adopt(rules, beta=self._beta, file=None if path is None else RuleFile(path))
        self._last_round = take(arrays, "rules.last_round", np.int64, (capacity,), 0, round)
        self._last_s = take(arrays, "rules.last_s", np.float64, (capacity,), 0)
        numbers = take(arrays, "rules.recent_round", np.int64, (None,), 1, round)
        slots = take(arrays, "rules.recent_slot", np.int64, numbers.shape, 0, capacity - 1)
        if (numbers[1:] < numbers[:-1]).any():
            raise StateFileError("rounds of the rules in the state file do not ascend")
        self._recent = deque((int(number), slots[numbers == number]) for number in np.unique(numbers))
