"""Local training of a cohort, by the method that is fastest for the model and the device (decision 0009).

``batched``: every client makes its step at the same time, the clients' parameters are the rows of one matrix.  For
GPUs, and for models so small that calling an operation costs more than computing it.

``sequential``: one client after the other on each thread, by a recorded gradient.  For convolutions on the CPU.

``softmax``: as ``sequential``, with all steps of a client in one compiled function.  For softmax regression on the CPU.
"""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.errors import InvalidInputError
from fedroster.lab.training.models import ModelFactory, model_factory
from fedroster.lab.training.protocol import Evaluation, Updates, Work
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.lab.training.softmax import SoftmaxLearner
from fedroster.lab.training.threads import each_client
from fedroster.parts import Model, check_choice, check_integer, check_number
from fedroster.parts import num_threads as available_threads
from fedroster.types import FloatArray, IntArray, Streams

if TYPE_CHECKING:
    from torch import nn

    from fedroster.lab.training.pytorch import ModuleLearner

Device = Literal["cpu", "cuda", "auto"]
Method = Literal["auto", "batched", "sequential"]


def batch_order(clients: IntArray, *, num_samples: int, epochs: int, round: int, streams: Streams) -> IntArray:
    """In which order each client goes through its samples, shape (k, epochs, num_samples): a new one every epoch.

    Drawn at the address ("training", round, client), so it does not depend on who else is in the cohort.
    """
    order = np.empty((clients.shape[0], epochs, num_samples), np.int64)
    order[:] = np.arange(num_samples)
    for row, client in zip(order, clients.tolist(), strict=True):
        streams.at("training", round, client).permuted(row, axis=1, out=row)
    return order


def _check_images(name: str, images: NDArray[Any], labels: IntArray) -> None:
    are_numbers = images.dtype.kind in "biuf" and labels.dtype.kind in "iu"
    if not are_numbers or images.ndim != 4 or images.size == 0 or labels.shape != images.shape[:1]:
        raise InvalidInputError(
            f"{name}_x is {images.dtype} of shape {images.shape} and {name}_y {labels.dtype} of shape {labels.shape}; "
            "expected numbers of shape (samples, channels, height, width) and integers of shape (samples,), none empty"
        )
    most = np.finfo(np.float32).max
    if not -most <= images.min() <= images.max() <= most:
        raise InvalidInputError(f"{name}_x has values that are not finite as float32; expected finite numbers")


def _learner(factory: ModelFactory, device: Device, method: Method, work: Work) -> SoftmaxLearner | ModuleLearner:
    """What trains this model on this device: softmax regression needs no PyTorch on the CPU."""
    on_cpu = device == "cpu" or (device == "auto" and find_spec("torch") is None)
    if not on_cpu:
        from fedroster.lab.training.pytorch import device_of

        on_cpu = device_of(device).type == "cpu"
    if on_cpu and isinstance(factory, SoftmaxRegression) and method == "auto":
        return SoftmaxLearner(factory, work)
    from fedroster.lab.training.pytorch import ModuleLearner, device_of

    return ModuleLearner(factory, device_of(device), method, work)


class CohortTrainer:
    r"""Trains k clients from the same model by mini-batch stochastic gradient descent.

    .. math:: w_k \gets w_k - \eta\, \nabla \frac{1}{b} \sum_{i \in \text{batch}} \ell(w_k; x_i, y_i)

    for every batch of every local epoch; the last batch of an epoch may be smaller.  The loss is cross-entropy.  Equal
    to a loop over the clients up to rounding.  What a client does depends on no other: bit for bit with the methods
    "sequential" and "softmax", for any number of threads; up to rounding with "batched".

    Attributes:
        method: The method in use: "batched", "sequential" or "softmax".
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
        proximal: float = 0.0,
        measure_losses: bool = True,
        device: Device = "cpu",
        num_threads: int | None = 1,
        method: Method = "auto",
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
            proximal: mu, >= 0: mu / 2 times the squared distance from the model that a client was sent is added to its
                loss (FedProx, Li et al. 2020).
            measure_losses: Whether to measure the loss of the model that each client is sent: one more pass forward.
            device: "cpu", "cuda", or "auto" for a GPU if there is one.
            num_threads: Threads on the CPU; None for all that this process may use.  The methods "sequential" and
                "softmax" train as many clients at the same time; otherwise they are torch's own.
            method: How, see :mod:`fedroster.lab.training.cohort`; "auto" chooses by the model and the device.

        Raises:
            FedrosterError: If a parameter is out of its range, there is no such model, it does not fit the data or the
                method, or arrays do not fit together.
        """
        check_integer("epochs", epochs, least=1)
        check_integer("batch_size", batch_size, least=1)
        check_number("learning_rate", learning_rate, above=0.0)
        check_number("proximal", proximal, least=0.0)
        if num_threads is not None:
            check_integer("num_threads", num_threads, least=1)
        _check_images("train", train_x, train_y)
        _check_images("test", test_x, test_y)
        if train_x.shape[1:] != test_x.shape[1:]:
            raise InvalidInputError(
                f"test images have shape {test_x.shape[1:]}; expected {train_x.shape[1:]}, as training images have"
            )
        if partition.ndim != 2 or partition.size == 0 or partition.dtype.kind not in "iu":
            raise InvalidInputError(
                f"partition has type {partition.dtype} and shape {partition.shape}; "
                "expected integers of shape (clients, samples), both >= 1"
            )
        if partition.min() < 0 or partition.max() >= train_y.shape[0]:
            raise InvalidInputError(
                f"partition names samples {partition.min()} to {partition.max()}; expected 0 to {train_y.shape[0] - 1}"
            )
        check_choice("device", device, ("cpu", "cuda", "auto"))
        check_choice("method", method, ("auto", "batched", "sequential"))
        self._factory = model_factory(model) if isinstance(model, str) else model
        work = Work(train_x, train_y, test_x, test_y, partition.shape[1], batch_size, learning_rate, proximal)
        self._learner = _learner(self._factory, device, method, work)
        self.method = self._learner.method
        self._threads = available_threads() if num_threads is None else num_threads
        self._partition = partition
        self._epochs = epochs
        self._measures_losses = measure_losses

    def _row(self, parameters: Model) -> NDArray[Any]:
        """Put a model's arrays into one row, shape (P,)."""
        layout = self._learner.layout
        found = {name: value.shape for name, value in parameters.items()}
        if found != layout:
            raise InvalidInputError(f"parameters have names and shapes {found}; expected {layout}")
        return np.concatenate([parameters[name].ravel() for name in layout], dtype=np.float32)

    def _named(self, rows: NDArray[Any]) -> Model:
        """Views of the parameters of rows (..., P), by name."""
        layout = self._learner.layout
        parts = np.split(rows, np.cumsum([math.prod(shape) for shape in layout.values()])[:-1], axis=-1)
        return {
            name: part.reshape(*rows.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, layout.items(), strict=True)
        }

    @property
    def num_clients(self) -> int:
        """Number of clients that have data."""
        return int(self._partition.shape[0])

    def init(self, *, rng: Generator) -> Model:
        """Return the model before the first round, as its constructor draws it."""
        return self._named(self._learner.draw(rng=rng))

    def module(self, parameters: Model) -> nn.Module:
        """Return a torch module of its own with these parameters, on the CPU, to save or to use."""
        from fedroster.lab.training.pytorch import module_of

        return module_of(self._factory, self._named(self._row(parameters)))

    def _check_clients(self, clients: IntArray) -> None:
        if clients.size and not 0 <= clients.min() <= clients.max() < self.num_clients:
            raise InvalidInputError(
                f"clients are {clients.min()} to {clients.max()}; expected 0 to {self.num_clients - 1}, who have data"
            )

    def train(self, parameters: Model, clients: IntArray, /, *, round: int, streams: Streams) -> Updates:
        """Train each of the clients from the same model; the round says in which order samples are visited.

        Raises:
            InvalidInputError: If a client has no data here, or the parameters are those of another model.
        """
        self._check_clients(clients)
        num_clients, num_samples = clients.shape[0], self._partition.shape[1]
        order = batch_order(clients, num_samples=num_samples, epochs=self._epochs, round=round, streams=streams)
        held = self._partition[clients].astype(np.int64)  # whatever integers it came as
        visits = np.take_along_axis(held[:, None], order, axis=2)
        losses = np.full((2, num_clients), np.nan)  # mean, and mean of squares
        row, learner = self._row(parameters), self._learner
        rows = np.tile(row, (num_clients, 1))

        def work(client: int) -> None:
            own = slice(client, client + 1)
            if self._measures_losses:
                losses[:, own] = self._losses(row, held[own])
            learner.descend(rows[client], visits[client])

        if learner.method == "batched":
            with learner.threads(self._threads):
                if self._measures_losses:
                    losses[:] = self._losses(row, held)
                learner.descend_together(rows, visits)
        else:
            with learner.threads(1):
                if num_clients:
                    learner.prepare(num_samples)
                each_client(work, num_clients, num_threads=self._threads)
        return Updates(
            parameters=self._named(rows),
            num_samples=np.full(num_clients, num_samples, np.int64),
            loss_before=losses[0],
            squared_loss=losses[1] if self._measures_losses else None,
        )

    def losses(self, parameters: Model, clients: IntArray, /) -> FloatArray:
        """Return the mean loss of a model over each client's samples, shape (k,), without training.

        Equal to ``loss_before`` of :meth:`train` up to rounding.
        """
        self._check_clients(clients)
        with self._learner.threads(self._threads):
            measured = self._losses(self._row(parameters), self._partition[clients].astype(np.int64))
        mean: FloatArray = measured[0]
        return mean

    def _losses(self, row: NDArray[Any], held: IntArray) -> FloatArray:
        """Means of one model's loss and of its square over the samples of each of k clients, shape (2, k).

        One pass over the samples that they hold together: what many hold is computed once, and no model is copied.
        """
        samples, place = np.unique(held, return_inverse=True)
        each = self._learner.losses(row, samples)[place.reshape(held.shape)]
        return np.stack((each.mean(axis=1), np.square(each).mean(axis=1)))

    def evaluate(self, parameters: Model, /) -> Evaluation:
        """Test a model: accuracy and mean cross-entropy on the test images."""
        with self._learner.threads(self._threads):
            return self._learner.evaluate(self._row(parameters))
