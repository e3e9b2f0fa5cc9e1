"""The typed records that cross the seams.

Two sorts live here: *messages* (:class:`msgspec.Struct`, encoded as JSON or MessagePack)
and *blocks of rows* (dataclasses of NumPy arrays).  Neither holds behaviour beyond what
its fields imply, so every floor may import this module.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from squall.units import format_money

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Numbers = Float32 | Float64 | Int16 | Int64


# --------------------------------------------------------------------------- blocks of rows


class Place(NamedTuple):
    """Where a row block is in the training data, and in which epoch it is visited."""

    epoch: int
    partition: int
    start: int  # its first row there


@dataclass(frozen=True, slots=True)
class CsrBlock:
    """Training rows in compressed sparse row form; what models and kernels work on.

    ``values`` is None when every stored value is 1.  ``labels`` are what the model trains
    on (0 and 1 for a binary model, codes of classes, or numbers); ``weights`` is None when every
    row counts once.
    """

    indptr: Int64  # (n_rows + 1,)
    indices: Int32  # (nnz,)
    values: Float32 | None  # (nnz,)
    labels: Float32  # (n_rows,)
    weights: Float32 | None  # (n_rows,)
    n_features: int
    place: Place | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """Training rows as a dense matrix; see :class:`CsrBlock`."""

    features: Float32  # (n_rows, n_features), C order
    labels: Float32  # (n_rows,)
    weights: Float32 | None  # (n_rows,)
    place: Place | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.features.shape[1])


Block = CsrBlock | DenseBlock


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """One number per row: int64 as read, or float64 with NaN where the value is missing."""

    values: Int64 | Float64  # (n_rows,)


@dataclass(frozen=True, slots=True)
class CategoricalColumn:
    """One string per row as codes into a dictionary of UTF-8 strings; −1 means missing."""

    codes: Int32  # (n_rows,)
    offsets: Int64  # (n_strings + 1,)
    data: Bytes  # (n_bytes,)

    def strings(self) -> list[str]:
        """The dictionary, in code order."""
        raw = self.data.tobytes()
        ends = self.offsets.tolist()
        return [raw[a:b].decode() for a, b in itertools.pairwise(ends)]

    @staticmethod
    def from_strings(codes: Int32, strings: list[str]) -> CategoricalColumn:
        """A column of these codes into this list of strings."""
        encoded = [s.encode() for s in strings]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(b) for b in encoded], out=offsets[1:])
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return CategoricalColumn(codes, offsets, data)


@dataclass(frozen=True, slots=True)
class DenseColumn:
    """Many numbers per row: a dense matrix, float64, float32 or uint8 as given."""

    values: Float64 | Float32 | Bytes  # (n_rows, width)


@dataclass(frozen=True, slots=True)
class SparseColumn:
    """Many numbers per row: a sparse matrix; ``values`` None means all ones."""

    indptr: Int64  # (n_rows + 1,)
    indices: Int32  # (nnz,)
    values: Float64 | Float32 | None  # (nnz,)
    width: int


Column = NumericColumn | CategoricalColumn | DenseColumn | SparseColumn


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Rows as they were read: typed columns, nothing rounded.

    ``columns`` are the features in schema order.  ``labels`` holds int32 codes into the data
    set's label map (:attr:`Manifest.classes`); where there is no map, float64 numbers that are
    themselves what is to be predicted, such as ratings; None when the data has no labels.
    ``qid`` says which query a row belongs to, where rows are to be ranked.
    """

    n_rows: int
    columns: dict[str, Column]
    labels: npt.NDArray[Any] | None = None  # (n_rows,)
    weights: Float64 | None = None  # (n_rows,)
    qid: Int64 | None = None  # (n_rows,)


# ------------------------------------------------------------------------------- data sets


class ColumnSpec(msgspec.Struct, frozen=True):
    """Name and kind of one feature column; ``width`` is 1 unless the column is a matrix."""

    name: str
    kind: Literal["int64", "float64", "categorical", "dense", "sparse"]
    width: int = 1


class PartitionInfo(msgspec.Struct, frozen=True):
    """One stored object of a data set."""

    key: str
    rows: int
    nnz: int
    bytes: int
    checksum: str  # MurmurHash3 x64 128-bit of the object, hexadecimal


class Manifest(msgspec.Struct, frozen=True):
    """The one schema of a *raw* data set, decided once.

    ``classes`` is the sorted label map; labels are stored as codes into it, or, where it is None and
    ``label`` is not, as numbers.  ``dictionaries`` are objects with the strings that a column's numbers
    stand for in all partitions: codes of a categorical column, positions of a sparse one.
    ``missing`` counts missing values by column, for those columns that have some.
    ``warnings`` are what reading had to say.
    ``facts`` are what a reader decided or was told: its format, the index base.
    """

    rows: int
    columns: list[ColumnSpec]
    partitions: list[PartitionInfo]
    label: str | None = None
    classes: list[str | int | float | bool] | None = None
    dictionaries: dict[str, PartitionInfo] = {}
    missing: dict[str, int] = {}
    source: str = ""
    warnings: list[str] = []
    facts: dict[str, str | int | float | bool] = {}
    format_version: int = 1


class TrainingManifest(msgspec.Struct, frozen=True):
    """A *training* data set: float32 rows in their final feature space.

    Where ``block_rows`` is not 0, row blocks are of so many rows, and each is the same slot's in all epochs.
    """

    rows: int
    n_features: int
    kind: Literal["csr", "dense"]
    partitions: list[PartitionInfo]
    format_version: int = 1
    memory_bytes: int = 0  # of all rows once they are read; packed partitions are stored in fewer
    block_rows: int = 0


# --------------------------------------------------------------------------- parameter store


class OptimizerSpec(msgspec.Struct, frozen=True):
    """Which update rule a table applies, and its settings.

    Those of other rules are not looked at.  ``schedule``, ``decay``, ``warmup`` and ``steps`` say
    by what the learning rate is multiplied, in steps of the table; see :mod:`squall.optim`.
    """

    name: Literal["sgd", "momentum", "nesterov", "adagrad", "adam", "ftrl"]
    learning_rate: float
    l1: float = 0.0
    l2: float = 0.0
    momentum: float = 0.9  # of momentum, nesterov
    beta_1: float = 0.9  # of adam
    beta_2: float = 0.999  # of adam
    beta: float = 1.0  # of ftrl
    schedule: Literal["constant", "inverse", "cosine"] = "constant"
    decay: float = 0.0  # of inverse, per step
    warmup: int = 0  # steps
    steps: int = 0  # planned in all; needed by a schedule or a warm-up
    clip_value: float | None = None
    clip_norm: float | None = None


class InitialValues(msgspec.Struct, frozen=True):
    """What a new table's weights are, made where the table is.

    ``"uniform"`` is from −``scale`` to ``scale``, ``"normal"`` of deviation ``scale``.  A weight
    depends on ``seed``, its row and its column alone, not on how many shards hold the table.  The
    first ``zero_columns`` weights of each row begin at zero.
    """

    kind: Literal["uniform", "normal"]
    scale: float
    seed: int = 0
    zero_columns: int = 0


class TableSpec(msgspec.Struct, frozen=True):
    """A table of ``rows`` × ``dim`` float32 parameters and the optimiser that owns it.

    Rows from ``regularized_rows`` on (the intercept) are never penalised.  Weights begin at zero
    without ``initial``.  Where a store has several shards, ``sharding`` says which row goes where:
    ``"hash"`` by the row's number modulo the shards, ``"range"`` in equal stretches.  ``summed``: updates
    that are applied together count as one after the other, so they are added up; otherwise they are
    gradients of one loss, and their mean is taken.
    """

    name: str
    rows: int
    dim: int
    optimizer: OptimizerSpec
    regularized_rows: int
    initial: InitialValues | None = None
    sharding: Literal["hash", "range"] = "hash"
    summed: bool = False


ReduceOp = Literal["sum", "min", "max"]
"""By what arrays become one; ``min`` and ``max`` are NumPy's ``minimum`` and ``maximum`` (NaN wins)."""

REDUCE_OPS = ("sum", "min", "max")


class Stamp(msgspec.Struct, frozen=True):
    """Who sends an update: repeats are dropped and stale attempts refused by it.

    ``sequence`` rises through all attempts of a slot.  Slot −1 is the driver's.
    ``minibatches`` is how many of the slot's minibatches are complete once this update is
    applied: the slot's progress rises to it in the same step (0: it says nothing of that).
    """

    slot: int
    attempt: int
    sequence: int
    minibatches: int = 0


class Sync(msgspec.Struct, frozen=True, array_like=True):
    """When an update is applied, and when its sender may read on.

    ``staleness`` is how many minibatches a reader may be ahead of the slowest live slot.  0 is
    BSP: updates wait until every slot has sent one, and are applied together.  None is no bound.
    ``weighted`` scales an update by k^(-1/3), k being the updates of others since its sender read.
    """

    staleness: Annotated[int, msgspec.Meta(ge=0, le=1 << 31)] | None = None
    weighted: bool = False

    @property
    def staged(self) -> bool:
        """Whether updates wait for those of all slots."""
        return self.staleness == 0


class Meeting(NamedTuple):
    """What comes of `Tables.meet`: weights, or None if the time was over; and how long it waited."""

    weights: Float32 | None  # (n, dim)
    held_s: float


@dataclass(frozen=True, slots=True)
class Update:
    """A minibatch's gradient on its way: (n, dim) float32, float16, or int8 times ``scale``."""

    rows: Int64  # (n,), distinct
    values: npt.NDArray[Any]  # (n, dim)
    scale: float = 1.0

    def decoded(self) -> Float32:
        """The values as the table takes them."""
        if self.values.dtype == np.int8:
            return self.values * np.float32(self.scale)
        return self.values.astype(np.float32, copy=False)


class SolverRound(msgspec.Struct, frozen=True):
    """A round of a strategy that solves to a tolerance; all workers know the same of it.

    Residuals are those of :mod:`squall.optim.consensus`.  ``objective`` is that of the point that the
    round began with; ``passes`` are over a worker's rows, on average.  It has converged when both residuals
    are at most ``enough``.
    """

    objective: float
    primal_residual: float
    dual_residual: float
    rho: float
    passes: float
    enough: float
    converged: bool


class Steps(NamedTuple):
    """What a strategy did with some minibatches, and where the time and the bytes went.

    Losses are taken before each update; their sum is not finite if training diverged.
    """

    minibatches: int
    rows: int
    loss_sum: float
    weight_sum: float
    pull_s: float = 0.0
    push_s: float = 0.0
    wait_s: float = 0.0  # for other workers
    bytes_in: int = 0
    bytes_out: int = 0
    solver: SolverRound | None = None


@dataclass(frozen=True, slots=True)
class SharedTable:
    """A table mapped into this process's memory, for embedded asynchronous updates.

    ``array`` is laid out row by row: ``dim`` weights, then the optimiser's state, then (if
    rows change without being touched) the step at which the row was last brought up to date.
    """

    spec: TableSpec
    array: Float32  # (rows, stride)
    step: Int64  # (1,) minibatches applied by all workers together


class TableContents(NamedTuple):
    """All that a table holds: ``array`` as in :class:`SharedTable`, every row brought up to ``step``."""

    array: Float32  # (rows, stride)
    step: int


# --------------------------------------------------------------------- functions, their ends


class Shape(msgspec.Struct, frozen=True):
    """What a function needs from its platform.

    ``handler`` is ``"module:function"``; the platform imports it inside the function and
    calls ``handler(event, context)``.
    """

    handler: str
    memory_mb: int
    timeout_s: float


class OutcomeKind(enum.StrEnum):
    """How an invocation ended, as far as the platform can tell."""

    RETURNED = "returned"
    RAISED = "raised"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    KILLED = "killed"
    EXITED = "exited"
    THROTTLED = "throttled"
    LOST = "lost"


class Outcome(msgspec.Struct, frozen=True):
    """The end of one invocation, and what it used.

    ``billed_s`` is what a cloud would bill: the time from the start of the environment
    (cold) or of the call (warm) to its end.  ``peak_memory`` is private memory in bytes.
    """

    kind: OutcomeKind
    value: Any = None
    error_type: str = ""
    error: str = ""
    traceback: str = ""
    signal: int = 0
    exit_code: int = 0
    cold: bool = False
    billed_s: float = 0.0
    peak_memory: int = 0


# --------------------------------------------------------------------------- workers and jobs


FaultKind = Literal["kill", "duplicate", "drop", "delay", "throttle", "slow"]
FaultPoint = Literal["before", "in flight", "after"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One exact fault of a script: what happens to which invocations, when, how often.

    ``slot`` and ``attempt`` None mean any; ``wait`` None means that of the `Chaos`.  What each
    kind does at each point is told at :class:`squall.functions.local.chaos.ChaosPlatform`.
    """

    do: FaultKind
    when: FaultPoint = "before"
    slot: int | None = None
    attempt: int | None = None
    wait: str | float | None = None
    times: int = 1


class Chaos(msgspec.Struct, frozen=True, kw_only=True):
    """Faults to inject, to see a job survive them; all of them are off unless set.

    ``slot``, ``attempt`` and ``minibatch`` together: SIGKILL that worker from inside, at that
    recorded minibatch.  ``kill`` to ``slow`` are probabilities that an invocation meets
    that fault (at most one each), decided by ``seed``, slot and attempt alone, at one of
    ``points``; only in ``slots`` if given, and not more than ``max_faults`` altogether.
    ``wait`` is how long delays last, and the longest time until an in-flight fault strikes.
    What is slow takes ``slowdown`` times as long for its work.
    An invocation that is dropped ends as LOST ``lost_after`` that time (None: never).  Above
    ``quota`` invocations at once further ones are throttled.  ``script`` comes first.
    """

    slot: int = -1
    attempt: int = -1
    minibatch: int = -1
    seed: int = 0
    kill: float = 0.0
    duplicate: float = 0.0
    drop: float = 0.0
    delay: float = 0.0
    throttle: float = 0.0
    slow: float = 0.0
    slowdown: float = 4.0
    points: tuple[FaultPoint, ...] = ("before", "in flight", "after")
    wait: str | float = "200ms"
    lost_after: str | float | None = "1s"
    quota: int | None = None
    slots: tuple[int, ...] | None = None
    max_faults: int | None = None
    script: tuple[Fault, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """How many functions of what memory (in MB) train."""

    workers: int
    memory_mb: int


class Situation(msgspec.Struct, frozen=True):
    """What a planner knows of a job when it is asked how to go on.

    ``epoch`` is the first one to be planned: ``history`` has a record for each one before it.
    """

    plan: Plan
    epoch: int
    epochs: int
    rows: int  # of the training data
    history: list[HistoryRecord]
    time_s: float
    cost_usd: float
    deadline_s: float | None
    budget_usd: float | None


class WorkerTask(msgspec.Struct, frozen=True):
    """The event that starts a worker: references only, far below the payload limit.

    It works on epochs ``first_epoch`` … ``epochs − 1``, counting minibatches from the first of them.
    From epoch ``held_from`` on it begins one only when the driver has said so, under `epoch_key`.
    """

    job: str
    slot: int
    attempt: int
    n_slots: int
    storage: str  # URL of the object store
    training: str  # key of the TrainingManifest there
    store: str  # address of the parameter store
    model: dict[str, Any]
    table: str
    strategy: dict[str, Any]
    batch_size: int
    epochs: int
    seed: int
    optimizer: OptimizerSpec
    standby: bool = False  # wait until the predecessor has handed the slot over
    chaos: Chaos | None = None
    token: str = ""  # what a store on TCP asks for
    first_epoch: int = 0
    held_from: int | None = None
    slowdown: float = 1.0  # a fault: times as long as its work takes

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name != "token"}
        return f"WorkerTask({', '.join(f'{name}={value!r}' for name, value in shown.items())}, token=***)"


class CallTask(msgspec.Struct, frozen=True):
    """The event that starts a function of `squall.map`: references only, and the job's key.

    ``slot`` is the number of the first item; with ``attempt`` it names this call.  ``ranges`` are
    half-open stretches of positions in the object ``items``.  Where ``function`` is empty, each
    item is a function and its arguments.
    """

    job: str
    slot: int
    attempt: int
    storage: str  # URL of the object store
    function: str  # key of an object there
    items: str  # key of an object there
    ranges: list[tuple[int, int]]
    key: str  # hexadecimal; signs all pickles of the job
    python: str  # the client's, such as "3.11"
    timeout_s: float | None = None  # for one item
    careful: bool = False  # store each result before the next item begins
    slowdown: float = 1.0  # a fault: times as long as its work takes

    @property
    def results(self) -> str:
        """Where results go: objects of this name with ``-0``, ``-1``, … behind it."""
        return f"{self.job}/results/{self.slot}-{self.attempt}"

    def __repr__(self) -> str:
        return f"CallTask({self.job!r}, slot={self.slot}, attempt={self.attempt}, key=***)"


class ItemEnd(msgspec.Struct, frozen=True):
    """How the call for one item ended, without its value; ``position`` is that in ``items``."""

    position: int
    ok: bool
    error_type: str = ""
    error: str = ""
    traceback: str = ""


class CallsDone(msgspec.Struct, frozen=True):
    """What a function of `squall.map` returns: where its results are, and what it has used."""

    parts: int
    busy_s: float  # in the user's code
    gets: int  # object-store reads
    puts: int  # object-store writes


def epoch_key(job: str, epoch: int) -> str:
    """The blob that tells workers that wait before an epoch: `GO_ON`, or `LEAVE` it to others."""
    return f"{job}/epochs/{epoch}"


GO_ON, LEAVE = b"go on", b"leave"


def turn_key(job: str, slot: int, attempt: int) -> str:
    """Blob that tells a stand-by that its slot has been handed over to it."""
    return f"{job}/turn/{slot}/{attempt}"


class Phases(msgspec.Struct):
    """Seconds by what a worker did, and what it moved; summed over an epoch or a part of it."""

    cold_start: float = 0.0
    fetch: float = 0.0
    pull: float = 0.0
    compute: float = 0.0
    push: float = 0.0
    wait: float = 0.0
    cpu: float = 0.0  # CPU seconds of the process
    peak_rss: int = 0  # private bytes at the highest
    bytes_in: int = 0
    bytes_out: int = 0
    gets: int = 0  # object-store reads
    puts: int = 0  # object-store writes


class Report(msgspec.Struct, frozen=True):
    """What a worker did since its last report, within one epoch.

    ``billed_s`` is what its invocation has cost so far in seconds, start included;
    ``working_s`` is the time since its first minibatch began.  ``ending`` announces that it
    will hand its slot over soon, so that a successor can be ready by then.  ``number`` counts the
    reports of an attempt, from 1: a new driver may be told again of one that its predecessor knew.
    """

    slot: int
    attempt: int
    epoch: int
    rows: int
    loss_sum: float
    weight_sum: float
    epoch_done: bool
    billed_s: float
    working_s: float
    phases: Phases
    ending: bool = False
    number: int = 0  # 0: it is not counted
    solver: SolverRound | None = None


class Registration(msgspec.Struct, frozen=True):
    """What a new attempt takes over: the minibatches its slot has done, and strategy state."""

    minibatches: int
    state: bytes = b""


class HeldOut(msgspec.Struct, frozen=True):
    """Quality on held-out rows."""

    loss: float
    accuracy: float | None  # None where predictions are numbers
    rows: int


class HistoryRecord(msgspec.Struct, frozen=True):
    """One epoch of training, as seen by the client.

    ``loss`` is progressive: each minibatch's loss before its update, averaged over rows.
    ``validation_loss`` is None where the next epoch was over before this one was measured.
    ``workers`` is the number of slots that had a part in it.  ``unreported_rows`` are those among
    ``rows`` whose worker died before it could report them: training has used them, but they are
    not in ``loss`` and ``phases``.  (An epoch that was broken off counts reported rows only.)
    """

    epoch: int
    time_s: float
    rows: int
    loss: float
    validation_loss: float | None
    cost_usd: float
    workers: int
    phases: Phases
    by_worker: dict[int, Phases] = {}
    unreported_rows: int = 0
    solver: SolverRound | None = None  # of strategies that have rounds, such as ADMM


class AttemptRecord(msgspec.Struct, frozen=True):
    """One invocation of a worker, as it ended (or ``outcome`` None while it runs).

    Times are seconds since the job began.  ``lost_s`` is the time for which its slot stood
    still between its predecessor's last minibatch and its own first.
    """

    slot: int
    attempt: int
    started_s: float
    first_minibatch: int = 0
    minibatches: int = 0
    ended_s: float | None = None
    outcome: Outcome | None = None
    cost_usd: float = 0.0
    lost_s: float = 0.0


class Bill(msgspec.Struct, frozen=True):
    """What a run costs (or would cost) in US dollars, by item; shown as a table."""

    compute_usd: float
    requests_usd: float
    store_usd: float
    objects_usd: float
    invocations: int
    gb_seconds: float
    price_list: str

    @property
    def total_usd(self) -> float:
        """The sum of all items."""
        return self.compute_usd + self.requests_usd + self.store_usd + self.objects_usd

    def __add__(self, other: Bill) -> Bill:
        lists = dict.fromkeys([*self.price_list.split("; "), *other.price_list.split("; ")])
        return Bill(
            self.compute_usd + other.compute_usd,
            self.requests_usd + other.requests_usd,
            self.store_usd + other.store_usd,
            self.objects_usd + other.objects_usd,
            self.invocations + other.invocations,
            self.gb_seconds + other.gb_seconds,
            "; ".join(lists),
        )

    def items(self) -> dict[str, float]:
        """US dollars by what they are for."""
        return {
            f"functions ({self.gb_seconds:.2f} GB-s)": self.compute_usd,
            f"requests ({self.invocations} invocations)": self.requests_usd,
            "parameter store": self.store_usd,
            "object store requests": self.objects_usd,
        }

    def __repr__(self) -> str:
        costs = {**self.items(), "total": self.total_usd}
        shown = {name: format_money(usd) for name, usd in costs.items()}
        left, right = max(map(len, shown)), max(map(len, shown.values()))
        lines = [f"{name.ljust(left)}  {money.rjust(right)}" for name, money in shown.items()]
        return "\n".join([*lines, f"at {self.price_list}"])


class Expected(NamedTuple):
    """Seconds and dollars that a job takes in all, by a projection; or has taken so far."""

    time_s: float
    cost_usd: float


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    state: str
    epoch: int
    epochs: int
    rows: int
    loss: float | None
    validation_loss: float | None
    workers: int
    rows_per_s: float
    time_s: float
    cost_usd: float
    lost_s: float = 0.0
    attempts: list[AttemptRecord] = field(default_factory=list)
    reason: str = ""
    notes: list[str] = field(default_factory=list)
    expected_s: float | None = None  # that it would take in all, as projected before its launch
    expected_usd: float | None = None
