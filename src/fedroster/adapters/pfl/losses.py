"""Losses that users measure while they train, and signatures of their updates, for policies that learn from them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from pfl.context import CentralContext, UserContext
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics
from pfl.postprocessor.base import Postprocessor
from pfl.stats import MappedVectorStatistics

from fedroster.adapters.pfl.dataset import SelectedDataset, summed
from fedroster.aggregation.signatures import signatures_of
from fedroster.core.arrays import FloatArray
from fedroster.core.ids import ClientId
from fedroster.core.protocols import signs


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
        self._measured = np.zeros((2, len(dataset.users)))  # sum and count

    def postprocess_one_user_metrics(self, *, user_context: UserContext) -> Metrics:
        """Note the loss of one user."""
        loss = float(self._loss_of(user_context))
        row = self._dataset.row_of.get(user_context.user_id)
        if row is not None and math.isfinite(loss):
            self._measured[:, row] += loss, 1.0
        return Metrics()

    def postprocess_server_metrics(self, *, central_context: CentralContext, aggregate_metrics: Metrics) -> Metrics:
        """Tell the selector what the users of all workers measured."""
        sums = zip(self._dataset.users, *summed(self._measured).tolist(), strict=True)
        self._dataset.losses |= {user: total / count for user, total, count in sums if count}
        self._measured[:] = 0.0
        return Metrics()


class ReportSignatures(Postprocessor):
    """A postprocessor, the first of all, that tells the signatures of users' updates; datasets have a ``user_id``."""

    def __init__(self, dataset: SelectedDataset) -> None:
        """Look at the updates of a dataset's users."""
        self._dataset = dataset
        self._wanted = signs(dataset.selector.policy)
        length = 0 if self._wanted is None else self._wanted.length
        self._found = np.zeros((len(dataset.users), length + 1))  # the last says whether there is one
        dataset.signatures = self._told = dict[ClientId, FloatArray]()

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Note the signature of one user's update."""
        if self._wanted is not None:
            ops = get_default_framework_module()
            update = {key: ops.to_numpy(value)[None] / float(stats.weight) for key, value in stats.items()}
            unmoved = {key: np.zeros(value.shape[1:]) for key, value in update.items()}
            found = signatures_of(update, unmoved, self._wanted, seed=self._dataset.seed)
            self._found[self._dataset.row_of[user_context.user_id]] = *found[0], 1.0
        return stats, Metrics()

    def postprocess_server_metrics(self, *, central_context: CentralContext, aggregate_metrics: Metrics) -> Metrics:
        """Tell the dataset what the users of all workers sent."""
        for user, found in zip(self._dataset.users, summed(self._found), strict=True):
            if found[-1]:
                self._told[user] = found[:-1]
        self._found[:] = 0.0
        return Metrics()
