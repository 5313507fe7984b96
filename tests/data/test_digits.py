from __future__ import annotations

import sys

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError, MissingDependencyError
from fedroster.data.digits import load_digits


def test_shapes_and_ranges():
    digits = load_digits()
    assert digits.train_x.shape[1:] == digits.test_x.shape[1:] == (1, 8, 8)
    assert len(digits.train_x) + len(digits.test_x) == len(digits.train_y) + len(digits.test_y) == 1797
    assert digits.train_x.min() == 0.0
    assert digits.train_x.max() == 1.0
    assert set(digits.train_y.tolist()) == set(digits.test_y.tolist()) == set(range(digits.num_classes))
    assert digits.train_y.dtype == np.int64


def test_every_class_is_divided_alike():
    digits = load_digits(test_fraction=0.25)
    test, train = np.bincount(digits.test_y), np.bincount(digits.train_y)
    assert (np.abs(test - 0.25 * (test + train)) <= 0.5).all()


def test_seed_decides_the_split():
    one, same, other = load_digits(seed=1), load_digits(seed=1), load_digits(seed=2)
    np.testing.assert_array_equal(one.test_x, same.test_x)
    assert one.test_x.shape == other.test_x.shape
    assert (one.test_x != other.test_x).any()


@pytest.mark.parametrize("fraction", [0.0, 1.0, float("nan")])
def test_bad_fraction(fraction):
    with pytest.raises(ConfigurationError, match="test_fraction"):
        load_digits(test_fraction=fraction)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[train\]"):
        load_digits()
