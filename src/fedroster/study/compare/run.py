"""Policies compared over seeds, with real federated training or without."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.catalogue import (
    DEFAULT_SCENARIO,
    find_scenario,
    make_policy,
    make_scenario,
    policy_text,
    scenario_text,
)
from fedroster.core.errors import ConfigurationError, PausedError
from fedroster.core.protocols import AnyPolicy
from fedroster.federation.locks import FolderLock
from fedroster.study.compare.contrasts import focus_of
from fedroster.study.compare.line_up import line_up
from fedroster.study.compare.result import Comparison
from fedroster.study.compare.tables import Settings
from fedroster.study.rehearsal import rehearse
from fedroster.study.run import Done, provenance, run_trials
from fedroster.study.store import clients_table, read_json, rounds_table
from fedroster.study.trial import Conditions
from fedroster.task import Task

Progress = Callable[[float, int, str], None]
"""Told how many runs are done, parts of runs included, of how many, and which is played now."""


def compare(
    policies: Sequence[str | AnyPolicy] = (),
    scenario: str = DEFAULT_SCENARIO,
    *,
    seeds: int | Sequence[int] = 5,
    rounds: int | None = None,
    task: str | Task | None = None,
    focus: str | AnyPolicy = "",
    against: Sequence[str | AnyPolicy] = (),
    folder: str | Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    **more: Any,
) -> Comparison:
    """Play every policy with every seed in a scenario.

    Args:
        policies: Policies, such as ``Floor()``, or their texts, such as ``"rbcs-f:V=5"``; "all" for every policy that
            can run.  If empty, those that suit the scenario.  A class of the main program or of a notebook runs in this
            process; one of a module that can be imported runs on all cores.
        scenario: Scenario, such as "rbcs-f/table-1".
        seeds: Seeds, or how many: 0, 1, 2, ...
        rounds: Rounds T; None for the scenario's own number.
        task: What is trained, such as "digits"; None for no training.
        focus: Policy that the page is about; if empty, one of your own, else one of fedroster's, else the first.
        against: Policies that the others are tested against; if empty, ``random`` and the policy in focus.
        folder: Where finished runs are kept, and tables, figures and page are written; a killed comparison continues.
            None to keep nothing.
        progress: Called now and then with the number of finished runs, of all runs, and the current run.
        workers: Runs at the same time; None for one for each core.
        **more: Of :func:`~fedroster.study.compare.line_up.line_up`: target_accuracy, without, clients, beta, settings,
            command; and of :func:`~fedroster.study.run.run_trials`: engine, conditions.

    Raises:
        UnknownNameError: If there is no such scenario, policy, parameter or task.
        ConfigurationError: If a value is out of its range, a policy cannot run in the scenario, or ``folder`` belongs
            to another comparison.
        InUseError: If another process writes there.
        PausedError: If the time was up first; the same call continues.

    Example:
        >>> import fedroster
        >>> found = fedroster.compare([fedroster.Floor(), "random"], seeds=2, rounds=20)
        >>> found.frame.select("policy", "seed", "mean_round_time_s").shape
        (4, 3)
        >>> found.summary()["policy"].to_list()
        ['floor', 'random']
    """
    where = {name: more.pop(name) for name in ("engine", "conditions") if name in more}
    settings = line_up(
        scenario,
        [policies] if isinstance(policies, str) else policies,
        seeds=seeds,
        rounds=rounds,
        task=Task(task) if isinstance(task, str) else task,
        focus=focus,
        against=against,
        **more,
    )
    settings.check()
    if folder is None:
        return play(settings, None, progress=progress, workers=workers, **where)
    with held(Path(folder)):
        found = play(settings, Path(folder), progress=progress, workers=workers, **where)
        found.report(folder)
    return found


def simulate_many(
    policies: Sequence[str | AnyPolicy] = (),
    scenario: str = DEFAULT_SCENARIO,
    *,
    seeds: int | Sequence[int] = 5,
    rounds: int = 500,
    settings: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    record: Path | None = None,
    **options: Any,
) -> Comparison:
    """Play every policy with every seed without training, with parameters as they are given.

    If the scenario names an optimal policy, it is played, too: regret is measured against it.

    Args:
        policies: Policies or their texts; if empty, random and two or three that suit the scenario.
        scenario: Scenario, such as "rbcs-f/table-1".
        seeds: Seeds, or how many: 0, 1, 2, ...
        rounds: Rounds T.
        settings: Parameters of the scenario that are overridden, as text.
        progress: Called now and then with the number of finished runs, of all runs, and the current run.
        record: Folder for the log of the run, or with several policies and seeds for a folder of each; None for none.
        **options: Of :func:`~fedroster.study.run.run_trials`: workers, engine.

    Raises:
        UnknownNameError: If there is no such scenario, policy or parameter.
        ConfigurationError: If a value is out of its range, or a policy cannot run in the scenario.

    Example:
        >>> import fedroster
        >>> found = fedroster.simulate_many(["random", "round-robin"], "rbcs-f/table-1", seeds=3, rounds=20)
        >>> found.frame.height
        6
    """
    scenario, entry, changed = scenario_text(scenario), find_scenario(scenario), dict(settings or {})
    environment = make_scenario(scenario, changed)
    asked = [policies] if isinstance(policies, str) else policies or entry.policies
    texts = list(dict.fromkeys(policy_text(policy) for policy in asked))
    for text in texts:
        rehearse(text, scenario, environment)
    focus = focus_of(texts)
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if record is not None:
        options["conditions"] = Conditions(records=_records(record, [(text, seed) for text in texts for seed in seeds]))
    texts += [entry.optimal] if entry.optimal and entry.optimal not in texts else []
    planned = Settings(
        scenario=scenario,
        settings=changed,
        policies=texts,
        seeds=seeds,
        rounds=rounds,
        omniscient=[text for text in texts if make_policy(text).omniscient],
        against=[texts[0]],
        focus=focus,
        optimal=entry.optimal,
        yardstick=entry.yardstick,
    )
    planned.check()
    return play(planned, None, progress=progress, **options)


def _records(folder: Path, runs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Path]:
    """The folder of each run's log: ``folder`` itself for one run.

    Raises:
        ConfigurationError: If there are files in one.
    """
    names = {run: re.sub(r"[^\w.=-]+", "-", f"{run[0]}-seed-{run[1]}") for run in runs}
    folders = {run: folder / name if len(runs) > 1 else folder for run, name in names.items()}
    for place in folders.values():
        if place.exists() and (not place.is_dir() or any(place.glob("rounds-*.jsonl*"))):
            raise ConfigurationError(f"{str(place)!r} holds a log, or is a file; expected an empty folder")
    return folders


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made if it is not there; InUseError says which process holds it already."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    try:
        yield
    finally:
        lock.release()


def play(settings: Settings, folder: Path | None, *, progress: Progress | None = None, **options: Any) -> Comparison:
    """Play what is checked, and write its tables into a folder that is held; None to write nothing.

    Finished runs are kept in ``folder/trials``.  Options are those of :func:`~fedroster.study.run.run_trials`.
    """
    if folder is not None:
        _check_folder(folder, settings)
    trials = settings.trials()
    left = dict(enumerate(trials))

    def advance(rounds: int) -> None:
        if progress is not None:
            now = next(iter(left.values()), None)
            progress(rounds / settings.rounds, len(trials), "" if now is None else f"{now.policy}, seed {now.seed}")

    finished: list[Done] = []
    for done in run_trials(trials, folder=None if folder is None else folder / "trials", progress=advance, **options):
        finished.append(done)
        left.pop(done.index)
    if left:
        raise PausedError.of(len(finished), len(trials))
    finished.sort(key=lambda done: (settings.policies.index(done.trial.policy), done.index))
    runs = [(done.trial, done.run) for done in finished]
    # What has prices is known by its runs: an environment need not say it before.
    settings = dataclasses.replace(
        settings,
        has_prices=any(bool(np.isfinite(run.budget).any()) for _, run in runs),
        machine={**settings.machine, "code": provenance(finished)},
    )
    found = Comparison(settings, rounds_table(runs), clients_table(runs))
    if folder is not None:
        found.write(folder)
    return found


def _check_folder(folder: Path, settings: Settings) -> None:
    """Refuse a folder that holds another comparison; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if not known.exists():
        return
    found, wanted = read_json(known), asdict(settings)
    for name in ("scenario", "settings", "rounds", "rate", "task"):
        if found.get(name) != wanted[name]:
            raise ConfigurationError(
                f"{folder} holds a comparison with {name} = {found.get(name)!r}; expected {wanted[name]!r}: choose "
                "another folder or delete it"
            )
