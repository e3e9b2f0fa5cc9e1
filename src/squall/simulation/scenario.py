"""What is simulated: a job, a platform and the faults to come, as plain data."""

from __future__ import annotations

import random

import msgspec

KINDS = ("kill", "memory", "drop", "lose", "duplicate", "throttle", "straggle", "hang")
"""Faults of an invocation, as fields of :class:`PlatformModel`."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What workers do.

    ``rows`` are visited ``epochs`` times in minibatches of ``batch_size``, ``block`` of which a
    worker does before it looks up; at ``rows_per_s``.  With ``barriers`` all meet between epochs
    (HSP).  Measuring a model takes ``evaluate_s``; nothing is measured if it is None.
    """

    n_workers: int = 2
    rows: int = 4_000
    epochs: int = 2
    batch_size: int = 100
    block: int = 5
    rows_per_s: float = 2_000.0
    setup_s: float = 0.02
    barriers: bool = False
    evaluate_s: float | None = None


class PlatformModel(msgspec.Struct, frozen=True, kw_only=True):
    """How functions start and end, in seconds and probabilities for each invocation.

    Start-up times vary by a log-normal factor of deviation ``spread``.  ``kill`` and ``memory``: it
    dies within ``dies_within_s``.  ``drop``: it never runs.  ``lose``: it runs, but is given up.
    Both are told of as lost after ``lost_after_s``.  ``duplicate``: it runs twice.  ``throttle``: it
    is refused.  ``straggle``: it is ``slowdown`` times as slow.  ``hang``: within
    ``dies_within_s`` it stands still.  ``fail``: its code raises.  News
    take up to ``news_s`` to come.
    """

    lifetime_s: float = 900.0
    cold_start_s: float = 0.3
    warm_start_s: float = 0.005
    spread: float = 0.3
    concurrency: int = 1_000
    news_s: float = 0.02
    kill: float = 0.0
    memory: float = 0.0
    drop: float = 0.0
    lose: float = 0.0
    duplicate: float = 0.0
    throttle: float = 0.0
    straggle: float = 0.0
    hang: float = 0.0
    fail: float = 0.0
    dies_within_s: float = 1.0
    lost_after_s: float = 1.0
    slowdown: float = 4.0
    cancels: bool = True


class DriverDeath(msgspec.Struct, frozen=True, kw_only=True):
    """The client's process dies at its ``event``-th event, and another goes on ``silent_s`` later.

    ``when``: before the machine has heard of it, when its log has been written, or after the first
    of its commands.  With ``restores`` the store dies too, and is put back to its last checkpoint; with
    ``orphans`` the functions live on.
    """

    event: int
    when: str = "before"  # or "logged", "commanded"
    silent_s: float = 1.0
    restores: bool = False
    orphans: bool = True


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner says after so many epochs: go on with so many workers of that memory."""

    epoch: int
    workers: int
    memory_mb: int = 1769


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All of it.  The same scenario always runs in the same way.

    With ``changes`` there is a planner, which says just that; it thinks for ``thinking_s``, and to
    make ready for another plan takes as long again.
    """

    seed: int = 0
    workload: Workload = Workload()
    platform: PlatformModel = PlatformModel()
    deaths: tuple[DriverDeath, ...] = ()
    deadline_s: float | None = None
    budget_usd: float | None = None
    max_restarts: int = 3
    throttled_s: float = 10.0
    silence_s: float = 4.0
    ramp: int = 100
    replaces_stragglers: bool = False
    patience: int | None = None
    stop_at_s: float | None = None  # the user has had enough
    memory_mb: int = 1769
    tick_s: float = 0.2
    checkpoint_s: float = 0.5
    changes: tuple[Change, ...] | None = None
    thinking_s: float = 0.05

    def workers_after(self, epoch: int) -> int:
        """Workers once so many epochs are complete."""
        said = [change.workers for change in self.changes or () if change.epoch <= epoch]
        return said[-1] if said else self.workload.n_workers

    @staticmethod
    def draw(seed: int) -> Scenario:
        """A small job with a mixture of faults, all of it decided by the seed."""
        chance = random.Random(seed)
        workload = _workload(chance)
        return Scenario(
            seed=seed,
            workload=workload,
            platform=_platform(chance),
            deaths=_deaths(chance),
            deadline_s=_maybe(chance, 0.15, 0.5, 4.0),
            budget_usd=_maybe(chance, 0.15, 5e-5, 3e-4),
            max_restarts=chance.choice((1, 3, 8)),
            patience=chance.choice((None, None, 1)),
            stop_at_s=_maybe(chance, 0.1, 0.0, 3.0),
            changes=_changes(chance, workload.epochs),
            thinking_s=chance.choice((0.0, 0.05, 0.5)),
            ramp=chance.choice((100, 100, 2, 1)),
            replaces_stragglers=chance.random() < 0.5,
        )


def _workload(chance: random.Random) -> Workload:
    return Workload(
        n_workers=chance.choice((1, 2, 2, 3, 4)),
        rows=chance.choice((150, 1_000, 2_000)),
        epochs=chance.choice((1, 2, 3)),
        block=chance.choice((2, 5)),
        rows_per_s=chance.choice((500.0, 2_000.0)),
        barriers=chance.random() < 0.3,
        evaluate_s=_maybe(chance, 0.5, 0.01, 1.0),
    )


def _platform(chance: random.Random) -> PlatformModel:
    met = dict.fromkeys(KINDS, 0.0)
    for kind in chance.sample(KINDS, chance.choice((0, 1, 1, 2, 3))):
        met[kind] = chance.choice((0.1, 0.2, 0.3))
    return PlatformModel(
        lifetime_s=chance.choice((30.0, 30.0, 3.0, 1.5)),
        cold_start_s=chance.choice((0.05, 0.3)),
        concurrency=chance.choice((1_000, 1_000, 1_000, 2)),
        news_s=chance.choice((0.0, 0.02, 0.3)),
        fail=chance.choice((0.0, 0.0, 0.0, 0.02)),
        cancels=chance.random() < 0.7,
        **met,
    )


def _deaths(chance: random.Random) -> tuple[DriverDeath, ...]:
    restores = chance.random() < 0.4
    return tuple(
        DriverDeath(
            event=chance.randrange(1, 60),
            when=chance.choice(("before", "logged", "commanded")),
            silent_s=chance.choice((0.1, 1.0)),
            restores=restores,
            orphans=chance.random() < 0.6,
        )
        for _ in range(chance.choice((0, 0, 1, 1, 2)))
    )


def _changes(chance: random.Random, epochs: int) -> tuple[Change, ...] | None:
    if chance.random() < 0.6:
        return None
    return tuple(
        Change(epoch=epoch, workers=chance.choice((1, 2, 3)), memory_mb=chance.choice((1769, 3008)))
        for epoch in range(1, epochs)
        if chance.random() < 0.7
    )


def _maybe(chance: random.Random, probability: float, low: float, high: float) -> float | None:
    return chance.uniform(low, high) if chance.random() < probability else None
