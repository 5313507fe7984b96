"""Local training of a cohort, by the method that is fastest for the model and the device (decision 0009).

``batched``: every client makes its step at the same time, the clients' parameters are the rows of one matrix.  For
GPUs, and for models so small that calling an operation costs more than computing it.

``sequential``: one client after the other on each thread, by a recorded gradient.  For convolutions on the CPU.

``softmax``: as ``sequential``, with all steps of a client in one compiled function.  For softmax regression on the CPU.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_choice, check_integer, check_number
from fedroster.core.errors import ConfigurationError, InvalidInputError, MissingDependencyError
from fedroster.core.parallel import num_threads as available_threads
from fedroster.core.streams import Streams

try:
    import torch
except ImportError as error:
    raise MissingDependencyError.of("torch", "train") from error
from torch import Tensor, nn

from fedroster.training.batched import BatchedModel
from fedroster.training.models import ModelFactory, model_factory
from fedroster.training.protocol import Evaluation, Parameters, Updates
from fedroster.training.softmax import descend
from fedroster.training.threads import each_client, keep_freed_memory, torch_threads

_CHUNK = 512  # images at once where only losses are wanted
_TESTED = {"cpu": 125, "cuda": 1000}  # the same in a test: what lies between two layers has to stay in the cache
_LEAST_WORK = 1_000_000  # parameters times images of a step from which batching clients costs more than it saves

Device = Literal["cpu", "cuda", "auto"]
Method = Literal["auto", "batched", "sequential", "softmax"]


def batch_order(clients: IntArray, *, num_samples: int, epochs: int, round: int, streams: Streams) -> IntArray:
    """In which order each client goes through its samples, shape (k, epochs, num_samples): a new one every epoch.

    Drawn at the address ("training", round, client), so it does not depend on who else is in the cohort.
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
        measure_losses: bool | Literal["before"] = True,
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
            measure_losses: Whether to measure each client's loss before and after: two more passes forward; "before"
                for the first alone, which is all that policies learn from.
            device: "cpu", "cuda", or "auto" for a GPU if there is one.
            num_threads: Threads on the CPU; None for all that this process may use.  The methods "sequential" and
                "softmax" train as many clients at the same time; otherwise they are torch's own.
            method: How, see :mod:`fedroster.training.cohort`; "auto" chooses by the model and the device.

        Raises:
            FedrosterError: If a parameter is out of its range, there is no such model, it does not fit the data or the
                method, or arrays do not fit together.
        """
        check_integer("epochs", epochs, least=1)
        check_integer("batch_size", batch_size, least=1)
        check_number("learning_rate", learning_rate, above=0.0)
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
        threads = available_threads() if num_threads is None else num_threads
        self._threads = threads if self._device.type == "cpu" else 1
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
        self._clients_at_once = partition.shape[0]  # halved where the memory of a GPU does not suffice
        self._measures_before = bool(measure_losses)
        self._measures_after = measure_losses is True
        self.method = self._choose(method)
        images = train_x.astype(np.float32, copy=False)
        if self.method == "sequential":
            images = np.moveaxis(images, 1, 3)
        self._train_x = self._tensor(images)
        self._train_y = self._tensor(np.eye(num_classes, dtype=np.float32)[train_y])
        self._labels = np.ascontiguousarray(train_y, np.int64)
        self._test_x = self._tensor(np.moveaxis(test_x.astype(np.float32, copy=False), 1, 3))
        self._test_y = self._tensor(test_y)

    def _choose(self, method: Method) -> Literal["batched", "sequential", "softmax"]:
        check_choice("method", method, ("auto", "batched", "sequential", "softmax"))
        on_cpu, is_softmax = self._device.type == "cpu", self._model.is_softmax_regression
        if method == "softmax" and not (on_cpu and is_softmax):
            raise ConfigurationError(
                f"method is 'softmax' for {'another model' if on_cpu else 'a GPU'}; "
                "expected a model that flattens the image and applies one linear layer, on the CPU"
            )
        if method != "auto":
            return method
        if not on_cpu:
            return "batched"
        if is_softmax:
            return "softmax"
        work = self._model.num_params * min(self._batch_size, self._partition.shape[1])
        return "sequential" if self._model.has_convolutions or work >= _LEAST_WORK else "batched"

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
        """Return the model before the first round, as its constructor draws it."""
        return self._named(self._model.draw(rng=rng))

    def module(self, parameters: Parameters) -> nn.Module:
        """Return a torch module of its own with these parameters, to save or to use."""
        return self._model.module(self._row(parameters))

    def _check_clients(self, clients: IntArray) -> None:
        if clients.size and not 0 <= clients.min() <= clients.max() < self.num_clients:
            raise InvalidInputError(
                f"clients are {clients.min()} to {clients.max()}; expected 0 to {self.num_clients - 1}, who have data"
            )

    def train(self, parameters: Parameters, clients: IntArray, /, *, round: int, streams: Streams) -> Updates:
        """Train each of the clients from the same model; the round says in which order samples are visited.

        Raises:
            InvalidInputError: If a client has no data here, or the parameters are those of another model.
        """
        self._check_clients(clients)
        num_clients, num_samples = clients.shape[0], self._partition.shape[1]
        order = batch_order(clients, num_samples=num_samples, epochs=self._epochs, round=round, streams=streams)
        held = self._partition[clients].astype(np.int64)  # whatever integers it came as
        visits = np.take_along_axis(held[:, None], order, axis=2)
        losses = np.full((3, num_clients), np.nan)  # before, after, and the mean of squares before
        keep_freed_memory()
        is_batched = self.method == "batched"
        with torch_threads(self._threads if is_batched else 1), torch.no_grad():
            rows = self._row(parameters).expand(num_clients, -1).clone()
            train = self._train_batched if is_batched else self._train_one_by_one
            trained = train(rows, held, visits, losses)
        return Updates(
            parameters=self._named(trained),
            num_samples=np.full(num_clients, num_samples, np.int64),
            loss_before=losses[0],
            train_loss=losses[1],
            squared_loss=losses[2] if self._measures_before else None,
        )

    def losses(self, parameters: Parameters, clients: IntArray, /) -> FloatArray:
        """Return the mean loss of a model over each client's samples, shape (k,), without training.

        Equal to ``loss_before`` of :meth:`train` up to rounding.
        """
        self._check_clients(clients)
        with torch_threads(self._threads), torch.inference_mode():
            measured = self._losses_of_one(self._row(parameters), self._partition[clients].astype(np.int64))
        mean: FloatArray = measured[0]
        return mean

    def _losses_of_one(self, row: Tensor, held: IntArray) -> FloatArray:
        """Means of one model's loss and of its square over the samples of each of k clients, shape (2, k).

        One pass over the samples that they hold together: what many hold is computed once, and no model is copied.
        """
        samples, place = np.unique(held, return_inverse=True)
        loss = np.empty(samples.shape[0])
        for first in range(0, samples.shape[0], _CHUNK):
            batch = self._tensor(samples[first : first + _CHUNK])
            images = self._train_x[batch]
            if self.method != "sequential":
                images = images.permute(0, 2, 3, 1)
            log_share = torch.log_softmax(self._model.logits(row, images), dim=-1)
            loss[first : first + _CHUNK] = -(log_share * self._train_y[batch]).sum(dim=-1).cpu().numpy()
        each = loss[place.reshape(held.shape)]
        return np.stack((each.mean(axis=1), np.square(each).mean(axis=1)))

    def _train_one_by_one(self, rows: Tensor, held: IntArray, visits: IntArray, losses: FloatArray) -> Tensor:
        """Train every row of ``rows`` (k, P) in place, several clients at the same time, and fill ``losses`` (3, k)."""
        samples = visits.shape[2]
        sizes = {min(self._batch_size, samples), samples % self._batch_size} - {0}
        if self.method == "sequential" and rows.shape[0]:
            for size in sizes:  # recorded here: the threads only play
                self._model.client_gradients(size)

        def work(client: int) -> None:
            with torch.inference_mode():
                row = rows[client]
                if self._measures_before:
                    losses[0, client], losses[2, client] = self._loss(row, held[client])
                if self.method == "softmax":
                    self._descend_softmax(row, visits[client])
                else:
                    self._descend_recorded(row, visits[client])
                if self._measures_after:
                    losses[1, client], _ = self._loss(row, held[client])

        each_client(work, rows.shape[0], num_threads=self._threads)
        return rows.cpu()

    def _descend_softmax(self, row: Tensor, visits: IntArray) -> None:
        """Make all steps of a client; ``row`` (P,) is changed, ``visits`` are (epochs, samples)."""
        images = self._train_x.flatten(1)
        weight = row[: images.shape[1] * self._model.num_classes]
        bias = row[weight.shape[0] :]
        has_bias = bias.shape[0] > 0
        # A tensor of its own starts at a cache line, a row of many need not: that alone makes a step 1.4 times faster.
        own = weight.view(self._model.num_classes, -1).clone()
        descend(
            own.numpy(),
            bias.numpy() if has_bias else np.zeros(own.shape[0], np.float32),
            images.numpy(),
            self._labels,
            visits,
            self._batch_size,
            self._learning_rate,
            has_bias,
        )
        weight.copy_(own.flatten())

    def _descend_recorded(self, row: Tensor, visits: IntArray) -> None:
        """As :meth:`_descend_softmax`, for any model."""
        parameters = list(self._model.named(row).values())
        for epoch in torch.from_numpy(visits).to(self._device):
            for batch in epoch.split(self._batch_size):
                gradients = self._model.client_gradients(batch.shape[0])
                found = gradients(self._train_x[batch], self._train_y[batch], *parameters)
                for parameter, gradient in zip(parameters, found, strict=True):
                    parameter.sub_(gradient, alpha=self._learning_rate)

    def _loss(self, row: Tensor, held: IntArray) -> tuple[float, float]:
        """Means of a model's loss and of its square over some samples."""
        total = squares = 0.0
        for batch in torch.from_numpy(held).to(self._device).split(_CHUNK):
            images = self._train_x[batch]
            if self.method == "softmax":
                images = images.permute(0, 2, 3, 1)
            # Classes are one-hot: all but one of a sample's products are 0, so squaring them squares its loss.
            loss = torch.log_softmax(self._model.logits(row, images), dim=-1) * self._train_y[batch]
            total -= float(loss.sum(dtype=torch.float64))
            squares += float(loss.square().sum(dtype=torch.float64))
        return float(total / held.shape[0]), float(squares / held.shape[0])

    def _train_batched(self, rows: Tensor, held: IntArray, visits: IntArray, losses: FloatArray) -> Tensor:
        """Train the rows of ``rows`` (k, P) together, as many at once as fit the memory, and fill ``losses`` (3, k)."""
        trained = torch.empty(rows.shape)
        if self._measures_before and rows.shape[0]:
            losses[0], losses[2] = self._losses_of_one(rows[0], held)  # everybody is sent the same model
        first = 0
        while first < rows.shape[0]:
            at_once = self._clients_at_once
            part = slice(first, first + at_once)
            try:
                found = rows[part].clone()
                self._descend(found, self._tensor(visits[part]))
                if self._measures_after:
                    losses[1, part] = self._losses(found, self._tensor(held[part]))
                trained[part] = found.cpu()
            except torch.OutOfMemoryError as error:
                num_tried = min(at_once, rows.shape[0] - first)
                if num_tried == 1:
                    raise ConfigurationError(
                        f"batch_size is {self._batch_size}, and the memory of {self._device} does not suffice for one "
                        "client's step; expected a smaller batch"
                    ) from error
                self._clients_at_once = num_tried // 2
                # What failed is freed only after this clause: the next try is another turn of the loop.
            else:
                first += at_once
        return trained

    def _descend(self, rows: Tensor, visits: Tensor) -> None:
        """Make all steps of some clients; ``rows`` (k, P) are changed, ``visits`` are (k, epochs, samples)."""
        for epoch in visits.unbind(dim=1):
            for batch in epoch.split(self._batch_size, dim=1):
                gradient = self._model.gradient(rows, self._train_x[batch], self._train_y[batch])
                rows.sub_(gradient, alpha=self._learning_rate)

    def _losses(self, rows: Tensor, samples: Tensor) -> FloatArray:
        """Mean loss of each of k models over its own samples, shape (k,)."""
        total = torch.zeros(rows.shape[0], dtype=torch.float64, device=self._device)
        for batch in samples.split(max(_CHUNK // rows.shape[0], 1), dim=1):
            logits = self._model.cohort_logits(rows, self._train_x[batch])
            total -= (torch.log_softmax(logits, dim=-1) * self._train_y[batch]).sum(dim=(1, 2))
        mean: FloatArray = (total / samples.shape[1]).cpu().numpy()
        return mean

    def evaluate(self, parameters: Parameters, /) -> Evaluation:
        """Test a model: accuracy and mean cross-entropy on the test images."""
        row = self._row(parameters)
        correct, loss, at_once = 0, 0.0, _TESTED[self._device.type]
        keep_freed_memory()
        with torch_threads(self._threads), torch.inference_mode():
            for images, labels in zip(self._test_x.split(at_once), self._test_y.split(at_once), strict=True):
                logits = self._model.logits(row, images)
                loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
                correct += int((logits.argmax(dim=1) == labels).sum())
        count = self._test_y.shape[0]
        return Evaluation(accuracy=correct / count, loss=loss / count)
