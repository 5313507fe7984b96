"""What threads share in torch: its generator, its number of threads, and what it patches while it records."""

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread, current_thread, get_ident

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx import _symbolic_trace as tracing

from fedroster.lab.training import threads
from fedroster.lab.training.batched import BatchedModel
from fedroster.lab.training.threads import each_client, torch_threads

CPU = torch.device("cpu")
LONG_S = 0.1
"""Long enough for another thread to come in, if it may."""


def in_two_threads(work, *arguments):
    """Start both calls at the same time; returns what they return."""
    start = Barrier(2, timeout=60)

    def begin(argument):
        start.wait()
        return work(argument)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(begin, arguments))


def slowly_made():
    first = nn.Linear(4, 3)
    time.sleep(LONG_S)  # between two draws
    return nn.Sequential(nn.Flatten(), first, nn.Linear(3, 3))


def test_threads_draw_models_of_their_own_seeds():
    """As one thread draws them, and the generator that the program draws from goes on as if nothing had happened."""
    model = BatchedModel(slowly_made, image_shape=(1, 2, 2), device=CPU)
    alone = [model.draw(rng=np.random.default_rng(seed)) for seed in (1, 2)]
    before = torch.get_rng_state()
    together = in_two_threads(lambda seed: model.draw(rng=np.random.default_rng(seed)), 1, 2)
    assert all(map(torch.equal, alone, together))
    assert not torch.equal(*together)
    assert torch.equal(torch.get_rng_state(), before)


class Noted(nn.Module):
    """A linear model that notes who is in its slow forward pass, when told to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        if SLOW:
            INSIDE.append(get_ident())
            time.sleep(LONG_S)
            MET.append(len(set(INSIDE)))
            INSIDE.remove(get_ident())
        return self.linear(x.flatten(1))


SLOW: list[bool] = []
INSIDE: list[int] = []
MET: list[int] = []


@pytest.mark.parametrize("how", ["batched", "one client"])
def test_threads_record_one_after_the_other(monkeypatch, how):
    """``make_fx`` patches ``nn.Module`` and sets flags of the process: two at a time would leave them so for good."""
    call = nn.Module.__call__
    pair = [BatchedModel(Noted, image_shape=(1, 2, 2), device=CPU) for _ in range(2)]

    def record(model):
        if how == "one client":
            return model.client_gradients(2)(torch.ones(2, 2, 2, 1), torch.eye(3)[:2], torch.ones(3, 4), torch.ones(3))
        return model.gradient(torch.ones(1, 15), torch.ones(1, 2, 1, 2, 2), torch.eye(3)[None, :2])

    alone = record(pair[0])
    fresh = [BatchedModel(Noted, image_shape=(1, 2, 2), device=CPU) for _ in range(2)]
    monkeypatch.setattr(f"{__name__}.SLOW", [True])
    MET.clear()
    together = in_two_threads(record, *fresh)
    assert MET
    assert set(MET) == {1}
    assert nn.Module.__call__ is call
    assert not tracing.is_fx_tracing()
    for found in together:
        assert all(map(torch.equal, found, alone))


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


@pytest.mark.parametrize("num_threads", [1, 3])
def test_every_client_is_worked_on_once_and_a_fault_of_one_is_told(num_threads):
    seen = []
    with torch_threads(1):
        each_client(lambda client: seen.append((client, torch.get_num_threads())), 20, num_threads=num_threads)
    assert sorted(seen) == [(client, 1) for client in range(20)]
    with pytest.raises(ZeroDivisionError):
        each_client(lambda client: 1 // (client - 3), 8, num_threads=num_threads)
