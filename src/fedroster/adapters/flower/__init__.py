"""fedroster inside Flower: any strategy, unchanged, trains on the nodes that a policy chooses.

Needs the extra ``flower``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedroster.core.errors import MissingDependencyError

if TYPE_CHECKING:
    from fedroster.adapters.flower.context import ContextReporter as ContextReporter
    from fedroster.adapters.flower.context import report_context as report_context
    from fedroster.adapters.flower.grid import SelectingGrid as SelectingGrid
    from fedroster.adapters.flower.older import with_selector as with_selector
    from fedroster.adapters.flower.replies import check_reply as check_reply
    from fedroster.aggregation.memory import UpdateMemory as UpdateMemory
    from fedroster.aggregation.places import FreePlaces as FreePlaces
    from fedroster.engine.contexts import ContextOptions as ContextOptions
    from fedroster.engine.contexts import NodeContext as NodeContext
    from fedroster.engine.contexts import paper_features as paper_features
    from fedroster.engine.edges import EdgeMap as EdgeMap
    from fedroster.engine.edges import edge_features as edge_features
    from fedroster.engine.losses import LossMetrics as LossMetrics
    from fedroster.engine.report import CsvLog as CsvLog
    from fedroster.engine.report import RoundReport as RoundReport
    from fedroster.engine.report import RoundSink as RoundSink
    from fedroster.engine.rules import NoNodesError as NoNodesError
    from fedroster.engine.rules import RoundRules as RoundRules

_NAMES = {
    "adapters.flower.context": "ContextReporter report_context",
    "adapters.flower.grid": "SelectingGrid",
    "adapters.flower.older": "with_selector",
    "adapters.flower.replies": "check_reply",
    "aggregation.memory": "UpdateMemory",
    "aggregation.places": "FreePlaces",
    "engine.contexts": "ContextOptions NodeContext paper_features",
    "engine.edges": "EdgeMap edge_features",
    "engine.losses": "LossMetrics",
    "engine.report": "CsvLog RoundReport RoundSink",
    "engine.rules": "NoNodesError RoundRules",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Load a name on first use: a node that only reports its context needs little, and starts for every message."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"fedroster.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "flwr":
            raise
        raise MissingDependencyError.of("flwr", "flower") from error
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
