"""FLARE's own FedAvg, and the same with clients that a policy chooses; both with the same clients."""

from __future__ import annotations

import json
import time
from pathlib import Path

from digits_task import initial_model, train_at
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg

from fedroster import RBCSF, Selector
from fedroster.adapters.nvflare import RoundRules, Selecting


class Digits(Executor):
    """A site that trains."""

    def __init__(self, pace_s: float, slow: float):
        """Make a site whose trainings take so many seconds, or so many times longer if it is a slow one."""
        super().__init__()
        self.pace_s, self.slow = pace_s, slow

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        """Train."""
        sent = FLModelUtils.from_shareable(shareable)
        site, number = fl_ctx.get_identity_name(), sent.current_round
        model, count = train_at(site, sent.params, number, out="", pace_s=self.pace_s, slow=self.slow, late_s=0.0)
        reply = FLModel(params=model, meta={FLMetaKey.NUM_STEPS_CURRENT_ROUND: count})
        return FLModelUtils.to_shareable(reply)


class Timed:
    """Writes down who is chosen, and when rounds begin and end."""

    def __init__(self, num_clients: int = 2, num_rounds: int = 5, log: str = ""):
        """Make a controller that logs its rounds to a file."""
        super().__init__(num_clients=num_clients, num_rounds=num_rounds, persistor_id="", save_filename="")
        self.log = log
        self.model = FLModel(params=initial_model())

    def sample_clients(self, num_clients=None):
        """Choose, and write it down."""
        started = time.time()
        clients = super().sample_clients(num_clients)
        self._write(started, clients)
        return clients

    def save_model(self, model):
        """Write down that a round has ended."""
        self._write(time.time(), [])

    def _write(self, at, clients):
        with Path(self.log).open("a", encoding="utf-8") as log:
            log.write(json.dumps({"at": at, "clients": clients}) + "\n")


class OwnFedAvg(Timed, FedAvg):
    """FLARE's FedAvg, with its own sampling."""


class FairFedAvg(Timed, Selecting, FedAvg):
    """The same with a policy: a base and two members are all that an existing controller needs."""

    rules = RoundRules(deadline_s=60.0)

    def make_selector(self):
        """Fast rounds, and each site in one of ten at least."""
        return Selector(RBCSF(V=0.1, beta=0.1), cohort_size=self.num_clients)
