r"""Qu et al.'s network with something that no context tells: a test of what policies assume."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray
from fedroster.core.parameters import Count
from fedroster.core.problem import Outcome, RoundContext
from fedroster.core.streams import Streams
from fedroster.networks.hierarchical import HierarchicalNetwork, HierarchicalState

CAUSES = ("server", "clients", "pairs", "hump", "exclusive", "turns", "shift")
"""What makes updates fail; see :class:`HiddenCauses`."""

_RARE, _ODD = 0.1, 0.3  # chance of success where the cause works, share of odd clients or pairs
_WIDTH = 0.15  # of the hump


@dataclass(frozen=True, slots=True)
class HiddenCauses(HierarchicalNetwork):
    """The MNIST network where updates also fail for a reason that is in no context, or in a way that is not monotone.

    * ``server``: nine of ten updates through the first server are lost.
    * ``clients``: so it is with three of ten clients, wherever they send.
    * ``pairs``: so it is with three of ten pairs.
    * ``hump``: only clients of middling compute succeed.
    * ``exclusive``: links succeed whose rate and compute are both low or both high; either alone tells nothing.
    * ``turns``: a third of the clients fails, and another third from round ``period`` on, twice ``period``, and so on.
    * ``shift``: only slow clients succeed, and after twice ``period`` rounds only fast ones.

    ``participation_probability`` knows the cause, and so does Oracle-p.  With one feature, the download rate, it stands
    for the compute.

    Attributes:
        cause: What makes updates fail, one of :data:`CAUSES`.
        period: Rounds of a turn, >= 1.
    """

    cause: Literal["server", "clients", "pairs", "hump", "exclusive", "turns", "shift"] = "clients"
    period: Count = 100

    def observe(self, state: HierarchicalState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round, and let the cause work."""
        context, outcome = HierarchicalNetwork.observe(self, state, round, rng=rng)
        factor = self._spared(context, state.key)
        probability = outcome.participation_probability
        assert probability is not None
        return context, replace(
            outcome,
            responds=outcome.responds & (rng.random(context.num_links) < factor),
            participation_probability=lambda: factor * probability(),
        )

    def _spared(self, context: RoundContext, key: int) -> FloatArray:
        """Probability that the cause spares each link's update, shape (links,); ``key`` draws who is odd."""
        cause, period, round = self.cause, self.period, context.round
        rate, compute = context.features[:, 0], context.features[:, min(1, self.num_features - 1)]
        if cause in ("hump", "shift"):
            centre = 0.5 if cause == "hump" else 0.3 if round <= 2 * period else 0.8
            bell: FloatArray = np.exp(-(((compute - centre) / _WIDTH) ** 2))
            return bell
        client, server = context.client, context.server
        assert client is not None
        assert server is not None
        odd = Streams(key).at("hidden").random((self.num_clients, self.num_servers + 1)) < _ODD
        fails = {
            "server": server == 0,
            "clients": odd[client, self.num_servers],
            "pairs": odd[client, server],
            "exclusive": (rate > 0.5) != (compute > 0.5),
            "turns": (client + round // period) % 3 == 0,
        }[cause]
        return np.where(fails, _RARE, 1.0)
