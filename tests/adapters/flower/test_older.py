"""Strategies of flwr.server.strategy in Flower's own server, with clients whose fits take a while, fail or lie."""

import itertools
import math
import time

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.common import (
    Code,
    DisconnectRes,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersRes,
    GetPropertiesRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg, FedProx

from fedroster import RBCSF, Record, Selector, Uniform
from fedroster.adapters.flower import RoundRules, RoundSink, with_selector
from fedroster.engine.rules import AllRefusedError
from fedroster.folder.events import Told
from fedroster.record import verify

OK = Status(Code.OK, "")
SPOILED = {
    "NaN": lambda arrays: [array * math.nan for array in arrays],
    "unnamed NaN": lambda arrays: [array * math.nan for array in arrays],
    "shape": lambda arrays: [np.zeros(7)],
    "huge": lambda arrays: [array + 1e30 for array in arrays],
    "no arrays": lambda arrays: [],
    "more arrays": lambda arrays: arrays * 2,
}


class Proxy(ClientProxy):
    """A client that answers after some seconds as its fate says; its model moves one towards its number."""

    def __init__(self, number, delay_s=0.0, fate=""):
        super().__init__(str(number))
        self.node_id, self.delay_s, self.fate = number, delay_s, fate
        self.fits, self.evaluations = [], 0

    def fit(self, ins, timeout, group_id):
        self.fits.append(ins.config)
        time.sleep(self.delay_s)
        if self.fate == "raises":
            raise ValueError("Message contains an Error (reason: gone)")
        arrays = [array + 1.0 for array in parameters_to_ndarrays(ins.parameters)]
        arrays = SPOILED.get(self.fate, lambda it: it)(arrays)
        returned = ndarrays_to_parameters(arrays)
        if self.fate in ("unnamed NaN", "unreadable"):
            returned.tensor_type = ""
        if self.fate == "unreadable":
            returned.tensors = [b"x"]
        code = Status(Code.FIT_NOT_IMPLEMENTED, "no fit") if self.fate == "code" else OK
        return FitRes(code, returned, 0 if self.fate == "weight" else 10, {})

    def evaluate(self, ins, timeout, group_id):
        self.evaluations += 1
        return EvaluateRes(OK, 0.5, 10, {})

    def get_properties(self, ins, timeout, group_id):
        return GetPropertiesRes(OK, {})

    def get_parameters(self, ins, timeout, group_id):
        return GetParametersRes(OK, ndarrays_to_parameters([np.zeros(3)]))

    def reconnect(self, ins, timeout, group_id):
        return DisconnectRes("")


def served(strategy, proxies, rounds, manager=None, server=Server):
    manager = SimpleClientManager() if manager is None else manager
    for proxy in proxies:
        manager.register(proxy)
    made = server(client_manager=manager, strategy=strategy)
    made.fit(rounds, timeout=None)
    return parameters_to_ndarrays(made.parameters)[0]


def selecting(strategy, m=2, *, policy=None, rules=None, observers=(), **options):
    reports = []
    selector = Selector(policy or Uniform(), cohort_size=m, observers=[RoundSink(reports.append), *observers])
    return with_selector(strategy, selector, rules=rules, **options), reports


def fedavg(kind=FedAvg, **options):
    return kind(initial_parameters=ndarrays_to_parameters([np.zeros(3)]), fraction_evaluate=0.0, **options)


def test_the_policys_cohort_fits_and_the_record_verifies(tmp_path):
    policy = RBCSF(V=20.0, beta=0.1)
    strategy, reports = selecting(fedavg(), policy=policy, observers=[Record(tmp_path)])
    proxies = [Proxy(number, 0.1 if number == 5 else 0.0) for number in range(6)]
    model = served(strategy, proxies, 15)
    strategy.selecting.release()
    assert model == pytest.approx(15.0)
    fits = [len(proxy.fits) for proxy in proxies]
    assert sum(fits) == 30
    assert fits[5] == min(fits)
    assert strategy.selecting.selector.participation("used") == dict(zip("012345", fits, strict=True))
    found = verify(tmp_path, policy)
    assert (found.is_whole, found.num_rounds) == (True, 15)
    assert reports[0].round_s > 0.0


@pytest.mark.parametrize("accepts", [True, False])
def test_who_is_late_is_not_aggregated_and_is_learned(accepts):
    rules = RoundRules(deadline_s=0.3, longest_s=math.inf, give_up_s=60.0)
    strategy, reports = selecting(fedavg(accept_failures=accepts), m=3, rules=rules)
    proxies = [Proxy(0), Proxy(1), Proxy(2, 0.9)]
    started_s = time.monotonic()
    model = served(strategy, proxies, 1)
    assert time.monotonic() - started_s < 0.8
    assert model == pytest.approx(1.0 if accepts else 0.0)  # the older strategies keep the model at any failure then
    assert strategy.selecting.selector.participation("used") == (
        {"0": 1, "1": 1, "2": 0} if accepts else dict.fromkeys("012", 0)
    )
    assert reports[0].round_s == pytest.approx(0.3, abs=0.2)
    until_s = time.monotonic() + 5.0
    while strategy.selecting.selector.open_rounds() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert strategy.selecting.selector.participation("trained")["2"] == 1


@pytest.mark.parametrize(
    "fate",
    ["raises", "code", "NaN", "shape", "weight", "huge", "unnamed NaN", "unreadable", "no arrays", "more arrays"],
)
def test_what_cannot_be_used_is_one_clients_failure(fate):
    strategy, reports = selecting(fedavg(), m=4)
    model = served(strategy, [Proxy(0), Proxy(1), Proxy(2), Proxy(3, fate=fate)], 2)
    assert model == pytest.approx(2.0)
    assert [report.num_lost for report in reports] == [1, 1]
    assert strategy.selecting.selector.participation("used")["3"] == 0


@pytest.mark.parametrize(("fate", "deadline_s"), [("raises", math.inf), ("NaN", 5.0)])
def test_who_is_lost_late_is_learned_as_slow(fate, deadline_s):
    told = []
    rules, seen = RoundRules(deadline_s=deadline_s), [lambda event, _: told.append(event)]
    strategy, reports = selecting(fedavg(), m=2, rules=rules, observers=seen)
    served(strategy, [Proxy(0), Proxy(1, 0.5, fate)], 1)
    (lost,) = (event for event in told if isinstance(event, Told))
    assert lost.learned_s.max() >= 0.5
    assert reports[0].round_s >= 0.5
    assert reports[0].used_s < 0.4


def test_a_first_round_of_which_every_result_is_refused_is_no_success():
    strategy, _ = selecting(fedavg())
    with pytest.raises(AllRefusedError, match="weight num_examples is 0"):
        served(strategy, [Proxy(0, fate="weight"), Proxy(1, fate="weight")], 3)


@pytest.mark.parametrize("who", ["cohort", "all"])
def test_the_cohort_evaluates_where_the_rules_say_so(who):
    strategy = fedavg()
    strategy.fraction_evaluate = 1.0
    strategy, _ = selecting(strategy, rules=RoundRules(evaluate=who))
    proxies = [Proxy(number) for number in range(5)]
    served(strategy, proxies, 1)
    assert sum(proxy.evaluations for proxy in proxies) == (2 if who == "cohort" else 5)
    if who == "cohort":
        assert [proxy.evaluations for proxy in proxies] == [len(proxy.fits) for proxy in proxies]


def test_a_restarted_server_goes_on_and_clients_join(tmp_path):
    strategy, _ = selecting(fedavg(), state_dir=tmp_path)
    served(strategy, [Proxy(number) for number in range(3)], 4)
    strategy.selecting.release()
    strategy, reports = selecting(fedavg(), state_dir=tmp_path)
    assert strategy.selecting.round == 4
    served(strategy, [Proxy(number) for number in range(5)], 3)
    strategy.selecting.release()
    assert [report.round for report in reports] == [5, 6, 7]
    assert len(strategy.selecting.selector.clients) == 5


def test_a_wrapper_whose_noise_is_for_three_skips_a_round_with_two():
    inner = fedavg()
    strategy, _ = selecting(DifferentialPrivacyServerSideFixedClipping(inner, 1e-9, 10.0, num_sampled_clients=3), m=3)
    proxies = [Proxy(0), Proxy(1), Proxy(2, fate="raises")]
    assert np.all(served(strategy, proxies, 1) == 0.0)
    assert sum(strategy.selecting.selector.participation("used").values()) == 0


# ---------------------------------------------------------------- as others write servers


class DroppingFedProx(FedProx):
    """As the baseline of Li et al. 2020 is written: it makes its own instructions, and drops who did not finish."""

    def configure_fit(self, server_round, parameters, client_manager):
        pairs = super().configure_fit(server_round, parameters, client_manager)
        return [
            (client, FitIns(ins.parameters, {**ins.config, "curr_round": server_round, "number": number}))
            for number, (client, ins) in enumerate(pairs)
        ]


def test_a_baselines_instructions_are_made_for_the_chosen_clients():
    strategy, _ = selecting(fedavg(DroppingFedProx, proximal_mu=0.1), m=3)
    proxies = [Proxy(number) for number in range(8)]
    served(strategy, proxies, 5)
    for server_round in range(1, 6):
        configs = [config for proxy in proxies for config in proxy.fits if config["curr_round"] == server_round]
        assert sorted(config["number"] for config in configs) == [0, 1, 2]
        assert {config["proximal_mu"] for config in configs} == {0.1}


class FractionManager(SimpleClientManager):
    """Samples by a fraction, with a method of its own, as FL4Health's managers do."""

    def sample_fraction(self, sample_fraction, min_num_clients=None):
        self.wait_for(min_num_clients)
        return list(itertools.islice(self.clients.values(), math.ceil(sample_fraction * len(self.clients))))


class FractionFedAvg(FedAvg):
    def configure_fit(self, server_round, parameters, client_manager):
        assert isinstance(client_manager, FractionManager)
        clients = client_manager.sample_fraction(self.fraction_fit, self.min_available_clients)
        return [(client, FitIns(parameters, {})) for client in clients]


class OwnServer(Server):
    """A server with a loop of its own that polls its clients before the first round."""

    def fit(self, num_rounds, timeout):
        assert isinstance(self.strategy, FractionFedAvg)
        self.parameters = self._get_initial_parameters(0, timeout)
        self.polled = [proxy.get_properties(None, timeout, 0) for proxy in self._client_manager.all().values()]
        for server_round in range(1, num_rounds + 1):
            self.parameters = self.fit_round(server_round, timeout)[0]


def test_a_server_and_a_manager_of_ones_own_work_as_they_are():
    strategy, reports = selecting(fedavg(FractionFedAvg), m=2)
    proxies = [Proxy(number) for number in range(6)]
    model = served(strategy, proxies, 12, FractionManager(), OwnServer)
    assert model == pytest.approx(12.0)
    assert sum(len(proxy.fits) for proxy in proxies) == 24
    assert all(proxy.fits for proxy in proxies)
    assert len(reports) == 12
