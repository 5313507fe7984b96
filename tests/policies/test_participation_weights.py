"""FedAU's weights: known answers, late answers, members, and a policy inside that stays what it is."""

import numpy as np
import pytest

from fedroster import EdgeSelector, Record, Selector
from fedroster.catalogue import make_policy, policy_of_label, policy_text
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.protocols import commits, expects_times, owes, refuses_first, wants_losses
from fedroster.core.state import as_labelled
from fedroster.policies import COCS, RBCSF, Floor, Oort, PartialPooling, ParticipationWeights, Uniform
from fedroster.record import verify
from fedroster.types import ProblemSpec, Selection
from rounds import context_of, report
from weighing import Drawn

NOTHING = np.zeros(0, np.int64)


def context(number, size=1, members=None):
    return context_of(size, size, round=number, members=members)


def weight(policy, state, number, size=1, members=None):
    return policy.weights(state, context(number, size, members), Selection(number, np.arange(size))) * size


@pytest.mark.parametrize(("longest", "expected"), [(10**5, [1, 3, 2]), (2, [2, 1.5, 4 / 3])])
def test_weights_are_the_mean_intervals_so_far(longest, expected):
    policy = ParticipationWeights(longest_gap=longest)
    state, found = policy.init(ProblemSpec(1, 1, 1), rng=np.random.default_rng(0)), []
    for number, there in enumerate([0, 0, 1, 1, 0, 1], 1):
        found += weight(policy, state, number).tolist() if there else []
        state = policy.commit(state, context(number), Selection(number, np.arange(there)))
        state = policy.update(state, report([0] * there, round=number))
    assert found == pytest.approx(expected)


def test_a_late_report_ends_the_interval_in_its_own_round():
    policy = ParticipationWeights()
    prompt, late = (policy.init(ProblemSpec(1, 1, 1), rng=np.random.default_rng(0)) for _ in range(2))
    for number in range(1, 5):
        prompt = policy.commit(prompt, context(number), Selection(number, NOTHING))
        late = policy.commit(late, context(number), Selection(number, NOTHING))
        if number == 2:
            prompt = policy.update(prompt, report([0], round=2))
    late = policy.update(late, report([0], round=2, staleness=2))
    assert weight(policy, late, 5) == weight(policy, prompt, 5) == 2.0
    again = policy.update(policy.update(late, report([0], round=4)), report([0], round=3, staleness=1))
    assert (again.total[0], again.intervals[0], again.gap[0]) == (4.0, 2, 0)


def test_late_updates_and_failures_are_rounds_without():
    policy = ParticipationWeights()
    state = policy.init(ProblemSpec(1, 1, 1), rng=np.random.default_rng(0))
    for number, status in enumerate([1, 2, 3], 1):
        state = policy.commit(state, context(number), Selection(number, np.arange(1)))
        state = policy.update(state, report([0], round=number, status=[status]))
    assert (state.intervals[0], state.gap[0]) == (0, 3)


def test_a_client_that_is_gone_counts_on_for_as_long_as_the_longest_gap():
    policy, members = ParticipationWeights(longest_gap=3), np.array([True, True, False])
    state, shares = policy.init(ProblemSpec(3, 3, 1), rng=np.random.default_rng(0)), []
    for number in range(1, 9):
        here = None if number == 1 else members
        asked = context(number, 3, here)
        shares.append(1.0 / policy.weights(state, asked, Selection(number, np.arange(1)))[0] * weight_of(state))
        state = policy.commit(state, asked, Selection(number, np.arange(1)))
        state = policy.update(state, report([0], round=number))
    assert shares == pytest.approx([3, 3, 3, 3, 2, 2, 2, 2])
    assert state.gap.max() <= 3


def weight_of(state):
    return state.total[0] / state.intervals[0] if state.intervals[0] else 1.0


@pytest.mark.parametrize("inside", [RBCSF(V=5.0, beta=0.1), Floor(), Oort(), Uniform()])
def test_it_decides_promises_and_expects_as_the_policy_inside(inside):
    around, clients = ParticipationWeights(inside), list("abcdefgh")
    same = [owes, expects_times, wants_losses, commits, refuses_first]
    assert [each(around) for each in same] == [each(inside) for each in same]
    one, other = (Selector(policy, cohort_size=3, clients=clients) for policy in (inside, around))
    for number in range(1, 31):
        cohort, weighed = one.select(), other.select()
        assert cohort.clients == weighed.clients
        assert min(weighed.weights) > 0.0
        for selector in (one, other):
            selector.observe(number, times_s={client: 1.0 + ord(client) % 5 for client in cohort.clients})
    assert not other.privacy().amplification


def test_links_to_edge_servers_have_weights_too():
    options = {"budgets": {"north": 2.0, "south": 2.0}, "cohort_size": 4, "clients": list("abcdef")}
    one, other = (EdgeSelector(policy, **options) for policy in (COCS(), ParticipationWeights(COCS())))
    for number in range(1, 11):
        cohort, weighed = one.select(), other.select()
        assert (cohort.clients, cohort.servers) == (weighed.clients, weighed.servers)
        assert len(weighed.weights) == len(cohort.clients)
        for selector in (one, other):
            selector.observe(number, times_s=dict.fromkeys(cohort.clients, 1.0))
    with pytest.raises(ConfigurationError, match="needs several servers"):
        Selector(ParticipationWeights(PartialPooling()), cohort_size=2)


def test_a_log_of_it_is_verified_and_names_the_policy_inside(tmp_path):
    policy = ParticipationWeights(RBCSF(V=5.0, beta=0.1))
    record = Record(tmp_path)
    selector = Selector(policy, cohort_size=3, clients=list("abcdefgh"), observers=[record])
    for number in range(1, 11):
        selector.observe(number, times_s=dict.fromkeys(selector.select().clients, 1.0))
    record.close()
    found = verify(tmp_path, policy_of_label(repr(policy)))
    assert found.is_whole
    assert found.num_decided == 10


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("participation-weights", ParticipationWeights()),
        ("participation-weights/rbcs-f:V=20,beta=0.1", ParticipationWeights(RBCSF(V=20.0, beta=0.1))),
        ("participation-weights:longest_gap=9/floor", ParticipationWeights(Floor(), 9)),
        (
            "participation-weights/partial-pooling:variances=0.5/0.25",
            ParticipationWeights(PartialPooling(variances=(0.5, 0.25))),
        ),
    ],
)
def test_texts_and_labels_name_the_policy_inside(text, policy):
    assert make_policy(text) == make_policy(policy_text(policy)) == policy_of_label(repr(policy)) == policy
    assert make_policy(policy_text(text.upper().replace("V=20", "v=20"))) == policy
    assert as_labelled(repr(policy), ParticipationWeights(policy.policy, 3)) == policy


def test_what_cannot_be_inside_is_refused():
    with pytest.raises(ConfigurationError, match="weighs updates itself"):
        ParticipationWeights(Drawn())
    with pytest.raises(ConfigurationError, match="has no check"):
        ParticipationWeights("rbcs-f")
    with pytest.raises(StateFileError):
        as_labelled(repr(ParticipationWeights(Floor())), ParticipationWeights())
