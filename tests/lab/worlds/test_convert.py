"""The script that makes a table of FedScale's pickles, on files of the published form made here."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from fedroster.core.errors import DataFileError
from fedroster.core.streams import Streams
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.lab.worlds.table import read_table

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
    target = tmp_path / "devices.parquet"
    convert.convert(pickles(tmp_path / "info", protocol=protocol), target)
    sessions, speeds = read_table(target)
    # The first trace is half as long as the second, and repeats.
    assert sessions.offsets.tolist() == [0, 4, 5]
    assert sessions.start_s.tolist() == [10.0, 30.0, 86_410.0, 86_430.0, 90_000.0]
    assert sessions.end_s.tolist() == [20.0, 45.0, 86_420.0, 86_445.0, 90_005.0]
    assert sessions.period_s == 172_800.0
    known = {(0.030, 5648109.619499134), (0.162, 1017500.0), (0.019, 204_056_000.0)}
    drawn = {*zip(speeds.compute_s.round(9).tolist(), speeds.bandwidth_bps.round(6).tolist(), strict=True)}
    assert len(drawn) == 2
    assert drawn <= {(compute_s, round(bandwidth_bps, 6)) for compute_s, bandwidth_bps in known}
    network = TraceNetwork(num_clients=50, traces=str(target))
    state = network.init(rng=Streams(0).at("environment-init"))
    assert network.observe(state, 1, rng=Streams(0).at("environment", 1))[0].num_links == 50


def test_sessions_that_touch_are_one_and_those_of_no_length_are_none(convert, tmp_path):
    touching = TRACES[1] | {"active": [10, 20, 60], "inactive": [20, 30, 60]}
    empty = TRACES[1] | {"active": [5], "inactive": [5]}
    convert.convert(pickles(tmp_path / "info", traces={1: touching, 2: empty}), tmp_path / "devices.parquet")
    sessions, _ = read_table(tmp_path / "devices.parquet")
    assert (sessions.start_s.tolist(), sessions.end_s.tolist()) == ([10.0], [30.0])
    assert sessions.period_s == 86_400.0


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_runs_nothing(convert, tmp_path, protocol):
    harm = tmp_path / "harm"
    folder = pickles(tmp_path / "info", phones={1: Command(harm)}, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match="open"):
        convert.convert(folder, tmp_path / "d.parquet")
    assert not harm.exists()
    assert not (tmp_path / "d.parquet").exists()
    with (folder / "client_device_capacity").open("rb") as file:
        pickle.load(file)[1].close()  # negative control: pickle does run it
    assert harm.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phones": {}}, None),
        ({"phones": {3: {"computation": 5.0, "communication": -1.0}}}, None),
        ({"traces": {}}, None),
        ({"traces": {5: TRACES[1] | {"active": [30, 10]}}}, None),
        ({"traces": {5: TRACES[1] | {"active": [], "inactive": []}}}, None),
        ({"traces": {5: TRACES[1] | {"finish_time": 40}}}, None),
        ({"traces": {5: TRACES[1] | {"active": [1]}}}, "client 5"),
    ],
)
def test_nothing_is_written_for_what_is_malformed(convert, tmp_path, changes, said):
    with pytest.raises((DataFileError, ValueError), match=said):
        convert.convert(pickles(tmp_path / "info", **changes), tmp_path / "d.parquet")
    assert not [*tmp_path.glob("*.parquet")]


def test_the_quantiles_are_printed(convert, tmp_path, monkeypatch, capsys):
    whole = {5: TRACES[1] | {"active": [0], "inactive": [43_200]}}
    folder = pickles(tmp_path / "info", traces=whole)
    monkeypatch.setattr(sys, "argv", ["convert.py", str(folder), str(tmp_path / "d.parquet")])
    convert.main()
    said = capsys.readouterr().out
    assert "1 devices with 1 sessions" in said
    assert "share of time available: 5% 0.5, 25% 0.5" in said
    assert "published: 5% 0.02, 25% 0.07" in said
