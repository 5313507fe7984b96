"""Conversions at the edge: inside, everything is SI (seconds, hertz, watts, bits)."""

from __future__ import annotations

MEGA = 1e6


def dbm_to_w(power_dbm: float) -> float:
    r"""Power in watts of a level in dBm, :math:`10^{(x-30)/10}`."""
    return float(10.0 ** ((power_dbm - 30.0) / 10.0))
