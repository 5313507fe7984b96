"""Simulated networks."""

from fedroster.environment.flat import FlatNetwork

__all__ = ["FlatNetwork"]
