"""Losses that users measure while they train, for policies that learn from them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pfl.context import CentralContext, UserContext
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor

from fedroster.adapters.pfl.dataset import SelectedDataset
from fedroster.adapters.pfl.workers import summed


class ReportLosses(Postprocessor):
    """A postprocessor that reports each user's loss of the received model to the selector.

    Policies such as Oort and Power-of-Choice learn from it; without it they know of times only.

    Example:
        .. code-block:: python

            before = TrainMetricName("loss", Population.TRAIN, after_training=False)
            losses = ReportLosses(users, lambda user: user.metrics[before].overall_value)
            SimulatedBackend(training_data=users, val_data=validation, postprocessors=[losses])
    """

    def __init__(self, dataset: SelectedDataset, loss_of: Callable[[UserContext], float]) -> None:
        """Listen to the users of a dataset.

        Args:
            dataset: Whose selector is told.
            loss_of: Mean loss, over a user's samples, of the model before it trained.  Values that are not finite are
                not told.  The dataset that is made for a user must have its id as ``user_id``.
        """
        self._dataset, self._loss_of = dataset, loss_of
        self._row_of = {user: row for row, user in enumerate(dataset.users)}
        self._measured = np.zeros((2, len(dataset.users)))  # sum and count

    def postprocess_one_user_metrics(self, *, user_context: UserContext) -> Metrics:
        """Note the loss of one user."""
        loss = float(self._loss_of(user_context))
        row = self._row_of.get(user_context.user_id)
        if row is not None and math.isfinite(loss):
            self._measured[:, row] += loss, 1.0
        return Metrics()

    def postprocess_server_metrics(self, *, central_context: CentralContext, aggregate_metrics: Metrics) -> Metrics:
        """Tell the selector what the users of all workers measured."""
        total, count = summed(self._measured)
        told = np.flatnonzero(count)
        self._dataset.report_losses({self._dataset.users[row]: float(total[row] / count[row]) for row in told.tolist()})
        self._measured[:] = 0.0
        return Metrics()
