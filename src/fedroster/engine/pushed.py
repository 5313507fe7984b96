"""What happens to the replies of a round, in time and late, however an engine hands them over."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fedroster.core.arrays import FloatArray
from fedroster.core.errors import RoundNotBegunError
from fedroster.core.outside import plain
from fedroster.core.problem import Status
from fedroster.engine.choose import Clients, Node
from fedroster.engine.losses import LossMetrics, LossReader
from fedroster.engine.outcomes import LEAST_TIME_S, OpenRound, Outcomes, Reply, shown
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import AllRefusedError, Ending, NoNodesError
from fedroster.selector import Selector

_MINUTE_S = 60.0
_SILENCE = 3.0
"""A client that takes so many times what was expected, or what others took, is said to be waited for."""
_LOOK_S = 0.05
"""How often a wait looks at what is not pushed: failures, and whether the run is ended from outside."""


class PushedRounds:
    """Rounds whose replies come on any thread; all methods may be called from any thread.

    One client answers once in a round: what comes again, or from a client that was not chosen, is passed over.

    Attributes:
        rounds: Choose, save and report.
        lock: Held by every method; a caller that holds it keeps a round from being ended.
    """

    def __init__(
        self,
        rounds: Rounds,
        *,
        losses: LossMetrics | None = None,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Start without rounds.

        Args:
            rounds: Choose, save and report.
            losses: Where replies hold losses; None for the usual names.
            now: The clock; :meth:`wait` needs this machine's.
            pause: Waits for clients, for as many seconds at most; None where replies and clients come on other threads.
        """
        self.rounds, self._now = rounds, now
        self.lock = threading.Condition(threading.RLock())
        self._pause = pause or (lambda seconds: self.lock.wait(min(_LOOK_S, seconds)))
        self._rules, self._log = rounds.rules, rounds.log
        self._losses = LossReader(losses or LossMetrics())
        self._stragglers: dict[str, OpenRound] = {}
        self._is_first, self._was_used = True, False
        self._last_round_s, self._hinted = math.inf, False

    @property
    def selector(self) -> Selector:
        """The selector, resumed if there was a saved one."""
        return self.rounds.selector

    def busy(self) -> set[str]:
        """Clients whose late replies are awaited; gives up on those that take too long."""
        with self.lock:
            for name, round_ in list(self._stragglers.items()):
                if self._now() >= round_.ending.given_up_s:
                    said = "%s has not answered in round %d and is given up"
                    self._log.warning(said, plain(name), round_.choice.round)
                    self.lost(round_, name, "it has not answered")
            return set(self._stragglers)

    # ---------------------------------------------------------------- a round

    def begin(self, clients: Clients, model_bit: float, *, at_most: int | None = None) -> OpenRound:
        """Wait for clients, and choose a cohort for a model of so many bits, or go on with one that was interrupted.

        With ``at_most`` it fills so many free places.

        Raises:
            NoNodesError: If no client can be chosen for longer than ``wait_s``.
            RoundNotBegunError: If the rules leave too few clients for as long, in ``longest_rounds`` rounds in a row.
        """
        started_s = self._now()
        with self.lock:
            self.rounds.settle(save=False)
            self._rules.of(self.selector.round + 1)  # raises before anything is booked
            if self.rounds.is_resuming:
                here = self._wait_for(clients, self.rounds.current.clients)
                self.rounds.meet(here)
                choice = self.rounds.go_on(here)
                if choice is not None:
                    self._is_first = False
                    return OpenRound(choice, clients.num_connected, len(here), self._now() - started_s)
            until_s, limit_s = math.inf, self._rules.waits_s(is_first=self._is_first)
            left = self.selector.rules.longest_rounds  # after so many no window in rounds keeps a client out any more
            while True:
                nodes = self._wait_for(clients, None)
                if not nodes:
                    why = clients.why_none(len(self._stragglers))
                    raise NoNodesError(f"no client can be chosen after {limit_s:g} s: {why}")
                self._is_first = False
                until_s = min(until_s, self._now() + self._rules.waits_s(is_first=True))
                is_over = self._now() >= until_s
                try:
                    choice = self.rounds.choose(nodes, model_bit, is_last=is_over, at_most=at_most)
                    return OpenRound(choice, clients.num_connected, len(nodes), self._now() - started_s)
                except RoundNotBegunError as error:  # others may come, or a client's separation end
                    if is_over:
                        left -= 1
                        if left <= 0:
                            raise
                        self._log.warning("%s", error)
                        until_s = math.inf
                        continue
                self._pause(until_s - self._now())

    def fill(
        self, clients: Clients, model_bit: float, *, places: int, at_work: Collection[str] = ()
    ) -> list[OpenRound]:
        """Choose clients for free places: a round for each, all of one number; none if no client can be chosen now.

        Without clients ``at_work`` at the other places this waits, and raises as :meth:`begin` does.
        """
        with self.lock:
            if not at_work:
                return _split(self.begin(clients, model_bit, at_most=places))
            started_s, busy = self._now(), self.busy() | set(at_work)
            nodes = [node for node in clients.nodes(None) if node.context.willing and node.name not in busy]
            if not nodes:
                return []
            try:
                choice = self.rounds.choose(nodes, model_bit, is_last=False, at_most=places, at_work=at_work)
            except RoundNotBegunError:  # it can begin when others have answered
                return []
            return _split(OpenRound(choice, clients.num_connected, len(nodes), self._now() - started_s))

    def fill_again(self, clients: Clients) -> list[OpenRound]:
        """A round for each client that was at work before a restart; those that are gone have dropped out."""
        with self.lock:
            self.rounds.is_resuming = False
            ids = {name: choice.clients[name] for name, choice in self.rounds.awaited().items()}
            found = self._wait_for(clients, ids) if ids else []
            self.rounds.meet(found)
            here, again = {node.name for node in found}, []
            for name, choice in self.rounds.awaited().items():
                if name in here:
                    again.append(OpenRound(choice, clients.num_connected, len(here), 0.0))
                else:
                    self.rounds.miss(choice.round, [name])
            return again

    def _wait_for(self, clients: Clients, cohort: Mapping[str, int] | None) -> list[Node]:
        """Clients that can be chosen, enough of them or one at least; or those of a cohort that are there."""
        until_s = self._now() + self._rules.waits_s(is_first=self._is_first)
        warned_s, alias = self._now(), self.rounds.alias
        wanted = (self._rules.min_nodes or self.selector.cohort_size) if self._is_first else 1
        while True:
            nodes = clients.nodes(None if alias("") else cohort)
            left_s = until_s - self._now()
            if cohort is not None:
                found = [node for node in nodes if node.name in cohort or alias(node.name) in cohort]
                is_enough = len(found) == len(cohort)
            else:
                busy = self.busy()
                found = [node for node in nodes if node.context.willing and node.name not in busy]
                is_enough = len(found) >= wanted or bool(found and not clients.may_more_come())
            if is_enough or left_s <= 0.0:
                if cohort is None and 0 < len(found) < wanted:
                    said = "only %d clients can be chosen; the first round was to have %d"
                    self._log.warning(said, len(found), wanted)
                return found
            if self._now() - warned_s >= _MINUTE_S:
                warned_s = self._now()
                self._log.warning("waiting for clients: %s", clients.why_none(len(self._stragglers)))
            self._pause(left_s)

    def sent(
        self,
        round_: OpenRound,
        flaw: str = "",
        *,
        timeout_s: float | None = None,
        first: int = 0,
    ) -> Ending:
        """Book that a round's messages go out now: its time begins.

        ``timeout_s`` is the caller's own limit, and ``first`` its own number of replies, where the rules have none.
        For what is wrong with the model that they hold, ``flaw``, no client is blamed.
        """
        with self.lock:
            round_.flaw, names = flaw, round_.choice.clients
            if flaw:
                self._log.error("round %d: the model that is sent %s; no client is blamed", round_.choice.round, flaw)
            round_.waiting = set(names)
            rules = self._rules.of(round_.choice.round)
            round_.ending = rules.ending(first or len(names), self._now(), timeout_s)
            return round_.ending

    def answered(
        self,
        round_: OpenRound,
        name: str,
        content: object,
        *,
        wrong: str | None = None,
        metrics: Mapping[str, object] | None = None,
        signature: FloatArray | None = None,
        time_s: float | None = None,
    ) -> bool:
        """Book a client's reply; returns whether it counts.

        Args:
            round_: Its round.
            name: The client.
            content: What it returned.
            wrong: What is wrong with it; None for nothing.
            metrics: Its losses, by name.
            signature: That of its update, shape (s,); None where the policy learns from none.
            time_s: How long it took from sending, seconds; None if it came now.
        """
        with self.lock:
            if not self.awaits(round_, name):
                return False
            outcomes = Outcomes() if round_.is_over else round_.outcomes
            if wrong is not None:
                self._warn_of_refused(round_, name, wrong)
                if not round_.flaw:
                    outcomes.refused.add(name)
                    self.failed(round_, name, wrong)
                    return False
            time_s = max(self._now() - round_.sent_s if time_s is None else time_s, LEAST_TIME_S)
            outcomes.times_s[name] = time_s
            signed = {} if signature is None else {"signatures": signature}
            outcomes.told[name] = self._losses.read(metrics or {}) | signed
            counts = False
            if wrong is not None:
                outcomes.reasons[name] = wrong
            elif not round_.is_over:
                weights = round_.choice.weights or {}
                round_.usable.append(Reply(name, content, time_s, weights.get(name)))
                counts = round_.ending.counts(time_s, sum(how is Status.COMPLETED for how in outcomes.status.values()))
            outcomes.status[name] = Status.COMPLETED if counts else Status.LATE
            self._booked(round_, name, outcomes, f"its update came after {time_s:.1f} s and is not used", time_s)
            return counts

    def lost(self, round_: OpenRound, name: str, reason: str) -> None:
        """Book that a client is gone, or does not answer any more."""
        self.failed(round_, name, reason, Status.DROPPED)

    def failed(self, round_: OpenRound, name: str, reason: str, status: Status = Status.FAILED) -> None:
        """Book that a client failed, or that its reply cannot be used."""
        with self.lock:
            if not self.awaits(round_, name):
                return
            outcomes = Outcomes() if round_.is_over else round_.outcomes
            outcomes.failed(name, reason, status)
            took_s = max(self._now() - round_.sent_s, round_.settled_s)
            self._booked(round_, name, outcomes, outcomes.reasons[name], took_s)

    def _warn_of_refused(self, round_: OpenRound, name: str, reason: str) -> None:
        self._log.warning("the reply of %s in round %d is refused: %s", plain(name), round_.choice.round, shown(reason))

    def awaits(self, round_: OpenRound, name: str) -> bool:
        """Whether a client's reply to a round is waited for, in time or late."""
        return self._stragglers.get(name) is round_ if round_.is_over else name in round_.waiting

    def _booked(self, round_: OpenRound, name: str, outcomes: Outcomes, what: str, took_s: float) -> None:
        """Book how an exchange ended, seconds after its message was sent."""
        if round_.is_over:
            del self._stragglers[name]
            self._log.info("%s in round %d, which is over: %s", plain(name), round_.choice.round, plain(what))
            # A client that is lost only now costs the time for which it was waited for.
            lost_s = None if name in outcomes.times_s else max(round_.round_s, took_s)
            outcomes.tell(self.selector, round_.choice.round, lost_s)
        else:
            round_.settled_s = max(round_.settled_s, took_s)
        round_.waiting.discard(name)
        self.lock.notify_all()

    def is_complete(self, round_: OpenRound) -> bool:
        """Whether a round has ended by its rules, or all of its clients have answered."""
        with self.lock:
            now_s, ending = self._now(), round_.ending
            self._say_who_is_waited_for(round_, now_s - ending.sent_s)
            return not round_.waiting or now_s >= ending.until_s or ending.is_over(len(round_.usable), now_s)

    def _say_who_is_waited_for(self, round_: OpenRound, waited_s: float) -> None:
        """One line in a round that takes several times its expected time, where no deadline ends it."""
        deadline_s = round_.ending.rules.deadline_s
        why, since_s = ("no deadline is set", 0.0) if deadline_s == math.inf else ("too few have answered", deadline_s)
        # From 0 on: what is predicted may be NaN, which stays where it stands first.
        usual_s = _SILENCE * max([0.0, round_.choice.predicted_s, *(reply.time_s for reply in round_.usable)])
        if not round_.was_said and round_.waiting and waited_s - since_s >= max(_MINUTE_S, usual_s):
            round_.was_said = True
            names = ", ".join(sorted(round_.waiting)[:10])
            self._log.warning("still waiting for %s, %.0f s; %s", plain(names), waited_s, why)

    def evaluated(self, num_asked: int, num_answered: int, took_s: float) -> None:
        """Log how long an evaluation took, with one hint if that is longer than training."""
        number, trained_s = self.rounds.current.round, self._last_round_s
        self._log.info("round %d: evaluated by %d of %d clients in %.1f s", number, num_answered, num_asked, took_s)
        if took_s > trained_s and not self._hinted:
            self._hinted = True
            self._log.warning(
                "evaluation took %.1f s and training %.1f s: evaluate='cohort' lets the chosen clients evaluate, and "
                "evaluate='idle' with a deadline no straggler",
                took_s,
                trained_s,
            )

    def wait(self, round_: OpenRound, check: Callable[[], None] = lambda: None) -> None:
        """Wait until a round is complete; ``check`` is called meanwhile, may book failures, and raises to end it."""
        with self.lock:
            while not self.is_complete(round_):
                check()
                now_s, ending = time.monotonic(), round_.ending
                moments = [ending.until_s, ending.sent_s + ending.rules.deadline_s]  # no look passes over them
                self.lock.wait(min([_LOOK_S, *(each - now_s for each in moments if each > now_s)]))

    def close(
        self,
        round_: OpenRound,
        odd: Callable[[list[Reply]], dict[str, str]] = lambda usable: {},
        *,
        least: int = 0,
    ) -> list[Reply]:
        """End a round: tell the selector, save and report; its stragglers are awaited further.

        Args:
            round_: The round.
            odd: Says what is wrong with usable replies beside each other, by name: then others count in their place.
            least: Fewer updates than these are not used.

        Returns:
            The replies that count, fastest first.

        Raises:
            AllRefusedError: If nothing was used since the start, and the round's replies are refused for one reason.
        """
        with self.lock:
            round_.is_over = True
            round_.usable.sort(key=lambda reply: reply.time_s)
            outcomes = round_.outcomes
            wrong = odd(round_.usable)
            for name, reason in wrong.items():
                self._warn_of_refused(round_, name, reason)
                if round_.flaw:
                    outcomes.status[name], outcomes.reasons[name] = Status.LATE, reason
                else:
                    outcomes.refused.add(name)
                    outcomes.failed(name, reason)
            rest = [reply for reply in round_.usable if reply.name not in wrong]
            if wrong:
                num_used = 0
                for reply in rest:
                    counts = round_.ending.counts(reply.time_s, num_used)
                    outcomes.status[reply.name] = Status.COMPLETED if counts else Status.LATE
                    num_used += counts
            round_.usable = [reply for reply in rest if outcomes.status[reply.name] is Status.COMPLETED]
            if len(round_.usable) < least:
                said = f"{len(round_.usable)} updates came, and the strategy needs {least}: none is used"
                names = [reply.name for reply in round_.usable]
                outcomes.reasons |= dict.fromkeys(names, said)
                outcomes.status |= dict.fromkeys(names, Status.LATE)
                self._log.warning("round %d: %s", round_.choice.round, said)
                round_.usable = []
            for name in round_.waiting:
                outcomes.status[name] = None
                self._stragglers[name] = round_
            over_s = round_.settled_s if not round_.waiting else self._now() - round_.sent_s
            round_.used_s = max((reply.time_s for reply in round_.usable), default=math.nan)
            self._last_round_s = round_.round_s = max(over_s, LEAST_TIME_S)
            self.rounds.end(round_)
            self._was_used |= bool(round_.usable)
            reasons = {outcomes.reasons.get(name) for name in round_.choice.clients}
            is_one = len(reasons) == 1 < len(outcomes.refused)
            if is_one and not self._was_used and outcomes.refused >= round_.choice.clients.keys():
                raise AllRefusedError(
                    f"all {len(outcomes.refused)} replies of the first round are refused: {reasons.pop()}; if that is "
                    "how your clients answer, give check=None or a function of your own"
                )
            return round_.usable


class Resumed:
    """What every adapter says of its run; its desk is ``_desk``."""

    _desk: PushedRounds

    @property
    def selector(self) -> Selector:
        """The selector, resumed if there was a saved one."""
        return self._desk.selector

    @property
    def round(self) -> int:
        """Rounds that are done, before a restart, too; a loop that goes on after one begins here."""
        rounds = self._desk.rounds
        return rounds.current.round - (not rounds.is_done)

    def release(self) -> None:
        """Let another process have the run's folder, before this one ends."""
        self._desk.rounds.release()


def _split(round_: OpenRound) -> list[OpenRound]:
    """A round for each of a round's clients."""
    choice = round_.choice
    alone = (replace(choice, clients={name: choice.clients[name]}) for name in choice.clients)
    return [OpenRound(each, round_.num_connected, round_.num_available, round_.select_s) for each in alone]
