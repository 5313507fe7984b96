"""Both ways into FLARE keep the contract of engines."""

from __future__ import annotations

import contextlib
import queue
import threading
import time

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import Engine, Site, job, model
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg

from fedroster.adapters.nvflare import RoundRules, RoundSink, Selecting, SelectingClients
from fedroster.folder.record import Observers
from fedroster.testing import EngineContract


class Scripted(Site):
    """A site that does what its script says."""

    def __init__(self, script, contract) -> None:
        super().__init__()
        self.script, self.contract = script, contract

    def train(self, model, number=0):
        fate = self.script.begin()
        if fate == "silent":
            time.sleep(self.contract.silent_s)
            raise ConnectionError("killed")
        try:
            if fate == "fails":
                raise ValueError("fails")
            time.sleep({"slow": self.contract.slow_s, "late": self.contract.late_s}.get(fate, self.contract.quick_s))
            value = np.nan if fate == "malformed" else 1.0
            return {name: array + value for name, array in model.items()}, {"num-examples": 3}
        finally:
            self.script.end()


class Rounds:
    """What both have in common: the rules, and sites that are threads."""

    def rules(self):
        return RoundRules(deadline_s=self.deadline_s, give_up_s=self.give_up_s, wait_s=5.0)

    def sites(self, clients):
        return {name: Scripted(script, self) for name, script in clients.items()}


class TestCollab(Rounds, EngineContract):
    give_up_s, silent_s = 0.7, 3.0

    @pytest.fixture(autouse=True)
    def _jobs(self):
        with contextlib.ExitStack() as self.jobs:
            yield

    def engine(self, clients, selector, *, state_dir=None):
        self.jobs.enter_context(job(self.sites(clients)))
        selecting = SelectingClients(selector, rules=self.rules(), state_dir=state_dir)

        class Running:
            selector = property(lambda _: selecting.selector)
            wait = staticmethod(time.sleep)
            stop = staticmethod(selecting.release)

            def play(self):
                return {reply.name for reply in selecting.call("train", model())}

        return Running()


class TestController(Rounds, EngineContract):
    give_up_s, silent_s = 0.7, 0.5

    def engine(self, clients, selector, *, state_dir=None):
        go, used = queue.Queue(), queue.Queue()
        rules, folder = self.rules(), state_dir
        sink = RoundSink(lambda report: used.put({name for name, how in report.status.items() if how == 0}))
        selector._observers = Observers([*selector.observers, sink])

        class Gated(Selecting, FedAvg):
            """FedAvg whose rounds begin when the test says so."""

            state_dir = folder

            def make_selector(self):
                return selector

            def sample_clients(self, num_clients=None):
                go.get()
                return super().sample_clients(num_clients)

            def save_model(self, model):
                pass

        Gated.rules = rules
        start = FLModel(params=model())
        controller = Gated(
            num_clients=selector.cohort_size, num_rounds=99, model=start, persistor_id="", task_check_period=0.02
        )
        flare = Engine(controller, self.sites(clients))
        threading.Thread(target=flare.run, daemon=True).start()
        while controller._desk is None:
            time.sleep(0.01)

        class Running:
            selector = property(lambda _: controller._desk.selector)
            wait = staticmethod(time.sleep)

            def play(self):
                go.put(None)
                return used.get(timeout=10.0)

            def stop(self):
                flare.is_over = True
                controller._desk.rounds.release()

        return Running()
