# Types of the C++ extension; its documentation is in squall/_kernels/__init__.py.
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

_F32: TypeAlias = NDArray[np.float32]
_F64: TypeAlias = NDArray[np.float64]
_I32: TypeAlias = NDArray[np.int32]
_I64: TypeAlias = NDArray[np.int64]
_U8: TypeAlias = NDArray[np.uint8]
_Bool: TypeAlias = NDArray[np.bool_]
_Bytes: TypeAlias = bytes | bytearray | memoryview | _U8
_SparseRows: TypeAlias = tuple[_I64, _I32, _F32 | None]
_Rows: TypeAlias = _SparseRows | tuple[_F32]
_Statistics: TypeAlias = NDArray[np.uint16] | _F32

SGD: int
ADAGRAD: int
MOMENTUM: int
NESTEROV: int
ADAM: int
FTRL: int
LOGISTIC: int
SQUARED: int

class Rule:
    """How a table is updated; checked once, immutable.

    Parameters
    ----------
    optimizer : int
        `SGD`, `ADAGRAD`, `MOMENTUM`, `NESTEROV`, `ADAM` or `FTRL`.
    learning_rate, l1, l2 : float
        Finite, at least 0.
    momentum : float
        In [0, 1); of `MOMENTUM` and `NESTEROV`.
    beta_1, beta_2, epsilon : float
        Of `ADAM`; the betas in [0, 1).
    beta : float
        Of `FTRL`.
    levels : float64[k] or None
        What the learning rate is multiplied by (in [0, 1]): ``levels[0]`` for the table's first
        `steps_per_level` steps, ``levels[1]`` for as many after them, and so on; the last for ever.
        None: 1.  Not for `FTRL`.
    steps_per_level : int
        At least 1.
    clip_value, clip_norm : float
        A minibatch's gradient is cut to ±`clip_value` element by element, then scaled down to a
        Euclidean norm of `clip_norm` if it is longer; 0: it is not.
    """

    lazy: bool
    """Whether rows change at steps that do not touch them, so that a table needs the stamp column."""

    def __init__(
        self,
        optimizer: int,
        learning_rate: float,
        l1: float = 0.0,
        l2: float = 0.0,
        *,
        momentum: float = 0.9,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        beta: float = 1.0,
        levels: _F64 | None = None,
        steps_per_level: int = 1,
        clip_value: float = 0.0,
        clip_norm: float = 0.0,
    ) -> None: ...

class TopicSettings:
    """What `topic_statistics` goes by; checked once, immutable.

    Parameters
    ----------
    doc_topic_prior, topic_word_prior : float
        α and η, above 0.
    n_words : int
        V, size of the vocabulary.
    iterations : int
        Most updates of a document's θ.
    tolerance : float
        At least 0.
    seed : int
        Of the random mass.
    variational : bool
        Whether expectations of logarithms stand for the probabilities.
    """

    def __init__(
        self,
        doc_topic_prior: float,
        topic_word_prior: float,
        n_words: int,
        iterations: int,
        tolerance: float,
        seed: int = 0,
        variational: bool = False,
    ) -> None: ...

class Fence:
    """Who may update a table: words int64[n_slots + 1] of each slot and, last, of the driver (slot -1).

    `attempts` are the newest, `sequences` the last applied, `progress` minibatches done; other processes
    may share them.
    """

    def __init__(self, attempts: _I64, sequences: _I64, progress: _I64) -> None: ...
    def admit(self, slot: int, attempt: int) -> int:
        """0, and older attempts are fenced off; or `Refusal.NO_SUCH_SLOT` or `STALE_ATTEMPT`."""

    def newest(self, slot: int) -> int:
        """The newest attempt."""

    def last(self, slot: int) -> int:
        """The last sequence number applied."""

    def set_last(self, slot: int, sequence: int) -> None:
        """Such an update is about to be applied."""

    def is_repeat(self, slot: int, sequence: int) -> bool:
        """Whether such an update, or a later one, has been applied."""

    def count(self, slot: int, minibatches: int) -> None:
        """Raise the slot's progress."""

class ServedTable:
    """A table whose frames a `FrameServer` serves; it holds on to the memory.

    Arguments as of `table_pull`; ``stop`` int64[1] is said in each reply.
    """

    def __init__(
        self,
        table: _F32,
        step: _I64,
        dim: int,
        rule: Rule,
        n_regularized_rows: int,
        fence: Fence,
        stop: _I64,
    ) -> None: ...

class Refusal:
    """Why a frame was not served."""

    NOT_OF_ROWS: int
    OF_A_RANGE: int
    UNKNOWN_TABLE: int
    TOO_LARGE: int
    BAD_STAMP: int
    BAD_WIDTH: int
    BAD_ARRAYS: int
    NOT_ADDABLE: int
    NO_SUCH_SLOT: int
    STALE_ATTEMPT: int

class FrameServer:
    """Serves the store's frames about rows (:mod:`squall.store.wire`), all checks included.

    Parameters
    ----------
    latencies : list of Histogram
        Where the time of each kind of request is noted, from kind 1 on.
    """

    reply: bytearray
    """Where the last reply is; it is overwritten by the next one."""

    problem: str
    """What was wrong with the arrays of a frame that was refused by `Refusal.BAD_ARRAYS`."""

    def __init__(self, latencies: list[Histogram]) -> None: ...
    def add(self, name: bytes, table: ServedTable) -> None:
        """Serve frames of this table from now on."""

    def forget(self, name: bytes) -> None:
        """Do so no more, and let go of its memory."""

    def release_reply(self) -> None:
        """The last reply is still being sent: the next one goes elsewhere."""

    def serve(self, view: _Bytes, size: int) -> int:
        """Do what a frame, the first ``size`` bytes, asks for; the size of its reply.

        A `Refusal`, all of which are negative, if it was not one whole frame that can be served; then nothing
        has changed.
        """

class Histogram:
    """Durations in buckets: ``2**(first + i / per_doubling)`` ns and more is bucket ``i``."""

    def __init__(self, first: int, per_doubling: int, n_buckets: int) -> None: ...
    def note(self, seconds: float) -> None:
        """Count one."""

    def counts(self) -> dict[int, int]:
        """How many in each bucket that has any."""

class Status:
    """What became of a frame, if it is not an errno."""

    DONE: int
    NOT_TRIED: int
    CLOSED: int
    SEND_TIMED_OUT: int
    RECEIVE_TIMED_OUT: int
    BAD_SIZE: int
    TRAILING_BYTES: int

class FrameClient:
    """One request at a time about rows of a table, to all of its shards."""

    def __init__(self, n_shards: int) -> None: ...
    def pack(
        self,
        kind: int,
        flags: int,
        name: bytes,
        slot: int,
        attempt: int,
        sequence: int,
        minibatches: int,
        pushed: _I64 | None,
        values: _F32 | None,
        pulled: _I64 | None,
        table_rows: int,
        stretch: int,
    ) -> None:
        """Make a frame for each shard.

        With several, rows are checked against ``table_rows`` and go ``stretch`` to a shard, or in turn if
        that is 0.  Raises ValueError, TypeError, IndexError or OverflowError for what cannot be sent.
        """

    def talk(self, fds: list[int]) -> int:
        """Send all frames, then receive all replies, by blocking sockets; -1: leave this shard out.

        Signal handlers run meanwhile, and may raise.  Returns as `said`.
        """

    def status(self, shard: int) -> int:
        """A `Status`, or the errno of what broke it off."""

    def request(self, shard: int) -> bytes:
        """The frame."""

    def reply(self, shard: int) -> bytes:
        """The reply."""

    def accept(self, shard: int, reply: _Bytes) -> bool:
        """Take a reply that has been received otherwise; whether it holds the weights asked for."""

    def said(self) -> int:
        """Flags of all replies together, or -1 if not all are there and hold the weights asked for."""

    def weights(self) -> _F32:
        """The weights (n, dim) of the rows asked for, in their order."""

def csr_gather(
    blocks: list[tuple[_I64, _I32, _F32 | None]], rows: _I64, indptr: _I64, indices: _I32, values: _F32 | None
) -> None: ...
def packed_size(n: int, bits: int) -> int: ...
def pack_bits(numbers: _I32, bits: int, packed: _U8) -> None: ...
def unpack_bits(packed: _U8, bits: int, numbers: _I32) -> None: ...
def all_ones(values: _F32 | _F64) -> bool: ...
def csr_join(
    parts: list[_F32 | _F64 | _I64 | _U8 | tuple[_I64, _I32, _F32 | None, int]], n_rows: int
) -> tuple[_I64, _I32, _F32 | None, bool]: ...
def csr_validate(indptr: _I64, indices: _I32, values: _F32 | None, n_features: int) -> None: ...
def csr_margins(indptr: _I64, indices: _I32, values: _F32 | None, coef: _F32, intercept: float) -> _F32: ...
def logistic_loss(margins: _F32, labels: _F32, weights: _F32 | None) -> tuple[float, float]: ...
def logistic_probabilities(margins: _F32) -> _F32: ...
def table_stride(optimizer: int, dim: int, lazy: bool) -> int: ...
def table_gather(table: _F32, rows: _I64, dim: int) -> _F32: ...
def table_pull(
    table: _F32,
    rows: _I64,
    dim: int,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
) -> _F32: ...
def table_update(
    table: _F32,
    rows: _I64,
    grads: _F32,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
) -> None: ...
def table_catch_up(
    table: _F32,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
    dim: int,
) -> None: ...
def step_advance(step: _I64) -> int: ...
def table_add(table: _F32, rows: _I64, deltas: _F32, scale: float = 1.0) -> None: ...
def localize(indices: _I32) -> tuple[_I64, _I32]: ...
def csr_minibatch(
    indptr: _I64, indices: _I32, values: _F32 | None, rows: _I32, n_features: int
) -> tuple[_I64, _I64, _I32, _F32 | None]: ...
def csr_logistic_gradient(
    indptr: _I64,
    local: _I32,
    values: _F32 | None,
    labels: _F32,
    weights: _F32 | None,
    rows: _I32 | None,
    pulled: _F32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[_F32, float, float]: ...
def logistic_minibatches(
    indptr: _I64,
    indices: _I32,
    values: _F32 | None,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def logistic_minibatches_dense(
    X: _F32,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def csr_squared_gradient(
    indptr: _I64,
    local: _I32,
    values: _F32 | None,
    labels: _F32,
    weights: _F32 | None,
    rows: _I32 | None,
    pulled: _F32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[_F32, float, float]: ...
def squared_minibatches(
    indptr: _I64,
    indices: _I32,
    values: _F32 | None,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def squared_minibatches_dense(
    X: _F32,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def softmax_minibatches(
    rows: _Rows,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    n_classes: int,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def softmax_gradient(
    rows: _Rows,
    labels: _F32,
    weights: _F32 | None,
    order: _I32,
    pulled: _F32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[_F32, float, float]: ...
def softmax_outputs(rows: _Rows, weights: _F32, fit_intercept: bool) -> _F32: ...
def softmax_loss(outputs: _F32, labels: _F32, weights: _F32 | None) -> tuple[float, float, float]: ...
def fm_minibatches(
    loss: int,
    rows: _Rows,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    dim: int,
    rule: Rule,
    fit_intercept: bool,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def fm_gradient(
    loss: int,
    rows: _Rows,
    labels: _F32,
    weights: _F32 | None,
    order: _I32,
    pulled: _F32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[_F32, float, float]: ...
def fm_outputs(rows: _Rows, weights: _F32, fit_intercept: bool) -> _F32: ...
def csr_summed(
    indptr: _I64, indices: _I32, values: _F32 | _F64 | None, width: int
) -> tuple[_I64, _I32, _F64] | None: ...
def csr_moments(
    indptr: _I64, indices: _I32, values: _F32 | _F64 | None, width: int
) -> tuple[_F64, _F64, _F64]: ...
def csr_largest(indptr: _I64, indices: _I32, values: _F32 | _F64 | None, width: int) -> _F64: ...
def mf_minibatches(
    indptr: _I64,
    indices: _I32,
    labels: _F32,
    weights: _F32 | None,
    order: _I32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: _F32,
    learning_rate: float,
    l2: float,
    cosine: bool,
    share: float,
    step: _I64,
    progress: _I64 | None,
) -> tuple[float, float, int]: ...
def mf_gradient(
    indptr: _I64,
    local: _I32,
    labels: _F32,
    weights: _F32 | None,
    pulled: _F32,
    learning_rate: float,
    l2: float,
    cosine: bool,
    share: float,
) -> tuple[_F32, float, float]: ...
def mf_with_negatives(
    indptr: _I64,
    indices: _I32,
    labels: _F32,
    weights: _F32 | None,
    rows: _I32 | None,
    n_users: int,
    n_items: int,
    n_negatives: int,
    negative_weight: float,
    seed: int,
) -> tuple[_I64, _I32, _F32, _F32]: ...
def mf_outputs(indptr: _I64, indices: _I32, weights: _F32) -> _F32: ...
def topic_statistics(
    rows: _SparseRows,
    words: _I64,
    pulled: _F32,
    theta: _F32,
    settings: TopicSettings,
    mass: float,
    statistics: bool,
) -> tuple[_F32 | None, float, float]: ...
def topic_update(
    rows: _SparseRows,
    words: _I64,
    pulled: _F32,
    theta: _F32,
    settings: TopicSettings,
    mass: float,
    old: _Statistics | None,
    scale: float,
) -> tuple[_Statistics, _F32, float, float]: ...
def topic_difference(kept: _Statistics, old: _Statistics | None, scale: float) -> _F32: ...

class Checksum:
    def __init__(self) -> None: ...
    def update(self, data: _U8) -> None: ...
    def digest(self) -> tuple[int, int]: ...

def murmur3_32(data: bytes, seed: int) -> int: ...
def hash_slots(prefix: bytes, offsets: _I64, data: _Bytes, n_slots: int, seed: int) -> _I32: ...
def csv_scan(
    buffer: _Bytes, delimiter: int, quote: int, n_columns: int, is_last: bool, max_field: int, skip: bool
) -> tuple[Any, ...]: ...
def csv_follow(buffer: _Bytes, delimiter: int, quote: int) -> tuple[list[int], list[int]]: ...
def csv_classify(
    buffer: _Bytes,
    starts: _I32,
    ends: _I32,
    flags: _U8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool,
    quote: int,
) -> tuple[int, int]: ...
def csv_parse_int64(
    buffer: _Bytes,
    starts: _I32,
    ends: _I32,
    flags: _U8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool,
    quote: int,
) -> tuple[_I64, _Bool, int]: ...
def csv_parse_float64(
    buffer: _Bytes,
    starts: _I32,
    ends: _I32,
    flags: _U8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool,
    quote: int,
) -> tuple[_F64, int]: ...
def csv_read_columns(
    buffer: _Bytes,
    starts: _I32,
    ends: _I32,
    flags: _U8,
    n_columns: int,
    missing: list[bytes],
    strip: bool,
    quote: int,
    columns: list[tuple[int, Any, Any]],
    first_row: int,
) -> list[tuple[int, int]]: ...

class LibsvmParser:
    """LIBSVM text to compressed sparse rows, chunk by chunk.

    Parameters
    ----------
    base : int
        Index of the first feature, 0 or 1.
    base_is_fixed : bool
        Whether an index 0 is refused where ``base`` is 1; else it is only noted, in ``least``, and
        what is taken is of no use.
    n_features : int
        Entries beyond it are refused, or with ``drop`` left out and counted; any if < 0.
    drop : bool
    duplicates : str
        What becomes of an index that comes twice in a row: ``"raise"``, ``"sum"`` or ``"last"``.
    skip : bool
        Whether rows that cannot be read are left out and counted.
    labels : list of float
        Labels that have the codes 0, 1, …; others are added behind them as they come.
    has_labels, has_qids : bool, optional
        What each row must have, or must not; default: as the first row that is read.
    """

    def __init__(
        self,
        base: int,
        base_is_fixed: bool,
        n_features: int,
        drop: bool,
        duplicates: str,
        skip: bool,
        labels: list[float],
        has_labels: bool | None = None,
        has_qids: bool | None = None,
    ) -> None: ...
    @property
    def n_bytes(self) -> int:
        """Bytes of the rows that are there to take."""

    def feed(self, buffer: _Bytes) -> int:
        """Read whole lines, each of which ends with LF.

        Returns the bytes that were read: all of them, unless a row was refused, which is then the
        last of ``seen()["problems"]`` and where the reading ended.
        """

    def take(self) -> tuple[_I64, _I32, _F64 | None, _I32 | None, _I64 | None]:
        """(indptr, indices from 0 and ascending, values or None if all are 1, label codes or None
        if there are none, query ids or None) of the rows since the last time.  Their memory is the
        parser's own, which it uses again once nobody has the arrays.
        """

    def clear(self) -> None:
        """Forget those rows."""

    def forget_labels(self) -> None:
        """Give codes anew, from 0 on; `ValueError` if rows that were not taken have some."""

    def seen(self) -> dict[str, Any]:
        """What was seen so far: ``n_lines``, ``n_rows``, ``n_dropped`` entries, ``n_skipped`` rows;
        ``least`` (None if there was none) and ``largest`` (−1) index as written; ``has_labels`` and
        ``has_qids`` (None before the first row); ``labels`` by code; and the first ten ``problems``
        as (line, byte in it, token, what was expected), counted from 0.
        """

class StringDictionary:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    def clear(self) -> None: ...
    def encode(
        self,
        buffer: _Bytes,
        starts: _I32,
        ends: _I32,
        flags: _U8,
        column: int,
        n_columns: int,
        missing: list[bytes],
        strip: bool = False,
        quote: int = 34,
    ) -> _I32: ...
    def encode_strings(self, offsets: _I64, data: _Bytes) -> _I32: ...
    def to_arrays(self) -> tuple[_I64, _U8]: ...

SOFTMAX: int

def objective_gradient(
    loss: int,
    rows: _Rows,
    labels: _F32,
    weights: _F32 | None,
    x: _F64,
    fit_intercept: bool,
    gradient: _F64,
    curvature: _F64,
) -> float: ...
def hessian_product(
    loss: int,
    rows: _Rows,
    weights: _F32 | None,
    curvature: _F64,
    v: _F64,
    fit_intercept: bool,
    out: _F64,
) -> None: ...
def hessian_diagonal(
    loss: int, rows: _Rows, weights: _F32 | None, curvature: _F64, fit_intercept: bool, out: _F64
) -> None: ...
def hessian_matrix(
    loss: int,
    rows: _Rows,
    weights: _F32 | None,
    curvature: _F64,
    n_outputs: int,
    fit_intercept: bool,
    out: _F64,
) -> None: ...
def quadratic_descent(
    q: _F64, b: _F64, z: _F64, n_regularized: int, l1: float, l2: float, tol: float, max_sweeps: int
) -> float: ...
