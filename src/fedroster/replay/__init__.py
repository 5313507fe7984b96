"""What another policy would have done in the rounds of a log (docs/explanation/replay.md)."""

from fedroster.replay.estimates import MEASURES, Estimate, Measure, replay

__all__ = ["MEASURES", "Estimate", "Measure", "replay"]
