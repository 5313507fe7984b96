"""What all adapters' tests look at."""

import pytest

from fedroster import Selector


@pytest.fixture
def told(monkeypatch):
    """The signatures of each round, as a selector is told them."""
    seen, observe = [], Selector.observe

    def noted(selector, number, **feedback):
        seen.append(feedback.get("signatures"))
        observe(selector, number, **feedback)

    monkeypatch.setattr(Selector, "observe", noted)
    return seen
