"""Active federated learning (AFL): draws that grow with the clients' losses, and a few at random.

J. Goetz, K. Malik, D. Bui, S. Moon, H. Liu and A. Kumar, "Active Federated Learning", 2019, arXiv:1909.12641.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import Range, Share
from fedroster.core.problem import RoundContext, Selection
from fedroster.estimation.reports import assumed_sizes
from fedroster.optimization.ranking import fill_up, greatest
from fedroster.policies.power_of_choice import LearnsLosses, PowerOfChoiceState

CITATION = """@misc{goetz2019active,
  author = {Goetz, Jack and Malik, Kshitiz and Bui, Duc and Moon, Seungwhan and Liu, Honglei and Kumar, Anuj},
  title  = {Active Federated Learning},
  year   = {2019},
  eprint = {1909.12641},
  archivePrefix = {arXiv}
}"""


def valuations(loss: FloatArray, num_samples: FloatArray) -> FloatArray:
    r"""Values of clients, :math:`v_k = \sqrt{n_k}\, L_k`, shape (clients,); infinite where no loss is known.

    Args:
        loss: Mean loss L of the model that a client was sent last, shape (clients,); infinite where it is not known.
        num_samples: n, shape (clients,); 0 where it is not known, which stands for the mean of the others.
    """
    value: FloatArray = np.sqrt(assumed_sizes(num_samples)) * loss
    return value


@dataclass(frozen=True, slots=True)
class AFL(LearnsLosses):
    r"""Leaves out clients of little value, draws most of the cohort by value, and the rest at random.

    Of the a available clients, the :math:`\lfloor \alpha_1 a \rfloor` of least value
    :math:`v_k = \sqrt{n_k}\, L_k` are left out.  Of the others, :math:`\lfloor (1 - \alpha_3) m \rfloor` are drawn one
    after the other, the next with probability proportional to :math:`\exp(\alpha_2 v_k)` among those left.  The places
    that remain go to any other available clients, each equally likely.

    Guarantee: none; the paper's results are empirical.  Cost: O(N).

    Attributes:
        alpha_1: Share of the available clients that is left out, in [0, 1].
        alpha_2: Weight of a value in the exponent, in [0, 1e6]; 0 for equal chances.
        alpha_3: Share of the cohort that is drawn uniformly, in [0, 1].

    Deviations: a client that never reported a loss is drawn before all others; the paper measures all losses before the
    first round.  The sampling is Gumbel's: the same law as successive draws, and no exponential overflows.
    """

    citation: ClassVar[str] = CITATION
    decides: ClassVar[str] = "drawn"
    refuses_first: ClassVar[bool] = True

    alpha_1: Share = 0.75
    alpha_2: Annotated[float, Range(least=0.0, most=1e6)] = 0.01
    alpha_3: Share = 0.1

    def select(self, state: PowerOfChoiceState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw by value, then at random."""
        rows = np.flatnonzero(context.available)
        value = valuations(state.loss, state.num_samples)[context.clients_of(rows)]
        kept = greatest(value, rows.shape[0] - int(self.alpha_1 * rows.shape[0] + 1e-9), rng=rng)
        value = value[kept]
        score: FloatArray = rng.gumbel(size=value.shape)
        known = value < np.inf
        score[known] += self.alpha_2 * value[known]
        score[~known] = np.inf
        by_value = math.floor((1.0 - self.alpha_3) * context.cohort_size + 1e-9)  # 0.7 x 90 is 63, and not less
        chosen = np.zeros(context.num_links, np.bool_)
        chosen[rows[kept[greatest(score, by_value, rng=rng)]]] = True
        fill_up(chosen, rows, context.cohort_size, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen))
