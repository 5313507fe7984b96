"""The contracts in one call, without pytest."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from fedroster.core import protocols
from fedroster.core.problem import Outcome, RoundContext
from fedroster.core.protocols import AnyEnvironment, AnyPolicy
from fedroster.testing.environment import EnvironmentContract
from fedroster.testing.policy import HierarchicalPolicyContract, PolicyContract

Exogenous: TypeAlias = Callable[[RoundContext, Outcome], Mapping[str, NDArray[Any]]]


def check_policy(
    policy: AnyPolicy, *, deterministic: bool = False, equivariant: bool = False, servers: bool | None = None
) -> None:
    """Check that a policy keeps the contract: :class:`~fedroster.testing.PolicyContract`, without pytest.

    Args:
        policy: The policy.
        deterministic: Whether its decisions never use the generator.
        equivariant: Whether its decisions, where no tie is broken, follow the clients when these are renumbered.
        servers: Whether it is checked where there are two servers, prices and budgets
            (:class:`~fedroster.testing.HierarchicalPolicyContract`); None for what its ``needs_limits`` says.

    Raises:
        ConfigurationError: If it is no policy.
        AssertionError: If it breaks the contract; names every test that failed, and why.

    Example:
        >>> from fedroster import RoundRobin
        >>> from fedroster.testing import check_policy
        >>> check_policy(RoundRobin(), equivariant=True)
    """
    protocols.check_policy(policy)
    if servers is None:
        servers = getattr(policy, "needs_limits", False)
    kind = HierarchicalPolicyContract if servers else PolicyContract
    declared = {"policy": lambda _: policy, "deterministic": deterministic, "equivariant": equivariant}
    _run(type("Checked", (kind,), declared)(), type(policy))


def check_environment(environment: AnyEnvironment, *, exogenous: Exogenous | None = None) -> None:
    """Check that a network keeps the contract: :class:`~fedroster.testing.EnvironmentContract`, without pytest.

    Args:
        environment: The network.
        exogenous: Returns the named parts of a round that do not depend on earlier decisions; None for all of it.

    Raises:
        AssertionError: If it breaks the contract; names every test that failed, and why.
    """
    declared: dict[str, Any] = {"environment": lambda _: environment}
    if exogenous is not None:
        declared["exogenous"] = staticmethod(exogenous)
    _run(type("Checked", (EnvironmentContract,), declared)(), type(environment))


def _run(contract: object, kind: type) -> None:
    """Run all tests of a contract, and say what failed."""
    failed = []
    for name, test in inspect.getmembers(contract, inspect.ismethod):
        if not name.startswith("test_"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(*([Path(folder)] if "tmp_path" in inspect.signature(test).parameters else []))
            except Exception as error:  # the code is not ours and may raise anything
                said = f"{error}" if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                failed.append(f"{name}: {said}")
    if failed:
        raise AssertionError("\n".join([f"{kind.__name__} breaks the contract:", *failed]))
