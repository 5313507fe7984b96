"""A grid with scripted nodes and a virtual clock: nothing waits, and the true times are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedroster.adapters.flower import ContextReporter

SUPERLINK = 1
RAISED = "\x1b[31mTraceback\nround 9: 2 of 2 updates used\r\n" + "x" * 10_000 + " at last"
ERRORS = {"error": (2, RAISED), "expired": (3, "expired"), "gone": (5, "node unavailable")}

_HELD: dict[str, object] = {}
"""The grid that holds a state folder in this process, by folder."""


def held(make, state_dir=None, **options):
    """Make a grid, as a new server app does: the one that held its folder has ended."""
    before = _HELD.pop(str(state_dir), None)
    if before is not None:
        before.release()
    grid = make(state_dir=state_dir, **options)
    if state_dir is not None:
        _HELD[str(state_dir)] = grid
    return grid


class Clock:
    """Time that passes only in sleep()."""

    def __init__(self) -> None:
        self.time_s = 1000.0

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0.0
        self.time_s += seconds


class ClockThat(Clock):
    """The time of another clock, and another way to pass it."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None]) -> None:
        self.now, self.sleep = clock.now, sleep


@dataclass
class FakeNode:
    """A node.

    ``fate`` gives, for its first, second, ... training, what happens: "ok", "error", "garbage", "nan", "shape",
    "metrics", "stray", "unreported", "twice", "silent", "expired", "gone", a delay in seconds, or a function that
    spoils its reply's content; the last one repeats.
    """

    name: str
    delay_s: float = 1.0
    fate: tuple[object, ...] = ("ok",)
    config: dict = field(default_factory=dict)
    answers_queries: bool = True
    query_delay_s: float = 0.05
    trained: int = 0
    queries: int = 0
    evaluated: int = 0
    evaluation: dict | None = field(default_factory=lambda: {"num-examples": 10, "loss": 0.5})  # None for silence
    busy_until_s: float = 0.0
    is_online: bool = True
    value: float = 1.0
    received: list = field(default_factory=list)
    metrics: dict = field(default_factory=dict)
    registered: str = ""


def reply_to(message: Message, node_id: int, content: RecordDict | None, error: Error | None = None) -> Message:
    reply = Message(content, reply_to=message) if error is None else Message(error, reply_to=message)
    reply.metadata.__dict__["_src_node_id"] = node_id
    return reply


class FakeGrid(Grid):
    def __init__(self, clock: Clock, nodes: dict[int, FakeNode], *, call_s: float = 0.0) -> None:
        self.clock, self.nodes, self.call_s = clock, nodes, call_s
        self.mail: list[tuple[float, Message]] = []
        self.sent: list[tuple[float, Message]] = []
        self.true_times_s: list[tuple[int, float]] = []
        self.on_push: Callable[[], None] | None = None
        self.refuse: set[int] = set()
        self._count = 0

    def set_run(self, run) -> None:
        raise AssertionError("no caller sets another run")

    @property
    def run(self):
        return "run"

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        return [node_id for node_id, node in self.nodes.items() if node.is_online]

    def get_nodes(self):
        """What newer versions of Flower tell of nodes; its own class is a protobuf message with more fields."""
        return [
            SimpleNamespace(node_id=node_id, name=node.registered)
            for node_id, node in self.nodes.items()
            if node.is_online
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        if self.on_push is not None:
            self.on_push()
        ids = []
        for message in messages:
            self._count += 1
            message.metadata.__dict__["_message_id"] = f"message-{self._count}"
            node_id = message.metadata.dst_node_id
            if node_id in self.refuse:
                ids.append(None)
                continue
            ids.append(message.metadata.message_id)
            self.sent.append((self.clock.now(), message))
            self._react(node_id, message)
        self.clock.time_s += self.call_s
        return ids

    def _later(self, delay_s: float, reply: Message) -> None:
        self.mail.append((self.clock.now() + delay_s, reply))

    def _react(self, node_id: int, message: Message) -> None:
        node = self.nodes[node_id]
        if not node.is_online:
            self._later(0.1, reply_to(message, SUPERLINK, None, Error(5, "node unavailable")))
            return
        kind = message.metadata.message_type.split(".")[0]
        context = Context(
            run_id=1, node_id=node_id, node_config={"name": node.name} | node.config, state=RecordDict(), run_config={}
        )
        reporter = ContextReporter(lambda _: {"cpu-share": 1.0} | node.config)
        if kind == "query":
            node.queries += 1
            if node.answers_queries:
                answer = reporter.answer(message, context)
                self._later(node.query_delay_s, reply_to(message, node_id, answer.content))
            return
        if kind == "evaluate":
            node.evaluated += 1
            if node.evaluation is not None:
                metrics = MetricRecord(node.evaluation)
                self._later(0.2, reply_to(message, node_id, RecordDict({"metrics": metrics})))
            return
        node.received.append(message.content)
        fate = node.fate[min(node.trained, len(node.fate) - 1)]
        node.trained += 1
        delay_s = float(fate) if isinstance(fate, int | float) else node.delay_s
        start_s = max(node.busy_until_s - self.clock.now(), 0.0)
        node.busy_until_s = self.clock.now() + start_s + delay_s
        delay_s += start_s
        if fate == "silent":
            return
        if fate in ERRORS:
            node.is_online &= fate != "gone"
            source = node_id if fate == "error" else SUPERLINK
            self._later(delay_s, reply_to(message, source, None, Error(*ERRORS[fate])))
            return
        reply = reporter(message, context, lambda m, c: Message(self._train(node, m.content, fate), reply_to=m))
        content = reply.content
        source = node_id + 1 if fate == "stray" else node_id
        if fate == "unreported":
            content.pop("fedroster.context", None)
        if callable(fate):
            fate(content)
        self._later(delay_s, reply_to(message, source, content))
        self.true_times_s.append((node_id, delay_s))
        if fate == "twice":
            self._later(delay_s, reply_to(message, node_id, content))
            self._later(delay_s + 0.3, reply_to(message, node_id, content))

    def _train(self, node: FakeNode, content: RecordDict, fate: object) -> RecordDict:
        arrays = {}
        for key, array in content["arrays"].items():
            arrays[key] = array.numpy() + node.value
        if fate == "nan":
            arrays = {key: value * np.nan for key, value in arrays.items()}
        if fate == "shape":
            arrays = {key: np.zeros((7, 7)) for key in arrays}
        if fate == "garbage":
            return RecordDict({"noise": ConfigRecord({"a": 1})})
        metrics = {"los": 1.0} if fate == "metrics" else {"num-examples": 10, "loss": 1.0} | node.metrics
        return RecordDict(
            {
                "arrays": ArrayRecord({key: Array(np.asarray(value)) for key, value in arrays.items()}),
                "metrics": MetricRecord(metrics),
            }
        )

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        here = [
            (due, reply)
            for due, reply in self.mail
            if due <= self.clock.now() and reply.metadata.reply_to_message_id in wanted
        ]
        taken = {id(reply) for _, reply in here}
        self.mail = [(due, reply) for due, reply in self.mail if id(reply) not in taken]
        self.clock.time_s += self.call_s
        return [reply for _, reply in here]

    def send_and_receive(self, messages, *, timeout=None):
        raise AssertionError("the selecting grid has its own loop")


def model(value: float = 0.0) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full((3, 2), value)), "b": Array(np.full(2, value))})


def train_messages(node_ids: Iterable[int], kind: str = "train") -> list[Message]:
    content = RecordDict({"arrays": model(), "config": ConfigRecord({"server-round": 1})})
    return [Message(content=content, dst_node_id=node_id, message_type=kind) for node_id in node_ids]


def fleet(num_nodes: int, *, each: Callable[[int], dict] = lambda number: {}, **options) -> dict[int, FakeNode]:
    """Nodes with these options, and with those that each number has."""
    return {100 + n: FakeNode(f"n{n:02d}", **options | each(n)) for n in range(num_nodes)}


def shift(by: float, content) -> None:
    """A node's fate: its update is moved by this much, up in w and down in b."""
    content["arrays"]["w"] = Array(content["arrays"]["w"].numpy() + by)
    content["arrays"]["b"] = Array((content["arrays"]["b"].numpy() - by).astype(np.float32))
