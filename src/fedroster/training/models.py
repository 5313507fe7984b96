"""Models by name.  To add one, write a torch module and register a function that makes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fedroster.core.errors import ConfigurationError, MissingDependencyError, UnknownNameError

try:
    from torch import nn
except ImportError as error:
    raise MissingDependencyError.of("torch", "train") from error

ModelFactory: TypeAlias = Callable[[], nn.Module]
"""Makes a model that maps images (batch, channels, height, width) to logits (batch, classes)."""

MODELS: dict[str, ModelFactory] = {}
"""The registered models."""


def register(name: str) -> Callable[[ModelFactory], ModelFactory]:
    """Register the decorated function under ``name``.

    Args:
        name: Name of the model.

    Raises:
        ConfigurationError: If the name is taken.
    """

    def enter(factory: ModelFactory) -> ModelFactory:
        if name in MODELS:
            raise ConfigurationError(f"a model named {name!r} is registered already; expected a new name")
        MODELS[name] = factory
        return factory

    return enter


def model_factory(name: str) -> ModelFactory:
    """Return the function that makes the model of that name.

    Args:
        name: Name of a registered model.

    Raises:
        UnknownNameError: If there is none; names the nearest.
    """
    if name not in MODELS:
        raise UnknownNameError.of("model", name, MODELS)
    return MODELS[name]


@register("digits-mlp")
def digits_mlp() -> nn.Module:
    """64 pixels, 64 rectified units, 10 classes: 4,810 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@register("digits-cnn")
def digits_cnn() -> nn.Module:
    """Two 3 x 3 convolutions (8 and 16 channels), each with 2 x 2 max pooling, and a linear layer: 1,898 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


@register("digits-softmax")
def digits_softmax() -> nn.Module:
    """Softmax regression on 64 pixels: 650 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
