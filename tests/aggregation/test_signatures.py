"""Signatures of updates: the projection against a whole matrix, what it keeps of distances, and the output bias."""

import numpy as np
import pytest

from fedroster.aggregation.signatures import signatures_of
from fedroster.core.errors import ConfigurationError
from fedroster.types import Signature, Streams


def models(shapes, count, *, seed=0):
    rng = np.random.default_rng(seed)
    sent = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return {
        name: value + rng.standard_normal((count, *value.shape)).astype(np.float32) for name, value in sent.items()
    }, sent


SHAPES = {"b.weight": (90, 100), "a.bias": (10,), "scale": (), "z": (2, 3, 4)}


@pytest.mark.parametrize("length", [1, 5])
def test_the_projection_is_that_of_one_matrix(length):
    """By names in their order, whatever order a model's arrays have."""
    found, sent = models(SHAPES, 3)
    order = ["a.bias", "b.weight", "scale", "z"]
    moves = [(found[name].astype(np.float64) - sent[name]).reshape(3, -1) for name in order]
    move = np.concatenate(moves, axis=1)
    drawn = Streams(9).at("signature", 0).integers(2 * length, size=move.shape[1])
    matrix = np.vstack([np.eye(length), -np.eye(length)])[drawn]
    expected = move @ matrix
    for names in (list(SHAPES), list(SHAPES)[::-1]):
        these = {name: found[name] for name in names}
        signature = signatures_of(these, {name: sent[name] for name in names}, Signature(length=length), seed=9)
        np.testing.assert_allclose(signature, expected, rtol=1e-9, atol=1e-9)
    assert not np.allclose(signatures_of(found, sent, Signature(length=length), seed=8), expected)


@pytest.mark.parametrize("num_moved", [2, 5000])
def test_the_square_of_a_distance_is_right_in_the_mean_and_to_its_deviation(num_moved):
    """Var = 2/s (|x|_2^4 - |x|_4^4), however few parameters hold the difference."""
    moves = np.zeros((1, 5000))
    moves[:, :num_moved] = np.random.default_rng(2).standard_normal(num_moved)
    seen = np.array(
        [
            np.sum(signatures_of({"w": moves}, {"w": np.zeros(5000)}, Signature(), seed=seed) ** 2)
            for seed in range(1000)
        ]
    )
    true = np.sum(moves**2)
    deviation = np.sqrt(2 / 64 * (true**2 - np.sum(moves**4)))
    assert np.mean(seen) == pytest.approx(true, abs=4 * deviation / np.sqrt(1000))
    assert np.std(seen) == pytest.approx(deviation, rel=0.3)


def test_what_is_not_finite_has_no_signature_and_nobody_has_an_empty_one():
    found, sent = models(SHAPES, 4)
    found["z"][1, 0, 0, 0] = np.inf
    found["scale"][2] = np.nan
    for of in ("update", "bias"):
        signature = signatures_of(found, sent, Signature(of, 10), seed=0)
        assert np.isfinite(signature).all(axis=1).tolist() == (
            [True, False, False, True] if of == "update" else [True] * 4
        )
    none = {name: value[:0] for name, value in found.items()}
    assert signatures_of(none, sent, Signature(), seed=0).shape == (0, 64)


def test_the_bias_is_the_last_array_of_one_dimension():
    found, sent = models({"0.bias": (7,), "1.weight": (10, 7), "1.bias": (10,)}, 3)
    expected = found["1.bias"].astype(np.float64) - sent["1.bias"]
    np.testing.assert_array_equal(signatures_of(found, sent, Signature("bias", 10), seed=0), expected)
    with pytest.raises(
        ConfigurationError, match=r"'1.bias': \(10,\)}; expected 7 classes in the last of one dimension"
    ):
        signatures_of(found, sent, Signature("bias", 7), seed=0)
    with pytest.raises(ConfigurationError, match="expected 10 classes"):
        signatures_of({"w": found["1.weight"]}, {"w": sent["1.weight"]}, Signature("bias", 10), seed=0)
