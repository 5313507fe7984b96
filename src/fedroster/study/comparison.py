"""One run of a comparison: a policy in a scenario with a seed, with training or without, with its decisions timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.catalogue import make_policy, make_scenario
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import AnyPolicy
from fedroster.simulation import Round, simulate
from fedroster.study.experiment import ALONE, Conditions
from fedroster.study.measures import Recorder
from fedroster.study.training import train
from fedroster.task import Task


@dataclass(frozen=True, slots=True)
class ComparisonRun:
    """The course of one run.

    Attributes:
        round_time_s: Time of each round, shape (rounds,), seconds.
        decision_s: Time that the policy took to decide and to learn in each round, shape (rounds,), seconds: on this
            machine and this once, so the only numbers that differ when the run is repeated.  Polls are not in it.
        cohort_size: Clients chosen in each round, shape (rounds,).
        participants: Updates in time in each round, shape (rounds,).
        mean_backlog: Mean length of the queues (6) at the measured rate after each round, shape (rounds,).
        chosen: How often each client was chosen, shape (clients,).
        available: How often each client was available and, where it has a price, some server in its reach could pay it,
            shape (clients,).
        accuracy: Test accuracy after each round, shape (rounds,), in [0, 1]; NaN without training.
        test_loss: Test loss after each round, shape (rounds,); NaN without training.
        refused: Updates that were refused in each round, shape (rounds,).
        budget_used: Share of all servers' budgets together that each round's cohort cost, shape (rounds,); shape (0,)
            where nothing has a price.
    """

    round_time_s: FloatArray
    decision_s: FloatArray
    cohort_size: IntArray
    participants: IntArray
    mean_backlog: FloatArray
    chosen: IntArray
    available: IntArray
    accuracy: FloatArray
    test_loss: FloatArray
    refused: IntArray
    budget_used: FloatArray = field(default_factory=lambda: np.empty(0))

    @property
    def num_rounds(self) -> int:
        """Number of rounds T."""
        return int(self.round_time_s.shape[0])


class _Timed:
    """A policy and a watch."""

    def __init__(self, policy: AnyPolicy) -> None:
        self._policy = policy
        self.spent_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def __repr__(self) -> str:
        return repr(self._policy)  # checkpoints are labelled with it

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> Any:
        return self._policy.init(spec, rng=rng)

    def select(self, state: Any, context: RoundContext, /, *, rng: Generator) -> Selection:
        waited_s = 0.0
        if context.poll is not None:
            ask = context.poll

            def poll(links: IntArray) -> FloatArray:
                nonlocal waited_s
                asked_at = time.perf_counter()
                losses = ask(links)
                waited_s += time.perf_counter() - asked_at
                return losses

            context = replace(context, poll=poll)
        started = time.perf_counter()
        selection: Selection = self._policy.select(state, context, rng=rng)
        self.spent_s += time.perf_counter() - started - waited_s
        return selection

    def commit(self, state: Any, context: RoundContext, selection: Selection, /) -> Any:
        started = time.perf_counter()
        state = self._policy.commit(state, context, selection)
        self.spent_s += time.perf_counter() - started
        return state

    def update(self, state: Any, feedback: Feedback, /) -> Any:
        started = time.perf_counter()
        state = self._policy.update(state, feedback)
        self.spent_s += time.perf_counter() - started
        return state


class _TimedRecorder(Recorder):
    """Measures rounds, the time that the policy spent on each, the share of the budgets, and who could be paid."""

    def __init__(self, num_clients: int, *, rate: float, policy: _Timed) -> None:
        super().__init__(num_clients, rate=rate)
        self._policy = policy
        self.decision_s: list[float] = []
        self.budget_used: list[float] = []
        self.affordable = np.zeros(num_clients, np.int64)

    def add(self, played: Round) -> None:
        super().add(played)
        self.decision_s.append(self._policy.spent_s)
        self._policy.spent_s = 0.0
        context = played.context
        if context.cost is None or context.budget is None:
            return
        whole = float(context.budget.sum())
        self.budget_used.append(float(context.cost[played.selection.links].sum()) / whole if whole > 0.0 else 0.0)
        payable = context.cost <= (context.budget[0] if context.server is None else context.budget[context.server])
        clients = np.unique(context.clients_of(np.flatnonzero(context.available & payable)))
        self.affordable[clients] += 1

    def records(self) -> dict[str, NDArray[Any]]:
        return super().records() | {
            "decision_s": np.array(self.decision_s),
            "budget_used": np.array(self.budget_used),
            "affordable": self.affordable,
        }

    def restore(self, records: Mapping[str, NDArray[Any]]) -> None:
        super().restore(records)
        self.decision_s = records["decision_s"].tolist()
        self.budget_used = records["budget_used"].tolist()
        self.affordable = records["affordable"].copy()


@dataclass(frozen=True, slots=True)
class ComparisonCell:
    """One run.

    Attributes:
        scenario: Name, optionally with version.
        policy: Policy as text.
        seed: Seed of the network, the partition, the model and the batches.
        num_rounds: T.
        rate: beta at which participation is measured, the same for every policy, in [0, 1].
        task: What is trained; None for no training.
        settings: Parameters of the scenario that are overridden, as text.
        evaluate_every: The model is tested after every so many rounds, and after the last.
    """

    scenario: str
    policy: str
    seed: int
    num_rounds: int
    rate: float
    task: Task | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    evaluate_every: int = 1

    def check(self) -> None:
        """Raise what :meth:`run` would, without running: unknown names, bad values, promises that cannot be kept."""
        check_integer("rounds", self.num_rounds, least=1)
        check_integer("evaluate_every", self.evaluate_every, least=1)
        check_number("rate", self.rate, least=0.0, most=1.0)
        if self.task is not None:
            self.task.check()
        make_policy(self.policy).check(make_scenario(self.scenario, self.settings).spec)

    def run(self, conditions: Conditions = ALONE) -> ComparisonRun | None:
        """Play the rounds; with training from the checkpoint if there is one, and None if the time is up first.

        Args:
            conditions: Device, data, checkpoint and time.  Without training a run is short: it keeps no checkpoint,
                and where the time is up already it does not begin.
        """
        if self.task is None and time.time() > conditions.stop_at:
            return None
        policy = _Timed(make_policy(self.policy))
        environment = make_scenario(self.scenario, self.settings)
        recorder = _TimedRecorder(environment.spec.num_clients, rate=self.rate, policy=policy)
        if self.task is None:
            for played in simulate(cast(AnyPolicy, policy), environment, num_rounds=self.num_rounds, seed=self.seed):
                recorder.add(played)
                conditions.played(1)
            accuracy, loss = np.full((2, self.num_rounds), np.nan)
            refused = np.zeros(self.num_rounds, np.int64)
        else:
            tests = train(self, cast(AnyPolicy, policy), environment, recorder, conditions, task=self.task)
            if tests is None:
                return None
            accuracy, loss, refused = tests.accuracy, tests.loss, tests.refused
        course = recorder.trajectory()
        return ComparisonRun(
            round_time_s=course.round_time_s,
            decision_s=np.array(recorder.decision_s),
            cohort_size=course.cohort_size,
            participants=course.participants,
            mean_backlog=course.mean_backlog,
            chosen=course.chosen,
            available=recorder.affordable if recorder.budget_used else course.available,
            accuracy=accuracy,
            test_loss=loss,
            refused=refused,
            budget_used=np.array(recorder.budget_used),
        )

    @property
    def work(self) -> float:
        """Rough cost in seconds, to decide whether processes pay."""
        clients = int(self.settings.get("num_clients", "1000"))
        training = 0.0 if self.task is None else 0.01 if self.task.name == "digits" else 0.1
        return self.num_rounds * (1e-4 + 1e-7 * clients + training)
