"""Simulated networks."""

from fedroster.networks.flat import FlatNetwork

__all__ = ["FlatNetwork"]
