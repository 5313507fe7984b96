"""Replies are rewritten, so that a strategy's own average applies a decision's weights and an update memory's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import Array, Message
from numpy.typing import NDArray

from fedroster.adapters.flower.needs import StrategyNeeds
from fedroster.adapters.flower.replies import arrays_of
from fedroster.core.protocols import AnyPolicy, refuse_weights
from fedroster.engine.outcomes import Reply
from fedroster.engine.remembered import RememberedUpdates


def check_weights(policy: AnyPolicy, needs: StrategyNeeds) -> None:
    """Refuse a policy that weighs updates where the strategy's average is not known, or noise is added to it.

    Raises:
        ConfigurationError: If it would not be the weighted sum, or its noise would be for other updates.
    """
    if needs.num_updates:
        refuse_weights(policy, f"{needs.strategy} adds noise for updates that count alike")
    if not needs.weight_key:
        refuse_weights(policy, "the strategy has no weighted_by_key, the metric by which it averages")


def rewrite(
    sent: Message,
    replies: Sequence[Reply],
    weight_key: str,
    *,
    weights: Mapping[str, float] | None = None,
    updates: RememberedUpdates | None = None,
) -> None:
    r"""Put :math:`x + c_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n` in the place of each reply :math:`x + \Delta_k`.

    With :math:`c_k = w_k \frac{\sum_j n_j}{n_k}` their average by n is
    :math:`x + \sum_k w_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n`.  Only arrays of floats that were sent are changed.

    Args:
        sent: A training message, with the model x.
        replies: Replies with content, whose arrays are replaced.
        weight_key: Metric that holds n, > 0; empty for 1.
        weights: w of each, by the name of its node; None for c = 1.
        updates: What is remembered, y, in a round that has begun; None for s = 0.
    """
    samples = np.ones(len(replies))
    if weight_key:
        metrics = [next(iter(reply.content.content.metric_records.values())) for reply in replies]
        samples = np.array([float(each[weight_key]) for each in metrics])
    before = arrays_of(sent.content)
    for reply, count in zip(replies, samples, strict=True):
        factor = 1.0 if weights is None else weights[reply.name] * samples.sum() / count if count else 0.0
        found = arrays_of(reply.content.content)
        if updates is None:
            moved = _scaled(before, found, factor)
        else:
            moved = updates.rewritten(reply.name, found, samples=count, weight=factor)
        for record in reply.content.content.array_records.values():
            for key in moved.keys() & record.keys():
                record[key] = Array(np.asarray(moved[key]))  # of a 0-d array NumPy makes a scalar


def _scaled(before: Mapping[str, NDArray[Any]], found: Mapping[str, NDArray[Any]], factor: float) -> dict[str, Any]:
    """Arrays of floats that were sent, with their updates times a factor."""
    moved = {}
    for key in (key for key, values in found.items() if key in before and values.dtype.kind == "f"):
        model = before[key].astype(np.float64)
        moved[key] = (model + factor * (found[key] - model)).astype(found[key].dtype)
    return moved
