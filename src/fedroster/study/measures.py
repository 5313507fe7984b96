"""What is measured on a run, whatever the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.bounds import drift_plus_cost_bound, lyapunov_drift
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import Status
from fedroster.core.state import pack
from fedroster.queues import queue_step, snap_rate
from fedroster.simulation import Round


def jain_index(values: FloatArray | IntArray) -> float:
    r"""Jain's fairness index, :math:`(\sum_n x_n)^2 / (N \sum_n x_n^2)`, in [1/N, 1]; 1 when all are equal.

    Nobody having anything is perfectly equal too.

    Args:
        values: One value for each client, shape (clients,), >= 0.
    """
    x = np.asarray(values, np.float64)
    squares = float(np.dot(x, x))
    return float(x.sum()) ** 2 / (x.shape[0] * squares) if squares > 0.0 else 1.0


LEAST_CHANCES = 10
"""Clients that were available in fewer rounds than this have no participation per available round worth a number."""


@dataclass(frozen=True, slots=True)
class Participation:
    """Who took part, against who could.

    A client that is seldom there cannot take part often, whatever the policy does; so rates are also taken over the
    rounds in which the client was available.

    Attributes:
        lowest_rate: Least share of all rounds in which a client was chosen.
        least_served: Mean, over the tenth of the clients that have least of it, of the share of its available rounds in
            which a client was chosen; clients with fewer than :data:`LEAST_CHANCES` available rounds are left out.
        lowest_served: The least of these shares: one client's.
        share_with_rate: Share of the clients that were chosen in at least beta of all rounds.
        share_served: Share of the clients that were chosen in at least beta of all rounds or, if they were available in
            fewer rounds than that, in all of these; clients that never were are left out.
        jain_index: Jain's index of how often clients were chosen.
        jain_available: Jain's index of the shares that ``least_served`` is about.
        never: Share of the clients that were available and never chosen.
    """

    lowest_rate: float
    least_served: float
    lowest_served: float
    share_with_rate: float
    share_served: float
    jain_index: float
    jain_available: float
    never: float


def participation(chosen: IntArray, available: IntArray, *, num_rounds: int, rate: float) -> Participation:
    """Measure who took part.

    Args:
        chosen: How often each client was chosen, shape (clients,).
        available: How often each client was available, shape (clients,).
        num_rounds: T >= 1.
        rate: beta.
    """
    owed = rate * num_rounds * (1.0 - 1e-12)  # a rate that is met exactly is met
    present = available > 0
    # In a run too short for that many chances, whoever was there at all counts.
    counted = available >= LEAST_CHANCES
    counted = counted if counted.any() else present
    share = np.sort(chosen[counted] / available[counted])
    tenth = share[: math.ceil(share.shape[0] / 10)]
    return Participation(
        lowest_rate=float(chosen.min()) / num_rounds,
        least_served=float(tenth.mean()) if tenth.shape[0] else 0.0,
        lowest_served=float(tenth[0]) if tenth.shape[0] else 0.0,
        share_with_rate=float((chosen >= owed).mean()),
        share_served=float((chosen >= np.minimum(owed, available))[present].mean()) if present.any() else 1.0,
        jain_index=jain_index(chosen),
        jain_available=jain_index(share) if share.shape[0] else 1.0,
        never=float((chosen == 0)[present].mean()) if present.any() else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The course of one run without training.

    Attributes:
        round_time_s: Time of each round, shape (rounds,), seconds.
        cohort_size: Clients chosen in each round, shape (rounds,).
        mean_backlog: Mean length of the queues (6) at the measured rate after each round, shape (rounds,).
        bound_margin: How far each round's drift plus cost stays below the bound (11), shape (rounds,).
        chosen: How often each client was chosen, shape (clients,).
        available: How often each client was available, shape (clients,).
        participants: Updates in time in each round, the utility of paper B (7) summed over servers (Choice B8), shape
            (rounds,).
        missed: Chosen clients whose update was late or never came, in each round, shape (rounds,).
        spent: Price of each round's cohort, shape (rounds,).
        exploring: 1 for rounds in which the policy explored, for policies that tell, shape (rounds,).
        gap: Proven gap of each round's decision (:attr:`~fedroster.core.problem.Selection.gap`), shape (rounds,); NaN
            where none is proven.  Empty for runs that were kept before it was measured.
    """

    round_time_s: FloatArray
    cohort_size: IntArray
    mean_backlog: FloatArray
    bound_margin: FloatArray
    chosen: IntArray
    available: IntArray
    participants: IntArray
    missed: IntArray
    spent: FloatArray
    exploring: IntArray
    gap: FloatArray = field(default_factory=lambda: np.empty(0), kw_only=True)

    @property
    def num_rounds(self) -> int:
        """Number of rounds T."""
        return int(self.round_time_s.shape[0])

    @property
    def participation_rate(self) -> FloatArray:
        """Share of the rounds in which each client was chosen, shape (clients,)."""
        return self.chosen / max(self.num_rounds, 1)

    def summary(self) -> dict[str, float | int]:
        """The measures that a comparison prints."""
        rate = self.participation_rate
        total_time_s = float(self.round_time_s.sum())
        return {
            "rounds": self.num_rounds,
            "total_time_s": total_time_s,
            "mean_round_time_s": total_time_s / max(self.num_rounds, 1),
            "mean_cohort_size": float(self.cohort_size.mean()) if self.num_rounds else 0.0,
            "min_participation_rate": float(rate.min()),
            "max_participation_rate": float(rate.max()),
            "jain_index": jain_index(self.chosen),
            "final_mean_backlog": float(self.mean_backlog[-1]) if self.num_rounds else 0.0,
            "empty_rounds": int(np.count_nonzero(self.cohort_size == 0)),
            "cumulative_utility": int(self.participants.sum()),
            "mean_participants": float(self.participants.mean()) if self.num_rounds else 0.0,
            "explore_share": float(self.exploring.mean()) if self.num_rounds else 0.0,
            "budget_used": float(self.spent.mean()) if self.num_rounds else 0.0,
            "deadline_misses": int(self.missed.sum()),
        }


class Recorder:
    """Measures rounds as they pass.

    The queues (6) are kept here, at the rate that is asked for, for policies that keep none as well: so every policy
    can be asked what it would owe.
    """

    def __init__(self, num_clients: int, *, rate: float) -> None:
        """Start before round 1.

        Args:
            num_clients: N.
            rate: beta.
        """
        self._rate = snap_rate(rate)
        self._backlog = np.zeros(num_clients)
        self._chosen = np.zeros(num_clients, np.int64)
        self._available = np.zeros(num_clients, np.int64)
        self._time_s: list[float] = []
        self._cohort_size: list[int] = []
        self._mean_backlog: list[float] = []
        self._bound_margin: list[float] = []
        self._participants: list[int] = []
        self._missed: list[int] = []
        self._spent: list[float] = []
        self._explored = [0]
        self._gap: list[float] = []

    def records(self) -> dict[str, NDArray[Any]]:
        """Everything that was measured so far, to save it."""
        return pack(self.trajectory()) | {"backlog": self._backlog}

    def restore(self, records: Mapping[str, NDArray[Any]]) -> None:
        """Go on after what :meth:`records` returned.

        Args:
            records: Arrays by name.
        """
        self._backlog = records["backlog"].copy()
        self._chosen, self._available = records["chosen"].copy(), records["available"].copy()
        self._time_s = records["round_time_s"].tolist()
        self._cohort_size = records["cohort_size"].tolist()
        self._mean_backlog = records["mean_backlog"].tolist()
        self._bound_margin = records["bound_margin"].tolist()
        self._participants = records["participants"].tolist()
        self._missed = records["missed"].tolist()
        self._spent = records["spent"].tolist()
        self._explored = [0, *records["exploring"].cumsum().tolist()]
        unknown = np.full(len(self._time_s), np.nan)  # a checkpoint from before it was measured
        self._gap = records.get("gap", unknown).tolist()

    def add(self, played: Round) -> None:
        """Measure one round."""
        clients = played.context.clients_of(played.selection.links)
        before = self._backlog.copy()
        queue_step(self._backlog, beta=self._rate, served=clients, members=played.context.members)
        self._chosen[clients] += 1
        reachable = played.context.available
        if played.context.client is None:
            self._available += reachable
        else:
            self._available[played.context.client[reachable]] = self._available[played.context.client[reachable]] + 1
        self._time_s.append(played.time_s)
        self._cohort_size.append(clients.shape[0])
        self._mean_backlog.append(float(self._backlog.mean()))
        # V f stands on both sides of (11) and drops out.
        bound = drift_plus_cost_bound(before, clients, beta=self._rate, V=0.0, round_time_s=0.0)
        in_time = int(np.count_nonzero(played.feedback.status == Status.COMPLETED))
        self._participants.append(in_time)
        self._missed.append(clients.shape[0] - in_time)
        prices = played.context.cost
        self._spent.append(0.0 if prices is None else float(prices[played.selection.links].sum()))
        self._gap.append(math.nan if played.selection.gap is None else played.selection.gap)
        self._explored.append(int(getattr(played.policy_state, "exploring_rounds", 0)))
        self._bound_margin.append(bound - lyapunov_drift(before, self._backlog))

    def trajectory(self) -> Trajectory:
        """All rounds so far."""
        return Trajectory(
            round_time_s=np.array(self._time_s),
            cohort_size=np.array(self._cohort_size, np.int64),
            mean_backlog=np.array(self._mean_backlog),
            bound_margin=np.array(self._bound_margin),
            chosen=self._chosen,
            available=self._available,
            participants=np.array(self._participants, np.int64),
            missed=np.array(self._missed, np.int64),
            spent=np.array(self._spent),
            exploring=np.diff(self._explored),
            gap=np.array(self._gap),
        )
