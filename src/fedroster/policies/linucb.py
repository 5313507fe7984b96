"""LinUCB over whole decisions and over pairs.

L. Li, W. Chu, J. Langford and R. E. Schapire, "A Contextual-Bandit Approach to Personalized News Article
Recommendation", WWW 2010, doi:10.1145/1772690.1772758.  Over decisions as in Qu et al. 2021 (section VI-B 3;
:mod:`fedroster.policies.cocs`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Count, NotNegative, Parameters, Positive
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import Commits, Defaults, Draws
from fedroster.core.state import kept
from fedroster.optimization.budgeted import Choices, ExactOptions, choices_of
from fedroster.optimization.decision_pool import PoolState, best_arm, playable, pool_init, recall, remember, with_arms
from fedroster.policies.cocs import CITATION as QU

CITATION = """@inproceedings{li2010contextual,
  author    = {Li, Lihong and Chu, Wei and Langford, John and Schapire, Robert E.},
  title     = {A Contextual-Bandit Approach to Personalized News Article Recommendation},
  booktitle = {International World Wide Web Conference (WWW)},
  year      = {2010},
  doi       = {10.1145/1772690.1772758}
}"""

_LARGEST = 1e6
_ROUNDING = 1e-12


def with_intercept(features: FloatArray) -> FloatArray:
    r"""Contexts with a leading one, :math:`[1, \phi]`, shape (links, D + 1).

    All links share one theta, and next to a context that is far too long all others would be lost in rounding: features
    beyond 1e6 count as 1e6.

    Args:
        features: phi, shape (links, D).
    """
    return np.column_stack((np.ones(features.shape[0]), np.clip(features, -_LARGEST, _LARGEST)))


def upper_bounds(gram: FloatArray, moment: FloatArray, context: FloatArray, *, alpha: float) -> FloatArray:
    r"""Upper confidence bounds :math:`x^\top A^{-1} b + \alpha \sqrt{x^\top A^{-1} x}` (Li et al., Algorithm 1).

    Args:
        gram: A, shape (d, d).
        moment: b, shape (d,).
        context: x of each arm, shape (arms, d).
        alpha: Exploration factor, >= 0.

    Returns:
        Shape (arms,).
    """
    try:
        factor = np.linalg.cholesky(gram)
    except np.linalg.LinAlgError:  # long contexts, and of other directions nothing but rounding is left
        factor = np.linalg.cholesky(gram + _ROUNDING * gram.diagonal().max() * np.eye(gram.shape[0]))
    whitened = np.linalg.solve(factor, np.column_stack((moment, context.T)))
    bound: FloatArray = whitened[:, 1:].T @ whitened[:, 0] + alpha * np.sqrt((whitened[:, 1:] ** 2).sum(axis=0))
    return bound


def _gram_flaw(gram: FloatArray) -> str:
    """What is impossible about A; empty if nothing is."""
    scale = np.sqrt(np.abs(gram.diagonal()))
    limit = np.outer(scale, scale) * (1.0 + 1e-6)
    possible = (gram.diagonal() > 0.0).all() and (gram == gram.T).all() and (np.abs(gram) <= limit).all()
    return "" if possible else "the Gram matrix is not one"


@dataclass(frozen=True, slots=True)
class LinUCBState:
    """What LinUCB knows.

    Attributes:
        pool: The arms.
        gram: A, the regularised sum of x x^T over the rounds, shape (D + 1, D + 1).
        moment: b, the sum of reward times x, shape (D + 1,).
        recent: x of the last rounds' arms, shape (256, D + 1).
    """

    pool: PoolState
    gram: FloatArray = kept(-math.inf)
    moment: FloatArray = kept(-math.inf)
    recent: FloatArray = kept(-math.inf)

    def flaw(self, spec: ProblemSpec) -> str:
        """What is impossible about it in a federation; empty if nothing is."""
        return self.pool.flaw(spec) or _gram_flaw(self.gram)


@dataclass(frozen=True, slots=True)
class LinUCB(Parameters, Defaults):
    r"""LinUCB over a fixed pool of decisions (Qu et al. 2021, section VI-B 3): an arm is a whole decision.

    The utility of an arm is taken to be linear in its pairs' contexts: with one theta for all arms,

    .. math:: \mathbb E\Bigl[\sum_{(n,m) \in s} X_{n,m}\Bigr] = x_s^\top \theta,\qquad
        x_s = \frac1w \sum_{(n,m) \in s} [1, \phi_{n,m}],

    where w is the largest number of pairs in an arm, and the reward is divided by w, too.  The pool is CUCB's; the
    context of an arm is that of the pairs which this round allows (:mod:`fedroster.optimization.decision_pool`).

    Guarantee: :math:`\tilde O(D \sqrt T)` regret against the best arm of the pool if the utility is linear, which it is
    not.  Clients that come later are in no arm but those of a client that was forgotten, whose slot they take.  Cost:
    O(arms x pairs in an arm) a round.

    Attributes:
        pool_size: Number of arms, >= 1; state it with every result (Choice B9).
        alpha: Exploration factor, >= 0.
        ridge: Regularisation, > 0; 1 in Li et al.
    """

    citation: ClassVar[str] = QU
    draws: ClassVar[Draws] = "never"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    wants_contexts: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "arm"

    pool_size: Count = 100
    alpha: NotNegative = 1.0
    ridge: Positive = 1.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> LinUCBState:
        """Know nothing of theta."""
        pool = pool_init(rng)
        size = spec.num_features + 1
        recent = np.zeros((pool.recent_round.shape[0], size))
        return LinUCBState(pool=pool, gram=self.ridge * np.eye(size), moment=np.zeros(size), recent=recent)

    def _arm(self, state: LinUCBState, context: RoundContext) -> tuple[PoolState, int, IntArray, FloatArray]:
        """The pool, the arm to play, -1 if nothing can be chosen, the rows that can be played of it, its context x."""
        choices = choices_of(context)
        pool = with_arms(state.pool, choices, self.pool_size)
        if not choices.rows.shape[0]:
            return pool, -1, choices.rows, state.moment
        position = playable(pool.client, pool.server, choices)
        # The row beyond the last, of zeros, stands for pairs that are left out.
        vectors = np.vstack((with_intercept(context.features[choices.rows]), np.zeros(state.moment.shape[0])))
        x = vectors[position].sum(axis=1) / position.shape[1]
        arm = best_arm(pool, upper_bounds(state.gram, state.moment, x, alpha=self.alpha), context.round)
        return pool, arm, np.sort(choices.rows[position[arm][position[arm] >= 0]]), x[arm]

    def select(self, state: LinUCBState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Play the arm of the greatest bound, as far as the round allows."""
        return Selection(context.round, self._arm(state, context)[2])

    def commit(self, state: LinUCBState, context: RoundContext, selection: Selection, /) -> LinUCBState:
        """Add the arm's context to A."""
        pool, arm, _, x = self._arm(state, context)
        if arm < 0:
            return state
        state.gram[...] += np.outer(x, x)
        state.recent[context.round % state.recent.shape[0]] = x
        return replace(state, pool=remember(pool, arm, context.round))

    def update(self, state: LinUCBState, feedback: Feedback, /) -> LinUCBState:
        """Add the updates in time to b."""
        if recall(state.pool, feedback.round) >= 0:
            reward = np.count_nonzero(feedback.status == Status.COMPLETED) / state.pool.client.shape[1]
            state.moment[...] += reward * state.recent[feedback.round % state.recent.shape[0]]
        return state


@dataclass(frozen=True, slots=True)
class LinUCBPairsState:
    """What LinUCB per pair knows.

    Attributes:
        gram: A, the regularised sum of x x^T over the chosen links, shape (D + 1, D + 1).
        moment: b, the sum of x over the updates in time, shape (D + 1,).
    """

    gram: FloatArray = kept(-math.inf)
    moment: FloatArray = kept(-math.inf)

    def flaw(self, spec: ProblemSpec) -> str:
        """What is impossible about it in a federation; empty if nothing is."""
        return _gram_flaw(self.gram)


@dataclass(frozen=True, slots=True)
class LinUCBPairs(ExactOptions, Defaults):
    r"""LinUCB with semi-bandit feedback (Qin, Chen and Zhu, SDM 2014): an arm is a pair, the solver picks the set.

    .. math:: \max_s \sum_{(n,m) \in s} \min\Bigl\{\bigl[x_{n,m}^\top \hat\theta
        + \alpha \sqrt{x_{n,m}^\top A^{-1} x_{n,m}}\bigr]^+,\ 1\Bigr\},\qquad x_{n,m} = [1, \phi_{n,m}],

    subject to (10b), (10c), (10d), with one theta for all pairs (Choice B9): it learns fast, and never what tells pairs
    with equal contexts apart.

    Guarantee: :math:`\tilde O(D \sqrt{T})` regret if participation is linear in the context.  Cost: O(links x D^2)
    and one P2 a round.

    Attributes:
        alpha: Exploration factor, >= 0.
        ridge: Regularisation, > 0.
        gap, node_limit: How P2 is solved (:class:`~fedroster.optimization.budgeted.ExactOptions`).
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    wants_contexts: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "worth"

    alpha: NotNegative = 1.0
    ridge: Positive = 1.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> LinUCBPairsState:
        """Know nothing of theta."""
        size = spec.num_features + 1
        return LinUCBPairsState(gram=self.ridge * np.eye(size), moment=np.zeros(size))

    def values(self, state: LinUCBPairsState, choices: Choices, context: RoundContext) -> FloatArray:
        """The bounds."""
        x = with_intercept(context.features[choices.rows])
        return np.clip(upper_bounds(state.gram, state.moment, x, alpha=self.alpha), 0.0, 1.0)

    def commit(self, state: LinUCBPairsState, context: RoundContext, selection: Selection, /) -> LinUCBPairsState:
        """Add the chosen links to A."""
        x = with_intercept(context.features[selection.links])
        state.gram[...] += x.T @ x
        return state

    def update(self, state: LinUCBPairsState, feedback: Feedback, /) -> LinUCBPairsState:
        """Add the updates in time to b."""
        in_time = feedback.status == Status.COMPLETED
        state.moment[...] += with_intercept(feedback.features[in_time]).sum(axis=0)
        return state
