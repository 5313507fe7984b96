"""Every page that fedroster writes, as readers meet it: strict policies, screen readers, widths, schemes, paper.

Run as ``.ci/pages benchmarks/results/pages.md``, which brings axe-core; it needs Chromium on the PATH.  The pages are
made here, small, and served on this machine with the policies of servers that keep reports.  The exit status is 1 if
anything is not as it should be.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "lab" / "pages"))

from browser import Page, chromium  # type: ignore[import-not-found]

import fedroster
from fedroster.core.state import write_text_atomically
from fedroster.lab.pages.log_page import View, page_of
from fedroster.lab.verdicts.reproduce import Order, reproduce

RESULTS = Path(__file__).parent / "results" / "pages.md"
DOCS = ("index.html", "which-policy.html", "how-to/compare.html", "reproduction/cocs/index.html", "policies/index.html")
POLICIES: Mapping[str, str] = {
    "as it is": "",
    "no scripts": "script-src 'none'",
    "style 'self'": "sandbox; default-src 'none'; img-src 'self'; style-src 'self'",
    "no eval": "default-src 'self' 'unsafe-inline'",
}
WIDTHS, SCHEMES = (400, 1000, 1600), ("light", "dark")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
A4 = 688  # pixels between margins of 14 mm

_FIGURES = "[...document.querySelectorAll('figure')].filter(one => !one.hidden && one.checkVisibility())"
_STILL = f"""{_FIGURES}.every(one => [...one.querySelectorAll('svg')].some(svg => svg.checkVisibility()
    && svg.getBoundingClientRect().width > 200
    && getComputedStyle(svg.querySelector('rect, path')).fill != 'rgb(0, 0, 0)'))
    && [...document.querySelectorAll('table')].every(one => one.closest('details:not([open])') || one.offsetHeight)"""
_LIVE = f"{_FIGURES}.filter(one => one.querySelector('script')).every(one => one.querySelector('.live svg'))"
_TOLD = """[...document.querySelectorAll('figure')].filter(one => !(one.querySelector('.told')?.textContent.length > 20
    && one.querySelector('details table') && one.querySelector('details a[download$=csv]'))).length"""
_PAPER = """![...document.querySelectorAll('.live, nav, section > details > :not(summary, .bar)')]
    .some(one => one.checkVisibility() == (one.matches('.live, nav')))
    && getComputedStyle(document.body).backgroundColor == 'rgb(255, 255, 255)'"""
_WIDE = """[...document.querySelectorAll('main *')].filter(one => one.checkVisibility()
    && one.getBoundingClientRect().right > innerWidth + 1).length"""


def made(folder: Path) -> dict[str, Path]:
    """The pages of fedroster, small."""
    found = {"compare": folder / "compare"}
    few = ["floor", "rbcs-f:V=5", "random"]
    fedroster.compare(few, seeds=5, rounds=60, task="digits-logistic", folder=found["compare"], command="compare")
    found["compare, 12 policies"] = folder / "many"
    fedroster.compare("all", "cocs/mnist", seeds=2, rounds=40, folder=found["compare, 12 policies"], command="compare")
    found["reproduce"] = folder / "reproduce"
    reproduce(Order("rbcs-f", range(3), ("3",), 40), found["reproduce"], command="reproduce")
    log = folder / "log"
    fedroster.simulate_many(["floor"], seeds=1, rounds=60, record=log)
    history = fedroster.Log(log)
    pages = {name: place / "report.html" for name, place in found.items()}
    for name, follows in (("log page", False), ("log page, followed", True)):
        pages[name] = folder / f"{name.replace(', ', '-').replace(' ', '-')}.html"
        write_text_atomically(pages[name], page_of(View(history), log, follows=follows))
    return pages


@contextmanager
def served(root: Path, asked: list[str]) -> Iterator[str]:
    """A folder on this machine; the query names the policy that a page comes with."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            if policy := POLICIES.get(self.path.partition("?")[2].replace("%20", " ").replace("%27", "'"), ""):
                self.send_header("Content-Security-Policy", policy)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            asked.append(self.path.partition("?")[0])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def opened(page: Page, address: str, *, width: int, scheme: str = "light", live: bool = True) -> None:
    """Open a page, and come near to all of its figures, so that they begin."""
    page.open(address, width=width)
    scheme_now = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", media="screen", features=scheme_now)
    page.wait_for("document.readyState == 'complete'")
    if live:
        page.value(
            f"""(async () => {{ for (const one of {_FIGURES}) {{ one.scrollIntoView();
            for (let i = 0; i < 100 && one.querySelector('script') && !one.querySelector('.live svg'); i++)
              await new Promise(done => setTimeout(done, 50)); }} scrollTo(0, 0); }})()"""
        )


def checked(page: Page, address: str, axe: str, *, ours: bool) -> dict[str, str]:
    """What every check says of a page: "ok", or what is wrong."""
    found: dict[str, str] = {}
    for name in POLICIES if ours else ():
        runs = name in ("as it is", "no eval")
        opened(page, f"{address}?{quote(name)}", width=1000, live=runs)
        well = page.value(_STILL) and (not runs or page.value(_LIVE))
        found[name] = "ok" if well else "not readable" if not page.value(_STILL) else "not live"
    if ours:
        opened(page, address, width=1000, scheme="dark")
        bare = page.value(_TOLD)
        found["told, table, CSV"] = f"{bare} figures lack one" if bare else "ok"
        page.call("Emulation.setEmulatedMedia", media="print", features=[])
        page.call("Emulation.setDeviceMetricsOverride", width=A4, height=1000, deviceScaleFactor=1, mobile=False)
        page.value("dispatchEvent(new Event('beforeprint'))")
        wide, still = page.value(_WIDE), page.value(f"{_STILL} && {_PAPER}")
        found["A4"] = "ok" if still and not wide else f"{wide} parts are cut off" if wide else "not readable"
    broken: dict[str, None] = {}
    for width in WIDTHS if axe else ():
        for scheme in SCHEMES:
            opened(page, address, width=width, scheme=scheme)
            page.value(f"{axe}; 0")
            rules = "violations.map(one => one.id + ' ' + one.nodes[0].target[0])"
            run = f"axe.run(document, {{runOnly: {TAGS}}}).then(({{violations}}) => {rules})"
            broken |= {f"{rule} ({width}, {scheme})": None for rule in page.value(run)}
            if page.value("document.documentElement.scrollWidth") > width:
                broken[f"wider than {width}"] = None
    found["axe, widths, schemes"] = "; ".join(broken) or ("ok" if axe else "not run")
    return found


def main() -> None:
    """Make the pages, check them, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--axe", type=Path, help="axe.min.js")
    parser.add_argument("--docs", type=Path, help="the built documentation")
    parser.add_argument("--pages", type=Path, help="folder of pages that were made before")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    axe = given.axe.read_text(encoding="utf-8") if given.axe else ""
    version = axe[:40].split("\n")[0].removeprefix("/*! ") if axe else "none"
    rows: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        root = given.pages or Path(scratch) / "pages"
        root.mkdir(exist_ok=True)
        pages = made(root)
        asked: list[str] = []
        (home := Path(scratch) / "browser").mkdir()
        with served(root, asked) as base, chromium(home) as page:
            for name, file in pages.items():
                place = quote(str(file.relative_to(root)))
                rows[name] = checked(page, base + place, axe, ours=True)
                others = set(asked) - {f"/{place}", "/favicon.ico"}
                rows[name]["asks for nothing else"] = ", ".join(others) or "ok"
                asked.clear()
                print(name, rows[name], flush=True)
        if given.docs:
            (home := Path(scratch) / "browser-docs").mkdir()
            with served(given.docs, asked) as base, chromium(home) as page:
                for name in DOCS:
                    assert (given.docs / name).is_file(), name
                    rows[f"docs/{name}"] = checked(page, base + name, axe, ours=False)
                    print(name, rows[f"docs/{name}"], flush=True)
    columns = list(next(iter(rows.values())))
    lines = [
        "# Pages",
        "",
        f"Made by `.ci/pages benchmarks/results/pages.md` on {datetime.now(UTC).date()}, {version}, at WCAG "
        f"2.2 AA; widths {', '.join(map(str, WIDTHS))} pixels, {' and '.join(SCHEMES)}. In the columns of policies: "
        "pictures and tables are readable, and charts are live wherever scripts run.",
        "",
        f"| page | {' | '.join(columns)} |",
        "| --- " * (len(columns) + 1) + "|",
        *(f"| {name} | {' | '.join(row.get(column, '') for column in columns)} |" for name, row in rows.items()),
        "",
        *(f"* {name}: `{policy}`" for name, policy in POLICIES.items() if policy),
    ]
    given.out.parent.mkdir(exist_ok=True)
    write_text_atomically(given.out, "\n".join(lines) + "\n")
    sys.exit(any(cell != "ok" for row in rows.values() for cell in row.values()))


if __name__ == "__main__":
    main()
