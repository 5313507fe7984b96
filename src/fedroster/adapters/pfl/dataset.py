"""A federated dataset of pfl-research that asks a selector for each cohort.

The simulator has no clock of its own.  A simulated network, or a device trace, says which clients are available, how
long each exchange takes and whose update comes in time.  So a round has a length, and the policy something to learn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Saveable
from pfl.data.dataset import AbstractDataset
from pfl.data.federated_dataset import FederatedDatasetBase
from pfl.exception import CheckpointNotFoundError
from pfl.internal.ops.selector import get_default_framework_module, has_framework_module
from pfl.metrics import Metrics, StringMetricName

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError, RoundNotBegunError, StateFileError
from fedroster.core.ids import ClientId, checked_ids
from fedroster.core.problem import Selection, Status
from fedroster.core.protocols import AnyEnvironment, refuse_unseen, refuse_weights
from fedroster.core.state import load_arrays, pack, save_arrays, take, unpack, whole
from fedroster.core.streams import Streams
from fedroster.engine.remembered import factors
from fedroster.selector import Selector
from fedroster.selector.edges import EdgeSelector
from fedroster.simulation import round_time

_LOG = logging.getLogger(__name__)

_MOST_EMPTY_ROUNDS = 1_000
"""After this many consecutive rounds without an update, none will come."""

_NOISE_IS_LOST = (
    "the run goes on from a checkpoint, and a mechanism for which a separation is kept adds noise that depends on "
    "earlier iterations, which pfl does not save: its guarantee would be void; expected a run from the beginning, in a "
    "new folder"
)
_SELECTOR, _NETWORK = "fedroster-selector.npz", "fedroster-network"


def without_amplification(make_privacy_accountant: Callable[[int], Any]) -> Callable[[int], Any]:
    """Refuse accountants that count on uniform random sampling: a policy that adapts its choice voids it.

    Args:
        make_privacy_accountant: From the number of compositions to an accountant, as pfl's mechanisms take it.

    Returns:
        The same; it raises a ConfigurationError where an accountant's ``sampling_probability`` is not 1.
    """

    def made(num_compositions: int) -> Any:
        accountant = make_privacy_accountant(num_compositions)
        if (probability := accountant.sampling_probability) != 1.0:
            raise ConfigurationError(
                f"the accountant has sampling_probability = {probability}, which counts on uniform random sampling; a "
                "policy that adapts its choice voids it; expected 1.0"
            )
        return accountant

    return made


def this_worker() -> tuple[int, int]:
    """Rank of this worker process of a distributed simulation, and how many there are."""
    if not has_framework_module():
        return 0, 1
    distributed = get_default_framework_module().distributed
    return distributed.global_rank, distributed.world_size


def summed(values: FloatArray) -> FloatArray:
    """The sum of an array over all workers."""
    if this_worker()[1] == 1:
        return values.copy()
    ops: Any = get_default_framework_module()
    total: FloatArray = np.asarray(ops.to_numpy(ops.distributed.all_reduce([ops.to_tensor(values)])[0]), np.float64)
    return total


class SelectedDataset(FederatedDatasetBase, Saveable):
    """Users whose cohorts a policy chooses, in a simulated network.

    Give it to pfl's ``SimulatedBackend`` as ``training_data``; the validation data stays a dataset of pfl's own.  A
    cohort has the users whose update comes in time.  A round in which no update does is played and logged, and the
    next one begins, because pfl's algorithms need one update.

    All workers of a distributed simulation choose the same cohorts, and each gets its part of them: give each the same
    ``seed`` and selector.

    Example:
        .. code-block:: python

            selector = Selector(RBCSF(V=5.0, beta=0.1), cohort_size=8, guarded=False, longest_s=None)
            network = make_scenario("rbcs-f/table-1")
            users = SelectedDataset(lambda user: Dataset(data[user]), selector, network)
            SimulatedBackend(training_data=users, val_data=validation)

    Attributes:
        selector: Chooses; its clients are the users.
        users: Id of the user that each client of the network stands for.
        row_of: The client of the network that stands for each user.
        clock_s: Simulated time since the beginning, seconds.
        round_s: Simulated length of the last round, seconds.
        iterations: Cohorts that were given to pfl.
        saved: How many that were at the last checkpoint; None before the first.
        factors: What updates of this worker's users are still to be scaled by; None if no postprocessor asks.
        losses: That users of the present cohort measured, for policies that learn from them.
        signatures: Of the present cohort's updates, by user; None if no postprocessor tells them.
    """

    def __init__(
        self,
        make_dataset: Callable[[Any], AbstractDataset],
        selector: Selector,
        network: AnyEnvironment,
        *,
        users: Sequence[ClientId] | None = None,
        seed: int = 0,
    ) -> None:
        """Put a selector before a simulator.

        Args:
            make_dataset: The dataset of a user, by its id.
            selector: Chooses among the users, which join it unless they are members.  Its times are the network's, so
                it needs no caution: ``Selector(policy, cohort_size=m, guarded=False, longest_s=None)``.
            network: Says which users are available and how long exchanges take, of ``make_scenario``, or a
                ``TraceNetwork``.
            users: Id of the user that each client of the network stands for; None for 0, 1, 2, ...
            seed: Seed of the network, and of the seeds that users train with.

        Raises:
            ConfigurationError: If the network has edge servers, or not one client for each user.
        """
        super().__init__()
        num_clients = network.spec.num_clients
        if network.spec.num_servers != 1 or isinstance(selector, EdgeSelector):
            raise ConfigurationError(
                f"the network has {network.spec.num_servers} servers and the selector is a {type(selector).__name__}; "
                "pfl has one server: expected a flat network and a fedroster.Selector"
            )
        refuse_unseen(selector.policy, tells_signatures=True)
        self.users = tuple(range(num_clients) if users is None else checked_ids(users))
        if len(self.users) != num_clients:
            raise ConfigurationError(f"there are {len(self.users)} users; expected {num_clients}, one for each client")
        self.row_of = {user: row for row, user in enumerate(self.users)}
        members = set(selector.clients)
        if members - set(self.users):
            raise ConfigurationError("the selector has members that are not among the users; expected none")
        selector.join([user for user in self.users if user not in members])
        self.selector = selector
        self.clock_s = self.round_s = 0.0
        self.iterations = 0
        self.saved: int | None = None
        self.factors: dict[ClientId, float] | None = None
        self.signatures: dict[ClientId, FloatArray] | None = None
        self.seed = seed
        self._weights: dict[ClientId, float] = {}  # of the selector's cohort; none where they count by samples
        self._make_dataset, self._network = make_dataset, network
        self._streams = Streams(seed)
        self._state = network.init(rng=self._streams.at("environment-init"))
        self.losses: dict[ClientId, float] = {}
        self._untold: tuple[int, dict[str, Any]] | None = None
        self._last_used = np.full(num_clients, -1, np.int64)  # iterations
        self._kept_separation = 1
        self._moment = 0  # rounds of the network; rules may forbid to begin one of the selector's

    def keep_separation(self, iterations: int | None = None) -> int:
        """Keep a separation from now on, whatever becomes of the rules: noise is calibrated for it.

        Args:
            iterations: From one participation of a user to its next, at least, >= 2; None for all that the rules
                guarantee.

        Returns:
            The separation, as pfl's mechanisms want it.

        Raises:
            ConfigurationError: If the rules guarantee less, or the run goes on from a checkpoint.
        """
        if self.iterations:
            raise ConfigurationError(_NOISE_IS_LOST)
        guaranteed = int(self.selector.rules.least_separation)
        iterations = guaranteed if iterations is None else iterations
        check_integer("separation", iterations, least=2)
        if iterations > guaranteed:
            raise ConfigurationError(
                f"a separation of {iterations} is wanted, and the selector's rules guarantee {guaranteed}; "
                f"expected Selector(..., rules=Rules(least_separation={iterations}))"
            )
        self._kept_separation = iterations
        return iterations

    # ---------------------------------------------------------------- cohorts

    def get_cohort(self, cohort_size: int) -> Iterable[tuple[AbstractDataset, int]]:
        """Choose a cohort of the selector's size; this worker's part of it is made user by user.

        Raises:
            ConfigurationError: If the size is another one, weights of updates are not applied, signatures are not told,
                or no update came in time in 1,000 rounds.
        """
        if cohort_size != self.selector.cohort_size:
            raise ConfigurationError(
                f"pfl asks for {cohort_size} users, and the selector chooses up to {self.selector.cohort_size}; "
                "expected the same number (cohort_size of the algorithm's parameters; max_overshoot_fraction must be 0)"
            )
        refuse_unseen(self.selector.policy, tells_signatures=self.signatures is not None)
        if self.factors is None:
            refuse_weights(self.selector.policy, "there are no postprocessors=WeighUpdates(users).after(...)")
        if self.factors:
            raise ConfigurationError(f"updates of {[*self.factors]} were not weighed; expected datasets with a user_id")
        for _ in range(_MOST_EMPTY_ROUNDS):
            used = self._play()
            if used.shape[0]:
                break
            _LOG.warning("round %d has no update in time: the next one begins", self.selector.round)
        else:
            raise ConfigurationError(f"no update came in time in {_MOST_EMPTY_ROUNDS} rounds; expected one")
        self._last_used[used] = self.iterations
        self.iterations += 1
        drawn: IntArray = self._streams.at("users", self.selector.round).integers(2**32, size=used.shape)
        rank, workers = this_worker()
        mine = slice(rank, None, workers)
        chosen = [self.users[row] for row in used.tolist()]
        if self._weights:
            given = [self._weights[user] for user in chosen]
            found = factors(given, [1.0] * len(chosen))
            self.factors = dict(zip(chosen[mine], found[mine], strict=True))
        part = zip(chosen[mine], drawn[mine].tolist(), strict=True)
        return ((self._make_dataset(user), seed) for user, seed in part)

    def __next__(self) -> tuple[AbstractDataset, int]:
        """Refuse to choose a single user: a policy chooses cohorts."""
        raise ConfigurationError("a policy chooses whole cohorts; expected get_cohort, as SimulatedBackend calls it")

    def _play(self) -> IntArray:
        """One round of the network; returns the rows of the users whose update is used."""
        self._tell()
        self._moment += 1
        rng = self._streams.at("environment", self._moment)
        context, outcome = self._network.observe(self._state, self._moment, rng=rng)
        self._weights = {}
        clients: tuple[ClientId, ...] = ()
        try:
            cohort = self.selector.select(context.features, clients=self.users, available=context.available)
            clients = cohort.clients
            if cohort.weights is not None:
                self._weights = dict(zip(clients, cohort.weights, strict=True))
        except RoundNotBegunError as error:
            _LOG.warning("%s", error)
        links = np.sort(np.array([self.row_of[user] for user in clients], np.int64))
        selection = Selection(self._moment, links)
        feedback = outcome.reveal(context, selection)
        self.round_s = round_time(outcome, context, selection)
        self.clock_s += self.round_s
        self._state = self._network.advance(self._state, context, selection)
        chosen = [self.users[row] for row in links.tolist()]
        if not chosen:
            return links
        measured = zip(chosen, feedback.exchange_time_s.tolist(), strict=True)
        told = {
            "times_s": {user: time_s for user, time_s in measured if not np.isnan(time_s)},
            "status": dict(zip(chosen, map(Status, feedback.status.tolist()), strict=True)),
            "round_s": self.round_s,
        }
        self._untold = self.selector.round, told
        used: IntArray = links[feedback.status == Status.COMPLETED]
        # A round without an update is no iteration of pfl's, so a rule of rounds alone would be too weak.
        separation = max(self._kept_separation, int(self.selector.rules.least_separation))
        early = (self._last_used[used] >= 0) & (self.iterations - self._last_used[used] < separation)
        return used[~early]

    def _tell(self) -> None:
        """Tell the selector what came back from the last round, and what its users measured since."""
        if self._untold is None:
            return
        number, told = self._untold
        losses = {user: loss for user, loss in self.losses.items() if user in told["times_s"]}
        if self.signatures:
            told["signatures"] = self.signatures.copy()
            self.signatures.clear()
        self._untold, self.losses = None, {}
        self.selector.observe(number, losses=losses or None, **told)

    # ---------------------------------------------------------------- keep

    def save(self, dir_path: str) -> None:
        """Save selector and network in a folder, for pfl's ``RestoreTrainingCallback``."""
        self._tell()
        folder, number = Path(dir_path), self.selector.round
        header = {
            "moment": self._moment,
            "iterations": self.iterations,
            "clock_s": self.clock_s,
            "network": repr(self._network),
        }
        arrays = pack(self._state, "network.") | {"last_used": self._last_used}
        save_arrays(folder / f"{_NETWORK}-{number}.npz", arrays, header, kind="pfl-network")
        self.selector.save(folder / _SELECTOR, replace=True)  # with it the new state counts
        self.saved = self.iterations
        for old in folder.glob(f"{_NETWORK}-*.npz"):
            if old.name != f"{_NETWORK}-{number}.npz":
                old.unlink(missing_ok=True)

    def load(self, dir_path: str) -> None:
        """Go on where :meth:`save` stopped.

        Raises:
            CheckpointNotFoundError: If nothing was saved there (pfl's own error: a first run begins then).
            StateFileError: If a file is damaged.
            ConfigurationError: If it belongs to another network, or the run has noise that depends on earlier rounds.
        """
        folder = Path(dir_path)
        if self._kept_separation > 1 and (folder / _SELECTOR).exists():
            raise ConfigurationError(_NOISE_IS_LOST)
        try:
            selector = Selector.load(
                folder / _SELECTOR,
                self.selector.policy,
                observers=self.selector.observers,
                rules=self.selector.rules,
            )
            arrays, header = load_arrays(folder / f"{_NETWORK}-{selector.round}.npz", kind="pfl-network")
        except FileNotFoundError as error:
            raise CheckpointNotFoundError(str(folder)) from error
        if header.get("network") != repr(self._network) or set(selector.clients) != set(self.users):
            raise ConfigurationError(f"{dir_path!r} belongs to another network or other users; expected another folder")
        clock_s = header.get("clock_s")
        if not isinstance(clock_s, float) or not np.isfinite(clock_s):
            raise StateFileError(f"clock_s in {dir_path!r} is {clock_s!r}; expected seconds")
        moment, iterations = whole(header, "moment", 0), whole(header, "iterations", 0)
        last_used = take(arrays, "last_used", np.int64, self._last_used.shape, least=-1, most=iterations)
        self._state = unpack(self._state, arrays, "network.", spec=self._network.spec)
        self.selector = selector
        self.clock_s = clock_s
        self._moment = moment
        self.iterations = self.saved = iterations
        self._last_used = last_used
        self._untold, self.losses = None, {}


class SelectionMetrics(TrainingProcessCallback):
    """A callback that adds simulated times and participation rates to pfl's metrics."""

    def __init__(self, dataset: SelectedDataset) -> None:
        """Watch a dataset."""
        self._dataset = dataset

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Never stop; return "selection | ..." metrics: seconds, and the least and greatest participation rate."""
        rates = [*self._dataset.selector.participation_rates().values()]
        shown = {
            "round time, s": self._dataset.round_s,
            "simulated time, s": self._dataset.clock_s,
            "least participation rate": min(rates),
            "greatest participation rate": max(rates),
        }
        return False, Metrics([(StringMetricName(f"selection | {name}"), value) for name, value in shown.items()])
