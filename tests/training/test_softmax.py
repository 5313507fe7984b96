from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from fedroster.training.models import MODELS
from fedroster.training.softmax import descend, is_softmax_regression


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("batch_size", [1, 5, 13, 100])
def test_steps_follow_the_equation(classes, batch_size):
    """Against the equation in double precision; blocks of 2 classes, 4 and 8 images all have remainders."""
    rng = np.random.default_rng(classes)
    images = rng.random((40, 21), np.float32)
    labels = rng.integers(classes, size=40)
    visits = np.stack([rng.permutation(40)[:27] for _ in range(2)])
    weight, bias = rng.normal(size=(classes, 21)).astype(np.float32), rng.normal(size=classes).astype(np.float32)
    expected_weight, expected_bias = weight.astype(np.float64), bias.astype(np.float64)
    for epoch in visits:
        for first in range(0, 27, batch_size):
            batch = epoch[first : first + batch_size]
            logits = images[batch] @ expected_weight.T + expected_bias
            share = np.exp(logits - logits.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            error = (share - np.eye(classes)[labels[batch]]) / len(batch)
            expected_weight -= 0.3 * error.T @ images[batch]
            expected_bias -= 0.3 * error.sum(axis=0)
    fixed = bias.copy()
    descend(weight.copy(), fixed, images, labels, visits, batch_size, 0.3, False)
    np.testing.assert_array_equal(fixed, bias)
    descend(weight, bias, images, labels, visits, batch_size, 0.3, True)
    np.testing.assert_allclose(weight, expected_weight, atol=2e-5)
    np.testing.assert_allclose(bias, expected_bias, atol=2e-5)


def test_large_logits_do_not_overflow():
    images = np.full((2, 4), 1e4, np.float32)
    weight, bias = np.diag([1e4, 5e4, 2e4]).astype(np.float32), np.zeros(3, np.float32)
    weight = np.concatenate([weight, np.zeros((3, 1), np.float32)], axis=1)
    descend(weight, bias, images, np.array([1, 1]), np.array([[0, 1]]), 2, 1e-3, True)
    np.testing.assert_allclose(bias, 0.0, atol=1e-30)  # class 1 is certain, and right


def test_what_is_softmax_regression():
    hooked = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    hooked[1].register_forward_hook(lambda module, inputs, output: -output)
    others = [
        MODELS["digits-mlp"](),
        nn.Sequential(nn.Linear(4, 2), nn.Flatten()),
        nn.Sequential(nn.Flatten(2), nn.Linear(4, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Softplus()),
        hooked,
    ]
    assert not any(is_softmax_regression(module) for module in others)
    assert is_softmax_regression(MODELS["mnist-logistic"]())
