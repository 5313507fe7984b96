r"""One torch module, many parameter vectors: gradients of a whole cohort in one pass.

The parameters of k clients are the rows of one matrix.  The gradient of all clients is written down once for each
shape: ``torch.func`` batches the module over the rows, ``make_fx`` records the batched operations, and operations that
change nothing are struck out.  Playing the record avoids what ``torch.func`` costs on every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from numpy.random import Generator

from fedroster.core.errors import ConfigurationError, MissingDependencyError

try:
    import torch
except ImportError as error:
    raise MissingDependencyError.of("torch", "train") from error
from torch import Tensor, fx, nn
from torch.func import functional_call, functionalize, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from fedroster.training.models import ModelFactory

_Shape: TypeAlias = tuple[int, ...]
_Gradient: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


@contextmanager
def torch_seeded(seed: int) -> Iterator[None]:
    """Let torch's default generator start at ``seed`` inside, and go on afterwards as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch use ``count`` threads inside; None leaves it alone.  A process-wide setting, restored at the end."""
    before = torch.get_num_threads()
    if count is None or count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _refusal(module: nn.Module) -> str | None:
    """Say why a module cannot be trained here, if so."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.dropout._DropoutNd) and float(part.p) > 0.0:
            return f"layer {name!r} draws at random ({part}); expected a deterministic model"
    for name, buffer in module.named_buffers():
        if buffer is not None:
            return f"buffer {name!r} is not a parameter; expected none (GroupNorm in place of BatchNorm)"
    for name, parameter in module.named_parameters():
        if parameter.dtype != torch.float32 or not parameter.requires_grad:
            return f"parameter {name!r} is frozen or {parameter.dtype}; expected float32 that is trained"
    if not any(True for _ in module.parameters()):
        return "there are no parameters; expected some"
    return None


def _is_idle(node: fx.Node) -> bool:
    """Whether an operation returns its first argument unchanged."""
    aten = torch.ops.aten
    if node.target in (aten.detach.default, aten.alias.default):
        return True
    if node.target is aten.mul.Scalar:
        return bool(node.args[1] == 1)
    if node.target in (aten.view.default, aten._unsafe_view.default, aten.expand.default):
        return bool(_meta(node.args[0]).shape == _meta(node).shape)
    return False


def _meta(node: Any) -> Any:
    """What is known about the tensor that a node returns."""
    return node.meta["val"] if "val" in node.meta else node.meta["tensor_meta"]


def strike_idle(graph: fx.GraphModule) -> fx.GraphModule:
    """Remove operations that change nothing: same-shape views, factors of one, transposing there and back.

    Args:
        graph: A recorded function without in-place operations; it is changed.
    """
    transpose = torch.ops.aten.transpose.int
    for node in list(graph.graph.nodes):
        if node.op != "call_function":
            continue
        source: Any = None
        if _is_idle(node):
            source = node.args[0]
        elif node.target is transpose and node.args[0].target is transpose:
            inner = node.args[0]
            source = inner.args[0] if set(node.args[1:]) == set(inner.args[1:]) else None
        if source is not None:
            node.replace_all_uses_with(source)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


class BatchedModel:
    """A torch module whose parameters are the rows of a matrix, for classification with cross-entropy.

    Attributes:
        num_params: Number of parameters P.
        num_classes: Number of logits.
        layout: Name and shape of each parameter, in the order in which they lie in a row.
    """

    def __init__(self, factory: ModelFactory, *, image_shape: _Shape, device: torch.device) -> None:
        """Make the module once and see that it fits.

        Args:
            factory: Makes the module.
            image_shape: Channels, height and width of an image.
            device: Where to compute.

        Raises:
            ConfigurationError: If the module does not map such images to logits, or has random layers, buffers or
                frozen parameters.
        """
        self._factory = factory
        with torch_seeded(0):
            self._module = factory().to(device)
        if (refusal := _refusal(self._module)) is not None:
            raise ConfigurationError(f"the model cannot be trained: {refusal}")
        self.layout = {name: tuple(value.shape) for name, value in self._module.named_parameters()}
        self._sizes = [value.numel() for value in self._module.parameters()]
        self.num_params = sum(self._sizes)
        self._device = device
        self._records: dict[tuple[_Shape, _Shape], _Gradient] = {}
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

    def draw(self, *, rng: Generator) -> Tensor:
        """Parameters as the module's own constructor draws them, shape (P,), on the CPU.

        Args:
            rng: Seeds the draw; torch's own generators are left alone.
        """
        with torch_seeded(int(rng.integers(2**63))):
            module = self._factory()
        return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])

    def module(self, row: Tensor) -> nn.Module:
        """A module of its own with the given parameters.

        Args:
            row: Shape (P,).
        """
        with torch_seeded(0):
            module = self._factory().to(self._device)
        module.load_state_dict(self.named(row.clone()))
        return module

    def named(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the parameters by name.

        Args:
            rows: Shape (..., P).
        """
        parts = rows.split(self._sizes, dim=-1)
        return {
            name: part.view(*rows.shape[:-1], *shape)
            for part, (name, shape) in zip(parts, self.layout.items(), strict=True)
        }

    def logits(self, row: Tensor, images: Tensor) -> Tensor:
        """Logits of one model.

        Args:
            row: Parameters, shape (P,).
            images: Shape (batch, channels, height, width).

        Returns:
            Shape (batch, classes).
        """
        with torch.inference_mode():
            out: Tensor = functional_call(self._module, self.named(row), (images,))
        return out

    def cohort_logits(self, rows: Tensor, images: Tensor) -> Tensor:
        """Logits of k models, each on its own images.

        Args:
            rows: Parameters, shape (k, P).
            images: Shape (k, batch, channels, height, width).

        Returns:
            Shape (k, batch, classes).
        """
        with torch.inference_mode():
            return self._batched(self.named(rows), images)

    def _batched(self, named: dict[str, Tensor], images: Tensor) -> Tensor:
        out: Tensor = vmap(lambda values, x: functional_call(self._module, values, (x,)))(named, images)
        return out

    def _gradient(self, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
        logits, pull_back, *_ = vjp(lambda named: self._batched(named, images), self.named(rows))
        # The derivative of the mean cross-entropy with respect to the logits.
        (gradients,) = pull_back((torch.softmax(logits, dim=-1) - targets) / images.shape[1])
        return torch.cat([gradients[name].reshape(rows.shape[0], -1) for name in self.layout], dim=1)

    def gradient(self, rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:
        r"""Gradient of each model's mean cross-entropy over its own batch.

        .. math:: \nabla_{w_k} \frac{1}{b} \sum_{i=1}^{b} -\log \mathrm{softmax}(f_{w_k}(x_{k,i}))_{y_{k,i}}

        The first call for a shape records the operations (0.05 s or so), later ones play them.

        Args:
            rows: Parameters, shape (k, P).
            images: Shape (k, batch, channels, height, width).
            targets: One-hot classes, float32, shape (k, batch, classes).

        Returns:
            Shape (k, P).
        """
        key = (tuple(rows.shape), tuple(images.shape))
        if key not in self._records:
            self._records[key] = self._record(rows, images, targets)
        with torch.inference_mode():
            return self._records[key](rows, images, targets)

    def _record(self, *like: Tensor) -> _Gradient:
        """Write down the operations of :meth:`_gradient` for inputs of these shapes, without any in-place operation."""

        def gradient(rows: Tensor, images: Tensor, targets: Tensor) -> Tensor:  # make_fx wants a plain function
            return self._gradient(rows, images, targets)

        with torch.inference_mode(False), torch.enable_grad():
            examples = [torch.zeros_like(value) for value in like]
            return strike_idle(make_fx(functionalize(gradient))(*examples))
