"""The charts of a page in a real browser: pictures come alive, fit a phone, and show what a reader chooses."""

import sys
from pathlib import Path

import pytest

from fedroster.lab.pages.report import Report, Section, as_html, picture

sys.path.insert(0, str(Path(__file__).parent))  # for `import browser`

from browser import CHROMIUM, chromium
from test_charts import CROWD, MAKERS

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
