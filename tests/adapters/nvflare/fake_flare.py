"""FLARE's own Collab groups and its own task server, with sites that are threads of this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from nvflare.apis.client import Client
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, FLMetaKey, ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.collab import collab
from nvflare.collab.api._invocation import _InvocationDispatcher
from nvflare.collab.api.app import ServerApp
from nvflare.collab.api.context import set_call_context
from nvflare.collab.api.exceptions import CollabCallError
from nvflare.collab.api.proxy import Proxy


@dataclass
class Site:
    """A site; ``fate`` gives what its first, second, ... training does, and the last one repeats.

    "ok", "raises", "gone" (its process is killed: the call times out), a number of seconds, or what it returns.
    """

    delay_s: float = 0.01
    fate: tuple[object, ...] = ("ok",)
    fqn: str = ""
    log: list[int] = field(default_factory=list)
    num_running: int = 0
    most_running: int = 0

    def train(self, model, number: int = 0):
        fate = self.fate[min(len(self.log), len(self.fate) - 1)]
        self.log.append(number)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            time.sleep(fate if isinstance(fate, float) else self.delay_s)
            if isinstance(fate, str) and fate == "raises":
                raise ValueError("no data here")
            if isinstance(fate, str | float):
                return {name: array + 1.0 for name, array in model.items()}, {"num-examples": 3}
            return fate
        finally:
            self.num_running -= 1


class Wire(_InvocationDispatcher):
    """Calls one site in a thread, as FLARE's cell does in another process."""

    def __init__(self, name: str, site: Site, signal: Signal) -> None:
        super().__init__(signal)
        self.name, self.site = name, site

    def call_target_in_group(self, gcc, func_name, *args, **kwargs):
        threading.Thread(target=self._run, args=(gcc, func_name, args, kwargs), daemon=True).start()

    def _run(self, gcc, func_name, args, kwargs):
        gcc.app.new_context(self.name, self.name)  # a site calls others
        fate = self.site.fate[min(len(self.site.log), len(self.site.fate) - 1)]
        if func_name == "train" and isinstance(fate, str) and fate == "gone":
            time.sleep(min(gcc.call_opt.timeout, max(0.05, self.site.delay_s)))
            gcc.set_exception(CollabCallError(gcc.target_name, func_name, TimeoutError("timed out")))
            gcc.call_completed()
            return
        try:
            result = getattr(self.site, func_name)(*args, **kwargs)
            gcc.set_result(result)
        except Exception as error:
            said = CollabCallError(gcc.target_name, func_name, str(error), type(error).__name__, "Traceback ...")
            gcc.set_exception(said)
        gcc.call_completed()


class Server:
    @collab.main
    def main(self):
        raise AssertionError("the test plays the main function")


@contextlib.contextmanager
def job(sites: dict[str, Site]) -> Iterator[Signal]:
    """A running job: `collab.clients` are the sites."""
    signal = Signal()
    app = ServerApp(Server())
    app._abort_signal = signal
    known = {
        "train": ["model", "number"],
        "evaluate": ["model"],
        "train_group": ["model", "clients", "deadline_s"],
    }
    app._client_proxies = [
        Proxy(app, name, site.fqn or name, Wire(name, site, signal), known) for name, site in sites.items()
    ]
    app.new_context("server", "server")
    try:
        yield signal
    finally:
        set_call_context(None)


def model() -> dict[str, np.ndarray]:
    return {"w": np.zeros((3, 2)), "b": np.zeros(2)}


class Engine:
    """What a controller asks of the server's engine; the clients poll it from threads."""

    def __init__(self, controller, sites: dict[str, Site], *, poll_s: float = 0.02) -> None:
        self.sites, self.poll_s = sites, poll_s
        self.clients = [Client(name, name) for name in sites]
        self.manager = FLContextManager(
            engine=self, identity_name="server", job_id="job-1", public_stickers={}, private_stickers={}
        )
        self.controller, self.panics = controller, []
        self.is_over = False
        self.tasks_fetched: dict[str, int] = dict.fromkeys(sites, 0)

    def get_clients(self):
        return list(self.clients)

    def get_component(self, component_id):
        return None

    def new_context(self):
        return self.manager.new_context()

    def fire_event(self, event_type, fl_ctx):
        if event_type == EventType.FATAL_SYSTEM_ERROR:
            self.panics.append(str(fl_ctx.get_prop(FLContextKey.EVENT_DATA)))
            self.signal.trigger(True)
        self.controller.handle_event(event_type, fl_ctx)

    def run(self) -> None:
        self.signal = Signal()
        communicator = WFCommServer(task_check_period=0.02)
        self.controller.set_communicator(communicator)
        threads = [threading.Thread(target=self._poll, args=(client,), daemon=True) for client in self.clients]
        with self.new_context() as fl_ctx:
            fl_ctx.set_prop(ReservedKey.RUN_ABORT_SIGNAL, self.signal, private=True, sticky=True)
            communicator.initialize_run(fl_ctx)
            self.controller.initialize(fl_ctx)
            for thread in threads:
                thread.start()
            try:
                self.controller.control_flow(self.signal, fl_ctx)
            finally:
                self.is_over = True
                self.controller.stop_controller(fl_ctx)
                communicator.finalize_run(fl_ctx)

    def _poll(self, client) -> None:
        site, communicator = self.sites[client.name], self.controller.communicator
        while not self.is_over:
            time.sleep(self.poll_s)
            fate = site.fate[min(len(site.log), len(site.fate) - 1)]
            if isinstance(fate, str) and fate == "gone":
                return
            with self.new_context() as fl_ctx:
                peer = FLContext()
                peer.set_prop(ReservedKey.IDENTITY_NAME, client.name, private=False, sticky=False)
                fl_ctx.set_peer_context(peer)
                self.fire_event(EventType.BEFORE_PROCESS_TASK_REQUEST, fl_ctx)
                name, task_id, data = communicator.process_task_request(client, fl_ctx)
            if not name:
                continue
            self.tasks_fetched[client.name] += 1
            sent = FLModelUtils.from_shareable(data)
            number = sent.current_round or 0
            if isinstance(fate, str) and fate == "forgets":  # the process is killed while it trains, and comes back
                site.log.append(number)
                time.sleep(site.delay_s)
                continue
            try:
                result = site.train(sent.params, number)
            except ConnectionError:  # the process was killed, and is there again
                continue
            except ValueError:
                reply = make_reply(ReturnCode.EXECUTION_EXCEPTION)
            else:
                if isinstance(result, tuple):
                    meta = {FLMetaKey.NUM_STEPS_CURRENT_ROUND: result[1]["num-examples"]}
                    result = FLModel(params=result[0], metrics={"loss": 0.5}, meta=meta)
                reply = FLModelUtils.to_shareable(result) if isinstance(result, FLModel) else Shareable()
            if communicator.process_task_check(task_id, fl_ctx) is None:
                continue  # as FLARE's client: it throws its result away
            with self.new_context() as fl_ctx:
                communicator.process_submission(client, name, task_id, reply, fl_ctx)


def run(kind, sites: dict[str, Site], *, size: int, rounds: int, at: float = 0.0, poll_s: float = 0.02, **options):
    """A job with a controller of FLARE's, whose model begins at a number: the controller, and what has run it."""
    controller = kind(
        num_clients=size,
        num_rounds=rounds,
        model=FLModel(params={name: array + at for name, array in model().items()}),
        persistor_id="",
        task_check_period=0.02,
        **options,
    )
    engine = Engine(controller, sites, poll_s=poll_s)
    engine.run()
    return controller, engine
