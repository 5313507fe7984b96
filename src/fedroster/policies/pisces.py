"""Pisces: clients for free places by utility, discounted by how stale their updates usually come.

Z. Jiang, W. Wang, B. Li and B. Li, "Pisces: Efficient Federated Learning via Guided Asynchronous Training", SoCC 2022,
doi:10.1145/3542929.3563463, arXiv:2206.09264.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Range, Share
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, ForOneServer
from fedroster.core.state import kept, per_client
from fedroster.estimation.utility import statistical_utility
from fedroster.optimization.ranking import fill_up, greatest

CITATION = """@inproceedings{jiang2022pisces,
  author    = {Jiang, Zhifeng and Wang, Wei and Li, Baochun and Li, Bo},
  title     = {Pisces: Efficient Federated Learning via Guided Asynchronous Training},
  booktitle = {ACM Symposium on Cloud Computing (SoCC)},
  year      = {2022},
  doi       = {10.1145/3542929.3563463},
  eprint    = {2206.09264},
  archivePrefix = {arXiv}
}"""

_WINDOW = 5  # answers over which a client's staleness is averaged


@dataclass(frozen=True, slots=True)
class PiscesState:
    """What Pisces knows.

    Attributes:
        exploration: Probability epsilon that a place explores, in [0, 1].
        utility: Statistical utility that each client reported last, shape (clients,), >= 0; 0 where it is not known.
        measured: Round in which it was chosen then, shape (clients,).
        answers: Answers of each client, shape (clients,); 0 for a client not yet explored.
        staleness: Rounds by which the last five answers were late, shape (5, clients), in turn.
    """

    exploration: float = kept(0.0, 1.0)
    utility: FloatArray = per_client(least=0.0)
    measured: IntArray = per_client(least=0, most="round")
    answers: IntArray = per_client(least=0, most="round")
    staleness: IntArray = per_client(least=0, most="round")


def discounted_utility(utility: FloatArray, staleness: FloatArray, *, penalty: float) -> FloatArray:
    r"""Utility of a client in asynchronous training, :math:`U_k / (\bar\tau_k + 1)^\beta`, shape (n,).

    Args:
        utility: U, shape (n,), >= 0.
        staleness: Mean staleness of the client's last answers, shape (n,), >= 0.
        penalty: beta >= 0.
    """
    score: FloatArray = utility / (staleness + 1.0) ** penalty
    return score


def pace_s(latency_s: FloatArray, *, bound: int, unknown_s: float = 180.0) -> float:
    """Seconds between two aggregations, so that no update is staler than ``bound`` if latencies repeat.

    A server with free places aggregates all that arrived as soon as this much time has passed since it did so last.

    Args:
        latency_s: Time that each client at work took last, shape (k,), seconds; NaN where none is known.
        bound: b, the largest staleness, in aggregations, >= 1; the paper takes the number of places.
        unknown_s: What an unknown time counts as, seconds.
    """
    return float(np.where(np.isnan(latency_s), unknown_s, latency_s).max(initial=0.0)) / bound


@dataclass(frozen=True, slots=True)
class Pisces(ForOneServer):
    r"""Fills free places with clients of great utility whose updates come fresh, and explores the others.

    Of n places, :math:`\min\{u, \operatorname{Bin}(n, \epsilon)\}` go to random ones of the u idle clients that never
    answered, the others to explored ones of the greatest :func:`discounted_utility`; what one kind leaves empty the
    other fills.  Ask by ``select(at_most=n)``.  When to aggregate is the engine's to say: :func:`pace_s`.

    Guarantee: none of who is chosen.  Cost: O(N).

    Attributes:
        exploration: First epsilon, in [0, 1].
        exploration_decay: Factor on epsilon after each choice, in (0, 1].
        exploration_min: Least epsilon, in [0, 1].
        penalty: beta, exponent of the discount, in [0, 10].

    Deviations: staleness is in choices of the selector, not in versions of the model, which the selector does not see.
    The authors' code also prefers quick clients, unless all places are filled at once.  Utility is that of
    :func:`~fedroster.estimation.utility.statistical_utility`; without losses all explored clients tie.
    """

    citation: ClassVar[str] = CITATION
    wants_losses: ClassVar[bool] = True
    decides: ClassVar[str] = "drawn"
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True

    exploration: Share = 0.9
    exploration_decay: Annotated[float, Range(above=0.0, most=1.0)] = 0.98
    exploration_min: Share = 0.3
    penalty: Annotated[float, Range(least=0.0, most=10.0)] = 0.5

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> PiscesState:
        """No client has answered yet."""
        size = spec.num_clients
        none = np.zeros(size, np.int64)
        return PiscesState(self.exploration, np.zeros(size), none, none.copy(), np.zeros((_WINDOW, size), np.int64))

    def select(self, state: PiscesState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Explore a binomial number of places, and exploit the others."""
        rows, places = np.flatnonzero(context.available), context.cohort_size
        client = context.clients_of(rows)
        explored = state.answers[client] > 0
        old, new = rows[explored], rows[~explored]
        wanted = min(new.shape[0], int(rng.binomial(places, state.exploration)))
        client = client[explored]
        late = state.staleness[:, client].sum(axis=0) / np.clip(state.answers[client], 1, _WINDOW)
        score = discounted_utility(state.utility[client], late, penalty=self.penalty)
        chosen = np.zeros(context.num_links, np.bool_)
        chosen[old[greatest(score, places - wanted, rng=rng)]] = True
        fill_up(chosen, new, places, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen))

    def commit(self, state: PiscesState, context: RoundContext, selection: Selection, /) -> PiscesState:
        """Let epsilon decay after a choice."""
        if selection.is_empty:
            return state
        return replace(state, exploration=max(state.exploration * self.exploration_decay, self.exploration_min))

    def update(self, state: PiscesState, feedback: Feedback, /) -> PiscesState:
        """Learn utilities, and how late answers come; drop-outs and failures teach nothing."""
        utility = statistical_utility(feedback)
        known = ~np.isnan(utility) & (feedback.round >= state.measured[feedback.client])
        client = feedback.client[known]
        state.utility[client], state.measured[client] = utility[known], feedback.round
        client = feedback.client[feedback.observed]
        state.staleness[state.answers[client] % _WINDOW, client] = feedback.staleness
        state.answers[client] += 1
        return state
