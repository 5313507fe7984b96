"""OpenFL's workflow API: a flow whose training step goes to the collaborators that a selector chooses."""

from __future__ import annotations

import time
from typing import Any

from openfl.experimental.workflow.interface import FLSpec
from openfl.experimental.workflow.placement import aggregator, collaborator

from fedroster import Selector


class SelectedFlow(FLSpec):
    """Subclass it with ``fit(model)``, which a collaborator runs, and ``average(models)``; start it by ``run()``."""

    def __init__(self, model: Any, selector: Selector, num_rounds: int, **options: Any) -> None:
        """Begin with a model; the selector's clients join by themselves."""
        super().__init__(**options)
        self.model, self.selector, self.num_rounds = model, selector, num_rounds

    @aggregator
    def start(self) -> None:
        """Let all collaborators of the runtime join."""
        self.selector.join(set(self.runtime.collaborators).difference(self.selector.clients))
        self.next(self.choose)

    @aggregator
    def choose(self) -> None:
        """Send the next step to the chosen collaborators only."""
        self.cohort = self.selector.select()
        self.collaborators = list(self.cohort.clients)
        self.next(self.train, foreach="collaborators")

    @collaborator
    def train(self) -> None:
        """Train, and take the time: OpenFL tells its aggregator none."""
        started_s = time.monotonic()
        self.model = self.fit(self.model)
        self.time_s = time.monotonic() - started_s
        self.next(self.join)

    @aggregator
    def join(self, inputs: Any) -> None:
        """Learn the times, and average."""
        self.selector.observe(self.cohort.round, times_s={each.input: each.time_s for each in inputs})
        self.model = self.average([each.model for each in inputs])
        self.next(self.choose if self.cohort.round < self.num_rounds else self.end)

    @aggregator
    def end(self) -> None:
        """The last model is ``self.model``."""
