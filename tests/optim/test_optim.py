from __future__ import annotations

import pytest

from squall import _kernels
from squall.optim import CODES, is_lazy, kernel_rule, optimizer_code
from squall.records import OptimizerSpec


def test_every_optimiser_has_a_code_of_its_own():
    assert len(set(CODES.values())) == len(CODES) == 6


@pytest.mark.parametrize(
    ("name", "code"), [("sgd", _kernels.SGD), ("adagrad", _kernels.ADAGRAD), ("ftrl", _kernels.FTRL)]
)
def test_codes_are_the_kernels(name, code):
    assert optimizer_code(OptimizerSpec(name, 0.1)) == code


@pytest.mark.parametrize(
    ("l1", "l2", "lazy"), [(0.0, 0.0, False), (0.1, 0.0, True), (0.0, 0.1, True), (1e-30, 0.0, True)]
)
def test_rows_carry_a_step_only_if_there_is_a_penalty(l1, l2, lazy):
    spec = OptimizerSpec("adagrad", 0.1, l1=l1, l2=l2)
    assert is_lazy(spec) is lazy
    assert _kernels.table_stride(optimizer_code(spec), 1, is_lazy(spec)) == 2 + lazy


@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("name", CODES)
def test_tables_have_the_column_that_their_rule_needs(name, penalty):
    spec = OptimizerSpec(name, 0.1, l2=penalty)
    assert is_lazy(spec) == kernel_rule(spec).lazy == (penalty > 0 or name in ("momentum", "nesterov"))


def test_a_rule_is_made_once():
    assert kernel_rule(OptimizerSpec("adam", 0.1)) is kernel_rule(OptimizerSpec("adam", 0.1))
