r"""Which clients are available at an instant: bisection on sorted sessions, right for any step of the clock."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedroster.lab.worlds.table import Sessions
from fedroster.parts import for_ranges, njit
from fedroster.types import FloatArray, IntArray, kept


@dataclass(frozen=True, slots=True)
class Timetable:
    """Session tables, ready to be looked up; they repeat with their period.

    ``until_s`` is when the device is gone: the end of the last of the sessions that follow without a gap, across the
    end of the period too, shape (sessions,), seconds; infinite for a device that never leaves.
    """

    sessions: Sessions
    until_s: FloatArray = kept(0.0, infinite=True)


@njit(cache=True, nogil=True)
def _until(offsets, start, end, period, wraps, until):
    for k in range(offsets.shape[0] - 1):
        first, last = offsets[k], offsets[k + 1]
        if first == last:
            continue
        for i in range(last - 1, first - 1, -1):
            joined = i + 1 < last and start[i + 1] == end[i]
            until[i] = until[i + 1] if joined else end[i]
        if wraps and start[first] == 0.0 and end[last - 1] == period:
            head = until[first]
            beyond = np.inf if head == period else period + head
            for i in range(last - 1, first - 1, -1):
                if until[i] != period:
                    break
                until[i] = beyond


def timetable(sessions: Sessions, *, wraps: bool = True) -> Timetable:
    """Make sound session tables ready to be looked up; ``wraps``: sessions go on across the end of the period."""
    until = sessions.end_s.copy()
    _until(sessions.offsets, sessions.start_s, sessions.end_s, sessions.period_s, wraps, until)
    return Timetable(sessions, until)


@njit(cache=True, nogil=True)
def _look_up(offsets, start, end, until, period, device, shift, time, remaining, session, begin, stop):
    for n in range(begin, stop):
        k = device[n]
        now = time + shift[n]
        now -= math.floor(now / period) * period
        if not 0.0 <= now < period:  # rounding, up or down
            now = 0.0
        first, last = offsets[k], offsets[k + 1]
        low, high = first, last
        while low < high:  # the first session that starts after now
            middle = (low + high) >> 1
            if start[middle] <= now:
                low = middle + 1
            else:
                high = middle
        row = low - 1
        if row >= first:
            remaining[n] = until[row] - now if now < end[row] else 0.0
            session[n] = row
        else:
            remaining[n] = 0.0
            session[n] = last - 1 if last > first else -1


def look_up(table: Timetable, device: IntArray, shift_s: FloatArray, time_s: float) -> tuple[FloatArray, IntArray]:
    r"""How much longer each client stays available at time t, at O(N log(sessions of a device)), spread over the cores.

    Client n is at :math:`t_n = (t + \text{shift}_n) \bmod \text{period}` of its device's trace.  It is available if the
    last session that started at or before :math:`t_n`, found by bisection, has not ended.  The answer depends on t
    alone and not on what was asked before.

    Returns:
        Time until each client leaves, shape (clients,), seconds, 0 if it is absent; and the row of its session,
        or of its last one before (-1 for a device without any), shape (clients,).
    """
    num_clients, sessions = device.shape[0], table.sessions
    remaining = np.empty(num_clients)
    session = np.empty(num_clients, np.int64)
    tables = (sessions.offsets, sessions.start_s, sessions.end_s, table.until_s, sessions.period_s)
    for_ranges(_look_up, num_clients, *tables, device, shift_s, time_s, remaining, session)
    return remaining, session
