r"""Softmax regression without PyTorch: all steps of one client in one compiled function.

A step on 32 images of 784 pixels is 16,000 multiplications: calling an operation costs more than computing it.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedroster.errors import ConfigurationError
from fedroster.lab.training.protocol import Evaluation, Work
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.parts import njit
from fedroster.types import FloatArray, IntArray

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
def descend(weight, bias, images, labels, visits, batch_size, learning_rate, proximal):
    r"""Make all mini-batch steps of one client.

    .. math::

        W \gets W - \frac{\eta}{b} \sum_{i \in \text{batch}} (\mathrm{softmax}(W x_i + c) - e_{y_i})\, x_i^\top

    and likewise for c; with a proximal weight mu, :math:`\mu (W - W^0)` is added to the gradient, W^0 being the model
    that the client was sent.  ``visits``, shape (epochs, samples), are rows of ``images`` in their order.
    """
    pull = np.float32(learning_rate * proximal)
    sent_weight, sent_bias = (weight.copy(), bias.copy()) if pull > 0.0 else (weight, bias)
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
            if pull > 0.0:
                for k in range(classes):
                    bias[k] -= pull * (bias[k] - sent_bias[k])
                    for j in range(weight.shape[1]):
                        weight[k, j] -= pull * (weight[k, j] - sent_weight[k, j])
            for i in range(size):
                for k in range(classes):
                    bias[k] -= errors[i, k]
            _subtract_products(weight, images, batch, errors)


@njit(cache=True, nogil=True)
def _measure(weight, bias, images, labels, samples, loss, right):
    """Cross-entropy of some rows of ``images``, into ``loss`` (n,), and whether its class is right, into ``right``."""
    classes = weight.shape[0]
    logits = np.empty((32, classes), np.float32)
    for first in range(0, samples.shape[0], 32):
        batch = samples[first : first + 32]
        _logits(weight, bias, images, batch, logits)
        for i in range(batch.shape[0]):
            label, top = labels[batch[i]], 0
            for k in range(1, classes):
                if logits[i, k] > logits[i, top]:
                    top = k
            total = np.float32(0.0)
            for k in range(classes):
                total += np.exp(logits[i, k] - logits[i, top])
            loss[first + i] = np.log(total) + (logits[i, top] - logits[i, label])
            right[first + i] = top == label


def _rows(images: NDArray[Any], labels: IntArray) -> tuple[NDArray[Any], IntArray]:
    """Images as rows of float32, shape (n, pixels), and their classes, as kernels want them."""
    return (
        np.ascontiguousarray(images.reshape(images.shape[0], -1), np.float32),
        np.ascontiguousarray(labels, np.int64),
    )


class SoftmaxLearner:
    """Trains and tests softmax regression; parameters are one row (P,): weights, then the bias."""

    method: Literal["softmax"] = "softmax"

    def __init__(self, model: SoftmaxRegression, work: Work) -> None:
        """Lay the images out as rows, and see that they have as many pixels as there are weights of a class."""
        self.layout = model.layout
        self.draw = model.draw
        self._work = work
        work.check_classes(model.classes)
        if math.prod(work.train_x.shape[1:]) != model.pixels:
            raise ConfigurationError(
                f"the model does not take images of shape {work.train_x.shape[1:]}, (channels, height, width); "
                f"expected {model.pixels} pixels"
            )
        self._train = _rows(work.train_x, work.train_y)
        self._test = _rows(work.test_x, work.test_y)

    def prepare(self, num_samples: int) -> None:
        """Numba compiles when it is first called, under a lock of its own."""

    def threads(self, count: int) -> AbstractContextManager[None]:
        """Nothing here has threads of its own."""
        return nullcontext()

    def _parts(self, row: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """A copy of the weights, which starts at a cache line as a row of many need not: 1.4 times faster; the bias."""
        shape = self.layout["1.weight"]
        weight = row[: math.prod(shape)].reshape(shape).copy()
        return weight, row[weight.size :]

    def descend(self, row: NDArray[Any], visits: IntArray) -> None:
        """Make all steps of a client; ``row`` (P,) is changed, ``visits`` are (epochs, samples)."""
        weight, bias = self._parts(row)
        work = self._work
        descend(weight, bias, *self._train, visits, work.batch_size, work.learning_rate, work.proximal)
        row[: weight.size] = weight.ravel()

    def losses(self, row: NDArray[Any], samples: IntArray) -> FloatArray:
        """Cross-entropy of each of some training samples."""
        return self._measured(row, self._train, samples)[0]

    def evaluate(self, row: NDArray[Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the test images."""
        loss, right = self._measured(row, self._test, np.arange(self._test[1].shape[0]))
        return Evaluation(accuracy=float(right.mean()), loss=float(loss.mean()))

    def _measured(
        self, row: NDArray[Any], data: tuple[NDArray[Any], IntArray], samples: IntArray
    ) -> tuple[FloatArray, NDArray[np.bool_]]:
        loss, right = np.empty(samples.shape[0]), np.empty(samples.shape[0], np.bool_)
        _measure(*self._parts(row), *data, samples, loss, right)
        return loss, right
