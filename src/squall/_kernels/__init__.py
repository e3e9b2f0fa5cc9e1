"""Arithmetic in C++: functions of arrays, without state or files, and the store's frames about rows.

Common rules
------------
- Arrays are taken as they are: a wrong dtype raises ``TypeError``, a wrong shape, a gap between
  elements or unaligned memory ``ValueError``, an index out of range ``IndexError``, each naming the
  argument.  Nothing is cast or copied on the way in; results are new arrays.
- A sparse matrix is CSR: ``indptr`` int64[rows + 1], ``indices`` int32[nnz], ``values`` float32[nnz]
  or ``None`` where every value is 1.  Duplicate indices in a row add up.
- The interpreter is released during the work.  The *input* arrays must not change meanwhile; a
  parameter table may, from other processes too.
- Results are the same on every run, and the same for every way to the same minibatch (fused loop, or
  pull, gradient, update).

Parameter tables
----------------
A table is float32[rows, stride], C-contiguous, each row ``[dim weights | optimizer state | stamp]``.
The state is ``dim`` numbers for each name in the list below, one after the other.  The *stamp* column
exists in *lazy* tables only, and must where `Rule.lazy`: it is an int32 stored bit for bit in the
float32 slot (``table[:, -1].view(np.int32)``), the number of steps the row is up to date with.
`table_stride` gives the width; a new table is zeros, or weights of one's choice with zero state and stamp.

The objective is mean loss + l1·‖w‖₁ + l2/2·‖w‖².  Step number t (from 0) of a weight w with gradient g
has rate r, where η(t) = learning_rate · pace(t), and is proximal::

    u  = w - move
    w' = prox(u, r) = sign(u)·max(|u| - r·l1, 0) / (1 + r·l2)

`SGD`
    move = η·g;  r = η.  No state.
`ADAGRAD`
    G += g²;  r = η / (sqrt(G) + 1e-10);  move = r·g.  State: G.
`MOMENTUM`
    v = momentum·v - η·g;  move = -v;  r = η.  State: v.  Heavy ball, in the form of Sutskever et al.
`NESTEROV`
    v = momentum·v - η·g;  move = -(momentum·v - η·g);  r = η.  State: v.  The weight is the point looked
    ahead to, where gradients are taken.
`ADAM`
    n += 1;  m, q = moving means of g and g²;  r = η / (sqrt(q/(1-beta_2ⁿ)) + epsilon);
    move = r·m/(1-beta_1ⁿ).  State: m, q, n (a count, as a float).
`FTRL`
    s = sqrt(N + g²);  z += g - (s - sqrt(N))/learning_rate·w;  N += g².  Then
    w = 0 if |z| <= (t+1)·l1, else -(z - sign(z)·(t+1)·l1) / ((beta + s)/learning_rate + (t+1)·l2).
    State: z, N.  The first step counts beta into s - sqrt(N), which centres the quadratic term at
    the weight the row was initialised to.  The penalties grow with the steps, so that they are those of
    the mean loss; with the fixed ones of McMahan et al. 2013 they would mean less with every row.

In effect *every* row takes this step at every minibatch, with g = 0 where no feature touched it; in fact a
row catches up when it is next read, in closed form (a drifting row with a penalty: step by step until its
velocity is spent).  Exceptions, and what they mean:

- `ADAM` is lazy in its moments: m, q and n stand still at steps that do not touch the weight, and it does
  not move by them.  So each weight's bias is corrected by its own number of updates, as if it had been
  alone; with the number of steps of the table a weight first touched late would jump by
  (1-beta_1)/sqrt(1-beta_2), about 3 rates.  Penalties are taken at all steps.
- A row of `ADAGRAD`, `ADAM` or `FTRL` that has had no gradient yet has no rate of its own (it would be
  huge), so it is left as it was initialised.

Rows at or after ``n_regularized_rows`` (the intercept, last row of a linear model) are never regularised.

Sources: J. Duchi, Y. Singer, "Efficient online and batch learning using forward backward splitting",
JMLR 2009; J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods", JMLR 2011; B. Polyak, "Some
methods of speeding up the convergence of iteration methods", 1964; I. Sutskever et al., "On the importance
of initialization and momentum in deep learning", ICML 2013; Y. Bengio et al., "Advances in optimizing
recurrent networks", ICASSP 2013 (Nesterov's at the point looked ahead to); D. Kingma, J. Ba, "Adam", ICLR
2015; H. B. McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013; H. B. McMahan,
"Follow-the-regularized-leader and mirror descent", AISTATS 2011 (penalties that grow); F. Niu et al.,
"Hogwild!", NeurIPS 2011 (updates without locks).
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from squall._kernels import _native
from squall._kernels._native import (
    ADAGRAD,
    ADAM,
    FTRL,
    LOGISTIC,
    MOMENTUM,
    NESTEROV,
    SGD,
    SQUARED,
    Fence,
    FrameClient,
    FrameServer,
    Histogram,
    LibsvmParser,
    Refusal,
    Rule,
    ServedTable,
    Status,
    StringDictionary,
    TopicSettings,
)

__all__ = [
    "ADAGRAD",
    "ADAM",
    "CSV_FLOAT",
    "CSV_INTEGER",
    "CSV_TEXT",
    "CSV_WIDE_INTEGER",
    "FTRL",
    "LOGISTIC",
    "MOMENTUM",
    "NESTEROV",
    "SGD",
    "SQUARED",
    "Checksum",
    "ColumnReading",
    "CsvError",
    "CsvFields",
    "Fence",
    "FrameClient",
    "FrameServer",
    "Histogram",
    "LibsvmParser",
    "Refusal",
    "Rule",
    "ServedTable",
    "Status",
    "StringDictionary",
    "TopicSettings",
    "all_ones",
    "checksum",
    "csr_gather",
    "csr_join",
    "csr_largest",
    "csr_logistic_gradient",
    "csr_margins",
    "csr_minibatch",
    "csr_moments",
    "csr_squared_gradient",
    "csr_summed",
    "csr_validate",
    "csv_classify",
    "csv_follow",
    "csv_kind",
    "csv_parse_float64",
    "csv_parse_int64",
    "csv_read_columns",
    "csv_scan",
    "csv_text",
    "fm_gradient",
    "fm_minibatches",
    "fm_outputs",
    "hash_slots",
    "localize",
    "logistic_loss",
    "logistic_minibatches",
    "logistic_minibatches_dense",
    "logistic_probabilities",
    "mf_gradient",
    "mf_minibatches",
    "mf_outputs",
    "mf_with_negatives",
    "murmur3_32",
    "pack_bits",
    "packed_size",
    "softmax_gradient",
    "softmax_loss",
    "softmax_minibatches",
    "softmax_outputs",
    "squared_minibatches",
    "squared_minibatches_dense",
    "step_advance",
    "table_add",
    "table_catch_up",
    "table_gather",
    "table_pull",
    "table_stride",
    "table_update",
    "topic_difference",
    "topic_statistics",
    "topic_update",
    "unpack_bits",
]

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]
Int32: TypeAlias = NDArray[np.int32]
Int64: TypeAlias = NDArray[np.int64]
UInt8: TypeAlias = NDArray[np.uint8]
Statistics: TypeAlias = NDArray[np.uint16] | NDArray[np.float32]
"""Of topics, as they are kept: float32, or float16 as its bits."""
Bytes: TypeAlias = bytes | bytearray | memoryview | UInt8
SparseRows: TypeAlias = tuple[Int64, Int32, Float32 | None]
Rows: TypeAlias = tuple[Int64, Int32, Float32 | None] | tuple[Float32]
"""A block: (indptr, indices, values) of sparse rows, or (X,), float32[n, n_features], of dense ones."""

CSV_INTEGER, CSV_FLOAT, CSV_WIDE_INTEGER, CSV_TEXT = 1, 2, 4, 8


# ------------------------------------------------------------------------------------------ sparse rows


def packed_size(n: int, bits: int) -> int:
    """Bytes of ``n`` numbers of so many bits each, with what reading them needs behind."""
    return _native.packed_size(n, bits)


def pack_bits(numbers: Int32, bits: int, packed: UInt8) -> None:
    """Write numbers in ``bits`` bits each, one after the other, lowest bit first.

    Parameters
    ----------
    numbers : int32 array (n,)
        Each ≥ 0 and below ``2**bits``.
    bits : int
        From 1 to 31.
    packed : uint8 array (packed_size(n, bits),)
        Changed in place.
    """
    _native.pack_bits(numbers, bits, packed)


def unpack_bits(packed: UInt8, bits: int, numbers: Int32) -> None:
    """Read into ``numbers`` (changed in place) what `pack_bits` wrote."""
    _native.unpack_bits(packed, bits, numbers)


def csr_gather(
    blocks: list[tuple[Int64, Int32, Float32 | None]],
    rows: Int64,
    indptr: Int64,
    indices: Int32,
    values: Float32 | None,
) -> None:
    """Gather rows of several matrices, numbered through, into arrays that are there already.

    Parameters
    ----------
    blocks : list of (indptr, indices, values)
        The matrices, one below the other.
    rows : int64[m]
        Which rows, in which order.
    indptr, indices, values : int64[m + 1], int32[nnz], float32[nnz] or None
        Changed in place; nnz must be that of the rows.  Values that a matrix leaves out are 1.
    """
    _native.csr_gather(blocks, rows, indptr, indices, values)


def csr_join(
    parts: list[Float32 | Float64 | Int64 | UInt8 | tuple[Int64, Int32, Float32 | None, int]], n_rows: int
) -> tuple[Int64, Int32, Float32 | None, bool]:
    """Columns side by side as one matrix of sparse rows.

    Parameters
    ----------
    parts : list
        Each a float32, float64, int64 or uint8 array (n_rows,) or (n_rows, width) in any order of memory, of
        which those numbers are kept that are not 0 as float32; or sparse rows ``(indptr, indices,
        values, width)`` with indices in [0, width), kept as they are.
    n_rows : int

    Returns
    -------
    indptr, indices, values
        Entries of a row in the order of the parts; values are None if only sparse rows without values
        are joined.
    finite : bool
        Whether all values are, as float32.
    """
    return _native.csr_join(parts, n_rows)


def all_ones(values: Float32 | Float64) -> bool:
    """Whether every value is 1; looks no further than the first few that are not."""
    return _native.all_ones(values)


def csr_validate(indptr: Int64, indices: Int32, values: Float32 | None, n_features: int) -> None:
    """Raise on the first row that is not sound.

    ``indptr`` must start at 0, never fall and end at nnz; indices must be in [0, n_features); values
    must be finite.  Order and duplicates of indices are not judged.

    Raises
    ------
    IndexError
        An index is out of range; names row and position.
    ValueError
        ``indptr`` or a value is bad; names the row.
    """
    _native.csr_validate(indptr, indices, values, n_features)


def csr_margins(
    indptr: Int64, indices: Int32, values: Float32 | None, coef: Float32, intercept: float
) -> Float32:
    """Compute ``X @ coef + intercept``, summed in double.

    Parameters
    ----------
    indptr, indices, values
        The matrix, n rows.
    coef : float32[n_features]
        May be a strided view, such as ``table[:-1, 0]``.
    intercept : float

    Returns
    -------
    float32[n]
    """
    return _native.csr_margins(indptr, indices, values, coef, intercept)


# --------------------------------------------------------------------------------------- logistic loss


def logistic_loss(margins: Float32, labels: Float32, weights: Float32 | None) -> tuple[float, float]:
    """Sum weights·log(1 + exp(∓margin)) in double, without overflow.

    Parameters
    ----------
    margins : float32[n]
    labels : float32[n]
        Exactly 0 or 1.
    weights : float32[n] or None
        Finite and not negative.  A row of weight 0 has no part, even if its loss is infinite.

    Returns
    -------
    loss_sum, weight_sum : float

    Raises
    ------
    ValueError
        A label or a weight is bad; names the row.
    """
    return _native.logistic_loss(margins, labels, weights)


def logistic_probabilities(margins: Float32) -> Float32:
    """Return 1 / (1 + exp(-margin)), float32[n], without overflow."""
    return _native.logistic_probabilities(margins)


# ---------------------------------------------------------------------------------------------- tables


def table_stride(optimizer: int, dim: int, lazy: bool) -> int:
    """Return the columns of a table: ``dim`` weights, their state, and the stamp if `lazy`."""
    return _native.table_stride(optimizer, dim, lazy)


def table_gather(table: Float32, rows: Int64, dim: int) -> Float32:
    """Read the weights of some rows as they are; float32[len(rows), dim]."""
    return _native.table_gather(table, rows, dim)


def table_pull(
    table: Float32,
    rows: Int64,
    dim: int,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
) -> Float32:
    """Bring some rows up to date with the first `step` steps, in place, and read their weights.

    Returns
    -------
    float32[len(rows), dim]

    Raises
    ------
    ValueError
        The table's width does not fit, or the rule is lazy and the table is not.
    """
    return _native.table_pull(table, rows, dim, rule, step, n_regularized_rows)


def table_update(
    table: Float32,
    rows: Int64,
    grads: Float32,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
) -> None:
    """Take step number `step` (counted from 0) on some rows, in place.

    Rows that are behind catch up first; afterwards their stamp is ``step + 1``.  A row listed twice
    takes two steps.  Nothing is changed if an argument is bad.

    Parameters
    ----------
    table : float32[n_rows, stride]
    rows : int64[m]
    grads : float32[m, dim]
        The minibatch's gradient, all of it if the rule clips; ``dim`` is taken from its shape.
    """
    _native.table_update(table, rows, grads, rule, step, n_regularized_rows)


def table_catch_up(
    table: Float32,
    rule: Rule,
    step: int,
    n_regularized_rows: int,
    dim: int = 1,
) -> None:
    """Bring all rows up to date with the first `step` steps, in place (before a snapshot, at the end)."""
    _native.table_catch_up(table, rule, step, n_regularized_rows, dim)


def step_advance(step: Int64) -> int:
    """Add 1 to ``step`` int64[1], atomically also between processes; return what it was before."""
    return _native.step_advance(step)


def table_add(table: Float32, rows: Int64, deltas: Float32, scale: float = 1.0) -> None:
    """Add ``scale * deltas``, float32[len(rows), dim], to some rows' weights, in place; repeats add up."""
    _native.table_add(table, rows, deltas, scale)


# -------------------------------------------------------------------------------------------- training


def localize(indices: Int32) -> tuple[Int64, Int32]:
    """Number the features of a minibatch 0, 1, 2, ... in the order in which they first appear.

    Returns
    -------
    unique : int64[u]
        The features, ready to be the ``rows`` of a pull or an update.
    local : int32[len(indices)]
        ``unique[local] == indices``.

    Raises
    ------
    IndexError
        An index is negative.
    """
    return _native.localize(indices)


def csr_minibatch(
    indptr: Int64, indices: Int32, values: Float32 | None, rows: Int32, n_features: int
) -> tuple[Int64, Int64, Int32, Float32 | None]:
    """Take rows of a block as a minibatch whose features are numbered as by `localize`.

    Returns
    -------
    needed : int64[u + 1]
        The features, then `n_features`, the intercept: ready to be the ``rows`` of a pull or an update.
    indptr, local, values
        The rows taken; ``needed[local]`` are their indices.
    """
    return _native.csr_minibatch(indptr, indices, values, rows, n_features)


def csr_logistic_gradient(
    indptr: Int64,
    local: Int32,
    values: Float32 | None,
    labels: Float32,
    weights: Float32 | None,
    rows: Int32 | None,
    pulled: Float32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[Float32, float, float]:
    """Gradient of a minibatch in the weights that were pulled for it.

    gradient = Σ sᵢ·(σ(zᵢ) − yᵢ)·xᵢ / n, with sᵢ the row's weight (or 1) and n the nominal batch size: a
    short last minibatch moves the model less, for each row counts the same.

    Parameters
    ----------
    indptr, local, values
        Rows whose indices point into `pulled`, as from `csr_minibatch`.
    labels, weights
        As in `logistic_loss`, of a whole block.
    rows : int32[n] or None
        Where each row's label and weight are in these; None: in the same order.
    pulled : float32[u + 1, 1]
        Weights of the features, then the intercept.
    fit_intercept : bool
        Otherwise the intercept is not looked at, and its gradient is 0.
    batch_size : int

    Returns
    -------
    gradient : float32[u + 1, 1]
    loss_sum, weight_sum : float
        The loss is that before any update, summed in double.
    """
    return _native.csr_logistic_gradient(
        indptr, local, values, labels, weights, rows, pulled, fit_intercept, batch_size
    )


def logistic_minibatches(
    indptr: Int64,
    indices: Int32,
    values: Float32 | None,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Train on minibatches of a block of rows, against a table that other processes may share.

    Minibatch b is rows ``order[b·batch_size : (b + 1)·batch_size]``.  Its gradient
    (`csr_logistic_gradient`) is taken at the weights as they are at its start and clipped, then each
    feature it touched takes one step, and the intercept one.

    Parameters
    ----------
    indptr, indices, values, labels, weights
        The block.
    order : int32[m] or None
        Rows to visit, in this order; None: all.
    batch_size, first_batch, n_batches : int
        ``first_batch + n_batches`` may not exceed ``ceil(m / batch_size)``.
    table : float32[n_features + 1, stride]
        Changed in place; the last row is the intercept (left alone and taken as 0 without `fit_intercept`).
    step : int64[1]
        Steps done so far; read and increased atomically.  May be shared between processes.
    progress : int64[1] or None
        Increased atomically after each minibatch, with release order: a process that reads the count
        also sees the weights of the minibatches counted.

    Returns
    -------
    loss_sum, weight_sum : float
        Progressive loss (each row's before its own update).  ``loss_sum`` is nan if a minibatch's loss
        was not finite; the call ended before that minibatch was applied.
    rows : int
        Rows applied.

    Raises
    ------
    IndexError, ValueError
        A row, feature, label or weight is bad.  Raised before the minibatch that holds it is applied;
        those before it stay applied and counted.
    """
    return _native.logistic_minibatches(
        indptr, indices, values, labels, weights, order, batch_size, first_batch, n_batches, table,
        rule, fit_intercept, step, progress,
    )  # fmt: skip


def logistic_minibatches_dense(
    X: Float32,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Do as `logistic_minibatches` for dense rows ``X`` float32[n, d] and a table of d + 1 rows.

    Every weight takes a step at every minibatch, so the table need not be lazy (where it is, stamps are
    kept).
    """
    return _native.logistic_minibatches_dense(
        X, labels, weights, order, batch_size, first_batch, n_batches, table,
        rule, fit_intercept, step, progress,
    )  # fmt: skip


def csr_squared_gradient(
    indptr: Int64,
    local: Int32,
    values: Float32 | None,
    labels: Float32,
    weights: Float32 | None,
    rows: Int32 | None,
    pulled: Float32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[Float32, float, float]:
    """Do as `csr_logistic_gradient` for the loss (zᵢ − yᵢ)² / 2 and labels of any finite number."""
    return _native.csr_squared_gradient(
        indptr, local, values, labels, weights, rows, pulled, fit_intercept, batch_size
    )


def squared_minibatches(
    indptr: Int64,
    indices: Int32,
    values: Float32 | None,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Do as `logistic_minibatches` with the gradient of `csr_squared_gradient`."""
    return _native.squared_minibatches(
        indptr, indices, values, labels, weights, order, batch_size, first_batch, n_batches, table,
        rule, fit_intercept, step, progress,
    )  # fmt: skip


def squared_minibatches_dense(
    X: Float32,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Do as `logistic_minibatches_dense` with the gradient of `csr_squared_gradient`."""
    return _native.squared_minibatches_dense(
        X, labels, weights, order, batch_size, first_batch, n_batches, table,
        rule, fit_intercept, step, progress,
    )  # fmt: skip


# ----------------------------------------------------------------------------------- wide table rows
#
# Sums over a row's entries are taken in float32 here.


def softmax_minibatches(
    rows: Rows,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    n_classes: int,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Do as `logistic_minibatches` for several classes: a table of ``n_classes`` weights a row.

    Parameters
    ----------
    rows : Rows
        The block.  Of dense rows every weight takes a step at every minibatch, so that the table
        need not be lazy.
    labels : float32[n]
        Whole numbers in [0, n_classes).
    """
    return _native.softmax_minibatches(
        rows, labels, weights, order, batch_size, first_batch, n_batches, table, n_classes, rule,
        fit_intercept, step, progress,
    )  # fmt: skip


def softmax_gradient(
    rows: Rows,
    labels: Float32,
    weights: Float32 | None,
    order: Int32,
    pulled: Float32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[Float32, float, float]:
    """Gradient of a minibatch in the weights pulled for it: Σ sᵢ·xᵢ·(softmax(zᵢ) − onehot(yᵢ)) / n.

    Parameters
    ----------
    rows : Rows
        Sparse: those taken by `csr_minibatch`, whose i-th row has label ``labels[order[i]]``.  Dense:
        the whole block, of which rows ``order`` are meant.
    labels, weights
        Of the whole block.
    order : int32[m]
    pulled : float32[u + 1, n_classes]
        Weights of the features, then the intercepts.

    Returns
    -------
    gradient : float32[u + 1, n_classes]
    loss_sum, weight_sum : float
        The loss is that before any update: Σ sᵢ·(log Σ exp(zᵢ) − zᵢ[yᵢ]).
    """
    return _native.softmax_gradient(rows, labels, weights, order, pulled, fit_intercept, batch_size)


def softmax_outputs(rows: Rows, weights: Float32, fit_intercept: bool) -> Float32:
    """Return ``X @ weights[:-1] + weights[-1]``, float32[n, n_classes]."""
    return _native.softmax_outputs(rows, weights, fit_intercept)


def softmax_loss(outputs: Float32, labels: Float32, weights: Float32 | None) -> tuple[float, float, float]:
    """Sum the losses of rows whose outputs are known.

    Returns
    -------
    loss_sum, weight_sum, right_sum : float
        The last is the weight of the rows whose own class has the largest output.
    """
    return _native.softmax_loss(outputs, labels, weights)


def mf_minibatches(
    indptr: Int64,
    indices: Int32,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    learning_rate: float,
    l2: float,
    cosine: bool,
    share: float,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Train a matrix factorisation in place, rating by rating, in `order`.

    With e = r − b_u − b_i − p_u·q_i, weight s and rate η, in this order of simultaneous steps:
    b ← (1 − η·l2) b + η·s·e for both biases, p_u ← (1 − η·l2) p_u + η·s·e·q_i and the reverse (Koren,
    Bell & Volinsky, "Matrix factorization techniques for recommender systems", 2009).  Ratings of
    weight 0 are left out.  A minibatch is what is counted as one, and has one rate.

    Parameters
    ----------
    indptr, indices : int64[n + 1], int32[2 n]
        Each row has two entries: the table's rows of the user and of the item.
    labels, weights : float32[n]
        Ratings, and what each counts.
    order, batch_size, first_batch, n_batches, step, progress
        As in `logistic_minibatches`.
    table : float32[rows, 1 + factors]
        Biases, then factors; the last row's first number is the share of the training that is done, to
        which every row adds `share`.
    learning_rate, l2, cosine
        η is `learning_rate`, times (1 + cos(π · share done)) / 2 if `cosine`.

    Returns
    -------
    tuple
        (Σ s·e², Σ s, rows), before each rating's step; where an error is not finite it ends with a loss
        of NaN.
    """
    return _native.mf_minibatches(
        indptr, indices, labels, weights, order, batch_size, first_batch, n_batches, table, learning_rate,
        l2, cosine, share, step, progress,
    )  # fmt: skip


def mf_gradient(
    indptr: Int64,
    local: Int32,
    labels: Float32,
    weights: Float32 | None,
    pulled: Float32,
    learning_rate: float,
    l2: float,
    cosine: bool,
    share: float,
) -> tuple[Float32, float, float]:
    """As one minibatch of `mf_minibatches` on a copy of the rows that it needs.

    Parameters
    ----------
    local : int32[2 n]
        Numbers of rows of `pulled`, whose last is the table's last.

    Returns
    -------
    tuple
        ((pulled − trained) / learning_rate, Σ s·e², Σ s): what a step of plain descent at
        `learning_rate` makes the trained rows of.
    """
    return _native.mf_gradient(indptr, local, labels, weights, pulled, learning_rate, l2, cosine, share)


def mf_with_negatives(
    indptr: Int64,
    indices: Int32,
    labels: Float32,
    weights: Float32 | None,
    rows: Int32 | None,
    n_users: int,
    n_items: int,
    n_negatives: int,
    negative_weight: float,
    seed: int,
) -> tuple[Int64, Int32, Float32, Float32]:
    """Take rows of a block of pairs, each with items behind it that its user has not chosen.

    `n_negatives` items are drawn uniformly for each row; those that the user has in this block are left
    out.  A draw is a function of the seed, the pair and the row's place in `rows`.  Rows that are no
    pairs, or of weight 0, come alone.

    Returns
    -------
    indptr, indices, labels, weights
        The rows; drawn pairs have label 0 and `negative_weight`.
    """
    return _native.mf_with_negatives(
        indptr, indices, labels, weights, rows, n_users, n_items, n_negatives, negative_weight, seed
    )


def mf_outputs(indptr: Int64, indices: Int32, weights: Float32) -> Float32:
    """b_u + b_i + p_u·q_i of each row: float32[n].

    A row may lack an entry, or both: then its bias is 0 and there is no product.
    """
    return _native.mf_outputs(indptr, indices, weights)


def fm_minibatches(
    loss: int,
    rows: Rows,
    labels: Float32,
    weights: Float32 | None,
    order: Int32 | None,
    batch_size: int,
    first_batch: int,
    n_batches: int,
    table: Float32,
    dim: int,
    rule: Rule,
    fit_intercept: bool,
    step: Int64,
    progress: Int64 | None,
) -> tuple[float, float, int]:
    """Do as `softmax_minibatches` for a factorisation machine: a table row is a weight, then factors.

    z = b + Σₖ xₖ·wₖ + Σ_{k<l} xₖ·xₗ·⟨vₖ, vₗ⟩, in time linear in a row's entries (S. Rendle,
    "Factorization machines", ICDM 2010).

    Parameters
    ----------
    loss : int
        `LOGISTIC` or `SQUARED`; settles which labels there may be.
    dim : int
        1 + the number of factors.
    """
    return _native.fm_minibatches(
        loss, rows, labels, weights, order, batch_size, first_batch, n_batches, table, dim, rule,
        fit_intercept, step, progress,
    )  # fmt: skip


def fm_gradient(
    loss: int,
    rows: Rows,
    labels: Float32,
    weights: Float32 | None,
    order: Int32,
    pulled: Float32,
    fit_intercept: bool,
    batch_size: int,
) -> tuple[Float32, float, float]:
    """Do as `softmax_gradient` for a factorisation machine; of the intercept's row the first counts."""
    return _native.fm_gradient(loss, rows, labels, weights, order, pulled, fit_intercept, batch_size)


def fm_outputs(rows: Rows, weights: Float32, fit_intercept: bool) -> Float32:
    """Return z of each row, float32[n, 1]."""
    return _native.fm_outputs(rows, weights, fit_intercept)


# --------------------------------------------------------------------------------------------- topics


def topic_statistics(
    rows: SparseRows,
    words: Int64,
    pulled: Float32,
    theta: Float32,
    settings: TopicSettings,
    mass: float,
    statistics: bool,
) -> tuple[Float32 | None, float, float]:
    """Fit the topics of documents, given those of words.

    θ ← α + Σ_w c_w·γ_w with γ_w ∝ θ·(λ_w + η) / (Λ + V·η) (incremental CVB0), until θ moves by less than
    the tolerance, relative to its sum.  Variational: γ_w ∝ exp ψ(θ)·exp(ψ(λ_w + η) − ψ(Λ + V·η))
    (Hoffman, Blei & Bach 2010).

    Parameters
    ----------
    rows : SparseRows
        Documents whose words are numbered as `csr_minibatch` does it; values are counts.
    words : int64[u + 1]
        The words' numbers in the vocabulary; the last is not looked at.
    pulled : float32[u + 1, n_topics]
        λ of the words, without η, then Λ, their sum over the whole vocabulary.  Below 0 counts as 0.
    theta : float32[n, n_topics]
        Where θ begins; changed in place.
    mass : float
        What is added to λ, in all: as much to each word, spread over topics at random by the seed.
    statistics : bool
        Whether Σ c·γ over documents is wanted.

    Returns
    -------
    statistics : float32[u, n_topics] or None
    loss, tokens : float
        −Σ c·log Σ_k θ_k·P(w | k) / Σ_k θ_k at the last θ, and Σ c.
    """
    return _native.topic_statistics(rows, words, pulled, theta, settings, mass, statistics)


def topic_update(
    rows: SparseRows,
    words: Int64,
    pulled: Float32,
    theta: Float32,
    settings: TopicSettings,
    mass: float,
    old: Statistics | None,
    scale: float,
) -> tuple[Statistics, Float32, float, float]:
    """Do as `topic_statistics`, and take the difference to the documents' old statistics.

    Parameters
    ----------
    old : Statistics[u, n_topics] or None
        What the table holds of these documents; None: nothing.
    scale : float
        What the difference is multiplied by.

    Returns
    -------
    statistics : Statistics[u, n_topics]
        Rounded to float16 unless one is beyond its range, or ``old`` was not.
    delta : float32[u + 1, n_topics]
        The rounded statistics less the old ones, and the sum of that over words.
    loss, tokens : float
    """
    return _native.topic_update(rows, words, pulled, theta, settings, mass, old, scale)


def topic_difference(kept: Statistics, old: Statistics | None, scale: float) -> Float32:
    """Return the ``delta`` that `topic_update` gave when it gave ``kept``."""
    return _native.topic_difference(kept, old, scale)


# ----------------------------------------------------------------------------------- sparse statistics


def csr_summed(
    indptr: Int64, indices: Int32, values: Float32 | Float64 | None, width: int
) -> tuple[Int64, Int32, Float64] | None:
    """Add entries of one index in a row up; None if there are none.

    Parameters
    ----------
    indptr : int64[n_rows + 1]
    indices : int32[nnz]
        In any order, in [0, width).
    values : float32[nnz], float64[nnz] or None
        All 1 if None.
    width : int

    Returns
    -------
    (indptr, indices, values) or None
        Rows with ascending indices; values are float64.
    """
    return _native.csr_summed(indptr, indices, values, width)


def csr_moments(
    indptr: Int64, indices: Int32, values: Float32 | Float64 | None, width: int
) -> tuple[Float64, Float64, Float64]:
    """Moments of every column; what is not stored is 0, NaN is missing; parameters as in `csr_summed`.

    Returns
    -------
    n, mean, m2 : float64[width]
        Values that are not missing; their mean (0 without any); the sum of squared deviations from it.
    """
    return _native.csr_moments(indptr, indices, values, width)


def csr_largest(indptr: Int64, indices: Int32, values: Float32 | Float64 | None, width: int) -> Float64:
    """Largest magnitude of every column, float64[width], without NaN; parameters as in `csr_summed`."""
    return _native.csr_largest(indptr, indices, values, width)


# --------------------------------------------------------------------------------------------- hashing


class Checksum:
    """MurmurHash3 x64 128-bit (seed 0) of bytes that come in any pieces: finds damage, not malice.

    Attributes
    ----------
    n_bytes : int
        So far.
    """

    def __init__(self) -> None:
        self._sum = _native.Checksum()
        self.n_bytes = 0

    def update(self, data: Bytes | bytes | memoryview) -> None:
        """Take up the next bytes."""
        piece = np.frombuffer(data, dtype=np.uint8)
        self._sum.update(piece)
        self.n_bytes += len(piece)

    def hexdigest(self) -> str:
        """Of all bytes so far, in hexadecimal."""
        low, high = self._sum.digest()
        return f"{low:016x}{high:016x}"


def checksum(data: Bytes | bytes | memoryview) -> str:
    """Return the `Checksum` of `data`, in hexadecimal."""
    whole = Checksum()
    whole.update(data)
    return whole.hexdigest()


def murmur3_32(data: bytes, seed: int = 0) -> int:
    """Return MurmurHash3 x86 32-bit of `data`, in [0, 2³²) (Austin Appleby, public domain)."""
    return _native.murmur3_32(data, seed)


def hash_slots(prefix: bytes, offsets: Int64, data: Bytes, n_slots: int, seed: int = 0) -> Int32:
    """Return the slots of k strings: ``murmur3_32(prefix + string, seed) % n_slots``, unsigned.

    Parameters
    ----------
    prefix : bytes
        Such as ``b"column="``.
    offsets : int64[k + 1]
        String i is ``data[offsets[i]:offsets[i + 1]]``.
    data : uint8[...] or bytes
    n_slots : int
        In [1, 2³¹).
    seed : int

    Returns
    -------
    int32[k]
    """
    return _native.hash_slots(prefix, offsets, data, n_slots, seed)


# ------------------------------------------------------------------------------------------------- CSV


class CsvError(NamedTuple):
    """Why a scan stopped.

    Attributes
    ----------
    kind : str
        ``"fields"``: a record has `found` fields instead of ``n_columns``.  ``"unterminated"``: the
        input ends inside quotes that were opened on `line`.  ``"quote"``: text follows a closing quote.
        ``"long"``: field number `found` of the record is longer than ``max_field`` bytes (most often a
        quote that was never closed).
    row : int
        The record, counted from the first of this chunk.
    line : int
        Its line (of the quote, for the two kinds about quotes), counted from the first of this chunk.
    found : int
    """

    kind: str
    row: int
    line: int
    found: int


class CsvFields(NamedTuple):
    """Where the fields of a chunk lie: field (row, column) is number ``row * n_columns + column``.

    Attributes
    ----------
    starts, ends : int32[n_rows * n_columns]
        Byte positions in the buffer, without the quotes around a field.
    flags : uint8[n_rows * n_columns]
        1: the field was quoted; 2: it holds doubled quotes.
    n_rows, n_columns : int
    consumed : int
        Bytes used; the rest is an incomplete record, to be put before the next chunk.
    lines : int64[n_rows]
        Line on which each record starts, counted from the first of this chunk (blank lines count).
    n_lines : int
        Lines in the consumed bytes: what to add for the next chunk.
    error : CsvError or None
        The scan ended before this record.
    skipped : list of (CsvError, int)
        The first ten records that were left out, with the byte where each starts.
    n_skipped : int
        How many were.
    """

    starts: Int32
    ends: Int32
    flags: UInt8
    n_rows: int
    n_columns: int
    consumed: int
    lines: Int64
    n_lines: int
    error: CsvError | None
    skipped: list[tuple[CsvError, int]]
    n_skipped: int


def csv_scan(
    buffer: Bytes,
    delimiter: int = ord(","),
    quote: int = ord('"'),
    n_columns: int = 0,
    is_last: bool = True,
    max_field: int = 1 << 24,
    skip: bool = False,
) -> CsvFields:
    """Find the complete records of a chunk of CSV text (RFC 4180).

    Records end with LF or CRLF; the last one may lack it.  Blank lines are skipped.  A quoted field may
    hold delimiters, line ends and doubled quotes; a quote inside an unquoted field is an ordinary
    character, and so is a lone CR (except as the very last byte).  A byte-order mark is the caller's to skip.

    Parameters
    ----------
    buffer : bytes or uint8[...]
        Less than 2³¹ bytes, starting at the start of a record.
    delimiter, quote : int
        Bytes; ``quote=0`` switches quoting off.
    n_columns : int
        0: take it from the first record.
    is_last : bool
        Is this the end of the input?
    max_field : int
        Longest field in bytes.
    skip : bool
        Leave records out that are in error, and go on behind them: behind the record if only the number
        of its fields is wrong, else behind its line.
    """
    result = _native.csv_scan(buffer, delimiter, quote, n_columns, is_last, max_field, skip)
    starts, ends, flags, n_rows, columns, consumed, lines, n_lines, error, skipped, n_skipped = result
    return CsvFields(
        starts,
        ends,
        flags,
        n_rows,
        columns,
        consumed,
        lines,
        n_lines,
        None if error is None else CsvError(*error),
        [(CsvError(*problem), start) for problem, start in skipped],
        n_skipped,
    )


def csv_follow(
    buffer: Bytes, delimiter: int = ord(","), quote: int = ord('"')
) -> tuple[list[int], list[int]]:
    """Follow a stretch of CSV text from every place that its first byte may be.

    The places are 0: the start of a record, 1: of a field, 2: within an unquoted field, 3: within a
    quoted one, 4: behind a quote that closes it or is the first of two, 5: where text follows a closing
    quote, up to the end of the line.

    Returns
    -------
    ends : list of 6 int
        The place behind the last byte, by the place of the first.
    firsts : list of 6 int
        Where the first record starts in the stretch that does not start with its first byte, or −1.
    """
    return _native.csv_follow(buffer, delimiter, quote)


def csv_text(buffer: Bytes, fields: CsvFields, row: int, column: int, quote: int = ord('"')) -> bytes:
    """Return one field's text with doubled quotes undone; for headers and messages, not for bulk work."""
    at = row * fields.n_columns + column
    text = bytes(buffer[fields.starts[at] : fields.ends[at]])
    mark = bytes([quote])
    return text.replace(mark + mark, mark) if fields.flags[at] & 2 else text


def csv_classify(
    buffer: Bytes,
    starts: Int32,
    ends: Int32,
    flags: UInt8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool = False,
    quote: int = ord('"'),
) -> tuple[int, int]:
    """See what the fields of one column are.

    Integers are ``[+-]?digits`` within int64.  Floats are decimal numbers (``1.5``, ``.5``, ``1e-3``)
    and integers beyond int64 that a double holds exactly.  All else is text: ``inf`` and ``nan`` (unless
    listed as missing), hexadecimal, larger than a double, integers beyond int64 that would be rounded.

    Parameters
    ----------
    buffer, starts, ends, flags, n_columns
        A scanned chunk.
    column : int
    missing : list of bytes
        Tokens that mean "no value", compared after stripping and unquoting; list ``b""`` for empty fields.
    strip : bool
        Drop spaces and tabs around unquoted fields.
    quote : int
        As in the scan.

    Returns
    -------
    evidence : int
        ``CSV_INTEGER``, ``CSV_FLOAT``, ``CSV_WIDE_INTEGER`` (one that a double cannot hold) and
        ``CSV_TEXT``, or-ed.  Or the results of all chunks and ask `csv_kind` once.
    first_text : int
        Row of the first text (where the look ended), or -1.
    """
    return _native.csv_classify(buffer, starts, ends, flags, column, n_columns, missing, strip, quote)


def csv_kind(evidence: int) -> str:
    """Decide a column's type from all its evidence: "missing", "integer", "float" or "text".

    Nothing is rounded in silence: wide integers beside fractions make the column text.
    """
    if evidence & CSV_TEXT or (evidence & CSV_FLOAT and evidence & CSV_WIDE_INTEGER):
        return "text"
    if evidence & CSV_FLOAT:
        return "float"
    return "integer" if evidence else "missing"


def csv_parse_int64(
    buffer: Bytes,
    starts: Int32,
    ends: Int32,
    flags: UInt8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool = False,
    quote: int = ord('"'),
) -> tuple[Int64, NDArray[np.bool_], int]:
    """Read a column of integers; parameters as in `csv_classify`.

    Returns
    -------
    values : int64[n_rows]
        0 where missing or bad.
    missing : bool[n_rows]
    first_bad : int
        Row of the first field that is neither an int64 nor missing, or -1.
    """
    return _native.csv_parse_int64(buffer, starts, ends, flags, column, n_columns, missing, strip, quote)


def csv_parse_float64(
    buffer: Bytes,
    starts: Int32,
    ends: Int32,
    flags: UInt8,
    column: int,
    n_columns: int,
    missing: list[bytes],
    strip: bool = False,
    quote: int = ord('"'),
) -> tuple[Float64, int]:
    """Read a column of numbers, correctly rounded; parameters as in `csv_classify`.

    Returns
    -------
    values : float64[n_rows]
        nan where missing or bad.
    first_bad : int
        Row of the first field that is neither missing nor a number as `csv_classify` has it (integers
        that a double cannot hold are bad), or -1.
    """
    return _native.csv_parse_float64(buffer, starts, ends, flags, column, n_columns, missing, strip, quote)


ColumnReading: TypeAlias = tuple[int, NDArray[Any], StringDictionary | tuple[bytes, int] | None]
"""(column, where its values go, how they are read); see `csv_read_columns`."""


def csv_read_columns(
    buffer: Bytes,
    starts: Int32,
    ends: Int32,
    flags: UInt8,
    n_columns: int,
    missing: list[bytes],
    strip: bool,
    quote: int,
    columns: list[ColumnReading],
    first_row: int,
) -> list[tuple[int, int]]:
    """Read several columns of a chunk at once into arrays; the other parameters are as in `csv_classify`.

    Parameters
    ----------
    columns : list of (column, out, how)
        ``how`` None: numbers as `csv_parse_float64` and `csv_parse_int64` give them, as the dtype of ``out``
        says (a missing integer is a bad one).  A StringDictionary: codes, as its ``encode`` gives them.
        ``(prefix, n_slots)``: slots of the texts, as `hash_slots` gives them, where a missing text is an
        empty one.  Codes and slots are int32.
    first_row : int
        Value i goes to ``out[first_row + i]``; ``out`` may have strides.

    Returns
    -------
    list of (evidence, first_bad)
        Of each of ``columns``: what `csv_classify` says of integers (of other numbers only that there are
        some; 0 for text), and the first bad row or -1.

    Raises
    ------
    ValueError
        If a text is not UTF-8; what was written is of no use then.
    """
    return _native.csv_read_columns(
        buffer, starts, ends, flags, n_columns, missing, strip, quote, columns, first_row
    )
