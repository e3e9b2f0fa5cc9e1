"""Topic models (latent Dirichlet allocation; D. Blei, A. Ng & M. Jordan, JMLR 2003) by incremental CVB0.

A table row holds how many tokens of a word are of each topic (λ, without the prior η); the last row,
their sums over all words (Λ).  A minibatch of documents is fitted at the table as it is::

    θ = α + Σ_w c_w·γ_w,    γ_w ∝ θ·(λ_w + η) / (Λ + V·η)

(CVB0 of A. Asuncion et al., UAI 2009, by documents and words), and the table gets the difference of
Σ c·γ to what it held of the same documents: the incremental EM of R. Neal & G. Hinton (1998).  So the
table's sum is the number of tokens that have been visited.  As long as some have not, they count as
topics drawn at random: as ``initial_mass`` of each, spread evenly over the words.

``method="online"`` is online variational Bayes (M. Hoffman, D. Blei & F. Bach, NIPS 2010) instead:
λ ← (1 − ρ_t)·λ + ρ_t·D/|S|·Σ c·γ on all rows, ρ_t = (τ + t)^−κ; the last row counts t.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from squall import _kernels
from squall.models.documents import Taken, halves, numbered, whole
from squall.models.topic_memory import TopicMemory, train_in_place
from squall.protocols import Blobs, Model
from squall.records import Block, Float32, Int32, Int64, OptimizerSpec, SharedTable, TableSpec

_FOLD_IN = (100, 1e-3)  # (iterations, tolerance) where a document is fitted for good
_NOTHING_LEFT = 1e-3  # share of the tokens below which all have been visited, but for rounding


class TopicModel(msgspec.Struct, frozen=True, tag="topics"):
    """The model protocol (:class:`squall.protocols.Model`) for topic models.

    Parameters
    ----------
    n_words : int
        V, width of the feature space.
    n_topics : int
    documents, tokens : float
        How many there are in the training data.
    doc_topic_prior, topic_word_prior : float
        α and η.
    iterations, tolerance : int, float
        Most updates of a document's θ in a visit, and the relative change below which they end.
    initial_mass : float
        What a token counts before its first visit.
    seed : int
        Of the random topics.
    method : {"cvb0", "online"}
    learning_offset, learning_decay : float
        τ and κ of ``"online"``.
    """

    n_words: int
    n_topics: int
    documents: float = 1.0
    tokens: float = 1.0
    doc_topic_prior: float = 0.1
    topic_word_prior: float = 0.02
    iterations: int = 10
    tolerance: float = 1e-2
    initial_mass: float = 0.03
    seed: int = 0
    method: Literal["cvb0", "online"] = "cvb0"
    learning_offset: float = 10.0
    learning_decay: float = 0.7

    def table(self, name: str, optimizer: OptimizerSpec) -> TableSpec:
        """One row for each word, and the totals' behind them; gradients are sums with their sign changed."""
        plain = OptimizerSpec(name="sgd", learning_rate=1.0)
        return TableSpec(name, self.n_words + 1, self.n_topics, plain, regularized_rows=0)

    def at_work(self, job: str, blobs: Blobs, mean_of: int, room: int) -> Model:
        """It remembers what the table holds of each row block; online it need not."""
        return self if self.method == "online" else TopicMemory(self, job, blobs, mean_of, room)

    def settings(self, iterations: int, tolerance: float, *, variational: bool) -> _kernels.TopicSettings:
        """What the kernels go by."""
        return _kernels.TopicSettings(
            self.doc_topic_prior,
            self.topic_word_prior,
            self.n_words,
            iterations,
            tolerance,
            self.seed,
            variational,
        )

    def visit_settings(self) -> _kernels.TopicSettings:
        """What they go by when a minibatch is visited."""
        return self.settings(self.iterations, self.tolerance, variational=self.method == "online")

    def unseen_mass(self, totals: Float32) -> float:
        """What tokens that have not been visited count, given the table's last row."""
        left = self.tokens - float(totals.sum(dtype=np.float64))
        return self.initial_mass * left if left > _NOTHING_LEFT * self.tokens else 0.0

    def beginning(self, taken: Taken) -> Float32:
        """θ before a document's first visit: (n, n_topics)."""
        even = self.doc_topic_prior + taken.tokens() / self.n_topics
        return np.repeat(even[:, None].astype(np.float32), self.n_topics, axis=1)

    # ----------------------------------------------------------------------------------- training

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
        """Minibatches in place on mapped rows; see the protocol."""
        return train_in_place(self, block, order, batch_size, first, count, table, progress)

    def needed_rows(self, block: Block, rows: Int32) -> tuple[Int64, Any]:
        """Distinct words of these documents, then the totals' row; online, all."""
        taken = numbered(block, rows)
        if self.method == "online":
            return np.arange(self.n_words + 1, dtype=np.int64), taken
        return taken.words, taken

    def gradient(
        self, block: Block, rows: Int32, handle: Any, weights: Float32, batch_size: int
    ) -> tuple[Float32, float, float]:
        """What a first visit adds, with its sign changed; its loss and tokens."""
        theta = self.beginning(handle)
        if self.method == "online":
            return self._online_gradient(handle, theta, weights)
        mass = self.unseen_mass(weights[-1])
        _, gradient, loss, tokens = _kernels.topic_update(
            handle.rows, handle.words, weights, theta, self.visit_settings(), mass, None, -1.0
        )
        return gradient, loss, tokens

    def _online_gradient(
        self, taken: Taken, theta: Float32, weights: Float32
    ) -> tuple[Float32, float, float]:
        step = float(weights[-1, 0])
        rates = (self.learning_offset + 1.0 + np.arange(int(step) + 1)) ** -self.learning_decay
        rate = np.float32(rates[-1])
        # λ begins at random values of mean 1, which fade as all that came before does.
        begun = self.n_words * self.n_topics * float(np.prod(1.0 - rates[:-1]))
        touched = taken.words[:-1]
        pulled = np.vstack([weights[touched], weights[:-1].sum(axis=0)])
        found, loss, tokens = _kernels.topic_statistics(
            taken.rows, taken.words, pulled, theta, self.visit_settings(), begun, statistics=True
        )
        assert found is not None
        gradient = weights * rate
        gradient[touched] -= found * (rate * np.float32(self.documents / max(1, len(theta))))
        gradient[-1] = 0
        gradient[-1, 0] = -1.0
        return gradient, loss, tokens

    # ---------------------------------------------------------------------------------- measuring

    def outputs(self, block: Block, weights: Float32) -> Float32:
        """Topic proportions of each document: (n_rows, n_topics), rows of sum 1."""
        taken = numbered(block, np.arange(block.n_rows, dtype=np.int32))
        theta = self._folded_in(taken, weights)[0]
        mixed: Float32 = theta / theta.sum(axis=1, keepdims=True)
        return mixed

    def loss(self, block: Block, weights: Float32) -> tuple[float, float, float | None]:
        """−log-likelihood of each document's second half, given its first half; and those tokens.

        Document completion (H. Wallach et al., "Evaluation methods for topic models", ICML 2009).
        """
        first, second = halves(numbered(block, np.arange(block.n_rows, dtype=np.int32)))
        theta, pulled = self._folded_in(first, weights)
        settings = self.settings(0, 0.0, variational=False)
        _, loss, tokens = _kernels.topic_statistics(
            second.rows, second.words, pulled, theta, settings, 0.0, statistics=False
        )
        return loss, tokens, None

    def _folded_in(self, taken: Taken, weights: Float32) -> tuple[Float32, Float32]:
        theta = self.beginning(taken)
        totals = whole(weights[:-1])
        pulled = np.vstack([weights[taken.words[:-1]], totals])
        settings = self.settings(*_FOLD_IN, variational=False)
        _kernels.topic_statistics(taken.rows, taken.words, pulled, theta, settings, 0.0, statistics=False)
        return theta, pulled
