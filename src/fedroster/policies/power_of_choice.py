"""Power-of-Choice: of a few random candidates, those with the greatest losses.

Y. J. Cho, J. Wang and G. Joshi, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
Selection Strategies", 2020, arXiv:2010.01243.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.parameters import Natural
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ForOneServer
from fedroster.core.state import per_client
from fedroster.estimation.reports import assumed_sizes, learn_losses, learn_sizes
from fedroster.optimization.ranking import cut_for, greatest, ranked, sample_by_weight

CITATION = """@misc{cho2020powerofchoice,
  author = {Cho, Yae Jee and Wang, Jianyu and Joshi, Gauri},
  title  = {Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice Selection Strategies},
  year   = {2020},
  eprint = {2010.01243},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class PowerOfChoiceState:
    """What is known of the clients.

    Attributes:
        loss: Loss that each client reported last, shape (clients,); infinite before its first report.
        reported: Round of that report, shape (clients,); 0 for none.
        num_samples: Samples of each client, shape (clients,); 0 where it is not known.
    """

    loss: FloatArray = per_client(least=-math.inf, infinite=True)
    reported: IntArray = per_client(least=0, most="round")
    num_samples: FloatArray = per_client(least=0.0)


class LearnsLosses(ForOneServer):
    """A policy that knows each client's latest loss."""

    __slots__ = ()

    wants_losses: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> PowerOfChoiceState:
        """No client has reported yet."""
        count = spec.num_clients
        return PowerOfChoiceState(np.full(count, np.inf), np.zeros(count, np.int64), np.zeros(count))

    def update(self, state: PowerOfChoiceState, feedback: Feedback, /) -> PowerOfChoiceState:
        """Keep the latest loss of each client; feedback of an earlier round does not replace it."""
        learn_sizes(state.num_samples, feedback)
        learn_losses(state.loss, state.reported, feedback)
        return state


@dataclass(frozen=True, slots=True)
class PowerOfChoice(LearnsLosses):
    r"""Sample d candidates by the size of their data, then choose the m of greatest loss.

    .. math::
        \mathcal A \sim p_k = n_k / \textstyle\sum_j n_j \text{ without replacement},\ |\mathcal A| = d;\qquad
        \mathcal S = \arg\max_{S \subseteq \mathcal A,\ |S| = m} \sum_{k \in S} F_k

    (arXiv:2010.01243.)  d = m is random selection by size; a greater d prefers clients that the model serves badly,
    which converges faster and with a bias that grows with d.  Which loss F is, is the variant:

    * "pow-d" asks the d candidates for the loss of the *present* model before it chooses (``context.poll``).  The round
      waits for their answers: the paper's time of a round includes what the candidates compute.  A candidate without an
      answer goes last.  Where no client can be asked, it does what rpow-d does.
    * "rpow-d" takes the loss that each client reported last, without a further exchange.  A client that never reported
      counts as one of infinite loss, so it goes first.

    Where no client measures losses, as in a simulation without training, all candidates tie and both sample by size.

    Guarantee: none beyond the paper's on convergence, for strongly convex losses, with an error that does not vanish
    unless d = m.  Cost: O(N) a round.

    Attributes:
        d: Number of candidates, >= m, or 0 for twice the cohort size, the paper's smallest; the paper's experiments use
            2 m to 10 m.
        variant: "rpow-d" or "pow-d".

    Deviations: with rpow-d the paper's clients report the average of their losses while they train; here it is the loss
    of the model that they were sent, F_k itself, of the round in which they took part.  cpow-d, which polls with a
    mini-batch, is not built.  A d below m means m.
    """

    citation: ClassVar[str] = CITATION
    refuses_first: ClassVar[bool] = True

    d: Natural = 0
    variant: Literal["rpow-d", "pow-d"] = "rpow-d"

    @property
    def polls(self) -> bool:
        """Whether candidates are asked for their losses."""
        return self.variant == "pow-d"

    def select(self, state: PowerOfChoiceState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Sample candidates, then compare their losses."""
        rows = np.flatnonzero(context.available)
        num_candidates = max(self.d or 2 * context.cohort_size, context.cohort_size)
        weight = assumed_sizes(state.num_samples)[context.clients_of(rows)]
        rows = rows[sample_by_weight(weight, num_candidates, rng=rng)]
        if self.polls and context.poll is not None and rows.shape[0] > context.cohort_size:
            loss = context.poll(rows)
            loss = np.where(np.isnan(loss), -np.inf, loss)
        else:
            loss = state.loss[context.clients_of(rows)]
        return Selection(context.round, rows[greatest(loss, context.cohort_size, rng=rng)])

    def explain(
        self, state: PowerOfChoiceState, context: RoundContext, selection: Selection, client: int, /
    ) -> Because:
        """Losses, or who was a candidate; which clients that were cannot be read off a decision."""
        rows, own, chosen = of_client(context, selection, client)
        loss = state.loss[context.clients_of(rows)]
        if rows.shape[0] <= (self.d or 2 * context.cohort_size) and not self.polls:
            cut, chance = cut_for(loss, own, context.cohort_size)
            return ranked("loss", chance, turning("loss", loss[own][0], cut, chosen=chosen, favours="more"))
        worst = state.loss[context.clients_of(selection.links)].min(initial=math.inf)
        return Because("drawn" if loss[own][0] == worst or (loss[own][0] > worst) != chosen else "loss")
