r"""The server's step: how the direction that clients' updates give changes the model (Reddi et al. 2021, Algorithm 2).

With the direction :math:`\Delta_t`, plain steps are :math:`x \gets x + \eta\, \Delta_t`; with momentum (Hsu et al.
2019)

.. math:: m_t = \beta_1 m_{t-1} + \Delta_t,\qquad x \gets x + \eta\, m_t

and with Adam

.. math:: m_t = \beta_1 m_{t-1} + (1 - \beta_1) \Delta_t,\quad v_t = \beta_2 v_{t-1} + (1 - \beta_2) \Delta_t^2,\quad
    x \gets x + \eta\, \frac{m_t}{\sqrt{v_t} + \tau}
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.core.arrays import Model
from fedroster.core.parameters import Parameters, Positive, ShareBelowOne


@dataclass(frozen=True, slots=True)
class ServerStep(Parameters):
    """Step size, momentum and Adam of the server.

    Attributes:
        size: eta, > 0.
        momentum: beta_1, in [0, 1); 0 for none.
        adaptive: beta_2 of Adam, in [0, 1); 0 for steps that do not adapt.
        tau: Adaptivity of Adam, > 0.
    """

    size: Positive = 1.0
    momentum: ShareBelowOne = 0.0
    adaptive: ShareBelowOne = 0.0
    tau: Positive = 1e-3

    @property
    def is_plain(self) -> bool:
        """Whether the model moves by the direction itself, as in federated averaging."""
        return self == ServerStep(tau=self.tau)

    def init(self, model: Model) -> Model:
        """What is remembered from step to step before the first: m and v, as far as they are used."""
        names = [name for name, used in (("first", self.momentum), ("second", self.adaptive)) if used]
        return {f"{moment}.{name}": np.zeros(np.shape(value)) for moment in names for name, value in model.items()}

    def apply(self, model: Model, direction: Model, state: Model) -> Model:
        """Return the next model, in the types of the old one; the arrays of ``state`` are changed."""
        following = {}
        for name, value in model.items():
            step = direction[name]
            if self.momentum:
                first = state[f"first.{name}"]
                first *= self.momentum
                first += (1.0 - self.momentum if self.adaptive else 1.0) * step
                step = first
            if self.adaptive:
                second = state[f"second.{name}"]
                second *= self.adaptive
                second += (1.0 - self.adaptive) * np.square(direction[name])
                step = step / (np.sqrt(second) + self.tau)
            following[name] = (value + self.size * step).astype(value.dtype)
        return following
