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


# A class of the digits has about 143 training images, so a client of one class still finds its 100.
_DIGITS = LocalTraining(
    dataset="digits", model="digits-mlp", samples_per_client=100, epochs=2, batch_size=20, learning_rate=0.1
)
# Huang et al. 2021: 500 samples a client are given; epochs, batch and learning rate are chosen here.
_FASHION_MNIST = LocalTraining(
    dataset="fashion-mnist",
    model="fashion-mnist-cnn",
    samples_per_client=500,
    epochs=1,
    batch_size=32,
    learning_rate=0.05,
)
# The same, with Qu et al.'s learning rate for the same network.
_CIFAR_10 = replace(_FASHION_MNIST, dataset="cifar-10", model="cifar-10-cnn", learning_rate=0.1)
# A small model, for the processor.
_CIFAR_10_SMALL = replace(_CIFAR_10, model="cifar-10-small")
# Qu et al. 2021: epochs and learning rate of its Table I; samples and batch are chosen here.
_MNIST = LocalTraining(
    dataset="mnist", model="mnist-logistic", samples_per_client=1000, epochs=2, batch_size=32, learning_rate=0.005
)

TASKS: Mapping[str, LocalTraining] = {
    "digits": _DIGITS,
    # Softmax regression: the one task that needs neither PyTorch nor a download.
    "digits-logistic": replace(_DIGITS, model="digits-logistic"),
    "fashion-mnist": _FASHION_MNIST,
    "cifar-10": _CIFAR_10,
    "mnist-logistic": _MNIST,
    # As (2) of Qu et al. writes it: E = 2 gradient steps a round, each on all samples of a client.
    "mnist-logistic-steps": replace(_MNIST, batch_size=_MNIST.samples_per_client),
    # Qu et al. 2021: epochs and rate of its Table I; 50 clients share the 50,000 images; the batch is chosen here.
    "cifar-10-b": replace(_CIFAR_10, samples_per_client=1000, epochs=5),
    "cifar-10-small": _CIFAR_10_SMALL,
    "cifar-10-b-small": replace(_CIFAR_10_SMALL, epochs=2),
}
"""The tasks by name."""
