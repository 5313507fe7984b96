"""Policies compared over seeds in one scenario or several, with real federated training or without."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Unpack

import numpy as np

from fedroster.catalogue import (
    DEFAULT_SCENARIO,
    find_scenario,
    make_policy,
    make_scenario,
    policy_texts,
    scenario_text,
)
from fedroster.errors import ConfigurationError, InvalidInputError, PausedError
from fedroster.lab.compare.contrasts import focus_of
from fedroster.lab.compare.line_up import Asked, line_up, rehearse
from fedroster.lab.compare.result import Comparison, details_of
from fedroster.lab.compare.tables import Settings
from fedroster.lab.pages.report import Report, Section, Table, write_page
from fedroster.lab.task import Task
from fedroster.lab.trials.processes import in_processes
from fedroster.lab.trials.run import Done, Engine, Where, provenance, run_trials
from fedroster.lab.trials.store import clients_table, read_json, rounds_table
from fedroster.lab.trials.trial import ALONE, Conditions
from fedroster.parts import FolderLock, counted, refuse_links, suggests
from fedroster.types import AnyPolicy

Progress = Callable[[float, int, str], None]
"""Told how many runs are done, parts of runs included, of how many, and which is played now."""


@suggests
def compare(
    policies: Sequence[str | AnyPolicy] = (),
    scenario: str = DEFAULT_SCENARIO,
    *,
    seeds: int | Sequence[int] = 5,
    rounds: int | None = None,
    task: str | Task | None = None,
    target_accuracy: float = 0.9,
    focus: str | AnyPolicy = "",
    clients: int | None = None,
    beta: float | None = None,
    settings: Mapping[str, str] | None = None,
    folder: str | Path | None = None,
    command: str = "",
    progress: Progress | None = None,
    workers: int | None = None,
    engine: Engine = in_processes,
    conditions: Conditions = ALONE,
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
        target_accuracy: For the time to accuracy, in (0, 1).
        focus: Policy that the page is about; if empty, one of your own, else one of fedroster's, else the first.  The
            others are tested against it, and against ``random``.
        clients: Number of clients N; the cohort grows with them.  None for the scenario's.
        beta: Rate that is owed to every client, in (0, 1]; None to choose it.
        settings: Parameters of the scenario that are overridden, as text.
        folder: Where finished runs are kept, and tables, figures and page are written; a killed comparison continues.
            None to keep nothing.
        command: The command that makes it again, for the page.
        progress: Called now and then with the number of finished runs, of all runs, and the current run.
        workers: Runs at the same time; None for one for each core.
        engine: Where runs are played.
        conditions: Device, data sets and the end of the time.

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
    asked = Asked(
        [policies] if isinstance(policies, str) else policies,
        seeds,
        rounds,
        Task(task) if isinstance(task, str) else task,
        target_accuracy,
        focus,
        clients,
        beta,
        settings or {},
        command,
    )
    planned = line_up(scenario, asked)
    where: Where = {"workers": workers, "engine": engine, "conditions": conditions}
    if folder is not None:
        return compare_all([planned], Path(folder), progress=progress, **where)[0]
    planned.check()
    return _play(planned, None, progress=progress, **where)


@suggests
def simulate_many(
    policies: Sequence[str | AnyPolicy] = (),
    scenario: str = DEFAULT_SCENARIO,
    *,
    seeds: int | Sequence[int] = 5,
    rounds: int = 500,
    settings: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    record: str | Path | None = None,
    workers: int | None = None,
    engine: Engine = in_processes,
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
        workers: Runs at the same time; None for one for each core.
        engine: Where runs are played.

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
    texts = list(dict.fromkeys(policy_texts(asked)))
    for text in texts:
        rehearse(text, scenario, environment)
    focus = focus_of(texts)
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    conditions = ALONE
    if record is not None:
        conditions = Conditions(records=_records(Path(record), [(text, seed) for text in texts for seed in seeds]))
    texts += [entry.optimal] if entry.optimal and entry.optimal not in texts else []
    planned = Settings(
        scenario=scenario,
        settings=changed,
        policies=texts,
        seeds=seeds,
        rounds=rounds,
        omniscient=[text for text in texts if make_policy(text).omniscient],
        focus=focus,
        optimal=entry.optimal,
        yardstick=entry.yardstick,
    )
    planned.check()
    return _play(planned, None, progress=progress, workers=workers, engine=engine, conditions=conditions)


def _records(folder: Path, runs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Path]:
    """The folder of each run's log, ``folder`` itself for one run; ConfigurationError if one is not empty."""
    names = {run: re.sub(r"[^\w.=-]+", "-", f"{run[0]}-seed-{run[1]}") for run in runs}
    folders = {run: folder / name if len(runs) > 1 else folder for run, name in names.items()}
    if len({str(place).casefold() for place in folders.values()}) < len(folders):  # as other systems compare names
        raise ConfigurationError(f"{list(names.values())} would share a folder; expected policies whose names differ")
    for place in folders.values():
        if place.exists() and (not place.is_dir() or any(place.glob("rounds-*.jsonl*"))):
            raise ConfigurationError(f"{str(place)!r} holds a log, or is a file; expected an empty folder")
    return folders


def _play(
    settings: Settings, folder: Path | None, *, progress: Progress | None = None, **where: Unpack[Where]
) -> Comparison:
    """Play what is checked, and write its tables into a folder that is held; None to write nothing.

    Finished runs are kept in ``folder/trials``.
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
    kept = None if folder is None else folder / "trials"
    for done in run_trials(trials, folder=kept, progress=advance, **where):
        finished.append(done)
        left.pop(done.index)
    if left:
        raise PausedError.of(len(finished), len(trials), f"runs in {settings.scenario}")
    finished.sort(key=lambda done: (settings.policies.index(done.trial.policy), done.index))
    runs = [(done.trial, done.run) for done in finished]
    # What has prices is known by its runs: an environment need not say it before.
    settings = replace(
        settings,
        has_prices=any(bool(np.isfinite(run.budget).any()) for _, run in runs),
        machine={**settings.machine, "code": provenance(finished)},
    )
    found = Comparison(settings, rounds_table(runs), clients_table(runs))
    if folder is not None:
        found.write(folder)
    return found


def _check_folder(folder: Path, settings: Settings) -> None:
    """Refuse a folder that holds another comparison, or several; nothing in it is overwritten then."""
    if (folder / "report.html").exists() and any(folder.glob("*/settings.json")):
        raise ConfigurationError(f"{folder} holds comparisons in several scenarios: choose another folder or delete it")
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


# -------------------------------------------------------------------- several scenarios


def folder_of(scenario: str) -> str:
    """Name of a scenario's folder."""
    return re.sub(r"[^\w@-]+", "-", scenario)


def compare_all(
    plans: Sequence[Settings], folder: Path, *, progress: Progress | None = None, **where: Unpack[Where]
) -> list[Comparison]:
    """Compare policies, and write a page: of several scenarios each in a folder of its own, and one above them.

    It raises what :func:`compare` does.
    """
    is_one = len(plans) == 1
    names = ["" if is_one else folder_of(plan.scenario) for plan in plans]
    if len({name.casefold() for name in names}) < len(plans):  # Windows and macOS see one name
        raise ConfigurationError(f"scenarios would share a folder: {', '.join(names)}; expected names that differ")
    known = {file.parent for file in folder.rglob("settings.json")}
    if not is_one and not known <= {folder / name for name in names}:
        raise ConfigurationError(
            f"{folder} holds something else than comparisons in these scenarios: choose another folder or delete it"
        )
    plans = [replace(plan, read_together=len(plans)) for plan in plans]
    for plan in plans:
        plan.check()
    found: dict[str, Comparison] = {}
    total, before = sum(len(plan.trials()) for plan in plans), 0

    def advance(done: float, _: int, words: str) -> None:
        if progress is not None:
            progress(before + done, total, words if is_one else f"{plan.scenario}, {words}".removesuffix(", "))

    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        held.callback(FolderLock(folder).release)
        for plan, name in zip(plans, names, strict=True):
            found[name] = _play(plan, folder / name, progress=advance, **where)
            found[name].report(folder / name)
            before += len(plan.trials())
        if not is_one:
            _write(folder, found)
    return [*found.values()]


def render(folder: Path) -> None:
    """Make summaries, tests, figures and pages again, from the tables in a folder or in those of its scenarios."""
    refuse_links(folder)
    is_one = (folder / "settings.json").exists()
    names = [""] if is_one else [file.parent.name for file in folder.glob("*/settings.json")]
    if not names:
        raise InvalidInputError(f"{folder} holds no comparison; expected what `fedroster compare` wrote")
    found = {name: Comparison.read(folder / name) for name in names}
    for name, one in found.items():
        one.report(folder / name)
    if not is_one:
        _write(folder, found)


def _write(folder: Path, found: Mapping[str, Comparison]) -> None:
    """Write the page above: what the page of each scenario begins with, and links to these, by folder."""
    found = dict(sorted(found.items()))  # the same whether they were just played or are read again
    answers = [(one.settings.scenario, one.headline()[0] or "No other policy can run here.") for one in found.values()]
    pages = {
        f"{one.settings.scenario}, {counted(len(one.settings.policies), 'policy')}": name for name, one in found.items()
    }
    own = next(iter(found.values())).settings
    first = {"scenarios": ", ".join(scenario for scenario, _ in answers), "seeds": ", ".join(map(str, own.seeds))}
    report = Report(
        f"Policies compared in {counted(len(found), 'scenario')}",
        ["Each answer is the first sentence of a scenario's page. The tests of all scenarios are one family."],
        [
            Section("Answers", table=Table(("scenario", "answer"), answers, ("scenario", "answer"))),
            Section("All measures, tests and figures", pages=pages),
        ],
        own.command,
        details_of(first, own),
    )
    write_page(report, folder)
