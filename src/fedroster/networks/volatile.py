r"""The flat network of Huang et al. 2021 where clients vanish and return at random, between rounds and in them.

Ours.  Zaland et al. 2025 (arXiv:2511.01737) compare RBCS-F, under the name RBCSF, with random and greedy selection
where computing speed and bandwidth are drawn again in every round,
as Huang et al. draw them already.  Here clients leave, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray
from fedroster.core.parameters import Positive, Range, Share
from fedroster.core.problem import Outcome, RoundContext, Selection
from fedroster.core.state import kept
from fedroster.networks.flat import FlatNetwork, FlatState


@dataclass(frozen=True, slots=True)
class VolatileState(FlatState):
    """What the network remembers between rounds.

    Attributes:
        presence: Share of the rounds in which each client is there in the long run, shape (clients,).
        there: Whether it was there in the round before, shape (clients,).
    """

    presence: FloatArray = kept(0.0, 1.0)
    there: BoolArray = kept(0)


@dataclass(frozen=True, slots=True)
class VolatileNetwork(FlatNetwork):
    r"""Clients that vanish and return: a Markov chain for each between rounds, an exponential stay within a round.

    A client that is there is away in the next round with probability :math:`\lambda_n`, and one that is away returns
    with :math:`\lambda_n p_n / (1 - p_n)`: it is there for a share :math:`p_n` of the rounds in the long run, for
    :math:`1/\lambda_n = \max\{L, p_n / (1 - p_n)\}` rounds in a row on average.  Within a round a chosen client stays
    for an exponential time of mean S.  An exchange that takes longer is lost, so slow clients are lost more often.
    Shares are drawn once, independently of speed.  A client that :class:`~fedroster.networks.flat.FlatNetwork`'s
    own ``availability`` or ``churn`` takes away has vanished, too.

    Attributes:
        presence_min: Least share p of the rounds in which a client is there, in [0, 1].
        presence_max: Largest share, in [0, 1].
        session_rounds: L, rounds in a row for which a client is there, on average, >= 1.
        stay_s: S, mean time for which a chosen client stays in a round, seconds, > 0.
    """

    availability: Share = 1.0
    presence_min: Share = 0.2
    presence_max: Share = 0.9
    session_rounds: Annotated[float, Range(least=1.0)] = 5.0
    stay_s: Positive = 60.0

    def init(self, *, rng: Generator) -> VolatileState:
        """Draw how often each client is there, and who is there to begin with."""
        flat = FlatNetwork.init(self, rng=rng)
        presence = rng.uniform(self.presence_min, self.presence_max, self.num_clients)
        there = rng.random(self.num_clients) < presence
        return VolatileState(flat.coefficients, flat.cold, flat.phase, presence, there)

    def observe(self, state: FlatState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round for the whole fleet."""
        assert isinstance(state, VolatileState)
        context, outcome = FlatNetwork.observe(self, state, round, rng=rng)
        change, stay = rng.random((2, self.num_clients))
        away = 1.0 - state.presence
        # Neither probability may exceed 1.
        leaves = np.minimum(1.0 / self.session_rounds, away / np.maximum(state.presence, 1e-300))
        returns = np.divide(leaves * state.presence, away, out=np.ones_like(away), where=away > 0.0)
        there = np.where(state.there, change >= leaves, change < returns)
        stay_s = -self.stay_s * np.log1p(-stay)
        context = replace(context, available=context.available & there)
        outcome = replace(outcome, responds=outcome.responds & (outcome.exchange_time_s <= stay_s), stay_s=stay_s)
        return context, outcome

    def advance(self, state: FlatState, context: RoundContext, selection: Selection, /) -> FlatState:
        """Remember who was chosen, and who was there."""
        after = FlatNetwork.advance(self, state, context, selection)
        assert isinstance(after, VolatileState)
        return replace(after, there=context.available)
