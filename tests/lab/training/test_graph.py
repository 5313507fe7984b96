import pytest
import torch
from torch import nn
from torch.func import functional_call, vjp
from torch.fx.experimental.proxy_tensor import make_fx

from fedroster.lab.training.batched import BatchedModel
from fedroster.lab.training.graph import (
    pool_before_relu,
    pooled_convolution_backward,
    sparse_pooled_backward,
)
from fedroster.lab.training.models import model_factory

aten = torch.ops.aten


def steps(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


def recorded(module, images):
    """The gradient of the sum of squares of a module's outputs."""
    names = [name for name, _ in module.named_parameters()]
    values = [value.detach().clone() for value in module.parameters()]

    def gradients(x, *parameters):
        out, pull_back = vjp(
            lambda named: functional_call(module, named, (x,)), dict(zip(names, parameters, strict=True))
        )
        (found,) = pull_back(out)
        return tuple(found[name] for name in names)

    return make_fx(gradients)(images, *values), (images, *values)


def close(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5)


def channels_last(*shape):
    batch, channels, height, width = shape
    return torch.rand(batch, height, width, channels).permute(0, 3, 1, 2)


def block(*layers):
    torch.manual_seed(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


def tried(module, images):
    module(images)  # the lazy layer learns its size
    graph, inputs = recorded(module, images)
    expected = graph(*inputs)
    return graph, inputs, expected


def test_rectifying_after_pooling_gives_the_same_bits():
    module = block(nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2))
    graph, inputs, expected = tried(module, channels_last(4, 2, 10, 10) - 0.5)
    moved = pool_before_relu(graph)
    for one, other in zip(moved(*inputs), expected, strict=True):
        assert torch.equal(one, other)
    order = steps(moved)
    assert order.index(aten.max_pool2d_with_indices.default) < order.index(aten.relu.default)
    assert order.index(aten.threshold_backward.default) < order.index(aten.max_pool2d_with_indices_backward.default)


def test_a_rectifier_that_is_used_elsewhere_too_stays():
    class Shortcut(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(1, 4, 3)

        def forward(self, x):
            x = torch.relu(self.convolution(x))
            return torch.max_pool2d(x, 2) + x[:, :, ::2, ::2]

    graph, inputs, expected = tried(Shortcut(), torch.rand(2, 1, 10, 10))
    graph.graph.eliminate_dead_code()
    before = steps(graph)
    kept = pool_before_relu(graph)
    close(kept(*inputs), expected)
    assert steps(kept) == before


@pytest.mark.parametrize(
    ("layers", "is_sparse"),
    [
        ((nn.Conv2d(24, 5, 3), nn.ReLU(), nn.MaxPool2d(2)), True),
        ((nn.Conv2d(24, 5, (2, 3), stride=(1, 2)), nn.ReLU(), nn.MaxPool2d((3, 2))), True),
        ((nn.Conv2d(24, 24, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 6, 3), nn.ReLU(), nn.MaxPool2d(2)), True),
        ((nn.Conv2d(24, 5, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2)), True),
        ((nn.Conv2d(24, 5, 3), nn.MaxPool2d(2)), False),  # without the rectifier too much is left
        ((nn.Conv2d(24, 5, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)), False),
        ((nn.Conv2d(24, 5, 3, dilation=2), nn.ReLU(), nn.MaxPool2d(2)), False),
        ((nn.Conv2d(48, 6, 3, groups=2), nn.ReLU(), nn.MaxPool2d(2)), False),
        ((nn.Conv2d(24, 5, 3), nn.ReLU(), nn.MaxPool2d(3, stride=2)), False),
        ((nn.Conv2d(24, 5, 3), nn.ReLU(), nn.MaxPool2d(2, padding=1)), False),
        ((nn.Conv2d(24, 5, 3), nn.ReLU(), nn.AvgPool2d(2)), False),
        ((nn.Conv2d(2, 5, 3), nn.ReLU(), nn.MaxPool2d(2)), False),  # rows too short to pay
    ],
)
def test_gradients_of_pooled_convolutions(layers, is_sparse):
    graph, inputs, expected = tried(block(*layers), channels_last(4, layers[0].in_channels, 14, 13) - 0.5)
    sparse = sparse_pooled_backward(pool_before_relu(graph))
    with torch.inference_mode():
        close(sparse(*inputs), expected)
    assert (pooled_convolution_backward in steps(sparse)) == is_sparse


def test_the_papers_networks_are_rewritten():
    """What is recorded for training, with whatever steps this version of torch puts between."""
    model = BatchedModel(model_factory("cifar-10-cnn"), image_shape=(3, 32, 32), device=torch.device("cpu"))
    order = steps(model.client_gradients(2))
    assert order.count(pooled_convolution_backward) == 1  # the first convolution's rows are too short
    assert order.index(aten.max_pool2d_with_indices.default) < order.index(aten.relu.default)
