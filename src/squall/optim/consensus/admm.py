"""Consensus ADMM: what all workers compute alike from the sums of what each contributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from squall.optim.consensus.agreement import (
    RENEWED_AFTER,
    ConsensusSettings,
    Contribution,
    Decision,
    Round,
    Trace,
)
from squall.optim.consensus.anderson import coefficients
from squall.optim.consensus.grid import Grid
from squall.optim.consensus.metrics import Metric, metric_of
from squall.records import Float64

_PRECISION = 0.1  # residuals, of √(tol · F), that are small enough
_BALANCED_EVERY, _BALANCED_UNTIL = 2, 10
_BALANCE_RANGE = (0.2, 5.0)
_BALANCE_WORTH = 1.5  # a smaller change of rho is not worth what acceleration then forgets
_FACTS = ("round", "base", "rho", "residual", "reach", "first_objective")


@dataclass(slots=True)
class _Remembered:
    """A round, for acceleration: sums over workers, and z."""

    dual_residual: Float64  # Σ F_u
    dual: Float64  # Σ G_u
    step: Float64  # F_z
    z: Float64  # G_z


class Consensus:
    """z, the metric, and everything else that all workers have in common.

    Parameters
    ----------
    settings : ConsensusSettings
    z : ndarray of shape (n,)
        Where to begin.

    Attributes
    ----------
    z : ndarray
        What the next round begins with.
    solution : ndarray
        The last z that was a proximal step: with an l1 penalty, the one with zeros.
    metric : Metric
        Not there before `begin`.
    round : int
        Rounds that are done.
    base : int
        The round after which nothing was remembered: the metric had changed.
    theta : ndarray of shape (k,)
        The mixture of what is remembered of the last k rounds that z is.
    """

    metric: Metric
    _unit: Metric

    def __init__(self, settings: ConsensusSettings, z: Float64) -> None:
        self.settings, self.z, self.solution = settings, z, z
        self.round, self.rho = 0, settings.rho
        self.base, self.theta = 0, np.zeros(0)
        self.residual = math.inf  # of all workers together
        self.reach = 0.0  # of a worker on average, in the last round
        self.first_objective = math.nan
        self.dual_sum = np.zeros_like(z)
        self._memory: list[_Remembered] = []
        self._gram = np.zeros((0, 0))

    def state(self) -> tuple[dict[str, Any], dict[str, Float64]]:
        """What `restored` needs beside the metric and the `trace` of some rounds: plain facts, and arrays."""
        facts = {name: getattr(self, name) for name in _FACTS}
        return facts, {"gram": self._gram, "theta": self.theta}

    def trace(self) -> Trace:
        """Of the last round, what `restored` needs now and after rounds to come."""
        if not self._memory:
            return {"z": self.z, "solution": self.solution, "dual_sum": self.dual_sum}
        last = self._memory[-1]
        return {"z": last.z, "dual": last.dual, "theta": self.theta}

    @staticmethod
    def rounds(facts: dict[str, Any], arrays: dict[str, Float64], depth: int) -> list[int]:
        """The rounds whose traces `restored` needs, by what `state` has given.

        They are those that are remembered, and those from which the points followed that these began with.
        """
        last, k = facts["round"], len(arrays["theta"])
        first = last - k - max(depth, 1) + 1 if k else last
        return [*range(max(facts["base"], first), last + 1)]

    @staticmethod
    def restored(
        settings: ConsensusSettings,
        facts: dict[str, Any],
        arrays: dict[str, Float64],
        traces: dict[int, Trace],
        curvature: Float64,
    ) -> Consensus:
        """As it was when it gave its `state`; ``curvature`` is the sum that the metric is of.

        ``traces`` are those of `rounds`, by number.
        """
        consensus = Consensus(settings, np.zeros(settings.n))
        for name in _FACTS:
            setattr(consensus, name, facts[name])
        consensus._gram, consensus.theta = arrays["gram"], arrays["theta"]
        last, k = consensus.round, len(consensus.theta)
        for number in range(last - k + 1, last + 1):
            z, dual_sum = consensus._after(number - 1, traces)
            known = traces[number]
            consensus._memory.append(
                _Remembered(known["dual"] - dual_sum, known["dual"], known["z"] - z, known["z"])
            )
        consensus.z, consensus.dual_sum = consensus._after(last, traces)
        consensus.solution = traces[last]["z" if k else "solution"]
        consensus._set_metric(curvature)
        return consensus

    def _after(self, number: int, traces: dict[int, Trace]) -> tuple[Float64, Float64]:
        """z and the sum of duals after a round."""
        if number == self.base:
            return traces[number]["z"], traces[number]["dual_sum"]
        theta = traces[number]["theta"]
        mixed_ones = [traces[n] for n in range(number - len(theta) + 1, number + 1)]
        return mixed(theta, [m["z"] for m in mixed_ones]), mixed(theta, [m["dual"] for m in mixed_ones])

    @property
    def renews(self) -> bool:
        """Whether the coming round's contributions have to bring curvature along."""
        return self.round + 1 in RENEWED_AFTER

    @property
    def grid(self) -> Grid | None:
        """That of the coming round's vectors."""
        if self.settings.encoding != "int16" or not self.round:
            return None
        return Grid.of(self.metric.diagonal, self.reach, self.settings.n_slots)

    def begin(self, loss: float, curvature: Float64) -> None:
        """Take the mean loss at z and the sum of all curvatures there."""
        self.first_objective = loss + self.settings.penalty.value(self.z)
        self.residual = math.sqrt(abs(self.first_objective))
        self._set_metric(curvature)

    def step(self, sums: Contribution) -> tuple[Round, Decision]:
        """A round: the sums of all workers' contributions in, what follows out."""
        n_slots, metric = self.settings.n_slots, self.metric
        start = self.z
        self.solution = metric.prox(
            start + sums.vector / n_slots, n_slots, self.settings.penalty, self.solution
        )
        step = self.solution - start
        pull = metric.times(step)
        moved = sums.vector - self.dual_sum  # Σ x̂ − z
        primal, dual = self._residuals(sums, moved, step, pull)
        dual_after = sums.vector - n_slots * step
        entry = _Remembered(dual_after - self.dual_sum, dual_after, step, self.solution)
        forget = self._remember(entry, sums, moved, pull, math.hypot(primal, dual))
        self.theta = theta = self._mixture()
        self._mix()
        self.round, self.reach = self.round + 1, sums.reach / n_slots
        done = self._summary(sums.loss, sums.passes, start, primal, dual)
        return done, Decision(step, forget, theta, self._change(sums.curvature, primal, dual))

    def step_towards(self, total: Float64, moved: float, loss: float, passes: float, number: int) -> Round:
        """A round of which some workers' parts are old: ``total`` is Σ x̂_w + u_w, ``moved`` Σ ‖x̂_w − z_w‖².

        The point follows from it alone, so that rounds may have been left out; nothing is accelerated
        and no metric changed.  The primal residual is that of each worker's own last round.
        """
        n_slots, start = self.settings.n_slots, self.z
        self.solution = self.metric.prox(total / n_slots, n_slots, self.settings.penalty, self.solution)
        step = self.solution - start
        dual = math.sqrt(max(n_slots * float(step @ self.metric.times(step)), 0.0))
        primal = math.sqrt(max(moved, 0.0)) / self.settings.relaxation
        self.z, self.dual_sum = self.solution, total - n_slots * self.solution
        self._forget_all()
        self.round, self.residual = number, math.hypot(primal, dual)
        self.base = number
        return self._summary(loss, passes, start, primal, dual)

    def _residuals(
        self, sums: Contribution, moved: Float64, step: Float64, pull: Float64
    ) -> tuple[float, float]:
        # From steps, not from the points themselves, whose difference would cancel.
        n_slots, alpha = self.settings.n_slots, self.settings.relaxation
        dual = n_slots * float(step @ pull)
        primal = sums.moved / alpha**2 - 2 / alpha * float(moved @ pull) + dual
        return math.sqrt(max(primal, 0.0)), math.sqrt(max(dual, 0.0))

    def _remember(
        self, entry: _Remembered, sums: Contribution, moved: Float64, pull: Float64, residual: float
    ) -> bool:
        """Extend the Gram matrix of residuals (of u and of z); whether those before are forgotten."""
        settings, k = self.settings, len(self._memory)
        n_slots, dual = settings.n_slots, settings.n_slots * float(entry.step @ pull)
        gram = np.zeros((k + 1, k + 1))
        gram[:k, :k] = self._gram
        for j, earlier in enumerate(self._memory[: settings.depth]):
            product = sums.products[j] - float(pull @ earlier.dual_residual)
            gram[j, k] = gram[k, j] = product + n_slots * float(pull @ earlier.step)
        gram[k, k] = sums.moved - 2 * float(moved @ pull) + 2 * dual
        self._memory.append(entry)
        self._gram = gram
        forget = residual > 2 * self.residual or settings.depth == 0
        keep = 1 if forget else settings.depth
        self._memory, self._gram = self._memory[-keep:], self._gram[-keep:, -keep:]
        self.residual = residual
        return forget

    def _mixture(self) -> Float64:
        theta = coefficients(self._gram)
        return np.eye(len(self._memory))[-1] if theta is None else theta

    def _summary(self, loss: float, passes: float, start: Float64, primal: float, dual: float) -> Round:
        settings = self.settings
        objective = loss + settings.penalty.value(start)
        scale = abs(objective) + settings.tol * abs(self.first_objective)
        enough = _PRECISION * math.sqrt(settings.tol * scale)
        converged = self.round > 1 and max(primal, dual) <= enough
        return Round(
            self.round,
            primal,
            dual,
            self.rho,
            loss,
            objective,
            passes / settings.n_slots,
            enough,
            converged,
        )

    def _change(self, curvature: Float64, primal: float, dual: float) -> tuple[Metric, Metric] | None:
        before = self.metric
        if len(curvature):
            self._set_metric(curvature)
        else:
            factor = self._balance(primal, dual)
            if factor == 1.0:
                return None
            self.rho *= factor
            self.metric = self._unit.scaled(self.rho)
        self.dual_sum = self.metric.solve(before.times(self.dual_sum))
        self._forget_all()
        self.base = self.round
        return before, self.metric

    def _mix(self) -> None:
        self.z = mixed(self.theta, [m.z for m in self._memory])
        self.dual_sum = mixed(self.theta, [m.dual for m in self._memory])

    def _forget_all(self) -> None:
        self._memory, self._gram, self.theta = [], np.zeros((0, 0)), np.zeros(0)

    def _balance(self, primal: float, dual: float) -> float:
        """What rho is multiplied by (proportional, where Boyd et al., §3.4.1, take 2 or ½)."""
        if not self.settings.balanced or self.round % _BALANCED_EVERY or self.round > _BALANCED_UNTIL:
            return 1.0
        low, high = _BALANCE_RANGE
        factor = min(max(math.sqrt(primal / dual) if dual > 0 else high, low), high)
        return factor if max(factor, 1 / factor) >= _BALANCE_WORTH else 1.0

    def _set_metric(self, curvature: Float64) -> None:
        settings = self.settings
        self._unit = metric_of(curvature, settings.n_slots, settings.penalty, full=settings.full)
        self.metric = self._unit.scaled(self.rho)


def mixed(theta: Float64, vectors: list[Float64]) -> Float64:
    """Σ θ_j v_j, of at least one."""
    total: Float64 = theta[0] * vectors[0]
    for factor, vector in zip(theta[1:], vectors[1:], strict=True):
        total += factor * vector
    return total
