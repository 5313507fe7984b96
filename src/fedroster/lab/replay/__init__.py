"""What another policy would have done in the rounds of a log (docs/explanation/replay.md)."""

from fedroster.lab.replay.estimates import MEASURES, Estimate, Measure, replay

__all__ = ["MEASURES", "Estimate", "Measure", "replay"]
