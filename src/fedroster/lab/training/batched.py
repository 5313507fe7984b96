r"""One torch module, many parameter vectors: gradients of one client, or of a whole cohort in one pass.

The parameters of k clients are the rows of one matrix.  The gradient is written down once for each shape: ``make_fx``
records the operations of one client, or of all clients after ``torch.func`` has batched the module over the rows, and
:mod:`fedroster.lab.training.graph` makes the record cheaper.  Playing it avoids what autograd and ``torch.func`` cost
on every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from threading import RLock, local
from typing import Any, TypeAlias

import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.func import functional_call, functionalize, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fedroster.errors import ConfigurationError
from fedroster.lab.training.graph import pool_before_relu, sparse_pooled_backward
from fedroster.lab.training.models import ModelFactory

_Shape: TypeAlias = tuple[int, ...]
_Gradients: TypeAlias = Callable[..., tuple[Tensor, ...]]


_GLOBALS_OF_TORCH = RLock()
"""Held by a user of what all threads share: the default generator, and what ``make_fx`` patches while it records."""


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Let torch's default generator start at ``seed`` inside, and go on afterwards as if nothing had happened.

    One thread at a time: all threads draw from that generator.
    """
    with _GLOBALS_OF_TORCH, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def _refusal(module: nn.Module) -> str | None:
    """Say why a module cannot be trained here, if so."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and float(part.p) > 0.0:
            return f"layer {name!r} draws at random ({part}); expected a deterministic model"
    for name, _ in module.named_buffers():
        return f"buffer {name!r} is not a parameter; expected none (GroupNorm in place of BatchNorm)"
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32 or not parameter.requires_grad:
            return f"parameter {name!r} is frozen or {parameter.dtype}; expected float32 that is trained"
    if not list(module.parameters()):
        return "there are no parameters; expected some"
    return None


class BatchedModel:
    """A torch module whose parameters are the rows of a matrix, for classification with cross-entropy.

    Images of one client lie with their channels last, (batch, height, width, channels): convolutions are fastest so.
    Any number of threads may use it at the same time.

    Attributes:
        image_shape: Channels, height and width of an image.
        num_params: Number of parameters P.
        num_classes: Number of logits.
        layout: Name and shape of each parameter, in the order in which they lie in a row.
    """

    def __init__(self, factory: ModelFactory, *, image_shape: _Shape, device: torch.device) -> None:
        """Make the module once, and see that it maps such images to logits and can be trained here."""
        self._factory = factory
        self.image_shape = image_shape
        with torch_seeded(0):
            self._module = factory().to(device)
        if (refusal := _refusal(self._module)) is not None:
            raise ConfigurationError(f"the model cannot be trained: {refusal}")
        self.layout = {name: tuple(value.shape) for name, value in self._module.named_parameters()}
        self._sizes = [value.numel() for value in self._module.parameters()]
        self.num_params = sum(self._sizes)
        self._device = device
        self._of_thread = local()
        self._records: dict[Any, Any] = {}
        sample = torch.zeros((1, *image_shape), device=device)
        try:
            with torch.inference_mode():
                found = tuple(self._module(sample).shape)
        except (RuntimeError, ValueError) as error:
            raise ConfigurationError(
                f"the model does not take images of shape {image_shape}, (channels, height, width): {error}"
            ) from error
        if len(found) != 2 or found[0] != 1:
            raise ConfigurationError(f"the model maps one image to shape {found}; expected (1, classes)")
        self.num_classes = found[1]

    def _own_module(self) -> nn.Module:
        """This thread's own copy: ``functional_call`` puts parameters into the module itself while it runs."""
        if not hasattr(self._of_thread, "module"):
            with torch.inference_mode(False):
                self._of_thread.module = deepcopy(self._module)
        module: nn.Module = self._of_thread.module
        return module

    @property
    def has_convolutions(self) -> bool:
        """Whether a weight is multiplied more than once for an image, so that a step is much work for its size."""
        return any(isinstance(part, nn.modules.conv._ConvNd) for part in self._module.modules())

    def draw(self, *, rng: Generator) -> Tensor:
        """Parameters as the module's own constructor draws them, shape (P,), on the CPU."""
        with torch_seeded(int(rng.integers(2**63))):
            module = self._factory()
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])

    def named(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the parameters, shape (..., P), by name."""
        parts = rows.split(self._sizes, dim=-1)
        return {
            name: part.view(*rows.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, self.layout.items(), strict=True)
        }

    def logits(self, row: Tensor, images: Tensor) -> Tensor:
        """Logits, shape (batch, classes), of one model, whose images have their channels last."""
        with torch.inference_mode():
            out: Tensor = functional_call(self._own_module(), self.named(row), (images.permute(0, 3, 1, 2),))
        return out

    def gradient(self, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
        r"""Gradient, shape (k, P), of each model's mean cross-entropy over its own batch; targets are one-hot.

        .. math:: \nabla_{w_k} \frac{1}{b} \sum_{i=1}^{b} -\log \mathrm{softmax}(f_{w_k}(x_{k,i}))_{y_{k,i}}

        The first call for a shape records the operations (0.05 s or so), later ones play them.
        """
        key = (rows.shape, images.shape)
        if key not in self._records:

            def gradient(rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:  # make_fx wants a plain function
                module = self._own_module()
                forward = vmap(lambda values, x: functional_call(module, values, (x,)))
                logits, pull_back, *_ = vjp(lambda named: forward(named, images), self.named(rows))
                # The derivative of the mean cross-entropy with respect to the logits.
                (gradients,) = pull_back((torch.softmax(logits, dim=-1) - targets) / images.shape[1])
                return torch.cat([gradients[name].reshape(rows.shape[0], -1) for name in self.layout], dim=1)

            self._records[key] = self._recorded(gradient, rows.shape, images.shape, targets.shape)
        with torch.inference_mode():
            found: Tensor = self._records[key](rows, images, targets)
        return found

    def _recorded(self, function: Callable[..., Any], *shapes: _Shape) -> Any:
        """Write down the operations of a function for inputs of these shapes, without any in-place operation."""
        with _GLOBALS_OF_TORCH, torch.inference_mode(False), torch.enable_grad():
            examples = [torch.zeros(shape, device=self._device) for shape in shapes]
            return make_fx(functionalize(function))(*examples)

    def client_gradients(self, batch: int) -> _Gradients:
        """A function ``(images, targets, *parameters) -> gradients`` of one client and so many images.

        The gradient is that of :meth:`gradient`, by parameter, in the shapes of :attr:`layout`; images have their
        channels last.  The first call for a batch size records it; later ones return the record, which any number of
        threads may play.
        """
        if batch not in self._records:
            module = self._own_module()

            def gradients(images: Tensor, targets: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
                logits, pull_back, *_ = vjp(
                    lambda named: functional_call(module, named, (images.permute(0, 3, 1, 2),)),
                    dict(zip(self.layout, parameters, strict=True)),
                )
                (found,) = pull_back((torch.softmax(logits, dim=-1) - targets) / batch)
                return tuple(found[name] for name in self.layout)

            channels, *size = self.image_shape
            shapes = ((batch, *size, channels), (batch, self.num_classes), *self.layout.values())
            graph = pool_before_relu(self._recorded(gradients, *shapes))
            self._records[batch] = sparse_pooled_backward(graph) if self._device.type == "cpu" else graph
        record: _Gradients = self._records[batch]
        return record
