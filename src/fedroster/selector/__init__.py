"""The object that callers hold: ask for a cohort, tell what came back."""

from fedroster.core.ids import ClientId
from fedroster.selector.cohorts import Cohort, EdgeCohort
from fedroster.selector.edges import KINDS, EdgeSelector, begun
from fedroster.selector.selector import Options, Selector, append_state, go_on, kind_of, state_of

__all__ = [
    "KINDS",
    "ClientId",
    "Cohort",
    "EdgeCohort",
    "EdgeSelector",
    "Options",
    "Selector",
    "append_state",
    "begun",
    "go_on",
    "kind_of",
    "state_of",
]
