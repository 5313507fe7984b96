"""Free places: a client that has answered leaves its place, which is filled at once, and answers change the model."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Count, NotNegative, Parameters


@dataclass(frozen=True, slots=True)
class FreePlaces(Parameters):
    r"""Training in free places: m clients work at any time, and K answers change the model.

    .. math:: x \gets x + \frac{\eta}{m} \Bigl[\sum_{k=1}^{K} c_k (\Delta_k - s\, y_k) + K s \sum_n p_n y_n\Bigr],\qquad
        c_k = \frac{n_k}{\bar n} (1 + \tau_k)^{-b}

    with the update memory's s (0 without), the clients' samples n and :math:`\tau` the changes of the model since a
    client was sent it.  Where a policy weighs its cohorts, :math:`f w_k` stands for :math:`n_k / \bar n`, with f places
    that are filled together: a decision of f places counts as f / m of a round.  m answers move the model as far as a
    round does, whatever K is.  FedBuff (Nguyen et al. 2022) is b = 1/2 without a memory, CA2FL (Wang et al. 2024) is
    b = 0 with one; both draw uniformly and have K = 10.

    Attributes:
        buffer: K, >= 1.
        discount: b, >= 0.
    """

    buffer: Count = 1
    discount: NotNegative = 0.0

    def weights(self, counts: FloatArray, changes: IntArray) -> FloatArray:
        r"""The weights c, shape (k,), of updates that count :math:`n_k / \bar n` after as many changes, shape (k,)."""
        found: FloatArray = counts * (1.0 + changes) ** -self.discount
        return found
