"""Random selection, the scheme of federated averaging.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017, arXiv:1602.05629.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import Draws, NoState, Stateless
from fedroster.optimization.budgeted import choices_of, fill_in_order

CITATION = r"""@inproceedings{mcmahan2017communication,
  author    = {McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth
               and Ag{\"u}era y Arcas, Blaise},
  title     = {Communication-Efficient Learning of Deep Networks from Decentralized Data},
  booktitle = {International Conference on Artificial Intelligence and Statistics (AISTATS)},
  year      = {2017},
  eprint    = {1602.05629},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class Uniform(Stateless):
    r"""Every set of :math:`\min\{m, \sum_n I_n\}` available clients is equally likely.

    With servers or prices: links in random order, each taken if its server's budget still allows and its client is
    free, so that no further link could be added to a decision (Qu et al. 2021, section VI-B 4).

    Guarantee: under equal availability p each client's rate is the same in expectation, E[min(m, available)] / N.
    Cost: O(links).
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "uniform"
    fills_cohort: ClassVar[bool] = False  # budgets may end a decision earlier
    refuses_first: ClassVar[bool] = True

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw without replacement; with servers or prices, draw an order and fill the budgets in it."""
        if context.cost is None and context.client is None:
            rows = np.flatnonzero(context.available)
            if rows.shape[0] > context.cohort_size:
                rows = rng.choice(rows, size=context.cohort_size, replace=False, shuffle=False)
                rows.sort()
            return Selection(context.round, rows)
        choices = choices_of(context)
        picks = fill_in_order(choices, rng.permutation(choices.rows.shape[0]))
        return Selection(context.round, np.sort(choices.rows[picks]))
