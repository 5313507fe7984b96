"""Client selection as an assignment of clients to edge servers, solved with a proof."""

from fedroster.optimization.assignment.solve import NODE_LIMIT, VALUE_TOLERANCE, AssignmentResult, solve_assignment

__all__ = ["NODE_LIMIT", "VALUE_TOLERANCE", "AssignmentResult", "solve_assignment"]
