"""What clients said of themselves last: how many samples they hold, and their loss of the model that they were sent."""

from __future__ import annotations

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import Feedback

LARGEST = 1e100
"""A time, loss or size beyond it counts as it: products and sums of such numbers must not overflow."""


def assumed_sizes(num_samples: FloatArray) -> FloatArray:
    """Sizes with the mean of those that are known in the place of those that are not, 0; ones if none is known."""
    unknown = num_samples == 0.0
    num_known = num_samples.shape[0] - int(np.count_nonzero(unknown))
    if num_known == num_samples.shape[0]:
        return num_samples
    return np.where(unknown, num_samples.sum() / num_known if num_known else 1.0, num_samples)


def learn_sizes(num_samples: FloatArray, feedback: Feedback) -> None:
    """Take over the sizes that feedback reports, in place."""
    if feedback.num_samples is not None:
        known = ~np.isnan(feedback.num_samples)
        num_samples[feedback.client[known]] = np.minimum(feedback.num_samples[known], LARGEST)


def learn_losses(loss: FloatArray, reported: IntArray, feedback: Feedback) -> None:
    """Take over the losses that feedback reports, in place; an earlier round's does not replace a later one's."""
    if feedback.loss is not None:
        known = ~np.isnan(feedback.loss) & (feedback.round >= reported[feedback.client])
        client = feedback.client[known]
        loss[client] = np.clip(feedback.loss[known], -LARGEST, LARGEST)
        reported[client] = feedback.round
