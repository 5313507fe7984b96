"""What the federated loop asks of a trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.errors import InvalidInputError
from fedroster.parts import Model
from fedroster.types import FloatArray, IntArray, Streams


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """What a cohort sends back, one row a client, in the order in which they were asked.

    Attributes:
        parameters: The clients' models, shape (k, ...) by name.
        num_samples: Samples that each was trained on, shape (k,).
        loss_before: Mean loss of the model that it was sent over the client's samples, shape (k,); NaN if not measured.
        squared_loss: Mean over the same samples of the squared loss of the model that it was sent, shape (k,), >= 0;
            None if not measured.
    """

    parameters: Model
    num_samples: IntArray
    loss_before: FloatArray
    squared_loss: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is on data that no client trains on.

    Attributes:
        accuracy: Share of samples whose class is right, in [0, 1].
        loss: Mean cross-entropy.
    """

    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What clients train, each on ``num_samples`` samples; the rest as CohortTrainer takes it."""

    train_x: NDArray[Any]
    train_y: IntArray
    test_x: NDArray[Any]
    test_y: IntArray
    num_samples: int
    batch_size: int
    learning_rate: float
    proximal: float = 0.0

    def check_classes(self, num_classes: int) -> None:
        """Raise InvalidInputError if a class is none of the model's."""
        for name, labels in (("train", self.train_y), ("test", self.test_y)):
            if labels.min() < 0 or labels.max() >= num_classes:
                raise InvalidInputError(
                    f"{name}_y has classes {labels.min()} to {labels.max()}; "
                    f"expected 0 to {num_classes - 1}, as the model has {num_classes} logits"
                )


class Trainer(Protocol):
    """Trains a whole cohort in one call, and tests a model.

    For policies that poll it also measures losses without training, by ``losses(parameters, clients)``, which gives the
    mean loss of a model over each client's samples, shape (k,).
    """

    def init(self, *, rng: Generator) -> Model:
        """Return the model before the first round."""
        ...

    def train(self, parameters: Model, clients: IntArray, /, *, round: int, streams: Streams) -> Updates:
        """Train each of the clients from the same model.

        What a client does depends on the model, the round and the client, never on who else is in the cohort: two
        policies that choose the same client in the same round meet the same work.
        """
        ...

    def evaluate(self, parameters: Model, /) -> Evaluation:
        """Test a model."""
        ...
