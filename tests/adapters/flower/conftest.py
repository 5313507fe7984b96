"""Flower's own imports warn, which is not our error; and the fake grid is found next to the tests."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `import fake_grid`
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import flwr.clientapp
        import flwr.serverapp.strategy
        import flwr.simulation  # noqa: F401

        logging.getLogger("flwr").setLevel(logging.ERROR)
        logging.getLogger("flwr.fedroster").setLevel(logging.INFO)
        try:  # a process that Flower starts knows who it is
            from flwr.supercore.task_identity import TaskIdentity

            TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        except ModuleNotFoundError:
            pass  # older ones write it on the messages when they are sent
    except ModuleNotFoundError:
        pass  # the tests skip themselves
