r"""How much a running federation trusts its clients' reports: contexts, times, presence, failures, costs.

Clients lie, vanish and come back.  A policy believes its input; the guard stands between a selector and its
policy, and learns from each client's own record how far its word goes:

* **Contexts.**  A client whose contexts predict its times worse than its own mean time does gets the fleet's median in
  their place, :math:`\tilde c_n = w_n c_n + (1 - w_n) \operatorname{med} c`.
* **Times.**  A time counts as ten times the median of recent times at most, and never as more than the round took by
  the server's clock.  If all reported times are shorter than the round was, the member that was in most of such rounds
  took the rest.  A client's first time may have the start of its process in it: it counts until the second comes, and
  less if it is more than thrice the median of recent times, so that the second does come.
* **Absence.**  Debts of a client rest while it is away for long, so that it cannot stay away and then claim the rounds
  of the others.  With :math:`R_n(T)` rounds of rest, RBCS-F's queues bound participation by
  :math:`x_n(T) \ge \beta (T - R_n(T)) - Z_n(T)`: (6) summed over the rounds in which the queue does not rest.
* **Failures.**  A client that drops out or fails is learned as one that took as long as its round, and one that does
  so again and again pauses.  Without this a client that always fails is the one that a policy knows least of, and so
  the one that it is most curious about: it would be chosen more often than any other.
* **Costs.**  A client that cost more than its price says is charged what it cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, StatusArray
from fedroster.core.parameters import Count, Natural, Parameters
from fedroster.core.problem import Feedback, Status
from fedroster.core.state import take
from fedroster.folder.settings import Settings
from fedroster.selector.members import Slots

LongestTime = float | Literal["auto"] | None
"""Longer times count as this, seconds; "auto" for a multiple of the median of recent times; None for no cap."""

_SAMPLE = 4096  # clients that the fleet's median is taken from
_DISCOUNT = 0.98  # of a client's errors, a report
_HORIZON = 50.0  # reports that a client's mean time is of
_LARGEST_ERROR = 3.0  # of one report, in units of the mean time
_MARGIN, _STEEPNESS = 2.0, 4.0  # errors beyond its mean time's at which a client's contexts are half trusted
_FIRST_REPORTS = 3  # before a client's errors count
_FEWEST = 2  # times that have a median: the shorter of two
_SHORTEST_S = 5e-324  # above 0
_RECENT = 500  # times that the median is of
_FIRST_BEYOND = 3.0  # times that median: a first time beyond it is doubted
_FEW_ROUNDS = 10  # that the second looks at doubted clients may take
_TIMES_MEDIAN = 10.0  # a longer time is cut
_TOLERANCE = 0.9  # of a round's length that its longest reported time must explain


def _median(values: FloatArray) -> FloatArray:
    """Lower median along the first axis: a mean of two numbers may overflow."""
    middle = (values.shape[0] - 1) // 2
    return np.partition(values, middle, axis=0)[middle]  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class FailureRules(Parameters):
    """What happens to clients that drop out or fail.

    Attributes:
        learned: Whether a failure is learned as an exchange that took as long as its round.
        pause_after: A client that fails this many times in a row pauses: it is not chosen, and is owed nothing for it;
            0 for never.
        longest_pause: Most rounds of a pause, >= 1.  The first pause lasts a round, and each further failure doubles
            the next.
    """

    learned: bool = True
    pause_after: Natural = 3
    longest_pause: Count = 50


@dataclass(frozen=True, slots=True)
class Judged:
    """Feedback as it is learned."""

    learned: Feedback  # with the times that are believed and what failures cost
    cut: IntArray  # slots whose time was cut to the longest
    recent_s: FloatArray  # believed times of the clients that timed, seconds
    changes: Mapping[str, Any]  # new values of the guard's arrays at ``learned.client``, by name
    rescaled: IntArray  # slots of clients whose only time so far counts less
    factor: FloatArray  # how much less: 0 where the second has come


class Guard:
    """Judges reports by what is on record of each slot's client; ``guarded`` settings say whether most is judged."""

    def __init__(self, slots: Slots, settings: Settings) -> None:
        """Begin with what is kept of clients."""
        self._slots = slots
        self._recent_s = np.empty(0)
        self.follow(settings, 0)

    def follow(self, settings: Settings, round: int) -> None:
        """Take settings after a round; pauses end that last longer than they say."""
        self.settings, self.failures = settings, FailureRules(*settings.failures)
        latest = round + self.failures.longest_pause if self.failures.pause_after else 0
        np.minimum(self._slots.paused_until, latest, out=self._slots.paused_until)

    # ---------------------------------------------------------------- ask

    def resting(self) -> BoolArray:
        """Which slots' clients are away for so long that they are owed nothing."""
        longest = self.settings.longest_absence
        return np.asarray(self._slots.away > (math.inf if longest is None else longest))

    def pausing(self, round: int, slots: IntArray, available: BoolArray) -> BoolArray:
        """Which slots' clients pause in a round; none of the available ones while all of them would."""
        pausing = self._slots.paused_until >= round
        here = slots[available]
        if pausing[here].all():
            pausing[here] = False
        return pausing

    def see(self, available: IntArray | BoolArray, members: BoolArray) -> None:
        """Count absence of members, given the slots, or a mask of them, that are available in a round."""
        self._slots.away += 1
        self._slots.away[~members] = 0
        self._slots.away[available] = 0

    def trust(self, slots: IntArray) -> FloatArray:
        """How far the contexts of some clients are believed, w, in [0, 1]."""
        excess = self._slots.context_error[slots] - self._slots.own_error[slots] - _MARGIN
        return np.asarray(1.0 / (1.0 + np.exp(_STEEPNESS * np.clip(excess, -12.5, 12.5))))

    def believed(self, slots: IntArray, rows: FloatArray, available: BoolArray) -> FloatArray:
        """Contexts of some slots' clients as they are believed, shape (k, D); ``available`` rows make the median."""
        doubted = np.flatnonzero(self._slots.context_error[slots] > self._slots.own_error[slots])
        if not self.settings.guarded or not doubted.shape[0] or not available.any():
            return rows
        fleet = np.flatnonzero(available)
        median = _median(rows[fleet[:: 1 + fleet.shape[0] // _SAMPLE]])
        believed = rows.copy(order="K")
        weight = self.trust(slots[doubted])[:, None]
        believed[doubted] = weight * rows[doubted] + (1.0 - weight) * median
        return believed

    def charged(self, slots: IntArray, prices: FloatArray) -> FloatArray:
        """Prices, and where a client cost more on average, what it cost."""
        return np.maximum(prices, self._slots.cost[slots])

    # ---------------------------------------------------------------- tell

    def judge(
        self,
        told: Feedback,
        expected_s: FloatArray,
        *,
        round_s: float | None,
        cohort: IntArray,
        unlearned: tuple[int, ...] | None,
        waiting: Callable[[], Mapping[int, IntArray]],
    ) -> Judged:
        """Judge what was reported of a round; nothing is booked yet.

        Args:
            told: What was reported.
            expected_s: Times that the policy expected under the contexts as they were told, shape (k,), seconds; NaN
                where it expects nothing.
            round_s: How long the round took by the server's clock, seconds; None if it is not known.
            cohort: Slots of the whole cohort.
            unlearned: Slots of clients whose times are not learned, and then ``round_s`` is not either; None for none.
            waiting: Gives the slots of clients whose feedback is missing, by round.
        """
        client, told_s = told.client, told.exchange_time_s
        if unlearned is not None:
            told_s = np.where(np.isin(client, np.array(unlearned, np.int64)), np.nan, told_s)
            round_s = None
        timed, once = ~np.isnan(told_s), self._once(waiting)
        again = client[timed & once[client]]
        longest_s = self.cap_s(told_s[timed])
        time_s = np.minimum(told_s, longest_s)
        cut = client[told_s > longest_s]
        changes: dict[str, Any] = {}
        if self.settings.guarded:
            if round_s is not None:
                whole = client.shape[0] == cohort.shape[0] and bool(timed.all())
                time_s = self._explained(client, time_s, min(round_s, longest_s), whole, changes)
            self._judge_contexts(client, time_s, expected_s, timed, np.isin(client, again), changes)
        learned = replace(told, exchange_time_s=self._with_failures(told.status, time_s, timed, round_s, expected_s))
        once[client] = False
        doubted, factor = self.doubted(once)
        rescaled = np.append(again, doubted)
        factor = np.append(np.zeros(again.shape[0]), factor)
        return Judged(learned, cut, time_s[timed], changes, rescaled, factor)

    def _once(self, waiting: Callable[[], Mapping[int, IntArray]]) -> BoolArray:
        """Which slots' clients have timed one exchange, and failed in none: what is known may be a start."""
        once = self._slots.trained == 1
        if not self.settings.guarded or not once.any():
            return np.zeros_like(once)
        missing = np.concatenate([np.zeros(0, np.int64), *waiting().values()])
        settled = self._slots.chosen - np.bincount(missing, minlength=once.shape[0])
        return np.asarray(once & (settled == 1))

    def _with_failures(
        self, status: StatusArray, time_s: FloatArray, timed: BoolArray, round_s: float | None, expected_s: FloatArray
    ) -> FloatArray:
        """Times, and what failures cost where none was measured: their round's length, but at most the longest time.

        Without a length it is the longest time of the feedback.  A guarded one is not less than what is expected, so
        that no failure makes a client look faster.
        """
        cost_s: Any = float(time_s[timed].max(initial=0.0)) if round_s is None else round_s
        if self.settings.guarded:
            cost_s = np.fmax(cost_s, expected_s)
        lost = (status >= Status.DROPPED) & (cost_s > 0.0) & self.failures.learned
        return np.where(lost, np.minimum(cost_s, self.cap_s()), time_s)

    def doubted(self, once: BoolArray) -> tuple[IntArray, FloatArray]:
        """Slots of clients whose only time so far is far beyond what others take, and by what to multiply it.

        None while most recent times are first ones.  A few get the median of these, so that a second look is taken at
        each.  Many keep their order if they are most of all clients, and else their times: they are slow.

        Args:
            once: Which slots' clients have one time, shape (slots,).
        """
        none, trained = (np.zeros(0, np.int64), np.zeros(0)), self._slots.trained
        firsts = np.count_nonzero(trained)
        if not once.any() or trained.sum() - firsts < min(firsts, _RECENT) or not self._recent_s.shape[0]:
            return none
        usual_s, mean_s = float(_median(self._recent_s)), self._slots.mean_s
        slots = np.flatnonzero(once & (mean_s > _FIRST_BEYOND * usual_s))
        if slots.shape[0] <= _FEW_ROUNDS * self.settings.cohort_size:
            return slots, usual_s / mean_s[slots]
        if 2 * slots.shape[0] <= firsts:
            return none
        return slots, np.full(slots.shape[0], usual_s / float(_median(mean_s[slots])))

    def cap_s(self, told_s: FloatArray | None = None) -> float:
        """Longest time that is learned, seconds; the first round is judged by its own median, of ``told_s``."""
        if self.settings.longest_s == "auto":
            known_s = self._recent_s
            if told_s is not None and known_s.shape[0] < _FIRST_REPORTS:
                known_s = np.concatenate((known_s, told_s))
            return _TIMES_MEDIAN * float(_median(known_s)) if known_s.shape[0] >= _FEWEST else math.inf
        return math.inf if self.settings.longest_s is None else self.settings.longest_s

    def _explained(
        self, client: IntArray, time_s: FloatArray, round_s: float, whole: bool, changes: dict[str, Any]
    ) -> FloatArray:
        """Times that explain the round's length: if all are shorter, the most suspect client took the rest."""
        time_s = np.minimum(time_s, round_s)
        if not whole:
            return time_s
        short = float(time_s.max()) < _TOLERANCE * round_s
        told = self._slots.told[client] + 1.0
        contradicted = self._slots.contradicted[client] + short
        if short:
            time_s[np.argmax(contradicted / (told + 2.0))] = round_s
        changes["told"], changes["contradicted"] = told, contradicted
        return time_s

    def _judge_contexts(
        self,
        client: IntArray,
        time_s: FloatArray,
        expected_s: FloatArray,
        timed: BoolArray,
        is_anew: BoolArray,
        changes: dict[str, Any],
    ) -> None:
        """Errors of each client's contexts and of its mean time, in units of that mean."""
        reports = np.where(is_anew, 0.0, self._slots.reports[client])
        mean_s = self._slots.mean_s[client]
        counts = timed & (reports >= _FIRST_REPORTS) & np.isfinite(expected_s) & (mean_s > 0.0)
        scale_s = np.where(mean_s > 0.0, mean_s, 1.0)
        for name, guess_s in (("context_error", expected_s), ("own_error", mean_s)):
            old = getattr(self._slots, name)[client]
            with np.errstate(over="ignore"):
                error = np.minimum(np.abs(time_s - guess_s) / scale_s, _LARGEST_ERROR) ** 2
            changes[name] = np.where(counts, _DISCOUNT * old + error, old)
        more = reports + timed
        step = np.where(timed, (time_s - mean_s) / np.clip(more, 1.0, _HORIZON), 0.0)
        changes["reports"], changes["mean_s"] = more, mean_s + step

    def book(self, judged: Judged, costs: Mapping[int, float], round: int) -> None:
        """Book what was judged, after it was learned, and what clients cost, by slot, after a round."""
        slots = self._slots
        client = judged.learned.client
        status = judged.learned.status
        slots.mean_s[judged.rescaled] *= judged.factor
        for name, values in judged.changes.items():
            getattr(slots, name)[client] = values
        if self.settings.guarded or self.settings.longest_s == "auto":
            self._recent_s = np.concatenate((self._recent_s, judged.recent_s))[-_RECENT:]
        slots.capped[judged.cut] += 1
        for slot, cost in costs.items():
            slots.costs[slot] += 1.0
            slots.cost[slot] += (cost - slots.cost[slot]) / min(slots.costs[slot], _HORIZON)
        lost = client[status >= Status.DROPPED]
        slots.failed[client[status < Status.DROPPED]] = 0
        slots.failed[lost] += 1
        if self.failures.pause_after:
            beyond = slots.failed[lost] - self.failures.pause_after
            pause = np.minimum(2.0 ** np.clip(beyond, 0, 62), self.failures.longest_pause).astype(np.int64)
            slots.paused_until[lost] = np.where(beyond >= 0, round + pause, slots.paused_until[lost])

    # ---------------------------------------------------------------- keep

    def pack(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parts to save: an entry of the header, and arrays."""
        return {}, {"guard.recent_s": self._recent_s}

    def unpack(self, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Load what :meth:`pack` gave."""
        self._recent_s = take(arrays, "guard.recent_s", np.float64, (None,), least=_SHORTEST_S)[-_RECENT:]
