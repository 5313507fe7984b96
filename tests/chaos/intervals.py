"""Intervals of ``fedroster replay`` against what happened, in federations that are drawn again at each run."""

from __future__ import annotations

import secrets

from benchmarks.replay import judged_log
from scipy.stats import binom

from chaos.rows import Row
from fedroster.lab.replay import MEASURES
from fedroster.types import Streams

_LEAST = 0.85  # of intervals of 90 % that are to hold
_CHANCE = 1e-3  # that fewer held by chance


def run(size: float, seed: int) -> list[Row]:
    """The seed draws nothing: federations that were never seen before are the point."""
    drawn = secrets.randbits(31)
    logs = Row(f"federations of seed {drawn}, played by a loop of its own, logged and replayed under another policy")
    held: dict[str, list[bool]] = {measure: [] for measure in MEASURES}
    for number in range(max(5, round(50 * size))):
        with logs.attempt(f"log {number}"):
            for one in judged_log(Streams(drawn).at("log", number)):
                if one["refused"] is None:
                    held[one["measure"]].append(one["low"] - 1e-9 <= one["truth"] <= one["high"] + 1e-9)
    rows = [logs]
    for measure, those in held.items():
        row = Row(f"intervals of 90 % for the {measure} of the other policy", tries=len(those))
        row.note = f"{sum(those)} of {len(those)} hold"
        if those and binom.cdf(sum(those), len(those), _LEAST) < _CHANCE:
            row.fault(f"{row.note}; expected {_LEAST:.0%}")
        rows.append(row)
    return [row.done() for row in rows]
