"""Ranges over a thread pool."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from fedroster.core import parallel
from fedroster.core.parallel import MIN_ROWS_PER_THREAD, for_ranges

ROWS = 3 * MIN_ROWS_PER_THREAD + 5


@pytest.fixture(params=[1, 2, 3, 16])
def threads(request, monkeypatch):
    monkeypatch.setattr(parallel, "num_threads", lambda: request.param)
    return request.param


def test_several_threads_may_use_it_at_the_same_time(threads):
    """Every row belongs to one range, whatever the number of rows."""

    def add(rows, value, start, stop):
        rows[start:stop] += value

    def one(value):
        rows = np.zeros((0, 1, MIN_ROWS_PER_THREAD - 1, MIN_ROWS_PER_THREAD, ROWS)[value % 5])
        for_ranges(add, rows.shape[0], rows, value)
        return rows

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as callers:
            found = list(callers.map(one, range(1, 16)))
    finally:
        sys.setswitchinterval(before)
    for value, rows in enumerate(found, start=1):
        assert (rows == value).all()


@pytest.mark.parametrize("faulty", [0, 1])
def test_after_a_fault_nobody_writes_any_more(monkeypatch, faulty):
    """Ctrl-C comes in the first range, where the caller is: whatever it restores then must stay so."""
    monkeypatch.setattr(parallel, "num_threads", lambda: 3)
    begun, ended = Event(), []

    def kernel(start, stop):
        part = 0 if start == 0 else 2 if stop == ROWS else 1
        if part == 2:
            begun.set()
            time.sleep(0.2)
            ended.append(part)
        elif part == faulty:
            begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        for_ranges(kernel, ROWS)
    assert ended == [2]


def test_ctrl_c_while_others_are_waited_for(monkeypatch):
    wait, ended = parallel.wait, []

    def interrupted(calls):
        monkeypatch.setattr(parallel, "wait", wait)
        raise KeyboardInterrupt

    def kernel(start, stop):
        if start:
            time.sleep(0.2)
            ended.append(stop)

    monkeypatch.setattr(parallel, "num_threads", lambda: 2)
    monkeypatch.setattr(parallel, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        for_ranges(kernel, ROWS)
    assert ended == [ROWS]
