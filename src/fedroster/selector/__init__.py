"""The object that callers hold: ask for a cohort, tell what came back."""

from fedroster.core.ids import ClientId
from fedroster.selector.booking import note, noted
from fedroster.selector.edges import KINDS, EdgeCohort, EdgeSelector, begun
from fedroster.selector.keeping import (
    Options,
    entered,
    go_on,
    in_state,
    said,
    settings_of,
    state_of,
    trust_of,
)
from fedroster.selector.selector import Cohort, Selector

__all__ = [
    "KINDS",
    "ClientId",
    "Cohort",
    "EdgeCohort",
    "EdgeSelector",
    "Options",
    "Selector",
    "begun",
    "entered",
    "go_on",
    "in_state",
    "note",
    "noted",
    "said",
    "settings_of",
    "state_of",
    "trust_of",
]
