"""Shared settings: where reference.py is found, and reproducible property tests."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for `import reference`

settings.register_profile(
    "fedroster",
    deadline=None,  # the first call of a kernel compiles it
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fedroster")
