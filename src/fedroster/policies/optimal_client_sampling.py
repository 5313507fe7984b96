"""Optimal client sampling: the clients with the largest updates upload, with weights that keep the mean.

W. Chen, S. Horvath and P. Richtarik, "Optimal Client Sampling for Federated Learning", Transactions on Machine Learning
Research 2022, arXiv:2010.13723.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import Natural
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import Asks
from fedroster.estimation.reports import assumed_sizes
from fedroster.optimization.ranking import sample_systematically
from fedroster.policies.size_weighted import CountsDraws, SizesState

CITATION = r"""@article{chen2022optimal,
  author  = {Chen, Wenlin and Horv{\'a}th, Samuel and Richt{\'a}rik, Peter},
  title   = {Optimal Client Sampling for Federated Learning},
  journal = {Transactions on Machine Learning Research},
  year    = {2022},
  eprint  = {2010.13723},
  archivePrefix = {arXiv}
}"""

_PASSES = 4  # of AOCS, as in the authors' code


def optimal(norm: FloatArray, size: int) -> FloatArray:
    r"""Probabilities that minimise the variance of the weighted sum (Chen et al. 2022), shape (q,), in [0, 1].

    .. math:: p_{(i)} = (m + l - q) \frac{u_{(i)}}{\sum_{j \le l} u_{(j)}}\ (i \le l), \qquad p_{(i)} = 1\ (i > l)

    with norms u in ascending order and the largest l for which no probability exceeds 1.  Their sum is m, or the number
    of positive norms if that is less.

    Args:
        norm: u, shape (q,), >= 0.
        size: m >= 1.
    """
    count = norm.shape[0]
    if np.count_nonzero(norm) <= size:
        return np.asarray(norm > 0.0, np.float64)
    order = np.argsort(norm)
    ascending = norm[order]
    total, left = np.cumsum(ascending), size + np.arange(1, count + 1) - count
    last = int(np.flatnonzero((left > 0) & (left * ascending <= total))[-1])
    found = np.ones(count)
    found[order[: last + 1]] = left[last] * ascending[: last + 1] / total[last]
    return np.minimum(found, 1.0)


def approximate(norm: FloatArray, size: int, *, passes: int = _PASSES) -> FloatArray:
    """The same from sums alone, which fits secure aggregation; after few passes the sum may be below m."""
    total = float(norm.sum())
    found = np.minimum(1.0, size * norm / total) if total > 0.0 else np.zeros_like(norm)
    for _ in range(passes):
        below = found < 1.0
        mass = float(found[below].sum())
        if mass <= 0.0:
            break
        factor = (size - norm.shape[0] + int(np.count_nonzero(below))) / mass
        found[below] = np.minimum(1.0, factor * found[below])
        if factor <= 1.0:
            break
    return found


@dataclass(frozen=True, slots=True)
class OptimalClientSampling(CountsDraws):
    r"""Candidates train and report the norm of their update; of these, m upload, large updates more probably.

    .. math:: u_i = w_i \lVert \Delta_i \rVert, \qquad w_i = n_i / \textstyle\sum_{j \in Q} n_j, \qquad
        x \gets x + \eta \sum_{i \in S} \frac{w_i}{p_i} \Delta_i

    with uniformly drawn candidates Q and p by :func:`optimal` or :func:`approximate`.  The norms are asked for between
    training and upload (``context.poll`` with ``asks = "norms"``): the round lasts until the last candidate has
    trained, and then for the uploads.  A candidate that does not answer is none.  Where no client can be asked, all
    norms count as equal, and p goes by size.

    Guarantee: given the candidates, the weighted sum is an unbiased estimate of their mean by samples, with the least
    variance of all independent draws.  Cost: O(q log q), and the training of q clients for m updates.

    Attributes:
        candidates: q, >= m, or 0 for ten times the cohort size; the paper's EMNIST experiment has 32 and m = 3.
        variant: "exact", or "aocs" for four passes of sums.

    Deviations: uploads are drawn systematically, so they are never more than m, with the paper's probabilities for each
    client.  A client whose number of samples is not known counts as one that holds the mean of the others.
    """

    citation: ClassVar[str] = CITATION
    decides: ClassVar[str] = "drawn"
    polls: ClassVar[bool] = True
    asks: ClassVar[Asks] = "norms"
    fills_cohort: ClassVar[bool] = False  # a client without a change need not upload
    refuses_first: ClassVar[bool] = True

    candidates: Natural = 0
    variant: Literal["exact", "aocs"] = "exact"

    def select(self, state: SizesState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw candidates, ask them, and draw the uploads."""
        rows, size = np.flatnonzero(context.available), context.cohort_size
        count = max(self.candidates or 10 * size, size)
        if rows.shape[0] > count:
            rows = np.sort(rng.choice(rows, count, replace=False, shuffle=False))
        norm = np.ones(rows.shape[0])
        if context.poll is not None and rows.shape[0]:
            norm = context.poll(rows)
            rows, norm = rows[~np.isnan(norm)], norm[~np.isnan(norm)]
        weight = assumed_sizes(state.num_samples)[context.clients_of(rows)]
        weight = weight / weight.max(initial=1e-300)
        share = weight / max(float(weight.sum()), 1e-300)
        norm = share * np.clip(norm, 0.0, 1e100)
        chance = (optimal if self.variant == "exact" else approximate)(norm / norm.max(initial=1e-300), size)
        whole = int(np.ceil(chance.sum() - 1e-9))
        drawn = sample_systematically(np.append(chance, max(whole - chance.sum(), 0.0)), rng=rng)
        drawn = drawn[drawn < rows.shape[0]]
        return Selection(context.round, rows[drawn], drawn=size * share[drawn] / chance[drawn])
