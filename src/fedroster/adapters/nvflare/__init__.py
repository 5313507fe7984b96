"""fedroster inside NVIDIA FLARE: its jobs train on the clients that a policy chooses.

Needs the extra ``nvflare``.
"""

from fedroster.core.errors import MissingDependencyError

try:
    from fedroster.adapters.nvflare.collaboration import SelectingClients
    from fedroster.adapters.nvflare.controllers import Selecting
    from fedroster.adapters.nvflare.edges import SelectingEdges, call_clients
    from fedroster.adapters.nvflare.replies import check_update
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "nvflare":
        raise
    raise MissingDependencyError.of("nvflare", "nvflare") from error
from fedroster.engine.edges import EdgeMap
from fedroster.engine.losses import LossMetrics
from fedroster.engine.outcomes import Reply
from fedroster.engine.remembered import RememberedUpdates
from fedroster.engine.report import CsvLog, RoundReport, RoundSink
from fedroster.engine.rules import NoNodesError, RoundRules

__all__ = [
    "CsvLog",
    "EdgeMap",
    "LossMetrics",
    "NoNodesError",
    "RememberedUpdates",
    "Reply",
    "RoundReport",
    "RoundRules",
    "RoundSink",
    "Selecting",
    "SelectingClients",
    "SelectingEdges",
    "call_clients",
    "check_update",
]
