"""Every policy keeps the public contract; its variants play three rounds and are kept; each says how it draws."""

import numpy as np
import pytest

from fedroster.catalogue import POLICIES, make_policy, policies
from fedroster.core.protocols import draws
from fedroster.core.state import pack, unpack
from fedroster.core.streams import Streams
from fedroster.networks import FlatNetwork
from fedroster.networks.hierarchical import HierarchicalNetwork
from fedroster.simulation import simulate
from fedroster.testing import HierarchicalPolicyContract, PolicyContract

EQUIVARIANT = {"equivariant": True}
FIXED = {"deterministic": True}  # real values do not tie; or the seed of a pool, which is drawn once, breaks ties
FLAT = {
    "rbcs-f:V=5": EQUIVARIANT,
    "fedcs:deadline_s=4": FIXED | EQUIVARIANT,
    "fedcs-greedy:deadline_s=8": FIXED | EQUIVARIANT,
    "dirichlet:gamma_2=0.5": {},
    "p3:V=5": EQUIVARIANT,
    "round-robin": EQUIVARIANT,
    "by-speed:longest_gap=2": {},
    "tifl:tiers=3,interval=2": {},
    "cs-ucb": EQUIVARIANT,
    "refl:period=2": {},
    "fedcor:warm_up=1,interval=2": {},
}
PRICED = {
    "cucb:pool_size=6": FIXED,
    "linucb:pool_size=6": FIXED,
    "linucb-pairs:alpha=0.1": {},
    "oracle-p": FIXED,
}
for _name in sorted(POLICIES.keys() - {text.partition(":")[0] for text in (*FLAT, *PRICED)}):  # the others as they are
    (PRICED if getattr(make_policy(_name), "needs_limits", False) else FLAT)[_name] = {}


def contract(text, base, declared):
    """A test class for a policy."""
    kind = type("TestContract", (base,), {"policy": lambda self: make_policy(text), **declared})
    return pytest.mark.usefixtures("resumes_in_forks")(kind)


for _base, _policies in ((PolicyContract, FLAT), (HierarchicalPolicyContract, PRICED)):
    for _text, _declared in _policies.items():
        globals()[f"Test {_text} {_base.__name__}"] = contract(_text, _base, _declared)

ONE_SERVER = HierarchicalNetwork(num_clients=10, num_servers=1)
SMALL = FlatNetwork(num_clients=12, cohort_size=4, availability=0.7, dropout=0.1)
# Where no link has a price, or there is one server; every mechanism of a policy at work; the other word of an option.
VARIANTS = [
    ("rbcs-f:V=5,schedule=lemma-1,R=0.05,L=7,S=0.1", SMALL),
    ("floor:share_of=available,slack=0,memory=10", SMALL),
    ("floor:beta=0.05,memory=2", SMALL),  # a memory that is full within a round
    ("fedcs-greedy:deadline_s=8,fraction=0.5,distribution_s=0.5,overhead_s=0.25", SMALL),
    ("size-weighted:size_feature=1", SMALL),
    ("power-of-choice:variant=pow-d", SMALL),
    ("oort:exploration=0.5,pacer_step=2,pacer_delta=20,max_participations=1,slowness_feature=-1", SMALL),
    ("tifl:tiers=3,credits=4/3/2,probabilities=0.5/0.3/0.2,adaptive=false", SMALL),
    ("e3cs:fairness=0,eta=5", SMALL),
    ("e3cs:schedule=increasing,horizon=4", SMALL),
    ("cs-ucb:queues=false", SMALL),
    ("afl:alpha_1=0.5,alpha_2=0,alpha_3=0.5", SMALL),
    ("pisces:exploration_min=0", SMALL),
    ("clustered-sampling:scheme=multinomial", SMALL),
    ("clustered-sampling:scheme=systematic", SMALL),
    ("optimal-client-sampling:variant=aocs,candidates=3", SMALL),
    ("divfl:greedy=stochastic,weighing=samples", SMALL),
    *[(text, SMALL) for text in PRICED if text not in ("cocs", "oracle-p")],
    ("cocs:scale=0.01,h_T=2,low=0/0/0,high=100/100/100", SMALL),
    ("partial-pooling:beta=0.2", SMALL),
    ("participation-weights/rbcs-f:V=5,beta=0.1", SMALL),
    ("participation-weights/oort", SMALL),
    ("cocs", ONE_SERVER),
    ("random", HierarchicalNetwork()),
    ("oracle-p", ONE_SERVER),
    ("cocs:scale=0,h_T=1", HierarchicalNetwork()),
    ("cocs:scale=0,h_T=1,solver=fast-lazy-greedy,utility=square-root", HierarchicalNetwork()),
    ("oracle:solver=fast-lazy-greedy", HierarchicalNetwork()),
    ("partial-pooling:beta=0.1", HierarchicalNetwork()),
]


@pytest.mark.parametrize(("text", "network"), VARIANTS, ids=[text for text, _ in VARIANTS])
def test_a_variant_plays_and_is_kept(text, network):
    policy, at = make_policy(text), Streams(1).at
    *_, last = simulate(policy, network, rounds=3, seed=1)  # checks every decision
    assert last.selection.links.size
    fresh = policy.init(network.spec, rng=at("policy-init"))
    kept = unpack(fresh, pack(last.policy_state), spec=network.spec, round=3)
    context, outcome = network.observe(last.environment_state, 4, rng=at("environment", 4))
    context = context.with_truth(outcome) if policy.omniscient else context
    chosen = [policy.select(state, context, rng=at("policy", 4)).links for state in (last.policy_state, kept)]
    np.testing.assert_array_equal(*chosen)


def test_where_everybody_is_a_candidate_power_of_choice_draws_nothing():
    """And losses do not tie."""
    contract("power-of-choice:d=1000", PolicyContract, EQUIVARIANT)().test_renumbered_clients_get_the_same_decision()


@pytest.mark.parametrize("text", [text for text, network in VARIANTS if network is SMALL])
def test_variants_learn_a_round_alike_in_any_order_and_parts(text):
    contract(text, PolicyContract, {})().test_the_order_of_feedback_does_not_matter()


DRAWING = {"afl", "by-speed", "clustered-sampling", "dirichlet", "e3cs", "fedcor", "oort", "pisces", "power-of-choice"}
DRAWING |= {"divfl", "hics-fl", "optimal-client-sampling", "size-weighted", "tifl"}
KINDS = {name: draws(make_policy(name)) for name in policies()}


def test_every_policy_says_how_it_draws():
    assert {name for name, kind in KINDS.items() if kind == "unknown"} == DRAWING | {"fedcs-greedy"}
    assert {name for name, kind in KINDS.items() if kind == "uniform"} == {"participation-weights", "random"}


@pytest.mark.parametrize("name", ["rbcs-f", "floor", "random", "dirichlet", "e3cs", "power-of-choice"])
def test_a_policy_that_never_draws_decides_the_same_whatever_the_stream(name):
    """After 30 rounds, when times are known and nothing ties; policies that draw decide differently."""
    policy, network = make_policy(name), FlatNetwork(num_clients=14, cohort_size=4)
    *_, last = simulate(policy, network, rounds=30, seed=3)
    context, _ = network.observe(last.environment_state, 31, rng=Streams(3).at("environment", 31))
    found = {policy.select(last.policy_state, context, rng=np.random.default_rng(n)).links.tobytes() for n in range(20)}
    assert (len(found) == 1) == (KINDS[name] == "never")
