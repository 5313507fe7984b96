"""Training tasks: model and local training, written down once and used for every policy alike (Choice A10)."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import UnknownNameError
from fedroster.training.models import MODELS


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """What a client does with the model that it is sent.

    Attributes:
        model: Name in :data:`~fedroster.training.models.MODELS`.
        samples_per_client: Samples that each client holds.
        epochs: Local epochs E.
        batch_size: Samples of a step.
        learning_rate: Step size of plain gradient descent.
    """

    model: str
    samples_per_client: int
    epochs: int
    batch_size: int
    learning_rate: float

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.model not in MODELS:
            raise UnknownNameError.of("model", self.model, MODELS)
        for name in ("samples_per_client", "epochs", "batch_size"):
            check_integer(name, getattr(self, name), least=1)
        check_number("learning_rate", self.learning_rate, above=0.0)


DIGITS = LocalTraining(model="digits-mlp", samples_per_client=100, epochs=2, batch_size=20, learning_rate=0.1)
"""Handwritten digits, 8 x 8: a class has about 143 training images, so a client of one class still finds its 100."""
