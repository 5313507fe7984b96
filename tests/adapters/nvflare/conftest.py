"""The fake server is found next to the tests; FLARE's own imports warn, which is not our error."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `import fake_flare`

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import nvflare.app_common.workflows.fedavg
        import nvflare.collab  # noqa: F401

        logging.getLogger("nvflare.fedroster").setLevel(logging.INFO)
        logging.getLogger("nvflare").setLevel(logging.ERROR)
    except ModuleNotFoundError:
        pass  # the tests skip themselves
