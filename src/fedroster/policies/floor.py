"""FLOOR: every client's share at every moment, in less time.

A policy of this project; no paper has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, Limit, Reason, of_client, turning
from fedroster.core.citation import SOFTWARE
from fedroster.core.compiled import interpreted_at_first, njit
from fedroster.core.parallel import for_ranges
from fedroster.core.parameters import Natural, Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Draws, ForOneServer
from fedroster.core.state import per_client
from fedroster.estimation.usual_times import (
    LARGEST,
    LEAST_NOW,
    LEAST_USUAL,
    UsualTimesState,
    expected_times,
    learn_times,
    next_round,
    rescale_times,
    usual_times_init,
)
from fedroster.optimization.drift_plus_penalty import explained, least_drift_plus_penalty
from fedroster.optimization.ranking import cut_for, greatest
from fedroster.queues import check_rate, debt_step, snap_rate

_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class FloorState:
    """What FLOOR knows: about 170 bytes a client for Huang et al.'s three features.

    Attributes:
        belief: What is believed about each client's exchange time, in general and now.
        debt: beta t - x_n over the rounds t of its membership, shape (clients,), participations; negative when ahead.
        own_debt: beta A_n - x_n, likewise.
    """

    belief: UsualTimesState
    debt: FloatArray = per_client(least=-(2.0**53), most=2.0**53)
    own_debt: FloatArray = per_client(least=-(2.0**53), most=2.0**53)


@njit(cache=True, nogil=True, error_model="numpy")
def _appraise(
    features, available, coefficients, usual_s, debt, own_debt,
    arrival, slack, urgent, by_rounds, least_s, time, price, urgency, begin, stop,
):  # fmt: skip
    """Predicted time, price and urgency of each row; not available is infinite, not urgent is negative."""
    predicted = np.empty(_BLOCK)
    relief = 1.0 / (slack + 1.0)
    for low in range(begin, stop, _BLOCK):  # block by block: the working set stays in the first-level cache
        width = min(low + _BLOCK, stop) - low
        predicted[:] = 0.0
        for i in range(features.shape[0]):
            c, theta = features[i, low : low + width], coefficients[i, low : low + width]
            for n in range(width):
                predicted[n] += max(min(c[n], LARGEST), -LARGEST) * theta[n]
        usable, usual = available[low : low + width], usual_s[low : low + width]
        total, own = debt[low : low + width], own_debt[low : low + width]
        t, p = time[low : low + width], price[low : low + width]
        u = urgency[low : low + width]
        for n in range(width):
            mean = max(usual[n] if usual[n] != 0.0 else predicted[n], least_s)
            now = min(max(predicted[n], LEAST_NOW * mean), LARGEST)
            t[n] = now if usable[n] else np.inf
            owed = arrival + (total[n] if by_rounds else own[n])
            p[n] = mean * max(1.0 + relief * owed, 0.0)
        for n in range(width):
            owed, mine = total[n] + arrival, own[n] + arrival
            level = owed if by_rounds and urgent <= owed < slack + 1.0 else -1.0
            # What is owed for a client's own rounds goes before what is owed for all.
            level = slack + 1.0 + mine if mine >= urgent else level
            u[n] = level if usable[n] else -1.0


@dataclass(frozen=True, slots=True)
class Floor(ForOneServer):
    r"""At least :math:`\lfloor \beta t \rfloor - c` participations for every client after every round, in little time.

    Each round:

    1. **Predict** every client's time from its context, by regression on its own history and on all others'
       (:mod:`fedroster.estimation.random_coefficients`).
    2. **Urgent clients take part.** With the debt :math:`d_n = \beta A_n - x_n` (rounds in which it could be chosen,
       participations), those with :math:`d_n \ge u` are chosen, greatest debt first, where
       :math:`u = c + 1 - \beta (\min\{\lceil N/m \rceil, \lfloor 1/\beta \rfloor\} + a)`.
    3. **The rest by price.** The other places go to the cohort S that minimises the longest predicted time less prices,
       which is P4 of Huang et al. 2021 (:mod:`fedroster.optimization.drift_plus_penalty`).  A client's price is its
       part of the time of a round among its like, and more of it the more it is owed: with :math:`\mu_n` the client's
       usual time,

       .. math:: \min_S\ \max_{n \in S} \tau_n - \sum_{n \in S} p_n,\qquad
           p_n = \frac{\mu_n}{m} \Bigl[1 + \frac{d_n}{c + 1}\Bigr]^+

       So slow clients are worth choosing when the others are slow too, when their context is good for once, and when
       they are owed; a client that is c + 1 participations ahead has no price.

    Guarantee (docs/explanation/floor.md has the proof): if :math:`N \le m \lfloor 1/\beta \rfloor`, then for any
    availability whatever, :math:`x_n(t) \ge \lfloor \beta A_n(t) \rfloor - c` after every round.  With
    ``share_of = "rounds"`` debts are also counted over all rounds, and clients that are always available have
    :math:`x_n(t) \ge \lfloor \beta t \rfloor - c`; so has a client that is away for at most
    :math:`(c + 1 - u)/\beta - 1` rounds in a row, and there for at least :math:`\beta/(1 - \beta)` times as many before
    it is away again, while no more than m clients are urgent at once.

    There is no V: prices come from measured times.  Round times are near the stationary optimum in measurements
    (docs/reproduction/floor); that is not proven.

    Cost per round: O(N D) and the cohort's choice.

    Attributes:
        beta: Guaranteed participation rate, in [0, 1].
        slack: c, participations that a client may lack, >= 0.
        share_of: Whether beta is a share of all "rounds", or of those in which a client was "available".
        absence: a, rounds of absence in a row that a client may take without falling short, >= 0, for shares of rounds.
        memory: Observations of a client after which one counts for 1/e, >= 1; smaller follows drift faster.
    """

    citation: ClassVar[str] = SOFTWARE
    draws: ClassVar[Draws] = "never"
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "system"

    beta: Share = 0.15
    slack: Natural = 2
    share_of: Literal["rounds", "available"] = "rounds"
    absence: Natural = 3
    memory: Annotated[float, Range(least=1.0)] = 100.0

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, and a share of all rounds that cannot be met."""
        ForOneServer.check(self, spec)
        if self.share_of == "rounds":
            check_rate(self.beta, num_clients=spec.num_clients, cohort_size=spec.cohort_size)

    def urgent_at(self, *, num_clients: int, cohort_size: int) -> float:
        r"""Debt at which a client must take part, u, >= 0.

        Args:
            num_clients: N.
            cohort_size: m.
        """
        rate = snap_rate(self.beta)
        if rate == 0.0:
            return math.inf
        # From beta itself: 1/6 on the grid of debts is above 1/6, and would seem to allow for 5 rounds only.
        wait = min(math.ceil(num_clients / cohort_size), math.floor(1.0 / self.beta + 1e-9))
        away = self.absence if self.share_of == "rounds" else 0
        return max(self.slack + 1.0 - rate * (wait + away), 0.0)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> FloorState:
        """No client is known, nothing is owed."""
        debts = np.zeros(spec.num_clients), np.zeros(spec.num_clients)
        return FloorState(usual_times_init(spec.num_clients, spec.num_features), *debts)

    def appraise(self, state: FloorState, context: RoundContext, /) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Steps 1 and 2 of each row.

        Returns:
            Predicted time tau, shape (links,), seconds, infinite for those that are not available; m times the price,
            seconds; and the urgency: those of 0 and more must take part, the greatest first.
        """
        num_links = context.num_links
        known: tuple[FloatArray, ...] = (*state.belief.known, state.debt, state.own_debt)
        if context.client is not None:
            known = tuple(np.ascontiguousarray(values[..., context.client]) for values in known)
        time_s, price_s, urgency = np.empty(num_links), np.empty(num_links), np.empty(num_links)
        for_ranges(
            interpreted_at_first(_appraise, 2 * num_links),  # a row takes 0.1 ms: 2.5 s in all
            num_links,
            np.ascontiguousarray(context.features.T),
            context.available,
            *known,
            snap_rate(self.beta),
            float(self.slack),
            self.urgent_at(num_clients=state.debt.shape[0], cohort_size=context.cohort_size),
            self.share_of == "rounds",
            LEAST_USUAL * state.belief.times.mean_time_s or 1.0,
            time_s,
            price_s,
            urgency,
        )
        return time_s, price_s, urgency

    def select(self, state: FloorState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Steps 1 to 3."""
        size = min(context.cohort_size, int(np.count_nonzero(context.available)))
        time_s, price_s, urgency = self.appraise(state, context)
        urgent = np.flatnonzero(urgency >= 0.0)
        links = urgent[greatest(urgency[urgent], size, rng=rng)]
        if links.shape[0] < size:
            if links.shape[0]:  # the round lasts as long as theirs in any case
                time_s = np.maximum(time_s, time_s[links].max())
                time_s[links] = np.inf
            free = size - links.shape[0]
            rest = least_drift_plus_penalty(time_s, price_s, penalty=float(size), cohort_size=free, rng=rng)
            links = np.sort(np.concatenate((links, rest)))
        return Selection(context.round, links)

    def explain(self, state: FloorState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """An urgent debt, or the client's price and time among those that are not urgent."""
        rows, own, chosen = of_client(context, selection, client)
        size, row = min(context.cohort_size, rows.shape[0]), int(rows[own][0])
        time_s, price_s, urgency = self.appraise(state, context)
        first = np.setdiff1d(np.flatnonzero(urgency >= 0.0), [row])
        by_rounds, rate = self.share_of == "rounds", snap_rate(self.beta)
        limits: tuple[Limit, ...] = ()
        reason: Reason = "urgent"
        owed, own_owed = state.debt[client] + rate, state.own_debt[client] + rate
        debt, cut, shifts = owed if by_rounds else own_owed, -math.inf, []
        if (free := size - first.shape[0]) > 0:
            least_s, cohort = time_s[first].max(initial=0.0), np.setdiff1d(selection.links, first)
            time_s = np.maximum(time_s, least_s)
            time_s[first] = math.inf
            reason, price, most_s = explained(time_s, price_s, row, cohort, penalty=float(size), cohort_size=free)
            lift, usual_s = 1.0 + debt / (self.slack + 1.0), float(state.belief.usual_s[client])
            known_s = max(usual_s, LEAST_USUAL * state.belief.times.mean_time_s)
            usual_s = known_s if usual_s else price_s[row] / lift if lift > 0.0 else math.nan
            more_s = price - (price_s[row] or usual_s * lift)
            shifts.append(more_s / usual_s * (self.slack + 1.0) if price >= 0.0 else -math.inf)
            if urgency[row] < 0.0 and state.belief.usual_s[client] and most_s > max(least_s, LEAST_NOW * usual_s):
                limits = turning("expected_s", time_s[row], most_s, chosen=chosen, favours="less")
        else:
            cut, _ = cut_for(urgency[rows], own, size)
        urgent = self.urgent_at(num_clients=state.debt.shape[0], cohort_size=context.cohort_size)
        shifts.append(max(urgent, cut - self.slack - 1.0) - own_owed)
        if by_rounds and max(urgent, cut) < self.slack + 1.0:
            shifts.append(max(urgent, cut) - owed)
        shift = min(shifts) if chosen else min((each for each in shifts if each >= 0.0), default=math.inf)
        limits += turning("owed", debt, debt + shift, chosen=chosen, favours="more", least=-math.inf)
        return Because("urgent" if chosen and urgency[row] >= 0.0 else reason, limits)

    def commit(self, state: FloorState, context: RoundContext, selection: Selection, /) -> FloorState:
        """Debts grow by beta, and fall by 1 for the chosen."""
        served = context.clients_of(selection.links)
        debt_step(state.debt, state.own_debt, context, beta=snap_rate(self.beta), served=served)
        return replace(state, belief=next_round(state.belief, context))

    def update(self, state: FloorState, feedback: Feedback, /) -> FloorState:
        """Times are learned.  Drop-outs and failures teach nothing about them."""
        return replace(state, belief=learn_times(state.belief, feedback, memory=self.memory))

    def rescale(self, state: FloorState, clients: IntArray, factor: FloatArray, /) -> FloorState:
        """Multiply the observed times of some clients."""
        return replace(state, belief=rescale_times(state.belief, clients, factor))

    def backlog(self, state: FloorState, /) -> FloatArray:
        """Debt of each client, counted as ``share_of`` says, shape (clients,); 0 for one that is ahead."""
        return np.maximum(state.debt if self.share_of == "rounds" else state.own_debt, 0.0)

    def expected_times_s(self, state: FloorState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """Predictions of the regression, shape (k,), seconds; NaN before the first observation of any client."""
        return expected_times(state.belief, clients, features)
