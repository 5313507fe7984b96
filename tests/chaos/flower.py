"""Flower's faults on a grid with scripted nodes: nothing ends a run, and the counts are those of the nodes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from chaos.rows import Row

_WHAT = "scripted nodes of which a third fails, lies, vanishes or answers nonsense"
_HONEST, _FAULTY, _COHORT, _ROUNDS = 8, 4, 4, 25


def run(size: float, seed: int) -> list[Row]:
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    sys.path.insert(0, str(Path(__file__).parents[1] / "adapters" / "flower"))
    rows = [
        Row(f"Flower: {_WHAT}"),
        Row("Flower: a server that is killed and started again in such a fleet"),
        Row("Flower: such a fleet under each wrapper for differential privacy, with absent nodes"),
    ]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import flwr.serverapp.strategy  # noqa: F401
    except ModuleNotFoundError:
        for row in rows:
            row.note = "not tried: Flower is not installed (.ci/flower makes an environment with it)"
        return rows
    with contextlib.suppress(ModuleNotFoundError):  # a process that Flower starts knows who it is
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    logging.disable(logging.CRITICAL)
    for number in range(max(3, round(60 * size))):
        _run(rows[0], seed + number)
    for number in range(max(3, round(40 * size))):
        _killed(rows[1], seed + number)
    for number in range(max(4, round(40 * size))):
        _private(rows[2], seed + number)
    return [row.done() for row in rows]


def _spoilers() -> list[Any]:
    """What replies may hold that they should not."""
    from flwr.app import Array, ConfigRecord, MetricRecord

    def metric(name: str, value: Any) -> Any:
        def spoil(content: Any) -> None:
            content["metrics"][name] = value

        return spoil

    def each(change: Any) -> Any:
        def spoil(content: Any) -> None:
            for key in list(content["arrays"]):
                content["arrays"][key] = change(content["arrays"][key])

        return spoil

    def claim(**parts: Any) -> Any:
        usual = ("dtype", "shape", "stype", "data")
        return each(lambda array: Array(**({name: getattr(array, name) for name in usual} | parts)))

    def value(change: Any) -> Any:
        return each(lambda array: Array(change(array.numpy())))

    def drop(name: str) -> Any:
        return lambda content: content.pop(name, None)

    def no_weight(content: Any) -> None:
        content["metrics"].pop("num-examples", None)

    spoilers = [metric("num-examples", wrong) for wrong in (-10, 0, [1, 2], float("nan"), float("inf"), 1e300, -1e-300)]
    spoilers += [metric("loss", wrong) for wrong in (float("nan"), [0.1], 1e308)] + [metric("more", 1.0), no_weight]
    spoilers += [value(change) for change in (
        lambda a: a.astype(complex), lambda a: a.astype(np.int8), lambda a: a > 0, lambda a: a * np.nan,
        lambda a: a[:1], lambda a: a.astype("U3"), lambda a: a[..., None], lambda a: a * np.inf,
        lambda a: np.zeros(0), lambda a: a.astype(np.float16),
    )]  # fmt: skip
    spoilers += [claim(**wrong) for wrong in (
        {"dtype": "object"}, {"data": b"x"}, {"data": b""}, {"dtype": ""}, {"stype": "pickle"},
        {"shape": (10**9, 10**9)}, {"dtype": "float64\x00"}, {"data": b"\x93NUMPY" + b"\xff" * 100},
    )]  # fmt: skip
    spoilers += [drop("arrays"), drop("metrics"), lambda content: [content.pop(name, None) for name in list(content)]]
    spoilers += [lambda content: content.update({"x": ConfigRecord({"a": "b" * 10**6})})]
    spoilers += [lambda content: content.update({f"m{n}": MetricRecord({"a": n}) for n in range(500)})]
    return spoilers


_FATES: tuple[Any, ...] = (
    "error", "garbage", "nan", "shape", "stray", "twice", "silent", "expired", "unreported",
    "metrics", "ok", 0.01, 40.0,
)  # fmt: skip


def _fleet(rng: np.random.Generator) -> dict[int, Any]:
    from fake_grid import FakeNode

    nodes = {100 + n: FakeNode(f"n{n:02d}", delay_s=float(rng.uniform(0.5, 3.0))) for n in range(_HONEST)}
    spoilers = _spoilers()
    for n in range(_HONEST, _HONEST + _FAULTY):
        fates = tuple(
            _FATES[rng.integers(len(_FATES))] if rng.random() < 0.4 else spoilers[rng.integers(len(spoilers))]
            for _ in range(60)
        )
        odd: list[dict[str, Any]] = [{"cpu-share": wrong} for wrong in (-1.0, float("nan"), 1e300, "much")]
        odd += [{}, {"name": "n00"}]
        nodes[100 + n] = FakeNode(
            f"n{n:02d}", delay_s=float(rng.uniform(0.1, 3.0)), fate=fates, config=dict(odd[rng.integers(len(odd))]),
            answers_queries=bool(rng.random() < 0.8), query_delay_s=float(rng.choice([0.05, 3.0, 12.0])),
        )  # fmt: skip
    return nodes


def _grid(fake: Any, reports: list[Any], strategy: Any, **options: Any) -> Any:
    from fake_grid import held

    from fedroster import RBCSF, Selector
    from fedroster.adapters.flower import ContextOptions, RoundRules, RoundSink, SelectingGrid

    def make(**more: Any) -> Any:
        sink = RoundSink(reports.append)
        return SelectingGrid(
            fake, Selector(RBCSF(V=1.0, beta=0.05), cohort_size=_COHORT, observers=[sink]), strategy,
            contexts=ContextOptions(), rules=RoundRules(deadline_s=15.0), clock=fake.clock, **more,
        )  # fmt: skip

    return held(make, **options) if options else make()


def _played(row: Row, nodes: dict[int, Any], strategy: Any, seed: int) -> list[Any]:
    """A run that no fault may end; its reports."""
    from fake_grid import Clock, FakeGrid, model

    fake, reports, case = FakeGrid(Clock(), nodes), list[Any](), f"{type(strategy).__name__}, seed {seed}"
    row.tries += 1
    begin = time.perf_counter()
    try:
        grid = _grid(fake, reports, strategy)
        result = strategy.start(grid=grid, initial_arrays=model(), num_rounds=_ROUNDS)
    except Exception as error:
        row.error(error, f"a fault ended the run, {case}, round {len(reports)}")
        return reports
    row.timed(begin)
    if len(reports) != _ROUNDS:
        row.fault(f"{len(reports)} reports of {_ROUNDS} rounds, {case}")
    if not all(np.isfinite(array.numpy()).all() for array in result.arrays.values()):
        row.fault(f"the model is not finite, {case}")
    _counts(row, grid, fake, seed)
    return reports


def _run(row: Row, seed: int) -> None:
    from flwr.serverapp.strategy import FedAdam, FedAvg

    from fedroster.core.problem import Status

    strategy = (FedAvg, FedAdam)[seed % 2](fraction_evaluate=0.0)
    reports = _played(row, _fleet(np.random.default_rng(seed)), strategy, seed)
    failed = {name for report in reports for name, how in report.status.items() if how is Status.FAILED}
    blamed = {name for name in failed if int(name[1:]) < _HONEST}
    if blamed:
        row.fault(f"honest nodes are refused: {sorted(blamed)}, seed {seed}")


def _private(row: Row, seed: int) -> None:
    """A wrapper is for as many updates as a round has; where nodes are absent, it must not end the run."""
    from flwr.serverapp import strategy as flower

    rng = np.random.default_rng([seed, 2])
    nodes = _fleet(rng)
    for node_id in rng.choice(sorted(nodes), 3, replace=False):
        nodes[node_id].fate = tuple(rng.choice(["silent", "error", "expired", "ok"], 60))
    for node in nodes.values():
        node.metrics = {"norm_bit": 1}  # which the last wrapper needs
    wrapper = (
        flower.DifferentialPrivacyServerSideFixedClipping,
        flower.DifferentialPrivacyClientSideFixedClipping,
        flower.DifferentialPrivacyServerSideAdaptiveClipping,
        flower.DifferentialPrivacyClientSideAdaptiveClipping,
    )[seed % 4]
    fixed = {} if "Adaptive" in wrapper.__name__ else {"clipping_norm": 1.0}
    strategy = wrapper(flower.FedAvg(fraction_evaluate=0.0), 0.1, num_sampled_clients=_COHORT, **fixed)
    _played(row, nodes, strategy, seed)


def _counts(row: Row, grid: Any, fake: Any, seed: int) -> None:
    """What the selector counts against what was sent to each node."""
    sent: dict[str, int] = {}
    for _, message in fake.sent:
        if message.metadata.message_type.split(".")[0] == "train":
            name = fake.nodes[message.metadata.dst_node_id].name
            sent[name] = sent.get(name, 0) + 1
    counted = {name: count for name, count in grid.selector.participation().items() if count}
    both = [(name, counted.get(name, 0), sent.get(name, 0)) for name in {*sent, *counted}]
    unlike = [one for one in both if one[1] != one[2]]
    row.lose(len(unlike), f"counted and sent differ: {sorted(unlike)[:3]}, seed {seed}")


class Killed(BaseException):
    """The end of a server."""


def _killed(row: Row, seed: int) -> None:
    from fake_grid import Clock, FakeGrid, model
    from flwr.serverapp.strategy import FedAvg

    rng = np.random.default_rng([seed, 1])
    nodes = _fleet(rng)
    kills = 0
    sent: list[Any] = []
    begin = time.perf_counter()
    row.tries += 1
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock()
        for life in range(7):
            fake = FakeGrid(clock, nodes)
            fake.sent = sent
            fake._count = 10**6 * life
            reports: list[Any] = []
            strategy = FedAvg(fraction_evaluate=0.0)
            is_last = life == 6
            left = 10**9 if is_last else int(rng.integers(5, 150))
            usual = clock.sleep

            def sleep(seconds: float, usual: Any = usual) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Killed
                usual(seconds)

            clock.sleep = sleep  # type: ignore[method-assign]
            try:
                grid = _grid(fake, reports, strategy, state_dir=folder)
                strategy.start(grid=grid, initial_arrays=model(), num_rounds=3 if is_last else 8)
            except Killed:
                kills += 1
            except Exception as error:
                row.error(error, f"life {life} of seed {seed}")
                return
            finally:
                clock.sleep = usual  # type: ignore[method-assign]
        numbers = [report.round for report in reports]
        if numbers != sorted(set(numbers)):
            row.fault(f"rounds {numbers}, seed {seed}")
        chosen = sum(grid.selector.participation().values())
        training = [(when, m.metadata) for when, m in sent if m.metadata.message_type.split(".")[0] == "train"]
        starts = len({(about.dst_node_id, when) for when, about in training})
        if chosen > starts or chosen < starts - _COHORT * kills:
            row.lose(
                abs(starts - chosen), f"{starts} trainings were sent, {chosen} are counted, {kills} kills, seed {seed}"
            )
    row.timed(begin)
