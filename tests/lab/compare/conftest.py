"""Pictures take longer than all the rest: they are drawn where a test asks for them."""

from contextlib import contextmanager

import pytest

from fedroster.lab.compare import figures

DRAWN = figures.figures_of


@contextmanager
def _instead(made):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "figures_of", made)
        yield


@pytest.fixture(scope="module", autouse=True)
def _no_pictures():
    with _instead(lambda *_: {}):
        yield


@pytest.fixture(scope="session")
def drawing():
    """Within it, a page has its pictures."""
    return lambda: _instead(DRAWN)
