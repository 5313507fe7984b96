import subprocess
import sys

import numpy as np
import pytest
import torch

from fedroster.core.errors import ConfigurationError
from fedroster.lab.training.batched import BatchedModel
from fedroster.lab.training.protocol import Work
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.lab.training.softmax import SoftmaxLearner, descend


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("batch_size", [1, 5, 13, 100])
def test_steps_follow_the_equation(classes, batch_size):
    """Against the equation in double precision; blocks of 2 classes, 4 and 8 images all have remainders."""
    rng = np.random.default_rng(classes)
    images = rng.random((40, 21), np.float32)
    labels = rng.integers(classes, size=40)
    visits = np.stack([rng.permutation(40)[:27] for _ in range(2)])
    weight, bias = rng.normal(size=(classes, 21)).astype(np.float32), rng.normal(size=classes).astype(np.float32)
    expected_weight, expected_bias = weight.astype(np.float64), bias.astype(np.float64)
    for epoch in visits:
        for first in range(0, 27, batch_size):
            batch = epoch[first : first + batch_size]
            logits = images[batch] @ expected_weight.T + expected_bias
            share = np.exp(logits - logits.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            error = (share - np.eye(classes)[labels[batch]]) / len(batch)
            expected_weight -= 0.3 * error.T @ images[batch]
            expected_bias -= 0.3 * error.sum(axis=0)
    descend(weight, bias, images, labels, visits, batch_size, 0.3, 0.0)
    np.testing.assert_allclose(weight, expected_weight, atol=2e-5)
    np.testing.assert_allclose(bias, expected_bias, atol=2e-5)


def test_large_logits_do_not_overflow():
    images = np.full((2, 4), 1e4, np.float32)
    weight, bias = np.diag([1e4, 5e4, 2e4]).astype(np.float32), np.zeros(3, np.float32)
    weight = np.concatenate([weight, np.zeros((3, 1), np.float32)], axis=1)
    descend(weight, bias, images, np.array([1, 1]), np.array([[0, 1]]), 2, 1e-3, 0.0)
    np.testing.assert_allclose(bias, 0.0, atol=1e-30)  # class 1 is certain, and right


@pytest.mark.parametrize(("pixels", "classes"), [(784, 10), (64, 10), (5, 2)])
def test_the_first_model_is_the_one_that_torch_draws(pixels, classes):
    ours = SoftmaxRegression(pixels, classes)
    theirs = BatchedModel(ours, image_shape=(1, 1, pixels), device=torch.device("cpu"))
    for seed in range(3):
        drawn, expected = (model.draw(rng=np.random.default_rng(seed)) for model in (ours, theirs))
        np.testing.assert_allclose(drawn, expected.numpy(), rtol=1e-6, atol=1e-8)  # here and with AVX2: bit for bit


def test_images_of_another_size_are_refused():
    images, labels = np.zeros((3, 1, 8, 8)), np.zeros(3, np.int64)
    with pytest.raises(ConfigurationError, match=r"does not take images of shape .1, 8, 8.*expected 784 pixels"):
        SoftmaxLearner(SoftmaxRegression(784, 10), Work(images, labels, images, labels, 3, 1, 0.1))


WITHOUT_TORCH = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        return None if name == "torch" else self.finder.find_spec(name, *more)

sys.meta_path[:] = map(Without, sys.meta_path)
from fedroster.core.streams import Streams
from fedroster.core.errors import MissingDependencyError
from fedroster.lab.task import Task
trainer = Task("digits-logistic").trainer(num_clients=5, seed=0, num_threads=2, device="auto", measure_losses=True)
model = trainer.init(rng=Streams(0).at("model"))
import numpy as np
updates = trainer.train(model, np.arange(5), round=1, streams=Streams(0))
assert np.isfinite(updates.loss_before).all()
mean = {name: values.mean(axis=0) for name, values in updates.parameters.items()}
assert trainer.evaluate(mean).loss < trainer.evaluate(model).loss
for wish in (lambda: Task("digits").trainer(num_clients=5, seed=0), lambda: trainer.module(model)):
    try:
        wish()
    except MissingDependencyError as error:
        print(error)
"""


def test_softmax_regression_trains_without_pytorch():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("this needs the package 'torch', which is not installed") == 2
