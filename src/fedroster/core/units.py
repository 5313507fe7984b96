"""Conversions at the edge: inside, everything is SI (seconds, hertz, watts, bits)."""

from __future__ import annotations

MEGA = 1e6


def db_to_linear(value_db: float) -> float:
    r"""Power ratio of a level in decibel, :math:`10^{x/10}`."""
    return float(10.0 ** (value_db / 10.0))


def dbm_to_w(power_dbm: float) -> float:
    r"""Power in watts of a level in dBm, :math:`10^{(x-30)/10}`."""
    return db_to_linear(power_dbm - 30.0)
