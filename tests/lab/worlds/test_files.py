"""Files of device traces: what they hold, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fedroster.core.errors import DataFileError, MissingDataError
from fedroster.lab.worlds.files import Sessions, Speeds, check_sessions, check_speeds, read_arrays, save_traces

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
    sessions, speeds = read_arrays(tmp_path / "a.npz")
    for name in ("offsets", "start_s", "end_s", "period_s"):
        np.testing.assert_array_equal(getattr(sessions, name), getattr(SESSIONS, name))
    assert not speeds.by_session
    np.testing.assert_allclose(speeds.compute_s, SPEEDS.compute_s, rtol=1e-15)
    np.testing.assert_allclose(speeds.bandwidth_bps, SPEEDS.bandwidth_bps, rtol=1e-15)
    save_traces(tmp_path / "a.npz", speeds=SPEEDS)
    assert read_arrays(tmp_path / "a.npz")[0] is None
    save_traces(tmp_path / "a.npz", sessions=SESSIONS)
    assert read_arrays(tmp_path / "a.npz")[1] is None


def test_speeds_of_sessions_are_known_by_their_number(tmp_path):
    by_session = Speeds(np.array([0.1, 0.2, 0.3]), np.array([1e6, 2e6, 3e6]), by_session=True)
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=by_session)
    assert read_arrays(tmp_path / "a.npz")[1].by_session
    save_traces(tmp_path / "a.npz", sessions=SESSIONS, speeds=Speeds(np.full(4, 0.1), np.full(4, 1e6)))
    with pytest.raises(DataFileError, match="same clients"):
        read_arrays(tmp_path / "a.npz")


def tables(offsets=(0, 2, 3), start=(0.0, 20.0, 5.0), end=(10.0, 30.0, 9.0), period=(30.0, 50.0)):
    return Sessions(np.array(offsets), np.array(start), np.array(end), np.array(period))


def test_sound_tables_pass():
    check_sessions(tables(), source="file")
    check_sessions(tables(end=(20.0, 30.0, 9.0)), source="file")  # one session starts where another ends
    check_speeds(SPEEDS, source="file")


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        (tables((0,), (), (), ()), "damaged"),
        (tables((0, 3)), "damaged"),
        (tables(end=(1.0,)), "damaged"),
        (tables((0, 2, 4)), "damaged"),
        (tables((1, 2, 3)), "damaged"),
        (tables((0, 4, 3)), "damaged"),
        (tables((0, 3, 3)), "damaged"),
        (tables(period=(30.0, np.nan)), "session 0 of client 1 .* period"),
        (tables(period=(30.0, 0.0)), "session 0 of client 1 .* period"),
        (tables(start=(0.0, np.inf, 5.0)), "session 1 of client 0 .* finite"),
        (tables(end=(10.0, 30.0, np.nan)), "session 0 of client 1 .* finite"),
        (tables(end=(10.0, 19.0, 9.0)), "session 1 of client 0 runs from 20 to 19 s"),
        (tables(start=(-1.0, 20.0, 5.0)), "session 0 of client 0 .* start"),
        (tables(end=(10.0, 30.5, 9.0)), "session 1 of client 0 .* period"),
        (tables(end=(21.0, 30.0, 9.0)), "session 1 of client 0 .* before it"),
        (tables(start=(20.0, 0.0, 5.0), end=(30.0, 10.0, 9.0)), "session 1 of client 0 .* before it"),
    ],
)
def test_malformed_sessions(sessions, message):
    with pytest.raises(DataFileError, match=f"file.*{message}") as caught:
        check_sessions(sessions, source="file")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("compute", "bandwidth", "message"),
    [
        ([], [], "shapes"),
        ([0.1], [1e6, 2e6], "shapes"),
        ([0.1, -0.1], [1e6, 2e6], "client 1 .* -100 ms"),
        ([0.1, np.nan], [1e6, 2e6], "client 1 .* nan ms"),
        ([0.1, 0.2], [0.0, 2e6], "client 0 .* 0 kbit/s"),
        ([0.1, 0.2], [1e6, np.inf], "client 1 .* inf kbit/s"),
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
        with pytest.raises(DataFileError, match="truncated"):
            read_arrays(tmp_path / "cut.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"session_offsets": np.array([{}], object)}, "plain arrays"),
        ({"session_offsets": np.array([0.0, 1.0])}, "integers"),
        ({"session_active_s": np.zeros((2, 2))}, "'session_active_s' .* numbers in a row"),
        ({"finish_time_s": np.array(["x"])}, "'finish_time_s' .* numbers in a row"),
        ({"finish_time_s": None}, "'finish_time_s' is not there"),
        ({"session_offsets": None}, "neither"),
        ({"session_offsets": None, "computation_ms_per_sample": np.ones(1)}, "'communication_kbps' is not there"),
    ],
)
def test_arrays_that_are_wrong(tmp_path, change, message):
    arrays = {
        "session_offsets": np.array([0, 1]),
        "session_active_s": np.zeros(1),
        "session_inactive_s": np.ones(1),
        "finish_time_s": np.ones(1),
    }
    np.savez(tmp_path / "a.npz", **{name: array for name, array in (arrays | change).items() if array is not None})
    with pytest.raises(DataFileError, match=message):
        read_arrays(tmp_path / "a.npz")
