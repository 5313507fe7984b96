"""What policies without a memory share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from numpy.random import Generator

from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection


@dataclass(frozen=True, slots=True)
class NoState:
    """Nothing is learned."""


class Stateless:
    """The part of the policy interface that a policy without a memory need not write."""

    __slots__ = ()

    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = True

    def check(self, spec: ProblemSpec, /) -> None:
        """Promise nothing."""

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> NoState:
        """Know nothing."""
        return NoState()

    def commit(self, state: NoState, context: RoundContext, selection: Selection, /) -> NoState:
        """Book nothing."""
        return state

    def update(self, state: NoState, feedback: Feedback, /) -> NoState:
        """Learn nothing."""
        return state
