"""What pfl's own callbacks and logs show of the selection."""

from __future__ import annotations

from typing import Any

from pfl.callback.base import TrainingProcessCallback
from pfl.metrics import Metrics, StringMetricName

from fedroster.adapters.pfl.dataset import SelectedDataset


class SelectionMetrics(TrainingProcessCallback):
    """A callback that adds simulated times and participation rates to pfl's metrics."""

    def __init__(self, dataset: SelectedDataset) -> None:
        """Watch a dataset."""
        self._dataset = dataset

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Never stop; return "selection | ..." metrics: seconds, and the least and greatest participation rate."""
        rates = [*self._dataset.selector.participation_rates().values()]
        shown = {
            "round time, s": self._dataset.round_s,
            "simulated time, s": self._dataset.clock_s,
            "least participation rate": min(rates),
            "greatest participation rate": max(rates),
        }
        return False, Metrics([(StringMetricName(f"selection | {name}"), value) for name, value in shown.items()])
