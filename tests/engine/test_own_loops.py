"""The loops of the page on one's own engine: 80 rounds of each, killed four times."""

import re
import shutil
from pathlib import Path

from federations import after_a_kill
from fedroster import Floor
from fedroster.record import verify

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-own-engine.md"
LOOPS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_loops_of_the_page_go_on_after_kills(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(LOOPS) == 3
    for life in range(1, 5):
        bound = {}
        for number, loop in enumerate(LOOPS):
            exec(re.sub(r"range\((10|20)\)", "range(20)", loop), bound)
            selector = bound["selector"]
            assert selector.round == (20 * number + 20 + 40 * (life - 1) if number < 2 else 20 * life)
            waiting = [client for clients in selector.open_rounds().values() for client in clients]
            assert len(waiting) == len(set(waiting))  # no busy client has a second job
            if number:
                selector.observers[0].close()
        for folder in (tmp_path / "run", tmp_path / "places"):  # what a killed process has left takes its place
            left = after_a_kill(folder, tmp_path / "left")
            shutil.rmtree(folder)
            left.rename(folder)
    for folder in ("run", "places"):
        found = verify(tmp_path / folder, Floor(beta=0.2))
        assert found.is_whole
        assert found.num_decided == found.last_round
