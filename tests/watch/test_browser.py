"""The page in a real browser: it follows, asks why, and fits a phone.  Where there is no Chromium it is not tested."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedroster import Floor, Record, Selector
from fedroster.watch.server import serving

sys.path.insert(0, str(Path(__file__).parent))  # for `import browser`

from browser import CHROMIUM, Page, chromium

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH")


def play(selector: Selector) -> None:
    cohort = selector.select()
    selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 2.0), round_s=3.0)


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Selector, Page, str]]:
    """A federation of 14 rounds, a browser, and the page's address."""
    clients = [f"a-clinic-whose-name-is-quite-long-{number}.example.org" for number in range(12)]
    log = tmp_path / "a-folder-whose-name-is-long-too-selection-log-of-2026"
    selector = Selector(Floor(beta=0.2), cohort_size=4, clients=clients, observers=[Record(log)])
    for _ in range(14):
        play(selector)
    server = serving(log, 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    home = tmp_path / "browser"
    home.mkdir()
    try:
        with chromium(home) as page:
            yield selector, page, f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_page_follows_answers_and_fits_a_phone(followed: tuple[Selector, Page, str]) -> None:
    selector, page, address = followed
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

    # Why?
    client = selector.clients[0]
    page.value(f"const [who, when] = document.querySelectorAll('#ask input'); who.value = '{client}'; when.value = 2")
    page.value("document.querySelector('#ask button').click()")
    page.wait_for("document.getElementById('answer').textContent.length > 0")
    assert "round 2" in page.value("document.getElementById('answer').textContent")

    # It follows, and what the reader has set stays.
    members = "[...document.querySelectorAll('section')].find(one => one.innerText.startsWith('Members'))"
    only = f"[...{members}.querySelectorAll('tbody tr')].filter(one => !one.hidden).length"
    page.value(f"{members}.querySelector('input').value = 'long-1'")
    page.value(f"{members}.querySelector('input').dispatchEvent(new Event('input'))")
    page.value(f"[1, 2].forEach(() => {members}.querySelectorAll('th')[1].click())")
    shown, answer = page.value(only), page.value("document.getElementById('answer').textContent")
    assert 0 < shown < 10
    play(selector)
    page.wait_for(
        "document.readyState == 'complete' && document.body?.innerText.includes('15 rounds')"
    )  # none while it loads
    assert page.value(f"{members}.querySelector('input').value") == "long-1"
    assert 0 < page.value(only) < 10
    assert page.value(f"{members}.querySelectorAll('th')[1].ariaSort") == "descending"
    assert page.value("[...document.querySelectorAll('details')].every(one => one.open)")
    assert page.value("document.getElementById('answer').textContent") == answer
    assert page.value("document.querySelector('#ask input').value") == client

    # In the dark it has the report's dark colours, unless the reader wants light ones.
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.wait_for("document.body && getComputedStyle(document.body).backgroundColor == 'rgb(18, 23, 29)'")
    page.value("document.querySelector('nav button').click()")
    play(selector)
    page.wait_for("document.readyState == 'complete' && document.body?.innerText.includes('16 rounds')")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 246, 248)"
