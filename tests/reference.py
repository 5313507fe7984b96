"""Slow versions, written from the papers and from nothing else; the library is compared with them."""

import heapq
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


def p4_objective(times, backlog, cohort, penalty):
    """V max tau - sum Z over a cohort; 0 for the empty one."""
    if len(cohort) == 0:
        return 0.0
    return penalty * max(times[n] for n in cohort) - math.fsum(backlog[n] for n in cohort)


def algorithm_1(times, backlog, available, cohort_size, penalty):
    """Algorithm 1 as printed, O(N^2).  "Break the first loop" (line 13) ends the inner loop (Choice A5).

    Returns every F_{n_max} that was calculated, as pairs (F, cohort); the printed answer is the one of least F.
    """
    volunteers = [n for n in range(len(times)) if available[n]]  # lines 1 and 3
    by_queue = sorted(volunteers, key=lambda n: -backlog[n])  # line 2
    size = min(cohort_size, len(volunteers))  # line 4
    found = []
    for slowest in volunteers:  # line 5
        cohort = []  # line 6
        for n in by_queue:  # line 7
            if times[n] <= times[slowest]:  # line 8
                cohort.append(n)  # line 9
            if len(cohort) == size:  # line 11
                found.append((p4_objective(times, backlog, cohort, penalty), sorted(cohort)))  # line 12
                break  # line 13
    return found


def brute_force_p4(times, backlog, available, cohort_size, penalty):
    """The least objective and all cohorts that attain it, by looking at every cohort."""
    volunteers = [n for n in range(len(times)) if available[n]]
    size = min(cohort_size, len(volunteers))
    best, winners = math.inf, []
    for cohort in itertools.combinations(volunteers, size):
        value = p4_objective(times, backlog, cohort, penalty)
        if value < best:
            best, winners = value, []
        if value == best:
            winners.append(list(cohort))
    return best, winners


def heap_p4(times, backlog, cohort_size, penalty):
    """The least objective for many clients: a heap of the longest queues, in order of time.  Infinite times are out."""
    heap, total, best = [], 0.0, math.inf
    queue, time = np.asarray(backlog).tolist(), np.asarray(times).tolist()
    for n in np.argsort(times, kind="stable").tolist():
        if time[n] == math.inf:
            break
        if len(heap) < cohort_size:
            heapq.heappush(heap, queue[n])
            total += queue[n]
        elif queue[n] > heap[0]:
            total += queue[n] - heapq.heapreplace(heap, queue[n])
        else:
            continue
        if len(heap) == cohort_size:
            best = min(best, penalty * time[n] - total)
    return best


@dataclass
class Ridge:
    """One client's D^T D + lambda I and D^T y, summed up in extended precision."""

    gram: np.ndarray
    moment: np.ndarray

    @classmethod
    def of(cls, features, targets, ridge):
        design = np.asarray(features, np.longdouble)
        gram = design.T @ design + np.longdouble(ridge) * np.eye(design.shape[1], dtype=np.longdouble)
        return cls(gram, design.T @ np.asarray(targets, np.longdouble))

    def solve(self, right):
        """Gauss elimination in extended precision; the matrix is symmetric and positive definite."""
        a = np.column_stack((self.gram, np.asarray(right, np.longdouble)))
        for i in range(len(a)):
            a[i] /= a[i, i]
            for j in range(len(a)):
                if j != i:
                    a[j] -= a[j, i] * a[i]
        return a[:, -1]

    def theta(self):
        """(17)."""
        return self.solve(self.moment)

    def width(self, context):
        """The root in (19)."""
        context = np.asarray(context, np.longdouble)
        return np.sqrt(context @ self.solve(context))

    def lower_bound(self, context, alpha):
        """(19)."""
        mean = np.asarray(context, np.longdouble) @ self.theta()
        return max(mean - alpha * self.width(context), np.longdouble(0))


def queue_formula(backlog, rate, chosen):
    """[Z + beta - x]^+, client by client."""
    return [max(z + rate - (1.0 if n in chosen else 0.0), 0.0) for n, z in enumerate(backlog)]


def nishio_yonetani(update_s, upload_s, *, deadline_s, distribution_s=0.0, overhead_s=0.0):
    """Algorithm 3: the candidate of largest 1 / (added time) joins while the deadline holds, in order of upload."""

    def distribution(cohort):
        return distribution_s if cohort else 0.0

    candidates = list(range(len(update_s)))
    cohort, theta = [], 0.0
    while candidates:
        added = [
            distribution([*cohort, k]) - distribution(cohort) + upload_s[k] + max(0.0, update_s[k] - theta)
            for k in candidates
        ]
        x = candidates.pop(added.index(min(added)))
        later = theta + upload_s[x] + max(0.0, update_s[x] - theta)
        if overhead_s + distribution([*cohort, x]) + later < deadline_s:
            theta = later
            cohort.append(x)
    return cohort


def inclusion_p_value(counts, size, draws):
    """Chi-square p-value of "every set of ``size`` is equally likely" from how often each of n was in the set.

    Inclusions exclude each other, Cov = -p (1 - p) / (n - 1), hence the factor (n - 1) / n; n - 1 degrees of freedom.
    """
    from scipy.stats import chi2

    counts = np.asarray(counts, float)
    n = counts.size
    p = size / n
    assert counts.sum() == size * draws
    statistic = (n - 1) / n * float(((counts - draws * p) ** 2).sum()) / (draws * p * (1 - p))
    return float(chi2.sf(statistic, n - 1))


def draw_orders(weight, size):
    """Every order of successive draws by weight without replacement, and its probability."""
    for order in itertools.permutations(range(len(weight)), size):
        left, p = sum(weight), 1.0
        for k in order:
            p *= weight[k] / left
            left -= weight[k]
        yield order, p


def afl_inclusion(value, size, alpha_1, alpha_2, alpha_3):
    """Probability of each client to be in the cohort, summed over all orders of draws; values do not tie."""
    count, by_value = len(value), int((1 - alpha_3) * size + 1e-9)
    kept = np.argsort(value)[int(alpha_1 * count) :]
    by_value = min(by_value, len(kept))
    found = np.zeros(count)
    for order, p in draw_orders([math.exp(alpha_2 * value[k]) for k in kept], by_value):
        drawn = kept[list(order)]
        rest = np.setdiff1d(np.arange(count), drawn)
        found[drawn] += p
        found[rest] += p * (size - by_value) / len(rest)
    return found


def refl_forecasts(history, period):
    """For each round after the first: the forecast of each client, from the rounds (lists of who was there) before."""
    found = []
    for number in range(1, len(history) + 1):
        row = []
        for client in range(len(history[0])):
            same = [here[client] for t, here in enumerate(history[: number - 1], 1) if t % period == number % period]
            seen = same or [here[client] for here in history[: number - 1]]
            row.append((sum(seen) + 1) / (len(seen) + 2))
        found.append(row)
    return np.array(found)


def pour_urns(sizes, num_urns):
    """Mass r of each client in each urn, exactly: a list of urns with a Fraction for each client."""
    total = sum(Fraction(size) for size in sizes)
    urns = [[Fraction(0)] * len(sizes) for _ in range(num_urns)]
    urn, room = 0, Fraction(1)
    for client in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        mass = num_urns * Fraction(sizes[client]) / total
        while mass:
            poured = min(mass, room)
            urns[urn][client] += poured
            mass, room = mass - poured, room - poured
            if not room:
                urn, room = urn + 1, Fraction(1)
    return urns


def f3ast_rates(share, size, beta, history):
    """Long-run share of rounds in which each client is chosen, and the last r; ties go to the lower index.

    ``history`` has who was there in each round.
    """
    r, turns = [1 / len(share)] * len(share), [0] * len(share)
    for here in history:
        ranked = sorted((k for k in range(len(share)) if here[k]), key=lambda k: -(share[k] ** 2) / r[k] ** 2)
        chosen = ranked[:size]
        r = [(1 - beta) * r[k] + beta * (k in chosen) for k in range(len(share))]
        for k in chosen:
            turns[k] += 1
    return np.array(turns) / len(history), np.array(r)


def fedcor_cohort(covariance, share, discount, available, size):
    """The greedy choice with the whole covariance matrix, deflated after each choice."""
    sigma, chosen = np.array(covariance, np.float64), []
    for _ in range(size):
        score = {k: discount[k] * (share @ sigma[:, k]) / math.sqrt(sigma[k, k]) for k in available if k not in chosen}
        best = max(score, key=score.get)
        chosen.append(best)
        sigma = sigma - np.outer(sigma[:, best], sigma[best]) / sigma[best, best]
    return chosen


def ocs_probabilities(norm, size):
    """Probabilities in proportion to norms; a client that would exceed 1 has 1, and the others share what is left."""
    certain, rest = set(), {i for i, u in enumerate(norm) if u > 0}
    while rest and size > len(certain):
        scale = (size - len(certain)) / sum(norm[i] for i in rest)
        over = {i for i in rest if scale * norm[i] >= 1}
        if not over:
            break
        certain, rest = certain | over, rest - over
    left = size - len(certain)
    total = sum(norm[i] for i in rest)
    return [
        1.0 if i in certain else left * norm[i] / total if i in rest and left > 0 else 0.0 for i in range(len(norm))
    ]


def facility_cost(points, chosen):
    """Sum over all points of the distance to the nearest chosen one."""
    return math.fsum(min(math.dist(point, points[j]) for j in chosen) for point in points)


def facility_shares(points, chosen):
    """Share of the points to which each chosen one is nearest; of two that are as near, the first counts."""
    nearest = [min(range(len(chosen)), key=lambda j: math.dist(point, points[chosen[j]])) for point in points]
    return [nearest.count(j) / len(points) for j in range(len(chosen))]


def label_balance(bias, temperature):
    """Entropy of the softmax, in nats."""
    top = max(bias)
    weight = [math.exp((value - top) / temperature) for value in bias]
    return -math.fsum(w / sum(weight) * math.log(w / sum(weight)) for w in weight if w > 0)


def ward_clusters(apart, count):
    """Ward's clusters, by Lance and Williams's rule on the squares of any distances, as a set of frozensets."""
    size = {frozenset([i]): 1 for i in range(len(apart))}
    square = {
        frozenset([frozenset([i]), frozenset([j])]): apart[i][j] ** 2 for i in range(len(apart)) for j in range(i)
    }
    while len(size) > count:
        pair = min(square, key=square.get)
        one, two = pair
        joined, between = one | two, square[pair]
        for other in size.keys() - pair:
            a, b, c = size[one], size[two], size[other]
            to_one, to_two = (square.pop(frozenset([each, other])) for each in (one, two))
            square[frozenset([joined, other])] = ((a + c) * to_one + (b + c) * to_two - c * between) / (a + b + c)
        del square[pair], size[one], size[two]
        size[joined] = len(joined)
    return set(size)
