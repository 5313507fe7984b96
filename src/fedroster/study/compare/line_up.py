"""Which policies are compared, and where: what ``--scenario all``, ``--policies all`` and ``--clients`` mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedroster.catalogue import Entry, find_scenario, make_policy, make_scenario, policies, scenarios
from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import ProblemSpec
from fedroster.core.protocols import AnyEnvironment
from fedroster.core.streams import Streams
from fedroster.study.rehearsal import rehearse, why_not
from fedroster.study.trial import DEFAULT_RATE

ALL = "all"
"""Stands for every scenario of the catalogue, or for every policy of it that can run in the scenario."""

MOST_CHOSEN = 1000
"""With more clients the cohort grows with them up to this size."""


@dataclass(frozen=True, slots=True)
class LineUp:
    """What is compared in a scenario, and how.

    Attributes:
        policies: Policies as text, with the parameters that the scenario forces on them.
        left_out: Why a policy that was asked for, by its name or by ``all``, is not among them.
        settings: Parameters of the scenario that are overridden, as text.
        rate: beta at which participation is measured.
    """

    scenario: str
    policies: tuple[str, ...]
    left_out: Mapping[str, str]
    settings: Mapping[str, str]
    num_rounds: int
    rate: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for, in whichever scenario.

    Attributes:
        policies: Policies as text; :data:`ALL` among them for the whole catalogue; empty for what the scenario's entry
            says, or for all policies.
        without: Names that ``all`` does not stand for.
        clients: N; None for the scenario's.
        rate: beta, in (0, 1]; None to choose it.
        num_rounds: T; None to choose it.
        settings: Parameters of the scenario that are overridden, as text.
        is_trained: Whether a model is trained; without, runs may be longer.
        must_run: Whether it is an error if a policy that is named cannot run in the scenario; else it is left out with
            the reason, as those of ``all`` are.
    """

    policies: Sequence[str] = ()
    without: Sequence[str] = ()
    clients: int | None = None
    rate: float | None = None
    num_rounds: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    is_trained: bool = True
    must_run: bool = True

    def check(self) -> None:
        """Check what does not depend on the scenario.

        Raises:
            UnknownNameError: If there is no policy of a name in ``without``.
            ConfigurationError: If a value is out of its range, or something is said twice.
        """
        for name in self.without:
            if name not in policies():
                make_policy(name)  # raises, and names the nearest
        if self.num_rounds is not None:
            check_integer("rounds", self.num_rounds, least=1)
        if self.rate is not None:
            check_number("beta", self.rate, above=0.0, most=1.0)
        if self.clients is not None:
            check_integer("clients", self.clients, least=1)
            if "num_clients" in self.settings:
                raise ConfigurationError(
                    f"--clients is {self.clients} and --set num_clients={self.settings['num_clients']}; expected one"
                )

    def settings_in(self, entry: Entry) -> dict[str, str]:
        """Parameters of a scenario that are overridden, by its entry or by what is asked for."""
        found = {**entry.settings, **self.settings}
        if self.clients is None:
            return found
        found["num_clients"] = str(self.clients)
        usual = entry.parameters()
        if "cohort_size" in usual and "cohort_size" not in self.settings:
            size = round(self.clients * usual["cohort_size"] / usual["num_clients"])
            found["cohort_size"] = str(min(max(size, 1), MOST_CHOSEN))
        return found


def split_policies(text: str) -> list[str]:
    """Read policies that are separated by commas, as their parameters are, too.

    A part with ``=`` and no ``:`` is a parameter of the policy before it: no policy's name has an ``=``.
    """
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if found and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        elif part:
            found.append(part)
    return found


def scenarios_of(wanted: Sequence[str]) -> tuple[str, ...]:
    """Read which scenarios are meant.

    Raises:
        UnknownNameError: If there is no such scenario or version.
        ConfigurationError: If one comes twice.
    """
    found = [name for text in wanted for name in (scenarios() if text == ALL else (text,))]
    for name in found:
        find_scenario(name)
    if len(set(found)) < len(found):
        raise ConfigurationError(f"scenarios are {found}; expected each once")
    return tuple(found)


def line_up(scenario: str, wanted: Wanted) -> LineUp:
    r"""Decide what is compared in a scenario.

    What is not said is chosen: the rounds are those of the scenario's entry; with a number of clients the cohort grows
    with them, up to :data:`MOST_CHOSEN`; and policies with a guaranteed rate that :math:`N \beta \le m` rules out have

    .. math:: \beta = \frac{m}{2N}, \qquad V = \frac{m \beta T}{6 \bar\tau},

    half of the largest rate that could be promised, and a penalty in proportion to what a cohort of neglected clients
    would be owed in the end: for the network of Huang et al. 2021 and its 500 rounds this is about their V = 20.
    :math:`\bar\tau` is the mean expected time of the clients that are available in the first round.  Parameters
    that are given stay as they are.

    Raises:
        UnknownNameError: If there is no such scenario, policy or parameter.
        ConfigurationError: If a value is out of its range, something is said twice, or a policy that must run cannot.
    """
    wanted.check()
    entry = find_scenario(scenario)
    asked = wanted.policies or (wanted.must_run and entry.compared) or (ALL,)
    if wanted.without and ALL not in asked:
        raise ConfigurationError(
            f"--without is {', '.join(wanted.without)}, and all is not asked for; expected --policies all with it"
        )
    settings = wanted.settings_in(entry)
    rounds = wanted.num_rounds or (entry.num_rounds if wanted.is_trained else entry.untrained_rounds)
    environment = make_scenario(scenario, settings)
    spec = environment.spec
    fits = spec.num_clients * DEFAULT_RATE <= spec.cohort_size
    rate = wanted.rate or (DEFAULT_RATE if fits else spec.cohort_size / (2.0 * spec.num_clients))
    penalty = None if fits else _penalty(environment, rate, rounds)
    found: list[str] = []
    left_out: dict[str, str] = {}
    for text in (name for part in asked for name in (policies() if part == ALL else (part,))):
        fit, is_named = _fitted(text, spec, rate, penalty, is_given=wanted.rate is not None), text in asked
        if is_named:
            make_policy(fit)  # raises what is wrong in every scenario
        if is_named and wanted.must_run:
            rehearse(fit, scenario, environment)
            found.append(fit)
        elif text in wanted.without and not is_named:
            left_out[text] = "left out by --without"
        elif reason := why_not(fit, environment, may_idle=False):
            left_out[text] = reason
        else:
            found.append(fit)
    # "all" and a name again is no mistake: the name may come with other parameters.
    return LineUp(scenario, tuple(dict.fromkeys(found)), left_out, settings, rounds, rate)


def _fitted(text: str, spec: ProblemSpec, rate: float, penalty: float | None, *, is_given: bool) -> str:
    """A policy with this beta and V, where its text does not give them and its own beta does not fit."""
    name, _, given = text.partition(":")
    entry = policies().get(name.strip())
    if entry is None:
        return text  # the error is raised later, with the nearest name
    known = entry.parameters()
    own = {part.partition("=")[0].strip() for part in given.split(",") if part}
    if "beta" not in known or "beta" in own:
        return text
    if not is_given and spec.num_clients * known["beta"] <= spec.cohort_size:
        return text
    parts = [given] if given else []
    if "V" in known and "V" not in own and penalty is not None:
        parts.append(f"V={penalty:g}")
    return f"{name}:{','.join([*parts, f'beta={rate:.6g}'])}"


def _penalty(environment: AnyEnvironment, rate: float, num_rounds: int) -> float | None:
    """V for queues that grow by ``rate`` a round; None where no client can say how long an exchange takes."""
    streams = Streams(0)
    state = environment.init(rng=streams.at("environment-init"))
    context, outcome = environment.observe(state, 1, rng=streams.at("environment", 1))
    time_s = outcome.expected_time_s[context.available]
    mean_s = float(time_s.mean()) if time_s.shape[0] else 0.0
    if not 0.0 < mean_s < np.inf:
        return None
    return float(f"{environment.spec.cohort_size * rate * num_rounds / (6.0 * mean_s):.2g}")
