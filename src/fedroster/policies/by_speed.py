"""Draws by speed, for free places: quick clients come more often, and no client is ever left for long.

A policy of this project; no paper has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.citation import SOFTWARE
from fedroster.core.parameters import NotNegative, Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ForOneServer
from fedroster.core.state import per_client
from fedroster.estimation.usual_times import (
    UsualTimesState,
    expected_times,
    learn_times,
    next_round,
    usual_times_init,
)
from fedroster.optimization.ranking import cut_for, greatest, sample_by_weight


@dataclass(frozen=True, slots=True)
class BySpeedState:
    """What the policy knows.

    Attributes:
        belief: What is believed about each client's exchange time.
        last: Round in which each client was chosen last, shape (clients,); 0 for never.
    """

    belief: UsualTimesState
    last: IntArray = per_client(least=0, most="round")


def draw_weights(time_s: FloatArray, *, exponent: float, least: float) -> FloatArray:
    r"""Weights of the draw, :math:`w_n = \max\{\tau_n^{-a},\ l \bar w\}` with the mean :math:`\bar w` of the powers.

    Args:
        time_s: Expected times, shape (k,), seconds, > 0; NaN where nothing is known: all weights are then equal.
        exponent: a, >= 0.
        least: l, in [0, 1].

    Returns:
        Weights, shape (k,), relative to the quickest client's.
    """
    if not time_s.shape[0] or np.isnan(time_s).any():
        return np.ones(time_s.shape[0])
    weight: FloatArray = (time_s / time_s.min()) ** -exponent
    floored: FloatArray = np.maximum(weight, least * weight.mean())
    return floored


@dataclass(frozen=True, slots=True)
class BySpeed(ForOneServer):
    r"""Each place goes to a client that is drawn among those idle, the quicker the more likely.

    .. math:: \Pr[n] \propto \max\{\hat\tau_n^{-a},\ l \bar w\},\qquad
        \bar w \text{ the mean of the powers over the clients that are idle}

    Expected times :math:`\hat\tau` come from contexts and from all clients' times, as FLOOR's do.  A client that was
    not chosen for G N rounds goes first, the longest wait before the others, and before them one that joins after so
    many.  In free places a round is one filling.  With an update memory nothing is biased by who comes often: what
    counts is how old a remembered update may be.

    Guarantee (docs/explanation/sooner.md has the proofs): a draw takes a client that is idle and available with
    probability at least :math:`l / ((1 + l) N)`; and if it is idle and available from the G N-th round after its last
    choice on, it is chosen within the next N.  With a = 1, exponential times and all clients available, each client
    works an equal part of the time.

    Cost per round: O(N D).

    Attributes:
        exponent: a, >= 0; 0 for uniform draws.
        least: l, in [0, 1].
        longest_gap: G, rounds for each client of the federation, >= 1.
        memory: Observations of a client after which one counts for 1/e, >= 1.
    """

    citation: ClassVar[str] = SOFTWARE
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "system"

    exponent: NotNegative = 1.0
    least: Share = 0.1
    longest_gap: Annotated[float, Range(least=1.0)] = 10.0
    memory: Annotated[float, Range(least=1.0)] = 100.0

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> BySpeedState:
        """No client is known, none was chosen."""
        belief = usual_times_init(spec.num_clients, spec.num_features)
        return BySpeedState(belief, np.zeros(spec.num_clients, np.int64))

    def select(self, state: BySpeedState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose the clients that wait too long, then draw."""
        rows = np.flatnonzero(context.available)
        clients = context.clients_of(rows)
        waited = context.round - state.last[clients]
        overdue = np.flatnonzero(waited > self.longest_gap * state.last.shape[0])
        first = overdue[greatest(waited[overdue], context.cohort_size, rng=rng)]
        rest = np.delete(np.arange(rows.shape[0]), first)
        time_s = expected_times(state.belief, clients[rest], context.features[rows[rest]])
        weight = draw_weights(time_s, exponent=self.exponent, least=self.least)
        drawn = rest[sample_by_weight(weight, context.cohort_size - first.shape[0], rng=rng)]
        return Selection(context.round, np.sort(rows[np.concatenate((first, drawn))]))

    def explain(self, state: BySpeedState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """It, or others, waited too long; else chance decided."""
        rows, own, chosen = of_client(context, selection, client)
        waited, longest = context.round - state.last[context.clients_of(rows)], self.longest_gap * state.last.shape[0]
        first, _ = cut_for(waited, own, context.cohort_size)  # beyond the longest gap all places go by turns
        bound = -math.inf if chosen and first <= longest else context.round - max(first, longest)
        limits = turning("last", state.last[client], bound, chosen=chosen, favours="less")
        return Because("turn" if max(first, waited[own][0]) > longest else "drawn", limits)

    def commit(self, state: BySpeedState, context: RoundContext, selection: Selection, /) -> BySpeedState:
        """Note who was chosen, and all contexts."""
        state.last[context.clients_of(selection.links)] = context.round
        return replace(state, belief=next_round(state.belief, context))

    def update(self, state: BySpeedState, feedback: Feedback, /) -> BySpeedState:
        """Times are learned.  Drop-outs and failures teach nothing about them."""
        return replace(state, belief=learn_times(state.belief, feedback, memory=self.memory))

    def expected_times_s(self, state: BySpeedState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Predictions of the regression, shape (k,), seconds; NaN before the first observation of any client."""
        return expected_times(state.belief, clients, features)
