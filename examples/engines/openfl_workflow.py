"""OpenFL's workflow API: a flow whose training step goes to the collaborators that a selector chooses."""

from __future__ import annotations

import time
from typing import Any

from openfl.experimental.workflow.interface import FLSpec
from openfl.experimental.workflow.placement import aggregator, collaborator

from fedroster import Selector


class SelectedFlow(FLSpec):
    """Subclass it with ``fit(model)``, which a collaborator runs, and ``average(models)``; start it by ``run()``.

    The selector is a private attribute of the aggregator, which keeps it from collaborators::

        Aggregator(private_attributes_callable=lambda: {"selector": Selector(..., observers=[Record(folder)])})
    """

    selector: Selector

    def __init__(self, model: Any, num_rounds: int, **options: Any) -> None:
        """Begin with a model; the selector's clients join by themselves."""
        super().__init__(**options)
        self.model, self.num_rounds = model, num_rounds

    @aggregator
    def start(self) -> None:
        """Let all collaborators of the runtime join."""
        self.selector.join(set(self.runtime.collaborators).difference(self.selector.clients))
        self.next(self.choose)

    @aggregator
    def choose(self) -> None:
        """Send the next step to the chosen collaborators only."""
        cohort = self.selector.select()
        self.round, self.collaborators = cohort.round, list(cohort.clients)
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
        self.selector.observe(self.round, times_s={each.input: each.time_s for each in inputs})
        self.model = self.average([each.model for each in inputs])
        self.next(self.choose if self.round < self.num_rounds else self.end)

    @aggregator
    def end(self) -> None:
        """The last model is ``self.model``."""
