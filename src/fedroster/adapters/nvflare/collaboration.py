"""FLARE's Collab API, with clients that a policy chooses: a server function in plain Python asks one object."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from nvflare.collab import collab
from nvflare.collab.api.exceptions import RunAborted

from fedroster.adapters.nvflare.replies import CheckUpdate, Update, UpdateCheck, check_update, read_update
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import ContextOptions, NodeContext
from fedroster.engine.edges import EdgeMap
from fedroster.engine.losses import LossMetrics
from fedroster.engine.outcomes import OpenRound, Reply, shown
from fedroster.engine.pushed import PushedRounds, Resumed
from fedroster.engine.rounds import Rounds, warn_of_untested
from fedroster.engine.rules import RoundRules
from fedroster.selector import Selector

log = logging.getLogger("nvflare.fedroster")
TESTED = (2, 9)
"""Newest version of FLARE with which this adapter's tests were run."""
LONGEST_CALL_S = 1e6
"""FLARE's calls have a timeout; this one is longer than any round."""


class SelectingClients(Resumed):
    """The clients of a Collab job, of which a policy chooses those that are called.

    Example, in the server's module::

        @collab.main
        def fedavg():
            selector = Selector(RBCSF(V=20.0, beta=0.1), cohort_size=3)
            clients = SelectingClients(selector, rules=RoundRules(deadline_s=60))
            model = initial_model()
            for _ in range(100):
                replies = clients.call("train", model)
                model = mean([reply.content for reply in replies]) if replies else model

    Sites are known by their names, which FLARE authenticates.  A call that is late goes on at its site, so the site is
    not called again before it has answered or is given up; its late reply is learned from and not returned.
    """

    _contexts: ContextOptions | None = None
    _edge_rules: EdgeMap | None = None

    def __init__(
        self,
        selector: Selector,
        *,
        rules: RoundRules | None = None,
        losses: LossMetrics | None = None,
        check: CheckUpdate | None = check_update,
        weighs: bool = False,
        state_dir: str | Path | None = None,
    ) -> None:
        """Put a selector before the clients.

        Args:
            selector: Chooses; clients are the sites' names, and join by themselves.  Sinks among its observers
                (:class:`~fedroster.engine.report.RoundSink`) take a report of every round.
            rules: When rounds end, and the longest time that is learned.
            losses: Where replies hold losses, for policies that learn from them.
            check: Says what is wrong with a reply; None to let everything pass.
            weighs: Whether your loop moves the model by the sum of ``weight`` times update over the replies; a policy
                that weighs updates is refused otherwise.
            state_dir: Folder at the server in which the selector is saved in every round, and from which it is resumed;
                None for nowhere.

        Raises:
            ConfigurationError: If a saved selector has another cohort size, number of features or budgets.
            InUseError: If another process holds ``state_dir``.
            StateFileError: If a saved file is damaged or belongs to another policy.
        """
        warn_of_untested("NVFlare", "nvflare", TESTED, log)
        self._rules = rules or RoundRules()
        self._check = UpdateCheck(check)
        rounds = Rounds(
            selector,
            rules=self._rules,
            contexts=self._contexts,
            edge_rules=self._edge_rules,
            state_dir=state_dir,
            log=log,
            weighs=weighs,
        )
        self._desk = PushedRounds(rounds, losses=losses)
        self._calls: list[tuple[OpenRound, Any, dict[str, list[str]]]] = []  # with the clients of each awaited site
        self._gone: set[str] = set()

    def settle(self) -> None:
        """Book that the model of the last round is saved; the next round does it, too.

        A round that is not booked so is played again after a restart, with the same clients.
        """
        self._desk.rounds.settle()

    def call(self, function: str, model: Any, **arguments: Any) -> list[Reply]:
        """Play a round: choose clients, call a function of theirs with a model, and return what counts.

        Args:
            function: Name of a published function of the clients' module; its first argument is the model.
            model: An ``FLModel``, arrays by name, or a pair of these and metrics.
            arguments: Further arguments of the function.

        Returns:
            Replies that can be aggregated, fastest first; fewer than were called when clients are late, fail, or answer
            what cannot be used, and possibly none.

        Raises:
            NoNodesError: If no client can be chosen for longer than ``wait_s``.
            RoundNotBegunError: If the selector's rules leave too few clients for as long.
            InvalidInputError: If the model is none.
        """
        sent = read_update(model)
        desk = self._desk
        round_ = desk.begin(Clients(self._connected, self._look, are_all=True), sent.num_bits)
        ending = desk.sent(round_, self._check.flaw(sent))
        updates: dict[str, Update] = {}

        def take(gcc: object, result: object, context: Any = None) -> None:
            name = str(context.caller)
            time_s = time.monotonic() - ending.sent_s
            self._gone.discard(name)
            updates[name], wrong = self._check.read(sent, result)
            desk.answered(round_, name, result, wrong=wrong, metrics=updates[name].metrics, time_s=time_s)

        limit_s = min(ending.given_up_s - ending.sent_s + 1.0, LONGEST_CALL_S)
        group = collab.get_clients(list(round_.choice.clients))(blocking=False, timeout=limit_s, process_resp_cb=take)
        called = {name: [name] for name in round_.choice.clients}
        self._calls.append((round_, getattr(group, function)(model, **arguments), called))
        desk.wait(round_, self._look)
        return desk.close(round_, lambda usable: self._check.odd({it.name: (sent, updates[it.name]) for it in usable}))

    def ask(self, function: str, *arguments: Any, timeout_s: float | None = None) -> dict[str, Any]:
        """Call a function of clients outside the rounds, to evaluate for example; nothing of it is learned.

        Args:
            function: Name of a published function of the clients' module.
            arguments: Its arguments.
            timeout_s: Longest time to wait, seconds; None for what the rules say.

        Returns:
            Results by name, of ``who_evaluates``: all clients, those that are not busy, or the last cohort.  A client
            that was lost at its last call, or that the selector's rules exclude, is not asked.
        """
        who = self._rules.who_evaluates
        nodes = self._connected()
        out = self._gone | (self._desk.busy() if who != "all" else set())
        if who == "cohort":
            out |= {node.name for node in nodes} - self._desk.rounds.current.clients.keys()
        nodes = [node for node in nodes if node.name not in out]
        names = sorted(self._desk.rounds.may_evaluate(nodes))
        if not names:
            return {}
        limit_s = min(self._rules.evaluation_limit_s(timeout_s), LONGEST_CALL_S)
        results = getattr(collab.get_clients(names)(timeout=limit_s), function)(*arguments)
        for name, error in results.failures.items():
            log.warning("%s has not answered %s: %s", name, function, shown(str(error)))
        return dict(results)

    def _connected(self) -> list[Node]:
        nodes = []
        for number, proxy in enumerate(collab.clients):
            above = ["", *str(proxy.fqn).split(".")][-2]  # in FLARE's client hierarchy; empty for none
            nodes.append(Node(number, NodeContext(str(proxy.name), edge=above), registered=True))
        return nodes

    def _look(self) -> None:
        """Book the calls that failed, which FLARE pushes to no callback, and forget those that are done."""
        if collab.is_aborted:
            raise RunAborted("the run is aborted")
        for call in list(self._calls):
            round_, results, called = call
            for name in [name for name in results.failures if name in called]:
                error = results.failures[name]
                is_silent = error.remote_traceback is None and error.cause_type in ("TimeoutError", "str")
                if is_silent:
                    self._gone.add(name)
                book = self._desk.lost if is_silent else self._desk.failed
                for client in called.pop(name):
                    book(round_, client, str(error.cause))
            if len(results) + len(results.failures) >= results.limit:
                self._calls.remove(call)
