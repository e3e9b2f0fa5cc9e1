"""The transformers beside scikit-learn's, on arrays, frames and data sets, in pipelines and in files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import preprocessing as theirs
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer as TheirTfidf
from sklearn.impute import SimpleImputer

import squall
from squall import (
    FeatureHasher,
    Imputer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    QuantileBinner,
    StandardScaler,
    TfidfTransformer,
)
from squall.errors import DataError, SettingError

from .problems import numbers, people

X, y = numbers(60)
GAPS = np.where(np.random.default_rng(3).random(X.shape) < 0.2, np.nan, X)
COUNTS = sparse.csr_array(np.random.default_rng(4).poisson(0.5, (60, 7)).astype(float))
frame, labels = people(60)

ALL = [
    StandardScaler(),
    MaxAbsScaler(),
    Imputer(),
    Imputer("constant", fill_value=3),
    OneHotEncoder(min_frequency=2),
    QuantileBinner(n_bins=4),
    FeatureHasher(64, crosses=[("job", "job2")], alternate_sign=True),
    TfidfTransformer(),
    MinMaxScaler(columns=["age"]),
]
TABLE = frame.assign(job2=frame.job)
of_kind = pytest.mark.parametrize("transformer", ALL, ids=lambda t: type(t).__name__)


@pytest.mark.parametrize(
    ("ours", "reference", "rows"),
    [
        (StandardScaler(), theirs.StandardScaler(), X),
        (StandardScaler(), theirs.StandardScaler(), GAPS),
        (StandardScaler(with_mean=False), theirs.StandardScaler(with_mean=False), COUNTS),
        (MaxAbsScaler(), theirs.MaxAbsScaler(), GAPS),
        (MaxAbsScaler(), theirs.MaxAbsScaler(), COUNTS),
        (Imputer(), SimpleImputer(), GAPS),
        (Imputer("median"), SimpleImputer(strategy="median"), GAPS),
        (Imputer("constant", fill_value=-1), SimpleImputer(strategy="constant", fill_value=-1), GAPS),
        (TfidfTransformer(), TheirTfidf(), COUNTS),
        (TfidfTransformer("l1", sublinear_tf=True), TheirTfidf(norm="l1", sublinear_tf=True), COUNTS),
        (
            QuantileBinner(5),
            theirs.KBinsDiscretizer(5, encode="onehot", quantile_method="linear"),
            X,
        ),
    ],
)
def test_arrays_become_what_scikit_learn_makes_of_them(ours, reference, rows):
    expected = reference.fit_transform(rows)
    found = ours.fit_transform(rows)
    if sparse.issparse(expected):
        assert sparse.issparse(found)
        expected, found = expected.toarray(), found.toarray()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_text_becomes_what_scikit_learn_makes_of_it():
    table = frame[["job"]].astype(object).where(frame[["job"]].notna(), None)
    expected = theirs.OneHotEncoder(handle_unknown="ignore").fit_transform(table)
    assert OneHotEncoder().fit_transform(table).toarray().tolist() == expected.toarray().tolist()
    filled = Imputer("most_frequent").fit_transform(table)
    reference = SimpleImputer(strategy="most_frequent", missing_values=None).fit_transform(table)
    assert filled["job"].tolist() == reference[:, 0].tolist()


@of_kind
def test_settings_and_clones(transformer):
    twin = clone(transformer)
    assert twin.get_params() == transformer.get_params()
    assert twin.set_params(columns=["age"]).columns == ["age"]


@of_kind
def test_names_are_those_of_the_columns_that_come_out(transformer):
    fitted = clone(transformer).fit(TABLE)
    names = fitted.get_feature_names_out()
    out = fitted.transform(squall.from_arrays(TABLE))
    assert len(names) == sum(c.width for c in out.columns) == len(set(names))
    single = [c.name for c in out.columns if c.width == 1]
    assert names[: len(single)].tolist() == single


@of_kind
def test_what_is_saved_with_a_model_is_applied_at_predict(transformer, tmp_path):
    steps = [clone(transformer)]
    if not isinstance(transformer, Imputer):
        steps.append(Imputer())
    model = squall.make_pipeline(
        *steps, FeatureHasher(256), squall.LogisticRegression(epochs=2)
    ) if not isinstance(transformer, FeatureHasher) else squall.make_pipeline(
        *steps, squall.LogisticRegression(epochs=2)
    )  # fmt: skip
    model.fit(TABLE, labels)
    twin = squall.load(squall.save(model, tmp_path / "m"))
    np.testing.assert_array_equal(twin.predict_proba(TABLE), model.predict_proba(TABLE))
    assert twin.steps[0][1].transform_ == model.steps[0][1].transform_


@of_kind
def test_only_the_columns_that_are_named(transformer):
    kind = "job" if isinstance(transformer, (OneHotEncoder, FeatureHasher)) else "age"
    if isinstance(transformer, TfidfTransformer):
        with pytest.raises(SettingError, match=r"columns: 'age' is \w+64, and it is for dense, sparse"):
            clone(transformer).set_params(columns=["age"]).fit(frame)
        return
    crosses = {"crosses": ()} if isinstance(transformer, FeatureHasher) else {}
    fitted = clone(transformer).set_params(columns=[kind], **crosses).fit(TABLE)
    out = fitted.transform(squall.from_arrays(TABLE))
    block, was = next(out.blocks()), next(squall.from_arrays(TABLE).blocks())
    assert len(block.columns) == 4
    for name in {"age", "height"} - {kind}:
        np.testing.assert_array_equal(block.columns[name].values, was.columns[name].values)
    assert block.columns["job2"].codes.tolist() == was.columns["job2"].codes.tolist()
    with pytest.raises(SettingError, match=r"columns: there is no column 'agee'"):
        clone(transformer).set_params(columns=["agee"]).fit(frame)


@pytest.mark.parametrize(
    ("transformer", "says"),
    [
        (StandardScaler(with_mean="yes"), "with_mean='yes' must be True or False"),
        (Imputer("mode"), "strategy='mode' is unknown; choose from mean, median, most_frequent, constant"),
        (Imputer(fill_value=1), 'fill_value=1 is for strategy="constant" only'),
        (Imputer("constant", fill_value=[1]), r"fill_value=\[1\] must be a finite number or text"),
        (OneHotEncoder("skip"), "handle_unknown='skip' is unknown"),
        (OneHotEncoder(min_frequency=0), "min_frequency=0 must be a number of rows, or a share"),
        (OneHotEncoder(min_frequency=1.5), r"min_frequency=1\.5 must be"),
        (QuantileBinner(1), "n_bins=1 must be an integer from 2"),
        (QuantileBinner(encode="dense"), "encode='dense' is unknown"),
        (FeatureHasher(crosses=["ab"]), "crosses=.* must be groups of columns"),
        (FeatureHasher(crosses=[("job", "job")]), "crosses=.* must be groups of columns"),
        (FeatureHasher(crosses=[("job", "age")]), "crosses: 'age' is not a column that is hashed"),
        (FeatureHasher(alternate_sign=1), "alternate_sign=1 must be True or False"),
        (TfidfTransformer(norm="max"), "norm='max' is unknown"),
        (TfidfTransformer(use_idf=None), "use_idf=None must be True or False"),
        (MaxAbsScaler(columns="age"), "columns='age' must be names of columns"),
        (MaxAbsScaler(columns=["age", "age"]), "columns=.* must be names of columns"),
        (MaxAbsScaler(columns=["job"]), "columns: 'job' is categorical, and it is for int64"),
    ],
)
def test_wrong_settings(transformer, says):
    with pytest.raises(SettingError, match=says):
        transformer.fit(frame)


def test_all_wrong_settings_are_told_at_once():
    with pytest.raises(SettingError, match=r"n_bins=0(?s:.)*encode='x'(?s:.)*columns=3"):
        QuantileBinner(0, "x", 3).fit(frame)


def test_a_sparse_matrix_is_not_centred():
    with pytest.raises(DataError, match=r"column 'x': it is sparse(?s:.)*with_mean=False"):
        StandardScaler().fit(COUNTS)


def test_the_stages_of_a_pipeline_fit_one_after_the_other():
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0, 5.0] * 5, "t": ["u", None, "v", "u"] * 5})
    steps = [Imputer("median"), StandardScaler(), QuantileBinner(3, columns=["a"]), OneHotEncoder()]
    data = squall.from_arrays(table, [0, 1, 0, 1] * 5)
    out = data
    for step in steps:
        out = step.fit(out).transform(out)
    assert [c.name for c in out.columns] == ["binned", "onehot"]
    model = squall.make_pipeline(*map(clone, steps), squall.LogisticRegression(epochs=2)).fit(data)
    for fitted, step in zip(model.steps, steps, strict=False):
        assert fitted[1].transform_ == step.transform_
