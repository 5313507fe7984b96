"""Apple's simulator pfl-research: a federated dataset whose cohorts a policy chooses."""

from fedroster.adapters.pfl.dataset import SelectedDataset
from fedroster.adapters.pfl.losses import ReportLosses
from fedroster.adapters.pfl.metrics import SelectionMetrics
from fedroster.adapters.pfl.privacy import banded_matrix_mechanism

__all__ = ["ReportLosses", "SelectedDataset", "SelectionMetrics", "banded_matrix_mechanism"]
