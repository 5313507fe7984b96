"""Local training of a cohort: every client makes its mini-batch steps at the same time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_choice, check_integer, check_number
from fedroster.core.errors import ConfigurationError, InvalidInputError, MissingDependencyError
from fedroster.core.streams import Streams

try:
    import torch
except ImportError as error:
    raise MissingDependencyError.of("torch", "train") from error
from torch import Tensor, nn

from fedroster.training.batched import BatchedModel, torch_threads
from fedroster.training.models import ModelFactory, model_factory
from fedroster.training.protocol import Evaluation, Parameters, Updates

_CHUNK = 2048  # images at once where only losses are wanted

Device = Literal["cpu", "cuda", "auto"]


def batch_order(clients: IntArray, *, num_samples: int, epochs: int, round: int, streams: Streams) -> IntArray:
    """In which order each client goes through its samples: a new permutation for every epoch.

    Drawn at the address ("training", round, client), so it does not depend on who else is in the cohort.

    Args:
        clients: Shape (k,).
        num_samples: Samples of each client.
        epochs: Passes over them.
        round: Round number.
        streams: Random streams of the run.

    Returns:
        Positions within the client's samples, shape (k, epochs, num_samples).
    """
    order = np.empty((clients.shape[0], epochs, num_samples), np.int64)
    order[:] = np.arange(num_samples)
    for row, client in zip(order, clients.tolist(), strict=True):
        streams.at("training", round, client).permuted(row, axis=1, out=row)
    return order


def _device(name: Device) -> torch.device:
    check_choice("device", name, ("cpu", "cuda", "auto"))
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ConfigurationError("device is 'cuda', and torch finds none; expected 'cpu', or 'auto' for what there is")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def _check_images(name: str, images: NDArray[Any], labels: IntArray) -> None:
    if images.ndim != 4 or images.shape[0] == 0 or labels.shape != images.shape[:1]:
        raise InvalidInputError(
            f"{name}_x has shape {images.shape} and {name}_y {labels.shape}; "
            "expected (samples, channels, height, width) and (samples,), samples >= 1"
        )
    if not np.isfinite(images).all():
        raise InvalidInputError(f"{name}_x has values that are not finite; expected finite numbers")


@lru_cache(maxsize=16)
def _shared_model(factory: ModelFactory, image_shape: tuple[int, ...], device: torch.device) -> BatchedModel:
    # What was recorded for a model serves all trainers of the process.
    return BatchedModel(factory, image_shape=image_shape, device=device)


class CohortTrainer:
    r"""Trains k clients from the same model by mini-batch stochastic gradient descent, all at once.

    .. math:: w_k \gets w_k - \eta\, \nabla \frac{1}{b} \sum_{i \in \text{batch}} \ell(w_k; x_i, y_i)

    for every batch of every local epoch; the last batch of an epoch may be smaller.  The loss is cross-entropy.  Equal
    to a loop over the clients up to rounding.  Cost of a call: ``epochs * ceil(n / batch_size)`` batched steps.
    """

    def __init__(
        self,
        *,
        model: str | ModelFactory,
        train_x: NDArray[Any],
        train_y: IntArray,
        test_x: NDArray[Any],
        test_y: IntArray,
        partition: IntArray,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        clients_at_once: int | None = None,
        measure_losses: bool = True,
        device: Device = "cpu",
        num_threads: int | None = 1,
    ) -> None:
        """Check everything once.

        Args:
            model: Name of a registered model, or a function without arguments that makes a torch module.
            train_x: Images to train on, shape (n, channels, height, width); computed with as float32.
            train_y: Their classes, shape (n,).
            test_x: Images to test on, shape (n', channels, height, width).
            test_y: Their classes, shape (n',).
            partition: Samples of each client, rows of ``train_x``, shape (clients, samples).
            epochs: Passes of a client over its samples in a round, >= 1.
            batch_size: Samples in a step, >= 1.
            learning_rate: eta, > 0.
            clients_at_once: Clients in one batched step; None for the whole cohort.  Fewer need less memory, and one is
                best where a single client keeps the device busy.
            measure_losses: Whether to measure each client's loss before and after: two more passes forward.
            device: "cpu", "cuda", or "auto" for a GPU if there is one.
            num_threads: Threads of torch while it trains and tests on the CPU; None for torch's own setting.  Small
                models are fastest with one.

        Raises:
            ConfigurationError: If a parameter is out of its range, or the model does not fit the data.
            InvalidInputError: If arrays do not fit together.
            UnknownNameError: If there is no model of that name.
        """
        check_integer("epochs", epochs, least=1)
        check_integer("batch_size", batch_size, least=1)
        check_number("learning_rate", learning_rate, above=0.0)
        if clients_at_once is not None:
            check_integer("clients_at_once", clients_at_once, least=1)
        if num_threads is not None:
            check_integer("num_threads", num_threads, least=1)
        _check_images("train", train_x, train_y)
        _check_images("test", test_x, test_y)
        if train_x.shape[1:] != test_x.shape[1:]:
            raise InvalidInputError(
                f"test images have shape {test_x.shape[1:]}; expected {train_x.shape[1:]}, as training images have"
            )
        if partition.ndim != 2 or partition.size == 0:
            raise InvalidInputError(f"partition has shape {partition.shape}; expected (clients, samples), both >= 1")
        if partition.min() < 0 or partition.max() >= train_y.shape[0]:
            raise InvalidInputError(
                f"partition names samples {partition.min()} to {partition.max()}; expected 0 to {train_y.shape[0] - 1}"
            )
        self._device = _device(device)
        self._threads = num_threads if self._device.type == "cpu" else None
        factory = model_factory(model) if isinstance(model, str) else model
        self._model = _shared_model(factory, tuple(train_x.shape[1:]), self._device)
        num_classes = self._model.num_classes
        for name, labels in (("train", train_y), ("test", test_y)):
            if labels.min() < 0 or labels.max() >= num_classes:
                raise InvalidInputError(
                    f"{name}_y has classes {labels.min()} to {labels.max()}; "
                    f"expected 0 to {num_classes - 1}, as the model has {num_classes} logits"
                )
        self._partition = partition
        self._epochs = epochs
        self._batch_size = batch_size
        self._learning_rate = learning_rate
        self._clients_at_once = clients_at_once
        self._measure_losses = measure_losses
        self._train_x = self._tensor(train_x.astype(np.float32, copy=False))
        self._train_y = self._tensor(np.eye(num_classes, dtype=np.float32)[train_y])
        self._test_x = self._tensor(test_x.astype(np.float32, copy=False))
        self._test_y = self._tensor(test_y)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self._device)  # a copy: torch dislikes read-only arrays

    def _row(self, parameters: Parameters) -> Tensor:
        """Put a model's arrays into one row, shape (P,)."""
        layout = self._model.layout
        found = {name: value.shape for name, value in parameters.items()}
        if found != layout:
            raise InvalidInputError(f"parameters have names and shapes {found}; expected {layout}")
        return self._tensor(np.concatenate([parameters[name].ravel() for name in layout], dtype=np.float32))

    def _named(self, rows: Tensor) -> Parameters:
        return {name: value.numpy() for name, value in self._model.named(rows).items()}

    @property
    def num_clients(self) -> int:
        """Number of clients that have data."""
        return int(self._partition.shape[0])

    def init(self, *, rng: Generator) -> Parameters:
        """Return the model before the first round, as its constructor draws it.

        Args:
            rng: Seeds the draw; torch's own generators are left alone.
        """
        return self._named(self._model.draw(rng=rng))

    def module(self, parameters: Parameters) -> nn.Module:
        """Return a torch module of its own with these parameters, to save or to use.

        Args:
            parameters: Arrays by name.
        """
        return self._model.module(self._row(parameters))

    def train(self, parameters: Parameters, clients: IntArray, /, *, round: int, streams: Streams) -> Updates:
        """Train each of the clients from the same model.

        Args:
            parameters: The model that they are sent.
            clients: Who, shape (k,).
            round: Round number; with ``streams`` it says in which order samples are visited (:func:`batch_order`).
            streams: Random streams of the run.

        Returns:
            Their models, in the same order.

        Raises:
            InvalidInputError: If a client has no data here, or the parameters are those of another model.
        """
        if clients.size and not 0 <= clients.min() <= clients.max() < self.num_clients:
            raise InvalidInputError(
                f"clients are {clients.min()} to {clients.max()}; expected 0 to {self.num_clients - 1}, who have data"
            )
        num_clients, num_samples = clients.shape[0], self._partition.shape[1]
        order = batch_order(clients, num_samples=num_samples, epochs=self._epochs, round=round, streams=streams)
        start = self._row(parameters)
        trained = torch.empty((num_clients, self._model.num_params))
        losses = np.full((2, num_clients), np.nan)
        step = self._clients_at_once or max(num_clients, 1)
        with torch_threads(self._threads), torch.no_grad():
            for first in range(0, num_clients, step):
                part = slice(first, first + step)
                held = self._partition[clients[part]]
                visits = np.take_along_axis(held[:, None], order[part], axis=2)
                rows = start.expand(held.shape[0], -1).clone()
                samples = self._tensor(held)
                losses[0, part] = self._losses(rows, samples)
                self._descend(rows, self._tensor(visits))
                losses[1, part] = self._losses(rows, samples)
                trained[part] = rows.cpu()
        return Updates(
            parameters=self._named(trained),
            num_samples=np.full(num_clients, num_samples, np.int64),
            loss_before=losses[0],
            train_loss=losses[1],
        )

    def _descend(self, rows: Tensor, visits: Tensor) -> None:
        """Make all steps of some clients; ``rows`` (k, P) are changed, ``visits`` are (k, epochs, samples)."""
        for epoch in visits.unbind(dim=1):
            for batch in epoch.split(self._batch_size, dim=1):
                gradient = self._model.gradient(rows, self._train_x[batch], self._train_y[batch])
                rows.sub_(gradient, alpha=self._learning_rate)

    def _losses(self, rows: Tensor, samples: Tensor) -> FloatArray | float:
        """Mean loss of each of k models over its own samples, shape (k,)."""
        if not self._measure_losses:
            return float("nan")
        total = torch.zeros(rows.shape[0], dtype=torch.float64, device=self._device)
        for batch in samples.split(max(_CHUNK // rows.shape[0], 1), dim=1):
            logits = self._model.cohort_logits(rows, self._train_x[batch])
            total -= (torch.log_softmax(logits, dim=-1) * self._train_y[batch]).sum(dim=(1, 2))
        mean: FloatArray = (total / samples.shape[1]).cpu().numpy()
        return mean

    def evaluate(self, parameters: Parameters, /) -> Evaluation:
        """Test a model.

        Args:
            parameters: Arrays by name.

        Returns:
            Accuracy and mean cross-entropy on the test images.

        Raises:
            InvalidInputError: If the parameters are those of another model.
        """
        row = self._row(parameters)
        correct, loss = 0, 0.0
        with torch_threads(self._threads), torch.inference_mode():
            for images, labels in zip(self._test_x.split(_CHUNK), self._test_y.split(_CHUNK), strict=True):
                logits = self._model.logits(row, images)
                loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
                correct += int((logits.argmax(dim=1) == labels).sum())
        count = self._test_y.shape[0]
        return Evaluation(accuracy=correct / count, loss=loss / count)
