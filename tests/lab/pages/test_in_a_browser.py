"""Pages in a real browser: charts come alive, a log's page follows, and both fit a phone; where there is a Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedroster import Floor, Record, Selector
from fedroster.lab.pages.log_page import View, page_of
from fedroster.lab.pages.report import Report, Section, as_html, picture
from fedroster.record import Log
from lab.pages.browser import CHROMIUM, Page, chromium
from lab.pages.test_charts import CROWD, MAKERS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH")


def test_every_picture_comes_alive_and_fits_a_phone(tmp_path: Path) -> None:
    pictures = [picture(make(), name, None, f"picture-{place}") for place, (name, make) in enumerate(MAKERS.items())]
    page_file = tmp_path / "page.html"
    page_file.write_text(as_html(Report("T", [], [Section("S", figures=pictures)], "cmd")), encoding="utf-8")
    (home := tmp_path / "browser").mkdir()
    with chromium(home) as page:
        page.open(page_file.as_uri(), width=400)
        page.wait_for("document.readyState == 'complete'")
        figures = "[...document.querySelectorAll('figure')]"
        live = "[...one.querySelectorAll('.live')]"
        for place in range(len(MAKERS)):  # they begin when a reader comes near
            page.value(f"{figures}[{place}].scrollIntoView()")
            drawn = f"{live}.length && {live}.every(part => part.querySelector('svg'))"
            page.wait_for(f"(one => {drawn})({figures}[{place}])")
        assert page.value(f"{figures}.map(one => one.querySelector('.static').hidden)") == [True] * len(MAKERS)
        # Panels of groups are drawn apart; those of single curves, and of one group, together.
        parts = dict(zip(MAKERS, page.value(f"{figures}.map(one => {live}.length)"), strict=True))
        assert parts == dict.fromkeys(MAKERS, 1) | {"panels": 2, "intervals": 2}
        assert page.value("document.documentElement.scrollWidth") <= 400

        # What the legend hides is gone from lines; points stay, and are faint.
        bands = f"{figures}[0].querySelectorAll('.mark-area path[d]').length"
        assert page.value(bands) == 2
        page.value(f"{figures}[0].querySelector('button[aria-pressed]').click()")
        page.wait_for(f"{bands} == 1")
        crowd = f"{figures}[{list(MAKERS).index('pareto')}]"
        assert page.value(f"{crowd}.querySelectorAll('button[aria-pressed]').length") == len(CROWD)
        # No label and no legend leaves the picture on a phone.
        words = f"[...{crowd}.querySelectorAll('.live svg text')]"
        box = "one.getBoundingClientRect()"
        edge = "one.ownerSVGElement.getBoundingClientRect()"
        outside = f"{box}.left < {edge}.left - 1 || {box}.right > {edge}.right + 1"
        assert page.value(f"{words}.filter(one => {outside}).map(one => one.textContent)") == []


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Callable[[int], None], Page, str]]:
    """A federation of 14 rounds that plays on and writes its page, a browser, and the page's address."""
    clients = [f"a-clinic-whose-name-is-quite-long-{number}.example.org" for number in range(12)]
    log, file = tmp_path / "a-folder-whose-name-is-long-too-selection-log-of-2026", tmp_path / "page.html"
    selector = Selector(Floor(beta=0.2), cohort_size=4, clients=clients, observers=[Record(log)])

    def play(rounds: int) -> None:
        for _ in range(rounds):
            cohort = selector.select()
            selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 2.0), round_s=3.0)
        file.write_text(page_of(View(Log(log)), log, follows=True), encoding="utf-8")

    play(14)
    (home := tmp_path / "browser").mkdir()
    with chromium(home) as page:
        yield play, page, file.as_uri()


def test_the_page_follows_and_fits_a_phone(followed: tuple[Callable[[int], None], Page, str]) -> None:
    play, page, address = followed
    page.open(address, width=400)
    page.wait_for("document.readyState == 'complete' && document.body?.innerText.includes('14 rounds')")
    assert "promised 20.0%" in page.value("document.querySelector('.headline').textContent")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 248)"

    # Nothing is wider than the phone, folded parts included; only pictures may be scrolled inside their frame.
    page.value("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.value("innerWidth") == 400
    assert page.value("document.documentElement.scrollWidth") <= 400
    wide = "[...document.querySelectorAll('main *')].filter(one => one.getBoundingClientRect().right > 401)"
    assert page.value(f"{wide}.map(one => one.outerHTML.slice(0, 80))") == []

    # It follows, and what the reader has set stays.
    members = "[...document.querySelectorAll('section')].find(one => one.innerText.startsWith('Members'))"
    only = f"[...{members}.querySelectorAll('tbody tr')].filter(one => !one.hidden).length"
    page.value(f"{members}.querySelector('input').value = 'long-1'")
    page.value(f"{members}.querySelector('input').dispatchEvent(new Event('input'))")
    page.value(f"[1, 2].forEach(() => {members}.querySelectorAll('th button')[1].click())")
    assert 0 < page.value(only) < 10
    play(1)
    page.wait_for(
        "document.readyState == 'complete' && document.body?.innerText.includes('15 rounds')"
    )  # none while it loads
    assert page.value(f"{members}.querySelector('input').value") == "long-1"
    assert 0 < page.value(only) < 10
    assert page.value(f"{members}.querySelectorAll('th')[1].ariaSort") == "descending"
    assert page.value("[...document.querySelectorAll('details')].every(one => one.open)")

    # In the dark it has the report's dark colours, unless the reader wants light ones.
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.wait_for("document.body && getComputedStyle(document.body).backgroundColor == 'rgb(18, 23, 29)'")
    page.value("document.querySelector('nav button').click()")
    play(1)
    page.wait_for("document.readyState == 'complete' && document.body?.innerText.includes('16 rounds')")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 248)"
