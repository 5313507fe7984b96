"""Time to accuracy of whole rounds, of the first k of m, and of buffered training, with several policies.

``python examples/asynchronous/compare.py --out runs/asynchronous`` plays all runs, and goes on where it was stopped.
Then it draws ``asynchronous.svg`` and prints the table of docs/explanation/places.md.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import numpy as np
from buffered import buffered
from world import World, added, difference, measured

from fedroster import Selector, make_policy, make_scenario
from fedroster.lab.pages.charts import colour_of, dash_of, finished, table
from fedroster.lab.pages.looks import looks_of
from fedroster.lab.task import Task
from fedroster.types import AnyPolicy, Streams

SCENARIOS = {"rbcs-f/table-1": (8, 6, 4, 1200.0), "traces/devices": (20, 16, 10, 14400.0)}
"""m, the first k that a round waits for, updates of a buffer, and simulated seconds."""
POLICIES = {
    "random": ("random", "random"),
    "FLOOR": ("floor:beta={beta}", "floor:beta={beta}"),
    "RBCS-F": ("rbcs-f:V=20,beta={beta}", "rbcs-f:V={per_place},beta={beta}"),  # V against one place, not m
    "Oort": ("oort", "oort"),
}
BETAS = {"rbcs-f/table-1": 0.1, "traces/devices": 0.01}
MODES = ("whole rounds", "first k of m", "buffered")


def rounds(
    policy: AnyPolicy, world: World, trainer, *, cohort_size: int, first: int, seed: int, until_s: float
) -> Iterator[tuple[float, dict, Selector]]:
    """The same in rounds that end with the first so many updates."""
    streams = Streams(seed)
    selector = Selector(policy, cohort_size=cohort_size, clients=world.clients, seed=seed)
    model, now_s = trainer.init(rng=streams.at("model")), 0.0
    while now_s < until_s:
        contexts, outcome = world.look(selector.round + 1, now_s)
        cohort = selector.select(contexts)
        if cohort.is_empty:
            now_s += world.idle_s
            continue
        world.begin(cohort.clients)
        times_s = {client: float(outcome.exchange_time_s[client]) for client in cohort.clients}
        order = sorted(cohort.clients, key=times_s.__getitem__)
        answers = [client for client in order if outcome.responds[client]]
        used = answers[:first]
        round_s = times_s[used[-1]] if len(used) == first else max(times_s.values())
        losses = {}
        if used:
            updates = trainer.train(model, np.array(used), round=cohort.round, streams=streams)
            trained, losses = updates.parameters, measured(used, updates)
            rows = [{name: values[row : row + 1] for name, values in trained.items()} for row in range(len(used))]
            model = added(model, [(1.0, difference(row, model)) for row in rows])
        dropped = [client for client in order if client not in answers]
        told = {client: times_s[client] for client in answers}
        longest_s = max(told.values(), default=round_s)
        outcome_of = {"late": answers[first:], "dropped": dropped, "round_s": longest_s}
        selector.observe(cohort.round, times_s=told, **outcome_of, **losses)
        now_s += round_s
        yield now_s, model, selector


def play(scenario: str, label: str, mode: str, seed: int) -> dict:
    """One run: accuracy over time, and how often each client was chosen."""
    size, first, buffer, until_s = SCENARIOS[scenario]
    text = POLICIES[label][mode == "buffered"].format(beta=BETAS[scenario], per_place=20 / size)
    world = World(make_scenario(scenario), seed=seed)
    trainer = Task("digits").trainer(num_clients=len(world.clients), seed=seed, measure_losses="before")
    policy, curve, selector = make_policy(text), [], None
    if mode == "buffered":
        run = buffered(policy, world, trainer, concurrency=size, buffer=buffer, seed=seed, until_s=until_s)
    else:
        k = first if mode == "first k of m" else size
        run = rounds(policy, world, trainer, cohort_size=size, first=k, seed=seed, until_s=until_s)
    for time_s, model, asked in run:
        curve.append((time_s, trainer.evaluate(model).accuracy))
        selector = asked
    chosen = selector.participation(as_array=True)
    owed = selector.backlog(as_array=True)
    return {
        "curve": curve[:: max(1, len(curve) // 400)],
        "updates": len(curve),
        "places": int(chosen.sum()),
        "least": int(chosen.min()),
        "due": BETAS[scenario] * int(chosen.sum()) / size,
        "owed": float(owed.max()) if owed.size else None,
    }


def reached(curve: list[tuple[float, float]], target: float) -> float:
    """First time from which three tests in a row are good enough, seconds."""
    for at in range(len(curve) - 2):
        if min(accuracy for _, accuracy in curve[at : at + 3]) >= target:
            return curve[at][0]
    return float("inf")


def report(folder: Path, runs: dict) -> None:
    """Draw the picture and print the table."""
    rows = []
    for scenario in SCENARIOS:
        finals = [
            run["curve"][-1][1]
            for (s, label, mode, _), run in runs.items()
            if (s, label, mode) == (scenario, "random", MODES[0])
        ]
        target = 0.95 * float(np.mean(finals)) if finals else 0.0
        print(f"\n{scenario}, target {target:.3f}\n| policy | {' | '.join(MODES)} |")
        for label in POLICIES:
            cells = []
            for mode in MODES:
                mine = [run for key, run in runs.items() if key[:3] == (scenario, label, mode)]
                for number, run in enumerate(mine):
                    panel = {"label": label, "scenario": scenario, "mode": mode, "run": number}
                    rows += [panel | {"time": time_s, "accuracy": accuracy} for time_s, accuracy in run["curve"]]
                times = [reached(run["curve"], target) for run in mine]
                least, due = (np.mean([run[name] for run in mine]) if mine else np.nan for name in ("least", "due"))
                cells.append(f"{np.mean(times) if times else np.nan:.0f} s; {least:.1f} of {due:.1f}")
            print(f"| {label} | {' | '.join(cells)} |")
    looks = looks_of({label: text.partition(":")[0] for label, (text, _) in POLICIES.items()})
    lines = (
        alt.Chart(table(*rows), width=260, height=200)
        .mark_line(strokeWidth=1)
        .encode(
            x=alt.X("time:Q", title="simulated time, s", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("accuracy:Q", title=None),
            color=colour_of(looks, columns=4),
            strokeDash=dash_of(looks),
            detail="run:N",
        )
    )
    panels = lines.facet(row=alt.Row("scenario:N", sort=list(SCENARIOS)), column=alt.Column("mode:N", sort=list(MODES)))
    whole = panels.resolve_scale(x="independent", y="independent")
    finished(whole, "", "test accuracy").save(folder / "asynchronous.svg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/asynchronous"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs = {}
    for scenario in SCENARIOS:
        for seed in range(options.seeds):
            for label in POLICIES:
                for mode in MODES:
                    file = options.out / f"{scenario.replace('/', '-')}_{label}_{mode}_{seed}.json".replace(" ", "-")
                    if not file.exists():
                        file.write_text(json.dumps(play(scenario, label, mode, seed)))
                        print(file.name, flush=True)
                    runs[scenario, label, mode, seed] = json.loads(file.read_text())
    report(options.out, runs)
