"""What policies that compare updates share: they keep each client's last signature, and strangers go first."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ForOneServer, Signature
from fedroster.core.state import per_client
from fedroster.optimization.ranking import fill_up

_LARGEST = 1e50  # entries beyond it count as it: squares must not overflow


@dataclass(frozen=True, slots=True)
class SignaturesState:
    """What is known of the clients' updates.

    Attributes:
        signature: Signature of each client's last update, shape (clients, s).
        reported: Round of this update, shape (clients,); 0 for none.
    """

    signature: FloatArray = per_client(axis=0, least=-_LARGEST, most=_LARGEST)
    reported: IntArray = per_client(least=0, most="round")


class BySignature(ForOneServer):
    """Clients that sent no update go first, at random; then go those whom :meth:`choose` says."""

    __slots__ = ()

    refuses_first: ClassVar[bool] = True

    @property
    def signature(self) -> Signature:
        """What is learned of updates: a projection to 64 numbers."""
        return Signature()

    @abstractmethod
    def choose(self, points: FloatArray, size: int, round: int, *, rng: Generator) -> IntArray:
        """Positions of ``size`` of n > size clients whose signatures are ``points``, shape (n, s)."""

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> SignaturesState:
        """Know no update."""
        signature = np.zeros((spec.num_clients, self.signature.length))
        return SignaturesState(signature, np.zeros(spec.num_clients, np.int64))

    def select(self, state: SignaturesState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Strangers, and then whom :meth:`choose` says."""
        rows = np.flatnonzero(context.available)
        client = context.clients_of(rows)
        known = state.reported[client] > 0
        chosen = np.zeros(context.num_links, np.bool_)
        fill_up(chosen, rows[~known], context.cohort_size, rng=rng)
        left = context.cohort_size - int(np.count_nonzero(chosen))
        if 0 < left < np.count_nonzero(known):
            points = state.signature[client[known]]
            chosen[rows[known][self.choose(points, left, context.round, rng=rng)]] = True
        fill_up(chosen, rows, context.cohort_size, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen))

    def update(self, state: SignaturesState, feedback: Feedback, /) -> SignaturesState:
        """Keep the last signature of each client; one of another length is none."""
        told = feedback.signature
        if told is not None and told.shape[1:] == state.signature.shape[1:]:
            known = ~np.isnan(told).any(axis=1) & (feedback.round >= state.reported[feedback.client])
            client = feedback.client[known]
            state.signature[client] = np.clip(told[known], -_LARGEST, _LARGEST)
            state.reported[client] = feedback.round
        return state
