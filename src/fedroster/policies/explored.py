"""Another policy's decisions with some places drawn at random, so that every client's probability is known.

A policy of this project.  The idea, to log with known probabilities so that other decisions can be judged later, is
that of L. Bottou et al., "Counterfactual Reasoning and Learning Systems", JMLR 2013, arXiv:1209.2355.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.citation import SOFTWARE
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, Range
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import (
    AnyPolicy,
    Draws,
    DrawsKnown,
    ExpectsTimes,
    ForOneServer,
    Owes,
    check_policy,
    draws,
    polls,
    wants_losses,
)
from fedroster.core.state import kept, per_client
from fedroster.core.streams import Streams
from fedroster.optimization.inclusion import filled_up
from fedroster.policies.floor import Floor


@dataclass(frozen=True, slots=True)
class ExploredState:
    """What the policy inside knows, and a seed.

    Attributes:
        inner: State of the policy inside.
        seed: Of its draws, so that its decision can be repeated, and of the rounds that explore.
        chosen: Whether each client was chosen yet, shape (clients,).
    """

    inner: Any
    seed: int = kept(0, 2**62)
    chosen: BoolArray = per_client(least=0)


@dataclass(frozen=True, slots=True)
class Explored(ForOneServer):
    r"""Fills all but r places of a cohort as another policy does, and draws the last r from all other clients.

    With n available clients and the cohort C of the policy inside, of which it knows the probabilities
    :math:`\pi_i` (0 and 1 for one that does not draw),

    .. math:: P(i \text{ is chosen}) = \pi_i + (1 - \pi_i) \frac{r}{n - |C|} > 0

    so that what happens to any client can be weighed by one over its probability.  With ``probability`` < 1 only
    that share of the rounds explores, drawn independently, and the others are left to the policy inside as they are.

    Guarantee: what FLOOR and RBCS-F promise with m - r places holds with m, of which r explore
    (docs/explanation/exploring.md).  Cost: that of the policy inside, twice where its probabilities are asked for.

    Attributes:
        policy: The policy inside, for one server.  In texts its parameters are separated by ``;``:
            ``explored:policy=rbcs-f:V=5;beta=0.1,places=2``.
        places: r, places that explore, >= 1 and fewer than the cohort has.
        probability: Of a round to explore, in (0, 1].

    Deviations: the policy inside books and learns from all chosen clients as if it had chosen them itself.
    """

    citation: ClassVar[str] = SOFTWARE
    draws: ClassVar[Draws] = "known"

    policy: AnyPolicy = Floor()  # noqa: RUF009
    places: Count = 1
    probability: Annotated[float, Range(above=0.0, most=1.0)] = 1.0

    def __post_init__(self) -> None:
        """Check the parameters and the policy inside."""
        ForOneServer.__post_init__(self)
        check_policy(self.policy)

    @property
    def omniscient(self) -> bool:  # type: ignore[override]
        """That of the inner policy."""
        return self.policy.omniscient

    @property
    def fills_cohort(self) -> bool:  # type: ignore[override]
        """That of the inner policy."""
        return self.policy.fills_cohort

    @property
    def wants_losses(self) -> bool:
        """That of the inner policy."""
        return wants_losses(self.policy)

    @property
    def polls(self) -> bool:
        """That of the inner policy."""
        return polls(self.policy)

    @property
    def needs_limits(self) -> bool:
        """That of the inner policy."""
        return bool(getattr(self.policy, "needs_limits", False))

    @property
    def beta(self) -> float:
        """Rate that the policy inside promises; no attribute where it promises none."""
        rate: float = self.policy.beta  # type: ignore[attr-defined]
        return rate

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, no place for the policy inside, and what it cannot promise with its places."""
        ForOneServer.check(self, spec)
        if self.places >= spec.cohort_size < spec.num_clients:
            raise ConfigurationError(
                f"places is {self.places}; expected fewer than the cohort's {spec.cohort_size}, so that some are left "
                f"to {type(self.policy).__name__}"
            )
        self.policy.check(replace(spec, cohort_size=max(spec.cohort_size - self.places, 1)))

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> ExploredState:
        """Begin the policy inside."""
        inner = self.policy.init(spec, rng=rng)
        return ExploredState(inner, int(rng.integers(2**62)), np.zeros(spec.num_clients, np.bool_))

    def _inside(self, context: RoundContext, places: int) -> RoundContext | None:
        """The inner policy's question in a round with this many places that explore; None for nothing."""
        size = context.cohort_size - places
        return replace(context, cohort_size=size) if size > 0 else None

    def _explores(self, state: ExploredState, round: int) -> bool:
        return self.probability == 1.0 or Streams(state.seed).at("explores", round).random() < self.probability

    def _decide(self, state: ExploredState, inside: RoundContext | None) -> Selection | None:
        if inside is None:
            return None
        return self.policy.select(state.inner, inside, rng=Streams(state.seed).at("inside", inside.round))

    def select(self, state: ExploredState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Ask the policy inside, then draw from the others."""
        places = self.places if self._explores(state, context.round) else 0
        decided = self._decide(state, self._inside(context, places))
        links: IntArray = np.zeros(0, np.int64) if decided is None else decided.links
        outside: BoolArray = context.available.copy()
        outside[links] = False
        rest = np.flatnonzero(outside)
        places = min(places, context.cohort_size)
        drawn = rest if rest.shape[0] <= places else rng.choice(rest, places, replace=False, shuffle=False)
        return Selection(context.round, np.sort(np.concatenate((links, drawn))))

    def inclusion(self, state: ExploredState, context: RoundContext, /) -> FloatArray | None:
        """The probability above; of a policy inside that polls, and may not be asked twice, None."""
        if self.polls and context.poll is not None:
            return None
        explored = self._given(state, context, self.places)
        if self.probability == 1.0:
            return explored
        return self.probability * explored + (1.0 - self.probability) * self._given(state, context, 0)

    def _given(self, state: ExploredState, context: RoundContext, places: int) -> FloatArray:
        """Probabilities in a round with this many places that explore."""
        inside, probability = self._inside(context, places), np.zeros(context.num_links)
        known = None
        if inside is not None and draws(self.policy) in ("uniform", "known") and isinstance(self.policy, DrawsKnown):
            known = self.policy.inclusion(state.inner, inside)
        if known is not None:
            probability = known
        elif (decided := self._decide(state, inside)) is not None:
            probability[decided.links] = 1.0
        rows = np.flatnonzero(context.available)
        chosen = round(float(probability[rows].sum()))
        probability[rows] = filled_up(probability[rows], min(places, context.cohort_size), chosen)
        return probability

    def commit(self, state: ExploredState, context: RoundContext, selection: Selection, /) -> ExploredState:
        """Let the policy inside book the whole cohort."""
        places = self.places if self._explores(state, context.round) else 0
        inside = self._inside(context, places) or context
        state.chosen[context.clients_of(selection.links)] = True
        return replace(state, inner=self.policy.commit(state.inner, inside, selection))

    def update(self, state: ExploredState, feedback: Feedback, /) -> ExploredState:
        """Let the policy inside learn."""
        return replace(state, inner=self.policy.update(state.inner, feedback))

    def backlog(self, state: ExploredState, /) -> FloatArray:
        """What the policy inside owes each client, shape (clients,); zeros from one that keeps no count."""
        if isinstance(self.policy, Owes):
            return self.policy.backlog(state.inner)
        return np.zeros(state.chosen.shape[0])

    def expected_times_s(self, state: ExploredState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """What the policy inside expects, shape (k,), seconds; NaN from one that believes nothing about times."""
        if isinstance(self.policy, ExpectsTimes):
            return self.policy.expected_times_s(state.inner, clients, features)
        return np.full(clients.shape[0], np.nan)
