"""Rules bound to the members of a federation: who may take part now, how many of them, and why not."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError, FairnessWarning, InfeasibleError, StateFileError
from fedroster.core.ids import ClientId, ClientSlots
from fedroster.core.state import take, whole
from fedroster.rules.composing import Limits
from fedroster.rules.feasible import debts_rest, flaws, impossible
from fedroster.rules.rules import Lists, Rules

_KEPT_ROUNDS, _KEPT_ENTRIES = 1024, 1_000_000  # that are remembered for a window which later rules may name
_UNLIMITED = np.iinfo(np.int64).max
_NONE = Rules()
NOT_REGISTERED = "it reports its own name, and the rules name clients"


def checked_rules(given: Rules | None) -> Rules:
    """Rules; None for none.

    Raises:
        ConfigurationError: If they are no rules.
    """
    if not isinstance(given, Rules | None):
        raise ConfigurationError(f"rules are {shown(given)}; expected Rules, such as Rules.load(path), or None")
    return _NONE if given is None else given


@dataclass(frozen=True, slots=True)
class Barred:
    """Clients that cannot be chosen now."""

    out: BoolArray  # whether each slot's client is kept out
    away: BoolArray  # whether it is owed nothing meanwhile
    reasons: dict[str, IntArray] = field(default_factory=dict)  # slots by what keeps them out, each once

    def bar(self, reason: str, slots: BoolArray, *, away: bool) -> None:
        """Exclude more clients; those already excluded keep their reason."""
        fresh = np.flatnonzero(slots & ~self.out)
        if fresh.size:
            self.reasons[reason] = np.concatenate((self.reasons.get(reason, fresh[:0]), fresh))
            self.out[fresh] = True
            self.away[fresh] = away


class RuleBook:
    """The rules in force, what they say of each slot's client, and what clients did that they count.

    Time is the selector's clock.  Where it was set back, time stands still, so that no client takes part too early;
    where it had leapt ahead before, none waits until it is there again.
    """

    def __init__(self, rules: Rules | None, *, cohort_size: int, beta: float) -> None:
        """Begin before the first round; raises as :func:`checked_rules` and :meth:`check` do."""
        self._cohort_size, self._beta = cohort_size, beta
        self._recent: deque[tuple[int, float, IntArray]] = deque()  # round, when, who
        self._clock_s = self._ahead_s = 0.0  # the clock at the last round, and what it was set back by in all
        self.closest: int | None = None  # fewest rounds from one participation of a client to its next so far
        self.has_forgotten = False  # whether a client that took part was: its participations do not count any more
        self.drew_from_all = True  # whether every member could be chosen in every round so far, without rules
        self.excluded: dict[str, IntArray] = {}  # slots kept out of the last round that was asked for, by the reason
        self.check(rules := checked_rules(rules))
        self.adopt(rules, beta=beta)

    # ---------------------------------------------------------------- which rules

    def check(self, rules: Rules) -> None:
        """Raise an ``InfeasibleError`` for rules that no cohort can keep."""
        if why := impossible(rules, self._cohort_size):
            raise InfeasibleError(why)

    def adopt(self, rules: Rules, *, beta: float) -> None:
        """Put rules into force that were checked; ``beta`` is the rate that the policy promises, 0 for none."""
        self.rules, self._lists = rules, Lists(rules)
        self._rests = debts_rest(rules, beta)
        self._told: set[str] = set()
        self._reasons = [""]
        self._reason, self._group, self._priority = (np.zeros(0, np.int64) for _ in range(3))
        self._names: list[ClientId | None] = []
        self._changes = -1

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return self.rules == _NONE

    def warn(self, beta: float, members: ClientSlots, availability: FloatArray) -> None:
        """Warn of what the rules make impossible, each thing once; takes what :func:`flaws` takes, by slot."""
        if self.is_empty:
            return
        self._meet(members)
        here = members.slots()
        allowed = here[self._reason[here] == 0]
        found = flaws(
            self.rules,
            beta=beta,
            cohort_size=self._cohort_size,
            group=self._group[allowed],
            priority=self._priority[allowed],
            availability=availability[allowed],
            num_members=here.size,
            round_s=self._pace_s(),
        )
        fresh = [text for kind, text in found.items() if kind not in self._told]
        self._told |= set(found)  # before a warning that a caller may turn into an error
        if fresh:
            warnings.warn("rules: " + "; ".join(fresh), FairnessWarning, stacklevel=4)

    def _pace_s(self) -> float | None:
        """Mean time from one recent round to the next, seconds; None as long as there are no two."""
        if len(self._recent) < 2:
            return None
        (first, from_s, _), (last, to_s, _) = self._recent[0], self._recent[-1]
        return (to_s - from_s) / (last - first) or None

    # ---------------------------------------------------------------- members

    def forget(self, members: ClientSlots, slots: IntArray) -> None:
        """Forget what some members did, before they are unknown."""
        self.has_forgotten |= bool(members.last_round[slots].any())
        self._recent = deque((number, at_s, cohort[~np.isin(cohort, slots)]) for number, at_s, cohort in self._recent)
        self.excluded = {reason: out[~np.isin(out, slots)] for reason, out in self.excluded.items()}

    def _meet(self, members: ClientSlots) -> None:
        """Judge the names of all slots that were not judged before; a slot without a client is in no group."""
        if more := members.capacity - self._group.size:
            none = np.zeros(more, np.int64)
            self._reason = np.append(self._reason, none)
            self._priority = np.append(self._priority, none)
            self._group = np.append(self._group, none - 1)
        if not self.rules.name_clients or self._changes == members.changes:
            return
        self._changes = members.changes
        number_of = {reason: number for number, reason in enumerate(self._reasons)}
        self._names += [None] * (len(members.ids) - len(self._names))
        for slot, client in enumerate(members.ids):
            if client is not None and client != self._names[slot]:
                reason, self._group[slot], self._priority[slot] = self._lists.judge(client)
                self._reason[slot] = number_of.setdefault(reason, len(number_of))
        self._reasons, self._names = list(number_of), list(members.ids)

    # ---------------------------------------------------------------- who, and why not

    def num_allowed(self, members: ClientSlots, joining: Iterable[ClientId] = ()) -> int:
        """How many members, and clients that join, the lists let take part."""
        self._meet(members)
        return int(np.count_nonzero(self._reason[members.slots()] == 0)) + sum(map(self.lists_allow, joining))

    def lists_allow(self, client: ClientId, not_registered: Collection[ClientId] = ()) -> bool:
        """Whether the lists let a client take part, a member or not."""
        return not self.rules.name_clients or (client not in not_registered and not self._lists.judge(client)[0])

    def bar(
        self, members: ClientSlots, round: int, at_s: float, not_registered: IntArray, *, evaluates: bool = False
    ) -> Barred:
        """Which clients the rules exclude from a round; depends on names, rounds and times only.

        Clients of the slots ``not_registered`` report their own names.  What ``evaluates`` comes after the round, whose
        cohort may take part in it.
        """
        out, away = np.zeros((2, members.capacity), np.bool_)
        barred = Barred(out, away)
        if self.is_empty:
            return barred
        self._meet(members)
        if self.rules.name_clients:
            unknown = np.zeros(members.capacity, np.bool_)
            unknown[not_registered] = True
            barred.bar(NOT_REGISTERED, unknown, away=True)
            listed = np.flatnonzero((self._reason > 0) & members.here & ~out)
            reason = self._reason[listed]
            order = np.argsort(reason, kind="stable")  # in one pass: a list of names has a reason for each
            numbers, begins = np.unique(reason[order], return_index=True)
            for number, slots in zip(numbers.tolist(), np.split(listed[order], begins)[1:], strict=True):
                barred.reasons[self._reasons[number]] = slots
            out[listed] = away[listed] = True
        counted = members.here & ~(members.last_round == round) if evaluates and round else members.here
        self._bar_for_now(barred, counted, members, max(round, 1), self._time_s(at_s))
        return barred

    def _bar_for_now(
        self,
        barred: Barred,
        here: BoolArray,
        members: ClientSlots,
        round: int,
        now_s: float,
    ) -> None:
        """Clients that took part too often, or too recently."""
        rules, took_part = self.rules, (members.last_round > 0) & here
        if (most := rules.most_participations) is not None:
            barred.bar(
                f"has taken part {most} times (most_participations)",
                here & (members.chosen >= most),
                away=True,
            )
        if (most := rules.most_per_window) is not None:
            recent = np.concatenate([np.zeros(0, np.int64), *self._in_window(round, now_s)])
            counts = np.bincount(recent, minlength=here.size)
            length = rules.window if isinstance(rules.window, str) else f"{rules.window} rounds"
            reason = f"has taken part {most} times in {length} (most_per_window)"
            barred.bar(reason, here & (counts >= most), away=self._rests or rules.window_s is not None)
        if (every := int(rules.least_separation)) > 1:
            reason = f"took part less than {every} rounds ago (least_separation)"
            barred.bar(reason, took_part & (round - members.last_round < every), away=self._rests)
        if rules.least_separation_s:
            reason = f"took part less than {rules.least_separation_s:g} s ago (least_separation_s)"
            barred.bar(reason, took_part & (now_s - members.last_s < rules.least_separation_s), away=True)

    def _in_window(self, round: int, now_s: float) -> list[IntArray]:
        """The cohorts before a round that a window counts; all if there is no window."""
        window, length_s = self.rules.window, self.rules.window_s
        if length_s is not None:
            return [slots for _, at_s, slots in self._recent if now_s - at_s < length_s]
        return [slots for number, _, slots in self._recent if round - int(window or 0) < number < round]

    # ---------------------------------------------------------------- how many

    def limits(self, barred: Barred, at_work: BoolArray) -> Limits | None:
        """What the cohort keeps beside the clients at work; None for nothing."""
        groups = self.rules.groups
        if not groups and not self.rules.least_cohort and not self._priority.any():
            return None
        busy = np.bincount(self._group[at_work] + 1, minlength=len(groups) + 1)[1:]
        most = [_UNLIMITED if group.most is None else group.most for group in groups.values()]
        least = {name: group.least for name, group in groups.items()}

        def causes(number: int) -> str:
            counts = {
                reason: np.count_nonzero(self._group[slots] == number) if number >= 0 else slots.size
                for reason, slots in barred.reasons.items()
            }
            kept_out = [f"{count} ({reason})" for reason, count in counts.items() if count]
            return "; kept out: " * bool(kept_out) + ", ".join(kept_out)

        return Limits(
            least=least,
            room=np.maximum(np.array(most, np.int64) - busy, 0),
            need=np.maximum(np.array(list(least.values()), np.int64) - busy, 0),
            group=self._group,
            priority=self._priority,
            least_cohort=self.rules.least_cohort,
            at_work=int(np.count_nonzero(at_work)),
            causes=causes,
        )

    # ---------------------------------------------------------------- what they count

    def _time_s(self, at_s: float) -> float:
        """The time that separations and windows go by, seconds."""
        return max(at_s, self._clock_s) + self._ahead_s

    def count(self, members: ClientSlots, round: int, chosen: IntArray, at_s: float) -> None:
        """Count the participations of a round that began at ``at_s``, by the selector's clock."""
        before = members.last_round[chosen]
        if before.any():
            self.closest = min(self.closest or round, round - int(before.max()))
        members.last_round[chosen] = round
        if self.is_empty:
            return
        self._ahead_s += max(0.0, self._clock_s - at_s)
        self._clock_s = at_s
        latest_s = self._recent[-1][1] if self._recent else 0.0  # sums are rounded, and time never goes back
        members.last_s[chosen] = now_s = max(self._time_s(at_s), latest_s)
        if chosen.size:
            self._recent.append((round, now_s, chosen.copy()))
        needed = 1 + len(self._in_window(round, now_s))
        entries = sum(slots.size for *_, slots in self._recent)
        while len(self._recent) > needed:
            if self._recent[0][0] > round - _KEPT_ROUNDS and entries <= _KEPT_ENTRIES:
                break
            entries -= self._recent.popleft()[2].size

    # ---------------------------------------------------------------- keep

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        numbers, times_s, cohorts = zip(*self._recent, strict=True) if self._recent else ((), (), ())
        lengths = [slots.size for slots in cohorts]
        arrays = {
            "rules.recent_round": np.repeat(np.array(numbers, np.int64), lengths),
            "rules.recent_s": np.repeat(np.array(times_s, np.float64), lengths),
            "rules.recent_slot": np.concatenate([np.zeros(0, np.int64), *cohorts]),
        }
        so_far = {name: getattr(self, name) for name in ("closest", "has_forgotten", "drew_from_all")}
        return {"rules": {"clock_s": [self._clock_s, self._ahead_s]} | so_far}, arrays

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave, and the rules in force."""
        capacity, round = header["capacity"], header["round"]
        told = header["rules"]
        self.closest = None if told["closest"] is None else whole(told, "closest", 1, round)
        self.has_forgotten = bool(told["has_forgotten"])
        self.drew_from_all = bool(told["drew_from_all"])
        clock = np.array(told["clock_s"], np.float64)
        self._clock_s, self._ahead_s = take({"clock_s": clock}, "clock_s", np.float64, (2,), 0).tolist()
        rules = Rules.from_table(header["settings"].get("rules", {}))
        self.check(rules)
        self.adopt(rules, beta=self._beta)
        numbers = take(arrays, "rules.recent_round", np.int64, (None,), 1, round)
        times_s = take(arrays, "rules.recent_s", np.float64, numbers.shape, 0)
        slots = take(arrays, "rules.recent_slot", np.int64, numbers.shape, 0, capacity - 1)
        if (np.diff(numbers) < 0).any() or (np.diff(times_s) < 0.0).any():
            raise StateFileError("rounds of the rules in the state file do not ascend")
        starts = np.unique(numbers, return_index=True)[1]
        parts = np.split(slots, starts[1:]) if numbers.size else []
        self._recent = deque(
            (int(numbers[start]), float(times_s[start]), part) for start, part in zip(starts, parts, strict=True)
        )
