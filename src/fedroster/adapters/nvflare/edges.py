"""A tree in FLARE: sites that aggregate for others are edge servers, to which a policy assigns clients within budgets.

Sites of a Collab job call each other.  The server calls an edge server with the model and the names of its clients;
that site calls them, waits for a deadline, aggregates what can be used, and answers with one model.  Where relays
connect sites in a tree, FLARE routes these calls along it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import collab

from fedroster.adapters.nvflare.collaboration import LONGEST_CALL_S, SelectingClients
from fedroster.adapters.nvflare.replies import (
    WEIGHT,
    CheckUpdate,
    Update,
    UpdateCheck,
    check_update,
    counted,
    read_update,
)
from fedroster.core.checks import check_number, shown
from fedroster.core.errors import ConfigurationError, InvalidInputError
from fedroster.engine.choose import Clients, Node
from fedroster.engine.contexts import ContextOptions
from fedroster.engine.edges import EdgeMap, edge_features
from fedroster.engine.outcomes import Reply
from fedroster.engine.rules import RoundRules
from fedroster.selector.edges import EdgeSelector

_CLIENTS = "clients"
"""Metric of an edge server's reply: each client's time in seconds, also with what is wrong; or why there is none."""
_LATE = "late"
_BUSY = "busy"

_busy: dict[str, Any] = {}  # the calls of clients that have not answered
_known = UpdateCheck(None)  # what was seen of replies in earlier rounds
_lock = threading.Lock()


def call_clients(
    function: str,
    model: Any,
    clients: Sequence[str],
    deadline_s: float,
    *,
    check: CheckUpdate = check_update,
    **arguments: Any,
) -> tuple[dict[str, Any], dict[str, object]]:
    """Train with the clients of an edge server; called at that site, by a function that it publishes.

    Args:
        function: Name of a published function of the clients' module; its first argument is the model.
        model: An ``FLModel``, arrays by name, or a pair of these and metrics.
        clients: Names of the clients.
        deadline_s: How long to wait for them, seconds, > 0.
        check: Says what is wrong with a client's reply.
        arguments: Further arguments of the function.

    Returns:
        The mean of the usable models, weighted by ``num-examples``, in the types that were sent, and metrics; the model
        as it was sent, without a weight, when none is usable.
    """
    sent, checked = read_update(model), copy(_known)
    checked.check = check
    started_s = time.monotonic()
    told: dict[str, object] = {}
    updates: dict[str, Update] = {}
    is_over = False
    with _lock:
        for name in [name for name, call in _busy.items() if call is not None and name in call.failures]:
            del _busy[name]  # it failed when its round was over: FLARE pushes failures to no callback
        free = [name for name in clients if name not in _busy]
        _busy.update(dict.fromkeys(free))
    told |= {name: "it is still busy" for name in clients if name not in free}

    def take(gcc: object, result: object, context: Any = None) -> None:
        name = str(context.caller)
        time_s = time.monotonic() - started_s
        update, wrong = checked.read(sent, result)
        with _lock:
            _busy.pop(name, None)
            if not is_over and time_s <= deadline_s:
                told[name] = time_s if wrong is None else (time_s, wrong)
                if wrong is None:
                    updates[name] = update

    if free:
        group = collab.get_clients(free)(blocking=False, timeout=10.0 * deadline_s, process_resp_cb=take)
        results = getattr(group, function)(model, **arguments)
        with _lock:
            _busy.update(dict.fromkeys(_busy.keys() & set(free), results))
    while len(told) < len(clients) and time.monotonic() - started_s < deadline_s:
        with _lock:
            for name, error in list(results.failures.items()):
                _busy.pop(name, None)
                told.setdefault(name, str(error.cause))
        time.sleep(0.01)
    with _lock:
        is_over = True
        told |= {name: _LATE for name in clients if name not in told}
        busy = sorted(_busy)
        checked.flaw(sent)  # whether it has one is the server's word; here changes are compared with its numbers
        odd = checked.odd({name: (sent, update) for name, update in updates.items()})
    for name, wrong in odd.items():
        told[name] = told[name], wrong
        del updates[name]
    if not updates:
        return dict(sent.arrays), {_CLIENTS: told, _BUSY: busy}
    weights = [counted(update.metrics.get(WEIGHT)) for update in updates.values()]
    total = sum(weights)
    is_difference = any(update.is_difference for update in updates.values())
    mean = {}
    for key, array in sent.arrays.items():
        before = np.asarray(array)
        wide = np.result_type(before, np.float64)
        found = before.astype(wide) if is_difference else np.zeros(before.shape, wide)
        for weight, update in zip(weights, updates.values(), strict=True):
            found += weight / total * np.asarray(update.arrays[key]).astype(wide)
        mean[key] = (found if before.dtype.kind in "fc" else np.rint(found)).astype(before.dtype)
    return mean, {WEIGHT: total, _CLIENTS: told, _BUSY: busy}


class SelectingEdges(SelectingClients):
    """The sites of a Collab job as a tree: edge servers aggregate for the clients that a policy assigns to them.

    Edge servers are the sites that are named in the selector's budgets; all others are clients.  An edge server reaches
    the clients that the operator says, or those below it in FLARE's client hierarchy, with which no Collab job begins
    in 2.9.0.  A client that was late is left out until its edge server says that it has answered, or it is given up.
    """

    _contexts = ContextOptions(features=edge_features)

    def __init__(
        self,
        selector: EdgeSelector,
        *,
        rules: RoundRules,
        grace_s: float = 5.0,
        edge_rules: EdgeMap | None = None,
        state_dir: str | Path | None = None,
    ) -> None:
        """Put a selector before the sites; what is not said here is as for :class:`SelectingClients`.

        Args:
            selector: Assigns clients to edge servers.
            rules: When rounds end: edge servers wait for their clients until ``deadline_s``, which is finite.
            grace_s: How long the server waits for edge servers beyond that, seconds, > 0.
            edge_rules: Which edge servers reach a client, and its price.
            state_dir: Folder in which the selector is saved.

        Raises:
            ConfigurationError: If the selector assigns no edge servers, rounds do not end at one deadline alone, or
                ``grace_s`` is no time.
        """
        if not isinstance(selector, EdgeSelector):
            raise ConfigurationError(f"a {type(selector).__name__} assigns no edge servers; expected an EdgeSelector")
        check_number("grace_s", grace_s, above=0.0)
        if rules.deadline_s == math.inf or rules.deadline_of is not None or rules.first or rules.min_replies:
            raise ConfigurationError(
                "edge servers wait for their clients until one finite deadline_s; expected it, and no deadline_of, "
                f"first or min_replies, and the rules are {rules}"
            )
        self._away: dict[str, tuple[str, float]] = {}
        self._wait_s = rules.deadline_s
        self._edges, self._edge_rules = selector.budgets.keys(), edge_rules
        super().__init__(
            selector,
            rules=replace(rules, deadline_s=rules.deadline_s + grace_s),
            state_dir=state_dir,
        )

    def call(self, function: str, model: Any, **arguments: Any) -> list[Reply]:
        """Play a round: assign clients, call edge servers with the names of theirs, and return the edge models.

        Arguments and errors are as in :meth:`SelectingClients.call`; the function, which edge servers publish, takes
        ``model``, ``clients`` and ``deadline_s``, too, and returns what :func:`call_clients` does.

        Returns:
            Replies of edge servers with at least one client whose update is in them, weighed by ``num-examples``.
        """
        sent = read_update(model)
        desk = self._desk
        round_ = desk.begin(Clients(self._connected, self._look, are_all=True), sent.num_bits)
        ending = desk.sent(round_, self._check.flaw(sent))
        members: dict[str, list[str]] = {}
        for name in round_.choice.clients:
            edge = round_.choice.edges.get(name)
            if edge is None:
                desk.lost(round_, name, "the server was killed before it had noted the edge server")
            else:
                members.setdefault(edge, []).append(name)
        replies: dict[str, tuple[Update, Reply]] = {}

        def take(gcc: object, result: object, context: Any = None) -> None:
            edge = str(context.caller)
            took_s = time.monotonic() - ending.sent_s
            update, wrong = self._check.read(sent, result)
            replies[edge] = update, Reply(edge, result, took_s)
            told = update.metrics.get(_CLIENTS)
            busy = update.metrics.get(_BUSY)
            if wrong is None and not isinstance(told, Mapping):
                wrong = f"its metric {_CLIENTS!r} is {type(told).__name__}; expected times by client"
            for name, (where, _) in list(self._away.items()):
                if where == edge and not (isinstance(busy, list) and name in busy):
                    self._away.pop(name, None)
            for name in members[edge]:
                how = told.get(name) if isinstance(told, Mapping) else None
                time_s, why = how if isinstance(how, tuple | list) and len(how) == 2 else (how, wrong)
                if isinstance(time_s, float) and 0.0 < time_s <= self._wait_s:
                    desk.answered(
                        round_,
                        name,
                        edge,
                        wrong=None if why is None else f"edge server {edge}: {shown(why, str)}",
                        time_s=time_s,
                    )
                elif isinstance(how, str) and how == _LATE:
                    self._away[name] = edge, ending.given_up_s
                    desk.answered(round_, name, edge, time_s=max(took_s, self._rules.deadline_s) + 1e-6)
                else:
                    desk.failed(round_, name, f"edge server {edge}: {shown(how if wrong is None else wrong, str)}")

        limit_s = min(ending.given_up_s - ending.sent_s + 1.0, LONGEST_CALL_S)
        for edge, names in members.items():
            group = collab.get_clients([edge])(blocking=False, timeout=limit_s, process_resp_cb=take)
            results = getattr(group, function)(model, clients=names, deadline_s=self._wait_s, **arguments)
            self._calls.append((round_, results, {edge: names}))
        desk.wait(round_, self._look)

        def odd(usable: Sequence[Reply]) -> dict[str, str]:
            edge_of = {reply.name: reply.content for reply in usable if reply.time_s <= self._wait_s}
            wrong = self._check.odd({edge: (sent, replies[edge][0]) for edge in edge_of.values()})
            return {name: f"edge server {edge}: {wrong[edge]}" for name, edge in edge_of.items() if edge in wrong}

        used = {reply.content for reply in desk.close(round_, odd)}
        return sorted((replies[edge][1] for edge in used), key=lambda reply: reply.time_s)

    def _connected(self) -> list[Node]:
        there = super()._connected()
        if missing := self._edges - {node.name for node in there}:
            raise InvalidInputError(f"edge servers {sorted(missing)} are no sites of this job")
        now_s = time.monotonic()
        away = {name for name, (_, until_s) in list(self._away.items()) if now_s < until_s}
        return [node for node in there if node.name not in self._edges | away]
