"""A policy whose promised share, or weight of time, follows a target for the mean length of rounds.

A policy of this project: integral control of one parameter of another policy.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.citation import SOFTWARE
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Positive
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import AnyPolicy, Draws, ForOneServer, check_policy
from fedroster.core.state import kept
from fedroster.policies.floor import Floor

_GAIN = 0.2  # per round, of the logarithm, by the relative error: noise of one round moves it little
_FIRST_GAIN, _FIRST_ROUNDS = 0.4, 25.0  # more of it at first, when the parameter may be far off
_LONGEST = 5.0  # a round counts as this many targets at most
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class SteeredState:
    """What the policy inside knows, and where its parameter stands.

    Attributes:
        inner: State of the policy inside.
        level: Natural logarithm of the parameter.
        rounds: Rounds whose length was learned.
        longest_s: Longest time in time since the last decision, seconds; 0 if nothing came.
    """

    inner: Any
    level: float = kept(-60.0, 60.0)
    rounds: int = kept(0)
    longest_s: float = kept(0.0)


@dataclass(frozen=True, slots=True)
class Steered(ForOneServer):
    r"""Holds the mean length of rounds at a target, and gives the clients the greatest share that this allows.

    After each round of length r the parameter p of the policy inside moves by

    .. math:: \ln p \leftarrow \ln p \pm g_t\,\frac{r^* - r}{r^*},\qquad g_t = 0.2 + 0.4\,e^{-t/25},

    so that it stands still only where the mean of r is the target :math:`r^*`.  The parameter is ``beta`` of FLOOR,
    with plus, within [0.001, 1 / ceil(N / m)]; ``V`` of RBCS-F, with minus.  A target that no value of the parameter
    reaches leaves it at the end of its range.

    Guarantee: none but that of the policy inside with the least ``beta`` that was in force.  Cost: that of the policy
    inside.

    Attributes:
        policy: The policy inside, :class:`~fedroster.policies.Floor` or
            :class:`~fedroster.policies.RBCSF`; its parameter is where it begins.  In texts its parameters are separated
            by ``;``.
        mean_round_s: Target for the mean length of rounds, seconds, > 0.  The length of a round is the longest time of
            an update that came in time.
    """

    citation: ClassVar[str] = SOFTWARE
    draws: ClassVar[Draws] = "never"

    policy: AnyPolicy = Floor()  # noqa: RUF009
    mean_round_s: Positive = 60.0

    def __post_init__(self) -> None:
        """Check the parameters and the policy inside.

        Raises:
            ConfigurationError: If the policy inside has no parameter that moves the length of rounds.
        """
        ForOneServer.__post_init__(self)
        check_policy(self.policy)
        if not hasattr(self.policy, "V") and not isinstance(self.policy, Floor):
            raise ConfigurationError(
                f"policy is {self.policy!r}; expected one with a parameter that moves the length of rounds: "
                "fedroster.Floor(beta) or fedroster.RBCSF(V)"
            )

    @property
    def _knob(self) -> str:
        return "V" if hasattr(self.policy, "V") else "beta"

    def now(self, state: SteeredState) -> AnyPolicy:
        """The policy inside with its parameter as it stands."""
        inside: Any = self.policy
        policy: AnyPolicy = dataclasses.replace(inside, **{self._knob: math.exp(state.level)})
        return policy

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse what the policy inside refuses."""
        self.policy.check(spec)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> SteeredState:
        """Begin the policy inside."""
        begin = max(float(getattr(self.policy, self._knob)), _LEAST)
        return SteeredState(self.policy.init(spec, rng=rng), math.log(begin), 0, 0.0)

    def select(self, state: SteeredState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Ask the policy inside."""
        return self.now(state).select(state.inner, context, rng=rng)

    def commit(self, state: SteeredState, context: RoundContext, selection: Selection, /) -> SteeredState:
        """Let the policy inside book the decision, and move its parameter by the round before."""
        inner = self.now(state).commit(state.inner, context, selection)
        if not state.longest_s:
            return replace(state, inner=inner)
        members = context.num_links if context.members is None else int(np.count_nonzero(context.members))
        error = 1.0 - min(state.longest_s / self.mean_round_s, _LONGEST)
        gain = _GAIN + _FIRST_GAIN * math.exp(-state.rounds / _FIRST_ROUNDS)
        least, most, sign = _LEAST, 1.0 / max(math.ceil(members / context.cohort_size), 1), 1.0
        if self._knob == "V":
            least, most, sign = _LEAST / self.mean_round_s, 1e6 / self.mean_round_s, -1.0
        level = min(max(state.level + sign * gain * error, math.log(least)), math.log(most))
        return SteeredState(inner, level, state.rounds + 1, 0.0)

    def update(self, state: SteeredState, feedback: Feedback, /) -> SteeredState:
        """Let the policy inside learn, and note how long the round took."""
        in_time = feedback.exchange_time_s[feedback.status == Status.COMPLETED]
        longest_s = max(state.longest_s, float(np.nanmax(in_time, initial=0.0)))
        return replace(state, inner=self.now(state).update(state.inner, feedback), longest_s=longest_s)

    def backlog(self, state: SteeredState, /) -> FloatArray:
        """What the policy inside owes each client, shape (clients,)."""
        inside: Any = self.policy
        owed: FloatArray = inside.backlog(state.inner)
        return owed

    def expected_times_s(self, state: SteeredState, clients: IntArray, features: FloatArray, /) -> FloatArray:
        """What the policy inside expects, shape (k,), seconds."""
        inside: Any = self.policy
        times_s: FloatArray = inside.expected_times_s(state.inner, clients, features)
        return times_s
