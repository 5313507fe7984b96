"""Combinatorial upper confidence bounds, over whole decisions and over pairs.

Over decisions as in Qu et al. 2021 (section VI-B 2; :mod:`fedroster.policies.cocs`).  Over pairs: W. Chen, Y. Wang and
Y. Yuan, "Combinatorial Multi-Armed Bandit: General Framework, Results and Applications", ICML 2013.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Count, NotNegative, Parameters
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import Commits, Defaults, Draws
from fedroster.core.state import kept
from fedroster.estimation.hypercubes import (
    HypercubeState,
    check_hypercubes,
    count_selections,
    count_successes,
    hypercubes_init,
    look_up,
)
from fedroster.optimization.budgeted import Choices, ExactOptions, choices_of
from fedroster.optimization.decision_pool import PoolState, best_arm, playable, pool_init, recall, remember, with_arms
from fedroster.policies.cocs import CITATION as QU

CITATION = """@inproceedings{chen2013combinatorial,
  author    = {Chen, Wei and Wang, Yajun and Yuan, Yang},
  title     = {Combinatorial Multi-Armed Bandit: General Framework, Results and Applications},
  booktitle = {International Conference on Machine Learning (ICML)},
  year      = {2013}
}"""


@dataclass(frozen=True, slots=True)
class CUCBState:
    """What CUCB knows.

    Attributes:
        pool: The arms.
        plays: Rounds in which each arm was played, shape (arms,).
        utility: Updates in time that each arm has brought, shape (arms,).
        rounds: Rounds in which an arm was played.
    """

    pool: PoolState
    plays: IntArray = kept(0, "round", sized=True)
    utility: FloatArray = kept(0.0, sized=True)
    rounds: int = kept(0, "round")

    def flaw(self, spec: ProblemSpec) -> str:
        """What is impossible about it in a federation; empty if nothing is."""
        arms = self.pool.client.shape[0]
        known = self.plays.shape == self.utility.shape and self.plays.ndim == 1
        return self.pool.flaw(spec) or ("" if known and self.plays.shape[0] >= arms else "arms and plays differ")


def ucb1(plays: IntArray, utility: FloatArray, *, rounds: int, scale: float, width: float = 1.0) -> FloatArray:
    r"""UCB1 index, :math:`\bar\mu_a + w\, u \sqrt{2 \ln t / n_a}` (Auer et al. 2002), with rewards in [0, u].

    Args:
        plays: n, shape (arms,).
        utility: Sum of the rewards, shape (arms,).
        rounds: t, plays of all arms together.
        scale: u, the largest reward.
        width: w, factor of the confidence width.

    Returns:
        Shape (arms,); infinite for arms that were never played.
    """
    often = np.maximum(plays, 1)
    index = utility / often + width * scale * np.sqrt(2.0 * math.log(max(rounds, 1)) / often)
    return np.where(plays == 0, np.inf, index)


@dataclass(frozen=True, slots=True)
class CUCB(Parameters, Defaults):
    r"""UCB1 over a fixed pool of decisions (Qu et al. 2021, section VI-B 2): an arm is a whole decision.

    The pool is drawn in the first round, feasible under its prices and coverage, which stand for the static resources
    that the paper gives CUCB; later an arm is played as far as the round allows
    (:mod:`fedroster.optimization.decision_pool`).  To run it on static resources throughout, as the paper does, set the
    network's ``static_resources``.  The reward is the number of updates in time.

    Guarantee: UCB1's :math:`O(\text{arms} \cdot \log T)` regret against the best arm of the pool, with static resources
    only; none against the optimal decision.  Clients that come later are in no arm but those of a client that was
    forgotten, whose slot they take.  Cost: O(arms) a round; the pool takes O(arms x links) once.

    Attributes:
        pool_size: Number of arms, >= 1; state it with every result (Choice B9), and keep it well below the number of
            rounds: an arm that was never played comes before all others.
        width: Factor of the confidence width, >= 0; 1 for UCB1.
    """

    citation: ClassVar[str] = QU
    draws: ClassVar[Draws] = "never"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "arm"

    pool_size: Count = 100
    width: NotNegative = 1.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> CUCBState:
        """Know nothing of any arm."""
        plays = np.zeros(self.pool_size, np.int64)
        return CUCBState(pool=pool_init(rng), plays=plays, utility=np.zeros(self.pool_size), rounds=0)

    def _arm(self, state: CUCBState, context: RoundContext) -> tuple[PoolState, int, Choices]:
        """The pool, the arm to play, -1 if nothing can be chosen, and the choices."""
        choices = choices_of(context)
        pool = with_arms(state.pool, choices, self.pool_size)
        if not choices.rows.shape[0]:
            return pool, -1, choices
        scale = float(pool.client.shape[1])
        index = ucb1(state.plays, state.utility, rounds=state.rounds, scale=scale, width=self.width)
        return pool, best_arm(pool, index, context.round), choices

    def select(self, state: CUCBState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Play the arm of the greatest index, as far as the round allows."""
        pool, arm, choices = self._arm(state, context)
        if arm < 0:
            return Selection(context.round, choices.rows)
        position = playable(pool.client[arm : arm + 1], pool.server[arm : arm + 1], choices)[0]
        return Selection(context.round, np.sort(choices.rows[position[position >= 0]]))

    def commit(self, state: CUCBState, context: RoundContext, selection: Selection, /) -> CUCBState:
        """Count the arm."""
        pool, arm, _ = self._arm(state, context)
        if arm < 0:
            return state
        state.plays[arm] += 1
        return replace(state, pool=remember(pool, arm, context.round), rounds=state.rounds + 1)

    def update(self, state: CUCBState, feedback: Feedback, /) -> CUCBState:
        """Add the updates in time to the arm that was played."""
        arm = recall(state.pool, feedback.round)
        if arm >= 0:
            state.utility[arm] += np.count_nonzero(feedback.status == Status.COMPLETED)
        return state


@dataclass(frozen=True, slots=True)
class CUCBPairsState:
    """What CUCB per pair knows; memory grows with the pairs that were chosen.

    Attributes:
        pairs: Selections and updates in time of every pair that was chosen.
        rounds: Rounds with a link to choose.
    """

    pairs: HypercubeState
    rounds: int = kept(0, "round")


def pair_bounds(counts: IntArray, successes: IntArray, *, rounds: int, width: float = 1.0) -> FloatArray:
    r"""Upper confidence bounds, :math:`\min\{\hat p + w \sqrt{3 \ln t / 2C},\ 1\}` (Chen, Wang and Yuan 2013, CUCB).

    Args:
        counts: C, selections of each pair, shape (links,).
        successes: Updates in time of each, shape (links,).
        rounds: t >= 1.
        width: w, factor of the confidence width.

    Returns:
        Shape (links,), in [0, 1]; 1 for pairs that were never chosen.
    """
    often = np.maximum(counts, 1)
    bound = successes / often + width * np.sqrt(1.5 * math.log(rounds) / often)
    return np.where(counts == 0, 1.0, np.minimum(bound, 1.0))


@dataclass(frozen=True, slots=True)
class CUCBPairs(ExactOptions, Defaults):
    r"""CUCB with semi-bandit feedback (Chen, Wang and Yuan, ICML 2013): an arm is a pair, the solver picks the set.

    .. math:: \max_s \sum_{(n,m) \in s} \min\Bigl\{\hat p_{n,m} + \sqrt{\tfrac{3 \ln t}{2 C_{n,m}}},\ 1\Bigr\}
        \quad\text{s.t. (10b), (10c), (10d)}

    It looks at no context (Choice B9).  Guarantee: with an exact solver and probabilities that do not change,
    :math:`O(\log T)` regret against the best fixed probabilities.  Cost: O(links) and one P2 a round.

    Attributes:
        width: Factor of the confidence width, >= 0; 1 as published.
        gap, node_limit: How P2 is solved (:class:`~fedroster.optimization.budgeted.ExactOptions`).
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "worth"

    width: NotNegative = 1.0

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more pairs than can be numbered."""
        check_hypercubes(spec.num_clients, spec.num_servers, 1, 1)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> CUCBPairsState:
        """Know nothing of any pair: one cell for each, whatever its context."""
        return CUCBPairsState(hypercubes_init(spec.num_clients, spec.num_servers, 1, cells_per_axis=1), rounds=0)

    def values(self, state: CUCBPairsState, choices: Choices, context: RoundContext) -> FloatArray:
        """The bounds."""
        cell = np.zeros(choices.rows.shape[0], np.int64)
        counts, successes = look_up(state.pairs, choices.client, choices.server, cell)
        return pair_bounds(counts, successes, rounds=state.rounds + 1, width=self.width)

    def commit(self, state: CUCBPairsState, context: RoundContext, selection: Selection, /) -> CUCBPairsState:
        """Count the chosen pairs."""
        links = selection.links
        server = None if context.server is None else context.server[links]
        cell = np.zeros(links.shape[0], np.int64)
        pairs = count_selections(state.pairs, context.clients_of(links), server, cell)
        return CUCBPairsState(pairs=pairs, rounds=state.rounds + int(context.available.any()))

    def update(self, state: CUCBPairsState, feedback: Feedback, /) -> CUCBPairsState:
        """Count the updates in time."""
        rows = np.flatnonzero(feedback.status == Status.COMPLETED)
        server = None if feedback.server is None else feedback.server[rows]
        pairs = count_successes(state.pairs, feedback.client[rows], server, np.zeros(rows.shape[0], np.int64))
        return replace(state, pairs=pairs)
