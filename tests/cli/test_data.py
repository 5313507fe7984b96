"""``fedroster data``: what scripts rely on, exit codes, and that nothing is overwritten."""

from __future__ import annotations

import gzip
import http.server
import json
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from fedroster import cli
from fedroster.core.errors import DownloadError
from fedroster.data.load import DATASETS
from published import tiny_mnist

MNIST = tiny_mnist(labels=np.arange(60) % 10)


@pytest.fixture(autouse=True)
def _settings(monkeypatch, tmp_path):
    monkeypatch.delenv("FEDROSTER_DEBUG", raising=False)
    monkeypatch.delenv("FEDROSTER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A data set named ``tiny`` that a server on this machine gives; the folder of the server."""
    site = MNIST.write(tmp_path / "site")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(site))

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at(f"http://127.0.0.1:{server.server_address[1]}/").source)
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


def call(*arguments):
    return CliRunner().invoke(cli.app, ["data", *(str(argument) for argument in arguments)])


def done(*arguments):
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fails(code, message, *arguments):
    result = call(*arguments)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.replace("│", " ").split()), result.stderr
    assert "Traceback" not in result.stderr
    return result


def test_list(tiny, tmp_path):
    rows = {row["name"]: row for row in json.loads(done("list", "--json").stdout)}
    assert list(rows) == ["mnist", "fashion-mnist", "cifar-10", "digits", "tiny"]
    assert rows["cifar-10"] == {
        "name": "cifar-10",
        "train_samples": 50000,
        "test_samples": 10000,
        "classes": 10,
        "shape": [3, 32, 32],
        "layout": None,
        "folder": None,
        "built_in": False,
    }
    assert rows["digits"]["built_in"]
    MNIST.write(tmp_path / "[red]" / "tiny")
    shown = done("list", "--data-dir", tmp_path / "[red]").stdout
    assert "[red]" in shown
    assert "ships with scikit-learn" in shown
    rows = {row["name"]: row for row in json.loads(done("list", "--data-dir", tmp_path / "[red]", "--json").stdout)}
    assert (rows["tiny"]["layout"], rows["tiny"]["folder"]) == ("IDX files", str(tmp_path / "[red]" / "tiny"))


def test_fetch_check_and_the_variable(tiny, tmp_path, monkeypatch):
    result = done("fetch", "tiny", "--data-dir", tmp_path / "data")
    assert result.stdout == ""
    assert "is the published data set" in result.stderr
    assert sorted(path.name for path in (tmp_path / "data" / "tiny").iterdir()) == sorted(MNIST.files)
    monkeypatch.setenv("FEDROSTER_DATA", str(tmp_path / "data"))
    checks = json.loads(done("check", "tiny", "--json").stdout)
    assert [(one["fault"], one["repacked"]) for one in checks] == [(None, False)] * 4
    done("fetch", "tiny")  # all is there


def test_fetch_into_the_cache(tiny, tmp_path):
    done("fetch", "tiny")
    assert (tmp_path / "cache" / "fedroster" / "data" / "tiny").is_dir()


def test_fetch_that_fails_keeps_what_came(tiny, tmp_path):
    name = "t10k-labels-idx1-ubyte.gz"
    (tiny / name).unlink()
    fails(1, f"{name} could not be downloaded: http", "fetch", "tiny", "--data-dir", tmp_path / "data")
    assert len(list((tmp_path / "data" / "tiny").iterdir())) == 3
    (tiny / name).write_bytes(MNIST.files[name])
    done("fetch", "tiny", "--data-dir", tmp_path / "data")


def test_check_of_damage(tiny, tmp_path):
    name = "train-labels-idx1-ubyte.gz"
    folder = MNIST.write(tmp_path / "data")
    (folder / name).write_bytes(gzip.compress(MNIST.files[name]))
    result = fails(1, "is compressed twice", "check", "tiny", "--data-dir", folder)
    assert result.stdout.count(": as published") == 3
    assert result.stdout.count(": differs") == 1
    result = fails(1, "is compressed twice", "check", "tiny", "--data-dir", folder, "--json")
    assert [bool(one["fault"]) for one in json.loads(result.stdout)] == [False, True, False, False]
    (folder / name).write_bytes(gzip.decompress(MNIST.files[name]))
    assert ": content as published" in done("check", "tiny", "--data-dir", folder).stdout
    (folder / name).write_bytes(b"mine")
    fails(1, "remove it and fetch again", "fetch", "tiny", "--data-dir", folder)
    assert (folder / name).read_bytes() == b"mine"


def test_partition_of_the_digits(tmp_path):
    picture = tmp_path / "new" / "picture.png"
    options = ("--clients", 12, "--samples", 50, "--seed", 3)
    result = done("partition", "digits", *options, "--out", picture)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "12 clients of 50 samples" in result.stdout
    told = json.loads(done("partition", "digits", *options, "--json").stdout)
    assert told["partition"] == "dirichlet:0.5"
    assert np.array(told["class_counts"]).shape == (12, 10)
    assert (np.sum(told["class_counts"], axis=1) == 50).all()
    other = json.loads(done("partition", "digits", *options, "--gamma-1", "100", "--json").stdout)
    assert np.max(other["class_counts"]) < np.max(told["class_counts"])


def test_partition_is_the_one_of_training(tiny, tmp_path):
    from fedroster.data.load import load_dataset
    from fedroster.data.partition import class_counts
    from fedroster.task import Partition

    folder = MNIST.write(tmp_path / "data")
    options = ("--clients", 5, "--samples", 9, "--seed", 4, "--data-dir", folder, "--json")
    told = json.loads(done("partition", "tiny", "--kind", "labels", "--labels", 3, *options).stdout)
    data = load_dataset("tiny", folder=folder)
    rows = Partition.parse("labels:3").divide(data, num_clients=5, samples_per_client=9, seed=4)
    assert told["class_counts"] == class_counts(rows, data.train_y, 10).tolist()
    iid = json.loads(done("partition", "tiny", "--kind", "iid", *options, "--samples", 12).stdout)
    assert np.sum(iid["class_counts"], axis=0).tolist() == [6] * 10  # all 60 samples


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (2, "Did you mean 'fashion-mnist'", ("fetch", "fashionmnist")),
        (2, "unknown data set 'minst'", ("check", "minst")),
        (2, "Digits is not to be downloaded", ("fetch", "digits")),
        (2, "Digits ships with a package", ("check", "digits")),
        (1, "MNIST was not found. Looked for:", ("check", "mnist")),
        (1, "fedroster data fetch cifar-10", ("partition", "cifar-10")),
        (2, "kind is 'shards'; expected one of dirichlet, labels, iid", ("partition", "digits", "--kind", "shards")),
        (2, "gamma_1 is 0.0", ("partition", "digits", "--gamma-1", "0")),
        (2, "the data set has 1438 samples", ("partition", "digits", "--samples", "2000")),
        (
            2,
            "labels_per_client is 11",
            ("partition", "digits", "--kind", "labels", "--labels", "11", "--samples", "20"),
        ),
        (2, "expected a file that ends in .png", ("partition", "digits", "--out", "picture.pdf")),
    ],
)
def test_mistakes(code, message, arguments):
    assert fails(code, message, *arguments).stdout == ""


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for command in (("list",), ("fetch", "mnist"), ("check", "mnist"), ("partition", "mnist")):
        fails(2, "a file; expected a folder", *command, "--data-dir", tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_a_network_files_may_be_put_by_hand(tmp_path, monkeypatch):
    def download(file, *_, **__):
        raise DownloadError(f"{file.name} could not be downloaded:")

    monkeypatch.setattr("fedroster.data.fetch.download", download)
    result = CliRunner().invoke(cli.app, ["data", "fetch", "mnist", "--data-dir", str(tmp_path)])
    said = " ".join(result.stderr.split())
    assert result.exit_code == 1
    assert "could not be downloaded: Without a network: put train-images-idx3-ubyte" in said
    assert f"from another machine into {tmp_path / 'mnist'}, or name a folder" in said
    assert said.endswith("then fedroster data check mnist")
