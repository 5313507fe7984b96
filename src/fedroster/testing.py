r"""Contract tests that every policy and every environment must pass: subclass them to test your own.

Example:
    A file ``test_mine.py`` next to your policy is enough; run it with ``pytest test_mine.py``::

        from dataclasses import dataclass

        import numpy as np
        from fedroster.core.problem import Selection
        from fedroster.types import Stateless
        from fedroster.testing import PolicyContract


        @dataclass(frozen=True, slots=True)
        class Lottery(Stateless):
            '''Every client holds one ticket.'''

            def select(self, state, context, /, *, rng):
                ticket = np.where(context.available, rng.random(context.num_links), np.inf)
                size = min(context.cohort_size, int(context.available.sum()))
                return Selection(context.round, np.sort(np.argsort(ticket)[:size]))


        class TestLottery(PolicyContract):
            def policy(self):
                return Lottery()

pytest collects a subclass through its name, which starts with ``Test``.  The methods also run without pytest:

    >>> from fedroster import Uniform
    >>> class TestUniform(PolicyContract):
    ...     def policy(self):
    ...         return Uniform()
    >>> TestUniform().test_obeys_the_hard_constraints()
    >>> TestUniform().test_survives_partial_late_and_missing_feedback()

The module itself needs no pytest, only NumPy.
"""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import Feedback, Outcome, ProblemSpec, RoundContext, Selection, Status, check_selection
from fedroster.core.protocols import AnyEnvironment, AnyPolicy, ExpectsTimes, Owes, wants_losses
from fedroster.core.state import grow, load_arrays, pack, save_arrays, unpack
from fedroster.core.streams import Streams
from fedroster.environment import FlatNetwork
from fedroster.environment.hierarchical import HierarchicalNetwork
from fedroster.policies import Uniform
from fedroster.simulation import Round, load_checkpoint, save_checkpoint, simulate

__all__ = ["EnvironmentContract", "HierarchicalPolicyContract", "PolicyContract"]

_KIND = "contract-test"

# Runs in a fresh interpreter: loads the checkpoint, goes on, prints what was chosen and how long it took.
_RESUME = """
import base64, importlib, importlib.util, json, pickle, sys

task = json.loads(sys.stdin.read())
sys.path[:] = task["path"]
for name, file in task["modules"]:
    try:
        importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
policy, environment = pickle.loads(base64.b64decode(task["values"]))

from fedroster.simulation import load_checkpoint, simulate

start = load_checkpoint(task["file"], policy=policy, environment=environment, seed=task["seed"])
played = simulate(policy, environment, num_rounds=task["num_rounds"], seed=task["seed"], start=start)
print(json.dumps([[r.number, r.selection.links.tolist(), r.time_s.hex()] for r in played]))
"""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def _trace(rounds: Sequence[Round]) -> list[list[Any]]:
    return [[r.number, r.selection.links.tolist(), r.time_s.hex()] for r in rounds]


def _same_arrays(left: Mapping[str, NDArray[Any]], right: Mapping[str, NDArray[Any]]) -> bool:
    """Whether two sets of named arrays are equal bit for bit."""
    return list(left) == list(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in zip(left.values(), right.values(), strict=True)
    )


def _shown(value: Any) -> str:
    """A value for a message, and not too much of it."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def _check_state(state: Any, before: Any, method: str) -> None:
    """Check that a method returned a state of the right type."""
    if type(state) is type(before):
        return
    raise AssertionError(
        f"{method} returned {_shown(state)}; expected the state, a {type(before).__name__} (is there a return?)"
    )


def _check_fields(state: Any) -> None:
    """Check that a state is a dataclass of arrays and numbers."""
    _require(
        dataclasses.is_dataclass(state) and not isinstance(state, type),
        f"init returned {_shown(state)}; expected a dataclass of arrays and numbers, with per_client() for an entry "
        "for each client",
    )
    for name, value, _ in _fields(state):
        _require(
            isinstance(value, np.ndarray | np.generic | bool | int | float),
            f"{name} of the state is {_shown(value)}; expected an array or a number",
        )


def _frozen_pack(state: Any) -> dict[str, NDArray[Any]]:
    """What :func:`pack` gives, copied so that later rounds cannot change it."""
    return {name: array.copy() for name, array in pack(state).items()}


def _copy_state(state: Any) -> Any:
    return unpack(state, _frozen_pack(state))


def _fields(state: Any) -> Iterator[tuple[str, Any, int | None]]:
    """Name, value and client axis of every leaf of a state."""
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if dataclasses.is_dataclass(value):
            yield from ((f"{field.name}.{name}", leaf, axis) for name, leaf, axis in _fields(value))
        else:
            yield field.name, value, field.metadata.get("client_axis")


def _relabelled(state: Any, order: NDArray[np.int64]) -> Any:
    """The state after client ``order[i]`` has been renamed to i."""
    arrays = _frozen_pack(state)
    for name, value, axis in _fields(state):
        if axis is not None:
            arrays[name] = np.array(np.take(value, order, axis=axis), order="C")
    return unpack(state, arrays)


def _select_rows(outcome: Outcome, rows: NDArray[np.int64]) -> Outcome:
    probability = outcome.participation_probability
    return dataclasses.replace(
        outcome,
        exchange_time_s=outcome.exchange_time_s[rows],
        expected_time_s=outcome.expected_time_s[rows],
        expected_upload_s=outcome.expected_upload_s[rows],
        responds=outcome.responds[rows],
        participation_probability=None if probability is None else probability[rows],
    )


class _Poison:
    """Stands for the truth: whoever looks inside fails."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"a policy that is not declared omniscient read context.truth.{name}")


def _check_value(value: Any, again: Any, kind: str) -> None:
    """Check that a policy or environment is a value: frozen, comparable, hashable, picklable, printable."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    _require(parameters is not None and parameters.frozen, f"{type(value).__name__} is not a frozen dataclass")
    _require(value == again and hash(value) == hash(again), f"two equal {kind} values differ or hash differently")
    _require(pickle.loads(pickle.dumps(value)) == value, f"the {kind} does not survive pickling")
    _require(
        repr(value) == repr(again) and " at 0x" not in repr(value),
        f"repr is {value!r}; expected a text that names the {kind} in every process: checkpoints are labelled with it",
    )


def _check_resume(policy: AnyPolicy, environment: AnyEnvironment, folder: Path, *, fresh_process: bool) -> None:
    """Check that stopping, saving, loading and going on equals playing through."""
    seed, half, end = 5, 7, 16
    file = folder / "checkpoint.npz"
    through = list(simulate(policy, environment, num_rounds=end, seed=seed))
    *_, last = simulate(policy, environment, num_rounds=half, seed=seed)
    save_checkpoint(file, last, policy=policy, environment=environment, seed=seed)
    expected = _trace(through[half:])
    if not fresh_process:
        start = load_checkpoint(file, policy=policy, environment=environment, seed=seed)
        resumed = list(simulate(policy, environment, num_rounds=end, seed=seed, start=start))
        _require(_trace(resumed) == expected, "the resumed run differs from the uninterrupted one")
        for name in ("policy_state", "environment_state"):
            left, right = pack(getattr(resumed[-1], name)), pack(getattr(through[-1], name))
            _require(_same_arrays(left, right), f"{name} differs after resuming")
        return
    modules = []
    for value in (policy, environment):
        name = type(value).__module__
        modules.append((name, getattr(importlib.import_module(name), "__file__", "") or ""))
    task = {
        "path": sys.path,
        "modules": modules,
        "values": base64.b64encode(pickle.dumps((policy, environment))).decode(),
        "file": str(file),
        "seed": seed,
        "num_rounds": end,
    }
    done = subprocess.run([sys.executable, "-c", _RESUME], input=json.dumps(task), capture_output=True, text=True)
    _require(done.returncode == 0, f"resuming in a fresh process failed:\n{done.stderr}")
    _require(
        json.loads(done.stdout.splitlines()[-1]) == expected,
        "the run resumed in a fresh process differs from the uninterrupted one",
    )


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
        """Return the policy under test.  Called often; equal values are expected."""
        raise NotImplementedError("override policy() and return the policy under test")

    def spec(self) -> ProblemSpec:
        """Return a small problem that the policy accepts: more clients than places."""
        return ProblemSpec(num_clients=12, cohort_size=4, num_features=3)

    def environment(self) -> AnyEnvironment:
        """Return a small network for the runs that are saved and resumed; its spec may differ from :meth:`spec`."""
        return FlatNetwork(num_clients=12, cohort_size=4, availability=0.7, dropout=0.1)

    def world(self, spec: ProblemSpec, round: int, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round with every client available; override it for a policy that needs special contexts.

        Args:
            spec: The problem.
            round: Round number.
            rng: Draws it.
        """
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

    def _init(self, spec: ProblemSpec, seed: int = 0) -> Any:
        policy = self.policy()
        policy.check(spec)
        state = policy.init(spec, rng=Streams(seed).at("policy-init"))
        _check_fields(state)
        return state

    def _known(self, context: RoundContext, outcome: Outcome) -> RoundContext:
        return context.with_truth(outcome) if self.policy().omniscient else context

    def _select(self, state: Any, context: RoundContext, outcome: Outcome, *, seed: int = 0) -> Selection:
        """Ask for a decision and check it against the hard constraints."""
        policy = self.policy()
        rng = Streams(seed).at("policy", context.round)
        selection = policy.select(state, self._known(context, outcome), rng=rng)
        _require(
            isinstance(selection, Selection) and isinstance(selection.links, np.ndarray),
            f"select returned {_shown(selection)}; expected Selection(context.round, rows), rows an array of integers",
        )
        check_selection(selection, context, fills_cohort=policy.fills_cohort)
        return selection

    def _commit(self, state: Any, context: RoundContext, selection: Selection) -> Any:
        """Book a decision."""
        booked = self.policy().commit(state, context, selection)
        _check_state(booked, state, "commit")
        return booked

    def _update(self, state: Any, feedback: Feedback) -> Any:
        """Learn from feedback."""
        learned = self.policy().update(state, feedback)
        _check_state(learned, state, "update")
        return learned

    def _reveal(self, context: RoundContext, outcome: Outcome, selection: Selection) -> Feedback:
        """What comes back; if the policy wants losses, with those of most clients, and of nobody every fifth round."""
        feedback = outcome.reveal(context, selection)
        if not wants_losses(self.policy()) or context.round % 5 == 0:
            return feedback
        # Drawn for every link: a client reports the same whoever else was chosen.
        rng = Streams(7).at("contract", context.round)
        loss, spread, known = rng.gamma(4.0, 0.5, context.num_links), rng.random(context.num_links), outcome.responds
        known = (known & (rng.random(context.num_links) < 0.8))[selection.links]
        loss, spread = loss[selection.links], spread[selection.links]
        return dataclasses.replace(
            feedback,
            loss=np.where(known, loss, np.nan),
            squared_loss=np.where(known, loss**2 + spread, np.nan) if context.round % 2 else None,
            num_samples=np.where(known, 20.0 + 10.0 * (feedback.client % 4), np.nan),
        )

    def _draw(self, spec: ProblemSpec, number: int, *, share: float = 1.0) -> tuple[RoundContext, Outcome]:
        rng = Streams(1).at("contract", number)
        context, outcome = self.world(spec, number, rng)
        available = context.available & (rng.random(context.num_links) < share)
        return dataclasses.replace(context, available=available), outcome

    def _play(
        self,
        spec: ProblemSpec,
        state: Any,
        numbers: range,
        *,
        seed: int = 0,
        share: float = 0.7,
        see: Callable[[RoundContext, Outcome, Selection, Any], None] | None = None,
    ) -> Any:
        """Play rounds, checking every decision; ``see`` looks at each before it is booked."""
        for number in numbers:
            context, outcome = self._draw(spec, number, share=share)
            selection = self._select(state, context, outcome, seed=seed)
            if see is not None:
                see(context, outcome, selection, state)
            state = self._update(self._commit(state, context, selection), self._reveal(context, outcome, selection))
        return state

    # The contract.

    def test_is_a_value(self) -> None:
        """A policy is a frozen, comparable, hashable and picklable dataclass."""
        _check_value(self.policy(), self.policy(), "policy")

    def test_obeys_the_hard_constraints(self) -> None:
        """Only available clients, and as many as the cohort admits, whoever is there (paper A, (3) and (4))."""
        spec = self.spec()
        sizes: list[int] = []
        state = self._init(spec)
        for share, numbers in ((1.0, range(1, 11)), (0.6, range(11, 41)), (0.2, range(41, 61))):
            state = self._play(spec, state, numbers, share=share, see=lambda c, o, s, _: sizes.append(s.links.size))
        _require(max(sizes) > 0, "nobody was ever chosen in 60 rounds")

    def test_nobody_available_is_an_empty_round(self) -> None:
        """An empty round is an explicit decision, and life goes on after it."""
        spec = self.spec()
        state = self._play(spec, self._init(spec), range(1, 4))
        context, outcome = self._draw(spec, 4, share=0.0)
        selection = self._select(state, context, outcome)
        _require(selection.is_empty, f"links are {selection.links.tolist()} although nobody is available")
        state = self._update(self._commit(state, context, selection), self._reveal(context, outcome, selection))
        self._play(spec, state, range(5, 9))

    def test_fewer_available_than_places(self) -> None:
        """With one to m - 1 available clients, a policy that fills cohorts takes them all."""
        spec = self.spec()
        state = self._init(spec)
        for number in range(1, spec.cohort_size + 1):
            context, outcome = self._draw(spec, number)
            rows = Streams(2).at("contract", number).permutation(context.num_links)[:number]
            available = np.zeros(context.num_links, np.bool_)
            available[rows] = True
            context = dataclasses.replace(context, available=available)
            selection = self._select(state, context, outcome)
            state = self._update(self._commit(state, context, selection), self._reveal(context, outcome, selection))

    def test_a_federation_of_one(self) -> None:
        """One client, one place."""
        spec = dataclasses.replace(self.spec(), num_clients=1, cohort_size=1)
        self._play(spec, self._init(spec), range(1, 11), share=0.8)

    def test_select_changes_nothing(self) -> None:
        """``select`` leaves the state and the context as they were, and answers the same question alike."""
        spec, policy = self.spec(), self.policy()

        def see(context: RoundContext, outcome: Outcome, selection: Selection, state: Any) -> None:
            before, features, available = _frozen_pack(state), context.features.copy(), context.available.copy()
            again = policy.select(state, self._known(context, outcome), rng=Streams(0).at("policy", context.round))
            _require(_same_arrays(before, pack(state)), "select changed the state")
            _require(
                np.array_equal(features, context.features) and np.array_equal(available, context.available),
                "select changed the context",
            )
            _require(
                np.array_equal(again.links, selection.links),
                "the same state, context and generator gave two decisions; draw with rng only, and keep what is "
                "remembered in the state only",
            )

        self._play(spec, self._init(spec), range(1, 21), see=see)

    def test_what_is_owed_and_expected(self) -> None:
        """``backlog`` and ``expected_times_s``, where a policy has them, change nothing and have a number a client."""
        spec, policy = self.spec(), self.policy()
        state = self._play(spec, self._init(spec), range(1, 21))
        before = _frozen_pack(state)
        if isinstance(policy, Owes):
            owed = policy.backlog(state)
            _require(owed.shape == (spec.num_clients,), f"backlog has shape {owed.shape}; expected one number a client")
            _require(bool((owed >= 0.0).all()), f"backlog is {_shown(owed)}; expected numbers >= 0")
        if isinstance(policy, ExpectsTimes):
            clients = np.arange(spec.num_clients)[::-2].copy()
            features = Streams(3).at("contract").random((clients.shape[0], spec.num_features))
            times_s = policy.expected_times_s(state, clients, features)
            _require(times_s.shape == clients.shape, f"times have shape {times_s.shape}; expected {clients.shape}")
            _require(not bool((times_s < 0.0).any()), f"times are {_shown(times_s)}; expected none < 0")
        _require(_same_arrays(before, pack(state)), "what is owed or expected was asked for, and the state changed")

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same run; another one breaks ties differently, unless declared deterministic."""
        spec = self.spec()

        def run(seed: int) -> tuple[list[list[int]], dict[str, NDArray[Any]]]:
            links: list[list[int]] = []
            state = self._play(
                spec, self._init(spec), range(1, 31), seed=seed, see=lambda c, o, s, _: links.append(s.links.tolist())
            )
            return links, _frozen_pack(state)

        (first, state), (again, same_state) = run(0), run(0)
        _require(
            first == again and _same_arrays(state, same_state),
            "two runs with one seed differ; draw with rng only, and keep what is remembered in the state only",
        )
        others = [run(seed)[0] for seed in range(1, 5)]
        if self.deterministic:
            _require(all(other == first for other in others), "declared deterministic, but the generator matters")
        else:
            _require(
                any(other != first for other in others),
                "five seeds broke every tie alike; break ties with rng, or declare deterministic = True",
            )

    def test_the_state_is_kept(self) -> None:
        """Who declares a state uses it: it is drawn by ``init``, or changed by ``commit`` or ``update``."""
        spec = self.spec()
        first, other = _frozen_pack(self._init(spec)), _frozen_pack(self._init(spec, seed=1))
        state = self._play(spec, self._init(spec), range(1, 41))
        _require(
            not first or not _same_arrays(first, other) or not _same_arrays(first, _frozen_pack(state)),
            f"{', '.join(first)} did not change in 40 rounds; book in commit, learn in update, and return the state, "
            "or inherit Stateless",
        )

    def test_the_truth_stays_hidden(self) -> None:
        """Only a policy that declares ``omniscient`` may look at the outcome; it fails clearly where there is none."""
        spec, policy = self.spec(), self.policy()

        def see(context: RoundContext, outcome: Outcome, selection: Selection, state: Any) -> None:
            rng = Streams(0).at("policy", context.round)
            if not policy.omniscient:
                poisoned = dataclasses.replace(context, truth=_Poison())  # type: ignore[arg-type]
                other = policy.select(state, poisoned, rng=rng)
                _require(
                    np.array_equal(other.links, selection.links),
                    "the decision depends on context.truth, or on chance that does not come from rng",
                )
                return
            try:
                policy.select(state, context, rng=rng)
            except ConfigurationError:
                return
            raise AssertionError("an omniscient policy decided without the truth; call context.require_truth(name)")

        self._play(spec, self._init(spec), range(1, 11), see=see)

    def test_the_state_saves_without_pickles(self, tmp_path: Path) -> None:
        """A state is arrays and numbers; what is loaded equals what was saved, bit for bit."""
        spec = self.spec()
        state = self._play(spec, self._init(spec), range(1, 13))
        arrays = pack(state)
        objects = [name for name, array in arrays.items() if array.dtype.hasobject]
        _require(not objects, f"{objects} hold Python objects; expected numbers only")
        file = tmp_path / "state.npz"
        save_arrays(file, arrays, {}, kind=_KIND)
        loaded = unpack(self._init(spec), load_arrays(file, kind=_KIND)[0])
        _require(_same_arrays(arrays, pack(loaded)), "the loaded state differs from the saved one")
        _require(type(loaded) is type(state), f"a {type(loaded).__name__} was loaded; expected {type(state).__name__}")

    def test_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        """Stop, save, load, go on: nobody can tell."""
        _check_resume(self.policy(), self.environment(), tmp_path, fresh_process=False)

    def test_resumed_in_a_fresh_process_equals_uninterrupted(self, tmp_path: Path) -> None:
        """The same, in another interpreter."""
        _check_resume(self.policy(), self.environment(), tmp_path, fresh_process=True)

    def test_the_federation_grows(self) -> None:
        """More clients: what is known of the old ones stays, and the new ones take part."""
        spec, policy = self.spec(), self.policy()
        larger = dataclasses.replace(spec, num_clients=spec.num_clients + 5)
        state = self._play(spec, self._init(spec), range(1, 21))
        known = {name: np.array(value) for name, value, _ in _fields(state)}
        fresh = {name: np.array(value) for name, value, _ in _fields(self._init(larger, seed=1))}
        start = {name: np.array(value) for name, value, _ in _fields(self._init(spec, seed=1))}
        for name, _, axis in _fields(state):
            _require(
                axis is not None or fresh[name].shape == start[name].shape,
                f"{name} has an entry for each client, but is not declared with per_client()",
            )
        grown = grow(state, self._init(larger, seed=1))
        for name, value, axis in _fields(grown):
            if axis is None:
                _require(np.array_equal(known[name], value), f"{name} was forgotten when the federation grew")
                continue
            now, old, new = (np.moveaxis(np.asarray(array), axis, 0) for array in (value, known[name], fresh[name]))
            _require(now.shape[0] == larger.num_clients, f"{name} did not grow")
            _require(np.array_equal(now[: spec.num_clients], old), f"{name} of the old clients was forgotten")
            _require(np.array_equal(now[spec.num_clients :], new[spec.num_clients :]), f"{name} of a new client is odd")
        self._play(larger, grown, range(21, 41))
        if policy.fills_cohort:
            context, outcome = self._draw(larger, 41)
            available = np.arange(larger.num_clients) >= spec.num_clients
            context = dataclasses.replace(context, available=available, cohort_size=5)
            selection = policy.select(grown, self._known(context, outcome), rng=Streams(0).at("policy", 41))
            _require(selection.links.tolist() == np.flatnonzero(available).tolist(), "the new clients cannot be chosen")

    def test_the_order_of_feedback_does_not_matter(self) -> None:
        """Within a round, rows may come in any order and in any parts: what is learned agrees up to rounding."""
        spec, policy = self.spec(), self.policy()

        def see(context: RoundContext, outcome: Outcome, selection: Selection, state: Any) -> None:
            feedback = self._reveal(context, outcome, selection)
            size = feedback.client.shape[0]
            shuffled = Streams(3).at("contract", context.round).permutation(size)
            orders = ([np.arange(size)], [shuffled], [np.array([row]) for row in shuffled])
            learned = []
            for parts in orders:
                booked = policy.commit(_copy_state(state), context, selection)
                for rows in parts:
                    booked = policy.update(booked, feedback.rows(rows))
                learned.append(pack(booked))
            for other in learned[1:]:
                for name, array in learned[0].items():
                    np.testing.assert_allclose(other[name], array, rtol=1e-9, atol=1e-12, err_msg=name)

        self._play(spec, self._init(spec), range(1, 16), see=see)

    def test_survives_partial_late_and_missing_feedback(self) -> None:
        """Stragglers, drop-outs, errors and silence are ordinary values."""
        spec = self.spec()
        state = self._init(spec)
        waiting: list[Feedback] = []
        for number in range(1, 41):
            rng = Streams(4).at("contract", number)
            context, outcome = self._draw(spec, number, share=0.7)
            selection = self._select(state, context, outcome)
            state = self._commit(state, context, selection)
            complete = self._reveal(context, outcome, selection)
            status = rng.choice(np.array(list(Status), np.uint8), complete.status.shape)
            silent = (status == Status.DROPPED) | (status == Status.FAILED)
            times_s = np.where(silent, np.nan, outcome.exchange_time_s[selection.links])
            feedback = dataclasses.replace(complete, status=status, exchange_time_s=times_s)
            fate = rng.integers(0, 4, status.shape)  # 0: now, 1: later, 2: much later, 3: never
            state = self._update(state, feedback.rows(fate == 0))
            waiting += [feedback.rows(np.array([row])) for row in np.flatnonzero((fate == 1) | (fate == 2))]
            while waiting and rng.random() < 0.6:
                state = self._update(state, waiting.pop(int(rng.integers(len(waiting)))))
            for name, array in pack(state).items():
                _require(not np.isnan(array.astype(np.float64)).any(), f"{name} holds NaN after round {number}")

    def test_renumbered_clients_get_the_same_decision(self) -> None:
        """Where no tie is broken, only what a client is and knows counts, never its number or row."""
        if not self.equivariant:
            return
        spec, policy = self.spec(), self.policy()
        compared = [0]

        def see(context: RoundContext, outcome: Outcome, selection: Selection, state: Any) -> None:
            known = self._known(context, outcome)
            for seed in range(10, 16):
                other = policy.select(state, known, rng=Streams(seed).at("policy", context.round))
                if not np.array_equal(other.links, selection.links):
                    return  # a tie was broken
            compared[0] += 1
            if context.client is not None:  # rows are links: they stay where they are under their clients' new numbers
                order = Streams(6).at("contract", context.round).permutation(spec.num_clients)
                renamed = dataclasses.replace(known, client=np.argsort(order)[context.client])
                links = policy.select(
                    _relabelled(state, order), renamed, rng=Streams(0).at("policy", context.round)
                ).links
                _require(
                    np.array_equal(links, selection.links),
                    f"round {context.round}: rows {links.tolist()} were chosen after renumbering; "
                    f"expected {selection.links.tolist()}",
                )
                return
            order = Streams(6).at("contract", context.round).permutation(context.num_links)
            moved = dataclasses.replace(context, features=context.features[order], available=context.available[order])
            moved = self._known(moved, _select_rows(outcome, order))
            named = dataclasses.replace(moved, client=order)
            rng = Streams(0).at("policy", context.round)
            for question, what in ((_relabelled(state, order), moved), (state, named)):
                links = policy.select(question, what, rng=rng).links
                _require(
                    np.array_equal(np.sort(order[links]), selection.links),
                    f"round {context.round}: {np.sort(order[links]).tolist()} were chosen after renumbering; "
                    f"expected {selection.links.tolist()}",
                )

        self._play(spec, self._init(spec), range(1, 81), see=see)
        _require(compared[0] > 0, "every one of 80 rounds was decided by a tie; set equivariant = False")


class HierarchicalPolicyContract(PolicyContract):
    """The contract for a policy that chooses links between clients and edge servers with budgets.

    Every client reaches both of two servers, links have prices, servers have budgets, and there is a deadline.
    Contexts and prices take few values, so that there are ties.  A decision that exceeds a budget (paper B, (10b)) or
    chooses a client twice (10d) is refused.  Such a policy declares ``fills_cohort = False``, since budgets end most
    decisions.
    """

    def spec(self) -> ProblemSpec:
        """Return 12 clients and two servers; the budgets are the only limit on the cohort."""
        return ProblemSpec(num_clients=12, cohort_size=12, num_features=2, num_servers=2)

    def environment(self) -> AnyEnvironment:
        """Return paper B's network with ten clients and two servers."""
        return HierarchicalNetwork(num_clients=10, num_servers=2)

    def world(self, spec: ProblemSpec, round: int, rng: Generator) -> tuple[RoundContext, Outcome]:
        """Draw one round in which every client reaches every server.

        Args:
            spec: The problem.
            round: Round number.
            rng: Draws it.
        """
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
            participation_probability=0.9 * quick,
        )
        return context, outcome


class EnvironmentContract:
    """What every simulated network must do.  Subclass it and override :meth:`environment`.

    Attributes:
        num_rounds: Rounds for the statistical test.
    """

    num_rounds: ClassVar[int] = 400

    def environment(self) -> AnyEnvironment:
        """Return the environment under test.  Called often; equal values are expected."""
        raise NotImplementedError("override environment() and return the environment under test")

    def policy(self) -> AnyPolicy:
        """Return a policy whose decisions are allowed here, for the runs that are saved and resumed."""
        return Uniform()

    def exogenous(self, context: RoundContext, outcome: Outcome) -> Mapping[str, NDArray[Any]]:
        """Return the parts of a round that do not depend on earlier decisions; the default: all of it.

        Override it where history matters, as with cold starts.

        Args:
            context: The round's context.
            outcome: The round's outcome.
        """
        parts: dict[str, NDArray[Any]] = {}
        for value, names in (
            (context, ("available", "features", "client", "server", "cost", "budget", "members")),
            (outcome, [field.name for field in dataclasses.fields(outcome)]),
        ):
            parts |= {name: np.asarray(getattr(value, name)) for name in names if getattr(value, name) is not None}
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
    def _first(context: RoundContext) -> NDArray[np.int64]:
        rows = np.flatnonzero(context.available)
        rows = rows[np.unique(context.clients_of(rows), return_index=True)[1]]  # one link of each client
        return np.sort(rows[: context.cohort_size])

    @staticmethod
    def _last(context: RoundContext) -> NDArray[np.int64]:
        rows = np.flatnonzero(context.available)
        rows = rows[np.unique(context.clients_of(rows), return_index=True)[1]]
        return np.sort(rows[-context.cohort_size :])

    @staticmethod
    def _nobody(context: RoundContext) -> NDArray[np.int64]:
        return np.zeros(0, np.int64)

    # The contract.

    def test_is_a_value(self) -> None:
        """An environment is a frozen, comparable, hashable and picklable dataclass."""
        _check_value(self.environment(), self.environment(), "environment")

    def test_shapes_types_and_ranges(self) -> None:
        """Everything has the declared shape and type and is finite; times are positive."""
        spec = self.environment().spec
        seen = 0
        for number, (context, outcome, _) in enumerate(self._rounds(25, self._first), start=1):
            links = context.num_links
            _require(context.round == number, f"the context is for round {context.round}; expected {number}")
            _require(1 <= context.cohort_size <= spec.cohort_size, f"cohort_size is {context.cohort_size}")
            _require(context.truth is None, "the environment told the truth before the decision")
            expected: list[tuple[str, Any, type, tuple[int, ...]]] = [
                ("features", context.features, np.float64, (links, spec.num_features)),
                ("available", context.available, np.bool_, (links,)),
                ("exchange_time_s", outcome.exchange_time_s, np.float64, (links,)),
                ("expected_time_s", outcome.expected_time_s, np.float64, (links,)),
                ("expected_upload_s", outcome.expected_upload_s, np.float64, (links,)),
                ("responds", outcome.responds, np.bool_, (links,)),
            ]
            for name, array, dtype, shape in expected:
                _require(
                    array.dtype == dtype and array.shape == shape,
                    f"{name} is {array.dtype} of shape {array.shape}; expected {np.dtype(dtype)} of shape {shape}",
                )
                finite = np.isfinite(array) | (name == "expected_time_s")
                _require(bool(finite.all()), f"{name} is not finite in round {number}")
            _require(bool((outcome.exchange_time_s > 0).all()), "an exchange time is not positive")
            _require(bool((outcome.expected_time_s > 0).all()), "an expected exchange time is not positive")
            _require(bool((outcome.expected_upload_s >= 0).all()), "an expected upload time is negative")
            _require(
                bool((outcome.expected_upload_s <= outcome.expected_time_s * (1 + 1e-12)).all()),
                "an upload takes longer than the whole exchange",
            )
            _require(outcome.deadline_s > 0, f"deadline_s is {outcome.deadline_s}")
            stay_s = outcome.stay_s
            if stay_s is not None:
                inside = stay_s.shape == (links,) and bool((stay_s >= 0).all())
                _require(inside, "stay_s is not one number >= 0 for each link")
                _require(
                    not (outcome.responds & (outcome.exchange_time_s > stay_s)).any(),
                    "a client responds that leaves before its exchange is over",
                )
            probability = outcome.participation_probability
            if probability is not None:
                inside = probability.shape == (links,) and bool(((probability >= 0) & (probability <= 1)).all())
                _require(inside, "participation_probability is not one number in [0, 1] for each link")
            if context.cost is not None:
                inside = context.cost.shape == (links,) and bool((context.cost >= 0).all())
                _require(inside, "cost is not one number >= 0 for each link")
            if context.client is None:
                _require(links == spec.num_clients, f"{links} rows name no clients; expected {spec.num_clients}")
            for array, bound in ((context.client, spec.num_clients), (context.server, spec.num_servers)):
                if array is not None:
                    inside = array.shape == (links,) and bool(((array >= 0) & (array < bound)).all())
                    _require(inside, "a client or server index is out of range")
            seen += int(context.available.sum())
        _require(seen > 0, "nobody was available in 25 rounds")

    def test_every_policy_meets_the_same_world(self) -> None:
        """What does not depend on history is the same bit for bit, whoever was chosen before."""
        for other in (self._last, self._nobody):
            runs = zip(self._rounds(25, self._first), self._rounds(25, other), strict=True)
            for (context, outcome, _), (other_context, other_outcome, _) in runs:
                left, right = self.exogenous(context, outcome), self.exogenous(other_context, other_outcome)
                _require("available" in left, "exogenous() must at least hold the availability")
                for name in left:
                    _require(
                        _same_arrays({name: left[name]}, {name: right[name]}),
                        f"{name} of round {context.round} depends on who was chosen before",
                    )

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same world bit for bit, another one another world."""

        def world(seed: int) -> list[NDArray[Any]]:
            return [
                array
                for context, outcome, _ in self._rounds(10, self._first, seed=seed)
                for array in (context.features, context.available, outcome.exchange_time_s, outcome.responds)
            ]

        first, again, other = world(0), world(0), world(1)
        _require(all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True)), "one seed, two worlds")
        _require(any(a.tobytes() != b.tobytes() for a, b in zip(first, other, strict=True)), "two seeds, one world")

    def test_observing_changes_nothing(self) -> None:
        """``observe`` leaves the state as it was and answers the same question alike."""
        environment = self.environment()
        for context, outcome, state in self._rounds(8, self._first):
            before = _frozen_pack(state)
            again, same = environment.observe(state, context.round, rng=Streams(0).at("environment", context.round))
            _require(_same_arrays(before, pack(state)), "observe changed the state")
            _require(
                again.features.tobytes() == context.features.tobytes()
                and same.exchange_time_s.tobytes() == outcome.exchange_time_s.tobytes(),
                "the same state, round and generator gave two worlds",
            )

    def test_expectations_are_the_mean_of_what_happens(self) -> None:
        """Over many rounds, what happens scatters around its expectation without bias (seeded)."""
        errors: dict[str, list[NDArray[np.float64]]] = {"exchange times": [], "participation": []}
        for _, outcome, _ in self._rounds(self.num_rounds, self._first):
            known = np.isfinite(outcome.expected_time_s)
            expected_s = outcome.expected_time_s[known]
            errors["exchange times"].append((outcome.exchange_time_s[known] - expected_s) / expected_s)
            if outcome.participation_probability is not None:
                errors["participation"].append(outcome.in_time - outcome.participation_probability)
        for what, parts in errors.items():
            error = np.concatenate(parts) if parts else np.zeros(0)
            if error.size:
                mean, spread = float(error.mean()), float(error.std()) / math.sqrt(error.size)
                _require(
                    abs(mean) <= 4.5 * spread + 1e-9,
                    f"{what}: {100 * mean:+.2f} % off the expectation (standard error {100 * spread:.2f} %)",
                )

    def test_reveal_shows_only_the_chosen(self) -> None:
        """Feedback has one row for each chosen link, with that link's own values, and no time for who is silent."""
        for context, outcome, _ in self._rounds(20, self._first):
            links = self._last(context)
            feedback = outcome.reveal(context, Selection(context.round, links))
            _require(feedback.round == context.round, "the feedback is for another round")
            _require(np.array_equal(feedback.client, context.clients_of(links)), "feedback names other clients")
            _require(np.array_equal(feedback.features, context.features[links]), "feedback shows other features")
            responds = outcome.responds[links]
            times = np.where(responds, outcome.exchange_time_s[links], np.nan)
            _require(np.array_equal(feedback.exchange_time_s, times, equal_nan=True), "feedback shows other times")
            _require(np.array_equal(feedback.observed, responds), "a silent client's time was revealed")
            late = np.where(outcome.exchange_time_s[links] <= outcome.deadline_s, Status.COMPLETED, Status.LATE)
            status = np.where(responds, late, Status.DROPPED)
            _require(np.array_equal(feedback.status, status), "the status does not fit the outcome")

    def test_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        """Stop, save, load, go on: nobody can tell."""
        _check_resume(self.policy(), self.environment(), tmp_path, fresh_process=False)

    def test_resumed_in_a_fresh_process_equals_uninterrupted(self, tmp_path: Path) -> None:
        """The same, in another interpreter."""
        _check_resume(self.policy(), self.environment(), tmp_path, fresh_process=True)
