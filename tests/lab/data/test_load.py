"""Data sets by name: found, checked, read and downloaded, tiny ones and, where they are at hand, the real files."""

import gzip
import os
import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from fedroster.core.errors import (
    ConfigurationError,
    DataFileError,
    DownloadError,
    InvalidInputError,
    MissingDataError,
    MissingDependencyError,
)
from fedroster.lab.data.load import DATASETS, data_folder, fetch_dataset, load_dataset
from published import serving, tiny_cifar, tiny_mnist

MNIST = tiny_mnist()
CIFAR = tiny_cifar()
IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = MNIST.files
BATCHES = ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"]
ARCHIVE = "tiny-bin.tar.gz"

REAL = os.environ.get("FEDROSTER_DATA", "")


@pytest.fixture(autouse=True)
def _settings(monkeypatch, tmp_path):
    """Two data sets more, no folder from outside, no proxy."""
    monkeypatch.setitem(DATASETS, "tiny", MNIST.source)
    monkeypatch.setitem(DATASETS, "tiny-cifar", CIFAR.source)
    monkeypatch.delenv("FEDROSTER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")


def same(dataset, published):
    for found_x, found_y, (images, labels) in (
        (dataset.train_x, dataset.train_y, published.train),
        (dataset.test_x, dataset.test_y, published.test),
    ):
        assert (found_x.dtype, found_y.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(found_x, (images / 255.0).astype(np.float32))
        np.testing.assert_array_equal(found_y, labels)
    assert dataset.num_classes == 10


def test_the_argument_goes_before_the_variable_and_that_before_the_cache(monkeypatch, tmp_path):
    assert data_folder() == tmp_path / "cache" / "fedroster" / "data"
    monkeypatch.setenv("FEDROSTER_DATA", str(tmp_path / "variable"))
    assert data_folder() == tmp_path / "variable"
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    monkeypatch.setenv("FEDROSTER_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert data_folder() == tmp_path / "home" / ".cache" / "fedroster" / "data"
    assert data_folder("~/here") == tmp_path / "home" / "here"


def test_without_a_home_a_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("os.path.expanduser", os.fspath)  # as where neither HOME nor the user's entry is there
    assert data_folder(tmp_path) == tmp_path
    assert load_dataset("digits").num_classes == 10
    with pytest.raises(MissingDataError, match="--data-dir"):
        load_dataset("mnist")
    with pytest.raises(InvalidInputError, match="--data-dir"):
        fetch_dataset("mnist")
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_a_file(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InvalidInputError, match="file; expected a folder"):
        load_dataset("mnist", folder=file)
    monkeypatch.setenv("FEDROSTER_DATA", str(file))
    with pytest.raises(InvalidInputError, match="FEDROSTER_DATA"):
        load_dataset("mnist")


def test_missing_says_what_is_missing(tmp_path):
    MNIST.write(tmp_path / "tiny", [IMAGES, LABELS])
    (tmp_path / "tiny" / TEST_IMAGES).mkdir()  # a folder with a file's name is no file
    lacks = rf"(?s){tmp_path / 'tiny'} lacks {TEST_IMAGES}, {TEST_LABELS}.*fedroster\s+data fetch tiny"
    with pytest.raises(FileNotFoundError, match=lacks):
        load_dataset("tiny", folder=tmp_path)


def test_digits_need_no_folder_but_scikit_learn(monkeypatch):
    digits = load_dataset("digits")
    assert digits.train_x.shape == (1438, 1, 8, 8)
    assert digits.test_x.shape == (359, 1, 8, 8)
    assert (digits.train_x.dtype, digits.train_y.dtype) == (np.float32, np.int64)
    assert (digits.train_x.min(), digits.train_x.max()) == (0.0, 1.0)
    np.testing.assert_array_equal(digits.train_x * 16.0, np.round(digits.train_x * 16.0))
    test, train = np.bincount(digits.test_y), np.bincount(digits.train_y)  # every class is divided alike
    assert test.shape == train.shape == (digits.num_classes,)
    assert (np.abs(test - 0.2 * (test + train)) <= 0.5).all()
    with pytest.raises(ConfigurationError, match="package"):
        fetch_dataset("digits")
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[train\]"):
        load_dataset("digits")


@pytest.mark.parametrize(("name", "published"), [("tiny", MNIST), ("tiny-cifar", CIFAR)])
def test_samples(tmp_path, name, published):
    published.write(tmp_path / published.source.folder)
    same(load_dataset(name, folder=tmp_path), published)


@pytest.mark.parametrize(
    "content",
    [
        b"mine",
        MNIST.files[LABELS][:-9],
        gzip.compress(gzip.decompress(MNIST.files[LABELS]) + b"\0"),
    ],
    ids=["foreign", "truncated", "long"],
)
def test_a_file_that_is_not_the_published_one(tmp_path, content):
    MNIST.write(tmp_path / "tiny")
    (tmp_path / "tiny" / LABELS).write_bytes(content)
    for call in (load_dataset, fetch_dataset):
        with pytest.raises(DataFileError, match=f"{LABELS} .*remove it and fetch again"):
            call("tiny", folder=tmp_path)
    assert (tmp_path / "tiny" / LABELS).read_bytes() == content


def test_a_file_that_is_much_too_large_is_not_read(tmp_path):
    place = CIFAR.write(tmp_path / "tiny-bin", BATCHES)
    with (place / BATCHES[0]).open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no disk
    with pytest.raises(DataFileError, match="published"):
        load_dataset("tiny-cifar", folder=tmp_path)


def test_fetch_files(tmp_path, monkeypatch):
    told = []
    with serving(MNIST.write(tmp_path / "site")) as (address, asked):
        monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at(address))
        with pytest.raises(MissingDataError):
            load_dataset("tiny", folder=tmp_path / "new")
        assert asked == []  # nothing is downloaded unless it is asked for
        place = fetch_dataset("tiny", folder=tmp_path / "new", progress=lambda *done: told.append(done))
        assert place == tmp_path / "new" / "tiny"
        assert {path.name: path.read_bytes() for path in place.iterdir()} == MNIST.files
        assert {told[-1], told[0]} <= {(len(content), len(content)) for content in MNIST.files.values()}
        fetch_dataset("tiny", folder=tmp_path / "new")
        assert asked == [f"/{name}" for name in MNIST.files]  # nothing is downloaded twice
        (place / TEST_LABELS).unlink()
        fetch_dataset("tiny", folder=tmp_path / "new")
        assert asked[4:] == [f"/{TEST_LABELS}"]  # only what is missing
    same(load_dataset("tiny", folder=tmp_path / "new"), MNIST)


def test_the_next_address_is_asked(tmp_path, monkeypatch):
    wrong = tmp_path / "wrong"
    tiny_mnist(seed=5).write(wrong)
    with serving(wrong) as (first, _), serving(MNIST.write(tmp_path / "site")) as (second, asked):
        monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at("http://name.invalid/", f"{first}none/", first, second))
        fetch_dataset("tiny", folder=tmp_path / "new")
    assert len(asked) == 4
    same(load_dataset("tiny", folder=tmp_path / "new"), MNIST)


def test_no_address_gives_the_file(tmp_path, monkeypatch):
    with serving(tiny_mnist(seed=5).write(tmp_path / "wrong")) as (wrong, _), socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # holds the port, so that no other process answers there, and does not listen
        deaf_address = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at(deaf_address, f"{wrong}none/", wrong))
        with pytest.raises(DownloadError) as raised:
            fetch_dataset("tiny", folder=tmp_path)
    what, advice = str(raised.value).split(". Without a network: ")
    first, *refusals = re.split(r" downloaded: |; ", what)
    assert first.startswith(IMAGES)
    for said, expected in zip(refusals, (deaf_address, "404", "hash"), strict=True):
        assert expected in said
    assert str(tmp_path / "tiny") in advice
    assert list((tmp_path / "tiny").iterdir()) == []


def test_what_a_server_says_steers_no_terminal(tmp_path, monkeypatch):
    import http.server

    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "do_GET", lambda self: self.send_error(404, "\x1b[31m"))
    with serving(tmp_path) as (address, _):
        monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at(address))
        with pytest.raises(DownloadError, match=r"404 .*\\x1b\[31m") as raised:
            fetch_dataset("tiny", folder=tmp_path / "new")
    assert "\x1b" not in str(raised.value)


def test_an_archive_is_unpacked_and_goes(tmp_path, monkeypatch):
    with serving(CIFAR.write(tmp_path / "site")) as (address, asked):
        monkeypatch.setitem(DATASETS, "tiny-cifar", CIFAR.served_at(address))
        assert fetch_dataset("tiny-cifar", folder=tmp_path / "new") == tmp_path / "new" / "tiny-bin"
    assert asked == [f"/{ARCHIVE}"]
    assert sorted(path.name for path in (tmp_path / "new").rglob("*")) == [*BATCHES, "tiny-bin"]
    same(load_dataset("tiny-cifar", folder=tmp_path / "new"), CIFAR)


def test_an_archive_of_the_users_stays_and_needs_no_network(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "tiny-cifar", CIFAR.served_at("http://name.invalid/"))
    (tmp_path / ARCHIVE).write_bytes(b"mine")  # neither unpacked nor replaced
    with pytest.raises(DataFileError, match="remove it"):
        fetch_dataset("tiny-cifar", folder=tmp_path)
    assert (tmp_path / ARCHIVE).read_bytes() == b"mine"
    CIFAR.write(tmp_path, [ARCHIVE])
    fetch_dataset("tiny-cifar", folder=tmp_path)
    same(load_dataset("tiny-cifar", folder=tmp_path), CIFAR)
    assert (tmp_path / ARCHIVE).exists()


def test_without_pooch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    MNIST.write(tmp_path / "there" / "tiny")
    fetch_dataset("tiny", folder=tmp_path / "there")  # it is there: nothing to download
    with pytest.raises(MissingDependencyError, match=r"\.\[train\]"):
        fetch_dataset("tiny", folder=tmp_path / "new")


@pytest.mark.parametrize(
    ("name", "shape", "first", "per_class"),
    [
        ("mnist", (1, 28, 28), [5, 0, 4, 1, 9], [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion-mnist", (1, 28, 28), [9, 0, 0, 3, 0], [6000] * 10),
        ("cifar-10", (3, 32, 32), [6, 9, 9, 4, 1], [5000] * 10),
    ],
)
def test_real(name, shape, first, per_class):
    try:
        dataset = load_dataset(name, folder=REAL or Path("none"))
    except MissingDataError:
        pytest.skip(f"FEDROSTER_DATA names no folder with {name}")
    assert dataset.train_x.shape == (sum(per_class), *shape)
    assert dataset.test_x.shape == (10_000, *shape)
    assert dataset.train_y[:5].tolist() == first
    assert np.bincount(dataset.train_y).tolist() == per_class
    assert (dataset.train_x.min(), dataset.train_x.max()) == (0.0, 1.0)
