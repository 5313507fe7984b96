"""Clients on threads, and torch's number of threads."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, current_thread

import pytest
import torch

from fedroster.lab.training import threads
from fedroster.lab.training.threads import each_client, torch_threads


def of_a_new_thread():
    found = []
    thread = Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_starts_late_does_not_set_the_threads_of_the_process(monkeypatch):
    """When all clients are done, the number of threads is what it was, for threads to come, too."""
    done, started, calls = Event(), Event(), []
    set_num_threads = torch.set_num_threads

    def last_one_slowly(count):
        if current_thread().name.startswith("fedroster-client"):
            calls.append(count)
            if len(calls) == 3:
                done.wait(0.3)  # till the clients are done, if they can be without this thread
                set_num_threads(count)
                started.set()
                return
        set_num_threads(count)

    monkeypatch.setattr(torch, "set_num_threads", last_one_slowly)
    threads._pool.cache_clear()
    with torch_threads(2):
        with torch_threads(1):
            each_client(lambda client: time.sleep(0.01), 3, num_threads=3)
        done.set()
        assert started.wait(60)
        assert of_a_new_thread() == torch.get_num_threads() == 2
    threads._pool.cache_clear()


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_every_client_is_worked_on_once(num_threads):
    seen = []
    with torch_threads(1):
        each_client(lambda client: seen.append((client, torch.get_num_threads())), 20, num_threads=num_threads)
    assert sorted(seen) == [(client, 1) for client in range(20)]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_fault_of_one_client_is_told(num_threads):
    def work(client):
        if client == 3:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each_client(work, 8, num_threads=num_threads)


def test_several_threads_use_the_clients_threads_at_the_same_time():
    sums = [[0] * 50 for _ in range(4)]

    def one(row):
        each_client(lambda client: row.__setitem__(client, client), 50, num_threads=2)

    with ThreadPoolExecutor(4) as outer:
        list(outer.map(one, sums))
    assert sums == [list(range(50))] * 4
