"""F3AST: the clients whose turn reduces the variance most, where availability comes and goes.

M. Ribero, H. Vikalo and G. de Veciana, "Federated Learning Under Intermittent Client Availability and Time-Varying
Communication Constraints", IEEE Journal of Selected Topics in Signal Processing 2023, doi:10.1109/JSTSP.2022.3224590,
arXiv:2205.06730.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import Range
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, Draws
from fedroster.core.state import per_client
from fedroster.estimation.reports import assumed_sizes
from fedroster.optimization.ranking import greatest
from fedroster.policies.size_weighted import LearnsSizes

CITATION = r"""@article{ribero2023federated,
  author  = {Ribero, M{\'o}nica and Vikalo, Haris and de Veciana, Gustavo},
  title   = {Federated Learning Under Intermittent Client Availability and Time-Varying Communication Constraints},
  journal = {IEEE Journal of Selected Topics in Signal Processing},
  year    = {2023},
  doi     = {10.1109/JSTSP.2022.3224590},
  eprint  = {2205.06730},
  archivePrefix = {arXiv}
}"""

_LEAST = 1e-9  # a smaller rate counts as it: of a client that was away for thousands of rounds


@dataclass(frozen=True, slots=True)
class F3ASTState:
    """What F3AST knows.

    Attributes:
        rate: r, smoothed rate of participation of each client, shape (clients,), in (0, 1].
        num_samples: Samples of each client, shape (clients,); 0 where it is not known.
    """

    rate: FloatArray = per_client(least=_LEAST, most=1.0)
    num_samples: FloatArray = per_client(least=0.0)


@dataclass(frozen=True, slots=True)
class F3AST(LearnsSizes):
    r"""The m available clients of greatest :math:`p_k^2 / r_k^2`, the slope of the variance in a client's rate.

    .. math::
        S_t = \arg\max_{S \subseteq A_t,\ |S| = m} \sum_{k \in S} \frac{p_k^2}{r_k^2}, \qquad
        r_k \gets (1 - \beta)\, r_k + \beta\, \mathbf 1(k \in S_t), \qquad w_k = \frac{p_k}{r_k}

    with the share of the samples :math:`p_k = n_k / \sum_j n_j` of all members.  Members' rates go on in rounds in
    which no client is available, and weights have the rate after the round.  Long-run rates minimise
    :math:`\sum_k p_k^2 / r_k`: with all clients available they are :math:`\min\{1, c\, p_k\}` with the c that makes
    them m together.

    Guarantee: none in a given round; the paper proves that rates come near the best ones of a stationary availability,
    and the weighted sum of updates then comes near :math:`\sum_k p_k \Delta_k`.  It is no unbiased estimate: a client's
    rate is greatest after its turn, so that one with a turn in n rounds counts :math:`(1 - (1 - \beta)^n) / (n \beta)`
    of its share, .95 for n = 10.  Cost: O(N).

    Attributes:
        beta: Step of the smoothed rates, in (0, 1); it promises nothing.

    Deviations: rates begin at 1 / N.  The authors' code divides the sum by m as well, which is a step size.  A client
    whose number of samples is not known counts as one that holds the mean of the others.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    decides: ClassVar[str] = "turn"
    promises: ClassVar[bool] = False
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True

    beta: Annotated[float, Range(above=0.0, below=1.0)] = 0.01

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> F3ASTState:
        """Equal rates."""
        return F3ASTState(np.full(spec.num_clients, 1.0 / spec.num_clients), np.zeros(spec.num_clients))

    def select(self, state: F3ASTState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose by share over rate, which has the order of its square."""
        rows = np.flatnonzero(context.available)
        score = (assumed_sizes(state.num_samples) / state.rate)[context.clients_of(rows)]
        return Selection(context.round, rows[greatest(score, context.cohort_size, rng=rng)])

    def commit(self, state: F3ASTState, context: RoundContext, selection: Selection, /) -> F3ASTState:
        """Move the members' rates, in empty rounds too."""
        here = ... if context.members is None else context.members
        state.rate[here] = np.maximum((1.0 - self.beta) * state.rate[here], _LEAST)
        state.rate[context.clients_of(selection.links)] += self.beta
        np.minimum(state.rate, 1.0, out=state.rate)
        return state

    def weights(self, state: F3ASTState, context: RoundContext, selection: Selection, /) -> FloatArray:
        """Share over the rate after this round, shape (k,)."""
        sizes, client = assumed_sizes(state.num_samples), context.clients_of(selection.links)
        total = sizes.sum() if context.members is None else sizes[context.members].sum()
        weight: FloatArray = sizes[client] / total / ((1.0 - self.beta) * state.rate[client] + self.beta)
        return weight
