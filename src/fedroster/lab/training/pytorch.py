"""Training and testing of any torch module: the methods "batched" and "sequential" (decision 0009)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.errors import ConfigurationError, MissingDependencyError
from fedroster.parts import Model
from fedroster.types import FloatArray, IntArray

try:
    import torch
except ImportError as error:
    raise MissingDependencyError.of("torch", "train") from error
from torch import Tensor, nn

from fedroster.lab.training.batched import BatchedModel, torch_seeded
from fedroster.lab.training.models import ModelFactory
from fedroster.lab.training.protocol import Evaluation, Work
from fedroster.lab.training.threads import keep_freed_memory, torch_threads

_LEAST_WORK = 1_000_000  # parameters times images of a step from which batching clients costs more than it saves
_CHUNK = 512  # images at once where only losses are wanted
_TESTED = {"cpu": 125, "cuda": 1000}  # the same in a test: what lies between two layers has to stay in the cache


def device_of(name: str) -> torch.device:
    """The device of that name; "auto" for a GPU if there is one."""
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise ConfigurationError("device is 'cuda', and torch finds none; expected 'cpu', or 'auto' for what there is")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


@lru_cache(maxsize=16)
def _shared_model(factory: ModelFactory, image_shape: tuple[int, ...], device: torch.device) -> BatchedModel:
    # What was recorded for a model serves all trainers of the process.
    return BatchedModel(factory, image_shape=image_shape, device=device)


def module_of(factory: ModelFactory, parameters: Model) -> nn.Module:
    """A module of its own with these parameters, on the CPU."""
    with torch_seeded(0):
        module = factory()
    module.load_state_dict({name: torch.tensor(values) for name, values in parameters.items()})
    return module


class ModuleLearner:
    """Trains and tests a torch module, whose parameters are one row (P,) for each client."""

    def __init__(
        self, factory: ModelFactory, device: torch.device, method: Literal["auto", "batched", "sequential"], work: Work
    ) -> None:
        """Put the data onto the device."""
        self._model = model = _shared_model(factory, work.train_x.shape[1:], device)
        work.check_classes(model.num_classes)
        self.layout = model.layout
        self._device, self._work = device, work
        if method == "auto":
            step = model.num_params * min(work.batch_size, work.num_samples)
            is_large = device.type == "cpu" and (model.has_convolutions or step >= _LEAST_WORK)
            method = "sequential" if is_large else "batched"
        self.method: Literal["batched", "sequential"] = method
        self._clients_at_once = 2**31  # halved where the memory of a GPU does not suffice
        images = work.train_x.astype(np.float32, copy=False)
        self._train_x = self._tensor(np.moveaxis(images, 1, 3) if method == "sequential" else images)
        self._train_y = self._tensor(np.eye(model.num_classes, dtype=np.float32)[work.train_y])
        self._test_x = self._tensor(np.moveaxis(work.test_x.astype(np.float32, copy=False), 1, 3))
        self._test_y = self._tensor(work.test_y)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.array(array, order="C")).to(self._device)  # a copy: torch dislikes read-only arrays

    def draw(self, *, rng: Generator) -> NDArray[Any]:
        """Parameters as the module's own constructor draws them."""
        return self._model.draw(rng=rng).numpy()

    def threads(self, count: int) -> AbstractContextManager[None]:
        """Let torch use so many threads inside, and keep the memory that it frees."""
        keep_freed_memory()
        return torch_threads(count)

    @torch.inference_mode()
    def losses(self, row: NDArray[Any], samples: IntArray) -> FloatArray:
        """Cross-entropy of each of some training samples."""
        own, loss = self._tensor(row), np.empty(samples.shape[0])
        for first in range(0, samples.shape[0], _CHUNK):
            batch = self._tensor(samples[first : first + _CHUNK])
            images = self._train_x[batch]
            if self.method != "sequential":
                images = images.permute(0, 2, 3, 1)
            log_share = torch.log_softmax(self._model.logits(own, images), dim=-1)
            # Classes are one-hot: all but one of a sample's products are 0.
            loss[first : first + _CHUNK] = -(log_share * self._train_y[batch]).sum(dim=-1).cpu().numpy()
        return loss

    @torch.inference_mode()
    def descend(self, row: NDArray[Any], visits: IntArray) -> None:
        """Make all steps of a client; ``row`` (P,) is changed, ``visits`` are (epochs, samples)."""
        own = self._tensor(row)
        parameters, work = list(self._model.named(own).values()), self._work
        sent = [parameter.clone() for parameter in parameters] if work.proximal else parameters
        for epoch in self._tensor(visits):
            for batch in epoch.split(self._work.batch_size):
                gradients = self._model.client_gradients(batch.shape[0])
                found = gradients(self._train_x[batch], self._train_y[batch], *parameters)
                for parameter, gradient, start in zip(parameters, found, sent, strict=True):
                    if work.proximal:
                        gradient = gradient + work.proximal * (parameter - start)
                    parameter.sub_(gradient, alpha=work.learning_rate)
        row[:] = own.cpu().numpy()

    def prepare(self, num_samples: int) -> None:
        """Write down the gradients of all sizes of a batch: threads only play them."""
        for size in {min(self._work.batch_size, num_samples), num_samples % self._work.batch_size} - {0}:
            self._model.client_gradients(size)

    @torch.inference_mode()
    def descend_together(self, rows: NDArray[Any], visits: IntArray) -> None:
        """As :meth:`descend` for the rows of ``rows`` (k, P), as many at once as fit the memory."""
        first = 0
        while first < rows.shape[0]:
            at_once = self._clients_at_once
            part = slice(first, first + at_once)
            try:
                found = self._tensor(rows[part])
                self._descend(found, self._tensor(visits[part]))
                rows[part] = found.cpu().numpy()
            except torch.OutOfMemoryError as error:
                num_tried = min(at_once, rows.shape[0] - first)
                if num_tried == 1:
                    raise ConfigurationError(
                        f"batch_size is {self._work.batch_size}, and the memory of {self._device} does not suffice for "
                        "one client's step; expected a smaller batch"
                    ) from error
                self._clients_at_once = num_tried // 2
                # What failed is freed only after this clause: the next try is another turn of the loop.
            else:
                first += at_once

    def _descend(self, rows: Tensor, visits: Tensor) -> None:
        """Make all steps of some clients; ``rows`` (k, P) are changed, ``visits`` are (k, epochs, samples)."""
        sent = rows.clone() if self._work.proximal else rows
        for epoch in visits.unbind(dim=1):
            for batch in epoch.split(self._work.batch_size, dim=1):
                gradient = self._model.gradient(rows, self._train_x[batch], self._train_y[batch])
                if self._work.proximal:
                    gradient = gradient + self._work.proximal * (rows - sent)
                rows.sub_(gradient, alpha=self._work.learning_rate)

    @torch.inference_mode()
    def evaluate(self, row: NDArray[Any]) -> Evaluation:
        """Accuracy and mean cross-entropy on the test images."""
        own = self._tensor(row)
        correct = 0
        loss = 0.0
        at_once = _TESTED[self._device.type]
        for images, labels in zip(self._test_x.split(at_once), self._test_y.split(at_once), strict=True):
            logits = self._model.logits(own, images)
            loss += float(nn.functional.cross_entropy(logits, labels, reduction="sum"))
            correct += int((logits.argmax(dim=1) == labels).sum())
        count = self._test_y.shape[0]
        return Evaluation(accuracy=correct / count, loss=loss / count)
