r"""The flat network of Huang et al. 2021 under the availability patterns that papers on selection compare in.

By data size: Ribero et al. 2023, arXiv:2205.06730.  Staircase, sine, interleaved: FedAWE, NeurIPS 2024,
arXiv:2409.17446.  The others: FedGS, AAAI 2023, arXiv:2211.13975, whose formulas are those of both repositories' code.
A Markov chain for each client is :class:`~fedroster.networks.volatile.VolatileNetwork`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.parameters import Share, ShareBelowOne
from fedroster.core.problem import Outcome, RoundContext
from fedroster.core.state import kept
from fedroster.networks.flat import FlatNetwork, FlatState

NUM_LABELS = 10
"""Label of client n is 10 n // N: slow clients hold the last labels, as with the task's ``coupling``."""


@dataclass(frozen=True, slots=True)
class PatternedState(FlatState):
    """What the network remembers between rounds.

    Attributes:
        usual: Each client's usual probability of being there, shape (clients,), in [0, 1].
    """

    usual: FloatArray = kept(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class PatternedNetwork(FlatNetwork):
    r"""Clients that are there by chance, with probabilities that depend on their data or on the round.

    With the round :math:`R = t - 1`, a client's samples n, drawn once from a log-normal law with deviation 1, its label
    y, and :math:`\alpha` the strength, which by-data does not have:

    ================== ================================================================================================
    ``pattern``        probability of being there
    ================== ================================================================================================
    by-data            :math:`s(R) \min_j n_j / n` with :math:`s(R) = 0.5 + 0.4 \sin(2 \pi (R \bmod 24) / 23)`
    more-data-first    :math:`(n / \max_j n_j)^\alpha`
    less-data-first    :math:`(\min_j n_j / n)^\alpha`
    y-max-first        :math:`\alpha y / 9 + 1 - \alpha`
    y-cycle            1 in the ten rounds of each hundred that belong to the label, else :math:`1 - \alpha`
    log-normal         :math:`c / \max_j c_j` with c log-normal of deviation :math:`-\ln(1 - \alpha)`
    sin-log-normal     the same times :math:`s(R)`
    sine               :math:`q\,(1 - \alpha + \alpha \sin(2 \pi R / 20))`, where below 0 it is 0
    interleaved        the same, and 0 where it is below 0.1
    staircase          q for ten rounds, :math:`(1 - \alpha)\, q` for the next ten
    ================== ================================================================================================

    with q drawn once for each label: from [0, 1] for the first five, from [0, 1/2] for the others.

    Attributes:
        pattern: Which.
        strength: :math:`\alpha`, in [0, 1).  FedAWE has 0.3 for sine and interleaved, and 0.6 for the staircase.

    Deviations: in FedAWE's code q is the mean over the labels that a client holds; here a client has one label.
    """

    availability: Share = 1.0
    pattern: Literal[
        "by-data",
        "more-data-first",
        "less-data-first",
        "y-max-first",
        "y-cycle",
        "log-normal",
        "sin-log-normal",
        "sine",
        "interleaved",
        "staircase",
    ] = "by-data"
    strength: ShareBelowOne = 0.5

    @property
    def label(self) -> IntArray:
        """Label of each client, shape (clients,), in [0, 10)."""
        return np.arange(self.num_clients) * NUM_LABELS // self.num_clients

    def init(self, *, rng: Generator) -> PatternedState:
        """Draw how much data each client has, and how often it is there."""
        flat = FlatNetwork.init(self, rng=rng)
        size, normal = np.exp(rng.standard_normal((2, self.num_clients)))
        q = rng.random(NUM_LABELS) * np.where(np.arange(NUM_LABELS) < NUM_LABELS // 2, 1.0, 0.5)
        usual = np.ones(self.num_clients)
        if self.pattern in ("by-data", "less-data-first"):
            usual = (size.min() / size) ** (1.0 if self.pattern == "by-data" else self.strength)
        elif self.pattern == "more-data-first":
            usual = (size / size.max()) ** self.strength
        elif self.pattern == "y-max-first":
            usual = self.strength * self.label / (NUM_LABELS - 1) + 1.0 - self.strength
        elif "log-normal" in self.pattern:
            usual = (normal / normal.max()) ** -math.log1p(-self.strength)
        elif self.pattern != "y-cycle":
            usual = q[self.label]
        return PatternedState(flat.coefficients, flat.cold, flat.phase, usual)

    def probability(self, usual: FloatArray, round: int) -> FloatArray:
        """Probability of each client to be there in a round, shape (clients,), in [0, 1]."""
        before, strength = round - 1, self.strength
        if self.pattern == "y-cycle":
            return np.where(before // 10 % NUM_LABELS == self.label, usual, (1.0 - strength) * usual)
        if self.pattern == "staircase":
            return usual * (1.0 - strength * (before // 10 % 2))
        if self.pattern in ("by-data", "sin-log-normal"):
            return usual * (0.5 + 0.4 * math.sin(2.0 * math.pi * (before % 24) / 23.0))
        if self.pattern in ("sine", "interleaved"):
            wave: FloatArray = usual * max(0.0, 1.0 - strength + strength * math.sin(2.0 * math.pi * before / 20.0))
            return wave if self.pattern == "sine" else np.where(wave < 0.1, 0.0, wave)
        return usual

    def observe(self, state: FlatState, round: int, /, *, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round for the whole fleet."""
        assert isinstance(state, PatternedState)
        context, outcome = FlatNetwork.observe(self, state, round, rng=rng)
        there = rng.random(self.num_clients) < self.probability(state.usual, round)
        return replace(context, available=context.available & there), outcome
