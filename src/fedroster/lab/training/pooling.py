r"""Gradient of a convolution whose output is max-pooled and rectified, from the few outputs that the maximum kept.

Of every 2 x 2 window one output has a gradient, and none where the rectifier cut it off: about one in eight.  Adding
these up one by one is cheaper than a dense product, although a dense product runs nearer to the machine's peak.
"""

from __future__ import annotations

import numpy as np

from fedroster.parts import njit

_FLAGS = {"contract", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FLAGS)
def add_pooled_gradient(
    gradient, position, images, weight, width, stride_y, stride_x, d_weight, d_bias, d_images, with_images,
):  # fmt: skip
    r"""Add the gradients of a convolution, output by output, to ``d_weight``, ``d_bias`` and ``d_images``.

    .. math:: dW_c \mathrel{+}= g_{b,p,c}\, x_b[\text{window}],\quad dx_b[\text{window}] \mathrel{+}= g_{b,p,c}\, W_c

    ``gradient`` g at the kept outputs has shape (batch, kept, channels), ``position`` says where in the convolution's
    output each lies, ``row * width + column``; images x are (batch, height, width x channels), the weight W is
    (channels, kernel height, kernel width x input channels), and ``stride_x`` counts entries of a row.
    """
    batch, kept, channels = gradient.shape
    row = images.shape[2]
    height, length = weight.shape[1], weight.shape[2]
    start = np.empty(kept, np.int64)
    value = np.empty(kept, np.float32)
    for b in range(batch):
        x = images[b].reshape(-1)
        dx = d_images[b].reshape(-1) if with_images else x
        for c in range(channels):
            count = 0
            for p in range(kept):
                g = gradient[b, p, c]
                if g != 0.0:  # true for NaN: it must not be lost
                    y = position[b, p, c] // width
                    start[count] = y * stride_y * row + (position[b, p, c] - y * width) * stride_x
                    value[count] = g
                    d_bias[c] += g
                    count += 1
            for r in range(height):
                first = r * row
                total = d_weight[c, r]
                q = 0
                while q + 4 <= count:  # four at a time: one load and one store of the total
                    g0, g1, g2, g3 = value[q], value[q + 1], value[q + 2], value[q + 3]
                    x0 = x[first + start[q] : first + start[q] + length]
                    x1 = x[first + start[q + 1] : first + start[q + 1] + length]
                    x2 = x[first + start[q + 2] : first + start[q + 2] + length]
                    x3 = x[first + start[q + 3] : first + start[q + 3] + length]
                    for j in range(length):
                        total[j] += (g0 * x0[j] + g1 * x1[j]) + (g2 * x2[j] + g3 * x3[j])
                    q += 4
                while q < count:
                    g0 = value[q]
                    x0 = x[first + start[q] : first + start[q] + length]
                    for j in range(length):
                        total[j] += g0 * x0[j]
                    q += 1
                if with_images:
                    w = weight[c, r]
                    for q in range(count):
                        g0 = value[q]
                        x0 = dx[first + start[q] : first + start[q] + length]
                        for j in range(length):
                            x0[j] += g0 * w[j]
