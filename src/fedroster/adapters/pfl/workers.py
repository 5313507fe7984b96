"""The worker processes of a distributed simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
from pfl.internal.ops.selector import get_default_framework_module, has_framework_module

from fedroster.core.arrays import FloatArray


def this_worker() -> tuple[int, int]:
    """Rank of this worker, and how many there are."""
    if not has_framework_module():
        return 0, 1
    distributed = get_default_framework_module().distributed
    return distributed.global_rank, distributed.world_size


def summed(values: FloatArray) -> FloatArray:
    """The sum of an array over all workers."""
    if this_worker()[1] == 1:
        return values.copy()
    ops: Any = get_default_framework_module()
    total: FloatArray = np.asarray(ops.to_numpy(ops.distributed.all_reduce([ops.to_tensor(values)])[0]), np.float64)
    return total
