r"""Weights of one over the probability with which each client was chosen: unbiased aggregation, never the default.

D. G. Horvitz and D. J. Thompson, "A Generalization of Sampling Without Replacement From a Finite Universe", JASA 1952.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_number
from fedroster.core.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class InverseWeights:
    r"""Weights of a cohort.

    Attributes:
        weight: Shape (k,), > 0, their sum is 1.
        effective_size: So many updates of equal weight have a mean as certain, :math:`1 / \sum w^2`.
        num_capped: Weights that were cut.
    """

    weight: FloatArray
    effective_size: float
    num_capped: int


def inverse_weights(num_samples: IntArray | FloatArray, inclusion: FloatArray, *, cap: float = 10.0) -> InverseWeights:
    r"""Weigh updates by :math:`n_k / p_k`, so that a cohort stands for all available clients.

    The sum :math:`\sum_{k \in S} n_k w_k / p_k` has the expectation :math:`\sum_k n_k w_k` over the draw of S.  Here
    the weights are also divided by their own sum (self-normalised), which keeps the scale of the model at the price of
    a bias that vanishes with the cohort's size.

    Args:
        num_samples: n of each update, shape (k,), > 0.
        inclusion: p of each, shape (k,), in (0, 1].
        cap: No sample weighs more than this many times another, >= 1: less variance, some bias.

    Raises:
        InvalidInputError: If a probability is not in (0, 1].
    """
    check_number("cap", cap, least=1.0)
    probability = np.asarray(inclusion, np.float64)
    wrong = ~((probability > 0.0) & (probability <= 1.0 + 1e-9))
    if wrong.any():
        raise InvalidInputError(
            f"the probability of update {int(np.flatnonzero(wrong)[0])} is {probability[wrong][0]}; expected 0 < p <= 1"
        )
    factor = 1.0 / probability
    most = cap * float(factor.min(initial=np.inf))
    weight = np.asarray(num_samples, np.float64) * np.minimum(factor, most)
    weight = weight / max(float(weight.sum()), 1e-300)
    size = 1.0 / max(float(np.dot(weight, weight)), 1e-300) if weight.shape[0] else 0.0
    return InverseWeights(weight, size, int(np.count_nonzero(factor > most)))
