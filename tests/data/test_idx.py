"""IDX: what is written comes back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedroster.data.idx import parse_idx, read_idx_pair
from published import idx, samples

IMAGES, LABELS = samples(6, (5, 4), 0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_what_is_written_comes_back(shape, random):
    values = np.array([random.randrange(256) for _ in range(int(np.prod(shape)))], np.uint8).reshape(shape)
    np.testing.assert_array_equal(parse_idx(idx(values)), values)


def test_pair():
    images, labels = read_idx_pair(idx(IMAGES), memoryview(idx(LABELS)))
    np.testing.assert_array_equal(images, IMAGES[:, None])
    np.testing.assert_array_equal(labels, LABELS)
