"""IDX, the format of MNIST and Fashion-MNIST: a magic number, the shape, then the bytes."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from fedroster.core.errors import DataFileError


def parse_idx(content: bytes | memoryview, *, name: str, dimensions: int) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, as a read-only view of ``content``.

    The file is: two zero bytes, the type (8 for unsigned bytes), the number of dimensions (3 for images, 1 for labels),
    each dimension as a big-endian 32-bit integer, the values in row-major order.

    Raises:
        DataFileError: If it is not such a file, or has another length than its header promises.
    """
    magic = bytes(content[:4])
    expected = bytes((0, 0, 8, dimensions))
    if len(magic) == 4 and magic != expected:
        raise DataFileError(
            f"{name} starts with {magic.hex(' ')}; expected {expected.hex(' ')}, "
            f"an IDX file of unsigned bytes with {dimensions} dimension{'s' if dimensions > 1 else ''}"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataFileError(f"{name} is truncated: it has {len(content)} bytes; an IDX header alone has {start}")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    size = start + math.prod(shape)
    if len(content) < size:
        raise DataFileError(f"{name} is truncated: it has {len(content)} bytes; its header promises {size}")
    if len(content) > size:
        raise DataFileError(f"{name} has {len(content)} bytes; its header promises only {size}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_idx_pair(
    images: tuple[str, bytes | memoryview], labels: tuple[str, bytes | memoryview]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read the names and contents of images and of labels: shapes (samples, 1, height, width) and (samples,)."""
    pixels = parse_idx(images[1], name=images[0], dimensions=3)
    classes = parse_idx(labels[1], name=labels[0], dimensions=1)
    if pixels.shape[0] != classes.shape[0]:
        raise DataFileError(
            f"{labels[0]} holds {classes.shape[0]} labels; "
            f"expected {pixels.shape[0]}, one for each image of {images[0]}"
        )
    return pixels[:, None], classes
