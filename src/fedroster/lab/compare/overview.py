"""Comparisons in several scenarios: a folder for each, one page above them, and one family of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from fedroster.errors import ConfigurationError, InvalidInputError
from fedroster.lab.compare.result import Comparison, details_of
from fedroster.lab.compare.run import Progress, held, play
from fedroster.lab.compare.tables import Settings
from fedroster.lab.pages.report import Report, Section, Table, write_page
from fedroster.lab.trials.run import Where
from fedroster.parts import counted, refuse_links


def folder_of(scenario: str) -> str:
    """Name of a scenario's folder."""
    return re.sub(r"[^\w@-]+", "-", scenario)


def compare_all(
    plans: Sequence[Settings], folder: Path, *, progress: Progress | None = None, **where: Unpack[Where]
) -> list[Comparison]:
    """Compare policies in several scenarios, each in a folder of its own, and write one page above them.

    Raises:
        ConfigurationError: If a parameter is out of its range, or a folder belongs to another comparison.
        InUseError: If another process writes there.
        PausedError: If the time was up first; the same call continues.
    """
    names = [folder_of(plan.scenario) for plan in plans]
    if len({name.casefold() for name in names}) < len(plans):  # Windows and macOS see one name
        raise ConfigurationError(f"scenarios would share a folder: {', '.join(names)}; expected names that differ")
    known = {file.parent for file in folder.rglob("settings.json")}
    if not known <= {folder / name for name in names}:
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
            progress(before + done, total, f"{plan.scenario}, {words}".removesuffix(", "))

    with held(folder):
        for plan, name in zip(plans, names, strict=True):
            found[name] = play(plan, folder / name, progress=advance, **where)
            found[name].report(folder / name)
            before += len(plan.trials())
        _write(folder, found)
    return [*found.values()]


def render(folder: Path) -> None:
    """Make summaries, tests, figures and pages again, from the tables in a folder or in those of its scenarios.

    Raises:
        InvalidInputError: If something is missing or damaged.
    """
    refuse_links(folder)
    if (folder / "settings.json").exists():
        Comparison.read(folder).report(folder)
        return
    found = {file.parent.name: Comparison.read(file.parent) for file in folder.glob("*/settings.json")}
    if not found:
        raise InvalidInputError(f"{folder} holds no comparison; expected what `fedroster compare` wrote")
    for name, one in found.items():
        one.report(folder / name)
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
        details_of(first, own.task, own.machine),
        str(own.machine.get("fedroster", "")),
    )
    write_page(report, folder)
