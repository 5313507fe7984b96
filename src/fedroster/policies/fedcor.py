"""FedCor: a Gaussian process of the clients' losses says which clients reduce the losses of all others most.

M. Tang, X. Ning, Y. Wang, J. Sun, Y. Wang, H. Li and Y. Chen, "FedCor: Correlation-Based Active Client Selection
Strategy for Heterogeneous Federated Learning", CVPR 2022, arXiv:2103.13822.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.because import Because
from fedroster.core.parameters import Count, Positive, Range
from fedroster.core.problem import ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import Commits
from fedroster.core.state import kept, per_client
from fedroster.estimation.reports import assumed_sizes
from fedroster.optimization.ranking import fill_up
from fedroster.policies.size_weighted import LearnsSizes

CITATION = """@inproceedings{tang2022fedcor,
  author    = {Tang, Minxue and Ning, Xuefei and Wang, Yitu and Sun, Jingwei and Wang, Yu and Li, Hai and Chen, Yiran},
  title     = {{FedCor}: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated Learning},
  booktitle = {IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)},
  year      = {2022},
  eprint    = {2103.13822},
  archivePrefix = {arXiv}
}"""

_RANK = 15  # length of a client's embedding
_WINDOW = 100  # changes that are kept
_LARGEST = 1e6  # a loss beyond it counts as it


@dataclass(frozen=True, slots=True)
class FedCorState:
    """What FedCor knows: about 1 kB a client.

    Attributes:
        polled: Round in which losses were asked for last; 0 for none.
        rounds: Round of each change, shape (100,), in turn; 0 for none yet.
        embedding: X, shape (15, clients).
        changes: How each client's loss changed in those rounds, shape (100, clients).
        loss: Loss that each client answered with last, shape (clients,); infinite for none.
        discount: d, shape (clients,), in (0, 1].
        num_samples: Samples of each client, shape (clients,); 0 where it is not known.
    """

    polled: int = kept(0, "round")
    rounds: IntArray = kept(0, "round")
    embedding: FloatArray = per_client(least=-1e100, most=1e100)
    changes: FloatArray = per_client(least=-2 * _LARGEST, most=2 * _LARGEST)
    loss: FloatArray = per_client(least=-_LARGEST, infinite=True)
    discount: FloatArray = per_client(least=0.0, most=1.0)
    num_samples: FloatArray = per_client(least=0.0)


def slope(embedding: FloatArray, change: FloatArray, weight: FloatArray, *, noise: float) -> FloatArray:
    r"""Gradient in X of the weighted log-likelihood :math:`\sum_e w_e \log N(z_e; 0, K)`, :math:`K = X^\top X + s^2 I`.

    .. math:: \nabla_X = X \Bigl( K^{-1} \sum_e w_e z_e z_e^\top K^{-1} - \sum_e w_e\, K^{-1} \Bigr), \qquad
        X K^{-1} = (X X^\top + s^2 I)^{-1} X

    No matrix of clients by clients is needed.

    Args:
        embedding: X, shape (15, clients).
        change: z, changes of losses less their mean, shape (changes, clients).
        weight: w, shape (changes,), >= 0.
        noise: s > 0.
    """
    scaled = np.linalg.solve(embedding @ embedding.T + noise**2 * np.eye(embedding.shape[0]), embedding)
    explained = (change - change @ embedding.T @ scaled) / noise**2
    gradient: FloatArray = (scaled @ change.T * weight) @ explained - weight.sum() * scaled
    return gradient


def fit(embedding: FloatArray, change: FloatArray, weight: FloatArray, *, noise: float, steps: int) -> FloatArray:
    """X after ``steps`` steps of Adam of size 0.01 up the :func:`slope`, shape (15, clients)."""
    found, mean, square = embedding.copy(), np.zeros_like(embedding), np.zeros_like(embedding)
    for step in range(1, steps + 1):
        gradient = slope(found, change, weight, noise=noise)
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        found += 0.01 * mean / (1.0 - 0.9**step) / (np.sqrt(square / (1.0 - 0.999**step)) + 1e-8)
    return found


def choose(
    embedding: FloatArray, share: FloatArray, discount: FloatArray, client: IntArray, size: int, *, noise: float
) -> IntArray:
    r"""Clients that reduce the losses of all most, one after the other, given those before (Tang et al. 2022).

    .. math:: k^* = \arg\max_k d_k \frac{\sum_i p_i \Sigma_{ik}}{\sqrt{\Sigma_{kk}}}, \qquad
        \Sigma \gets \Sigma - \frac{\Sigma_{\cdot k^*} \Sigma_{k^* \cdot}}{\Sigma_{k^* k^*}}, \qquad
        \Sigma = X^\top X + s^2 I

    Args:
        embedding: X, shape (15, clients).
        share: p, shape (clients,), >= 0.
        discount: d, shape (clients,), in (0, 1].
        client: Clients to choose from, shape (n,).
        size: How many, <= n.
        noise: s >= 0.

    Returns:
        Positions in ``client``, in the order of choice, shape (size,).

    Cost: O(N size (15 + size)).
    """
    variance = np.einsum("ik,ik->k", embedding, embedding) + noise**2
    effect = embedding.T @ (embedding @ share) + noise**2 * share
    taken, known = np.zeros(client.shape[0], np.bool_), np.zeros((size, share.shape[0]))
    order = np.zeros(size, np.int64)
    for step in range(size):
        left = np.maximum(variance[client], 1e-300)
        order[step] = at = int(np.where(taken, -np.inf, discount[client] * effect[client] / np.sqrt(left)).argmax())
        column = embedding.T @ embedding[:, client[at]] - known[:step].T @ known[:step, client[at]]
        column[client[at]] += noise**2
        known[step] = column / np.sqrt(left[at])
        effect -= known[step] * (known[step] @ share)
        variance -= known[step] ** 2
        taken[at] = True
    return order


@dataclass(frozen=True, slots=True)
class FedCor(LearnsSizes):
    r"""Clients whose training is expected to reduce the losses of all clients most (:func:`choose`).

    Losses of all clients that are available are asked for (``context.poll``) in the first ``warm_up + 1`` rounds, whose
    cohorts are random, and then in two rounds running every ``interval`` rounds.  The changes :math:`y_e` between
    one such round and the next are Gaussian with mean :math:`\mu` and covariance :math:`X^\top X + s^2 I`; X maximises
    the likelihood (:func:`fit`), a change that is e rounds old weighing :math:`\gamma^e`.  Until the next fit,
    a client's d falls by the factor ``discount`` whenever it is chosen.

    Rounds wait for all these answers.  Where no client can be asked, every cohort is equally likely.

    Guarantee: none; the paper's results are empirical.  Cost: O(N m (15 + m)) a decision; a fit takes 1,000 steps of
    O(N) with 100 changes, and 100 steps later.

    Attributes:
        warm_up: W, >= 1; the paper's experiments have 15 on Fashion-MNIST.
        interval: Rounds between two fits, >= 2; 10 there, 50 on CIFAR-10.
        discount: Factor on a chosen client's score, in (0, 1].
        gamma: Weight of a change for each round of its age, in (0, 1].
        noise: s > 0.

    Deviations: the authors' code measures the changes of a later fit by a random cohort that it trains and throws away;
    here they are those of the cohort that was chosen.  It measures all losses in every round.  A client whose change is
    not known counts as one whose loss changed as the others' did on average.
    """

    citation: ClassVar[str] = CITATION
    polls: ClassVar[bool] = True
    commits: ClassVar[Commits] = "cohort"
    refuses_first: ClassVar[bool] = True

    warm_up: Count = 15
    interval: Annotated[int, Range(least=2)] = 10
    discount: Annotated[float, Range(above=0.0, most=1.0)] = 0.9
    gamma: Annotated[float, Range(above=0.0, most=1.0)] = 0.95
    noise: Positive = 0.01

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> FedCorState:
        """Random embeddings, no losses."""
        size = spec.num_clients
        return FedCorState(
            polled=0,
            rounds=np.zeros(_WINDOW, np.int64),
            embedding=rng.standard_normal((_RANK, size)) / _RANK**0.5,
            changes=np.zeros((_WINDOW, size)),
            loss=np.full(size, np.inf),
            discount=np.ones(size),
            num_samples=np.zeros(size),
        )

    def _is_polled(self, round: int) -> bool:
        since = round - 1 - self.warm_up
        return since <= 0 or (since >= self.interval and since % self.interval < 2)

    def _is_fitted(self, round: int) -> bool:
        since = round - 1 - self.warm_up
        return since == 0 or (since > self.interval and since % self.interval == 1)

    def _is_known(self, state: FedCorState, context: RoundContext) -> bool:
        """Whether a fit says which clients to choose."""
        return context.round > self.warm_up + 1 and bool(state.rounds.any())

    def explain(self, state: FedCorState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """By the fit, or by chance before it."""
        return Because("worth" if self._is_known(state, context) else "drawn")

    def select(self, state: FedCorState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Ask where losses are due, and choose."""
        rows, chosen = np.flatnonzero(context.available), np.zeros(context.num_links, np.bool_)
        heard = None
        if context.poll is not None and rows.shape[0] and self._is_polled(context.round):
            heard = context.poll(rows)
        if self._is_known(state, context) and rows.shape[0] > context.cohort_size:
            share = assumed_sizes(state.num_samples)
            share = share / share.max() * (1.0 if context.members is None else context.members)
            client = context.clients_of(rows)
            best = choose(state.embedding, share, state.discount, client, context.cohort_size, noise=self.noise)
            chosen[rows[best]] = True
        fill_up(chosen, rows, context.cohort_size, rng=rng)
        return Selection(context.round, np.flatnonzero(chosen), polled=rows if heard is not None else None, heard=heard)

    def commit(self, state: FedCorState, context: RoundContext, selection: Selection, /) -> FedCorState:
        """Learn the losses that were asked for, fit if it is time, and discount the cohort otherwise."""
        if selection.polled is not None and selection.heard is not None:
            answered = ~np.isnan(selection.heard)
            client = context.clients_of(selection.polled[answered])
            state = self._heard(state, context.round, client, np.clip(selection.heard[answered], -_LARGEST, _LARGEST))
        if self._is_fitted(context.round) and state.rounds.any():
            known = state.rounds > 0
            weight: FloatArray = self.gamma ** (context.round - state.rounds[known]).astype(np.float64)
            change = state.changes[known]
            change = change - weight @ change / weight.sum()
            steps = 1000 if context.round == self.warm_up + 1 else 100
            state.embedding[:] = fit(state.embedding, change, weight, noise=self.noise, steps=steps)
            state.discount[:] = 1.0
        elif context.round > self.warm_up:
            state.discount[context.clients_of(selection.links)] *= self.discount
        return state

    def _heard(self, state: FedCorState, round: int, client: IntArray, loss: FloatArray) -> FedCorState:
        """The state after the answers of a round, with the change since the round before if that was polled, too."""
        before = state.loss[client]
        known = before < np.inf
        if state.polled == round - 1 and known.any():
            place = int(np.argmin(state.rounds))
            state.changes[place] = (loss - before)[known].mean()
            state.changes[place, client[known]] = (loss - before)[known]
            state.rounds[place] = round
        state.loss[:] = np.inf
        state.loss[client] = loss
        return replace(state, polled=round)
