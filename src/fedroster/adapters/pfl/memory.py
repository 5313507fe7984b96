"""Weights and an update memory inside pfl-research: each user's statistics are rewritten before they are summed."""

from __future__ import annotations

from pathlib import Path

from pfl.context import CentralContext, UserContext
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.privacy_mechanism import PrivacyMechanism
from pfl.stats import MappedVectorStatistics, WeightedStatistics

from fedroster.adapters.pfl.dataset import SelectedDataset, this_worker
from fedroster.aggregation.memory import UpdateMemory
from fedroster.core.errors import ConfigurationError
from fedroster.engine.remembered import RememberedUpdates


class WeighUpdates(Postprocessor):
    r"""A postprocessor by which pfl's average is the sum of weight times update, :math:`\sum_k w_k \Delta_k`.

    All K updates of an iteration count alike then, and each is scaled by :math:`c_k = K w_k`; without weights they stay
    as they are.  Give ``postprocessors=WeighUpdates(users).after(...)`` to pfl's backend.
    """

    def __init__(self, dataset: SelectedDataset) -> None:
        """Weigh the updates of a dataset's users, whose datasets have the users' ids as ``user_id``."""
        self._dataset = dataset

    def after(self, *others: Postprocessor) -> list[Postprocessor]:
        """All postprocessors of a run, this one last.

        Raises:
            ConfigurationError: If one is a mechanism for privacy, whose bound and noise would be for other updates.
        """
        if private := [type(other).__name__ for other in others if isinstance(other, PrivacyMechanism)]:
            raise ConfigurationError(
                f"{private[0]} bounds one update of one round, and with weights or a memory it counts otherwise; "
                f"expected no mechanism for privacy beside {type(self).__name__}"
            )
        self._dataset.factors = {}
        return [*others, self]

    def postprocess_one_user(
        self, *, stats: WeightedStatistics, user_context: UserContext
    ) -> tuple[WeightedStatistics, Metrics]:
        """Scale the statistics of one user."""
        factor = self._take(user_context)
        if factor is not None:
            stats.reweight(1.0)
            stats = stats.apply_elementwise(lambda values: factor * values)
        return stats, Metrics()

    def _take(self, user_context: UserContext) -> float | None:
        """What the user's update is scaled by, once; None without weights."""
        return (self._dataset.factors or {}).pop(user_context.user_id, None)


class RememberUpdates(WeighUpdates):
    r"""A postprocessor by which pfl's average takes the step of an update memory, and applies a decision's weights.

    User k's update becomes :math:`c_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n`; p are the weights of the statistics.
    """

    def __init__(
        self, memory: UpdateMemory, dataset: SelectedDataset, model: StatefulModel, folder: str | Path | None = None
    ) -> None:
        """Begin, or go on with what is in ``folder``; None to keep nothing.

        Raises:
            ConfigurationError: If the memory's step is no average of updates, or there are several workers.
        """
        if this_worker()[1] > 1:
            raise ConfigurationError("each of several workers would remember its own users; expected one worker")
        folder = None if folder is None else Path(folder)
        self._updates = RememberedUpdates(memory, folder, is_judged=False)  # its users are simulated here
        super().__init__(dataset)
        self._model = model
        self._came = list[str]()

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Rewrite the statistics of one user."""
        ops = get_default_framework_module()
        samples, factor = float(stats.weight), self._take(user_context)
        name = str(user_context.user_id)
        model = {key: ops.to_numpy(value) for key, value in self._model.get_parameters().items()}
        if not self._came:
            self._updates.begin(model, self._dataset.users)
        self._came.append(name)
        reply = {key: model[key] + ops.to_numpy(value) / samples for key, value in stats.items()}
        stats.weight = samples if factor is None else 1.0
        weight = 1.0 if factor is None else factor
        for key, value in self._updates.rewritten(name, reply, samples=samples, weight=weight).items():
            stats[key] = ops.to_tensor(stats.weight * (value - model[key]))
        return stats, Metrics()

    def postprocess_server(
        self, *, stats: MappedVectorStatistics, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Remember the updates of the iteration."""
        if self._came:
            self._updates.end(self._dataset.iterations, self._came, saved=self._dataset.saved)
        self._came = []
        return stats, Metrics()
