"""The page of a federation that runs: a report (:mod:`fedroster.study.report`) made again when its log grows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from fedroster.study.report import Number, Report, Section, Table, as_html, picture
from fedroster.version import __version__
from fedroster.watch.view import ClientRow, View, number

_SHOWN = 10
"""So many rounds and members are shown at once; the others are folded."""
_MOST_CLIENTS = 500

_ROUND_COLUMNS = (
    "round", "at", "there", "in time", "late", "lost", "open", "took, s", "longest expected, s", "cohort", "kept out",
)  # fmt: skip
_ROUND_TEXTS = ("cohort", "kept out")
_CLIENT_COLUMNS = (
    "client", "chosen in", "promised", "promise", "owed", "there", "used", "lost", "last round", "expected, s",
)  # fmt: skip


def page_of(view: View | None, folder: Path, trouble: str) -> str:
    """The page as HTML; ``trouble`` says what is wrong with the log, in words."""
    title, where = f"Federation in {folder.name}", f"Read from {folder}; the page follows it."
    clients: list[str] = []
    if view is None:
        report = Report(title, [where], [], "", version=__version__, headline=trouble)
    else:
        clients = [client.name for client in view.clients[:1000]]
        report = Report(
            title,
            [f"{view.policy}: {view.num_rounds} rounds, {len(view.clients)} members. {where}"],
            _sections(view),
            "",
            version=__version__,
            headline=trouble or view.headline,
            numbers=_numbers(view),
        )
    more = {"clients": clients, "num_lines": 0 if view is None else view.num_lines}
    return as_html(report, package="fedroster.watch", template="page.html.j2", **more)


def _numbers(view: View) -> list[Number]:
    found = [Number(str(view.num_rounds), "rounds", f"{len(view.clients)} members")]
    if math.isfinite(view.mean_s):
        lately = f"{view.lately_s:.3g} s lately: expect the next ones to take as long" * math.isfinite(view.lately_s)
        found.append(Number(f"{view.mean_s:.3g} s", "mean length of a round", lately))
    if view.clients and view.clients[0].rounds:
        least = view.clients[0]
        tone = {"broken": "fails", "kept": "holds"}.get(least.promise(view.promised), "")
        promised = f"promised {view.promised:.1%}" if view.promised else "nothing is promised"
        found.append(Number(f"{least.rate:.1%}", "of its rounds for the client served least", promised, tone))
    return found


def _sections(view: View) -> list[Section]:
    shown = picture(_lengths_figure(view), "Length of each round, and what the policy expected", None, "lengths")
    members = view.clients[:_MOST_CLIENTS]
    left = len(view.clients) - len(members)
    notes = [f"The other {left} members are served more."] if left else []
    places = ["Rounds that fill free places are counted by places: as many as a cohort has are one round."]
    found = [
        Section("Length of rounds", figures=[shown]),
        Section("Last rounds", table=Table(_ROUND_COLUMNS, view.rounds[:_SHOWN], text=_ROUND_TEXTS)),
        Section("Rounds before", table=Table(_ROUND_COLUMNS, view.rounds[_SHOWN:], text=_ROUND_TEXTS), folded=True),
        Section(
            "Members, the least served first",
            table=_members(members[:_SHOWN], view.promised),
            notes=places * view.has_places,
        ),
        Section("Other members", table=_members(members[_SHOWN:], view.promised), notes=notes, folded=True),
    ]
    return [section for section in found if section.table is None or section.table.rows]


def _members(clients: Sequence[ClientRow], promised: float) -> Table:
    rows = []
    for client in clients:
        rate = f"{client.rate:.1%}" if client.rounds else "kept out"
        rows.append(
            (
                client.name, rate, f"{promised:.1%}" if promised else "", client.promise(promised),
                number(client.owed, ".2f"), str(client.there), str(client.used), str(client.lost),
                str(client.last or ""), number(client.expected_s),
            )
        )  # fmt: skip
    return Table(_CLIENT_COLUMNS, rows, text=("client",))


def _lengths_figure(view: View) -> Figure:
    """Lengths of rounds, and what the policy expected."""
    figure = Figure(figsize=(4.2, 2.2), layout="constrained")
    axes = figure.subplots()
    rounds = [number for number, *_ in view.lengths]
    axes.plot(rounds, [length for _, length, _ in view.lengths], color="#0072B2", linewidth=1.0, label="took")
    axes.plot(rounds, [each for *_, each in view.lengths], color="#D55E00", linewidth=1.0, label="longest expected")
    axes.set(xlabel="round", ylabel="seconds")
    axes.set_ylim(bottom=0.0)
    axes.legend(loc="upper right", fontsize=8)
    return figure
