"""What another policy would have made of the rounds that a log tells of (docs/explanation/replay.md)."""

from fedroster.replay.estimates import MEASURES, Estimate, Measure, replay

__all__ = ["MEASURES", "Estimate", "Measure", "replay"]
