r"""Softmax regression of one client, all steps in one compiled function.

A step on 32 images of 784 pixels is 16,000 multiplications: calling an operation costs more than computing it.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from fedroster.core.compiled import njit

_FLAGS = {"contract", "nsz", "reassoc", "arcp"}  # sums in any order; NaN and infinity stay what they are


@njit(cache=True, nogil=True, fastmath=_FLAGS)
def _logits(weight, bias, images, batch, out):
    """Logits W x + c of a batch, into ``out`` (batch, classes); four images and two classes at a time."""
    size, (classes, pixels) = batch.shape[0], weight.shape
    zero = np.float32(0.0)
    i = 0
    while i + 4 <= size:
        x0, x1, x2, x3 = images[batch[i]], images[batch[i + 1]], images[batch[i + 2]], images[batch[i + 3]]
        k = 0
        while k + 2 <= classes:
            v, w = weight[k], weight[k + 1]
            a0, a1, a2, a3, b0, b1, b2, b3 = zero, zero, zero, zero, zero, zero, zero, zero
            for j in range(pixels):
                a0 += x0[j] * v[j]
                a1 += x1[j] * v[j]
                a2 += x2[j] * v[j]
                a3 += x3[j] * v[j]
                b0 += x0[j] * w[j]
                b1 += x1[j] * w[j]
                b2 += x2[j] * w[j]
                b3 += x3[j] * w[j]
            out[i, k], out[i + 1, k], out[i + 2, k], out[i + 3, k] = a0, a1, a2, a3
            out[i, k + 1], out[i + 1, k + 1], out[i + 2, k + 1], out[i + 3, k + 1] = b0, b1, b2, b3
            k += 2
        while k < classes:
            v = weight[k]
            for r in range(4):
                x, total = images[batch[i + r]], zero
                for j in range(pixels):
                    total += x[j] * v[j]
                out[i + r, k] = total
            k += 1
        i += 4
    while i < size:
        x = images[batch[i]]
        for k in range(classes):
            v, total = weight[k], zero
            for j in range(pixels):
                total += x[j] * v[j]
            out[i, k] = total
        i += 1
    for i in range(size):
        for k in range(classes):
            out[i, k] += bias[k]


@njit(cache=True, nogil=True, fastmath=_FLAGS)
def _subtract_products(weight, images, batch, errors):
    """Subtract the sum of ``errors[i] x_i^T`` over the batch from W; eight images at a time."""
    size, (classes, pixels) = batch.shape[0], weight.shape
    i = 0
    while i + 8 <= size:
        x0, x1, x2, x3 = images[batch[i]], images[batch[i + 1]], images[batch[i + 2]], images[batch[i + 3]]
        x4, x5, x6, x7 = images[batch[i + 4]], images[batch[i + 5]], images[batch[i + 6]], images[batch[i + 7]]
        for k in range(classes):
            e0, e1, e2, e3 = errors[i, k], errors[i + 1, k], errors[i + 2, k], errors[i + 3, k]
            e4, e5, e6, e7 = errors[i + 4, k], errors[i + 5, k], errors[i + 6, k], errors[i + 7, k]
            w = weight[k]
            for j in range(pixels):
                w[j] -= ((e0 * x0[j] + e1 * x1[j]) + (e2 * x2[j] + e3 * x3[j])) + (
                    (e4 * x4[j] + e5 * x5[j]) + (e6 * x6[j] + e7 * x7[j])
                )
        i += 8
    while i < size:
        x = images[batch[i]]
        for k in range(classes):
            e, w = errors[i, k], weight[k]
            for j in range(pixels):
                w[j] -= e * x[j]
        i += 1


@njit(cache=True, nogil=True)
def descend(weight, bias, images, labels, visits, batch_size, learning_rate, has_bias):
    r"""Make all mini-batch steps of one client.

    .. math::

        W \gets W - \frac{\eta}{b} \sum_{i \in \text{batch}} (\mathrm{softmax}(W x_i + c) - e_{y_i})\, x_i^\top
    and likewise for c if ``has_bias``.  ``visits``, shape (epochs, samples), are rows of ``images`` in their order.
    """
    epochs, samples = visits.shape
    classes = weight.shape[0]
    errors = np.empty((min(batch_size, samples), classes), np.float32)
    for epoch in range(epochs):
        for first in range(0, samples, batch_size):
            batch = visits[epoch, first : min(first + batch_size, samples)]
            size = batch.shape[0]
            _logits(weight, bias, images, batch, errors)
            scale = np.float32(learning_rate / size)
            for i in range(size):
                top = errors[i, 0]
                for k in range(1, classes):
                    top = max(top, errors[i, k])
                total = np.float32(0.0)
                for k in range(classes):
                    errors[i, k] = np.exp(errors[i, k] - top)
                    total += errors[i, k]
                share = scale / total
                for k in range(classes):
                    errors[i, k] *= share
                errors[i, labels[batch[i]]] -= scale
            if has_bias:
                for i in range(size):
                    for k in range(classes):
                        bias[k] -= errors[i, k]
            _subtract_products(weight, images, batch, errors)


def is_softmax_regression(module: nn.Module) -> bool:
    """Whether a module is one linear layer on the flattened image, and nothing else."""
    if type(module) is not nn.Sequential or len(module) != 2:
        return False
    flatten, linear = module
    is_plain = type(flatten) is nn.Flatten and (flatten.start_dim, flatten.end_dim) in ((1, -1), (1, 3))
    has_hooks = any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    return is_plain and type(linear) is nn.Linear and not has_hooks
