"""Files of device traces: what they hold, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster.core.errors import DataFileError, FedrosterError, MissingDataError
from fedroster.traces.files import (
    Sessions,
    Speeds,
    check_sessions,
    check_speeds,
    read_arrays,
    save_traces,
    sessions_of,
    speeds_of,
    take,
)

SESSIONS = Sessions(
    offsets=np.array([0, 2, 3]),
    start_s=np.array([0.0, 20.0, 5.0]),
    end_s=np.array([10.0, 30.0, 5.0]),  # a session of no length, as FedScale's records have them
    period_s=np.array([30.0, 50.0]),
)
SPEEDS = Speeds(compute_s=np.array([0.019, 0.19]), bandwidth_bps=np.array([1.4e6, 54.1e6]))


def test_share_and_device_of_a_session():
    np.testing.assert_allclose(SESSIONS.share(), [20 / 30, 0.0])
    assert SESSIONS.device.tolist() == [0, 0, 1]
    assert SESSIONS.num_devices == 2


def test_written_and_read(tmp_path):
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=SPEEDS)
    arrays = read_arrays(tmp_path / "a.npz")
    sessions = sessions_of(arrays, source="a")
    for name in ("offsets", "start_s", "end_s", "period_s"):
        np.testing.assert_array_equal(getattr(sessions, name), getattr(SESSIONS, name))
    speeds = speeds_of(arrays, source="a", num_sessions=3)
    assert not speeds.by_session
    np.testing.assert_allclose(speeds.compute_s, SPEEDS.compute_s, rtol=1e-15)
    np.testing.assert_allclose(speeds.bandwidth_bps, SPEEDS.bandwidth_bps, rtol=1e-15)


def test_speeds_of_sessions_are_known_by_their_number(tmp_path):
    by_session = Speeds(np.array([0.1, 0.2, 0.3]), np.array([1e6, 2e6, 3e6]), by_session=True)
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=by_session)
    assert speeds_of(read_arrays(tmp_path / "a.npz"), source="a", num_sessions=3).by_session
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=Speeds(np.full(4, 0.1), np.full(4, 1e6)))
    with pytest.raises(DataFileError, match="speeds of 4 clients and the sessions of 2; expected the same clients"):
        speeds_of(read_arrays(tmp_path / "a.npz"), source="a", num_sessions=3)


def tables(offsets=(0, 2, 3), start=(0.0, 20.0, 5.0), end=(10.0, 30.0, 9.0), period=(30.0, 50.0)):
    return Sessions(np.array(offsets), np.array(start), np.array(end), np.array(period))


def test_sound_tables_pass():
    check_sessions(tables(), source="file")
    check_sessions(tables(end=(20.0, 30.0, 9.0)), source="file")  # one session starts where another ends
    check_speeds(SPEEDS, source="file")


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        (tables((0,), (), (), ()), "holds no devices"),
        (tables((0, 3)), "2 offsets, 2 periods, 3 starts and 3 ends"),
        (tables(end=(1.0,)), "3 starts and 1 ends"),
        (tables((0, 2, 4)), "truncated or damaged: its offsets run from 0 to 4; expected ascending ones from 0 to 3"),
        (tables((1, 2, 3)), "its offsets run from 1 to 3"),
        (tables((0, 4, 3)), "ascending"),
        (tables(period=(30.0, np.nan)), "client 1 has the period nan s"),
        (tables(period=(30.0, 0.0)), r"client 1 has the period 0\.0 s"),
        (tables((0, 3, 3)), "client 1 has no sessions"),
        (tables(start=(0.0, np.inf, 5.0)), "session 1 of client 0 runs from inf to 30.0 s"),
        (tables(end=(10.0, 30.0, np.nan)), "session 0 of client 1 runs from 5.0 to nan s"),
        (tables(end=(10.0, 19.0, 9.0)), "session 1 of client 0 ends at 19 s, before it starts at 20 s"),
        (tables(start=(-1.0, 20.0, 5.0)), "session 0 of client 0 starts at -1 s"),
        (tables(end=(10.0, 30.5, 9.0)), "session 1 of client 0 ends at 30.5 s; expected at most the period 30 s"),
        (tables(end=(21.0, 30.0, 9.0)), "session 1 of client 0 starts at 20 s, before the one before it ends at 21 s"),
        (tables(start=(20.0, 0.0, 5.0), end=(30.0, 10.0, 9.0)), "expected sessions in order that do not overlap"),
    ],
)
def test_malformed_sessions(sessions, message):
    with pytest.raises(DataFileError, match=f"file.*{message}") as caught:
        check_sessions(sessions, source="file")
    assert isinstance(caught.value, FedrosterError)
    assert isinstance(caught.value, ValueError)


def test_devices_are_named():
    with pytest.raises(DataFileError, match="file: phone b has no sessions"):
        check_sessions(tables((0, 3, 3)), source="file", name=lambda row: f"phone {'ab'[row]}")


@pytest.mark.parametrize(
    ("compute", "bandwidth", "message"),
    [
        ([], [], "of shapes"),
        ([0.1], [1e6, 2e6], "of shapes"),
        ([0.1, -0.1], [1e6, 2e6], "client 1 has the compute -100 ms a sample; expected a finite number > 0"),
        ([0.1, np.nan], [1e6, 2e6], "client 1 has the compute nan"),
        ([0.1, 0.2], [0.0, 2e6], "client 0 has the bandwidth 0 kbit/s"),
        ([0.1, 0.2], [1e6, np.inf], "client 1 has the bandwidth inf"),
    ],
)
def test_malformed_speeds(compute, bandwidth, message):
    with pytest.raises(DataFileError, match=message):
        check_speeds(Speeds(np.array(compute), np.array(bandwidth)), source="file")


def test_what_is_no_file_of_traces(tmp_path):
    with pytest.raises(MissingDataError, match="no file"):
        read_arrays(tmp_path / "none.npz")
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=SPEEDS)
    whole = (tmp_path / "a.npz").read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut.npz").write_bytes(whole[:size])
        with pytest.raises(DataFileError, match=r"cut\.npz' is truncated, damaged"):
            read_arrays(tmp_path / "cut.npz")
    np.savez(tmp_path / "object.npz", session_offsets=np.array([{}], object))
    with pytest.raises(DataFileError, match=r"no \.npz of plain arrays"):
        read_arrays(tmp_path / "object.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "holds no 'a'; it holds nothing"),
        ({"b": np.zeros(1)}, "holds no 'a'; it holds b"),
        ({"a": np.zeros((2, 2))}, r"'a' is float64 of shape \(2, 2\); expected numbers in a row"),
        ({"a": np.array(["x"])}, "expected numbers in a row"),
    ],
)
def test_an_array_that_is_wrong(arrays, message):
    with pytest.raises(DataFileError, match=message):
        take(arrays, "a", source="file")


def test_offsets_are_integers():
    arrays = {
        "session_offsets": np.array([0.0, 1.0]),
        "session_active_s": np.zeros(1),
        "session_inactive_s": np.ones(1),
        "finish_time_s": np.ones(1),
    }
    with pytest.raises(DataFileError, match="'session_offsets' is float64; expected integers"):
        sessions_of(arrays, source="file")
