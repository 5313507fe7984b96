"""Recorded gradients made cheaper: what the processor does badly is replaced.

Every rewriting keeps the result, up to rounding, and leaves alone what it does not recognise, so it serves any module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from fedroster.lab.training.pooling import add_pooled_gradient

aten = torch.ops.aten

_LEAST_ROW = 64  # floats; below, the windows of a convolution are too short for the processor's vectors


def _meta(node: Any) -> Any:
    """What is known about the tensor that a node returns."""
    return node.meta["val"] if "val" in node.meta else node.meta["tensor_meta"]


def _is_call(node: Any, target: Any) -> bool:
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is target


def _finish(graph: fx.GraphModule) -> fx.GraphModule:
    graph.graph.eliminate_dead_code()
    graph.graph.lint()
    graph.recompile()
    return graph


def pool_before_relu(graph: fx.GraphModule) -> fx.GraphModule:
    r"""Rectify after max pooling in place of before: a quarter of the work for windows of 2 x 2.

    .. math:: \max_i [x_i]^+ = [\max_i x_i]^+

    The gradients are the same too: where the maximum is positive it is the same element, elsewhere they are zero.
    """
    pool = aten.max_pool2d_with_indices.default
    pool_back = aten.max_pool2d_with_indices_backward.default
    for relu in list(graph.graph.nodes):
        if not _is_call(relu, aten.relu.default):
            continue
        users = {user.target: user for user in relu.users}
        if len(relu.users) != 3 or users.keys() != {pool, pool_back, aten.threshold_backward.default}:
            continue
        unpooled, cut = users[pool_back], users[aten.threshold_backward.default]
        if set(unpooled.users) != {cut} or cut.args != (unpooled, relu, 0):
            continue
        pooled = users[pool]
        (kept,) = (user for user in pooled.users if user.args[1] == 0)
        pooled.replace_input_with(relu, relu.args[0])
        with graph.graph.inserting_after(kept):
            rectified = graph.graph.call_function(aten.relu.default, (kept,))
        kept.replace_all_uses_with(rectified, delete_user_cb=lambda user, own=rectified: user is not own)
        with graph.graph.inserting_before(unpooled):
            cut_first = graph.graph.call_function(aten.threshold_backward.default, (unpooled.args[0], rectified, 0))
        unpooled.args = (cut_first, relu.args[0], *unpooled.args[2:])
        cut.replace_all_uses_with(unpooled)
        graph.graph.erase_node(cut)
    return _finish(graph)


def pooled_convolution_backward(
    gradient: Tensor, position: Tensor, images: Tensor, weight: Tensor, width: int, stride: list[int], with_images: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Gradients of a convolution without padding, at input, weight and bias, from those of its max-pooled output.

    ``position`` says where each maximum lies in the convolution's output of that width, as ``max_pool2d`` returns it;
    without ``with_images`` the input's gradient is None.
    """
    batch, inputs, height, row = images.shape
    channels, _, kernel, kernel_width = weight.shape
    last = images.permute(0, 2, 3, 1).contiguous().view(batch, height, row * inputs)
    rows = weight.permute(0, 2, 3, 1).contiguous().view(channels, kernel, kernel_width * inputs)
    d_rows, d_bias = torch.zeros_like(rows), torch.zeros(channels)
    d_last = torch.zeros_like(last) if with_images else last
    add_pooled_gradient(
        gradient.permute(0, 2, 3, 1).reshape(batch, -1, channels).contiguous().numpy(),
        position.permute(0, 2, 3, 1).reshape(batch, -1, channels).contiguous().numpy(),
        last.numpy(),
        rows.numpy(),
        width,
        stride[0],
        stride[1] * inputs,
        d_rows.numpy(),
        d_bias.numpy(),
        d_last.numpy(),
        with_images,
    )
    d_images = d_last.view(batch, height, row, inputs).permute(0, 3, 1, 2) if with_images else None
    return d_images, d_rows.view(channels, kernel, kernel_width, inputs).permute(0, 3, 1, 2), d_bias


def sparse_pooled_backward(graph: fx.GraphModule) -> fx.GraphModule:
    """Take the gradient of a convolution from the outputs that pooling and rectifying kept, where that is cheaper.

    Only for convolutions without padding, groups or dilation, on the CPU, whose windows do not overlap in the pooling,
    after :func:`pool_before_relu`.
    """
    for node in list(graph.graph.nodes):
        if not _is_call(node, aten.convolution_backward.default):
            continue
        gradient, images, weight, _, stride, padding, dilation, transposed, _, groups, wanted = node.args
        if not _is_call(gradient, aten.max_pool2d_with_indices_backward.default) or len(gradient.users) != 1:
            continue
        cut, output, window, step, pool_padding, _, _, position = gradient.args
        row = _meta(weight).shape[1] * _meta(weight).shape[3]
        fits = (
            _is_call(cut, aten.threshold_backward.default)
            and (not step or list(step) == list(window))
            and not any(pool_padding)
            and not any(padding)
            and all(value == 1 for value in dilation)
            and not transposed
            and groups == 1
            and row >= _LEAST_ROW
        )
        if not fits:
            continue
        with graph.graph.inserting_before(node):
            arguments = (cut, position, images, weight, _meta(output).shape[3], stride, wanted[0])
            cheaper = graph.graph.call_function(pooled_convolution_backward, arguments)
        node.replace_all_uses_with(cheaper)
        graph.graph.erase_node(node)
    return _finish(graph)
