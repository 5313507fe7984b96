"""An update memory inside pfl-research: each user's statistics are rewritten before they are summed."""

from __future__ import annotations

from pathlib import Path

from pfl.context import CentralContext, UserContext
from pfl.internal.ops.selector import get_default_framework_module
from pfl.metrics import Metrics
from pfl.model.base import StatefulModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.privacy_mechanism import PrivacyMechanism
from pfl.stats import MappedVectorStatistics

from fedroster.adapters.pfl.dataset import SelectedDataset
from fedroster.adapters.pfl.workers import this_worker
from fedroster.aggregation.memory import UpdateMemory
from fedroster.core.errors import ConfigurationError
from fedroster.engine.remembered import RememberedUpdates


class RememberUpdates(Postprocessor):
    r"""A postprocessor by which pfl's average takes the step of an update memory.

    User k's update becomes :math:`\Delta_k - s\, y_k + s \sum_n p_n y_n`; p are the weights of the statistics.

    Example:
        .. code-block:: python

            remember = RememberUpdates(UpdateMemory(), users, model, "checkpoints/updates")
            SimulatedBackend(training_data=users, val_data=validation, postprocessors=remember.after())
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
        self._updates = RememberedUpdates(memory, None if folder is None else Path(folder))
        self._dataset = dataset
        self._model = model
        self._came = list[str]()

    def after(self, *others: Postprocessor) -> list[Postprocessor]:
        """All postprocessors of a run, this one last.

        Raises:
            ConfigurationError: If one is a mechanism for privacy, which bounds what one update of one round can do.
        """
        if private := [type(other).__name__ for other in others if isinstance(other, PrivacyMechanism)]:
            raise ConfigurationError(
                f"{private[0]} bounds one update of one round, and a remembered update counts in all later rounds; "
                "expected no mechanism for privacy beside an update memory"
            )
        return [*others, self]

    def postprocess_one_user(
        self, *, stats: MappedVectorStatistics, user_context: UserContext
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Rewrite the statistics of one user."""
        ops = get_default_framework_module()
        weight = float(stats.weight)
        name = str(user_context.user_id)
        model = {key: ops.to_numpy(value) for key, value in self._model.get_parameters().items()}
        if not self._came:
            self._updates.begin(model, self._dataset.users)
        self._came.append(name)
        reply = {key: model[key] + ops.to_numpy(value) / weight for key, value in stats.items()}
        for key, value in self._updates.rewritten(name, reply, samples=weight).items():
            stats[key] = ops.to_tensor(weight * (value - model[key]))
        return stats, Metrics()

    def postprocess_server(
        self, *, stats: MappedVectorStatistics, central_context: CentralContext, aggregate_metrics: Metrics
    ) -> tuple[MappedVectorStatistics, Metrics]:
        """Remember the updates of the iteration."""
        if self._came:
            self._updates.end(self._dataset.iterations, self._came)
        self._came = []
        return stats, Metrics()
