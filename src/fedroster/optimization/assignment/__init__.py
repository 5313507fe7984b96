"""Client selection as an assignment of clients to edge servers, solved with a proof."""

from fedroster.optimization.assignment.links import check_links
from fedroster.optimization.assignment.solve import (
    NODE_LIMIT,
    VALUE_TOLERANCE,
    AssignmentResult,
    maximise_cardinality,
    solve_assignment,
)

__all__ = [
    "NODE_LIMIT",
    "VALUE_TOLERANCE",
    "AssignmentResult",
    "check_links",
    "maximise_cardinality",
    "solve_assignment",
]
