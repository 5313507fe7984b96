r"""A fixed pool of whole decisions: the arms of CUCB and LinUCB as Qu et al. 2021 has them (section VI-B, Choice B9).

An arm is a set of (client, server) pairs, drawn once: pairs in random order, each taken while the budgets allow, under
the first round's prices and coverage, which are taken for static resources.  In a later round an arm is played as far
as it can be: in the order in which it was drawn, pairs are left out that are not available or that the budgets of this
round do not allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.core.problem import ProblemSpec
from fedroster.core.state import kept
from fedroster.core.streams import Streams
from fedroster.optimization.budgeted import Choices, fill_in_order

_RECENT = 256
"""Rounds whose feedback is awaited; later feedback is ignored."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """The arms, and which of them was played when.

    Attributes:
        seed: Of the arms and of ties.
        client: Clients of each arm in the order in which they were drawn, shape (arms, width); -1 beyond its end.  No
            arms before the first round with a choice.
        server: Servers, in the same form.
        recent_round: Ring of the last rounds, shape (256,); 0 for none.
        recent_arm: Arm that was played in each, shape (256,).
    """

    seed: int = kept(0, 2**62)
    client: IntArray = kept(-1, sized=True)
    server: IntArray = kept(-1, sized=True)
    recent_round: IntArray = kept(0, "round")
    recent_arm: IntArray = kept(0)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        if self.client.shape != self.server.shape or ((self.client < 0) != (self.server < 0)).any():
            return "arms have clients without servers"
        if (self.client >= spec.num_clients).any() or (self.server >= spec.num_servers).any():
            return "an arm has a client or server that does not exist"
        met = np.sort(np.where(self.client < 0, -1 - np.arange(self.client.shape[1]), self.client), axis=1)
        if (met[:, 1:] == met[:, :-1]).any():
            return "an arm has a client twice"
        if (self.recent_arm >= max(1, self.client.shape[0])).any():
            return "an arm was played that does not exist"
        return ""


def pool_init(rng: Generator) -> PoolState:
    """No arms yet: what is feasible is not known before the first round."""
    nothing = np.zeros((0, 0), np.int64)
    ring = np.zeros(_RECENT, np.int64)
    return PoolState(int(rng.integers(2**62)), nothing, nothing.copy(), ring, ring.copy())


def with_arms(state: PoolState, choices: Choices, pool_size: int) -> PoolState:
    """The pool, drawn if it is not there yet and there is something to choose: the same arms whenever one asks."""
    if state.client.shape[0] or not choices.rows.shape[0]:
        return state
    rng = Streams(state.seed).at("pool")
    arms = [fill_in_order(choices, rng.permutation(choices.rows.shape[0])) for _ in range(pool_size)]
    width = max(arm.shape[0] for arm in arms)
    client, server = np.full((pool_size, width), -1, np.int64), np.full((pool_size, width), -1, np.int64)
    for row, arm in enumerate(arms):
        client[row, : arm.shape[0]] = choices.client[arm]
        server[row, : arm.shape[0]] = choices.server[arm]
    return replace(state, client=client, server=server)


@njit(cache=True, nogil=True)
def _playable(position, cost, purse, budget, most):
    left = np.empty_like(budget)
    for arm in range(position.shape[0]):
        for m in range(budget.shape[0]):  # not left[:] = budget, which takes three seconds to compile
            left[m] = budget[m]
        size = 0
        for i in range(position.shape[1]):
            row = position[arm, i]
            if row < 0:
                continue
            if size == most or cost[row] > left[purse[row]]:
                position[arm, i] = -1
            else:
                left[purse[row]] -= cost[row]
                size += 1


def playable(client: IntArray, server: IntArray, choices: Choices) -> IntArray:
    """What of some arms can be played this round: positions in ``choices``, shape (arms, width); -1 for left out."""
    num_servers = int(max(choices.server.max(initial=0), server.max(initial=0))) + 1
    pair = choices.client * num_servers + choices.server
    order = np.argsort(pair, kind="stable")
    sought = client * num_servers + server
    place = np.searchsorted(pair, sought, sorter=order)
    position = np.full(client.shape, -1, np.int64)
    inside = (client >= 0) & (place < pair.shape[0])
    candidate = order[place[inside]]
    position[inside] = np.where(pair[candidate] == sought[inside], candidate, -1)
    _playable(position, choices.cost, choices.purse, choices.budget, choices.cohort_size)
    return position


def best_arm(state: PoolState, index: FloatArray, round: int) -> int:
    """The arm of the greatest index; the state's own generator breaks ties, so that booking finds the same arm."""
    tied = np.flatnonzero(index == index.max())
    return int(tied[Streams(state.seed).at("ties", round).integers(tied.shape[0])])


def remember(state: PoolState, arm: int, round: int) -> PoolState:
    """Note which arm was played; writes to the state's arrays."""
    state.recent_round[round % _RECENT] = round
    state.recent_arm[round % _RECENT] = arm
    return state


def recall(state: PoolState, round: int) -> int:
    """The arm that was played in a round; -1 if that is too long ago."""
    slot = round % _RECENT
    return int(state.recent_arm[slot]) if int(state.recent_round[slot]) == round else -1
