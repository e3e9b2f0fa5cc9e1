"""Arguments are never cast or copied, and every complaint names the argument."""

from __future__ import annotations

import numpy as np
import pytest

from squall import _kernels as kernels
from squall._kernels import objectives

from .strategies import small_block


@pytest.mark.parametrize("name", ["indptr", "indices", "values", "labels", "weights", "order"])
@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.complex64, np.bool_])
def test_wrong_dtype(name, dtype):
    block = small_block()
    block[name] = block[name].astype(dtype)
    with pytest.raises(TypeError, match=f"{name}: dtype is"):
        train(block)


@pytest.mark.parametrize("name", ["indptr", "indices", "values", "labels", "weights", "order"])
def test_not_contiguous(name):
    block = small_block()
    block[name] = np.repeat(block[name], 2)[::2]
    with pytest.raises(ValueError, match=f"{name}: is not C-contiguous"):
        train(block)


@pytest.mark.parametrize("name", ["indptr", "indices", "values", "labels", "weights", "order"])
def test_wrong_dimensions(name):
    block = small_block()
    block[name] = block[name][None]
    with pytest.raises(ValueError, match=f"{name}: has 2 dimension"):
        train(block)


@pytest.mark.parametrize("name", ["values", "labels", "weights"])
def test_wrong_length(name):
    block = small_block()
    block[name] = block[name][:-1]
    with pytest.raises(ValueError, match=f"{name}: has length"):
        train(block)


@pytest.mark.parametrize("name", ["indptr", "labels"])
def test_unaligned(name):
    block = small_block()
    data = b"\0" + block[name].tobytes()
    block[name] = np.frombuffer(data, np.uint8)[1:].view(block[name].dtype)
    if block[name].flags.aligned:
        pytest.skip("the odd offset happened to be aligned")
    with pytest.raises(ValueError, match=f"{name}: its memory is not aligned"):
        train(block)


def test_foreign_byte_order():
    block = small_block()
    block["labels"] = block["labels"].astype(">f4")
    with pytest.raises(TypeError):
        train(block)


def test_no_lists():
    with pytest.raises(TypeError):
        kernels.localize([1, 2])


@pytest.mark.parametrize(
    "table",
    [np.zeros((6, 2)), np.zeros((2, 6), np.float32).T, np.zeros(12, np.float32)],
    ids=["float64", "transposed", "flat"],
)
def test_bad_table(table):
    with pytest.raises((TypeError, ValueError), match="table: "):
        train(small_block(), table)


def test_read_only_table_is_not_written():
    table = np.zeros((6, 2), np.float32)
    table.flags.writeable = False
    with pytest.raises(TypeError):
        train(small_block(), table)
    assert not table.any()


def test_empty_indptr():
    block = small_block() | {"indptr": np.zeros(0, np.int64)}
    with pytest.raises(ValueError, match="indptr: is empty"):
        train(block)


def test_the_stub_lists_what_the_extension_has():
    import ast
    from pathlib import Path

    stub = ast.parse((Path(kernels.__file__).parent / "_native.pyi").read_text())
    declared = {n.name for n in stub.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    declared |= {n.target.id for n in stub.body if isinstance(n, ast.AnnAssign) and n.value is None}
    assert declared == {name for name in dir(kernels._native) if not name.startswith("_")}
    assert declared <= set(kernels.__all__) | set(objectives.__all__)


def train(block, table=None):
    if table is None:
        table = np.zeros((6, 2), np.float32)
    step = np.zeros(1, np.int64)
    return kernels.logistic_minibatches(
        **block, batch_size=2, first_batch=0, n_batches=2, table=table,
        rule=kernels.Rule(kernels.ADAGRAD, 0.1), fit_intercept=True, step=step, progress=None,
    )  # fmt: skip
