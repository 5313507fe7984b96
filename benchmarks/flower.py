"""The Flower adapter: what it adds to a round, how fast it selects, how exactly it measures.

Run as ``python -m benchmarks.flower`` in an environment with the extra ``flower``; ``python -m benchmarks flower``
makes one.  Nodes are behind an in-memory grid and reply after a known time; ``benchmarks.example`` has real ones.
"""

from __future__ import annotations

import logging
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from benchmarks.rows import Row, Session
from fedroster import RBCSF, Selector
from fedroster.adapters.flower import ContextOptions, NodeContext, RoundRules, RoundSink, SelectingGrid, report_context
from fedroster.engine.choose import Node


class TimedGrid(Grid):
    """Nodes that reply after a time that is known exactly; its own loop is Flower's for simulations."""

    def __init__(self, num_nodes: int, delay_s: Callable[[int, int], float]) -> None:
        """Make nodes ``2, 3, ...``; ``delay_s`` is given a node and how often it has trained."""
        self.ids = list(range(2, num_nodes + 2))
        self.delay_s = delay_s
        self.true_s: dict[str, float] = {}
        self.trained: dict[int, int] = {}
        self._due: dict[str, tuple[float, Message]] = {}
        self._count = 0

    def set_run(self, run: Any) -> None:
        """Nothing to set."""

    @property
    def run(self) -> Any:
        """No run."""
        return None

    def create_message(self, *_: Any, **__: Any) -> Message:
        """Not needed."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """All nodes."""
        return list(self.ids)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send, and compute the replies at once."""
        ids = []
        for message in messages:
            self._count += 1
            message_id = message.metadata.__dict__["_message_id"] = str(self._count)
            node_id = message.metadata.dst_node_id
            kind = message.metadata.message_type
            if kind == "train":
                self.trained[node_id] = self.trained.get(node_id, 0) + 1
                delay_s = self.delay_s(node_id, self.trained[node_id])
                arrays = message.content["arrays"]
                content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
                content["fedroster.context"] = ConfigRecord(
                    {"name": f"n{node_id}", "cpu-share": 1.0, "busy-s": delay_s}
                )
                self.true_s[f"n{node_id}"] = delay_s
            else:
                delay_s = 0.001
                context = Context(1, node_id, {"name": f"n{node_id}", "cpu-share": 1.0}, RecordDict(), {})
                content = report_context.answer(message, context).content
            reply = Message(content, reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = node_id
            self._due[message_id] = (time.monotonic() + delay_s, reply)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies whose time has come."""
        now = time.monotonic()
        ready = [each for each in message_ids if each in self._due and self._due[each][0] <= now]
        return [self._due.pop(each)[1] for each in ready]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Flower's loop over its in-memory grid."""
        open_ids = set(self.push_messages(messages))
        replies: list[Message] = []
        while open_ids:
            new = list(self.pull_messages(open_ids))
            replies += new
            open_ids -= {reply.metadata.reply_to_message_id for reply in new}
            if open_ids:
                time.sleep(0.1)
        return replies


def identify() -> None:
    """Say who this process is, as Flower does in those that it starts; older versions do without."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ModuleNotFoundError:
        return
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def model(num_parameters: int) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(num_parameters, np.float32))})


def overhead(num_nodes: int = 100, cohort_size: int = 20, num_rounds: int = 12) -> dict[str, float]:
    """Time of a round beyond the slowest node's, and what Flower's own loop adds: 100 nodes of one to two seconds."""
    random.seed(0)
    times = {node_id: 1.0 + random.random() for node_id in range(2, num_nodes + 2)}
    extra: dict[str, list[float]] = {"ours": [], "saving": [], "flower": []}
    folder = tempfile.TemporaryDirectory()
    own: list[float] = []
    for name, sums in extra.items():
        fake = TimedGrid(num_nodes, lambda node_id, _: times[node_id])
        reports: list[Any] = []
        strategy = FedAvg(fraction_train=1e-9, min_train_nodes=cohort_size, fraction_evaluate=0.0)
        grid: Grid = fake
        if name != "flower":
            grid = SelectingGrid(
                fake,
                Selector(RBCSF(V=5.0, beta=0.1), cohort_size=cohort_size, observers=[RoundSink(reports.append)]),
                strategy,
                contexts=ContextOptions(),
                rules=RoundRules(),
                state_dir=folder.name if name == "saving" else None,
            )
        messages = strategy.configure_train(1, model(100_000), ConfigRecord(), grid)
        for number in range(num_rounds):
            fake.true_s.clear()
            processor = time.process_time()
            started = time.monotonic()
            messages = strategy.configure_train(number + 1, model(100_000), ConfigRecord(), grid)
            list(grid.send_and_receive(messages))
            took = time.monotonic() - started
            if number:  # the first one compiles and asks for contexts
                sums.append((took - max(fake.true_s.values())) / took)
                if name == "ours":
                    own.append((time.process_time() - processor) / took)
    folder.cleanup()
    return {
        "share_beyond_the_slowest_node": statistics.mean(extra["ours"]),
        "worst_share": max(extra["ours"]),
        "share_when_every_round_is_saved": statistics.mean(extra["saving"]),
        "share_of_a_stock_loop_of_0.1_s": statistics.mean(extra["flower"]),
        "processor_share": statistics.mean(own),
    }


def selecting(num_nodes: int = 10_000, cohort_size: int = 100, repeats: int = 15) -> dict[str, float]:
    """Time from the wish to train to the chosen nodes, with fresh contexts of 10,000 nodes in hand."""
    fake = TimedGrid(num_nodes, lambda *_: 0.0)
    folder = tempfile.TemporaryDirectory()
    grid = SelectingGrid(
        fake,
        Selector(RBCSF(V=5.0, beta=0.005), cohort_size=cohort_size),
        None,
        contexts=ContextOptions(fresh_s=1e6),
        state_dir=folder.name,
    )
    rng = np.random.default_rng(0)
    now = time.monotonic()
    for node_id in fake.ids:
        context = NodeContext(f"n{node_id}", float(rng.uniform(0.1, 1.0)), float(rng.uniform(1e6, 1e8)))
        grid._roster._by_id[node_id] = Node(node_id, context, now)
        grid._roster._id_of[context.name] = node_id
    took = []
    for _ in range(repeats):
        started = time.perf_counter()
        choice = grid._desk.begin(grid._roster, 3.2e6).choice
        took.append(time.perf_counter() - started)
        grid.selector.observe(choice.round, times_s=dict.fromkeys(choice.clients, 1.0))
    grid.release()
    folder.cleanup()
    return {
        "median_s": statistics.median(took[1:]),
        "worst_s": max(took[1:]),
        "first_s": took[0],
    }


def exactness(num_nodes: int = 100, num_rounds: int = 5) -> dict[str, float]:
    """Measured minus true exchange times, with a busy processor beside."""
    rng = random.Random(1)
    fake = TimedGrid(num_nodes, lambda *_: rng.uniform(0.05, 3.0))
    reports: list[Any] = []
    strategy = FedAvg(fraction_evaluate=0.0)
    selector = Selector(RBCSF(beta=0.0), cohort_size=num_nodes, observers=[RoundSink(reports.append)])
    grid = SelectingGrid(fake, selector, strategy, contexts=ContextOptions())
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            np.sort(np.random.default_rng(0).random(10_000))

    worker = threading.Thread(target=work)
    worker.start()
    errors: list[float] = []
    try:
        for number in range(num_rounds):
            messages = strategy.configure_train(number + 1, model(10_000), ConfigRecord(), grid)
            list(grid.send_and_receive(messages))
            errors += [time_s - fake.true_s[name] for name, time_s in reports[-1].times_s.items()]
    finally:
        stop.set()
        worker.join()
    sizes = sorted(abs(error) for error in errors)
    return {
        "worst_s": sizes[-1],
        "median_s": statistics.median(sizes),
        "mean_s": statistics.mean(errors),
        "measured": len(errors),
    }


def main() -> None:
    """Measure everything and publish it."""
    session = Session("flower", __doc__, seed="0 and 1")
    quick = session.parser.parse_args().quick
    identify()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    beyond = overhead(num_rounds=3 if quick else 12)
    choice = selecting(repeats=3 if quick else 15)
    exact = exactness(num_rounds=1 if quick else 5)
    about = "share of a round beyond the slowest node's time, 100 nodes, cohort 20, rounds of two seconds"
    rows = [
        Row(about, 100.0 * beyond["share_beyond_the_slowest_node"], "%", "grid-overhead"),
        Row(
            f"{about}, every round saved",
            100.0 * beyond["share_when_every_round_is_saved"],
            "%",
            "grid-overhead",
        ),
        Row(
            "the same share in Flower's own loop for simulations", 100.0 * beyond["share_of_a_stock_loop_of_0.1_s"], "%"
        ),
        Row("choosing among 10,000 nodes with fresh contexts", 1e3 * choice["median_s"], "ms", "grid-choice"),
        Row(
            "choosing among 10,000 nodes, longest", 1e3 * max(choice["worst_s"], choice["first_s"]), "ms", "grid-choice"
        ),
        Row(
            f"greatest error of {exact['measured']:.0f} exchange times, beside a busy thread",
            1e3 * exact["worst_s"],
            "ms",
            "grid-exactness",
        ),
    ]
    session.publish(
        rows,
        notes=[f"Flower {metadata.version('flwr')}"],
        extra={"overhead_100_nodes": beyond, "selecting_10000_nodes": choice, "exactness_100_nodes": exact},
    )


if __name__ == "__main__":
    main()
