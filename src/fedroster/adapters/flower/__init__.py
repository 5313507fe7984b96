"""fedroster inside Flower: any strategy, unchanged, trains on the nodes that a policy chooses.

Needs the extra ``flower``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedroster.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from fedroster.adapters.flower.context import ContextReporter, report_context
    from fedroster.adapters.flower.edge_models import EdgeAggregation
    from fedroster.adapters.flower.grid import SelectingGrid
    from fedroster.adapters.flower.replies import check_reply
    from fedroster.engine.contexts import ContextRules, NodeContext, paper_features
    from fedroster.engine.edges import EdgeRules, edge_features
    from fedroster.engine.losses import LossRules
    from fedroster.engine.report import CsvLog, PrometheusEndpoint, RoundReport, RoundSink, TensorBoardLog
    from fedroster.engine.rules import NoNodesError, RoundRules

_HOMES = {
    f"{__name__}.context": ("ContextReporter", "report_context"),
    f"{__name__}.edge_models": ("EdgeAggregation",),
    f"{__name__}.grid": ("SelectingGrid",),
    f"{__name__}.replies": ("check_reply",),
    "fedroster.engine.contexts": ("ContextRules", "NodeContext", "paper_features"),
    "fedroster.engine.edges": ("EdgeRules", "edge_features"),
    "fedroster.engine.losses": ("LossRules",),
    "fedroster.engine.report": ("CsvLog", "PrometheusEndpoint", "RoundReport", "RoundSink", "TensorBoardLog"),
    "fedroster.engine.rules": ("NoNodesError", "RoundRules"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ContextReporter",
    "ContextRules",
    "CsvLog",
    "EdgeAggregation",
    "EdgeRules",
    "LossRules",
    "NoNodesError",
    "NodeContext",
    "PrometheusEndpoint",
    "RoundReport",
    "RoundRules",
    "RoundSink",
    "SelectingGrid",
    "TensorBoardLog",
    "check_reply",
    "edge_features",
    "paper_features",
    "report_context",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use: a node that only reports its context needs little, and starts for every message."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(_HOME_OF[name])
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "flwr":
            raise
        raise MissingDependencyError.of("flwr", "flower") from error
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
