"""FLARE's model controllers, ``FedAvg`` among them, with clients that a policy chooses: a mixin for existing jobs."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLMetaKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.abstract.model import ModelLearnableKey
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg
from nvflare.collab.api.exceptions import RunAborted

if TYPE_CHECKING:
    from nvflare.app_common.workflows.model_controller import ModelController as _Controller
else:
    _Controller = object  # the controller comes after it in the list of bases

from fedroster.adapters.nvflare.collaboration import TESTED, log
from fedroster.adapters.nvflare.replies import CheckUpdate, Update, UpdateCheck, check_update, counted, read_update
from fedroster.core.errors import ConfigurationError
from fedroster.core.protocols import signs
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.losses import LossMetrics
from fedroster.engine.outcomes import OpenRound, Reply
from fedroster.engine.pushed import PushedRounds
from fedroster.engine.remembered import factors, scaled
from fedroster.engine.rounds import Rounds, warn_of_untested
from fedroster.engine.rules import NoNodesError, RoundRules
from fedroster.selector import Selector

_PAUSE_S = 0.5
_HOOKS = ("_process_result", "sample_clients", "broadcast", "broadcast_and_wait", "get_num_standing_tasks")
"""Methods of a model controller that are overridden; the first is private to FLARE."""


class Selecting(_Controller):
    """Put before a model controller, it lets a policy choose the clients and ends rounds by rules of its own.

    Example::

        class FairFedAvg(Selecting, FedAvg):
            rules = RoundRules(deadline_s=60)

            def make_selector(self):
                return Selector(RBCSF(V=20.0, beta=0.1), cohort_size=3)

    It takes the place of ``sample_clients``, and the first task that is sent to the chosen clients is the round.  That
    task stands until every client has answered or is given up, so that late results still arrive, are timed by our
    clock and learned from; the controller goes on when the round is over, and never sees them.  Only what can be
    aggregated reaches it: results are held until the round is over, and judged beside each other.  Without a ``check``,
    or where FLARE keeps tensors on disk, each is handed on when it comes.  A round without updates leaves the model as
    it is.  A decision's weights are applied by what results are rewritten to, for an average by samples.  With a
    ``check``, a policy that learns from signatures of updates is told them.

    FLARE builds a controller from JSON: what is no number or text belongs in the class, as above.

    Attributes:
        rules: When rounds end, and the longest time that is learned.
        losses: Where results hold losses, for policies that learn from them.
        check: Says what is wrong with a result; None to let everything pass.
        state_dir: Folder at the server in which the selector is saved in every round; None for nowhere.
        quiet_s: A client that has not asked for a task for so long cannot be chosen, seconds, > 0; FLARE shows killed
            ones as connected for minutes.  More than ``task_request_interval``, which is 2 s.
    """

    rules: RoundRules = RoundRules()
    losses: LossMetrics | None = None
    check: CheckUpdate | None = staticmethod(check_update)
    state_dir: str | Path | None = None
    quiet_s: float = 10.0

    _desk: Any = None
    _num_used: int = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class in which the controller's own methods come first: FLARE would sample at random, silently.

        Raises:
            TypeError: If it is one.
        """
        super().__init_subclass__(**options)
        above = cls.__mro__[: cls.__mro__.index(Selecting)]
        first = [base.__name__ for base in above if hasattr(base, _HOOKS[0]) and not issubclass(base, Selecting)]
        if first:
            raise TypeError(f"in {cls.__name__}, {first[0]} comes before Selecting; expected (Selecting, {first[0]})")

    def make_selector(self) -> Selector:
        """The selector; clients are the sites' names, and join by themselves.

        Sinks among its observers (:class:`~fedroster.engine.report.RoundSink`) take a report of every round.
        """
        raise NotImplementedError(f"{type(self).__name__} has no make_selector; expected one that returns a Selector")

    # ---------------------------------------------------------------- what FLARE calls

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Begin the run, or go on with the one that is saved."""
        warn_of_untested("NVFlare", "nvflare", TESTED, log)
        controller = super()
        if missing := [name for name in _HOOKS if not hasattr(controller, name)]:
            raise ConfigurationError(f"the controller of this version of FLARE has no {missing[0]}, which is needed")
        offloads = getattr(self, "enable_tensor_disk_offload", False)  # such tensors are read by the aggregator alone
        self._check = UpdateCheck(None if offloads else self.check)
        own = getattr(self, "aggregator", None) or getattr(self, "aggregation_weights", None)
        rounds = Rounds(
            self.make_selector(),
            rules=self.rules,
            state_dir=self.state_dir,
            log=log,
            weighs=isinstance(self, BaseFedAvg) and not own and self._check.check is not None,
            tells_signatures=self._check.check is not None,
        )
        self._signs = signs(rounds.selector.policy)
        self._seen_s: dict[str, float] = {}
        self._sampled: OpenRound | None = None
        self._under_way: tuple[OpenRound, Update] | None = None
        self._tasks: dict[str, tuple[Task, OpenRound, Update]] = {}
        self._desk = PushedRounds(rounds, losses=self.losses)  # last: other threads note who asks from then on
        super().start_controller(fl_ctx)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """End the run."""
        if self._desk is not None:
            if not fl_ctx.get_run_abort_signal().triggered:
                self._desk.rounds.settle()  # else the last round, whose model may not be saved, is played again
            self._desk.rounds.release()
        super().stop_controller(fl_ctx)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note the clients that ask for tasks."""
        if event_type == EventType.BEFORE_PROCESS_TASK_REQUEST and self._desk is not None:
            self._asks(str(fl_ctx.get_peer_context().get_identity_name()))
        super().handle_event(event_type, fl_ctx)

    def sample_clients(self, num_clients: int | None = None) -> list[str]:
        """Names of a round's clients, at least one; asked twice before anything is sent, it gives the same ones.

        Raises:
            ConfigurationError: If ``num_clients`` is not the selector's cohort size.
            NoNodesError: If no client can be chosen for longer than ``wait_s``.
            RoundNotBegunError: If the selector's rules leave too few clients for as long.
        """
        size = self._desk.selector.cohort_size
        if num_clients not in (None, 0, size):
            raise ConfigurationError(f"num_clients is {num_clients} and cohort_size is {size}; expected the same")
        self._drop_answered_tasks()
        until_s = time.monotonic() + (limit_s := self.rules.waits_s(is_first=True))
        while self._sampled is None:
            round_ = self._desk.begin(Clients(self._connected, self._check_run), self._model_bit())
            if round_.choice.clients:
                self._sampled = round_
            else:  # a policy may choose none, and FLARE would wait for their results for ever
                self._desk.sent(round_)
                self._desk.close(round_)
                if time.monotonic() >= until_s:
                    raise NoNodesError(f"the policy has chosen no client for {limit_s:g} s")
                time.sleep(_PAUSE_S)
        return list(self._sampled.choice.clients)

    def broadcast(
        self, task: Task, fl_ctx: FLContext, targets: Any = None, min_responses: int = 1, **options: Any
    ) -> None:
        """Schedule a task; the first one for the sampled clients is their round."""
        names = [getattr(target, "name", target) for target in targets or ()]
        round_ = self._sampled
        if round_ is not None and set(names) == set(round_.choice.clients):
            self._sampled = None
            if min_responses > (most := self._desk.selector.cohort_size):
                raise ConfigurationError(f"min_responses is {min_responses}; expected at most cohort_size = {most}")
            timeout_s, task.timeout = task.timeout or None, 0  # a task that ends takes late results with it
            first, min_responses = min_responses, 0
            sent = read_update(FLModelUtils.from_shareable(task.data))
            if self._signs is not None and self._signs.of == "bias":  # here a model without one ends the run
                self._desk.rounds.signature(sent.numbers, sent.numbers)
            self._under_way = round_, sent
            self._tasks[task.msg_root_id] = task, round_, sent
            self._desk.sent(round_, self._check.flaw(sent), timeout_s=timeout_s, first=first)
        super().broadcast(task=task, fl_ctx=fl_ctx, targets=targets, min_responses=min_responses, **options)

    def broadcast_and_wait(
        self, task: Task, fl_ctx: FLContext, targets: Any = None, min_responses: int = 1, **options: Any
    ) -> None:
        """Schedule a task and wait for it, or for the end of its round."""
        if self._sampled is None:
            super().broadcast_and_wait(
                task=task, fl_ctx=fl_ctx, targets=targets, min_responses=min_responses, **options
            )
            return
        abort_signal = options.pop("abort_signal", None)
        self.broadcast(task, fl_ctx, targets, min_responses, **options)
        if task.msg_root_id in self._tasks:
            self._finish_round()
        else:
            self.wait_for_task(task, abort_signal)

    def get_num_standing_tasks(self) -> int:
        """Tasks that the controller waits for; waits itself for the end of the round that is under way."""
        self._finish_round()
        over = sum(task.is_standing for task, round_, _ in list(self._tasks.values()) if round_.is_over)
        standing: int = super().get_num_standing_tasks()
        return standing - over if standing > over else 0

    def _process_result(self, client_task: ClientTask, fl_ctx: FLContext) -> None:
        """Time a result, look at it, and hold it until its round is over; one that is not judged is handed on."""
        arrived_s = time.monotonic()
        name = str(client_task.client.name)
        self._seen_s[name] = arrived_s
        known = self._tasks.get(client_task.task.msg_root_id)
        if known is None:
            super()._process_result(client_task, fl_ctx)
            return
        _, round_, sent = known
        code = client_task.result.get_return_code()
        if code and code != ReturnCode.OK:
            self._desk.failed(round_, name, f"FLARE says {code}")
            client_task.result = None
            return
        try:
            update, wrong = self._check.read(sent, FLModelUtils.from_shareable(client_task.result))
        except Exception as error:  # a result must not be able to end the run
            update = Update({})
            wrong = f"it cannot be read ({type(error).__name__}: {error})"
        held = None if self._check.check is None else (client_task, client_task.result, fl_ctx, update)
        signature = None
        if wrong is None and self._signs is not None:
            signature = self._desk.rounds.signature(update.base(sent), update.numbers)
        with self._desk.lock:  # the round is not ended before the controller has the result
            counts = self._desk.answered(
                round_,
                name,
                held,
                wrong=wrong,
                metrics=update.metrics,
                signature=signature,
                time_s=arrived_s - round_.sent_s,
            )
            if counts and held is None:
                super()._process_result(client_task, fl_ctx)
        client_task.result = None

    # ---------------------------------------------------------------- rounds without updates

    def _get_aggregated_result(self) -> FLModel:
        """What ``FedAvg`` has aggregated; nothing of a round without updates."""
        if not self._num_used:
            return FLModel(params={}, current_round=self.current_round, meta={"nr_aggregated": 0})
        return super()._get_aggregated_result()

    def aggregate(self, results: list[FLModel], aggregate_fn: Any = None) -> FLModel:
        """Aggregate results; nothing of a round without updates."""
        return super().aggregate(results, aggregate_fn) if results else FLModel(params={})

    def update_model(self, model: FLModel, aggr_result: FLModel) -> FLModel:
        """Update the model; it stays as it is where nothing was aggregated."""
        if not aggr_result.params:
            return model
        return super().update_model(model, aggr_result)

    # ---------------------------------------------------------------- rounds

    def _finish_round(self) -> None:
        if self._under_way is None:
            return
        round_, sent = self._under_way
        try:
            self._desk.wait(round_, self._check_run)
        except RunAborted:
            return  # the controller asks for itself whether the job is aborted
        self._under_way = None

        def odd(usable: list[Reply]) -> dict[str, str]:
            return self._check.odd({reply.name: (sent, reply.content[-1]) for reply in usable if reply.content})

        used = self._desk.close(round_, odd)
        self._num_used = len(used)
        if round_.choice.weights is not None:
            _weigh(sent, used)
        for client_task, result, fl_ctx, _ in (reply.content for reply in used if reply.content is not None):
            client_task.result = result
            super()._process_result(client_task, fl_ctx)
        self._drop_answered_tasks()

    def _connected(self) -> list[Node]:
        oldest_s = time.monotonic() - self.quiet_s
        return [
            Node(number, NodeContext(str(client.name)), registered=True)
            for number, client in enumerate(self.engine.get_clients())
            if self._seen_s.get(client.name, -math.inf) >= oldest_s
        ]

    def _asks(self, name: str) -> None:
        """A client asks for a task; one whose late result is awaited has lost it, or was away when it was sent."""
        self._seen_s[name] = time.monotonic()
        for task, round_, _ in list(self._tasks.values()):
            if not round_.is_over or name not in task.targets:
                continue
            sent = task.last_client_task_map.get(name)
            if sent is None:
                task.targets.remove(name)
                self._desk.lost(round_, name, "it has not fetched its task")
            elif sent.result_received_time is None:
                sent.result_received_time = time.time()  # else FLARE would send it the old task once more
                self._desk.lost(round_, name, "it has lost its task")

    def _drop_answered_tasks(self) -> None:
        """Take away the tasks of rounds that are over and whose clients have all answered or are given up."""
        self._desk.busy()
        for key, (task, round_, _) in list(self._tasks.items()):
            if not task.is_standing:
                del self._tasks[key]
            elif round_.is_over and not round_.waiting and task.completion_status is None:
                self.cancel_task(task, fl_ctx=self.fl_ctx)

    def _model_bit(self) -> float:
        """Size of the model that was sent last, or that is about to be, bit."""
        if self._tasks:
            return max(update.num_bits for _, _, update in self._tasks.values())
        learnable = self.fl_ctx.get_prop(AppConstants.GLOBAL_MODEL)
        own = getattr(self, "model", None)
        weights = learnable.get(ModelLearnableKey.WEIGHTS) if learnable else getattr(own, "params", own)
        return Update(weights or {}).num_bits

    def _check_run(self) -> None:
        if self.abort_signal.triggered:
            raise RunAborted("the job is aborted")


def _weigh(sent: Update, used: list[Reply]) -> None:
    """Rewrite the results of a round, so that their average by samples applies the decision's weights."""
    parts = [from_shareable(reply.content[1]) for reply in used]
    samples = [counted(part.get_meta_prop(FLMetaKey.NUM_STEPS_CURRENT_ROUND)) for part in parts]
    weights = [reply.weight for reply in used]
    weighed = factors(weights, samples)
    for reply, part, factor in zip(used, parts, weighed, strict=True):
        _, result, _, update = reply.content
        moved = scaled(update.base(sent), update.numbers, factor)
        data = dict(part.data)  # the result's own may be the client's
        for key, values in moved.items():
            as_it_came = getattr(data[key], "new_tensor", np.asarray)  # PyTorch's, or NumPy's
            data[key] = as_it_came(values)
        part.data = data
        part.update_shareable(result)
