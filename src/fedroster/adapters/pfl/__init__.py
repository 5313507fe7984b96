"""Apple's simulator pfl-research: a federated dataset whose cohorts a policy chooses.

Needs the extra ``pfl``.
"""

from fedroster.core.errors import MissingDependencyError

try:
    from fedroster.adapters.pfl.checkpoint import RunCheckpoint
    from fedroster.adapters.pfl.dataset import SelectedDataset, SelectionMetrics, without_amplification
    from fedroster.adapters.pfl.losses import ReportLosses, ReportSignatures
    from fedroster.adapters.pfl.memory import RememberUpdates, WeighUpdates
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "pfl":
        raise
    raise MissingDependencyError.of("pfl", "pfl") from error

__all__ = [
    "RememberUpdates",
    "ReportLosses",
    "ReportSignatures",
    "RunCheckpoint",
    "SelectedDataset",
    "SelectionMetrics",
    "WeighUpdates",
    "without_amplification",
]
