"""Random selection under budgets (paper B, section VI-B 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.problem import RoundContext, Selection
from fedroster.policies.budgeted import choices_of, fill_in_order
from fedroster.policies.stateless import NoState, Stateless
from fedroster.policies.uniform import Uniform


@dataclass(frozen=True, slots=True)
class RandomLinks(Stateless):
    """Links in random order, each taken if its server's budget still allows and its client is free.

    So no further link could be added to a decision.  Without prices and servers, as in a flat federation, it is
    :class:`~fedroster.policies.uniform.Uniform` draw for draw.  Cost: O(links).
    """

    fills_cohort: ClassVar[bool] = False

    def select(self, state: NoState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw an order, and fill the budgets in it."""
        if context.cost is None and context.client is None:
            return Uniform().select(state, context, rng=rng)
        choices = choices_of(context)
        picks = fill_in_order(choices, rng.permutation(choices.rows.shape[0]))
        return Selection(context.round, np.sort(choices.rows[picks]))
