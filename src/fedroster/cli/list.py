"""``fedroster list``: the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedroster.cli.command import command
from fedroster.cli.options import JsonOption
from fedroster.cli.terminal import WIDE, out, print_json, print_table

if TYPE_CHECKING:
    from fedroster.catalogue import Entry


@command("list")
def list_(*, as_json: JsonOption = False) -> None:
    """List policies and scenarios with their parameters."""
    from fedroster.catalogue import policies, scenarios

    groups = {"policies": policies(), "scenarios": scenarios()}
    if as_json:
        print_json({group: [_facts(*item) for item in entries.items()] for group, entries in groups.items()})
        return
    for group, entries in groups.items():
        rows = [(name, entry.summary, _parameters(entry)) for name, entry in entries.items()]
        print_table(("name", "what", "parameters"), rows, title=group, whole=["name"], padding=WIDE)
        out().print()


def _facts(name: str, entry: Entry) -> dict[str, Any]:
    return {
        "name": name,
        "summary": entry.summary,
        "source": entry.source,
        "version": entry.version,
        "parameters": entry.parameters(),
    }


def _parameters(entry: Entry) -> str:
    from fedroster.catalogue import AUTOMATIC

    def shown(value: Any) -> str:
        if value is None:
            return AUTOMATIC
        return "/".join(f"{part:g}" for part in value) if isinstance(value, tuple) else str(value)

    return ", ".join(f"{name}={shown(value)}" for name, value in entry.parameters().items()) or "-"
