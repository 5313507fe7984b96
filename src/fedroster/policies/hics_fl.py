"""HiCS-FL: clients of clusters whose labels look balanced, as updates of the output layer's bias tell.

H. Chen and H. Vikalo, "Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated Learning",
NeurIPS 2024, arXiv:2310.00198.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Count, NotNegative, Positive
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import Signature
from fedroster.optimization.ward import ward
from fedroster.policies.by_signature import BySignature, SignaturesState

CITATION = """@inproceedings{chen2024hics,
  author    = {Chen, Huancheng and Vikalo, Haris},
  title     = {Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-{IID} Federated Learning},
  booktitle = {Advances in Neural Information Processing Systems (NeurIPS)},
  year      = {2024},
  eprint    = {2310.00198},
  archivePrefix = {arXiv}
}"""


def balances(bias: FloatArray, temperature: float) -> FloatArray:
    r"""Entropy :math:`H_k` of the softmax of :math:`\Delta b_k / T` (n, classes), shape (n,), nats."""
    from scipy.special import entr, softmax  # not for those who only look policies up: it takes a third of a second

    found: FloatArray = entr(softmax(bias / temperature, axis=1)).sum(axis=1)
    return found


def cluster(bias: FloatArray, balance: FloatArray, count: int, weight: float) -> IntArray:
    r"""Ward's cluster of each client, by :math:`\angle(\Delta b_k, \Delta b_j) + \lambda |H_k - H_j|`, shape (n,)."""
    norm = np.linalg.norm(bias, axis=1)
    unit = bias / np.where(norm > 0.0, norm, 1.0)[:, None]
    square = unit @ unit.T
    square[norm == 0.0] = square[:, norm == 0.0] = 1.0  # an update of zero is at angle 0
    for i, row in enumerate(square):
        apart = np.arccos(np.clip(row[i:], -1.0, 1.0)) + weight * np.abs(balance[i] - balance[i:])
        row[i:] = square[i:, i] = apart * apart
    return ward(square, count)


@dataclass(frozen=True, slots=True)
class HiCSFL(BySignature):
    r"""Draws one of m clusters for each place by :math:`\exp(\gamma (1 - t/T) \bar H_q)`, and a client of it uniformly.

    Guarantee: none; the paper's results are empirical.  Cost: O(N^2) a decision, and 8 N^2 bytes, as Ward's rule needs
    the distances of all pairs: 150 to 240 sorts of a million numbers for N = 10,000, where two are the target.

    Attributes:
        classes: Entries of the output layer's bias, whose update is nearly a histogram of a client's labels.
        horizon: T, rounds; t is 0 in the first.
        gamma: Weight of a cluster's mean balance in the first round, >= 0.
        temperature: Of the softmax; in proportion to the clients' step size, 0.001 for Adam with 0.001.
        balance_weight: lambda, of differences of balance beside angles in radians.

    Deviations: (1) biases, where the authors' code has weights.  (2) Clients that sent no update go first, at random,
    where the paper has all in turn.  (3) The code draws otherwise where H has a variance of 0.1 or more: C1.
    """

    citation: ClassVar[str] = CITATION
    decides: ClassVar[str] = "drawn"
    classes: Count = 10
    horizon: Count = 500
    gamma: NotNegative = 4.0
    temperature: Positive = 0.001
    balance_weight: NotNegative = 10.0

    @property
    def signature(self) -> Signature:
        """The bias."""
        return Signature("bias", self.classes)

    def choose(self, points: FloatArray, size: int, round: int, *, rng: Generator) -> IntArray:
        """Clusters by balance, those with a client left, then clients."""
        from scipy.special import softmax

        balance = balances(points, self.temperature)
        label = cluster(points, balance, size, self.balance_weight)
        height = self.gamma * max(1.0 - (round - 1) / self.horizon, 0.0) * np.bincount(label, balance)
        height /= np.bincount(label)
        left = np.arange(label.size)
        for _ in range(size):
            here = label[left]
            at = rng.choice(left.shape[0], p=softmax(height[here] - np.log(np.bincount(here)[here])))
            left = np.delete(left, at)
        return np.setdiff1d(np.arange(label.size), left)

    def weights(self, state: SignaturesState, context: RoundContext, selection: Selection, /) -> FloatArray:
        """The same for each, shape (k,)."""
        return np.full(selection.links.shape[0], 1.0 / max(selection.links.shape[0], 1))
