"""Replies are rewritten, so that a strategy's own average applies a decision's weights and an update memory's step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from flwr.app import Array, Message

from fedroster.adapters.flower.needs import StrategyNeeds
from fedroster.adapters.flower.replies import arrays_of
from fedroster.core.protocols import AnyPolicy, refuse_weights
from fedroster.engine.outcomes import Reply
from fedroster.engine.remembered import RememberedUpdates, factors, scaled


def check_weights(policy: AnyPolicy, needs: StrategyNeeds) -> None:
    """Refuse a policy that weighs updates where the strategy's average is not known, or noise is added to it.

    Raises:
        ConfigurationError: If it would not be the weighted sum, or its noise would be for other updates.
    """
    if needs.num_updates:
        refuse_weights(policy, f"{needs.strategy} adds noise for updates that count alike")
    if not needs.weight_key:
        refuse_weights(policy, "the strategy has no weighted_by_key, the metric by which it averages")


def rewrite(sent: Message, replies: Sequence[Reply], weight_key: str, updates: RememberedUpdates | None) -> None:
    r"""Put :math:`x + c_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n` in the place of each reply :math:`x + \Delta_k`.

    With c of :mod:`fedroster.engine.remembered` their average by n is
    :math:`x + \sum_k w_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n`.  Only arrays of floats that were sent are changed.

    Args:
        sent: A training message, with the model x.
        replies: Replies with content, whose arrays are replaced; they have the weights w, or c is 1.
        weight_key: Metric that holds n, > 0; empty for 1.
        updates: What is remembered, y, in a round that has begun; None for s = 0.
    """
    samples = [1.0] * len(replies)
    if weight_key:
        metrics = [next(iter(reply.content.content.metric_records.values())) for reply in replies]
        samples = [float(each[weight_key]) for each in metrics]
    before = arrays_of(sent.content)
    weights = [reply.weight for reply in replies]
    weighed = factors(weights, samples)
    for reply, count, factor in zip(replies, samples, weighed, strict=True):
        found = arrays_of(reply.content.content)
        if updates is None:
            moved = scaled(before, found, factor)
        else:
            moved = updates.rewritten(reply.name, found, samples=count, weight=factor)
        for record in reply.content.content.array_records.values():
            for key in moved.keys() & record.keys():
                record[key] = Array(np.asarray(moved[key]))  # of a 0-d array NumPy makes a scalar
