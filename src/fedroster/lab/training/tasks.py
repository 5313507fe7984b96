"""Training tasks: data, model and local training, written down once and used for every policy alike (Choice A10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedroster.lab.training.models import model_factory
from fedroster.parts import Count, Parameters, Positive


@dataclass(frozen=True, slots=True)
class LocalTraining(Parameters):
    """What a client does with the model that it is sent.

    Attributes:
        dataset: Name of the data set that the clients hold.
        model: Name in :data:`~fedroster.lab.training.models.MODELS`.
        samples_per_client: Samples that each client holds.
        epochs: Local epochs E.
        batch_size: Samples of a step.
        learning_rate: Step size of plain gradient descent.
    """

    dataset: str
    model: str
    samples_per_client: Count
    epochs: Count
    batch_size: Count
    learning_rate: Positive

    def __post_init__(self) -> None:
        """Check the ranges, and that there is such a model."""
        Parameters.__post_init__(self)
        model_factory(self.model)


DIGITS = LocalTraining(
    dataset="digits", model="digits-mlp", samples_per_client=100, epochs=2, batch_size=20, learning_rate=0.1
)
"""Handwritten digits, 8 x 8: a class has about 143 training images, so a client of one class still finds its 100."""

DIGITS_LOGISTIC = replace(DIGITS, model="digits-logistic")
"""The same data and work with softmax regression: the one task that needs neither PyTorch nor a download."""

FASHION_MNIST = LocalTraining(
    dataset="fashion-mnist",
    model="fashion-mnist-cnn",
    samples_per_client=500,
    epochs=1,
    batch_size=32,
    learning_rate=0.05,
)
"""Huang et al. 2021, Fashion-MNIST: 500 samples a client are given; epochs, batch and learning rate are chosen here."""

CIFAR_10 = LocalTraining(
    dataset="cifar-10", model="cifar-10-cnn", samples_per_client=500, epochs=1, batch_size=32, learning_rate=0.1
)
"""Huang et al. 2021, CIFAR-10: as :data:`FASHION_MNIST`, with Qu et al.'s learning rate for the same network."""

MNIST_LOGISTIC = LocalTraining(
    dataset="mnist", model="mnist-logistic", samples_per_client=1000, epochs=2, batch_size=32, learning_rate=0.005
)
"""Qu et al. 2021, MNIST: epochs and learning rate of its Table I; samples and batch are chosen here."""

MNIST_STEPS = replace(MNIST_LOGISTIC, batch_size=MNIST_LOGISTIC.samples_per_client)
"""The same as (2) writes it: E = 2 gradient steps a round, each on all samples of a client."""

CIFAR_10_B = LocalTraining(
    dataset="cifar-10", model="cifar-10-cnn", samples_per_client=1000, epochs=5, batch_size=32, learning_rate=0.1
)
"""Qu et al. 2021, CIFAR-10: epochs and rate of its Table I; 50 clients share the 50,000 images; the batch is chosen."""

CIFAR_10_SMALL = replace(CIFAR_10, model="cifar-10-small")
"""CIFAR-10 with a small model, for the processor; the paper's size is :data:`CIFAR_10`."""

CIFAR_10_B_SMALL = replace(CIFAR_10_SMALL, epochs=2)
"""The same beside :data:`CIFAR_10_B`, with less local work."""

TASKS: Mapping[str, LocalTraining] = {
    "digits": DIGITS,
    "digits-logistic": DIGITS_LOGISTIC,
    "fashion-mnist": FASHION_MNIST,
    "cifar-10": CIFAR_10,
    "mnist-logistic": MNIST_LOGISTIC,
    "mnist-logistic-steps": MNIST_STEPS,
    "cifar-10-b": CIFAR_10_B,
    "cifar-10-small": CIFAR_10_SMALL,
    "cifar-10-b-small": CIFAR_10_B_SMALL,
}
"""The tasks by name."""
