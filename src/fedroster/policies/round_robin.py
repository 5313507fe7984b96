"""Round robin: the client that was chosen longest ago goes first.

H. H. Yang, Z. Liu, T. Q. S. Quek and H. V. Poor, "Scheduling Policies for Federated Learning in Wireless Networks",
IEEE Transactions on Communications 2020, arXiv:1908.06287.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import IntArray
from fedroster.core.because import Because, of_client, turning
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits, Draws, ForOneServer
from fedroster.core.state import per_client
from fedroster.optimization.ranking import cut_for, greatest, ranked

CITATION = """@article{yang2020scheduling,
  author  = {Yang, Howard H. and Liu, Zuozhu and Quek, Tony Q. S. and Poor, H. Vincent},
  title   = {Scheduling Policies for Federated Learning in Wireless Networks},
  journal = {IEEE Transactions on Communications},
  year    = {2020},
  eprint  = {1908.06287},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class RoundRobinState:
    """The round of each client's last turn.

    Attributes:
        last: Round in which each client was chosen last, shape (clients,); 0 for never.
    """

    last: IntArray = per_client(least=0, most="round")


@dataclass(frozen=True, slots=True)
class RoundRobin(ForOneServer):
    r"""Clients take turns: the m available clients that were chosen longest ago, ties by the generator.

    Yang et al. divide the clients into G = N / m groups that take turns, one group a round.  With all clients available
    this is the same with groups that the first turns draw; a client that missed its turn is served when it
    is back, and clients that join are served first.

    Guarantee: while no client joins and all are available, at most :math:`\lceil N/m \rceil` rounds pass from one
    turn of a client to its next.  Cost: O(N).
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True
    reads: ClassVar[str] = "nothing"

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> RoundRobinState:
        """No client was chosen yet."""
        return RoundRobinState(np.zeros(spec.num_clients, np.int64))

    def select(self, state: RoundRobinState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Choose the clients that waited longest."""
        rows = np.flatnonzero(context.available)
        waiting = -state.last[context.clients_of(rows)]
        return Selection(context.round, rows[greatest(waiting, context.cohort_size, rng=rng)])

    def explain(self, state: RoundRobinState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """Whose turn it was."""
        rows, own, chosen = of_client(context, selection, client)
        cut, chance = cut_for(-state.last[context.clients_of(rows)], own, context.cohort_size)
        return ranked("turn", chance, turning("last", state.last[client], -cut, chosen=chosen, favours="less"))

    def commit(self, state: RoundRobinState, context: RoundContext, selection: Selection, /) -> RoundRobinState:
        """Note the clients that had a turn."""
        state.last[context.clients_of(selection.links)] = context.round
        return state
