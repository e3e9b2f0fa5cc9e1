"""Consensus ADMM: one worker's own part, its rows and its dual."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from squall.optim.consensus.admm import Consensus, mixed
from squall.optim.consensus.agreement import Contribution, Decision, Round, Trace
from squall.optim.consensus.metrics import DiagonalMetric, MatrixMetric
from squall.optim.consensus.subproblem import (
    LazyNewton,
    Objective,
    Subproblem,
    TruncatedNewton,
)
from squall.records import Float64

PASSES = 10
"""Most passes over its rows in which a worker solves its subproblem."""

_INNER = 0.1  # of a worker's part of the residual, to which it solves its subproblem
_NOTHING = np.zeros(0)


class _Own(NamedTuple):
    """A round, for acceleration: this worker's residual of u, and u after it."""

    residual: Float64
    dual: Float64


class Participant:
    """One worker.

    A round is `contribute`, the sum of what all have contributed, `absorb`; before the first there
    are `prepare` and `begin`.

    Parameters
    ----------
    objective : Objective
        This worker's rows.
    consensus : Consensus
        Its copy of what all have in common.

    Attributes
    ----------
    u : ndarray of shape (n,)
        The scaled dual.
    """

    def __init__(self, objective: Objective, consensus: Consensus) -> None:
        self._objective, self.consensus = objective, consensus
        self.u = np.zeros_like(consensus.z)
        self._vector = self._sent = self.u
        self._memory: list[_Own] = []
        self._curvature: Float64 | None = None  # of its own rows, at `_reference`
        self._reference = consensus.z
        self._renewed: tuple[Float64, Float64] | None = None  # the next of both, while a round is under way
        self._solver: LazyNewton | TruncatedNewton | None = None

    def prepare(self) -> tuple[float, Float64]:
        """Mean loss at z and curvature there, to be summed for `begin`."""
        loss, _ = self._objective.gradient(self.consensus.z)
        self._reference, self._curvature = self.consensus.z, self._measured()
        return loss, self._curvature

    def begin(self, loss: float, curvature: Float64) -> None:
        """Take the sums of what all have prepared."""
        self.consensus.begin(loss, curvature)

    def contribute(self) -> Contribution:
        """Solve the subproblem; what to add to the round's sums."""
        consensus = self.consensus
        settings, metric = consensus.settings, consensus.metric
        solver = self._ready_solver()
        tol = _INNER * consensus.residual / math.sqrt(settings.n_slots)
        subproblem = Subproblem(self._objective, metric, consensus.z - self.u)
        solved = solver.solve(subproblem, consensus.z, tol, PASSES)
        moved = settings.relaxation * (solved.x - consensus.z)
        reach = float(np.abs(moved * np.sqrt(metric.diagonal)).max())
        integers, grid = None, consensus.grid
        if grid is not None:
            integers = grid.integers(moved)
            moved = grid.values(integers)
        pull, products = metric.times(moved), np.zeros(settings.depth)
        for j, earlier in enumerate(self._memory[: settings.depth]):
            products[j] = pull @ earlier.residual
        self._vector = moved + self.u
        curvature = _NOTHING
        if consensus.renews:
            self._objective.gradient(solved.x)
            curvature = self._measured()
            self._renewed = solved.x, curvature
        return Contribution(
            self._vector,
            float(moved @ pull),
            solved.loss,
            float(subproblem.passes + consensus.renews),
            reach,
            products,
            curvature,
            integers,
        )

    def absorb(self, sums: Contribution) -> Round:
        """Go on with the sums of what all have contributed."""
        done, decision = self.consensus.step(sums)
        if self._renewed is not None:  # not before: who succeeds it in mid-round solves as it did
            (self._reference, self._curvature), self._renewed = self._renewed, None
        self._follow(decision)
        return done

    def absorb_towards(self, sums: Float64, number: int) -> Round:
        """As `absorb`, in a round of which some parts are old; ``sums`` are of what `answer` gives."""
        n = self.consensus.settings.n
        moved, loss, passes = (float(x) for x in sums[n:])
        done = self.consensus.step_towards(sums[:n], moved, loss, passes, number)
        self.u, self._memory = self._sent - self.consensus.z, []
        return done

    def answer(self) -> Float64:
        """Solve the subproblem; what to add to a round's sums if some of them may be old."""
        given = self.contribute()
        self._sent = self.consensus.z + given.vector
        return np.append(self._sent, [given.moved, given.loss, given.passes])

    def state(self) -> tuple[dict[str, Any], dict[str, Float64]]:
        """What `restored` needs beside the metric and the `trace` of some rounds: plain facts, and arrays."""
        return self.consensus.state()

    def trace(self) -> Trace:
        """As :meth:`Consensus.trace`, of what is this worker's own."""
        if not self._memory:
            return {"u": self.u, "reference": self._reference}
        return {"dual": self._memory[-1].dual}

    @staticmethod
    def restored(
        objective: Objective, consensus: Consensus, own: dict[int, Trace], common: dict[int, Trace]
    ) -> Participant:
        """As it was when it gave its `state`.

        Both kinds of traces are those of :meth:`Consensus.rounds`, by number, and this worker's own of the
        round ``consensus.base``.
        """
        participant, base = Participant(objective, consensus), consensus.base
        participant._reference = own[base]["reference"]

        def after(number: int) -> Float64:
            if number == base:
                return own[number]["u"]
            theta = common[number]["theta"]
            return mixed(theta, [own[n]["dual"] for n in range(number - len(theta) + 1, number + 1)])

        last, k = consensus.round, len(consensus.theta)
        for number in range(last - k + 1, last + 1):
            dual = own[number]["dual"]
            participant._memory.append(_Own(dual - after(number - 1), dual))
        participant.u = after(last)
        return participant

    def _follow(self, decision: Decision) -> None:
        dual = self._vector - decision.step
        self._memory.append(_Own(dual - self.u, dual))
        self._memory = [self._memory[-1]] if decision.forget else self._memory[-len(decision.theta) :]
        self.u = mixed(decision.theta, [own.dual for own in self._memory])
        if decision.change is not None:
            before, after = decision.change
            self.u = after.solve(before.times(self.u))
            self._memory, self._solver = [], None

    def _measured(self) -> Float64:
        if self.consensus.settings.full:
            return self._objective.hessian().ravel()
        return self._objective.hessian_diagonal()

    def _ready_solver(self) -> LazyNewton | TruncatedNewton:
        """The subproblem's solver for the present metric, with the curvature measured last."""
        if self._solver is None:
            if self._curvature is None:  # it has taken over from another attempt
                self._objective.gradient(self._reference)
                self._curvature = self._measured()
            metric = self.consensus.metric
            if isinstance(metric, MatrixMetric):
                n = self.consensus.settings.n
                self._solver = LazyNewton(self._curvature.reshape(n, n), metric)
            else:
                assert isinstance(metric, DiagonalMetric)
                self._solver = TruncatedNewton(self._curvature, metric)
        return self._solver
