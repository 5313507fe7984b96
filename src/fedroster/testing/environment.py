"""The contract of a simulated network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedroster.core.problem import Outcome, RoundContext, Selection, Status
from fedroster.core.protocols import AnyEnvironment, AnyPolicy
from fedroster.core.state import pack
from fedroster.core.streams import Streams
from fedroster.policies import Uniform
from fedroster.testing.values import check_resume, check_value, frozen_pack, require, same_arrays


class EnvironmentContract:
    """What every simulated network must do.  Subclass it and override :meth:`environment`.

    Attributes:
        rounds: Rounds for the statistical test.
    """

    rounds: ClassVar[int] = 400

    def environment(self) -> AnyEnvironment:
        """Return the environment under test.  Called often; equal values are expected."""
        raise NotImplementedError("override environment() and return the environment under test")

    def policy(self) -> AnyPolicy:
        """Return a policy whose decisions are allowed here, for the runs that are saved and resumed."""
        return Uniform()

    def exogenous(self, context: RoundContext, outcome: Outcome) -> Mapping[str, NDArray[Any]]:
        """Return the parts of a round that do not depend on earlier decisions; the default: all of it.

        Override it where history matters, as with cold starts.
        """
        parts: dict[str, NDArray[Any]] = {}
        for value, names in (
            (context, ("available", "features", "client", "server", "cost", "budget", "members")),
            (outcome, [field.name for field in dataclasses.fields(outcome)]),
        ):
            known = {name: getattr(value, name) for name in names if getattr(value, name) is not None}
            parts |= {name: np.asarray(part() if callable(part) else part) for name, part in known.items()}
        return parts

    # What the tests share.

    def _rounds(
        self, num_rounds: int, choose: Callable[[RoundContext], NDArray[np.int64]], *, seed: int = 0
    ) -> Iterator[tuple[RoundContext, Outcome, Any]]:
        environment, streams = self.environment(), Streams(seed)
        state = environment.init(rng=streams.at("environment-init"))
        for number in range(1, num_rounds + 1):
            context, outcome = environment.observe(state, number, rng=streams.at("environment", number))
            yield context, outcome, state
            state = environment.advance(state, context, Selection(number, choose(context)))

    @staticmethod
    def _first(context: RoundContext, step: int = 1) -> NDArray[np.int64]:
        rows = np.flatnonzero(context.available)
        rows = rows[np.unique(context.clients_of(rows), return_index=True)[1]]  # one link of each client
        return np.sort(rows[::step][: context.cohort_size])

    def _last(self, context: RoundContext) -> NDArray[np.int64]:
        return self._first(context, -1)

    # The contract.

    def test_is_a_value(self) -> None:
        """An environment is a frozen, comparable, hashable and picklable dataclass."""
        check_value(self.environment(), self.environment(), "environment")

    def test_shapes_types_and_ranges(self) -> None:
        """Everything has the declared shape and type and is finite; times are positive."""
        spec = self.environment().spec
        seen = 0
        for number, (context, outcome, _) in enumerate(self._rounds(25, self._first), start=1):
            links = context.num_links
            require(context.round == number, f"the context is for round {context.round}; expected {number}")
            require(1 <= context.cohort_size <= spec.cohort_size, f"cohort_size is {context.cohort_size}")
            require(context.truth is None, "the environment revealed the truth before the decision")
            expected: list[tuple[str, Any, type, tuple[int, ...]]] = [
                ("features", context.features, np.float64, (links, spec.num_features)),
                ("available", context.available, np.bool_, (links,)),
                ("exchange_time_s", outcome.exchange_time_s, np.float64, (links,)),
                ("expected_time_s", outcome.expected_time_s, np.float64, (links,)),
                ("expected_upload_s", outcome.expected_upload_s, np.float64, (links,)),
                ("responds", outcome.responds, np.bool_, (links,)),
            ]
            for name, array, dtype, shape in expected:
                require(
                    array.dtype == dtype and array.shape == shape,
                    f"{name} is {array.dtype} of shape {array.shape}; expected {np.dtype(dtype)} of shape {shape}",
                )
                finite = np.isfinite(array) | (name == "expected_time_s")
                require(bool(finite.all()), f"{name} is not finite in round {number}")
            require(bool((outcome.exchange_time_s > 0).all()), "an exchange time is not positive")
            require(bool((outcome.expected_time_s > 0).all()), "an expected exchange time is not positive")
            require(bool((outcome.expected_upload_s >= 0).all()), "an expected upload time is negative")
            require(
                bool((outcome.expected_upload_s <= outcome.expected_time_s * (1 + 1e-12)).all()),
                "an upload takes longer than the whole exchange",
            )
            require(outcome.deadline_s > 0, f"deadline_s is {outcome.deadline_s}")
            probability = outcome.participation_probability
            ranges: list[tuple[str, Any, float]] = [
                ("stay_s", outcome.stay_s, math.inf),
                ("participation_probability", None if probability is None else probability(), 1),
                ("cost", context.cost, math.inf),
                ("client", context.client, spec.num_clients - 1),
                ("server", context.server, spec.num_servers - 1),
            ]
            for name, values, most in ranges:
                inside = values is None or (values.shape == (links,) and ((values >= 0) & (values <= most)).all())
                require(bool(inside), f"{name} is not one number in [0, {most}] for each link")
            if outcome.stay_s is not None:
                require(
                    not (outcome.responds & (outcome.exchange_time_s > outcome.stay_s)).any(),
                    "a client responds that leaves before its exchange is over",
                )
            if context.client is None:
                require(links == spec.num_clients, f"{links} rows name no clients; expected {spec.num_clients}")
            seen += int(context.available.sum())
        require(seen > 0, "no client was available in 25 rounds")

    def test_every_policy_meets_the_same_world(self) -> None:
        """What does not depend on history is the same bit for bit, whatever clients were chosen."""
        for other in (self._last, lambda _: np.zeros(0, np.int64)):
            runs = zip(self._rounds(25, self._first), self._rounds(25, other), strict=True)
            for (context, outcome, _), (other_context, other_outcome, _) in runs:
                left = self.exogenous(context, outcome)
                right = self.exogenous(other_context, other_outcome)
                require("available" in left, "exogenous() must at least hold the availability")
                for name in left:
                    require(
                        same_arrays({name: left[name]}, {name: right[name]}),
                        f"{name} of round {context.round} depends on which clients were chosen before; if that is "
                        "meant, leave it out of exogenous()",
                    )

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same world bit for bit, another one another world."""

        def world(seed: int) -> list[bytes]:
            return [
                array.tobytes()
                for context, outcome, _ in self._rounds(10, self._first, seed=seed)
                for array in (context.features, context.available, outcome.exchange_time_s, outcome.responds)
            ]

        first = world(0)
        again = world(0)
        other = world(1)
        require(first == again, "one seed, two worlds")
        require(first != other, "two seeds, one world")

    def test_observing_changes_nothing(self) -> None:
        """``observe`` leaves the state as it was and answers the same question alike."""
        environment = self.environment()
        for context, outcome, state in self._rounds(8, self._first):
            before = frozen_pack(state)
            again, same = environment.observe(state, context.round, rng=Streams(0).at("environment", context.round))
            require(same_arrays(before, pack(state)), "observe changed the state")
            require(
                again.features.tobytes() == context.features.tobytes()
                and same.exchange_time_s.tobytes() == outcome.exchange_time_s.tobytes(),
                "the same state, round and generator gave two worlds",
            )

    def test_expectations_are_the_mean_of_what_happens(self) -> None:
        """Over many rounds, what happens scatters around its expectation without bias (seeded)."""
        errors: dict[str, list[NDArray[np.float64]]] = {"exchange times": [], "participation": []}
        for _, outcome, _ in self._rounds(self.rounds, self._first):
            known = np.isfinite(outcome.expected_time_s)
            expected_s = outcome.expected_time_s[known]
            errors["exchange times"].append((outcome.exchange_time_s[known] - expected_s) / expected_s)
            if outcome.participation_probability is not None:
                errors["participation"].append(outcome.in_time - outcome.participation_probability())
        for what, parts in errors.items():
            error = np.concatenate(parts) if parts else np.zeros(0)
            if error.size:
                mean = float(error.mean())
                spread = float(error.std()) / math.sqrt(error.size)
                require(
                    abs(mean) <= 4.5 * spread + 1e-9,
                    f"{what}: {100 * mean:+.2f} % off the expectation (standard error {100 * spread:.2f} %)",
                )

    def test_reveal_shows_only_the_chosen(self) -> None:
        """Feedback has one row for each chosen link, with that link's own values, and no time for silent clients."""
        for context, outcome, _ in self._rounds(20, self._first):
            links = self._last(context)
            feedback = outcome.reveal(context, Selection(context.round, links))
            require(feedback.round == context.round, "the feedback is for another round")
            require(np.array_equal(feedback.client, context.clients_of(links)), "feedback names other clients")
            require(np.array_equal(feedback.features, context.features[links]), "feedback shows other features")
            responds = outcome.responds[links]
            times = np.where(responds, outcome.exchange_time_s[links], np.nan)
            require(np.array_equal(feedback.exchange_time_s, times, equal_nan=True), "feedback shows other times")
            require(np.array_equal(feedback.observed, responds), "a silent client's time was revealed")
            late = np.where(outcome.exchange_time_s[links] <= outcome.deadline_s, Status.COMPLETED, Status.LATE)
            status = np.where(responds, late, Status.DROPPED)
            require(np.array_equal(feedback.status, status), "the status does not fit the outcome")

    def test_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        """Stop, save, load, go on: the same rounds, in this process and in another interpreter."""
        check_resume(self.policy(), self.environment(), tmp_path)
