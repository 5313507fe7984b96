"""Flower's older strategies (``flwr.server.strategy``), for which a policy chooses the clients that fit.

The strategy samples from a client manager that has the chosen clients only, so it makes each its own instructions; its
own ``aggregate_fit`` gets ordinary results.  Four of its methods are replaced at the object, so its class stays.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from flwr.common import Code, FitIns, FitRes, Parameters, bytes_to_ndarray
from flwr.server import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import Strategy

from fedroster.adapters.flower.exchange import log
from fedroster.adapters.flower.needs import needs_of
from fedroster.core.errors import ConfigurationError
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import NodeContext
from fedroster.engine.losses import LossMetrics
from fedroster.engine.outcomes import OpenRound
from fedroster.engine.pushed import PushedRounds, Resumed
from fedroster.engine.replies import Judge, Numbers, check_values, check_weight, wrong_with
from fedroster.engine.rounds import Rounds
from fedroster.engine.rules import RoundRules
from fedroster.selector import Selector

T = TypeVar("T")
AnyStrategy = TypeVar("AnyStrategy", bound=Strategy)
CheckFit = Callable[[FitIns, FitRes], str | None]
"""Given what a client was sent and its result, returns what is wrong with the result, or None."""
_METHODS = "configure_fit", "aggregate_fit", "configure_evaluate", "aggregate_evaluate"
_LOOK_S = 0.05


def check_fit(sent: FitIns, result: FitRes) -> str | None:
    """Say what no strategy can use: numbers that are not finite, another shape, a weight of 0; None for nothing.

    Of a result with more or fewer arrays than were sent only the numbers are looked at here: some strategies want more,
    and then as many of each client.
    """
    known = _arrays(sent, sent)
    arrays = _arrays(sent, result)
    for number, array in enumerate(arrays):
        wrong = check_values(array, known[number] if len(known) == len(arrays) else None)
        if wrong is not None:
            return f"its array {number} {wrong}"
    wrong = check_weight(result.num_examples)
    return None if wrong is None else f"its weight num_examples {wrong}"


def with_selector(
    strategy: AnyStrategy,
    selector: Selector,
    *,
    rules: RoundRules | None = None,
    losses: LossMetrics | None = None,
    check: CheckFit | None = check_fit,
    state_dir: str | Path | None = None,
    name_of: Callable[[ClientProxy], str] = lambda proxy: str(proxy.cid),
) -> AnyStrategy:
    """Let a selector choose the clients that a strategy of ``flwr.server.strategy`` fits.

    Example, in ``server_fn``::

        strategy = with_selector(FedProx(proximal_mu=0.1), Selector(RBCSF(V=20.0, beta=0.1), cohort_size=10))
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=100))

    Args:
        strategy: The outermost strategy, the one that the server is given.
        selector: Chooses; clients join and leave by themselves.  Its :class:`~fedroster.Record` keeps the run.
        rules: When rounds end; ``evaluate_deadline_s`` has no meaning here: give the server a ``round_timeout``.
        losses: Where results hold losses, for policies that learn from them; None for the usual names.
        check: Says what is wrong with a result; None to let everything pass.
        state_dir: Folder of the run if the selector has no record, from which it is resumed; None for nowhere.
        name_of: A client's stable name: by default its id, which changes when a client is not known by a key.

    Returns:
        The strategy itself, which selects from now on.  Its new attribute ``selecting`` has the ``selector``, resumed
        if there was a saved one, the number of the last ``round`` that is done, and ``release()``.

    Raises:
        ConfigurationError: If the run has another cohort size, or the strategy needs what selection cannot give.
        InUseError: If another process holds the folder.
        LogFileError: If it is damaged or belongs to another policy.
    """
    rules = rules or RoundRules()
    needs_of(strategy).check(rules.first or selector.cohort_size)
    desk = PushedRounds(Rounds(selector, rules=rules, state_dir=state_dir, log=log), losses=losses)
    judge = Judge[Any](check, _pairs, lambda it: it.num_examples, lambda it: len(it.parameters.tensors))
    judge.differs = "it has more or fewer arrays than those of other clients"
    selecting = OlderRounds(strategy, desk, judge, name_of)
    return _replace(strategy, selecting=selecting, **{name: getattr(selecting, name) for name in _METHODS})


class OlderRounds(Resumed):
    """The rounds of one strategy."""

    def __init__(
        self,
        strategy: Strategy,
        desk: PushedRounds,
        judge: Judge[Any],
        name_of: Callable[[ClientProxy], str],
    ) -> None:
        """Keep the strategy's own methods; see :func:`with_selector`."""
        self._own = {name: getattr(strategy, name) for name in _METHODS}
        self._takes_all = not getattr(strategy, "accept_failures", True)
        self._num_updates = needs_of(strategy).num_updates
        self._desk = desk
        self._judge = judge
        self._name_of = name_of
        self._open: OpenRound | None = None
        self._chosen: dict[str, ClientProxy] = {}
        self._sent = FitIns(Parameters([], ""), {})
        self._evaluated = 0, 0.0

    # ---------------------------------------------------------------- fit

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        """Let the strategy make instructions for the clients that the policy chooses."""
        model_bit = 8.0 * sum(map(len, parameters.tensors))
        round_ = self._desk.begin(Clients(lambda: self._nodes(client_manager)), model_bit)
        there = self._proxies(client_manager)
        self._chosen = {name: there[name] for name in round_.choice.clients if name in there}
        self._open = round_
        self._sent = FitIns(parameters, {})
        made = self._own["configure_fit"](server_round, parameters, _only(client_manager, self._chosen))
        name_of = {id(proxy): name for name, proxy in self._chosen.items()}
        pairs = {name_of[id(proxy)]: (proxy, ins) for proxy, ins in made if id(proxy) in name_of}
        if not pairs:
            raise ConfigurationError(
                "the strategy made no instruction for any chosen client; expected one that asks its client manager"
            )
        self._desk.sent(round_, self._judge.flaw(self._sent))
        for name in set(round_.choice.clients) - set(pairs):
            self._desk.lost(round_, name, "the strategy made no instruction for it")
        return [
            (_replace(copy(proxy), fit=partial(self._fit, round_, name, proxy)), ins)
            for name, (proxy, ins) in pairs.items()
        ]

    def _fit(
        self, round_: OpenRound, name: str, proxy: ClientProxy, ins: FitIns, timeout: float | None, group_id: int | None
    ) -> FitRes:
        """Fit a client, as long as the round goes on; what comes later is learned from, and never aggregated."""
        desk = self._desk
        ended = list[FitRes | Exception]()

        def run() -> None:
            started_s = time.monotonic()
            wrong = None
            found: FitRes | Exception
            try:
                found = proxy.fit(ins, timeout, group_id)
                wrong = wrong_with(self._judge.check, ins, found)
            except Exception as error:  # whatever the engine's transport raises is this client's failure
                found = error
            time_s = time.monotonic() - started_s
            with desk.lock:
                if isinstance(found, Exception):
                    desk.failed(round_, name, f"{type(found).__name__}: {found}")
                elif found.status.code != Code.OK:
                    desk.failed(round_, name, found.status.message)
                else:
                    desk.answered(round_, name, found, wrong=wrong, metrics=found.metrics, time_s=time_s)
                ended.append(found)

        with desk.lock:
            if desk.is_complete(round_):  # the server's pool had no thread for it before
                desk.lost(round_, name, "the round was over before it was sent")
                raise TimeoutError(f"round {round_.choice.round} is over")
            threading.Thread(target=run, name=f"fedroster fit {name}", daemon=True).start()
            while not ended and not desk.is_complete(round_):
                desk.lock.wait(_LOOK_S)
        if not ended:
            raise TimeoutError(f"{name} is late in round {round_.choice.round}")
        if isinstance(ended[0], Exception):
            raise ended[0]
        return ended[0]

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        """Let the strategy aggregate the results that count; the others are failures."""
        round_, self._open = self._open, None
        aggregate = self._own["aggregate_fit"]
        sent = self._sent
        if round_ is None:
            return aggregate(server_round, results, failures)
        least = len(round_.choice.clients) if self._takes_all else self._num_updates
        usable = self._desk.close(
            round_, lambda usable: self._judge.odd({each.name: (sent, each.content) for each in usable}), least=least
        )
        proxies = {proxy.cid: proxy for proxy in self._chosen.values()}
        used = {id(reply.content) for reply in usable}
        back = [(proxies.get(proxy.cid, proxy), result) for proxy, result in results]
        missed = [each if isinstance(each, BaseException) else (proxies.get(each[0].cid), each[1]) for each in failures]
        missed += [pair for pair in back if id(pair[1]) not in used]
        return aggregate(server_round, [pair for pair in back if id(pair[1]) in used], missed)

    # ---------------------------------------------------------------- evaluate

    def configure_evaluate(self, server_round: int, parameters: Parameters, client_manager: ClientManager) -> Any:
        """Let the strategy evaluate with the clients that the rules leave."""
        self._desk.rounds.settle()
        who = self._desk.rounds.rules.who_evaluates
        allowed = self._desk.rounds.may_evaluate(self._nodes(client_manager))
        manager = client_manager
        if who == "cohort":
            allowed &= self._desk.rounds.current.clients.keys()
            there = self._proxies(client_manager).items()
            manager = _only(client_manager, {name: proxy for name, proxy in there if name in allowed})
        elif who == "idle":
            allowed -= self._desk.busy()
        made = self._own["configure_evaluate"](server_round, parameters, manager)
        made = [(proxy, ins) for proxy, ins in made if self._name_of(proxy) in allowed]
        self._evaluated = len(made), time.monotonic()
        return made

    def aggregate_evaluate(self, server_round: int, results: Any, failures: Any) -> Any:
        """Let the strategy aggregate; the log says how long evaluation took."""
        asked, started_s = self._evaluated
        if asked:
            self._desk.evaluated(asked, len(results), time.monotonic() - started_s)
        return self._own["aggregate_evaluate"](server_round, results, failures)

    # ---------------------------------------------------------------- clients

    def _proxies(self, client_manager: ClientManager) -> dict[str, ClientProxy]:
        return {self._name_of(proxy): proxy for proxy in client_manager.all().values()}

    def _nodes(self, client_manager: ClientManager) -> list[Node]:
        return [
            Node(int(getattr(proxy, "node_id", number)), NodeContext(name), registered=True)
            for number, (name, proxy) in enumerate(self._proxies(client_manager).items())
        ]


def _replace(one: T, **parts: object) -> T:
    """An object with methods of its own in place of its class's."""
    for name, part in parts.items():
        setattr(one, name, part)
    return one


def _only(client_manager: ClientManager, chosen: Mapping[str, ClientProxy]) -> ClientManager:
    """A client manager of its class whose samples, of whatever kind, are some clients."""

    def sample(*_: object, **__: object) -> list[ClientProxy]:
        return list(chosen.values())

    names = [name for name in dir(client_manager) if name.startswith("sample")]
    by_cid = {proxy.cid: proxy for proxy in chosen.values()}
    return _replace(copy(client_manager), all=lambda: by_cid, **dict.fromkeys(names, sample))


def _arrays(sent: FitIns, found: FitIns | FitRes) -> list[Any]:
    """Arrays of a model that was sent or came back, whatever a client calls them; none of trees."""
    is_numpy = sent.parameters.tensor_type == "numpy.ndarray"
    return [bytes_to_ndarray(tensor) for tensor in found.parameters.tensors if is_numpy]


def _pairs(sent: FitIns, result: FitRes) -> Iterable[tuple[Numbers, Numbers]]:
    """The arrays of a result, and before each what was sent for it."""
    return zip(_arrays(sent, sent), _arrays(sent, result), strict=False)
