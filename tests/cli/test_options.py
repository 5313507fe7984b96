"""Options that several commands share."""

from __future__ import annotations

import math
import time

from fedroster.cli.options import Training


def test_the_time_is_given_in_minutes(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert Training(minutes=2.0).conditions().stop_at == 1120.0
    assert Training().conditions().stop_at == math.inf
