from __future__ import annotations

import sys

import numpy as np
import pytest

from fedroster.core.errors import MissingDependencyError
from fedroster.lab.data.digits import load_digits


def test_shapes_and_ranges():
    digits = load_digits()
    assert digits.train_x.shape[1:] == digits.test_x.shape[1:] == (1, 8, 8)
    assert len(digits.train_x) + len(digits.test_x) == len(digits.train_y) + len(digits.test_y) == 1797
    assert digits.train_x.min() == 0.0
    assert digits.train_x.max() == 1.0
    assert set(digits.train_y.tolist()) == set(digits.test_y.tolist()) == set(range(digits.num_classes))
    assert digits.train_y.dtype == np.int64


def test_every_class_is_divided_alike():
    digits = load_digits()
    test, train = np.bincount(digits.test_y), np.bincount(digits.train_y)
    assert (np.abs(test - 0.2 * (test + train)) <= 0.5).all()


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[train\]"):
        load_digits()
