"""The script that converts FedScale's pickles and users' tables, on files of the published form made here."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from fedroster.core.errors import DataFileError
from fedroster.core.streams import Streams
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.lab.worlds.population import read_source

PHONES = {
    7: {"computation": np.float32(30.0), "communication": 5648.109619499134},
    2: {"computation": 162.0, "communication": np.float64(1017.5)},
    9: {"computation": 19, "communication": 204_056},
}
TRACES = {
    1: {"duration": 25, "inactive": [20, 45], "finish_time": 86_400, "active": [10, 30], "model": "phone 1"},
    2: {"duration": 5, "inactive": [90_005], "finish_time": 172_800, "active": [90_000], "model": "phone 2"},
}


class Command:
    """What a pickle could run."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.fixture
def convert(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples" / "traces"))
    import convert

    yield convert
    sys.modules.pop("convert", None)


def pickles(folder, *, phones=PHONES, traces=TRACES, protocol=4):
    folder.mkdir(exist_ok=True)
    (folder / "client_device_capacity").write_bytes(pickle.dumps(phones, protocol=protocol))
    (folder / "client_behave_trace").write_bytes(pickle.dumps(traces, protocol=protocol))
    return folder


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_fedscales_pickles(convert, tmp_path, protocol):
    convert.convert(pickles(tmp_path / "info", protocol=protocol), tmp_path / "npz")
    found = read_source(tmp_path / "npz")
    assert not found.paired
    np.testing.assert_allclose(found.speeds.compute_s, [0.030, 0.162, 0.019])
    np.testing.assert_allclose(found.speeds.bandwidth_bps, [5648109.619499134, 1017500.0, 204_056_000.0])
    assert found.sessions.offsets.tolist() == [0, 2, 3]
    assert found.sessions.start_s.tolist() == [10.0, 30.0, 90_000.0]
    assert found.sessions.end_s.tolist() == [20.0, 45.0, 90_005.0]
    assert found.sessions.period_s.tolist() == [86_400.0, 172_800.0]
    network = TraceNetwork(num_clients=50, traces=str(tmp_path / "npz"))
    state = network.init(rng=Streams(0).at("environment-init"))
    assert network.observe(state, 1, rng=Streams(0).at("environment", 1))[0].num_links == 50


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_runs_nothing(convert, tmp_path, protocol):
    harm = tmp_path / "harm"
    folder = pickles(tmp_path / "info", phones={1: Command(harm)}, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match="open"):
        convert.convert(folder, tmp_path / "npz")
    assert not harm.exists()
    assert not (tmp_path / "npz").exists()
    with (folder / "client_device_capacity").open("rb") as file:
        pickle.load(file)[1].close()  # negative control: pickle does run it
    assert harm.exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"phones": {}},
        {"phones": {3: {"computation": 5.0, "communication": -1.0}}},
        {"traces": {}},
        {"traces": {5: TRACES[1] | {"active": [30, 10]}}},
        {"traces": {5: TRACES[1] | {"active": [], "inactive": []}}},
        {"traces": {5: TRACES[1] | {"finish_time": 40}}},
    ],
)
def test_nothing_is_written_for_what_is_malformed(convert, tmp_path, changes):
    with pytest.raises(DataFileError):
        convert.convert(pickles(tmp_path / "info", **changes), tmp_path / "npz")
    assert not (tmp_path / "npz").exists()


def test_starts_without_ends(convert, tmp_path):
    with pytest.raises(ValueError, match="client 5"):
        convert.convert(pickles(tmp_path / "info", traces={5: TRACES[1] | {"active": [1]}}), tmp_path / "npz")


def test_a_table_with_a_longer_period_and_the_quantiles(convert, tmp_path, monkeypatch, capsys):
    table, target = tmp_path / "phones.csv", tmp_path / "phones.npz"
    table.write_text("client,time,available,compute,bandwidth\nanna,0,1,24,6.2\nanna,43200,0,,\n")
    monkeypatch.setattr(sys, "argv", ["convert.py", str(table), str(target), "--period", "86400"])
    convert.main()
    found = read_source(target)
    assert found.paired
    assert found.sessions.share().tolist() == [0.5]
    said = capsys.readouterr().out
    assert "1 devices with 1 sessions" in said
    assert "share of time available: 5% 0.5, 25% 0.5" in said
    assert "published: 5% 0.02, 25% 0.07" in said
