"""A deployment to which bad things happen, with a log that every node keeps for itself.

python run.py faults --out /tmp/faults

Eight nodes, TLS and node authentication; RBCS-F on fedroster's grid, then FedAvg's own sampling, with the same faults.
At the end stands a table of what nodes logged against what the selector counted, and of the time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from run import Federation, deployment, make_node_key, start_node

ROLES = ("steady", "killed, later stopped", "fails", "malformed", "steady", "leaves, new id", "late", "lies")
"""What nodes do, by number; a small federation has the first of them."""
HONEST = frozenset({"steady", "killed, later stopped", "leaves, new id"})
SAMPLINGS = ("rbcs-f", "fedavg")


@dataclass(frozen=True)
class Setting:
    """Of one comparison.

    Attributes:
        num_nodes: Nodes, with the first of :data:`ROLES`.
        cohort_size: Nodes of a round.
        num_rounds: Rounds that must be aggregated.
        pace_s: Time of a training.
        deadline_s: Of a round, and of an evaluation.
        beta: Rate that is promised.
        V: What a second weighs.
        away_s: How long a node is down or stopped.
        limit_s: Longest time of a run.
    """

    num_nodes: int = 8
    cohort_size: int = 3
    num_rounds: int = 30
    pace_s: float = 1.0
    deadline_s: float = 15.0
    beta: float = 0.15
    V: float = 0.1
    away_s: float = 25.0
    limit_s: float = 1200.0

    def node_settings(self, number: int, journal: Path) -> str:
        """What a node's configuration holds beyond the usual."""
        role = ROLES[number]
        extra_s = {"late": self.deadline_s + 5.0, "lies": 2.0 * self.pace_s}.get(role, 0.0)
        fault = role if role in ("fails", "malformed", "lies", "late") else ""
        lie = "bandwidth-bps=1e12 " if role == "lies" else ""
        return f'{lie}fault="{fault}" extra-s={extra_s} journal="{journal}"'


def rows_of(path: Path) -> list[dict]:
    """Rows of a log; a last one that is being written is left out."""
    if not path.exists():
        return []
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")
    ]


# ---------------------------------------------------------------- what is done to it


@dataclass
class Trouble:
    """Does bad things to a federation, at certain rounds, and starts its server app again whenever it ends.

    Attributes:
        federation: Whom they happen to.
        setting: Of the comparison.
        config: Of the app.
        folder: Of the run.
        events: What happened: time and words.
        away: For each node, times at which it went and came back.
        ends: How often the server app ended by itself before all rounds were done.
        timers: What is still to be done, and when.
        patience_s: Until when the kill waits for a training.
    """

    federation: Federation
    setting: Setting
    config: dict[str, object]
    folder: Path
    events: list[tuple[float, str]] = field(default_factory=list)
    away: dict[int, list[float]] = field(default_factory=dict)
    ends: int = 0
    timers: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    patience_s: float = 0.0

    def plan(self) -> list[tuple[int, Callable[[], None]]]:
        """What happens after how many rounds."""
        at = lambda share: max(1, round(share * self.setting.num_rounds))  # noqa: E731
        plan = [(at(0.1), self.kill_node), (at(0.3), self.stop_node), (at(0.5), self.kill_server)]
        plan += [(at(0.87), self.kill_superlink)]
        if self.setting.num_nodes > ROLES.index("leaves, new id"):
            plan += [(at(0.6), self.leave), (at(0.75), self.come_back)]
        return sorted(plan, key=lambda each: each[0])

    def note(self, words: str) -> None:
        """Remember and print what happened."""
        self.events.append((time.time(), words))
        print(
            f"{time.strftime('%H:%M:%S')} {self.config['sampling']}, {len(self.rounds())} rounds: {words}", flush=True
        )

    def rounds(self) -> list[dict]:
        """Rounds of training that were aggregated."""
        return [row for row in rows_of(self.folder / "rounds.jsonl") if row["kind"] == "train"]

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something after a while."""
        self.timers.append((time.monotonic() + seconds, what))

    def went(self, number: int) -> None:
        """A node is gone."""
        self.away.setdefault(number, []).append(time.time())

    came = went

    def start(self, number: int) -> None:
        """Start a node again, with the key that is there.

        Flower refuses a node whose key is still connected, for half a minute after a SIGKILL; see :meth:`try_again`.
        """
        start_node(
            self.federation,
            number,
            self.setting.num_nodes,
            self.federation.fleet_port,
            data=self.federation.folder / "data" / f"node-{number}.npz",
            more=self.setting.node_settings(number, self.journal(number)),
        )
        self.came(number)

    def try_again(self) -> None:
        """Start the nodes that ended by themselves, as a service manager does; they were not there meanwhile."""
        for number in range(self.setting.num_nodes):
            process = self.federation.processes.get(f"node-{number}")
            if process is not None and process.poll() is not None:
                self.federation.stop(f"node-{number}")
                moments = self.away.setdefault(number, [])
                if moments and len(moments) % 2 == 0:
                    moments.pop()  # it did not come back then
                elif not moments:
                    moments.append(time.time())
                self.note(f"node-{number} was not let in, or ended; it tries again")
                self.later(5.0, lambda number=number: self.start(number))

    def is_training(self, number: int) -> bool:
        """Whether a node's own log ends with the start of a training."""
        own = rows_of(self.journal(number))
        return bool(own) and (own[-1]["kind"], own[-1]["event"]) == ("train", "start")

    def journal(self, number: int) -> Path:
        """A node's own log."""
        return self.folder / f"node-{number}.jsonl"

    def kill_node(self) -> None:
        """SIGKILL while it trains, or after a minute in which it did not, and a start after a while."""
        self.patience_s = self.patience_s or time.monotonic() + 60.0
        is_away = len(self.away.get(1, [])) % 2 == 1
        if is_away or (not self.is_training(1) and time.monotonic() < self.patience_s):
            self.later(0.1, self.kill_node)
            return
        self.federation.stop("node-1")
        self.went(1)
        self.note("SIGKILL for node-1")
        self.later(self.setting.away_s, lambda: (self.start(1), self.note("node-1 starts again")))

    def stop_node(self) -> None:
        """SIGSTOP, once it is there, and SIGCONT after a while."""
        if len(self.away.get(1, [])) % 2 or "node-1" not in self.federation.processes:
            self.later(1.0, self.stop_node)
            return
        group = self.federation.processes["node-1"].pid
        os.killpg(group, signal.SIGSTOP)
        self.went(1)
        self.note("SIGSTOP for node-1")

        def resume() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)
            self.came(1)
            self.note("SIGCONT for node-1")

        self.later(self.setting.away_s, resume)

    def kill_server(self) -> None:
        """SIGKILL for the server app in the middle of a round, and a start at once."""

        def kill() -> None:
            for process in self.federation.processes_of("flwr-serverapp"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.federation.stop("run")
            self.note("SIGKILL for the server app, and it starts again")
            self.federation.launch(self.config)

        self.later(self.setting.deadline_s / 4.0, kill)

    def kill_superlink(self) -> None:
        """SIGKILL for the SuperLink and all that it started, and a start at once; nodes connect again by themselves."""

        def kill() -> None:
            self.federation.stop("superlink")
            self.federation.stop("run")
            self.note("SIGKILL for the SuperLink and the server app, and both start again")
            self.federation.start_superlink(self.federation.fleet_port)
            self.federation.launch(self.config)

        self.later(self.setting.deadline_s / 4.0, kill)

    def leave(self) -> None:
        """A node stops, and is taken off the SuperLink's list."""
        self.federation.stop("node-5", signal.SIGTERM)
        self.went(5)
        if self.federation.ties_names:
            self.federation.tell("supernode", "unregister", self.federation.node_ids["node-5"], "here")
        self.note("node-5 leaves, and its id is taken off the list")

    def come_back(self) -> None:
        """It comes back with a new key, and so under a new id; a key that was on the list is not taken again."""
        if self.federation.ties_names:
            make_node_key(self.federation.folder / "keys", "node-5")
            self.federation.register("node-5", "--name", "node-5")
        self.start(5)
        self.note("node-5 comes back with a new key, under a new id")

    def play(self) -> float:
        """Run until all rounds are done, or the time is over; returns the seconds."""
        plan, began = self.plan(), time.monotonic()
        self.federation.launch(self.config)
        while time.monotonic() - began < self.setting.limit_s:
            done = len(self.rounds())
            if (self.folder / "result.json").exists():
                break
            while plan and done >= plan[0][0]:
                plan.pop(0)[1]()
            for timer in [each for each in self.timers if each[0] <= time.monotonic()]:
                self.timers.remove(timer)
                timer[1]()
            self.try_again()
            if self.federation.processes["run"].poll() is not None and not (self.folder / "result.json").exists():
                self.ends += 1
                self.federation.stop("run")
                self.note(f"the run has ended by itself ({self.last_error()}), and it starts again")
                self.federation.launch(self.config)
            time.sleep(0.2)
        return time.monotonic() - began

    def last_error(self) -> str:
        """The last line of the server's log that names an exception."""
        log = self.federation.log_of("run").read_text(encoding="utf-8", errors="replace").splitlines()
        named = [line for line in log if "Error" in line or "Exception" in line or "Inconsistent" in line]
        return named[-1].strip()[:160] if named else "no exception in its log"


def play(sampling: str, setting: Setting, out: Path) -> dict:
    """Play one way of sampling in a deployment of its own, and return what it came to."""
    folder = (out / sampling).resolve()
    folder.mkdir(parents=True, exist_ok=False)
    config = {
        "sampling": sampling,
        "out": str(folder),
        "num-rounds": setting.num_rounds,
        "num-nodes": setting.num_nodes,
        "cohort-size": setting.cohort_size,
        "deadline-s": setting.deadline_s,
        "evaluate-every": max(2, setting.num_rounds // 3),
        "beta": setting.beta,
        "V": setting.V,
        "pace-s": setting.pace_s,
        "slow-share": 0.0,
    }
    trouble = Trouble(None, setting, config, folder)
    more = {n: setting.node_settings(n, trouble.journal(n)) for n in range(setting.num_nodes)}
    with deployment(folder / "flower", num_nodes=setting.num_nodes, settings_of=more) as federation:
        trouble.federation = federation
        app = (federation.app / "pyproject.toml").read_text(encoding="utf-8")
        app = app.replace("server_app:app", "trouble_server:app").replace("client_app:app", "trouble:app")
        app = app.replace("[tool.flwr.app.config]\n", "[tool.flwr.app.config]\nevaluate-every = 10\n")
        (federation.app / "pyproject.toml").write_text(app, encoding="utf-8")
        seconds = trouble.play()
        time.sleep(1.0)  # nodes that still train end their logs
    story = {
        "seconds": seconds,
        "ends": trouble.ends,
        "events": trouble.events,
        "away": {str(number): times for number, times in trouble.away.items()},
    }
    (folder / "story.json").write_text(json.dumps(story, indent=1), encoding="utf-8")
    return story


# ---------------------------------------------------------------- the table


def rounds_there(rounds: Sequence[Mapping], away: Sequence[float]) -> int:
    """Rounds at whose end a node was there, given the times at which it went and came back in turn."""
    return sum(sum(moment <= row["at"] for moment in away) % 2 == 0 for row in rounds)


def node_rows(folder: Path, setting: Setting) -> list[dict]:
    """What each node logged, and what the selector counted of it."""
    rounds = [row for row in rows_of(folder / "rounds.jsonl") if row["kind"] == "train"]
    story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
    path = folder / "result.json"
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = []
    for n in range(setting.num_nodes):
        own = [row for row in rows_of(folder / f"node-{n}.jsonl") if row["kind"] == "train"]
        starts = [row for row in own if row["event"] == "start"]
        there = rounds_there(rounds, story["away"].get(str(n), []))
        rows.append(
            {
                "node": f"node-{n}",
                "role": ROLES[n],
                "there": there,
                "starts": len(starts),
                "rounds": len({row["round"] for row in starts}),
                "ended": sum(row["event"] == "end" for row in own),
                "ids": len({row["node_id"] for row in starts}),
                "kinds": len({row["spoiled"] for row in own if "spoiled" in row}),
                **{what: counts.get(what, {}).get(f"node-{n}") for what in ("chosen", "trained", "used")},
            }
        )
    return rows


def disagreements(folder: Path, setting: Setting) -> list[str]:
    """Where a report of a round and the nodes' own logs do not agree, in words."""
    found = []
    reports = rows_of(folder / "reports.jsonl")
    for n in range(setting.num_nodes):
        own = rows_of(folder / f"node-{n}.jsonl")
        began = {row["round"] for row in own if row["kind"] == "train" and row["event"] == "start"}
        told = {row["round"]: row["status"][f"node-{n}"] for row in reports if f"node-{n}" in row["status"]}
        found += [f"round {r}: node-{n} trained and was not chosen" for r in sorted(began - set(told))]
        found += [
            f"round {r}: node-{n} was chosen and did not begin ({told[r] or 'no answer'})"
            for r in sorted(set(told) - began)
        ]
    return found


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return lines + ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]


def summary(out: Path, samplings: Sequence[str], setting: Setting) -> str:
    """The tables, in Markdown."""
    lines, times = [], []
    for sampling in samplings:
        folder = out / sampling
        rounds = rows_of(folder / "rounds.jsonl")
        trained = [row for row in rounds if row["kind"] == "train"]
        asked = [row for row in rounds if row["kind"] == "evaluate"]
        story = json.loads((folder / "story.json").read_text(encoding="utf-8"))
        result = folder / "result.json"
        accuracy = json.loads(result.read_text(encoding="utf-8"))["accuracy"] if result.exists() else None
        nodes = node_rows(folder, setting)
        of = "rounds" if sampling == "fedavg" else "chosen"
        rates = [(row[of] or 0) / max(1, row["there"]) for row in nodes if row["role"] in HONEST]
        times.append(
            [
                sampling,
                len(trained),
                f"{sum(row['s'] for row in trained[1:]) / max(1, len(trained) - 1):.1f} s",
                f"{sum(row['s'] for row in asked) / len(asked):.1f} s" if asked else None,
                f"{story['seconds']:.0f} s",
                story["ends"],
                sum(row["used"] for row in trained),
                sum(row["used"] == 0 for row in trained),
                f"{min(rates):.2f}",
                None if accuracy is None else f"{accuracy:.3f}",
            ]
        )
        own = ("starts", "rounds", "ended")
        ours = () if sampling == "fedavg" else ("chosen", "trained", "used")
        head = ["node", "what it does", "rounds there", "own log: starts", "in rounds", "ended"]
        head += [f"counted: {what}" for what in ours]
        body = [[row["node"], row["role"], row["there"], *(row[key] for key in (*own, *ours))] for row in nodes]
        lines += ["", f"**{sampling}**", "", *_table(head, body)]
        if ours:
            wrong = disagreements(folder, setting)
            lines += ["", f"Rounds in which logs and reports differ: {len(wrong)}", *(f"- {each}" for each in wrong)]
            lines += [f"Kinds of malformed replies that were sent: {sum(row['kinds'] for row in nodes)}"]
    head = ["sampling", "rounds", "mean round", "mean evaluation", "in all", "ended by itself"]
    head += ["updates used", "rounds without one", "least rate, honest nodes", "accuracy"]
    words = f"Flower {metadata.version('flwr')}, {os.cpu_count()} processors ({platform.machine()}), load "
    words += ", ".join(f"{load:.1f}" for load in os.getloadavg()) + f"; {setting}"
    return "\n".join([words, "", *_table(head, times), *lines])


def main(arguments: Sequence[str]) -> None:
    """Read the command line, run, and print the table, which is also written to ``table.md``."""
    usual = Setting()
    parser = argparse.ArgumentParser(prog="run.py faults", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for logs, keys, reports and the table")
    parser.add_argument("--nodes", type=int, choices=range(4, len(ROLES) + 1), default=usual.num_nodes)
    parser.add_argument("--cohort", type=int, default=usual.cohort_size)
    parser.add_argument("--rounds", type=int, default=usual.num_rounds)
    parser.add_argument("--deadline", type=float, default=usual.deadline_s, help="seconds; longer on a busy machine")
    parser.add_argument("--limit", type=float, default=usual.limit_s, help="seconds that one run may take")
    parser.add_argument("--samplings", nargs="+", choices=SAMPLINGS, default=list(SAMPLINGS))
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    setting = Setting(
        num_nodes=given.nodes,
        cohort_size=given.cohort,
        num_rounds=given.rounds,
        deadline_s=given.deadline,
        limit_s=given.limit,
    )
    for sampling in given.samplings:
        play(sampling, setting, given.out)
    played = [sampling for sampling in SAMPLINGS if (given.out / sampling / "story.json").exists()]
    text = summary(given.out, played, setting)
    (given.out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
