"""Six sites, two of them slow, in FLARE's simulator and as processes on this machine.

python run.py simulator --out DIR   FLARE's FedAvg, then the same with RBCS-F
python run.py tree --out DIR        the same, with COCS: two sites are edge servers and aggregate for the others
python run.py poc --out DIR         real processes; one site raises, one is late, one is killed, and so is the server
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

from digits_task import ROLES, accuracy  # noqa: E402

DEADLINE_S, BETA = 6.0, 0.1


def rows_of(path: Path) -> list[dict]:
    """Rows of a log; a last one that is being written is left out."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


# ---------------------------------------------------------------- the simulator


def simulate(kind: str, out: Path, num_rounds: int, pace_s: float) -> dict[str, float]:
    """Play a job in FLARE's simulator; returns the mean round in seconds and the least rate."""
    import controller_app
    from nvflare.job_config.api import FedJob

    log = out / f"{kind}.jsonl"
    log.unlink(missing_ok=True)
    job = FedJob(name=kind.lower(), min_clients=len(ROLES))
    job.to_server(getattr(controller_app, kind)(num_clients=2, num_rounds=num_rounds, log=str(log)))
    job.to_clients(controller_app.Digits(pace_s=pace_s, slow=4.0), tasks=["train"])
    job.simulator_run(str(out / f"{kind}-workspace"), n_clients=len(ROLES), threads=len(ROLES), log_config="concise")
    rows = rows_of(log)
    starts, ends = rows[::2], rows[1::2]
    seconds = [end["at"] - start["at"] for start, end in zip(starts, ends, strict=True)]
    counts = [sum(f"site-{n + 1}" in start["clients"] for start in starts) for n in range(len(ROLES))]
    return {"mean_s": float(np.mean(seconds)), "least_rate": min(counts) / num_rounds, "rounds": len(seconds)}


def in_simulator(out: Path, num_rounds: int, pace_s: float) -> None:
    """Compare FLARE's own sampling with a policy."""
    print("\n| rounds chosen by | mean round, s | least rate | promise |\n| --- | --- | --- | --- |")
    for kind, promise in (("OwnFedAvg", "none"), ("FairFedAvg", f"{BETA:g}")):
        told = simulate(kind, out, num_rounds, pace_s)
        print(f"| {kind} | {told['mean_s']:.2f} | {told['least_rate']:.3f} | {promise} |", flush=True)


def as_tree(out: Path, num_rounds: int, pace_s: float) -> None:
    """Let two sites aggregate for the others, and print who called whom."""
    from nvflare.recipe import SimEnv

    recipe = make_recipe(out, num_rounds, pace_s, "tree_app")
    recipe.execute(SimEnv(num_clients=len(ROLES), num_threads=len(ROLES), workspace_root=str(out / "workspace")))
    rounds = rows_of(out / "rounds.jsonl")
    print("\n| site | what it does | assigned to site-1, site-2 | called by them, own log | used |")
    print("| --- | --- | --- | --- | --- |")
    for number, role in enumerate(ROLES[2:], start=2):
        site = f"site-{number + 1}"
        own = [row["caller"] for row in rows_of(out / f"{site}.jsonl")]
        assigned = [sum(row["edges"].get(site) == edge for row in rounds) for edge in ("site-1", "site-2")]
        used = sum(row["status"].get(site) == "COMPLETED" for row in rounds)
        called = f"{own.count('site-1')}, {own.count('site-2')}"
        print(f"| {site} | {role} | {assigned[0]}, {assigned[1]} | {called} | {used} |")
    with np.load(out / "model.npz") as model:
        seconds = np.median([row["seconds"] for row in rounds])
        print(f"\n{len(rounds)} rounds, median {seconds:.2f} s, accuracy {accuracy(dict(model)):.3f}")


# ---------------------------------------------------------------- real processes


class Poc:
    """FLARE's server and sites as processes of this machine."""

    def __init__(self, out: Path) -> None:
        """Provision and start them."""
        os.environ["NVFLARE_POC_WORKSPACE"] = str(out / "poc")
        from nvflare.recipe import PocEnv

        self.env, self.home = PocEnv(num_clients=len(ROLES)), out / "poc"

    def kill(self, who: str, program: str = "python") -> int:
        """Kill the processes of a site or the server; FLARE's start script starts them again.

        Args:
            who: The site, or "server"; empty for all.
            program: Only those of this program.

        Returns:
            How many there were.
        """
        import psutil

        killed = 0
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or [""]
            if program in words[0] and any(word.startswith(f"{self.home}/") and f"/{who}" in word for word in words):
                process.kill()
                killed += 1
        return killed

    def stop(self) -> None:
        """Stop all processes; FLARE does not stop a server that was killed during a job."""
        self.env.stop()
        self.kill("", "bash")
        self.kill("")

    def submit(self, recipe) -> str:
        """Submit a job to the processes that run, and return its id."""
        for _ in range(30):
            try:
                return self.env._get_session_manager().submit_job(recipe.finalize())
            except Exception as error:  # the server is still starting
                print(f"not submitted yet ({type(error).__name__})", flush=True)
                self.env._session_manager = None
                time.sleep(3.0)
        raise RuntimeError("the server does not come back")


def make_recipe(out: Path, num_rounds: int, pace_s: float, name: str = "collab_app"):
    """A job, as a data scientist submits it."""
    from nvflare.collab.recipe import CollabRecipe

    module = importlib.import_module(name)

    recipe = CollabRecipe("digits", server=module, client=module, min_clients=len(ROLES), sync_task_timeout=120)
    settings = {
        "out": str(out),
        "V": 0.1,
        "beta": BETA,
        "cohort_size": 2,
        "deadline_s": DEADLINE_S,
        "num_rounds": num_rounds,
    }
    recipe.set_server_prop("settings", settings)
    recipe.set_client_prop("site", {"out": str(out), "pace_s": pace_s, "slow": 4.0, "late_s": DEADLINE_S + 4.0})
    return recipe


def as_processes(out: Path, num_rounds: int, pace_s: float, limit_s: float) -> None:
    """Play a job among processes, some of which are killed, and print what each site's own log says."""
    poc, started = Poc(out), time.monotonic()
    job = poc.env.deploy(make_recipe(out, num_rounds, pace_s).finalize())
    plan = [(num_rounds // 4, "site-2"), (num_rounds // 2, "server")]
    try:
        while (done := len(rows_of(out / "rounds.jsonl"))) < num_rounds and time.monotonic() - started < limit_s:
            if plan and done >= plan[0][0]:
                _, who = plan.pop(0)
                print(f"{done} rounds: {who} is killed, {poc.kill(who)} processes", flush=True)
                if who == "server":
                    time.sleep(20.0)
                    poc.env._session_manager = None
                    job = poc.submit(make_recipe(out, num_rounds, pace_s))
                    print(f"submitted again as {job}", flush=True)
            time.sleep(1.0)
    finally:
        poc.stop()
    print(table(out))


def disagreements(out: Path) -> list[str]:
    """Rounds in which a site's own log says other than the server's reports."""
    reports = {row["round"]: row for row in rows_of(out / "rounds.jsonl")}
    wrong = []
    for number in range(len(ROLES)):
        site = f"site-{number + 1}"
        began = {row["round"] for row in rows_of(out / f"{site}.jsonl")}
        chosen = {r for r, report in reports.items() if site in report["status"]}
        wrong += [f"round {r}: {site} trained and was not chosen" for r in sorted(began - chosen)]
        for r in sorted(chosen - began):
            how = reports[r]["status"][site] or "no answer"
            wrong.append(f"round {r}: {site} was chosen and did not begin ({how})")
    return wrong


def table(out: Path) -> str:
    """What the sites' own logs say beside what the selector counted."""
    resumed = sum(row["resumed"] for row in rows_of(out / "rounds.jsonl"))
    reports = list({row["round"]: row for row in rows_of(out / "rounds.jsonl")}.values())
    status: list[Mapping[str, str | None]] = [report["status"] for report in reports]
    lines = [
        "| site | what it does | own log: began | in rounds | chosen | used |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for number, role in enumerate(ROLES):
        site = f"site-{number + 1}"
        own = [row["round"] for row in rows_of(out / f"{site}.jsonl")]
        chosen = sum(site in each for each in status)
        used = sum(each.get(site) == "COMPLETED" for each in status)
        lines.append(f"| {site} | {role} | {len(own)} | {len(set(own))} | {chosen} | {used} |")
    rates = reports[-1]["rate"]
    seconds = np.array([report["seconds"] for report in reports])
    with np.load(out / "model.npz") as model:
        read = accuracy(dict(model))
    lines += [
        "",
        f"{len(reports)} rounds, {resumed} of them resumed; mean {seconds.mean():.2f} s; "
        f"least rate {min(rates.values()):.3f}, promise {BETA:g}; accuracy {read:.3f}",
        *(disagreements(out) or ["logs and counters agree in every round"]),
    ]
    return "\n".join(lines)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", choices=("simulator", "tree", "poc"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pace", type=float, default=1.0, help="time of a training, seconds")
    parser.add_argument("--limit", type=float, default=900.0, help="longest time among processes, seconds")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if args.where == "simulator":
        in_simulator(out, args.rounds, args.pace)
    elif args.where == "tree":
        as_tree(out, args.rounds, args.pace)
    else:
        as_processes(out, args.rounds, args.pace, args.limit)


if __name__ == "__main__":
    main()
