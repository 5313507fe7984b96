"""Bisection on session tables against brute force."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedroster.lab.worlds.availability import look_up, timetable
from fedroster.lab.worlds.table import Sessions


def tables(*devices, period_s):
    """Session tables of devices that are lists of (start, end)."""
    rows = [row for device in devices for row in device]
    return Sessions(
        offsets=np.concatenate(([0], np.cumsum([len(device) for device in devices]))).astype(np.int64),
        start_s=np.array([start for start, _ in rows], np.float64),
        end_s=np.array([end for _, end in rows], np.float64),
        period_s=period_s,
    )


def at(sessions, time_s, *, shift_s=0.0, wraps=True):
    num_devices = sessions.num_devices
    shifts = np.full(num_devices, shift_s)
    return look_up(timetable(sessions, wraps=wraps), np.arange(num_devices), shifts, float(time_s))


def is_there(sessions, device, time_s):
    """Brute force: whether any of the device's sessions holds the time."""
    rows = slice(sessions.offsets[device], sessions.offsets[device + 1])
    now = time_s % sessions.period_s
    return bool(((sessions.start_s[rows] <= now) & (now < sessions.end_s[rows])).any())


def test_by_hand():
    sessions = tables([(10, 20), (30, 45)], [(0, 5)], [], period_s=100.0)
    expected = {
        0: ([0, 5, 0], [1, 2, -1]),
        9.5: ([0, 0, 0], [1, 2, -1]),
        10: ([10, 0, 0], [0, 2, -1]),
        19: ([1, 0, 0], [0, 2, -1]),
        20: ([0, 0, 0], [0, 2, -1]),
        44.5: ([0.5, 0, 0], [1, 2, -1]),
        99: ([0, 0, 0], [1, 2, -1]),
        102: ([0, 3, 0], [1, 2, -1]),
        10_012: ([8, 0, 0], [0, 2, -1]),
    }
    for time_s, (remaining, session) in expected.items():
        got_remaining, got_session = at(sessions, time_s)
        np.testing.assert_array_equal(got_remaining, remaining, err_msg=f"at {time_s}")
        np.testing.assert_array_equal(got_session, session, err_msg=f"at {time_s}")


def test_a_time_that_rounds_to_the_end_is_the_begin():
    """A hair before 0 is 100 - 1e-20 s in the period before, which is 100, and no time of the trace."""
    remaining, _ = at(tables([(0, 5)], period_s=100.0), 0.0, shift_s=-1e-20)
    assert remaining.tolist() == [5.0]
    # 27 periods, rounded, are more than this time, and the time by the period, rounded, is 27.
    period_s, time_s = 293.0885234252987, 7913.390132483065
    assert time_s / period_s == 27.0
    assert time_s < 27.0 * period_s
    assert at(tables([(0.0, period_s)], period_s=period_s), time_s)[0].tolist() == [np.inf]


def test_sessions_without_a_gap_are_one_across_the_end_too():
    sessions = tables([(0, 10), (80, 90), (90, 100)], [(0, 60), (60, 100)], [(10, 40), (40, 50)], period_s=100.0)
    remaining, _ = at(sessions, 85)
    np.testing.assert_array_equal(remaining, [25.0, np.inf, 0.0])
    np.testing.assert_array_equal(at(sessions, 35)[0], [0.0, np.inf, 15.0])
    np.testing.assert_array_equal(at(sessions, 3)[0], [7.0, np.inf, 0.0])
    np.testing.assert_array_equal(at(sessions, 85, wraps=False)[0], [15.0, 15.0, 0.0])


@st.composite
def session_tables(draw):
    devices = []
    for _ in range(draw(st.integers(1, 4))):
        edges = sorted(draw(st.lists(st.integers(0, 40), max_size=12)))
        devices.append(list(zip(edges[0::2], edges[1::2], strict=False)))
    return tables(*devices, period_s=draw(st.sampled_from([40.0, 41.0, 57.5])))


@settings(max_examples=150, deadline=None)
@given(session_tables(), st.integers(0, 1000).map(lambda half: half / 2.0))
def test_agrees_with_brute_force_at_any_time(sessions, time_s):
    remaining, session = at(sessions, time_s)
    for device in range(sessions.num_devices):
        assert (remaining[device] > 0.0) == is_there(sessions, device, time_s)
        if remaining[device] > 0.0:
            now = time_s % sessions.period_s
            assert sessions.start_s[session[device]] <= now < sessions.end_s[session[device]]
            # There at every half second until it leaves, and not when it does.
            stays = time_s + np.arange(0.0, min(remaining[device], sessions.period_s), 0.5)
            assert all(is_there(sessions, device, later) for later in stays)
            assert np.isinf(remaining[device]) or not is_there(sessions, device, time_s + remaining[device])
