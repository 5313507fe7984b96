"""Conversions at the edge: inside, everything is SI (seconds, hertz, watts, bits)."""

from __future__ import annotations

import re

from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError

MEGA = 1e6
_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def seconds_of(name: str, text: str, *, expected: str) -> float:
    """Seconds, > 0, that a time such as "90min" or "7d" has; units are s, min, h, d and w.

    Args:
        name: What is given, for the error.
        text: The time.
        expected: What is expected besides, for the error.

    Raises:
        ConfigurationError: If it is none.
    """
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(s|min|h|d|w)", text)
    if found is None or not float(found[1]):
        raise ConfigurationError(f"{name} is {shown(text)}; expected {expected}a time such as '90min', '56h' or '7d'")
    return float(found[1]) * _UNIT_S[found[2]]


def dbm_to_w(power_dbm: float) -> float:
    r"""Power in watts of a level in dBm, :math:`10^{(x-30)/10}`."""
    return float(10.0 ** ((power_dbm - 30.0) / 10.0))
