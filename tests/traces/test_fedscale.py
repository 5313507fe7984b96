"""FedScale's pickles, converted: from files of the published form that the tests write themselves."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from fedroster.core.errors import DataFileError, FedrosterError, MissingDataError
from fedroster.core.streams import Streams
from fedroster.traces.fedscale import CAPACITIES, SESSIONS, convert, read_capacities, read_sessions
from fedroster.traces.network import TraceNetwork
from fedroster.traces.population import read_source

PHONES = {
    7: {"computation": np.float32(30.0), "communication": 5648.109619499134},
    2: {"computation": 162.0, "communication": np.float64(1017.5)},
    9: {"computation": 19, "communication": 204_056},
}
TRACES = {
    1: {
        "duration": 25,
        "inactive": [20, 45],
        "finish_time": 86_400,
        "active": [10, 30],
        "model": "phone 1",
    },
    2: {"duration": 5, "inactive": [90_005], "finish_time": 172_800, "active": [90_000], "model": "phone 2"},
}


def write(folder, name, value, protocol=4):
    (folder / name).write_bytes(pickle.dumps(value, protocol=protocol))
    return folder / name


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_capacities(tmp_path, protocol):
    speeds = read_capacities(write(tmp_path, CAPACITIES, PHONES, protocol))
    np.testing.assert_allclose(speeds.compute_s, [0.030, 0.162, 0.019])
    np.testing.assert_allclose(speeds.bandwidth_bps, [5648109.619499134, 1017500.0, 204_056_000.0])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_sessions(tmp_path, protocol):
    sessions = read_sessions(write(tmp_path, SESSIONS, TRACES, protocol))
    assert sessions.offsets.tolist() == [0, 2, 3]
    assert sessions.start_s.tolist() == [10.0, 30.0, 90_000.0]
    assert sessions.end_s.tolist() == [20.0, 45.0, 90_005.0]
    assert sessions.period_s.tolist() == [86_400.0, 172_800.0]


def test_converted_once_and_simulated(tmp_path):
    write(tmp_path, CAPACITIES, PHONES)
    write(tmp_path, SESSIONS, TRACES)
    made = convert(tmp_path, tmp_path / "npz")
    assert [path.name for path in made] == ["client_device_capacity.npz", "client_behave_trace.npz"]
    found = read_source(tmp_path / "npz")
    np.testing.assert_allclose(found.speeds.compute_s, [0.030, 0.162, 0.019])
    assert found.sessions.end_s.tolist() == [20.0, 45.0, 90_005.0]
    network = TraceNetwork(num_clients=50, traces=str(tmp_path / "npz"))
    state = network.init(rng=Streams(0).at("environment-init"))
    assert network.observe(state, 1, rng=Streams(0).at("environment", 1))[0].num_links == 50


def test_one_of_the_files_alone(tmp_path):
    with pytest.raises(MissingDataError, match=f"holds neither {CAPACITIES} nor {SESSIONS}"):
        convert(tmp_path, tmp_path)
    write(tmp_path, SESSIONS, TRACES)
    assert [path.name for path in convert(tmp_path, tmp_path)] == ["client_behave_trace.npz"]
    with pytest.raises(MissingDataError, match="no file"):
        read_capacities(tmp_path / CAPACITIES)


def test_nothing_is_written_for_a_bad_pair(tmp_path):
    write(tmp_path, CAPACITIES, PHONES)
    write(tmp_path, SESSIONS, {})
    with pytest.raises(DataFileError, match="holds no clients"):
        convert(tmp_path, tmp_path / "npz")
    assert not (tmp_path / "npz").exists()


def test_truncated_and_foreign(tmp_path):
    path = write(tmp_path, CAPACITIES, PHONES)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(DataFileError, match=f"{CAPACITIES} is truncated"):
        read_capacities(path)
    path = write(tmp_path, CAPACITIES, {1: {"computation": Fraction(1), "communication": 1.0}})
    with pytest.raises(DataFileError, match=r"asks for fractions\.Fraction"):
        read_capacities(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2], "holds no clients"),
        ({}, "holds no clients"),
        ({3: 5}, "client 3 has no 'computation'"),
        ({3: {"computation": 5.0}}, "client 3 has no 'communication'"),
        ({3: {"computation": "5", "communication": 1.0}}, "'computation' of client 3 is str; expected a number"),
        ({3: {"computation": True, "communication": 1.0}}, "'computation' of client 3 is bool"),
        ({3: {"computation": 5.0, "communication": -1.0}}, "client 3 has the bandwidth -1 kbit/s"),
        ({3: {"computation": float("nan"), "communication": 1.0}}, "client 3 has the compute nan"),
        ({"a": {"computation": 0, "communication": 1.0}}, "client 'a' has the compute 0 ms a sample"),
    ],
)
def test_malformed_capacities(tmp_path, value, message):
    with pytest.raises(DataFileError, match=message) as caught:
        read_capacities(write(tmp_path, CAPACITIES, value))
    assert isinstance(caught.value, FedrosterError)


def trace(**changes):
    return {1: TRACES[1], 5: TRACES[1] | changes}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (trace(active=[10]), "truncated or damaged: client 5 has 1 starts and 2 ends"),
        (trace(active=[], inactive=[]), "client 5 has no sessions"),
        (trace(active=[30, 10]), "session 0 of client 5 ends at 20 s, before it starts at 30 s"),
        (trace(active=[30, 10], inactive=[45, 20]), "session 1 of client 5 starts at 10 s, before the one before it"),
        (trace(active=[10, 15]), "session 1 of client 5 starts at 15 s, before the one before it ends at 20 s"),
        (trace(finish_time=40), "session 1 of client 5 ends at 45 s; expected at most the period 40 s"),
        (trace(finish_time=0), "client 5 has the period 0"),
        (trace(finish_time=None), "'finish_time' of client 5 is NoneType"),
        (trace(active=[10, None]), "'active' of client 5 holds None at 1"),
        (trace(active=7), "'active' of client 5 is int; expected a list"),
        (trace(active=[10, float("inf")]), "session 1 of client 5 runs from inf"),
        ({1: TRACES[1], 5: {"active": [1], "finish_time": 9}}, "client 5 has no 'inactive'"),
    ],
)
def test_malformed_sessions(tmp_path, value, message):
    with pytest.raises(DataFileError, match=message):
        read_sessions(write(tmp_path, SESSIONS, value))
