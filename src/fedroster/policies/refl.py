"""REFL: the clients first that will be there least, so that no data stays out because it is seldom available.

A. M. Abdelmoniem, A. N. Sahu, M. Canini and S. A. Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023,
doi:10.1145/3552326.3567485, arXiv:2111.01108.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.parameters import Count, Natural
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, Draws, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.optimization.ranking import greatest

CITATION = """@inproceedings{abdelmoniem2023refl,
  author    = {Abdelmoniem, Ahmed M. and Sahu, Atal Narayan and Canini, Marco and Fahmy, Suhaib A.},
  title     = {{REFL}: Resource-Efficient Federated Learning},
  booktitle = {European Conference on Computer Systems (EuroSys)},
  year      = {2023},
  doi       = {10.1145/3552326.3567485},
  eprint    = {2111.01108},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class REFLState:
    """What is known of the clients' availability.

    Attributes:
        squared_error: Sum of the squared errors of all forecasts so far.
        forecasts: How many they are.
        last: Round in which each client was chosen last, shape (clients,); 0 for never.
        rounds: Rounds in which each client was a member, by their place in the period, shape (period, clients).
        there: Those of them in which it was available, same shape.
    """

    squared_error: float = kept(0.0)
    forecasts: int = kept(0)
    last: IntArray = per_client(least=0, most="round")
    rounds: IntArray = per_client(least=0, most="round")
    there: IntArray = per_client(least=0, most="round")

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        return "a client was available in more rounds than there were" if (self.there > self.rounds).any() else ""


def forecast(there: IntArray, rounds: IntArray, place: int) -> FloatArray:
    r"""Probability that each client is available in a round at a place of the period: smoothed frequencies.

    .. math:: a_k = \frac{s_k + 1}{n_k + 2}

    of the n rounds at that place, in s of which the client was available; of all rounds if there was none there.

    Args:
        there: s by place, shape (period, clients).
        rounds: n by place, same shape.
        place: The place, in [0, period).

    Returns:
        Shape (clients,), in (0, 1).
    """
    known = rounds[place] > 0
    seen = np.where(known, there[place], there.sum(axis=0))
    found: FloatArray = (seen + 1.0) / (np.where(known, rounds[place], rounds.sum(axis=0)) + 2.0)
    return found


def stale_weights(staleness: IntArray, deviation: FloatArray | None = None, *, share: float = 0.35) -> FloatArray:
    r"""Weights of late updates, where a fresh one has 1; all weights are then divided by their sum.

    .. math:: w = \frac{1 - b}{\tau + 1} + b \left( 1 - e^{-L / L_{\max}} \right)

    Args:
        staleness: Rounds :math:`\tau` by which each update is late, shape (k,), >= 1.
        deviation: L, squared distance of each from the mean of the fresh ones over that mean's own square, shape (k,),
            >= 0; None where it is not known, and the second term is then left out.
        share: b, in [0, 1].
    """
    weight: FloatArray = (1.0 - share) / (staleness.astype(np.float64) + 1.0)
    most = 0.0 if deviation is None else float(deviation.max(initial=0.0))
    if deviation is not None and most > 0.0:
        weight = weight + share * -np.expm1(-deviation / most)
    return weight


@dataclass(frozen=True, slots=True)
class REFL(ForOneServer):
    r"""Intelligent participant selection: of the clients that have rested, those least likely to be there next round.

    Clients are ordered by the :func:`forecast` for the round after this one, the least first, ties at random.  A client
    that was chosen in the last ``rest - 1`` rounds comes after all others.

    The forecast knows only what the selector has seen: in which rounds each client could be chosen.  :meth:`brier` says
    how good it was.  Late updates join the next aggregation with :func:`stale_weights`; without distances between
    updates that is ``FreePlaces(discount=1)``.

    Guarantee: none; the paper's results are empirical.  Cost: O(N P).

    Attributes:
        period: P, rounds after which availability repeats, such as the rounds of a day, >= 1; 1 for no period.
        rest: A client that was chosen in round t goes last before round t + rest, >= 0.

    Deviations: in the authors' experiments the true trace, thinned at random, stands for a forecast; this looks into
    the past.  Their window is one to two mean rounds ahead; here it is the next round, since a selector counts rounds.
    The adaptive target, which asks fewer clients when stragglers are expected, is the engine's
    ``select(at_most=...)``.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "system"
    decides: ClassVar[str] = "away"

    period: Count = 24
    rest: Natural = 5

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> REFLState:
        """No client was seen yet."""
        shape = (self.period, spec.num_clients)
        return REFLState(0.0, 0, np.zeros(shape[1], np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64))

    def select(self, state: REFLState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose the clients that will be there least."""
        rows = np.flatnonzero(context.available)
        client = context.clients_of(rows)
        resting: BoolArray = (state.last[client] > 0) & (context.round - state.last[client] < self.rest)
        place = (context.round + 1) % self.period
        later = forecast(state.there[:, client], state.rounds[:, client], place)
        return Selection(context.round, rows[greatest(-later - resting, context.cohort_size, rng=rng)])

    def commit(self, state: REFLState, context: RoundContext, selection: Selection, /) -> REFLState:
        """Hold the forecast against what happened, and count who is there."""
        place, here = context.round % self.period, np.zeros(state.last.shape[0], np.bool_)
        here[context.clients_of(np.flatnonzero(context.available))] = True
        member = np.ones_like(here) if context.members is None else context.members
        error = (forecast(state.there, state.rounds, place) - here)[member]
        state.rounds[place] += member
        state.there[place] += here & member
        state.last[context.clients_of(selection.links)] = context.round
        return replace(
            state,
            squared_error=state.squared_error + float((error * error).sum()),
            forecasts=state.forecasts + error.shape[0],
        )

    def brier(self, state: REFLState, /) -> float:
        """Mean squared error of all forecasts of a round before it, in [0, 1]; 1/4 for a coin, NaN before the first."""
        return state.squared_error / state.forecasts if state.forecasts else float("nan")
