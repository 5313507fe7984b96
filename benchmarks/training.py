"""Cohort training against plain PyTorch and the libraries that people use, in one run, and the round loop's overhead.

Run as ``python -m benchmarks.training``.  Every contender is a process of its own that stays alive; they play their
rounds in turn, so that a slow moment of the machine hits all.  Libraries are installed on first use, each into an
environment of its own under ``build/peers``.  With ``--data-dir`` or ``FEDROSTER_DATA`` the images are the real ones,
otherwise noisy patterns of the same size.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.peers.environments import LIBRARIES, make, python_of
from benchmarks.rows import Row, Session
from fedroster.core.arrays import IntArray, Model
from fedroster.core.errors import FedrosterError
from fedroster.core.parallel import num_threads
from fedroster.core.streams import Streams
from fedroster.lab.data.load import load_dataset
from fedroster.lab.federated import federate
from fedroster.lab.training.models import MODELS
from fedroster.lab.training.protocol import Evaluation, Updates
from fedroster.lab.training.tasks import TASKS, LocalTraining
from fedroster.networks.flat import FlatNetwork
from fedroster.policies.uniform import Uniform

PATIENCE_S = 120.0  # for a contender's answer
BUDGET_S = 180.0  # for the rounds of a workload; on a busy machine fewer are played, though never fewer than these:
LEAST_ROUNDS = 3

CONTENDERS: dict[str, tuple[str, ...]] = {
    "fedroster": ("run_fedroster",),
    "plain PyTorch loop": ("run_pytorch",),
    "channels-last loop": ("run_pytorch", "channels-last"),
    "flower": ("run_flower",),
    "fedjax": ("run_fedjax",),
    "pfl": ("run_pfl",),
    "matrix products": ("run_products",),
}
"""Module and further arguments of each; those that are names of libraries run in the library's environment."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload.

    Attributes:
        name: Its name in the project's targets.
        task: Data, model and local training.
        num_clients: Clients that have data.
        cohort_size: Clients of a round.
        repeats: Counted rounds of each contender.
        targets: Names of the targets, by peer.
        peers: Who plays it beside fedroster.
    """

    name: str
    task: LocalTraining
    num_clients: int
    cohort_size: int
    repeats: int
    targets: Mapping[str, str]
    peers: Sequence[str]


_LIBRARIES = ("plain PyTorch loop", "channels-last loop", "flower", "fedjax", "pfl")
_LIMITED = ("plain PyTorch loop", "matrix products")
CASES = (
    Case(
        "W1",
        TASKS["fashion-mnist"],
        40,
        8,
        9,
        {"plain PyTorch loop": "w1-loop", "flower": "w1-flower"},
        (*_LIBRARIES, "matrix products"),
    ),
    Case(
        "W2", TASKS["mnist-logistic"], 50, 10, 15, {"plain PyTorch loop": "w2-loop", "flower": "w2-flower"}, _LIBRARIES
    ),
    Case("W3", TASKS["cifar-10"], 40, 8, 5, {}, _LIMITED),
    Case("W4", TASKS["cifar-10-small"], 40, 8, 9, {}, _LIMITED),
)


def images(case: Case, folder: Path | None) -> tuple[Any, IntArray, str]:
    """Images and labels of a workload, and what they are."""
    try:
        data = load_dataset(case.task.dataset, folder=folder)
    except FedrosterError:
        rng = np.random.default_rng(0)
        labels = rng.integers(10, size=20_000)
        shape = (3, 32, 32) if case.task.dataset == "cifar-10" else (1, 28, 28)
        patterns = rng.random((10, *shape), np.float32)
        noise = rng.random((labels.shape[0], *shape), np.float32)
        return 0.5 * patterns[labels] + 0.5 * noise, labels, "noisy patterns"
    return data.train_x, data.train_y, data.name


def write_workload(case: Case, folder: Path, data_dir: Path | None) -> str:
    """Write what the contenders read; returns what the images are."""
    x, y, what = images(case, data_dir)
    rng = np.random.default_rng(1)
    held = [rng.choice(x.shape[0], case.task.samples_per_client, replace=False) for _ in range(case.num_clients)]
    np.save(folder / "x.npy", np.ascontiguousarray(x, np.float32))
    np.save(folder / "y.npy", y.astype(np.int64))
    np.save(folder / "partition.npy", np.stack(held))
    settings = {
        "model": case.task.model,
        "epochs": case.task.epochs,
        "batch_size": case.task.batch_size,
        "learning_rate": case.task.learning_rate,
    }
    (folder / "workload.json").write_text(json.dumps(settings))
    return what


class Contender:
    """A process that plays a round for every line it is sent."""

    def __init__(self, name: str, workload: Path) -> None:
        """Start it.

        Args:
            name: One of :data:`CONTENDERS`.
            workload: Folder of the workload.
        """
        self.failure = make(name) if name in LIBRARIES else ""
        self.seconds: list[float] = []
        self.settings = ""
        if self.failure:
            return
        script, *more = CONTENDERS[name]
        python = python_of(name) if name in LIBRARIES else Path(sys.executable)
        self._log = (workload / f"{name}.log").open("w")
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.{script}", str(workload), *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        answer = self._answer()
        self.settings = str(answer.get("settings", ""))

    def _answer(self) -> dict[str, Any]:
        """The next line that the process prints; empty and :attr:`failure` set if there is none in time."""
        assert self._process.stdout is not None
        watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.wait()
        self._log.flush()
        lines = [text.strip() for text in Path(self._log.name).read_text(errors="replace").splitlines() if text.strip()]
        wrong = [text for text in lines if "Error" in text] or lines or ["no message"]
        self.failure = f"does not run here: {wrong[-1][:160]}"
        return {}

    def play(self, number: int, clients: list[int], *, counted: bool) -> None:
        """Let it play a round.

        Args:
            number: The round.
            clients: Who takes part.
            counted: Whether its time counts.
        """
        if self.failure:
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"round": number, "clients": clients}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._answer()
        if answer and counted:
            self.seconds.append(float(answer["seconds"]))

    def stop(self) -> None:
        """End the process."""
        if not hasattr(self, "_process"):
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._log.close()


def measure(
    case: Case, names: list[str], data_dir: Path | None, repeats: int
) -> tuple[dict[str, float], dict[str, str], str]:
    """Median milliseconds per client update of each contender, notes on each, and what the images are."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        what = write_workload(case, folder, data_dir)
        contenders: dict[str, Contender] = {}
        try:
            for name in names:
                contenders[name] = Contender(name, folder)
            rng = np.random.default_rng(2)
            start = time.perf_counter()
            for turn in range(repeats + 2):
                if turn >= 2 + LEAST_ROUNDS and time.perf_counter() - start > BUDGET_S:
                    break
                clients = rng.choice(case.num_clients, case.cohort_size, replace=False).tolist()
                for contender in contenders.values():
                    contender.play(turn, clients, counted=turn >= 2)
        finally:
            for contender in contenders.values():
                contender.stop()
    medians = {
        name: statistics.median(found.seconds) / case.cohort_size * 1e3
        for name, found in contenders.items()
        if found.seconds
    }
    notes = {name: found.failure or found.settings for name, found in contenders.items()}
    return medians, notes, what


class _Instant:
    """A trainer that has its answer ready: what is left of a round is the loop."""

    def __init__(self, case: Case) -> None:
        named = {name: value.detach().numpy() for name, value in MODELS[case.task.model]().named_parameters()}
        self._parameters = named
        size = case.cohort_size
        self._updates = Updates(
            parameters={name: np.repeat(value[None], size, axis=0) for name, value in named.items()},
            num_samples=np.full(size, case.task.samples_per_client, np.int64),
            loss_before=np.full(size, np.nan),
        )

    def init(self, *, rng: Generator) -> Model:
        return self._parameters

    def train(self, parameters: Model, clients: IntArray, /, *, round: int, streams: Streams) -> Updates:
        return self._updates

    def evaluate(self, parameters: Model, /) -> Evaluation:
        return Evaluation(accuracy=0.0, loss=0.0)


def loop_overhead(case: Case, *, num_rounds: int = 30) -> float:
    """Median seconds of a round of ``federate`` in which training takes no time: network, policy, aggregation."""
    network = FlatNetwork(num_clients=case.num_clients, cohort_size=case.cohort_size)
    played = federate(Uniform(), network, _Instant(case), rounds=num_rounds, seed=0, evaluate_every=10**6)
    times = []
    last = time.perf_counter()
    for _ in played:
        now = time.perf_counter()
        times.append(now - last)
        last = now
    return statistics.median(times[3:])


def main() -> None:
    """Measure everything and publish it."""
    session = Session("training", __doc__, seed="0-2")
    session.parser.add_argument("--only", nargs="*", choices=CONTENDERS, default=list(CONTENDERS), help="contenders")
    session.parser.add_argument(
        "--cases", nargs="*", choices=[case.name for case in CASES], default=[case.name for case in CASES]
    )
    given = session.parser.parse_args()
    rows: list[Row] = []
    notes = [
        f"{name} {os.environ.get(name, 'not set')}, {num_threads()} threads"
        for name in ("OMP_NUM_THREADS", "OPENBLAS_CORETYPE")
    ]
    for case in CASES:
        if case.name not in given.cases:
            continue
        peers = [peer for peer in case.peers if peer in given.only]
        repeats = 1 if given.quick else case.repeats
        medians, found, what = measure(case, ["fedroster", *peers], given.data_dir, repeats)
        ours = medians["fedroster"]
        for peer in peers:
            target = case.targets.get(peer, "")
            about = f"{case.name}, {case.task.model} on {what}: time of a client update"
            if peer in medians:
                rows.append(Row(about, ours, "ms", target, medians[peer], peer))
            elif target:
                rows.append(Row(about, ours, "ms", target, reason=f"{peer} {found[peer]}"))
        if case.name == "W1":
            round_ms = ours * case.cohort_size
            rows.append(Row("the round loop's overhead", 1e3 * loop_overhead(case), "ms", "loop", round_ms, "W1 round"))
        notes += [f"{case.name}, {name}: {note}" for name, note in found.items() if note]
    session.publish(rows, notes=notes)


if __name__ == "__main__":
    main()
