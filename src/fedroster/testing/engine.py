"""What every engine's adapter must do, whatever carries its messages: subclass it to test your own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from fedroster.core.problem import Status
from fedroster.folder.events import Told
from fedroster.policies.rbcs_f import RBCSF
from fedroster.policies.uniform import Uniform
from fedroster.rules.rules import Rules
from fedroster.selector import Selector
from fedroster.testing.values import require


@dataclass
class ScriptedClient:
    """A client whose trainings are scripted, and which keeps a log of its own.

    The engine under test calls :meth:`begin` when a training begins at the client, and does what that says:

    ===============  ====================================================================================
    ``"ok"``         answers with an update that can be used, after :attr:`EngineContract.quick_s`
    ``"slow"``       the same after :attr:`EngineContract.slow_s`, which is within the deadline
    ``"late"``       the same after :attr:`EngineContract.late_s`, which is beyond it
    ``"fails"``      reports an error, at once
    ``"malformed"``  answers what no aggregation can use: not finite numbers, say
    ``"silent"``     never answers, as if it were killed
    ===============  ====================================================================================

    Attributes:
        fates: What its first, second, ... training does; the last one repeats.
        log: The fate of every training that began.
        num_running: Trainings that are under way; the contract looks that there is never a second one.
        most_running: The most at a time.
    """

    fates: tuple[str, ...] = ("ok",)
    log: list[str] = field(default_factory=list)
    num_running: int = 0
    most_running: int = 0

    def begin(self) -> str:
        """A training begins; returns what it does."""
        fate = self.fates[min(len(self.log), len(self.fates) - 1)]
        self.log.append(fate)
        if fate != "silent":
            self.num_running += 1
            self.most_running = max(self.most_running, self.num_running)
        return fate

    def end(self) -> None:
        """A training ends, with whatever answer; not called by silent ones."""
        self.num_running -= 1


class RunningEngine(Protocol):
    """An engine with an adapter, started for one test."""

    @property
    def selector(self) -> Selector:
        """The adapter's selector, resumed if there was a saved one."""
        ...

    def play(self) -> Collection[str]:
        """Play one round; returns the names of the clients whose updates are used."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def stop(self) -> None:
        """End the server's process in the middle of the run: nothing is tidied up, and its locks are free."""
        ...


class _Spy:
    """Keeps what is reported to the selector."""

    def __init__(self) -> None:
        self.status = defaultdict[str, list[Status]](list)
        self.times_s = defaultdict[str, list[float]](list)
        self.learned_s = defaultdict[str, list[float]](list)

    def __call__(self, event: Any, selector: Any) -> None:
        if isinstance(event, Told):
            told = event.feedback
            names = [str(name) for name in selector.ids_of(told.client)]
            for name, status, time_s, learned_s in zip(
                names, told.status, told.exchange_time_s, event.learned_s, strict=True
            ):
                self.status[name].append(Status(status))
                self.learned_s[name].append(float(learned_s))
                if np.isfinite(time_s):
                    self.times_s[name].append(float(time_s))


class EngineContract:
    """Subclass it, give it your adapter, and run it with pytest.

    Example::

        class TestMine(EngineContract):
            def engine(self, clients, selector, *, state_dir=None):
                return MyEngine(clients, selector, deadline_s=self.deadline_s, state_dir=state_dir)

    Clients have the stable names that are the keys of ``clients``, and all of them are connected.  Rounds end at
    :attr:`deadline_s` after sending, and a client that has not answered after :attr:`give_up_s` has dropped out.  Times
    are those of the engine's clock, which may be a simulated one.

    Attributes:
        quick_s: Time of a training.
        slow_s: Time of a slow one.
        deadline_s: When rounds end.
        late_s: Time of a late training.
        give_up_s: When stragglers are given up.
        cannot: Tests that make no sense with this engine, by name, each with what the engine lacks; they are no tests
            of the subclass.
        tolerance_s: How wrong a measured time may be.
    """

    quick_s: float = 0.02
    slow_s: float = 0.12
    deadline_s: float = 0.3
    late_s: float = 0.5
    give_up_s: float = 1.0
    tolerance_s: float = 0.15
    cannot: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Take away the tests that the engine cannot have.

        Raises:
            TypeError: If ``cannot`` has a name that is no test of the contract, or no reason.
        """
        super().__init_subclass__()
        for name, reason in cls.cannot.items():
            if not (name.startswith("test_") and hasattr(EngineContract, name) and reason):
                raise TypeError(f"cannot has {name!r}: {reason!r}; expected a test of EngineContract, and why")
            setattr(cls, name, None)

    def engine(
        self, clients: Mapping[str, ScriptedClient], selector: Selector, *, state_dir: Path | None = None
    ) -> RunningEngine:
        """Start the engine under test.

        Args:
            clients: The clients, by name.
            selector: Chooses; it is to be given to the adapter as it is.
            state_dir: Where the adapter saves the run, and goes on from; None for nowhere.
        """
        raise NotImplementedError

    def _play(
        self, num_rounds: int, selector: Selector | None = None, m: int = 2, **fates: str | Iterable[str]
    ) -> tuple[RunningEngine, dict[str, ScriptedClient], list[set[str]], _Spy]:
        """Play rounds with clients of these fates; all of them and the engine are returned."""
        clients = {
            name: ScriptedClient((fate,) if isinstance(fate, str) else tuple(fate)) for name, fate in fates.items()
        }
        spy = _Spy()
        engine = self.engine(clients, selector or Selector(Uniform(), cohort_size=m, observers=[spy]))
        return engine, clients, [set(engine.play()) for _ in range(num_rounds)], spy

    def _settle(self, engine: RunningEngine) -> None:
        """Let late replies come, and be met by the next round."""
        engine.wait(self.late_s)
        engine.play()

    # ---------------------------------------------------------------- the cohort

    def test_the_cohort_is_called_and_no_other_client(self) -> None:
        """As many trainings begin as the cohort has clients, and their updates are the ones that are used."""
        _, clients, used, _ = self._play(1, a="ok", b="ok", c="ok", d="ok")
        began = {name for name, client in clients.items() if client.log}
        require(began == used[0] and len(began) == 2, f"{began} trained and {used[0]} were used; expected the same two")

    def test_counts_equal_the_clients_own(self) -> None:
        """How often each client was chosen is what its own log says, and what was promised."""
        rounds, beta = 12, 0.3
        selector = Selector(RBCSF(V=0.0, beta=beta), cohort_size=2)
        engine, clients, *_ = self._play(rounds, selector, a="ok", b="slow", c="ok", d="slow")
        rates = engine.selector.participation_rates()
        own = {name: len(client.log) / rounds for name, client in clients.items()}
        require(
            all(abs(own[name] - rates[name]) < 1e-9 for name in own),
            f"the clients' own logs say {own}, the selector {rates}; expected the same",
        )
        require(min(own.values()) >= beta - 2.0 / rounds, f"the least rate is {min(own.values())}; promised was {beta}")

    # ---------------------------------------------------------------- times

    def test_times_are_measured_at_the_server(self) -> None:
        """Exchange times are those that trainings took."""
        *_, spy = self._play(3, quick="ok", slow="slow")
        for name, expected_s in (("quick", self.quick_s), ("slow", self.slow_s)):
            measured_s = min(spy.times_s[name], default=np.inf)
            require(
                expected_s * 0.9 <= measured_s <= expected_s + self.tolerance_s,
                f"the training of {name} took {expected_s} s, and {measured_s} s was reported",
            )

    def test_a_late_update_is_not_used_and_is_learned_from(self) -> None:
        """The round ends at its deadline; the late client is reported with its own, longer time."""
        engine, _, used, spy = self._play(1, good="ok", late=("late", "ok"))
        require(used[0] == {"good"}, f"{used[0]} were used; expected the one in time")
        self._settle(engine)
        status, times_s = spy.status["late"], spy.times_s["late"]
        require(status[:1] == [Status.LATE], f"the late client was reported as {status}")
        require(
            max(times_s[:1], default=0.0) > self.deadline_s,
            f"its time was reported as {times_s}; expected more than the deadline, {self.deadline_s} s",
        )

    def test_a_client_that_is_still_busy_is_not_called_again(self) -> None:
        """A straggler has no second training while the first is under way."""
        engine, clients, _, _ = self._play(3, good="ok", late="late")
        require(clients["late"].most_running == 1, f"{clients['late'].most_running} trainings of one client overlapped")
        self._settle(engine)
        self._settle(engine)
        require(len(clients["late"].log) >= 2, "a client that was late was never called again")

    # ---------------------------------------------------------------- faults

    def test_a_client_that_fails_neither_stops_the_run_nor_looks_fast(self) -> None:
        """Its update is not used, it is reported as failed, without a time."""
        _, _, used, spy = self._play(2, good="ok", bad="fails")
        require(all(each == {"good"} for each in used), f"{used} were used; expected the one that did not fail")
        status, times_s = spy.status["bad"], spy.times_s["bad"]
        require(set(status) == {Status.FAILED}, f"the failure was reported as {status}")
        require(not times_s, f"a failure was reported with the time {times_s}")

    def test_a_failure_never_looks_fast(self) -> None:
        """It is learned as an exchange that took as long as its round, however soon it came."""
        self._never_looks_fast("fails")
        self._never_looks_fast("malformed")

    def test_a_drop_out_never_looks_fast(self) -> None:
        """It is learned as an exchange that took as long as its round."""
        self._never_looks_fast("silent")

    def _never_looks_fast(self, fate: str) -> None:
        engine, *_, spy = self._play(1, good="slow", bad=(fate, "ok"))
        engine.wait(self.give_up_s)
        engine.play()
        learned_s = max(spy.learned_s["bad"][:1], default=0.0)
        require(
            learned_s >= 0.9 * self.slow_s,
            f"a client that is {fate} was learned as {learned_s} s in a round of {self.slow_s} s; expected no less",
        )

    def test_a_malformed_update_is_refused(self) -> None:
        """It is not used, and reported as failed."""
        _, _, used, spy = self._play(1, good="ok", bad="malformed")
        require(used[0] == {"good"}, f"{used[0]} were used; expected the one that is well-formed")
        status = spy.status["bad"]
        require(status == [Status.FAILED], f"the malformed update was reported as {status}")

    def test_a_round_in_which_all_fail_ends(self) -> None:
        """No update is used, and the next round is played."""
        _, _, used, _ = self._play(2, a=("fails", "ok"), b=("fails", "ok"))
        require(used == [set(), {"a", "b"}], f"{used} were used; expected none and then both")

    def test_a_silent_client_drops_out_and_comes_back(self) -> None:
        """It is given up, reported as dropped, and called again."""
        engine, clients, used, spy = self._play(1, good="ok", gone=("silent", "ok"))
        require(used[0] == {"good"}, f"{used[0]} were used; expected the one that answered")
        engine.wait(self.give_up_s)
        for _ in range(3):
            engine.play()
        status = spy.status["gone"]
        require(status[:1] == [Status.DROPPED], f"its silence was reported as {status}")
        require(len(clients["gone"].log) >= 2, "a client that was given up was never called again")

    # ---------------------------------------------------------------- restarts and rules

    def test_a_restart_goes_on_and_counts_no_client_twice(self, tmp_path: Path) -> None:
        """After a kill the selector goes on; the round that was interrupted is played by the same clients."""
        clients = {name: ScriptedClient() for name in "abcd"}
        before = self.engine(clients, Selector(Uniform(), cohort_size=2), state_dir=tmp_path)
        for _ in range(3):
            before.play()
        chosen = before.selector.participation()
        last = {name: len(client.log) for name, client in clients.items()}
        before.stop()
        after = self.engine(clients, Selector(Uniform(), cohort_size=2), state_dir=tmp_path)
        after.play()
        again = {name for name, client in clients.items() if len(client.log) > last[name]}
        now = after.selector.participation()
        require(after.selector.round in (3, 4), f"the run goes on in round {after.selector.round}; expected 3 or 4")
        if after.selector.round == 3:
            require(now == chosen, f"after the restart {now} were counted, before it {chosen}; expected the same")
        else:
            require(
                now == {name: count + (name in again) for name, count in chosen.items()},
                f"after the restart {now} were counted, before it {chosen}, and {again} trained; expected their sum",
            )
        after.stop()

    def test_rules_hold(self) -> None:
        """A client that the operator's rules exclude is never called, whatever the policy wants."""
        selector = Selector(Uniform(), cohort_size=2, rules=Rules(deny=("c",)))
        _, clients, *_ = self._play(4, selector, a="ok", b="ok", c="ok")
        require(not clients["c"].log, f"a client that the rules exclude trained {len(clients['c'].log)} times")
