"""``fedroster data``: what scripts rely on, exit codes, and that nothing is overwritten."""

import pytest

from commands import call, fails
from fedroster.lab.data.load import DATASETS
from published import serving, tiny_mnist

MNIST = tiny_mnist()


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
    with serving(site) as (address, _):
        monkeypatch.setitem(DATASETS, "tiny", MNIST.served_at(address))
        yield site


def test_fetch_and_the_variable(tiny, tmp_path, monkeypatch):
    result = call("data", "fetch", "tiny", "--data-dir", tmp_path / "data")
    assert result.stdout == ""
    assert "is the published data set" in result.stderr
    assert sorted(path.name for path in (tmp_path / "data" / "tiny").iterdir()) == sorted(MNIST.files)
    monkeypatch.setenv("FEDROSTER_DATA", str(tmp_path / "data"))
    call("data", "fetch", "tiny")  # all is there
    name = "t10k-labels-idx1-ubyte.gz"
    (tiny / name).unlink()
    fails(1, f"{name} could not be downloaded: http", "data", "fetch", "tiny", "--data-dir", tmp_path / "new")
    assert len(list((tmp_path / "new" / "tiny").iterdir())) == 3  # what came is kept
