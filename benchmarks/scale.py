"""A million clients: a long run, decisions beside FedScale's Oort, and who is available at an instant.

Run as ``python -m benchmarks.scale``.  FedScale is installed on first use, from the Python index, into an environment
of its own under ``build/peers``.  With ``--data-dir`` or ``FEDROSTER_DATA`` a folder ``fedscale`` in it gives the
devices of a second long run and a second look-up.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.flash import convert
from benchmarks.peers.environments import make, python_of
from benchmarks.rows import Row, Session
from benchmarks.timing import interleaved
from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.estimation.utility import PacerState
from fedroster.lab.worlds.availability import look_up
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.networks.flat import FlatNetwork
from fedroster.policies.oort import Oort, OortState
from fedroster.policies.rbcs_f import RBCSF
from fedroster.simulation import simulate

MILLION = 1_000_000
ROUNDS_BEFORE = 30  # of RBCS-F, before its decision is timed
LEARNED = 500  # rounds that Oort has played, of a cohort of 1,000: half of the clients are explored
FEDSCALE = "FedScale's Oort"


# -------------------------------------------------------------------- a long run


def peak_memory_gib() -> float:
    """Most memory that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says is no less than the memory of the process that started this one
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def play(traces: str, num_rounds: int, cohort_size: int) -> tuple[float, float, float]:
    """Seconds, peak memory of the process (GiB) and clients that took part; alone in its process."""
    network = TraceNetwork(num_clients=MILLION, cohort_size=cohort_size, traces=traces)
    policy = RBCSF(V=20.0, beta=0.5 * cohort_size / MILLION)
    start = time.perf_counter()
    seen = np.zeros(MILLION, np.bool_)
    for played in simulate(policy, network, rounds=num_rounds, seed=0):
        seen[played.context.clients_of(played.selection.links)] = True
    seconds = time.perf_counter() - start
    return seconds, peak_memory_gib(), float(seen.mean())


def long_run(traces: str, num_rounds: int) -> Iterator[Row]:
    """1,000 rounds at a million clients; compilation included where it is not cached."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        seconds, peak_gib, reached = pool.submit(play, traces, num_rounds, 1000).result()
    devices = "FLASH and FedScale devices" if traces else "calibrated devices"
    what = f"{num_rounds:,} rounds, N = 1,000,000, k = 1,000, RBCS-F, {devices}"
    # A shorter run is for trying the benchmark out.
    whole = num_rounds == 1000
    yield Row(what, seconds, "s", "traces-time" if whole else "")
    yield Row(f"{what}: peak memory ({reached:.0%} of the clients took part)", peak_gib, "GiB", "traces-memory")


# -------------------------------------------------------------------- decisions


def learned(num_clients: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Utility, time and round of the last participation (0 for none) of clients after many rounds."""
    rng = np.random.default_rng(11)
    reward = rng.gamma(2.0, 10.0, num_clients) + 1.0
    duration = rng.lognormal(2.0, 0.8, num_clients)
    stamp = np.where(rng.random(num_clients) < 0.5, rng.integers(1, LEARNED + 1, num_clients), 0)
    return reward, duration, stamp


def oort(num_clients: int, cohort_size: int) -> Callable[[], Selection]:
    """Our Oort, everybody available, half of them explored."""
    reward, duration, stamp = learned(num_clients)
    explored = stamp > 0
    state = OortState(
        exploration=0.3,
        pacer=PacerState(30.0, 0.0, 0, 0.0, 0.0),
        utility=np.where(explored, reward, 0.0),
        time_s=np.where(explored, duration, 0.0),
        last=stamp,
        measured=stamp,
        count=explored.astype(np.int64),
        exploited=np.zeros(num_clients, np.bool_),
    )
    context = RoundContext(
        round=LEARNED + 1,
        features=np.column_stack((duration, np.ones((num_clients, 2)))),
        available=np.ones(num_clients, np.bool_),
        cohort_size=cohort_size,
    )
    policy = Oort()
    policy.check(ProblemSpec(num_clients=num_clients, cohort_size=cohort_size, num_features=3))
    rng = np.random.default_rng(3)
    return lambda: policy.select(state, context, rng=rng)


def rbcs_f(num_clients: int, cohort_size: int) -> Callable[[], Selection]:
    """RBCS-F, everybody available, with the queues that it has brought about itself."""
    network = FlatNetwork(num_clients=num_clients, cohort_size=cohort_size, availability=1.0)
    policy = RBCSF(V=20.0, beta=0.5 * cohort_size / num_clients)
    *_, last = simulate(policy, network, rounds=ROUNDS_BEFORE, seed=1)
    rng = np.random.default_rng(3)
    context, _ = network.observe(last.environment_state, ROUNDS_BEFORE + 1, rng=rng)
    return lambda: policy.select(last.policy_state, context, rng=rng)


class FedScale:
    """FedScale's Oort in a process of its own."""

    def __init__(self, num_clients: int, cohort_size: int) -> None:
        """Install it if need be, start it, and tell it what was learned.

        Args:
            num_clients: N.
            cohort_size: k.
        """
        self.failure = make("fedscale")
        self.seconds: list[float] = []
        if self.failure:
            return
        arguments = {
            "exploration_factor": 0.3,
            "exploration_decay": 0.98,
            "exploration_min": 0.3,
            "exploration_alpha": 0.3,
            "round_threshold": 30.0,
            "round_penalty": 2.0,
            "pacer_step": 20,
            "pacer_delta": 5.0,
            "clip_bound": 0.95,
            "cut_off_util": 0.95,
            "blacklist_rounds": -1,
            "blacklist_max_len": 0.3,
            "sample_window": 5.0,
        }
        settings = {"arguments": arguments, "round": LEARNED, "cohort_size": cohort_size}
        reward, duration, stamp = learned(num_clients)
        self._folder = tempfile.TemporaryDirectory()
        known = Path(self._folder.name) / "known.npz"
        np.savez(known, reward=reward, duration=duration, stamp=stamp, settings=json.dumps(settings))
        self._log = Path(self._folder.name) / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(python_of("fedscale")), "-m", "benchmarks.peers.run_fedscale_oort", str(known)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.settings = f"numpy {self._answer().get('numpy')}"

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            text = self._log.read_text(errors="replace").strip().splitlines()
            self.failure = f"does not run here: {text[-1] if text else 'no message'}"
            return {}
        found: dict[str, object] = json.loads(line)
        return found

    def select(self) -> None:
        """Let it choose once, and note how long it took itself."""
        if self.failure:
            return
        assert self._process.stdin is not None
        self._process.stdin.write("next\n")
        self._process.stdin.flush()
        self.seconds.append(float(str(self._answer().get("seconds", "nan"))))

    def stop(self) -> None:
        """End it."""
        if hasattr(self, "_process"):
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout=60)
            self._folder.cleanup()


def decisions(cohort_size: int, repeats: int) -> Iterator[Row]:
    """RBCS-F and our Oort beside FedScale's, in turn."""
    peer = FedScale(MILLION, cohort_size)
    try:
        works: dict[str, Callable[[], object]] = {
            "rbcs-f": rbcs_f(MILLION, cohort_size),
            "oort": oort(MILLION, cohort_size),
            "fedscale": peer.select,
        }
        medians = interleaved(works, repeats=repeats, warmup=1)
    finally:
        peer.stop()
    theirs = statistics.median(peer.seconds[1:]) * 1e3 if peer.seconds[1:] and not peer.failure else None
    for name, what, target in (("rbcs-f", "RBCS-F", "fedscale-rbcs-f"), ("oort", "our Oort", "fedscale-oort")):
        yield Row(
            what=f"{what} chooses, N = 1,000,000, k = {cohort_size:,}, everybody available",
            ours=medians[name] * 1e3,
            unit="ms",
            target=target,
            peer=theirs,
            peer_name=FEDSCALE,
            reason=f"{FEDSCALE} {peer.failure}" if theirs is None else "",
        )


# -------------------------------------------------------------------- availability


def availability(traces: str, repeats: int) -> Row:
    """Who of a million clients is there at an instant, and for how long still; a new instant each time."""
    network = TraceNetwork(num_clients=MILLION, traces=traces)
    state = network.init(rng=np.random.default_rng(5))
    instants = iter(np.random.default_rng(6).uniform(0.0, 6e6, 1000).tolist())
    values = np.random.default_rng(0).random(MILLION)
    works: dict[str, Callable[[], object]] = {
        "sort": lambda: np.sort(values),
        "look up": lambda: look_up(state.table, state.fleet.device, state.fleet.shift_s, next(instants)),
    }
    medians = interleaved(works, repeats=repeats)
    devices = "300 FLASH devices" if traces else "calibrated devices"
    return Row(
        what=f"availability of 1,000,000 clients at one instant, {devices}",
        ours=medians["look up"] * 1e3,
        unit="ms",
        target="availability",
        peer=medians["sort"] * 1e3,
        peer_name="np.sort of 1,000,000 float64",
    )


def main() -> None:
    """Measure everything and publish it."""
    session = Session("scale", __doc__, seed="0 for the long run, 0-11 for decisions and instants")
    session.parser.add_argument("--rounds", type=int, help="of the long run, by default 1,000")
    given = session.parser.parse_args()
    rounds = given.rounds or (10 if given.quick else 1000)
    records = None if given.data_dir is None else Path(given.data_dir) / "fedscale"
    with tempfile.TemporaryDirectory() as folder:
        real = [] if records is None or not records.is_dir() else [str(convert(records, Path(folder)))]
        sources = ["", *real]
        rows = [row for traces in sources for row in long_run(traces, rounds)]
        for cohort_size in (100, 1000):
            rows += decisions(cohort_size, repeats=1 if given.quick else 7)
        rows += [availability(traces, repeats=3 if given.quick else 21) for traces in sources]
    session.publish(rows)


if __name__ == "__main__":
    main()
