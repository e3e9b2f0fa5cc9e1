"""The seams: what the floors above may ask of the floors below.

Each protocol has one contract suite in :mod:`squall.testing`; an implementation is right
when it passes that suite.  Threads: unless a method says otherwise, an object belongs to
the thread that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from squall.records import (
    Block,
    ColumnSpec,
    Float32,
    Int32,
    Int64,
    Meeting,
    Numbers,
    Outcome,
    Plan,
    RawBlock,
    ReduceOp,
    Registration,
    Report,
    Shape,
    SharedTable,
    Situation,
    Stamp,
    Steps,
    Sync,
    TableContents,
    TableSpec,
    Update,
    WorkerTask,
)

# ------------------------------------------------------------------------ function platforms


class FunctionContext(Protocol):
    """What a running function knows of itself; handed to its handler."""

    @property
    def invocation_id(self) -> str:
        """Unique name of this invocation."""

    @property
    def memory_mb(self) -> int:
        """The memory limit."""

    @property
    def temp_dir(self) -> str:
        """A folder of its own, empty at the start and removed at the end."""

    @property
    def cold_start_s(self) -> float:
        """Seconds that the environment took to start; 0 when it was warm."""

    def remaining_s(self) -> float:
        """Seconds until the platform ends this invocation."""


Handler = Callable[[dict[str, Any], FunctionContext], Any]


class Invocation(Protocol):
    """One call of a function.  All methods may be called from any thread."""

    @property
    def id(self) -> str:
        """Unique name, the same inside the function."""

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the end.

        Raises
        ------
        TimeoutError
            If it has not ended within ``timeout`` seconds.
        """

    def add_done_callback(self, callback: Callable[[Outcome], None]) -> None:
        """Call ``callback`` once when it ends (at once if it has), from a platform thread.

        It must not wait for another invocation; what it raises is logged.
        """

    def cancel(self) -> bool:
        """Try to end it; False where the platform cannot.  The outcome follows as usual."""

    def logs(self) -> str:
        """What it wrote to its standard output and error so far (the last 1 MB)."""


class Endpoint(Protocol):
    """A function of one shape, ready to be called.  May be used from any thread."""

    @property
    def shape(self) -> Shape:
        """The shape it was prepared for; its time limit may be lower than was asked."""

    def invoke(self, event: dict[str, Any]) -> Invocation:
        """Start one invocation and return at once.

        ``event`` is encoded as strict JSON (finite numbers), at most 64 kB; results go
        through Blobs, not the return value.  Delivery is zero or more times.

        Raises
        ------
        PlatformError
            If the event is too large or the platform is closed.
        """


@runtime_checkable
class FunctionPlatform(Protocol):
    """Where functions run.  May be used from any thread."""

    @property
    def name(self) -> str:
        """Name under which it is registered."""

    def prepare(self, shape: Shape) -> Endpoint:
        """Make a function of this shape ready.

        Raises
        ------
        PlatformError
            If the platform cannot give that memory or time.
        """

    def close(self) -> None:
        """End everything that runs and give all resources back; idempotent."""


# ------------------------------------------------------------------------------------- store


class Tables(Protocol):
    """Tables of float32 parameters, each owned by an optimiser (the parameter server).

    A table's name is ``"<job>/<name>"``; it lives in an open job and ends with it.

    With ``half`` numbers travel as float16: half the bytes, 11 bits of precision, what is
    beyond ±65504 cut to that.  Where nothing travels (mapped memory) they stay as they are.
    """

    def create(self, spec: TableSpec, source: str | None = None) -> None:
        """Make a table of zeros.  The same spec again is a no-op; another is an error.

        With ``source``, another table of the same spec but for its name, make it a copy: of that
        one's weights, optimiser state and step, not of what its slots have sent.  It may be in another
        open job, and with other slots.  Nobody may update the source meanwhile.
        """

    def drop(self, name: str) -> None:
        """Remove a table; no error if it is not there."""

    def describe(self, name: str) -> TableSpec:
        """The spec it was made with.

        Raises
        ------
        StoreError
            If there is no such table (so for every method below).
        """

    def pull(self, name: str, rows: Int64 | None = None, *, half: bool = False) -> Float32:
        """Current weights of ``rows`` (all if None), brought up to date: (n, dim)."""

    def push(self, name: str, rows: Int64, gradient: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """Apply a minibatch's gradient (n, dim) to distinct ``rows`` by the optimiser.

        Returns False, and changes nothing, for a repeated ``stamp`` (over a network also when
        the reply to the first sending was lost, and it was sent again).

        Raises
        ------
        StaleAttemptError
            If a newer attempt of that slot has registered.
        """

    def exchange(
        self,
        name: str,
        push: tuple[Int64, Float32] | None,
        pull: Int64,
        stamp: Stamp,
        *,
        half: bool = False,
    ) -> Float32:
        """Push (rows, gradient), then pull, in one round trip."""

    def meet(
        self, name: str, update: Update | None, pull: Int64, stamp: Stamp, sync: Sync, timeout: float
    ) -> Meeting:
        """Hand an update to the table's owner, then pull as soon as ``sync`` allows.

        The owner applies it at once or, with ``sync.staleness`` 0, together with one update of every slot
        that is not ahead at a barrier (`Control.barrier`): their mean (or, of a table that says so, their
        sum), added up in slot order by a fixed tree, in one step of the optimiser.  The slot's clock
        ticks with each update that completes a minibatch.

        There are no weights if that took more than ``timeout`` seconds: ask again with the same stamp
        and no update.  Repeats are dropped and stale attempts refused, as in `push`; what a
        replaced attempt had handed in and was not yet applied is forgotten.
        """

    def add(self, name: str, rows: Int64, deltas: Float32, stamp: Stamp, *, half: bool = False) -> bool:
        """Add raw ``deltas`` to the weights, past the optimiser; otherwise as `push`."""

    def dump(self, name: str) -> TableContents:
        """All rows with their optimiser's state.  What is updated meanwhile may be there in part."""

    def load(self, name: str, contents: TableContents) -> None:
        """(driver) Set all rows, their optimiser's state and the step.  Nobody may use it meanwhile.

        What slots have sent, and how far they are, stays as it is.

        Raises
        ------
        StoreError
            If the contents are not those of a table of this shape and optimiser.
        """


@runtime_checkable
class SharedTables(Tables, Protocol):
    """Tables that this process can also map: the embedded store's asynchronous contract.

    Updates made in place are racy float adds (Hogwild), and a worker killed in the middle
    may leave one torn minibatch.  This is weaker than `push`, by declaration.
    """

    def shared(self, name: str) -> SharedTable:
        """The table's memory."""


class Blobs(Protocol):
    """Named values in the fast store; keys ``"<job>/…"`` end with that job.

    A value of any size is there as a whole or not at all.  Over a network a call that is sent
    again, because its reply was lost, is carried out once.
    """

    def put(self, key: str, value: bytes) -> None:
        """Set a value."""

    def put_if_absent(self, key: str, value: bytes) -> bool:
        """Set a value unless the key has one; True if it was set."""

    def get(self, key: str) -> bytes | None:
        """The value, or None."""

    def mget(self, keys: list[str]) -> list[bytes | None]:
        """Several values in one round trip."""

    def wait(self, key: str, timeout: float) -> bytes | None:
        """The value as soon as there is one; None after ``timeout`` seconds."""

    def delete(self, key: str) -> None:
        """Remove a value (or counter, or reduction); no error if it is not there."""

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """Set a value that comes in pieces of any sizes; nobody sees it before all have come."""

    def get_stream(self, key: str) -> Iterator[bytes] | None:
        """The value in pieces of bounded size, or None.

        Raises
        ------
        StoreError
            While it is read, if it has been replaced or removed meanwhile.
        """


class Reductions(Protocol):
    """Numbers that many bring together.  A key is for one thing: a value, a counter or a reduction."""

    def add(self, key: str, increment: int = 1) -> int:
        """Add to a counter of 64 bits, which begins at 0; returns what it then is.

        Raises
        ------
        StoreError
            If the sum does not fit.
        """

    def reduce(self, key: str, array: Numbers, op: ReduceOp, contributor: int) -> None:
        """Contribute to the reduction ``key``; the first one settles its operation, type and shape.

        A second contribution of a ``contributor`` (a number from 0 on, such as a slot or a
        partition) is dropped: a worker may repeat what its predecessor may have done.

        Raises
        ------
        StoreError
            If the array is of another type or shape than those before it.
        """

    def reduced(self, key: str, n: int, timeout: float) -> Numbers | None:
        """What has been contributed, as one array, as soon as ``n`` (at least 1) have contributed.

        None after ``timeout`` seconds.  The result's bits depend on who has contributed what,
        not on the order: contributions are folded in a fixed tree over the contributors'
        numbers.  It must not be changed.  `delete` ends a reduction.
        """


class ReducingBlobs(Blobs, Reductions, Protocol):
    """What every store has."""


class AtomicBlobs(ReducingBlobs, Protocol):
    """What a store has that computes: all but an object store."""

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bool:
        """Set a value if the present one is ``expected`` (None: there is none); True if it was set."""


class Control(Protocol):
    """How workers and driver meet: who owns a slot, how far it is, whether to stop."""

    def open_job(self, job: str, n_slots: int) -> None:
        """(driver) Make the job's slots known; the same again is a no-op."""

    def close_job(self, job: str) -> None:
        """(driver) Forget the job, its tables, blobs and reports."""

    def register(self, job: str, slot: int, attempt: int, pid: int) -> Registration:
        """(worker) Take a slot over; older attempts of it are refused from now on.

        Raises
        ------
        StaleAttemptError
            If a newer attempt has registered, or the same one from another process (an
            event that was delivered twice).
        """

    def progress(self, job: str, slot: int) -> Int64:
        """(worker, driver) Minibatches that the slot has fully applied, as (1,).

        Where tables are :class:`SharedTables` this is the slot's living cell, which a kernel
        may count in; elsewhere a read-only copy of the count as it is now.  It rises with
        stamped updates (:attr:`~squall.records.Stamp.minibatches`) and by `advance`.
        """

    def look(self, job: str, slot: int) -> Registration:
        """(driver) What an attempt that registered now would take over; the slot stays whose it is."""

    def advance(self, job: str, slot: int, attempt: int, minibatches: int) -> None:
        """(worker) The slot has fully applied ``minibatches`` in all.

        For strategies whose work changes no table.  Progress never goes back: a smaller
        number changes nothing.  StaleAttemptError if replaced.
        """

    def barrier(self, job: str, slot: int, attempt: int, number: int, timeout: float) -> bool:
        """(worker) The slot has come to barrier ``number``; wait until all slots have.

        Numbers rise; who comes to one has come to all before it.  Slots that have not registered
        are waited for too.  False if it took more than ``timeout`` seconds: ask again.
        """

    def finish(self, job: str, slot: int, attempt: int) -> None:
        """(worker) The slot's work is done: nobody waits for it any more."""

    def save_state(self, job: str, slot: int, attempt: int, state: bytes) -> None:
        """(worker) Keep strategy state for the successor; StaleAttemptError if replaced."""

    def report(self, job: str, report: Report) -> None:
        """(worker) Tell the driver what was done; StaleAttemptError if replaced."""

    def reports(self, job: str, after: int, timeout: float) -> list[Report]:
        """(driver) Reports number ``after`` and later; waits up to ``timeout`` s for one.

        For one reader, which asks each time from where it stopped: what is before ``after``
        is forgotten.  A new reader, which does not know where the last one stopped, begins with
        −1: it gets all that are kept, and counts them from 0.
        """

    def request_stop(self, job: str) -> None:
        """(driver) Ask all workers to stop at their next minibatches."""

    def stop_requested(self, job: str) -> bool:
        """(worker) Whether to stop; cheap enough to ask every few milliseconds.

        Where each request costs money the answer may be a second old.
        True also for a worker that still holds on to a job that has been closed.
        """


class Store(Protocol):
    """A client of a store; it belongs to the thread that made it."""

    @property
    def address(self) -> str:
        """Where it is; of several shards, separated by commas."""

    @property
    def tables(self) -> Tables:
        """Tables of parameters; raises `StoreError` where there are none."""

    @property
    def blobs(self) -> ReducingBlobs:
        """Named values, counters and reductions; but in object stores `AtomicBlobs`."""

    @property
    def control(self) -> Control:
        """The job's slots."""

    def close(self) -> None:
        """Disconnect; idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...


class Objects(Protocol):
    """An object store: named, immutable pieces of bytes.  May be used from several threads.

    Keys are ASCII; ``gets`` and ``puts`` are requests so far, as they are billed.
    """

    url: str
    gets: int
    puts: int

    def put(self, key: str, data: bytes | memoryview) -> None:
        """Store ``data`` under ``key``, replacing what was there; all or nothing."""

    def put_stream(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        """As `put` for what comes in pieces, of one size but for the last."""

    def create(self, key: str, data: bytes | memoryview) -> bool:
        """Store ``data`` unless ``key`` exists; True if this call stored it."""

    def find(self, key: str) -> memoryview | None:
        """The bytes of an object; None if there is none."""

    def stream(self, key: str) -> Iterator[bytes | memoryview] | None:
        """The bytes of an object piece by piece; None if there is none."""

    def keys(self, prefix: str = "") -> list[str]:
        """Names of all objects below a folder, sorted."""

    def delete(self, key: str) -> None:
        """Remove an object; no error if it is not there."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below a folder."""

    def close(self) -> None:
        """Give idle connections back."""


# ---------------------------------------------------------------------- models and strategies


class Model(Protocol):
    """A model's mathematics on blocks of rows: pure functions of arrays, without state of its own.

    A frozen :class:`msgspec.Struct` whose tag is its name in :data:`squall.registry.MODELS`: so it
    travels to workers, and into a job's description, as plain data
    (:func:`squall.models.model_from_dict`).
    """

    def table(self, name: str, optimizer: Any) -> TableSpec:
        """The table that holds its parameters."""

    def train_shared(
        self,
        block: Block,
        order: Int32,
        batch_size: int,
        first: int,
        count: int,
        table: SharedTable,
        progress: Int64,
    ) -> tuple[float, float, int]:
        """Minibatches ``first`` … ``first + count − 1`` of ``block`` in ``order``, in place.

        Returns (sum of losses before each update, sum of weights, rows); a loss that is
        not finite ends it before that update.  ``progress`` counts applied minibatches.
        """

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Table rows that a minibatch touches, and a handle to give to `gradient`."""

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """(gradient for the needed rows, sum of losses, sum of sample weights).

        The gradient is the sum over the rows divided by the *nominal* batch size, so that a
        short last minibatch moves the model less and every row counts the same.
        """

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """What the model says of each row, before any link function: (n_rows,) or (n_rows, n_outputs).

        ``weights`` is the whole table's (rows, dim), here and in `loss`.
        """

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float | None]:
        """(sum of losses, sum of weights, weight of rows predicted right) at ``weights``.

        The last is None where a prediction is a number, which is not right or wrong.
        """


@runtime_checkable
class Remembering(Protocol):
    """A model that remembers what it has added to the table of each row block."""

    def at_work(self, job: str, blobs: Blobs, mean_of: int, room: int) -> Model:
        """The model in a worker of ``job``, where it keeps what it remembers.

        The owner of the table takes the mean over ``mean_of`` gradients.  Blocks say where they are
        (:class:`~squall.records.Place`), and are the same rows in every epoch.  ``room`` bytes of what
        is remembered may be in the worker's memory, too.
        """


class Strategy(Protocol):
    """How one worker's minibatches become a shared model; runs in the worker.

    Where it has to wait for other workers it asks, a few times a second, whether this worker
    has to end, and if so breaks off.
    """

    def resume(self, registration: Registration) -> int:
        """(first of all) Take over from the predecessor; minibatches of this slot that stay done.

        Where the model is in tables that is the slot's progress.  A strategy whose workers hold models
        of their own goes on from what was kept last, and what was done since is done again.
        """

    def start_epoch(self, epoch: int) -> bool:
        """Minibatches of this epoch come next; False if it broke off before they may."""

    def step(self, block: Block, order: Int32, batch_size: int, first: int, count: int) -> Steps:
        """Train on ``count`` minibatches from ``first`` on, as `Model.train_shared`.

        Those that are in the result, and no others, need not be done again after `resume`, or (where
        workers hold models of their own) are in `state_dict`; they are fewer than ``count`` if it
        broke off.  Rows and losses of the latter are told when they are kept.
        """

    def finish(self) -> bool:
        """All of the slot's minibatches are done: give out what was held back.

        False if it broke off: a successor that has taken over `state_dict` does it.
        """

    def state_dict(self) -> dict[str, Any]:
        """What a successor needs beyond what is in the store; plain data, small."""


class StrategySettings(Protocol):
    """How several workers train one model: what its user sets, and all that others ask about it.

    A frozen :class:`msgspec.Struct` whose tag is its name in :data:`squall.registry.STRATEGIES`: so it
    travels as plain data (:func:`squall.worker.strategies.strategy_from_dict`).  Nobody else knows
    where a job's model is: the driver opens a job, and has its model, by `open` and `weights`; a worker
    trains by what `bind` gives.  ``task`` is the event of the job's workers; with the driver its slot
    is −1.  :mod:`squall.worker.rounds` has what strategies without tables are made of.
    """

    @property
    def needs_tables(self) -> bool:
        """Whether the model is in `Store.tables`; otherwise `Store.blobs` and `Store.control` are enough."""

    @property
    def synchronous(self) -> bool:
        """Whether the same settings always give the same bits, whatever happens to workers."""

    @property
    def waits_for_all(self) -> bool:
        """Whether all workers have to be running at the same time."""

    @property
    def whole_shares(self) -> bool:
        """Whether a worker has all of its rows at once, the same in each epoch.

        An epoch is then one `Strategy.step` with one minibatch, of which the block is all that the
        slot has; no optimiser is used.  Otherwise rows come block by block, dealt anew each epoch.
        """

    @property
    def updates_in_place(self) -> bool:
        """Whether workers may write to the tables' memory, where they can reach it."""

    @property
    def replaces_stragglers(self) -> bool:
        """Whether a worker that is much slower than the others is relieved."""

    def epochs(self, asked: int) -> int:
        """How many epochs there are at most, if the estimator asks for so many."""

    def conflicts(self, estimator: str, settings: dict[str, Any]) -> list[str]:
        """What is wrong with it together with these settings of an estimator of this class, if anything."""

    def open(self, store: Store, task: WorkerTask, source: WorkerTask | None) -> None:
        """(driver) Make ready what workers expect in the store, where the job has been opened.

        It may be so already, when a job is resumed.  With ``source``, another job, of which all
        workers have ended between two epochs: go on from its model, maybe with other slots.
        """

    def begin(self, store: Store, task: WorkerTask, contents: TableContents) -> None:
        """(driver) After `open`, before any worker: begin with this model and its optimiser's state.

        ``contents`` are those of a whole table; also a strategy without tables begins with its weights.
        """

    def bind(
        self,
        task: WorkerTask,
        model: Model,
        store: Store,
        interrupted: Callable[[], bool],
        minibatches: Callable[[int], Sequence[int]],
    ) -> Strategy:
        """(worker) The strategy at work in one worker.

        Parameters
        ----------
        task : WorkerTask
            Whose slot has been registered.
        model : Model
        store : Store
        interrupted : callable
            Whether this worker has to end, or would have to after another wait; asked where it waits.
        minibatches : callable
            How many of them each slot has in an epoch; a slot without any in one has none at all.
        """

    def weights(self, store: Store, task: WorkerTask) -> Float32 | None:
        """(driver) The model as it is now, (rows, dim) of its `Model.table`; None if there is none yet."""


class Planner(Protocol):
    """Chooses how many functions of what size train.

    Asked by the driver from a thread, one question at a time.  What it answers is in the job's log, so
    that it is not asked twice; a job that is resumed makes it anew from its settings, which are a
    msgspec struct.  What it needs to remember it has to find in the situation.
    """

    def next_plan(self, situation: Situation) -> Plan:
        """The plan for epochs from ``situation.epoch`` on; the present one to leave all as it is."""


# -------------------------------------------------------------------------------------- data


class Reader(Protocol):
    """A source of rows: one pass, one schema."""

    def blocks(self) -> Iterator[RawBlock]:
        """Rows in file order, in blocks of bounded memory."""


class BlockTransform(Protocol):
    """A *fitted* transform: a pure function of raw blocks that can be saved as plain data."""

    def apply(self, block: RawBlock) -> RawBlock:
        """Transform rows; never changes its argument."""

    def schema(self, columns: list[ColumnSpec]) -> list[ColumnSpec]:
        """Columns that `apply` gives for these columns."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data from which the registry rebuilds it."""
