"""The object that callers hold: ask for a cohort, tell what came back."""

from fedroster.core.ids import ClientId
from fedroster.selector.cohorts import Cohort, EdgeCohort
from fedroster.selector.edges import KINDS, EdgeSelector, begun
from fedroster.selector.selector import Options, Selector, go_on, state_of

__all__ = [
    "KINDS",
    "ClientId",
    "Cohort",
    "EdgeCohort",
    "EdgeSelector",
    "Options",
    "Selector",
    "begun",
    "go_on",
    "state_of",
]
