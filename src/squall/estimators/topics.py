"""Topic models with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from squall.config import Problems, Run, checked_run, is_auto
from squall.data.dataset import Dataset
from squall.driver.job import Job
from squall.driver.spec import JobResult
from squall.errors import DataError, SettingError
from squall.estimators.columns import aligned, as_dataset
from squall.estimators.continuing import ContinuingModel, settled
from squall.estimators.documents import DocumentTarget, Topics, by_words, checked_documents, recalled_loan
from squall.estimators.predecessors import Part, check_same_columns
from squall.estimators.preparation import Recipe
from squall.estimators.progress import wait_showing_progress
from squall.estimators.targets import Target
from squall.estimators.transformers import BaseTransformer
from squall.models.topics import TopicModel
from squall.preprocessing.layout import FeatureLayout
from squall.protocols import Model, Objects
from squall.records import Block, ColumnSpec, Float32, Float64, OptimizerSpec
from squall.worker.strategies import ParameterServer, is_strategy

METHODS = ("cvb0", "online")
_MOST_TOPICS = 1 << 16


class LatentDirichletAllocation(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ContinuingModel):  # type: ignore[misc]
    """Topics of documents (Blei, Ng & Jordan 2003), learned block by block on functions.

    Each token of a document is of a topic; a topic says how likely each word is, and a document has few
    of the topics.  The store holds how many tokens of each word are of each topic; functions take a block
    of documents, work out its topics, and send what changed (incremental CVB0).

    Parameters
    ----------
    n_components : int, default 10
        Number of topics.
    doc_topic_prior : float, default 0.1
        Dirichlet prior α of each topic in a document: the smaller, the fewer topics a document has.
    topic_word_prior : float, default 0.02
        Dirichlet prior η of each word in a topic.
    method : "cvb0" or "online", default "cvb0"
        ``"online"`` is online variational Bayes (Hoffman, Blei & Bach 2010), as in scikit-learn; it is
        slower, and its topics are worse for the same number of passes.
    epochs : int, default 5
        How often each document is visited.
    batch_size : int or "auto", default "auto"
        Documents of a block: 256, or fewer where there are fewer than 4,096.
    max_doc_update_iter : int, default 10
        How often the topics of a document are worked out in one visit, at most.
    mean_change_tol : float, default 0.01
        They are not again when they change by less than this share.
    learning_offset, learning_decay : float, optional
        Of ``"online"``, and only with it: step t has the rate (offset + t)^−decay; default 10 and 0.7.
    target_loss : float, optional
        Stop as soon as the held-out loss is that low; needs ``validation`` in ``fit``.
    early_stopping : int, optional
        Stop after this many epochs without a lower held-out loss, and keep the best one's topics.
    random_state : int, optional
        Seed of the shuffle and of the topics at the start; default: the run's.
    strategy : ParameterServer, optional
        Whom workers wait for.  Default: ``squall.ParameterServer()``, where nobody waits.
    warm_start : bool, default False
        Whether ``fit`` begins with the topics of the last one.  They are then those of the documents given
        now: what they began with counts little, and is taken off in the end.
    callbacks : callable or list of callables, optional
        Called after each epoch; see :class:`squall.LogisticRegression`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_words)
        How many tokens of each word are of each topic, and the prior.
    topics_ : ndarray of shape (n_components, n_words)
        How likely each word is in each topic: rows of sum 1.
    words_ : list of str
        The words by column, where they have names: a data set's dictionary, or names of columns.
    history_ : list of HistoryRecord
        One record an epoch.  Losses are nats per token, so that exp(loss) is a perplexity: of held-out
        documents as in `perplexity`; of training documents given their own topics, which is too low.
    cost_usd_, bill_, stopped_, batch_size_
        See :class:`squall.estimators.base.BaseModel`.

    Examples
    --------
    >>> import numpy as np, squall
    >>> X = np.array([[5, 4, 0, 0], [3, 6, 0, 0], [0, 0, 4, 4], [0, 0, 6, 2]] * 20)
    >>> lda = squall.LatentDirichletAllocation(2, random_state=0).fit(X)
    >>> np.round(lda.transform(X[:1]).max(), 1)
    np.float64(1.0)
    """

    components_: Float64
    words_: list[str]

    def __init__(
        self,
        n_components: int = 10,
        doc_topic_prior: float = 0.1,
        topic_word_prior: float = 0.02,
        method: str = "cvb0",
        epochs: int = 5,
        batch_size: int | str = "auto",
        max_doc_update_iter: int = 10,
        mean_change_tol: float = 0.01,
        learning_offset: float | None = None,
        learning_decay: float | None = None,
        target_loss: float | None = None,
        early_stopping: int | None = None,
        random_state: int | None = None,
        strategy: ParameterServer | None = None,
        warm_start: bool = False,
        callbacks: Any = None,
    ) -> None:
        self.n_components = n_components
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_doc_update_iter = max_doc_update_iter
        self.mean_change_tol = mean_change_tol
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.target_loss = target_loss
        self.early_stopping = early_stopping
        self.random_state = random_state
        self.strategy = strategy
        self.warm_start = warm_start
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.positive_only = True
        return tags

    def fit(  # type: ignore[override]  # documents have no weights
        self,
        X: Any,
        y: Any = None,
        *,
        validation: Any = None,
        run: Run | None = None,
    ) -> Self:
        """Learn topics, show progress where someone looks, and return ``self``.

        Parameters
        ----------
        X : Dataset, or array, sparse matrix, DataFrame of shape (n_documents, n_words)
            Counts of words; any weights of at least 0 will do.
        y
            Not used.
        validation : Dataset or array, optional
            Held-out documents, measured while training goes on.
        run : Run, optional
            Default: the ``with squall.Run(…)`` around the call.

        Raises
        ------
        SettingError
            Naming every setting that is wrong.
        DataError
            If there are no words, or counts below 0.
        JobError
            If the job failed.
        """
        wait_showing_progress(self._start(as_dataset(X), validation, run))
        return self

    def partial_fit(self, X: Any, y: Any = None, *, run: Run | None = None) -> Self:
        """Visit these documents once, in addition to those of all calls before (or ``fit``, or a load).

        Where words have names, new ones are added to the model's.  With ``"cvb0"`` `components_` gains the
        tokens of these documents, and those of earlier calls keep the topics they had; ``"online"`` goes
        on with its steps, as scikit-learn's does, for as many documents as have come so far.

        Parameters
        ----------
        X, y, run
            As of `fit`.

        Raises
        ------
        SettingError
            Naming every setting that is wrong; `n_components` has to be that of the model.
        DataError
            If there are no words, counts below 0, or other columns than before.
        JobError
            If the job failed.
        """
        return self._fit_part(as_dataset(X), None, run)

    def transform(self, X: Any) -> Float64:
        """Shares of topics in documents: (n_documents, n_components), rows of sum 1."""
        model, weights = self._parameters_checked()
        parts = [model.outputs(block, weights) for block in self._documents(X)]
        return np.concatenate([np.empty((0, self._n_features_out)), *parts])

    def perplexity(self, X: Any) -> float:
        """How many words a held-out token might as well be: exp(−log-likelihood per token).

        Of the second half of each document's tokens, when its topics are known from the first half
        (document completion; Wallach et al. 2009).  scikit-learn's is a bound on that of all tokens.
        """
        return float(np.exp(-self.score(X)))

    def score(self, X: Any, y: Any = None) -> float:
        """Log-likelihood per held-out token; see `perplexity`."""
        model, weights = self._parameters_checked()
        parts = [model.loss(block, weights)[:2] for block in self._documents(X)]
        loss, tokens = map(sum, zip(*parts, strict=True)) if parts else (0.0, 0.0)
        if not tokens:
            raise DataError(
                "no document has two tokens, so nothing can be predicted from the rest", where="score"
            )
        return -float(loss / tokens)

    @property
    def topics_(self) -> Float64:
        """How likely each word is in each topic: (n_components, n_words)."""
        check_is_fitted(self, "columns_in_")
        likely: Float64 = self.components_ / self.components_.sum(axis=1, keepdims=True)
        return likely

    def top_words(self, n: int = 10) -> list[list[str]]:
        """The likeliest words of each topic, or the numbers of their columns where words have no names."""
        check_is_fitted(self, "columns_in_")
        problems = Problems("top_words")
        problems.integer("n", n, 1)
        problems.raise_if_any()
        best = np.argsort(-self.components_, axis=1, kind="stable")[:, :n]
        return [[self.words_[i] if self.words_ else str(i) for i in topic] for topic in best.tolist()]

    def _parameters_checked(self) -> tuple[Model, Float32]:
        check_is_fitted(self, "columns_in_")
        return self._parameters()

    def _documents(self, X: Any) -> Iterator[Block]:
        """Checked counts, block by block."""
        data = aligned(by_words(as_dataset(X), self.words_), self.columns_in_, type(self).__name__)
        layout = FeatureLayout.of(list(data.columns))
        return map(layout.encode, checked_documents(data.blocks()))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    # ---------------------------------------------------------------------------------- training

    def _start(
        self,
        data: Dataset,
        validation: Any,
        run: Run | None,
        before: Sequence[BaseTransformer] = (),
        whole: Any = None,
        tags: dict[str, str] | None = None,
        part: Part | None = None,
    ) -> Job[Any]:
        run = checked_run(run, "fit")
        if run.plan != "fixed" and self.method == "cvb0":
            raise SettingError(
                f"plan={run.plan!r} changes the workers, and each of them owns documents for the whole "
                "training",
                where="LatentDirichletAllocation",
                fix='use Run(plan="fixed")',
            )
        return super()._start(data, validation, run, before, whole, tags, part)

    def _check_settings(self) -> None:
        problems = Problems(type(self).__name__)
        problems.integer("n_components", self.n_components, 1, high=_MOST_TOPICS)
        problems.number("doc_topic_prior", self.doc_topic_prior, above=0.0)
        problems.number("topic_word_prior", self.topic_word_prior, above=0.0)
        problems.choice("method", self.method, METHODS)
        problems.integer("epochs", self.epochs, 1, high=2**31 - 1)
        problems.integer("batch_size", self.batch_size, 1, auto=True)
        problems.integer("max_doc_update_iter", self.max_doc_update_iter, 1)
        problems.number("mean_change_tol", self.mean_change_tol, low=0.0)
        for name, low in (("learning_offset", 0.0), ("learning_decay", 0.0)):
            value = getattr(self, name)
            if value is None:
                continue
            problems.number(name, value, low=low)
            if self.method == "cvb0":
                problems.add(f'{name}={value!r} has no effect with method="cvb0"; leave it None')
        self._check_ending(problems)
        self._check_more(problems)
        self._check_strategy(problems)
        problems.raise_if_any()

    def _check_settled(self, problems: Problems) -> None:
        if self.n_components != len(self.components_):
            problems.add(settled("n_components", self.n_components, len(self.components_)))

    def _check_parts(self, problems: Problems) -> None:
        """All go with parts."""

    def _check_strategy(self, problems: Problems) -> None:
        strategy = self.strategy
        if not is_strategy(strategy):
            return
        if not isinstance(strategy, ParameterServer):
            problems.add(f"strategy={strategy!r} keeps no table of topics; choose squall.ParameterServer()")
            return
        for name in ("filter", "compression", "staleness_weighting"):
            if getattr(strategy, name):
                problems.add(
                    f"strategy: {name}={getattr(strategy, name)!r} would count tokens wrongly, "
                    "for what a block adds is taken back when it is visited again"
                )

    def _recipe(self) -> Recipe:
        return Recipe(
            model=self._math,
            optimizer=OptimizerSpec(name="sgd", learning_rate=1.0),
            learning_rate=1.0,
            batch_size=None if is_auto(self.batch_size) else int(self.batch_size),
            epochs=int(self.epochs),
            decay=0.0,
            warmup=0.0,
            auto_batch_size=lambda documents, workers: choose_block(documents),
            blocks_stay=True,
        )

    _keeps_state = False  # there is no optimiser
    _rate_found = None

    def _target(self, data: Dataset) -> DocumentTarget:
        before = self._topics() if self.warm_start and self._is_fitted else None
        return DocumentTarget(data, before, fades=self.method == "online")

    def _target_of_parts(self, data: Dataset, classes: Any) -> DocumentTarget:
        return DocumentTarget(data, self._topics() if self._is_fitted else None, adds=True)

    def _topics(self) -> Topics:
        counts = self._parameters()[1][:-1]
        return Topics(counts, self.words_, self._fitted.documents, self._n_steps)

    def _check_columns(self, columns: list[ColumnSpec], target: Target) -> None:
        fitted = self.columns_in_
        new = len(target.classes) - len(self.words_)
        if self.words_ and new:
            fitted = [msgspec.structs.replace(fitted[0], width=fitted[0].width + new)]
        check_same_columns(columns, fitted, type(self).__name__)

    def _starting_weights(self, target: Target, model: Model) -> Float32:
        assert isinstance(target, DocumentTarget) and target.before is not None
        if self.method == "online":
            counts = target.beginning(target.documents / target.before.documents)
            last = np.append(target.before.step, np.zeros(counts.shape[1] - 1))
        else:
            lent = target.lent()
            counts = target.beginning() if lent is None else lent
            last = counts.sum(axis=0)
        return np.vstack([counts, last]).astype(np.float32)

    def _held_out(self, validation: Any) -> Dataset:
        data = as_dataset(validation[0] if isinstance(validation, tuple) else validation)
        if not data.n_rows:
            raise DataError("held-out documents need at least one row", where="validation")
        return data

    def _math(self, n_features: int, target: Target, seed: int) -> Model:
        assert isinstance(target, DocumentTarget)
        model = TopicModel(
            n_features,
            int(self.n_components),
            target.documents,
            target.tokens,
            float(self.doc_topic_prior),
            float(self.topic_word_prior),
            int(self.max_doc_update_iter),
            float(self.mean_change_tol),
            seed=seed,
            method="online" if self.method == "online" else "cvb0",
            learning_offset=10.0 if self.learning_offset is None else float(self.learning_offset),
            learning_decay=0.7 if self.learning_decay is None else float(self.learning_decay),
        )
        # Topics that are known need no random ones beside them.
        return model if target.before is None else msgspec.structs.replace(model, initial_mass=0.0)

    def _recalled(self, objects: Objects, folder: str) -> Float32 | None:
        return recalled_loan(objects, folder)

    def _finish(self, result: JobResult, columns: list[ColumnSpec], classes: npt.NDArray[Any]) -> None:
        lent = result.prepared.learned
        if lent is not None:
            result = replace(result, weights=result.weights - np.vstack([lent, lent.sum(axis=0)]))
        super()._finish(result, columns, classes)
        steps = sum(record.rows for record in result.history) // result.prepared.batch_size
        online = result.prepared.model.method == "online"  # type: ignore[attr-defined]
        self._n_steps = round(float(result.weights[-1, 0])) if online else steps

    def _take(self, weights: Float32, classes: npt.NDArray[Any], model: Any) -> None:
        self.words_ = [str(word) for word in classes]
        counts = np.maximum(weights[:-1].T, 0.0).astype(np.float64)  # but for rounding they are
        self.components_ = np.ascontiguousarray(counts) + model.topic_word_prior
        self._fitted = model

    def _parameters(self) -> tuple[Model, Float32]:
        counts = (self.components_ - self._fitted.topic_word_prior).T
        return self._fitted, np.vstack([counts, counts.sum(axis=0)]).astype(np.float32)

    def _tensors(self) -> dict[str, npt.NDArray[Any]]:
        priors = np.array([self._fitted.doc_topic_prior, self._fitted.topic_word_prior])
        visited = np.array([self._fitted.documents, self._n_steps])
        return {"components": self.components_, "priors": priors, "visited": visited}

    def _labels(self) -> list[Any] | None:
        return list(self.words_)

    def _restore(self, tensors: dict[str, npt.NDArray[Any]], labels: list[Any] | None) -> None:
        self.components_, (doc_topic, topic_word) = tensors["components"], tensors["priors"].tolist()
        self.words_ = [str(word) for word in labels or []]
        n_topics, n_words = self.components_.shape
        if n_words != self.n_features_in_ or len(self.words_) not in (0, n_words):
            raise ValueError(f"{n_words} words are not {self.n_features_in_} or {len(self.words_)}")
        documents, self._n_steps = float(tensors["visited"][0]), int(tensors["visited"][1])
        self._fitted = TopicModel(
            n_words,
            n_topics,
            documents,
            doc_topic_prior=float(doc_topic),
            topic_word_prior=float(topic_word),
        )


def choose_block(n_documents: int) -> int:
    """The block that ``"auto"`` stands for: 256 documents, or fewer where that would make few blocks."""
    return min(256, max(8, n_documents // 16))
