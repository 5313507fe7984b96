"""Clustered sampling by sample sizes (Algorithm 1 of the paper), and what it is compared with.

Y. Fraboni, R. Vidal, L. Kameni and M. Lorenzi, "Clustered Sampling: Low-Variance and Improved Representativity for
Clients Selection in Federated Learning", ICML 2021, arXiv:2105.05883.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import Estimates
from fedroster.estimation.reports import assumed_sizes
from fedroster.optimization.ranking import sample_systematically
from fedroster.policies.e3cs import allocate
from fedroster.policies.size_weighted import CountsDraws, SizesState

CITATION = """@inproceedings{fraboni2021clustered,
  author    = {Fraboni, Yann and Vidal, Richard and Kameni, Laetitia and Lorenzi, Marco},
  title     = {Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated
               Learning},
  booktitle = {International Conference on Machine Learning (ICML)},
  year      = {2021},
  eprint    = {2105.05883},
  archivePrefix = {arXiv}
}"""


def pour(share: FloatArray, num_urns: int) -> tuple[IntArray, FloatArray]:
    r"""Pour the clients' masses :math:`m\, p_i` into m urns of mass 1, the largest client first.

    Urn k is the interval [k, k + 1) of a line of length m, on which the masses lie one after the other: what does not
    go into an urn flows into the next.

    Args:
        share: Shares of the samples, shape (clients,), >= 0, one of them > 0.
        num_urns: m >= 1.

    Returns:
        The clients in their order on the line, and the end of each one's mass, shape (clients,), ascending to m.
    """
    order = np.argsort(-share, kind="stable")
    ends: FloatArray = np.cumsum(share[order])
    ends *= num_urns / ends[-1]
    return order, np.append(ends[:-1], float(num_urns))


@dataclass(frozen=True, slots=True)
class ClusteredSampling(CountsDraws):
    r"""Unbiased draws by sample size: m urns of equal mass, one client from each.

    .. math::
        w_i = c_i / m, \qquad E[w_i] = p_i = n_i / \textstyle\sum_j n_j, \qquad
        \operatorname{Var} w_i = \frac{1}{m^2} \sum_{k=1}^{m} r_{ki} (1 - r_{ki}) \le \frac{p_i (1 - p_i)}{m}

    with the number c of urns that drew a client and its mass r in each (:func:`pour`).  A client counts as often as it
    was drawn, and the cohort holds it once.  Two other schemes have the same means:

    * "multinomial", the paper's MD sampling: m draws from all clients by p, with replacement.  Its variance is the
      right-hand side, which "clustered" never exceeds.
    * "systematic": m different clients, client i with probability :math:`\pi_i = \min\{1, c\, p_i\}` and weight
      :math:`p_i / \pi_i`.

    If no more clients are available than places, all are chosen, with the weights p.

    Guarantee: weights are unbiased for the clients that are available, with p among them.  Cost: O(N log N).

    Attributes:
        scheme: "clustered", "multinomial" or "systematic".

    Deviations: all clients are available in the paper; here the urns are poured again in every round.  Poisson sampling
    would choose more than m clients at times; "systematic" has its probabilities and exactly m.  A client whose number
    of samples is not known counts as one that holds the mean of the others.
    """

    citation: ClassVar[str] = CITATION
    decides: ClassVar[str] = "drawn"
    fills_cohort: ClassVar[bool] = False  # a large client is drawn more than once
    estimates: ClassVar[Estimates] = "samples"
    refuses_first: ClassVar[bool] = True

    scheme: Literal["clustered", "multinomial", "systematic"] = "clustered"

    def select(self, state: SizesState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw, and say how often each client was drawn."""
        rows, size = np.flatnonzero(context.available), context.cohort_size
        weight = assumed_sizes(state.num_samples)[context.clients_of(rows)]
        share = weight / weight.max(initial=0.0)
        share /= share.sum()
        if rows.shape[0] <= size:
            return Selection(context.round, rows, drawn=size * share)
        if self.scheme == "systematic":
            inclusion, _ = allocate(np.log(weight), size, 0.0)
            drawn = sample_systematically(inclusion, rng=rng)
            return Selection(context.round, rows[drawn], drawn=size * share[drawn] / inclusion[drawn])
        order, ends = pour(share, size)
        points = np.arange(size) + rng.random(size) if self.scheme == "clustered" else size * rng.random(size)
        drawn, count = np.unique(order[np.searchsorted(ends, points, side="right")], return_counts=True)
        return Selection(context.round, rows[drawn], drawn=count.astype(np.float64))
