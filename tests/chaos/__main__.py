"""All harnesses, or those that are named, and one table: ``python -m chaos [NAME[:SIZE] ...] [--size SIZE]``.

A size is small, full, or a share of the full number of tries.  Each harness runs in a process of its own.  The exit
status is 1 if anything was lost or wrong, or an error was not fedroster's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from chaos.rows import Row
from fedroster.core.state import write_text_atomically

HARNESSES = (
    "kills", "training", "fuzz", "files", "log", "soak", "threads", "signals", "disk", "liars", "rules", "strangers",
    "writers", "intervals", "flower", "engines",
)  # fmt: skip
SIZES = {"small": 0.02, "full": 1.0}
KEPT = Path("build/chaos")
RESULTS = Path("benchmarks/results/chaos.md")
LIMIT_S = 3600.0
_COLUMNS = ("harness", "what", "size", "tries", "lost", "wrong", "raw errors", "peak MiB", "slowest s", "verdict")
_HEAD = "| " + " | ".join(_COLUMNS) + " |\n" + "| --- " * len(_COLUMNS) + "|"


def python_of(name: str) -> str:
    """The interpreter that a harness runs in: Flower has its own environment, which ``.ci/flower`` makes."""
    own = Path(os.environ.get("CHAOS_FLOWER", ".venv/flower-newest/bin/python"))
    return str(own) if name == "flower" and own.exists() else sys.executable


def attack(name: str, size: float, seed: int) -> list[Row]:
    """Run a harness in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [python_of(name), "-m", "chaos", name, "--size", str(size), "--seed", str(seed), "--into", str(out)]
        with tempfile.TemporaryFile("w+") as log:
            try:
                code = subprocess.run(command, stdout=log, stderr=log, timeout=LIMIT_S).returncode
            except subprocess.TimeoutExpired:
                code = "no end"
            if out.exists():
                return [Row(**row | {"size": size}) for row in json.loads(out.read_text())]
            log.seek(0)
            end = log.read()[-1500:]
    return [Row(f"the harness ended with {code}", wrong=1, size=size, cases=[end[-300:].replace("\n", " / ")])]


def read(path: Path, mark: dict[str, object]) -> list[Row]:
    """Rows that were made before, if they are of this day, size, seed and machine."""
    content = json.loads(path.read_text()) if path.exists() else {}
    rows = content.pop("rows", [])
    return [Row(**row) for row in rows] if content == mark else []


def line_of(name: str, row: Row) -> str:
    verdict = "**not as promised**" if row.is_bad else "held" if row.tries else "not tried"
    figures = (
        f"{row.size:g}",
        f"{row.tries:,}",
        row.lost,
        row.wrong,
        row.raw,
        f"{row.peak_mib:,.0f}",
        f"{row.slowest_s:.3g}",
    )
    cells = (name, row.what, *figures, verdict)
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def page(found: dict[str, list[Row]], *, command: str, seed: int, lasted: str) -> str:
    """The table, the notes and the first cases of what did not hold."""
    from fedroster.lab.trials.store import machine

    here = machine()
    rows = [(name, row) for name, rows in found.items() for row in rows]
    bad = sum(row.is_bad for _, row in rows)
    lines = [
        "# chaos",
        "",
        f"Made by `{command}` on {datetime.now(UTC).date().isoformat()}{lasted} on {here['processor']}, "
        f"{here['cores']} cores, Python {here['python']}, fedroster {here.get('fedroster', 'not installed')}. "
        f"Seed {seed}. {len(rows) - bad} of {len(rows)} rows held.",
        "",
        "Size 1 is the full number of tries. Lost: what was acknowledged or promised and is not there. Wrong: a result "
        "that is not what it should be. Raw: an error that is none of fedroster's own where one of these is due. "
        "Memory is that of the largest process, and includes what Python and compiled code take.",
        "",
        _HEAD,
        *(line_of(name, row) for name, row in rows),
        "",
        *(f"* {name}, {row.what}: {row.note}." for name, row in rows if row.note),
    ]
    if bad:
        lines += ["", "## What did not hold", ""]
        lines += [f"* {name}, {row.what}: `{case.replace('`', '')}`" for name, row in rows for case in row.cases]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME[:SIZE]", help=f"{', '.join(HARNESSES)}; all by default")
    parser.add_argument("--size", default="full", help="of harnesses that are named without one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help=f"the page; {RESULTS} if all harnesses run at full size")
    parser.add_argument("--keep", action="store_true", help=f"keep today's rows of this size and seed from {KEPT}")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sizes = {}
    for word in given.names or HARNESSES:
        name, _, size = word.partition(":")
        sizes[name] = SIZES.get(size or given.size) or float(size or given.size)
    if unknown := sizes.keys() - set(HARNESSES):
        parser.error(f"there is no harness {min(unknown)!r}; expected some of {', '.join(HARNESSES)}")
    if given.into:
        ((name, size),) = sizes.items()
        rows = importlib.import_module(f"chaos.{name}").run(size, given.seed)
        write_text_atomically(given.into, json.dumps([row.asdict() for row in rows]))
        return
    from fedroster.lab.trials.store import machine  # not in Flower's environment

    begin = time.perf_counter()
    found: dict[str, list[Row]] = {}
    print(_HEAD, flush=True)
    for name, size in sizes.items():
        start = time.perf_counter()
        mark = {"size": size, "seed": given.seed, "day": datetime.now(UTC).date().isoformat(), "machine": machine()}
        kept = KEPT / f"{name}.json"
        found[name] = read(kept, mark) if given.keep else []
        if not found[name]:
            found[name] = attack(name, size, given.seed)
            KEPT.mkdir(parents=True, exist_ok=True)
            write_text_atomically(kept, json.dumps(mark | {"rows": [row.asdict() for row in found[name]]}))
        for row in found[name]:
            print(line_of(name, row), flush=True)
            for text in ([row.note] if row.note else []) + row.cases:
                print(f"    {text}", flush=True)
        print(f"  {name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    is_whole = set(sizes.values()) == {1.0} and not given.names
    out = given.out or (RESULTS if is_whole else None)
    if out is not None:
        command = "make chaos" if is_whole and not given.keep else " ".join(["python -m chaos", *sys.argv[1:]])
        lasted = "" if given.keep else f" in {time.perf_counter() - begin:.0f} s"
        text = page(found, command=command, seed=given.seed, lasted=lasted)
        write_text_atomically(out, text)
    sys.exit(1 if any(row.is_bad for rows in found.values() for row in rows) else 0)


if __name__ == "__main__":
    main()
