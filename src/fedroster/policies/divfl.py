"""DivFL: clients whose updates stand for those of all, by greedy facility location.

R. Balakrishnan, T. Li, T. Zhou, N. Himayat, V. Smith and J. Bilmes, "Diverse Client Selection for Federated Learning
via Submodular Maximization", ICLR 2022, https://openreview.net/forum?id=nwKXyFvaUm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because
from fedroster.core.parameters import Range
from fedroster.core.problem import RoundContext, Selection
from fedroster.policies.by_signature import BySignature, SignaturesState

CITATION = """@inproceedings{balakrishnan2022diverse,
  author    = {Balakrishnan, Ravikumar and Li, Tian and Zhou, Tianyi and Himayat, Nageen and Smith, Virginia and
               Bilmes, Jeff},
  title     = {Diverse Client Selection for Federated Learning via Submodular Maximization},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year      = {2022},
  url       = {https://openreview.net/forum?id=nwKXyFvaUm}
}"""

Greedy = Literal["naive", "lazy", "stochastic"]
_MOST_KEPT = 4096  # points of which all distances are kept
_BLOCK = 128  # candidates that are looked at together


def stand_for_all(
    points: FloatArray,
    size: int,
    *,
    greedy: Greedy,
    epsilon: float,
    rng: Generator,
) -> IntArray:
    r"""Points that stand for all others, one after the other (Balakrishnan et al. 2022), shape (size,).

    .. math:: j^* = \arg\min_j \sum_k \min\bigl(b_k, \lVert g_k - g_j \rVert\bigr), \qquad
        b_k \gets \min\bigl(b_k, \lVert g_k - g_{j^*} \rVert\bigr)

    "lazy" chooses what "naive" does, and skips candidates that saved too little before: none saves more later.
    "stochastic" looks at :math:`\lceil (n/m) \ln (1/\varepsilon) \rceil` random candidates at a time.

    Args:
        points: g, shape (n, s).
        size: m < n.
        greedy: Which candidates are looked at.
        epsilon: Of "stochastic", in (0, 1).
        rng: Breaks ties, sums that differ by less than 1e-9 of the first: two neighbours that stand for no others tie.
    """
    from scipy.spatial.distance import cdist  # not for those who only look policies up

    count = points.shape[0]
    order = rng.permutation(count)
    points = points[order]
    kept = cdist(points, points) if count <= _MOST_KEPT else None
    best = np.full(count, np.inf)
    saved = np.full(count, np.inf)
    left = np.ones(count, np.bool_)
    chosen = np.zeros(size, np.int64)
    slack = 0.0
    for step in range(size):
        total = float(best.sum())
        candidate = np.flatnonzero(left)
        if greedy == "stochastic":
            most = math.ceil(count / size * math.log(1.0 / epsilon))
            candidate = np.sort(rng.permutation(candidate)[:most])
        candidate = candidate[np.argsort(-saved[candidate], kind="stable")]
        cost = np.full(count, np.inf)
        least = math.inf
        for start in range(0, candidate.shape[0], _BLOCK):
            block = candidate[start : start + _BLOCK]
            if saved[block[0]] + least + slack < total:
                break
            away = cdist(points[block], points) if kept is None else kept[block]
            cost[block] = np.minimum(best, away).sum(axis=1)
            least = min(least, float(cost[block].min()))
        slack = slack if step else 1e-9 * least
        if greedy == "lazy":
            looked = np.isfinite(cost)
            saved[looked] = total - cost[looked]
        at = int(np.flatnonzero(cost <= least + slack)[0])
        chosen[step] = at
        left[at] = False
        best = np.minimum(best, cdist(points[[at]], points)[0])
    return order[chosen]


def shares(points: FloatArray, chosen: FloatArray) -> FloatArray:
    r"""Share of points (n, s) to which each of some chosen ones (m, s) is nearest, :math:`\gamma_j / n`, shape (m,)."""
    from scipy.spatial.distance import cdist

    nearest = cdist(points, chosen).argmin(axis=1)
    share: FloatArray = np.bincount(nearest, minlength=chosen.shape[0]) / points.shape[0]
    return share


@dataclass(frozen=True, slots=True)
class DivFL(BySignature):
    r"""Clients whose last updates stand for those of all that are available (:func:`stand_for_all`).

    Updates are compared by projections to 64 numbers, a sketch, and those of a cohort count by :func:`shares`.

    Guarantee: from the greatest distance for each client, at least 1 - 1/e of what m clients can save is saved
    ("stochastic": less epsilon, on average); none for training.  Cost: O(N^2) a decision, 0.25 s for N = 3,000, and
    134 MB for N = 4,096.

    Attributes:
        greedy: "naive", "lazy" or "stochastic".
        epsilon: Of "stochastic", in (0, 1).
        weighing: "clusters" for shares, or "samples" as in the authors' code.

    Deviations: (1) signatures are those of a client's last round, without overheads: C2.  (2) Clients that sent no
    update go first, at random, and updates count alike while one is in a cohort.  (3) Ties are broken at random.
    (4) Only available clients are stood for.  (5) The code's stochastic greedy looks at max(m, N/10) of them.
    """

    citation: ClassVar[str] = CITATION
    greedy: Greedy = "lazy"
    epsilon: Annotated[float, Range(above=0.0, below=1.0)] = 0.1
    weighing: Literal["clusters", "samples"] = "clusters"

    def choose(self, points: FloatArray, size: int, round: int, *, rng: Generator) -> IntArray:
        """Those that stand for the others."""
        return stand_for_all(points, size, greedy=self.greedy, epsilon=self.epsilon, rng=rng)

    def explain(self, state: SignaturesState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """By what the cohort is worth together; by chance as long as one in it has sent no update."""
        return Because("worth" if state.reported[context.clients_of(selection.links)].all() else "drawn")

    def weights(self, state: SignaturesState, context: RoundContext, selection: Selection, /) -> FloatArray | None:
        """Shares of the clients for which each stands, shape (k,)."""
        chosen = context.clients_of(selection.links)
        if self.weighing == "samples" or selection.is_empty:
            return None
        if (state.reported[chosen] == 0).any():
            return np.full(chosen.shape[0], 1.0 / chosen.shape[0])
        client = context.clients_of(np.flatnonzero(context.available))
        return shares(state.signature[client[state.reported[client] > 0]], state.signature[chosen])
