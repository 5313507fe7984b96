"""The learning task, softmax regression on scikit-learn's handwritten digits, and what goes wrong at the sites."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits  # when the job starts, not in a site's first training

Model = dict[str, NDArray[np.float64]]

NUM_TEST = 360
ROLES = ("steady", "steady, killed once", "slow", "slow", "raises", "late")
"""What the sites do, by number."""


def digits_of(part: int = -1, num_parts: int = 6) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """A site's digits; those that no site has for part -1."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order] / 16.0, labels[order]
    if part < 0:
        return images[:NUM_TEST], labels[:NUM_TEST]
    return images[NUM_TEST + part :: num_parts], labels[NUM_TEST + part :: num_parts]


def initial_model() -> Model:
    """A model that knows nothing."""
    return {"weights": np.zeros((64, 10)), "bias": np.zeros(10)}


def _probabilities(model: Model, images: NDArray[np.float64]) -> NDArray[np.float64]:
    scores = images @ model["weights"] + model["bias"]
    exponential = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponential / exponential.sum(axis=1, keepdims=True)


def fit(model: Model, images: NDArray[np.float64], labels: NDArray[np.int64]) -> Model:
    """Twenty steps of gradient descent."""
    model = {name: np.array(values) for name, values in model.items()}
    for _ in range(20):
        error = _probabilities(model, images)
        error[np.arange(len(labels)), labels] -= 1.0
        model["weights"] -= 0.5 * images.T @ error / len(labels)
        model["bias"] -= 0.5 * error.mean(axis=0)
    return model


def accuracy(model: Model) -> float:
    """Share of the test digits that a model reads."""
    images, labels = digits_of()
    return float((_probabilities(model, images).argmax(axis=1) == labels).mean())


def train_at(
    site: str, model: Model, number: int, *, out: str, pace_s: float, slow: float, late_s: float, caller: str = "server"
) -> tuple:
    """Train at a site, or do what its role says, and write that down in a log of the site's own.

    Args:
        site: Its name, ``site-1`` and so on.
        model: The model.
        number: The round.
        out: Folder of the logs; empty for none.
        pace_s: Time of a training, seconds; the site sleeps, since many share this machine.
        slow: How many times longer slow sites take.
        late_s: Time of the late site, seconds; 0 when none is late and none raises.
        caller: Who called the site.

    Returns:
        The model, and the number of examples.
    """
    part = int(site.rpartition("-")[2]) - 1
    role = ROLES[part]
    if out:
        with (Path(out) / f"{site}.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps({"at": time.time(), "round": number, "caller": caller}) + "\n")
    if late_s and role == "raises":
        raise RuntimeError("no GPU at this site")
    images, labels = digits_of(part, len(ROLES))
    time.sleep(late_s if late_s and role == "late" else pace_s * slow if role == "slow" else pace_s)
    return fit(model, images, labels), len(labels)
