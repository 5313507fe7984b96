"""The contract of a policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.core.checks import shown
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Feedback, Outcome, ProblemSpec, RoundContext, Selection, Status, check_selection
from fedroster.core.protocols import (
    AnyEnvironment,
    AnyPolicy,
    commits,
    expects_times,
    owes,
    refuses_first,
    signs,
    wants_losses,
    weighed,
)
from fedroster.core.state import grow, load_arrays, pack, save_arrays, unpack
from fedroster.core.streams import Streams
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.testing.values import (
    Poison,
    check_fields,
    check_resume,
    check_value,
    copy_state,
    fields,
    frozen_pack,
    relabelled,
    require,
    same_arrays,
    select_rows,
)

_KIND = "contract-test"


class PolicyContract:
    """What every policy must do.  Subclass it and override :meth:`policy`; the rest has defaults.

    Attributes:
        deterministic: Set it to True for a policy whose decisions never use the generator.
        equivariant: Set it to True for a policy whose decision, where no tie is broken by the generator, follows the
            clients when they are renumbered.
    """

    deterministic: ClassVar[bool] = False
    equivariant: ClassVar[bool] = False

    def policy(self) -> AnyPolicy:
        """Return the policy under test.  Called once or twice a test; equal values are expected."""
        raise NotImplementedError("override policy() and return the policy under test")

    def spec(self) -> ProblemSpec:
        """Return a small problem that the policy accepts: more clients than places."""
        return ProblemSpec(num_clients=12, cohort_size=4, num_features=3)

    def environment(self) -> AnyEnvironment:
        """Return a small network for the runs that are saved and resumed; its spec may differ from :meth:`spec`."""
        return FlatNetwork(num_clients=12, cohort_size=4, availability=0.7, dropout=0.1)

    def world(self, spec: ProblemSpec, round: int, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round with every client available; override it for a policy that needs special contexts."""
        features = rng.uniform(0.5, 4.0, (spec.num_clients, spec.num_features))
        expected_s = features @ np.linspace(0.2, 1.0, spec.num_features)
        context = RoundContext(
            round=round,
            features=features,
            available=np.ones(spec.num_clients, np.bool_),
            cohort_size=spec.cohort_size,
        )
        outcome = Outcome(
            exchange_time_s=expected_s * rng.uniform(0.1, 1.9, spec.num_clients),
            expected_time_s=expected_s,
            expected_upload_s=expected_s * 0.25,
            responds=rng.random(spec.num_clients) < 0.9,
        )
        return context, outcome

    # What the tests share.

    @cached_property
    def _policy(self) -> AnyPolicy:
        """One policy for all of a test, as in a federation."""
        return self.policy()

    def _init(self, spec: ProblemSpec | None = None, seed: int = 0) -> Any:
        policy, spec = self._policy, spec or self.spec()
        policy.check(spec)
        state = policy.init(spec, rng=Streams(seed).at("policy-init"))
        check_fields(state)
        return state

    def _known(self, context: RoundContext, outcome: Outcome) -> RoundContext:
        return context.with_truth(outcome) if self._policy.omniscient else context

    def _select(self, state: Any, context: RoundContext, outcome: Outcome, *, seed: int = 0) -> Selection:
        """Ask for a decision and check it against the hard constraints."""
        known = self._known(context, outcome)
        selection = self._policy.select(state, known, rng=Streams(seed).at("policy", context.round))
        require(
            isinstance(selection, Selection) and isinstance(selection.links, np.ndarray),
            f"select returned {shown(selection)}; expected Selection(context.round, rows), rows an array of integers",
        )
        check_selection(selection, context, fills_cohort=self._policy.fills_cohort)
        return weighed(self._policy, state, known, selection)

    def _next(self, method: str, state: Any, *what: Any) -> Any:
        """The state after ``commit`` or ``update``."""
        after = getattr(self._policy, method)(state, *what)
        if type(after) is not (kind := type(state)):
            raise AssertionError(
                f"{method} returned {shown(after)}; expected the state, a {kind.__name__} (is there a return?)"
            )
        return after

    def _book(self, state: Any, context: RoundContext, outcome: Outcome, selection: Selection) -> Any:
        """The state after a round of which all is told."""
        booked = self._next("commit", state, context, selection)
        return self._next("update", booked, self._reveal(context, outcome, selection))

    def _reveal(self, context: RoundContext, outcome: Outcome, selection: Selection) -> Feedback:
        """What comes back; losses and signatures that the policy wants are of most clients, none every fifth round."""
        feedback, wanted = outcome.reveal(context, selection), signs(self._policy)
        if context.round % 5 == 0:
            return feedback
        # Drawn for every link: a client reports the same whatever other clients were chosen.
        rng = Streams(7).at("contract", context.round)
        if wanted is not None:
            told = rng.standard_normal((context.num_links, wanted.length))
            told[rng.random(context.num_links) < 0.2] = np.nan
            feedback = replace(feedback, signature=told[selection.links])
        if not wants_losses(self._policy):
            return feedback
        loss = rng.gamma(4.0, 0.5, context.num_links)
        spread = rng.random(context.num_links)
        known = outcome.responds
        known = (known & (rng.random(context.num_links) < 0.8))[selection.links]
        loss, spread = loss[selection.links], spread[selection.links]
        return replace(
            feedback,
            loss=np.where(known, loss, np.nan),
            squared_loss=np.where(known, loss**2 + spread, np.nan) if context.round % 2 else None,
            num_samples=np.where(known, 20.0 + 10.0 * (feedback.client % 4), np.nan),
        )

    def _draw(
        self, number: int, *, share: float = 1.0, spec: ProblemSpec | None = None
    ) -> tuple[RoundContext, Outcome]:
        rng = Streams(1).at("contract", number)
        context, outcome = self.world(spec or self.spec(), number, rng)
        available = context.available & (rng.random(context.num_links) < share)
        return replace(context, available=available), outcome

    def _step(
        self, state: Any, number: int, *, share: float = 0.7, spec: ProblemSpec | None = None, seed: int = 0
    ) -> tuple[Selection, Any]:
        """Play a round: its decision, which is checked, and the state after it."""
        context, outcome = self._draw(number, share=share, spec=spec)
        selection = self._select(state, context, outcome, seed=seed)
        return selection, self._book(state, context, outcome, selection)

    def _play(self, num_rounds: int) -> Any:
        """The state after so many rounds."""
        state = self._init()
        for number in range(1, num_rounds + 1):
            _, state = self._step(state, number)
        return state

    def _seen(self, num_rounds: int) -> Iterator[tuple[RoundContext, Outcome, Selection, Any]]:
        """Play so many rounds, and let each be looked at before it is booked."""
        state = self._init()
        for number in range(1, num_rounds + 1):
            context, outcome = self._draw(number, share=0.7)
            # On a copy, so that a test can call the first select on the state itself.
            selection = self._select(copy_state(state), context, outcome)
            yield context, outcome, selection, state
            state = self._book(state, context, outcome, selection)

    # The contract.

    def test_is_a_value(self) -> None:
        """A policy is a frozen, comparable, hashable and picklable dataclass."""
        check_value(self.policy(), self.policy(), "policy")

    def test_obeys_the_hard_constraints(self) -> None:
        """Only available clients, and no more than the cohort admits (Huang et al. 2021, Eq. 3 and 4)."""
        state, num_chosen = self._init(), 0
        for number in range(1, 61):
            share = 1.0 if number <= 10 else 0.6 if number <= 40 else 0.2
            selection, state = self._step(state, number, share=share)
            num_chosen += selection.links.size
        require(num_chosen > 0, "no client was ever chosen in 60 rounds")

    def test_nobody_available_is_an_empty_round(self) -> None:
        """An empty round is an explicit decision, and life goes on after it."""
        selection, state = self._step(self._play(3), 4, share=0.0)
        require(selection.is_empty, f"links are {selection.links.tolist()} although no client is available")
        for number in range(5, 9):
            _, state = self._step(state, number)

    def test_fewer_available_than_places(self) -> None:
        """With one to m - 1 available clients, a policy that fills cohorts takes them all."""
        state = self._init()
        for number in range(1, self.spec().cohort_size + 1):
            context, outcome = self._draw(number)
            rows = Streams(2).at("contract", number).permutation(context.num_links)[:number]
            available = np.zeros(context.num_links, np.bool_)
            available[rows] = True
            context = replace(context, available=available)
            selection = self._select(state, context, outcome)
            state = self._book(state, context, outcome, selection)

    def test_a_federation_of_one(self) -> None:
        """One client, one place."""
        spec = replace(self.spec(), num_clients=1, cohort_size=1)
        state = self._init(spec)
        for number in range(1, 11):
            _, state = self._step(state, number, share=0.8, spec=spec)

    def test_select_changes_nothing(self) -> None:
        """``select`` and ``weights`` leave state and context as they were, and answer the same question alike."""
        for context, outcome, selection, state in self._seen(20):
            before = frozen_pack(state)
            features = context.features.copy()
            available = context.available.copy()
            again = self._select(state, context, outcome)
            require(same_arrays(before, pack(state)), "select or weights changed the state")
            require(
                np.array_equal(features, context.features) and np.array_equal(available, context.available),
                "select changed the context",
            )
            require(
                np.array_equal(again.links, selection.links),
                "the same state, context and generator gave two decisions; draw with rng only, and keep what is "
                "remembered in the state only",
            )
            one, other = np.asarray(again.weights), np.asarray(selection.weights)
            require(np.array_equal(one, other), "the same decision was weighed in two ways")
            bare = Selection(context.round, selection.links)
            booked = [pack(self._policy.commit(copy_state(state), context, each)) for each in (selection, bare)]
            require(same_arrays(*booked), "commit reads more of a decision than its links, which a log does not hold")

    def test_what_it_refuses_it_refuses_before_it_writes(self) -> None:
        """``commit`` and ``update`` of a policy that declares ``refuses_first`` never stop in the middle of writing.

        A selector books such a policy in place, after its log; contexts, times and losses are as odd as it lets in.
        """
        if not refuses_first(self._policy):
            return
        state = self._play(10)
        context, outcome = self._draw(11)
        selection = self._select(state, context, outcome)
        feedback = self._reveal(context, outcome, selection)
        booked = self._policy.commit(copy_state(state), context, selection)
        for value in (0.0, 5e-324, 1.5, 1e308):
            odd = replace(context, features=np.full_like(context.features, value))
            told = replace(
                feedback,
                features=np.full_like(feedback.features, value),
                exchange_time_s=np.where(feedback.observed, value or 1.0, np.nan),
                loss=np.where(feedback.observed, -value, np.nan),
            )
            for what, given, said in (("commit", state, (odd, selection)), ("update", booked, (told,))):
                held = copy_state(given)
                try:
                    with np.errstate(all="ignore"):
                        getattr(self._policy, what)(held, *said)
                except Exception:
                    is_same = same_arrays(pack(given), pack(held))
                    require(is_same, f"{what} refused contexts and times of {value} after it had written")

    def test_commit_reads_what_it_says(self) -> None:
        """``commit`` of a policy that declares ``commits = "cohort"`` reads the contexts of the cohort alone."""
        if commits(self._policy) != "cohort":
            return
        for context, _, selection, state in self._seen(20):
            other = Streams(8).at("contract", context.round).uniform(0.0, 9.0, context.features.shape)
            other[selection.links] = context.features[selection.links]
            foreign = replace(context, features=other)
            booked = [pack(self._policy.commit(copy_state(state), each, selection)) for each in (context, foreign)]
            require(same_arrays(*booked), "commit reads contexts of other clients; expected commits = 'all'")

    def test_what_is_owed_and_expected(self) -> None:
        """``backlog`` and ``expected_times_s``, where a policy has them, change nothing and have a number a client."""
        spec = self.spec()
        policy = self._policy
        state = self._play(20)
        before = frozen_pack(state)
        if owes(policy):
            owed = policy.backlog(state)
            require(owed.shape == (spec.num_clients,), f"backlog has shape {owed.shape}; expected one number a client")
            require(bool((owed >= 0.0).all()), f"backlog is {shown(owed)}; expected numbers >= 0")
        if expects_times(policy):
            clients = np.arange(spec.num_clients)[::-2].copy()
            features = Streams(3).at("contract").random((clients.shape[0], spec.num_features))
            times_s = policy.expected_times_s(state, clients, features)
            require(times_s.shape == clients.shape, f"times have shape {times_s.shape}; expected {clients.shape}")
            require(not bool((times_s < 0.0).any()), f"times are {shown(times_s)}; expected none < 0")
        require(same_arrays(before, pack(state)), "what is owed or expected was asked for, and the state changed")

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same run; another one breaks ties differently, unless declared deterministic."""

        def run(seed: int) -> tuple[list[list[int]], dict[str, NDArray[Any]]]:
            state, played = self._init(), []
            for number in range(1, 31):
                selection, state = self._step(state, number, seed=seed)
                played.append(selection.links.tolist())
            return played, frozen_pack(state)

        (first, state), (again, same_state) = run(0), run(0)
        require(
            first == again and same_arrays(state, same_state),
            "two runs with one seed differ; draw with rng only, and keep what is remembered in the state only",
        )
        others = (run(seed)[0] for seed in range(1, 5))  # played until one says enough
        if self.deterministic:
            require(all(other == first for other in others), "declared deterministic, but the generator matters")
        else:
            require(
                any(other != first for other in others),
                "five seeds broke every tie alike; break ties with rng, or declare deterministic = True",
            )

    def test_the_state_is_kept(self) -> None:
        """A policy with a state uses it: ``init`` draws it, or ``commit`` or ``update`` changes it."""
        first, other = frozen_pack(self._init()), frozen_pack(self._init(seed=1))
        state = self._play(40)
        require(
            not first or not same_arrays(first, other) or not same_arrays(first, frozen_pack(state)),
            f"{', '.join(first)} did not change in 40 rounds; book in commit, learn in update, and return the state, "
            "or inherit Stateless",
        )

    def test_the_truth_stays_hidden(self) -> None:
        """Only a policy that declares ``omniscient`` may look at the outcome; it fails clearly where there is none."""
        for context, _, selection, state in self._seen(10):
            rng = Streams(0).at("policy", context.round)
            if not self._policy.omniscient:
                poisoned = replace(context, truth=Poison())  # type: ignore[arg-type]
                other = self._policy.select(state, poisoned, rng=rng)
                require(
                    np.array_equal(other.links, selection.links),
                    "the decision depends on context.truth, or on chance that does not come from rng",
                )
                continue
            try:
                self._policy.select(state, context, rng=rng)
            except ConfigurationError:
                continue
            raise AssertionError("an omniscient policy decided without the truth; call context.require_truth(name)")

    def test_the_state_saves_without_pickles(self, tmp_path: Path) -> None:
        """A state is arrays and numbers; what is loaded equals what was saved, bit for bit."""
        state = self._play(12)
        arrays = pack(state)
        objects = [name for name, array in arrays.items() if array.dtype.hasobject]
        require(not objects, f"{objects} hold Python objects; expected numbers only")
        file = tmp_path / "state.npz"
        save_arrays(file, arrays, {}, kind=_KIND)
        loaded = unpack(self._init(), load_arrays(file, kind=_KIND)[0])
        require(same_arrays(arrays, pack(loaded)), "the loaded state differs from the saved one")
        require(type(loaded) is type(state), f"a {type(loaded).__name__} was loaded; expected {type(state).__name__}")

    def test_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        """Stop, save, load, go on: the same rounds, in this process and in another interpreter."""
        check_resume(self._policy, self.environment(), tmp_path)

    def test_the_federation_grows(self) -> None:
        """More clients: what is known of the old ones stays, and the new ones take part."""
        spec, policy = self.spec(), self._policy
        larger = replace(spec, num_clients=spec.num_clients + 5)
        state = self._play(20)
        known, fresh, start = map(frozen_pack, (state, self._init(larger, seed=1), self._init(seed=1)))
        for name, _, axis in fields(state):
            require(
                axis is not None or fresh[name].shape == start[name].shape,
                f"{name} has an entry for each client, but is not declared with per_client()",
            )
        grown = grow(state, self._init(larger, seed=1))
        for name, value, axis in fields(grown):
            if axis is None:
                require(np.array_equal(known[name], value), f"{name} was forgotten when the federation grew")
                continue
            now, old, new = (np.moveaxis(np.asarray(array), axis, 0) for array in (value, known[name], fresh[name]))
            require(now.shape[0] == larger.num_clients, f"{name} did not grow")
            require(np.array_equal(now[: spec.num_clients], old), f"{name} of the old clients was forgotten")
            require(np.array_equal(now[spec.num_clients :], new[spec.num_clients :]), f"{name} of a new client is odd")
        for number in range(21, 41):
            _, grown = self._step(grown, number, spec=larger)
        if policy.fills_cohort:
            context, outcome = self._draw(41, spec=larger)
            available = np.arange(larger.num_clients) >= spec.num_clients
            context = replace(context, available=available, cohort_size=5)
            selection = policy.select(grown, self._known(context, outcome), rng=Streams(0).at("policy", 41))
            require(selection.links.tolist() == np.flatnonzero(available).tolist(), "the new clients cannot be chosen")

    def test_the_order_of_feedback_does_not_matter(self) -> None:
        """Within a round, rows may come in any order and in any parts: what is learned agrees up to rounding."""
        for context, outcome, selection, state in self._seen(15):
            feedback = self._reveal(context, outcome, selection)
            size = feedback.client.shape[0]
            shuffled = Streams(3).at("contract", context.round).permutation(size)
            orders = ([np.arange(size)], [shuffled], [np.array([row]) for row in shuffled])
            learned = []
            for parts in orders:
                booked = self._policy.commit(copy_state(state), context, selection)
                for rows in parts:
                    booked = self._policy.update(booked, feedback.rows(rows))
                learned.append(pack(booked))
            for other in learned[1:]:
                for name, array in learned[0].items():
                    np.testing.assert_allclose(other[name], array, rtol=1e-9, atol=1e-12, err_msg=name)

    def test_survives_partial_late_and_missing_feedback(self) -> None:
        """Stragglers, drop-outs, errors and silence are ordinary values."""
        state = self._init()
        waiting: list[Feedback] = []
        for number in range(1, 41):
            rng = Streams(4).at("contract", number)
            context, outcome = self._draw(number, share=0.7)
            selection = self._select(state, context, outcome)
            state = self._next("commit", state, context, selection)
            complete = self._reveal(context, outcome, selection)
            status = rng.choice(np.array(list(Status), np.uint8), complete.status.shape)
            silent = (status == Status.DROPPED) | (status == Status.FAILED)
            times_s = np.where(silent, np.nan, outcome.exchange_time_s[selection.links])
            feedback = replace(complete, status=status, exchange_time_s=times_s)
            fate = rng.integers(0, 4, status.shape)  # 0: now, 1: later, 2: much later, 3: never
            state = self._next("update", state, feedback.rows(fate == 0))
            waiting += [feedback.rows(np.array([row])) for row in np.flatnonzero((fate == 1) | (fate == 2))]
            while waiting and rng.random() < 0.6:
                state = self._next("update", state, waiting.pop(int(rng.integers(len(waiting)))))
            for name, array in pack(state).items():
                require(not np.isnan(array.astype(np.float64)).any(), f"{name} holds NaN after round {number}")

    def test_renumbered_clients_get_the_same_decision(self) -> None:
        """Where no tie is broken, only what a client is and knows counts, never its number or row."""
        if not self.equivariant:
            return
        policy, num_compared = self._policy, 0
        for context, outcome, selection, state in self._seen(80):
            known = self._known(context, outcome)
            rngs = (Streams(seed).at("policy", context.round) for seed in range(10, 16))
            others = (policy.select(state, known, rng=rng).links for rng in rngs)
            if not all(np.array_equal(links, selection.links) for links in others):
                continue  # a tie was broken
            num_compared += 1
            order = Streams(6).at("contract", context.round).permutation(self.spec().num_clients)
            renamed = relabelled(state, order)
            if context.client is not None:  # rows are links: they stay where they are under their clients' new numbers
                rows = np.arange(context.num_links)
                asked = [(renamed, replace(known, client=np.argsort(order)[context.client]))]
            else:
                rows = order
                moved = replace(context, features=context.features[order], available=context.available[order])
                moved = self._known(moved, select_rows(outcome, order))
                asked = [(renamed, moved), (state, replace(moved, client=order))]
            for question, what in asked:
                links = rows[policy.select(question, what, rng=Streams(0).at("policy", context.round)).links]
                require(
                    np.array_equal(np.sort(links), selection.links),
                    f"round {context.round}: rows {np.sort(links).tolist()} were chosen after renumbering; "
                    f"expected {selection.links.tolist()}",
                )
        require(num_compared > 0, "every one of 80 rounds was decided by a tie; set equivariant = False")


class HierarchicalPolicyContract(PolicyContract):
    """The contract for a policy that chooses links between clients and edge servers with budgets.

    Every client reaches both of two servers, links have prices, servers have budgets, and there is a deadline.
    Contexts and prices take few values, so that there are ties.  A decision that exceeds a budget or chooses a client
    twice (Qu et al. 2021, Eq. 10b and 10d) is refused.  Such a policy declares ``fills_cohort = False``, since budgets
    end most decisions.
    """

    def spec(self) -> ProblemSpec:
        """Return 12 clients and two servers; the budgets are the only limit on the cohort."""
        return ProblemSpec(num_clients=12, cohort_size=12, num_features=2, num_servers=2)

    def environment(self) -> AnyEnvironment:
        """Return Qu et al.'s network with ten clients and two servers."""
        return HierarchicalNetwork(num_clients=10, num_servers=2)

    def world(self, spec: ProblemSpec, round: int, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round in which every client reaches every server."""
        size = spec.num_clients * spec.num_servers
        cost = rng.integers(1, 5, size).astype(np.float64) * 0.5
        context = RoundContext(
            round=round,
            features=rng.integers(0, 3, (size, spec.num_features)) / 2.0,
            available=np.ones(size, np.bool_),
            cohort_size=spec.cohort_size,
            client=np.repeat(np.arange(spec.num_clients), spec.num_servers),
            server=np.tile(np.arange(spec.num_servers), spec.num_clients),
            cost=cost,
            budget=np.full(spec.num_servers, 2.5),
        )
        quick = rng.random(size)
        outcome = Outcome(
            exchange_time_s=rng.uniform(1.0, 2.0, size) + 2.0 * (rng.random(size) >= quick),
            expected_time_s=np.full(size, np.inf),
            expected_upload_s=np.zeros(size),
            responds=rng.random(size) < 0.9,
            deadline_s=3.0,
            participation_probability=lambda: 0.9 * quick,
        )
        return context, outcome
