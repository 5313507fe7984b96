from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import nn

from fedroster.core.errors import ConfigurationError, InvalidInputError, UnknownNameError
from fedroster.core.streams import Streams
from fedroster.lab.training import pytorch
from fedroster.lab.training.batched import BatchedModel
from fedroster.lab.training.cohort import CohortTrainer, batch_order
from fedroster.lab.training.models import MODELS
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.lab.training.tasks import TASKS
from lab.training.reference import train_one

STREAMS = Streams(11)
CLIENTS = np.array([3, 0, 5])


def digits_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


digits_softmax = SoftmaxRegression(pixels=64, classes=10)


def in_place() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(inplace=True), nn.Linear(12, 10))


def strided() -> nn.Module:
    """What the rewritings of a record meet elsewhere: strides, padding, other pooling, no bias, a shortcut."""

    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide = nn.Conv2d(1, 32, 3, padding=1)
            self.step = nn.Conv2d(32, 9, (3, 5), stride=(1, 2))
            self.plain = nn.Conv2d(9, 9, 1, bias=False)
            self.linear = nn.Linear(9, 10, bias=False)

        def forward(self, x):
            x = torch.max_pool2d(torch.relu(self.wide(x)), 3, stride=1)
            x = torch.max_pool2d(torch.relu(self.step(x)), (2, 1))
            x = torch.relu(self.plain(x) + x)
            return self.linear(x.amax(dim=(2, 3)))

    return Strided()


def made(shape) -> dict:
    rng = np.random.default_rng(0)
    return {
        "train_x": rng.random((90, *shape)),
        "train_y": np.arange(90) % 10,
        "test_x": rng.random((30, *shape)),
        "test_y": np.arange(30) % 10,
        "partition": np.stack([rng.permutation(90)[:22] for _ in range(6)]),
    }


SHAPES = {
    "fashion-mnist-cnn": (1, 28, 28),
    "cifar-10-cnn": (3, 32, 32),
    "cifar-10-small": (3, 32, 32),
    "mnist-logistic": (1, 28, 28),
}  # the others: digits
SOFTMAX = ["digits-logistic", "mnist-logistic"]
SMALL = ["digits-mlp", "mnist-logistic", digits_cnn, in_place, strided]
METHODS = [
    *((model, "batched") for model in SMALL),
    *((model, "sequential") for model in dict.fromkeys([*MODELS, *SMALL])),
    *((model, "auto") for model in SOFTMAX),
]


@pytest.fixture(scope="module")
def data():
    return made((1, 8, 8))


def trainer(data, **changes) -> CohortTrainer:
    settings = {"model": "digits-mlp", "epochs": 2, "batch_size": 8, "learning_rate": 0.2} | data | changes
    return CohortTrainer(**settings)


PROXIMAL = [("digits-mlp", "batched"), (digits_cnn, "sequential"), (digits_softmax, "auto")]
LOOPS = {}  # of a model, a client and a start, as every method must give them


@pytest.mark.parametrize(
    ("model", "method", "more"),
    [
        *((model, method, {}) for model, method in METHODS),
        (digits_cnn, "sequential", {"num_threads": 2}),
        (digits_softmax, "auto", {"num_threads": 2}),
        ("digits-mlp", "auto", {"num_threads": None}),
        *((model, method, {"proximal": 0.7}) for model, method in PROXIMAL),
    ],
)
def test_cohort_equals_a_loop_over_clients(model, method, more):
    data = made(SHAPES.get(model, (1, 8, 8)))
    cohort = trainer(data, model=model, method=method, **more)
    start = cohort.init(rng=STREAMS.at("model"))
    updates = cohort.train(start, CLIENTS, round=4, streams=STREAMS)
    orders = batch_order(CLIENTS, num_samples=22, epochs=2, round=4, streams=STREAMS)
    moved = 0.0
    for row, client in enumerate(CLIENTS):
        held = data["partition"][client]
        key = (model, client, more.get("proximal"), *(value.tobytes() for value in start.values()))
        if key not in LOOPS:
            LOOPS[key] = train_one(
                cohort.module(start),
                data["train_x"][held],
                data["train_y"][held],
                orders[row],
                batch_size=8,  # 22 samples: the last batch of an epoch has 6
                learning_rate=0.2,
                proximal=more.get("proximal", 0.0),
            )
        expected, before = LOOPS[key]
        assert updates.parameters.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(updates.parameters[name][row], value, rtol=2e-4, atol=2e-5)
            moved = max(moved, np.abs(value - start[name]).max())
        assert updates.loss_before[row] == pytest.approx(before, rel=1e-4)
        with torch.no_grad():
            logits = cohort.module(start)(torch.as_tensor(data["train_x"][held], dtype=torch.float32))
            each = nn.functional.cross_entropy(logits, torch.as_tensor(data["train_y"][held]), reduction="none")
        assert updates.squared_loss[row] == pytest.approx(float((each.double() ** 2).mean()), rel=1e-4)
    polled = cohort.losses(start, CLIENTS)
    np.testing.assert_allclose(polled, updates.loss_before, rtol=1e-5)
    assert moved > 1e-2  # training did something
    assert updates.num_samples.tolist() == [22, 22, 22]


@pytest.mark.parametrize(
    ("model", "method", "tolerance"),
    [
        ("digits-mlp", "batched", 1e-5),
        (digits_cnn, "sequential", 0.0),
        (strided, "sequential", 0.0),
        (digits_softmax, "auto", 0.0),
    ],
)
def test_a_client_does_the_same_in_every_cohort(data, model, method, tolerance):
    cohort = trainer(data, model=model, method=method, num_threads=1)
    threads = trainer(data, model=model, method=method, num_threads=1 if method == "batched" else 2)
    start = cohort.init(rng=STREAMS.at("model"))
    together = cohort.train(start, CLIENTS, round=1, streams=STREAMS)
    again = threads.train(start, CLIENTS, round=1, streams=STREAMS)
    for name, values in again.parameters.items():
        np.testing.assert_array_equal(values, together.parameters[name])
    for others in (np.array([5]), np.array([1, 5]), np.arange(6)):
        updates = cohort.train(start, others, round=1, streams=STREAMS)
        for name, values in updates.parameters.items():
            found, expected = values[others == 5][0], together.parameters[name][2]
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


def test_the_method_follows_from_the_model(data):
    assert trainer(data, model=digits_softmax).method == "softmax"
    assert trainer(data, model="digits-mlp").method == "batched"
    assert (
        trainer(data, model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 20_000), nn.Linear(20_000, 10))).method
        == "sequential"
    )
    assert trainer(made((1, 28, 28)), model="fashion-mnist-cnn").method == "sequential"


@pytest.mark.parametrize(
    ("model", "method", "last", "first"),
    [("fashion-mnist-cnn", "sequential", "9.weight", "0.weight"), ("mnist-logistic", "auto", "1.weight", "1.bias")],
)
def test_what_is_not_finite_is_not_lost(model, method, last, first):
    """Kernels that skip zeros or reorder sums must hand a NaN on."""
    cohort = trainer(made((1, 28, 28)), model=model, method=method, epochs=1)
    start = {name: values.copy() for name, values in cohort.init(rng=STREAMS.at("model")).items()}
    start[last][0, 0] = np.nan
    updates = cohort.train(start, CLIENTS, round=1, streams=STREAMS)
    assert all(np.isnan(values).any() for values in updates.parameters[first])


def test_memory_that_does_not_suffice_makes_fewer_clients_at_once(data, monkeypatch):
    """No GPU is needed: whatever raises torch's error counts."""
    cohort = trainer(data, method="batched")
    start = cohort.init(rng=STREAMS.at("model"))
    expected = cohort.train(start, np.arange(6), round=1, streams=STREAMS)
    gradient, asked, limit = cohort._learner._model.gradient, [], 2

    def scarce(rows, images, targets):
        asked.append(rows.shape[0])
        if rows.shape[0] > limit:
            raise torch.OutOfMemoryError
        return gradient(rows, images, targets)

    monkeypatch.setattr(cohort._learner._model, "gradient", scarce)
    found = cohort.train(start, np.arange(6), round=1, streams=STREAMS)
    assert asked[:3] == [6, 3, 1]
    for name, values in expected.parameters.items():
        np.testing.assert_allclose(found.parameters[name], values, rtol=1e-5, atol=1e-6)
    limit = 0
    with pytest.raises(ConfigurationError, match="batch_size"):
        cohort.train(start, np.arange(6), round=1, streams=STREAMS)


def test_orders_differ_by_round_client_and_epoch_and_are_permutations():
    def order(clients, *, round):
        return batch_order(np.array(clients), num_samples=30, epochs=2, round=round, streams=STREAMS)

    first = order([1, 2], round=1)
    assert (np.sort(first, axis=2) == np.arange(30)).all()
    assert (first[1] == order([7, 2], round=1)[1]).all()
    assert (first[0] != first[1]).any()
    assert (first[0] != order([1], round=2)[0]).any()
    assert (first[0, 0] != first[0, 1]).any()


def test_torch_and_the_model_that_is_sent_are_left_as_they_were(data):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    cohort = trainer(data)
    start = cohort.init(rng=STREAMS.at("model"))
    copies = {name: value.copy() for name, value in start.items()}
    cohort.train(start, CLIENTS, round=1, streams=STREAMS)
    cohort.evaluate(start)
    assert torch.get_num_threads() == threads
    assert (torch.rand(3) == expected).all()
    for name, value in copies.items():
        np.testing.assert_array_equal(start[name], value)


def test_evaluate_equals_torch(data):
    cohort = trainer(data, model=digits_cnn)
    start = cohort.init(rng=STREAMS.at("model"))
    with torch.no_grad():
        logits = cohort.module(start)(torch.as_tensor(data["test_x"], dtype=torch.float32))
    labels = torch.as_tensor(data["test_y"])
    tested = cohort.evaluate(start)
    assert tested.accuracy == pytest.approx(float((logits.argmax(1) == labels).float().mean()))
    assert tested.loss == pytest.approx(float(nn.functional.cross_entropy(logits, labels)), rel=1e-5)


def test_nobody_trains(data):
    cohort = trainer(data)
    start = cohort.init(rng=STREAMS.at("model"))
    updates = cohort.train(start, np.empty(0, np.int64), round=1, streams=STREAMS)
    assert updates.num_samples.shape == updates.loss_before.shape == (0,)
    assert {name: value.shape[1:] for name, value in updates.parameters.items()} == {
        name: value.shape for name, value in start.items()
    }


def test_losses_without_training(data, monkeypatch):
    cohort = trainer(data, measure_losses=False)
    start = cohort.init(rng=STREAMS.at("model"))
    updates = cohort.train(start, CLIENTS, round=1, streams=STREAMS)
    assert np.isnan(updates.loss_before).all()  # they are measured on request only
    assert updates.squared_loss is None
    whole = cohort.losses(start, CLIENTS)
    monkeypatch.setattr(pytorch, "_CHUNK", 7)
    np.testing.assert_allclose(cohort.losses(start, CLIENTS), whole, rtol=1e-6)
    np.testing.assert_allclose(cohort.losses(start, CLIENTS[::-1]), whole[::-1], rtol=1e-6)
    assert np.ptp(whole) > 1e-3
    assert cohort.losses(start, np.empty(0, np.int64)).shape == (0,)
    with pytest.raises(InvalidInputError, match="who have data"):
        cohort.losses(start, np.array([99]))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "digit-mlp"}, UnknownNameError, "Did you mean 'digits-mlp'"),
        ({"epochs": 0}, ConfigurationError, "epochs is 0"),
        ({"batch_size": 2.5}, ConfigurationError, "batch_size is 2.5"),
        ({"num_threads": 0}, ConfigurationError, "num_threads is 0"),
        ({"device": "tpu"}, ConfigurationError, "device is 'tpu'"),
        ({"learning_rate": float("nan")}, ConfigurationError, "learning_rate is nan"),
        ({"method": "compiled"}, ConfigurationError, "method is 'compiled'; expected one of auto, batched"),
        ({"partition": np.array([[0, 90]])}, InvalidInputError, "names samples 0 to 90; expected 0 to 89"),
        ({"partition": np.empty((0, 3), np.int64)}, InvalidInputError, r"partition has .*shape"),
        ({"train_y": np.arange(90) % 10 + 0.7}, InvalidInputError, "train_y float64"),
        ({"partition": np.full((6, 3), np.nan)}, InvalidInputError, "partition has type float64"),
        ({"test_x": np.zeros((30, 1, 8, 8), complex)}, InvalidInputError, "test_x is complex128"),
        ({"test_x": np.full((30, 1, 8, 8), 1e39)}, InvalidInputError, "not finite as float32"),
        ({"train_y": np.arange(90) % 11}, InvalidInputError, "classes 0 to 10; expected 0 to 9"),
        ({"train_y": np.zeros(89, np.int64)}, InvalidInputError, "train_y"),
        ({"test_x": np.zeros((30, 1, 8, 9))}, InvalidInputError, "test images have shape"),
        ({"model": lambda: nn.Linear(3, 3)}, ConfigurationError, "the model does not take images"),
        ({"model": lambda: nn.Conv2d(1, 1, 3)}, ConfigurationError, "expected .1, classes."),
        ({"model": lambda: nn.Sequential(in_place(), nn.Dropout(0.5))}, ConfigurationError, "draws at random"),
        ({"model": lambda: nn.Sequential(nn.BatchNorm2d(1), in_place())}, ConfigurationError, "is not a parameter"),
        ({"model": lambda: in_place().requires_grad_(False)}, ConfigurationError, "frozen"),
        ({"model": nn.Flatten}, ConfigurationError, "no parameters"),
    ],
)
def test_bad_input(data, changes, error, message):
    with pytest.raises(error, match=message):
        trainer(data, **changes)


def test_cuda_is_not_replaced_in_silence_and_batches(data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="device is 'cuda'"):
        trainer(data, device="cuda")
    assert trainer(data, device="auto").num_clients == 6
    monkeypatch.setattr(pytorch, "device_of", lambda name: torch.device("meta"))
    assert trainer(data, model=digits_softmax, device="cuda").method == "batched"


def test_bad_calls(data):
    cohort = trainer(data)
    start = cohort.init(rng=STREAMS.at("model"))
    with pytest.raises(InvalidInputError, match="clients are 2 to 6; expected 0 to 5"):
        cohort.train(start, np.array([2, 6]), round=1, streams=STREAMS)
    foreign = trainer(data, model=digits_softmax).init(rng=STREAMS.at("model"))
    with pytest.raises(InvalidInputError, match="parameters have names and shapes"):
        cohort.train(foreign, CLIENTS, round=1, streams=STREAMS)
    with pytest.raises(InvalidInputError, match="parameters have names and shapes"):
        cohort.evaluate(foreign)


@pytest.mark.parametrize(
    ("model", "num_params", "mbit", "published_mbit"),
    [
        ("fashion-mnist-cnn", 431_080, 13.8, None),  # Huang et al. 2021 gives no size
        ("cifar-10-cnn", 797_962, 25.5, 18.7),
        ("mnist-logistic", 7_850, 0.251, 0.18),
    ],
)
def test_sizes_of_the_papers_models(model, num_params, mbit, published_mbit):
    counted = sum(parameter.numel() for parameter in MODELS[model]().parameters())
    assert counted == num_params
    assert counted * 32 / 1e6 == pytest.approx(mbit, rel=5e-3)
    if published_mbit is not None:  # both of Qu et al.'s sizes are the same share of float32
        assert published_mbit / (counted * 32 / 1e6) == pytest.approx(0.725, abs=0.01)


def test_tasks_are_those_of_the_papers():
    assert TASKS["fashion-mnist"].samples_per_client == TASKS["cifar-10"].samples_per_client == 500
    assert (TASKS["mnist-logistic"].epochs, TASKS["mnist-logistic"].learning_rate) == (2, 0.005)
    assert (TASKS["cifar-10-b"].epochs, TASKS["cifar-10-b"].learning_rate) == (5, 0.1)
    for task in TASKS.values():
        assert task.model in MODELS


class MeetsInside(nn.Module):
    """A linear model whose forward pass over two images waits until a second thread is in it, too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        if x.shape[0] == 2:
            MEETING.wait()  # both have their parameters in place ...
        out = self.linear(x.flatten(1))
        if x.shape[0] == 2:
            MEETING.wait()  # ... and neither is closed before both have used them
        return out


MEETING = Barrier(2, timeout=60)


def test_threads_inside_the_model_at_the_same_time_use_their_own_parameters():
    model = BatchedModel(MeetsInside, image_shape=(1, 2, 2), device=torch.device("cpu"))
    images = torch.from_numpy(np.random.default_rng(0).random((2, 2, 2, 1), np.float32))
    rows = [model.draw(rng=np.random.default_rng(seed)) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda row: model.logits(row, images), rows))
    for row, logits in zip(rows, found, strict=True):
        expected = images.permute(0, 3, 1, 2).flatten(1) @ row[:12].view(3, 4).T + row[12:]
        np.testing.assert_allclose(logits.numpy(), expected.numpy(), rtol=1e-5)
