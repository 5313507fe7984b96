"""Weights of a decision inside a strategy that averages: replies are scaled so that its own average applies them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from flwr.app import Array, Message

from fedroster.adapters.flower.needs import StrategyNeeds
from fedroster.aggregation.memory import corrected
from fedroster.core.protocols import AnyPolicy, refuse_weights
from fedroster.engine.pushed import Reply


def check_weights(policy: AnyPolicy, needs: StrategyNeeds) -> None:
    """Refuse a policy that weighs updates where the strategy's average is not known, or noise is added to it.

    Raises:
        ConfigurationError: If it would not be the weighted sum, or its noise would be for other updates.
    """
    if needs.num_updates:
        refuse_weights(policy, f"{needs.strategy} adds noise for updates that count alike")
    if not needs.weight_key:
        refuse_weights(policy, "the strategy has no weighted_by_key, the metric by which it averages")


def weigh(sent: Message, replies: Sequence[Reply], weights: Mapping[str, float], weight_key: str) -> None:
    r"""Put :math:`x + w_k \frac{\sum_j n_j}{n_k} \Delta_k` in the place of each reply :math:`x + \Delta_k`.

    Their average by n is then :math:`x + \sum_k w_k \Delta_k`.  Only arrays of floats that were sent are changed.

    Args:
        sent: A training message, with the model x.
        replies: Replies with content, whose arrays are replaced.
        weights: w of each, by the name of its node.
        weight_key: Metric that holds n, > 0.
    """
    metrics = [next(iter(reply.content.content.metric_records.values())) for reply in replies]
    samples = np.array([float(each[weight_key]) for each in metrics])
    before = {key: array for record in sent.content.array_records.values() for key, array in record.items()}
    for reply, count in zip(replies, samples, strict=True):
        factor = weights[reply.name] * samples.sum() / count if count else 0.0
        for record in reply.content.content.array_records.values():
            for key, array in record.items():
                if key not in before or array.stype != "numpy.ndarray" or (values := array.numpy()).dtype.kind != "f":
                    continue
                model = before[key].numpy().astype(np.float64)
                zero = np.zeros_like(model)
                moved = model + corrected(values - model, zero, zero, share=0.0, weight=factor)
                record[key] = Array(moved.astype(values.dtype))
