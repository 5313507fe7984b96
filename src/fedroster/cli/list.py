"""``fedroster list``: the catalogue."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import out, print_json, print_table
from fedroster.core.errors import UnknownNameError


@command("list")
def list_(
    what: Annotated[
        str | None, typer.Argument(metavar="[policies|scenarios|tasks|data]", help="All if not given.")
    ] = None,
    *,
    long: Annotated[bool, typer.Option("--long", help="With parameters and their defaults.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List policies, scenarios, tasks and data sets: name, one line, source."""
    groups = _groups()
    if what is not None and what.casefold() not in groups:
        raise UnknownNameError.of("part of the catalogue", what, groups)
    found = groups if what is None else {what.casefold(): groups[what.casefold()]}
    if as_json:
        print_json(found)
        return
    columns = {"name": "name", "summary": "what", "source": "source"} | ({"parameters": "parameters"} if long else {})
    for group, rows in found.items():
        cells = [[_shown(row.get(name, {})) for name in columns] for row in rows]
        print_table([*columns.values()], cells, title=group, whole=["name"], padding=(0, 2, 0, 0))
        out().print()


def _groups() -> dict[str, list[dict[str, Any]]]:
    """By group, a row for each entry."""
    from fedroster.catalogue import policies, scenarios
    from fedroster.lab.data.load import DATASETS
    from fedroster.lab.training.tasks import TASKS

    found: dict[str, list[dict[str, Any]]] = {
        group: [
            {"name": name, "summary": entry.summary, "source": entry.origin, "parameters": entry.parameters()}
            for name, entry in entries.items()
        ]
        for group, entries in (("policies", policies()), ("scenarios", scenarios()))
    }
    bring = {name: "fedroster data fetch" if data.files else "scikit-learn" for name, data in DATASETS.items()}
    found["tasks"] = [
        {
            "name": name,
            "summary": f"data {task.dataset}, model {task.model}",
            "source": bring[task.dataset],
            "parameters": asdict(task),
        }
        for name, task in TASKS.items()
    ]
    found["data"] = [{"name": name, "summary": data.title, "source": bring[name]} for name, data in DATASETS.items()]
    return found


def _shown(value: Any) -> str:
    """A cell; parameters with their values as :func:`~fedroster.catalogue.make_policy` reads them."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={_shown(own)}" for name, own in value.items()) or "-"
    if isinstance(value, tuple):
        return "/".join(part if isinstance(part, str) else f"{part:g}" for part in value) or "()"
    return "auto" if value is None else str(value)
