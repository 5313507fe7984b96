"""Two writers in one place: two selectors on one state file, two comparisons in one folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos.children import fork, wait
from chaos.play import flat, history
from chaos.rows import Row
from fedroster import Selector
from fedroster.core.errors import FedrosterError

_POLICY = "rbcs-f:V=5,beta=0.1"


def run(size: float, seed: int) -> list[Row]:
    return [_one_file(size, seed), _one_folder(size)]


def _one_file(size: float, seed: int) -> Row:
    row = Row("two processes that save into one state file, a third loads")
    saves = max(10, round(300 * size))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.npz"
        selector = history(flat(_POLICY), seed, 20)
        selector.save(path)
        first = selector.round
        logs = [Path(folder) / f"log-{n}" for n in range(2)]
        children = [fork(lambda log=log: _write(path, selector.policy, saves, log)) for log in logs]
        back = loads = 0
        last = first
        while any(not log.exists() for log in logs):
            begin = time.perf_counter()
            row.tries += 1
            try:
                seen = Selector.load(path, selector.policy).round
            except Exception as error:
                row.error(error, "the third loads")
                break
            row.timed(begin)
            loads += 1
            back += seen < last
            last = max(last, seen)
            if time.perf_counter() - begin > 60.0:
                break
        codes = [wait(child) for child in children]
        if any(codes):
            row.fault(f"a writer ended with {codes}")
            return row.done()
        found = [json.loads(log.read_text()) for log in logs]
        acknowledged = sum(one["saved"] for one in found)
        refused = sum(one["refused"] for one in found)
        kept = Selector.load(path, selector.policy).round - first
        row.lose(max(0, acknowledged - kept), f"{acknowledged} rounds were saved, {kept} are in the file")
        if back:
            row.fault(f"the round number went back {back} times")
        for text in {text for one in found for text in one["raw"]}:
            row.raw += 1
            row.cases.append(f"raw: {text}")
        row.note = f"{acknowledged} saves, {refused} refused as stale or held, {loads} loads"
    return row.done()


def _write(path: Path, policy: object, saves: int, log: Path) -> None:
    selector = Selector.load(path, policy)  # type: ignore[arg-type]
    saved = refused = 0
    raw: list[str] = []
    until = time.perf_counter() + 60.0
    while saved < saves and time.perf_counter() < until:
        cohort = selector.select({client: [1.0, 1.0] for client in selector.clients})
        selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
        try:
            selector.save(path)
            saved += 1
        except FedrosterError:
            refused += 1
            selector = Selector.load(path, policy)  # type: ignore[arg-type]
        except Exception as error:
            raw.append(f"{type(error).__name__}: {error}"[:150])
            break
    part = log.with_suffix(".part")
    part.write_text(json.dumps({"saved": saved, "refused": refused, "raw": raw}))
    part.rename(log)


def _compare(folder: Path, policies: str, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fedroster", "compare", "--task", "none", "--policies", policies, "--seeds", "0-1"]
    command += ["--rounds", str(rounds), "--scenario", "rbcs-f/table-1", "--out", str(folder)]
    quiet = os.environ | {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=quiet)


def _numbers(printed: str) -> list[str]:
    """The printed table's rows, without what was measured in time."""
    return [line for line in printed.splitlines() if re.search(r"random|oort|round-robin", line)]


def _one_folder(size: float) -> Row:
    row = Row("two comparisons at once in one new folder, different or the same")
    refused = 0
    for attempt in range(max(1, round(4 * size))):
        with tempfile.TemporaryDirectory() as folder:
            row.tries += 1
            begin = time.perf_counter()
            other = ("random,oort", 150) if attempt % 2 == 0 else ("random,round-robin", 100)
            runs = [_compare(Path(folder) / "both", *what) for what in (("random,round-robin", 100), other)]
            said = [process.communicate(timeout=300) for process in runs]
            codes = [process.returncode for process in runs]
            row.timed(begin)
            for code, (_, errors) in zip(codes, said, strict=True):
                if "Traceback" in errors:
                    row.raw += 1
                    row.cases.append(f"raw: {errors[-250:]}")
                refused += code != 0
            if attempt % 2 == 0 and codes == [0, 0]:
                row.fault("both ended well: one of them printed the other's folder")
            if 0 not in codes:
                row.fault(f"none of them ended well: {said[0][1][-150:]} / {said[1][1][-150:]}")
            heads = ("100 rounds", f"{other[1]} rounds")
            for code, (out, _), head, policies in zip(codes, said, heads, ("round-robin", other[0]), strict=True):
                wanted = policies.rpartition(",")[2]
                if code == 0 and (head not in out or not any(wanted in line for line in _numbers(out))):
                    row.fault(f"a comparison of {wanted} over {head} printed another table")
    row.note = f"{refused} refused"
    return row.done()
