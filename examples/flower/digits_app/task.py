"""The learning task: softmax regression on scikit-learn's handwritten digits, in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUM_TEST = 360


def _all_digits() -> tuple[Floats, NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # half a second, which a node with a file of its own need not wait for

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    return images[order] / 16.0, labels[order]


def test_digits() -> tuple[Floats, NDArray[np.int64]]:
    """The digits that no node has."""
    images, labels = _all_digits()
    return images[:NUM_TEST], labels[:NUM_TEST]


def digits_of(partition: int, num_partitions: int) -> tuple[Floats, NDArray[np.int64]]:
    """A node's digits."""
    images, labels = _all_digits()
    return images[NUM_TEST + partition :: num_partitions], labels[NUM_TEST + partition :: num_partitions]


def write_digits(path: Path, partition: int, num_partitions: int) -> None:
    """Write a node's digits to a file of its own."""
    images, labels = digits_of(partition, num_partitions)
    np.savez(path, images=images, labels=labels)


def read_digits(path: Path) -> tuple[Floats, NDArray[np.int64]]:
    """Read what :func:`write_digits` wrote."""
    with np.load(path) as file:
        return file["images"], file["labels"]


def initial_model() -> dict[str, Floats]:
    """A model that knows nothing."""
    return {"weights": np.zeros((64, 10)), "bias": np.zeros(10)}


def _probabilities(model: dict[str, Floats], images: Floats) -> Floats:
    scores = images @ model["weights"] + model["bias"]
    exponential = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponential / exponential.sum(axis=1, keepdims=True)


def train(
    model: dict[str, Floats],
    images: Floats,
    labels: NDArray[np.int64],
    *,
    num_epochs: int,
    learning_rate: float,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    """Stochastic gradient descent in batches of 16."""
    model = {name: values.copy() for name, values in model.items()}
    for _ in range(num_epochs):
        order = rng.permutation(len(labels))
        for start in range(0, len(labels), 16):
            batch = order[start : start + 16]
            error = _probabilities(model, images[batch])
            error[np.arange(len(batch)), labels[batch]] -= 1.0
            model["weights"] -= learning_rate * images[batch].T @ error / len(batch)
            model["bias"] -= learning_rate * error.mean(axis=0)
    return model


def evaluate(model: dict[str, Floats], images: Floats, labels: NDArray[np.int64]) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    probability = _probabilities(model, images)
    loss = -np.log(np.maximum(probability[np.arange(len(labels)), labels], 1e-12)).mean()
    return float(loss), float((probability.argmax(axis=1) == labels).mean())
