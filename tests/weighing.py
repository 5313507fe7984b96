"""A small policy whose decision has weights, which tests share."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedroster.types import FloatArray, Selection, per_client


@dataclass(frozen=True, slots=True)
class DrawnState:
    """Rounds in which each client was chosen, shape (clients,)."""

    rounds: FloatArray = per_client()


@dataclass(frozen=True, slots=True)
class Drawn:
    """m draws with replacement; a client's weight is its draws over m, and ``factor`` makes it wrong."""

    factor: float = 1.0

    omniscient: ClassVar[bool] = False
    fills_cohort: ClassVar[bool] = False
    refuses_first: ClassVar[bool] = True
    estimates: ClassVar[str] = "clients"

    def check(self, spec, /):
        """Promise nothing."""

    def init(self, spec, /, *, rng):
        return DrawnState(np.zeros(spec.num_clients))

    def select(self, state, context, /, *, rng):
        rows = np.flatnonzero(context.available)
        drawn = rng.multinomial(context.cohort_size, np.full(rows.shape[0], 1 / rows.shape[0])) if rows.size else rows
        return Selection(context.round, rows[drawn > 0], drawn=drawn[drawn > 0].astype(float))

    def weights(self, state, context, selection, /):
        drawn = np.ones(selection.links.shape[0]) if selection.drawn is None else selection.drawn
        return self.factor * drawn / context.cohort_size

    def commit(self, state, context, selection, /):
        state.rounds[context.clients_of(selection.links)] += 1
        return state

    def update(self, state, feedback, /):
        return state


def noting(decided):
    """An observer that keeps the weights of each decision, by client."""

    def note(event, selector):
        if getattr(event, "weights", None) is not None:
            decided.append(dict(zip(selector.ids_of(event.chosen), event.weights.tolist(), strict=True)))

    return note
