"""The recipes of docs/how-to/monitor.md, each with its package; where runs are kept elsewhere, with its types."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedroster import RBCSF, Selector
from fedroster.engine.report import RoundSink

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "monitor.md"
DASHBOARD = ROOT / "examples" / "monitoring" / "grafana.json"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the docs are not part of this distribution")


def recipe(name: str) -> str:
    blocks = re.findall(r"^```\{code-block\} python\n:caption: ([^\n]+)\n\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    (code,) = [code for caption, code in blocks if caption.startswith(name)]
    return str(code)


def play(name: str) -> dict[str, Any]:
    """Run a recipe's code, then two rounds in which one client answers and one is lost; its names."""
    names: dict[str, Any] = {}
    exec(compile(recipe(name), f"{PAGE} ({name})", "exec"), names)
    sink = RoundSink(names["show"])
    selector = Selector(RBCSF(beta=0.1), cohort_size=2, clients=["a", "b"], observers=[sink])
    for _ in range(2):
        cohort = selector.select()
        selector.observe(cohort.round, times_s={"a": 1.0}, dropped=["b"], round_s=3.0)
    return names


def test_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry, served = prometheus.CollectorRegistry(), []
    for kind in ("Gauge", "Counter"):
        made = getattr(prometheus, kind)
        monkeypatch.setattr(prometheus, kind, lambda *what, made=made: made(*what, registry=registry))
    monkeypatch.setattr(prometheus, "start_http_server", lambda port, addr: served.append((port, addr)))
    play("Prometheus")
    assert served == [(9464, "127.0.0.1")]
    value = registry.get_sample_value
    assert (value("fedroster_round"), value("fedroster_round_s")) == (2.0, 3.0)
    assert value("fedroster_participation_rate", {"node": "b"}) == 1.0
    assert value("fedroster_exchanges_total", {"outcome": "lost"}) == 2.0
    assert value("fedroster_exchange_seconds", {"node": "a"}) == 1.0
    assert value("fedroster_exchange_seconds", {"node": "b"}) is None


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    if not DASHBOARD.exists():
        pytest.skip("the example is not part of this distribution")
    reports: list[Any] = []
    selector = Selector(RBCSF(beta=0.1), cohort_size=1, clients=["a"], observers=[RoundSink(reports.append)])
    selector.observe(selector.select().round, times_s={"a": 1.0})
    shown = {f"fedroster_{name}" for name in reports[0].metrics()}
    for kind, name in re.findall(r'(Counter|Gauge)\("(fedroster_\w+)"', recipe("Prometheus")):
        shown.add(f"{name}_total" if kind == "Counter" else name)
    targets = [target for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]
    asked = {name for target in targets for name in re.findall(r"fedroster_\w+", target["expr"])}
    assert len(asked) >= 9
    assert asked <= shown


def test_open_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, sdk = pytest.importorskip("opentelemetry.metrics"), pytest.importorskip("opentelemetry.sdk.metrics")
    reader = pytest.importorskip("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
    monkeypatch.setattr(metrics, "get_meter", sdk.MeterProvider([reader]).get_meter)
    play("OpenTelemetry")
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    shown = {metric.name: metric.data.data_points[0].value for metric in scope.metrics}
    assert (shown["fedroster_round"], shown["fedroster_round_s"]) == (2, 3.0)
    assert "fedroster_select_s" not in shown  # nothing measured it


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch.utils.tensorboard", reason="needs PyTorch and TensorBoard")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.chdir(tmp_path)
    play("TensorBoard")["writer"].close()
    events = accumulators.EventAccumulator(str(tmp_path / "runs" / "fedroster")).Reload()

    def scalars(name: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in events.Scalars(f"fedroster/{name}")]

    assert scalars("round_s") == [(1, 3.0), (2, 3.0)]
    assert scalars("lost") == [(1, 1.0), (2, 1.0)]
    assert "fedroster/select_s" not in events.Tags()["scalars"]


def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="federation"):
        play("logging")
    assert "round=2 chosen=2 in_time=1 missed=0 lost=1" in caplog.text


def test_recipes_whose_runs_are_kept_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins take what is logged."""
    logged: list[tuple[dict[str, float], int]] = []

    def log(data: dict[str, float], step: int) -> None:
        logged.append((data, step))

    made = type("Run", (), {"log": staticmethod(log)})
    stand_ins = {"wandb": {"init": lambda project: made()}, "mlflow": {"start_run": made, "log_metrics": log}}
    for package, names in stand_ins.items():
        monkeypatch.setitem(sys.modules, package, module := ModuleType(package))
        vars(module).update(names)
    play("Weights & Biases")
    play("MLflow")
    assert [step for _, step in logged] == [1, 2, 1, 2]
    assert all(data["fedroster/round_s"] == 3.0 and math.isnan(data["fedroster/select_s"]) for data, _ in logged)


FEDROSTER = "class RoundReport:\n    round: int\n    def metrics(self) -> dict[str, float]: ...\n"
WANDB = """
class Run:
    def log(self, data: dict[str, object], step: int | None = ..., commit: bool | None = ...) -> None: ...
def init(entity: str | None = ..., project: str | None = ...) -> Run: ...
"""
MLFLOW = """
def start_run(run_id: str | None = ...) -> object: ...
def log_metrics(metrics: dict[str, float], step: int | None = ..., synchronous: bool | None = ...) -> object: ...
"""


def test_their_calls_have_the_types_of_the_packages(tmp_path, monkeypatch):
    """As in wandb 0.31 and mlflow 3.17."""
    api = pytest.importorskip("mypy.api")
    for name, stub in (("wandb", WANDB), ("mlflow", MLFLOW), ("fedroster", FEDROSTER)):
        (tmp_path / f"{name}.pyi").write_text(stub)
    typed = "from fedroster import RoundReport\ndef show(report: RoundReport) -> None:"
    for file, name in (("one.py", "Weights & Biases"), ("two.py", "MLflow")):
        (tmp_path / file).write_text(recipe(name).replace("def show(report):", typed))
    monkeypatch.chdir(tmp_path)
    said, errors, status = api.run(["--strict", "--config-file=", "--cache-dir=cache", "one.py", "two.py"])
    assert status == 0, said + errors
