"""IDX, the format of MNIST and Fashion-MNIST: a magic number, the shape, then the bytes.

A file whose digest is the published one has the published form: nothing is checked here again.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray


def parse_idx(content: bytes | memoryview) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, as a read-only view of ``content``.

    The file is: two zero bytes, the type (8 for unsigned bytes), the number of dimensions (3 for images, 1 for labels),
    each dimension as a big-endian 32-bit integer, the values in row-major order.
    """
    start = 4 + 4 * content[3]
    return np.frombuffer(content, np.uint8, offset=start).reshape(struct.unpack(f">{content[3]}I", content[4:start]))


def read_idx_pair(
    images: bytes | memoryview, labels: bytes | memoryview
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read images and labels: shapes (samples, 1, height, width) and (samples,)."""
    return parse_idx(images)[:, None], parse_idx(labels)
