"""Models by name.  To add one, write a torch module and enter a function that makes it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from fedroster.errors import UnknownNameError
from fedroster.lab.training.regression import SoftmaxRegression

if TYPE_CHECKING:
    from torch import nn

ModelFactory: TypeAlias = "Callable[[], nn.Module]"
"""Makes a model that maps images (batch, channels, height, width) to logits (batch, classes)."""


def model_factory(name: str) -> ModelFactory:
    """Return the function that makes the model of that name; the error for another one names the nearest."""
    if name not in MODELS:
        raise UnknownNameError.of("model", name, MODELS)
    return MODELS[name]


def _cnn(channels: tuple[int, ...], units: tuple[int, ...]) -> nn.Module:
    """Rectified 5 x 5 convolutions, each with 2 x 2 max pooling, between these channels; then rectified layers."""
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 5), nn.ReLU(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for before, after in pairwise(units):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def digits_mlp() -> nn.Module:
    """64 pixels, 64 rectified units, 10 classes: 4,810 parameters."""
    return _cnn((), (64, 64, 10))


def fashion_mnist_cnn() -> nn.Module:
    """Huang et al.'s CNN for Fashion-MNIST (section 6.2.1): 431,080 parameters, 13.8 Mbit as float32.

    Two 5 x 5 convolutions (20 and 50 channels), each with 2 x 2 max pooling, 500 rectified units, 10 classes.  The
    paper gives neither a size nor the padding nor the convolutions' activation; here there is no padding and they are
    rectified, as in PyTorch's own example of that time, which has the same widths.
    """
    return _cnn((1, 20, 50), (800, 500, 10))


def cifar_10_cnn() -> nn.Module:
    """Both papers' CNN for CIFAR-10: 797,962 parameters, 25.5 Mbit as float32; Qu et al. 2021 uploads 18.7 Mbit.

    Two 5 x 5 convolutions (64 channels each) with 2 x 2 max pooling, 384 and 192 rectified units, 10 classes: Huang et
    al. 2021 (section 6.2.1) and Qu et al. 2021 (section VI-A) describe it in the same words.  The padding is not
    given.  Without any, the size is nearest to Qu et al.'s (padding that keeps the size makes 56.2 Mbit), and no
    padding of these layers gives 18.7.  Both of Qu et al.'s sizes are 0.72 to 0.73 of ours (compare
    ``mnist-logistic``), so they look like the same networks counted otherwise, not like other networks.
    """
    return _cnn((3, 64, 64), (1600, 384, 192, 10))


def cifar_10_small() -> nn.Module:
    """A small CNN of ours for CIFAR-10, no paper's: 17,386 parameters, a 36th of :func:`cifar_10_cnn`'s arithmetic.

    Two convolutions of stride 2 (5 x 5, 16 channels; 3 x 3, 32 channels), rectified, and a linear layer: what two
    processor cores train often enough to compare policies over several seeds.
    """
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(1152, 10),
    )


MODELS: dict[str, ModelFactory] = {
    "digits-mlp": digits_mlp,
    "fashion-mnist-cnn": fashion_mnist_cnn,
    "cifar-10-cnn": cifar_10_cnn,
    "cifar-10-small": cifar_10_small,
    # Qu et al.'s logistic regression on MNIST: 7,850 parameters, 0.251 Mbit as float32; theirs has 0.18 Mbit.
    "mnist-logistic": SoftmaxRegression(pixels=784, classes=10),
    # The same on digits of 8 x 8: 650 parameters.
    "digits-logistic": SoftmaxRegression(pixels=64, classes=10),
}
"""The models by name."""
