"""Topic models beside scikit-learn, gensim and tomotopy: held-out perplexity, tokens a second, time.

All get the same counts of the same news articles (`python examples/public_sets.py news`), and one piece
of code measures their topics: each held-out document's shares of topics from one half of its tokens,
the likelihood of the other half.  gensim and tomotopy are left out where they are not installed.
Tokens a second are of passes after the first, functions warm; times are wall-clock, of the whole fit.

    python benchmarks/topics.py --topics 50 --passes 5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

import squall
from squall.models.topics import TopicModel
from squall.preprocessing.layout import FeatureLayout

NEWS = Path.home() / ".cache" / "squall-sets" / "NewsArticles.csv"
ALPHA, ETA = 0.1, 0.02
LONG = 60  # passes from which throughput is taken


def perplexity(topics: Any, held_out: squall.Dataset) -> float:
    """Of held-out documents, for topics (n_topics, n_words) that are likelihoods up to a factor."""
    likely = np.asarray(topics, dtype=np.float64)
    likely = likely / likely.sum(axis=1, keepdims=True)
    tokens = 1e6  # of each topic: the prior behind them is as nothing
    model = TopicModel(likely.shape[1], likely.shape[0], doc_topic_prior=ALPHA, topic_word_prior=1e-6)
    weights = np.vstack([tokens * likely.T, np.full(len(likely), tokens)]).astype(np.float32)
    layout = FeatureLayout.of(list(held_out.columns))
    parts = [model.loss(layout.encode(block), weights)[:2] for block in held_out.blocks()]
    loss, n = np.sum(parts, axis=0)
    return float(np.exp(loss / n))


def squalls(train: squall.Dataset, n_tokens: float, options: argparse.Namespace) -> Iterator[Any]:
    settings = {"doc_topic_prior": ALPHA, "topic_word_prior": ETA, "random_state": 0}
    model = squall.LatentDirichletAllocation(options.topics, epochs=options.passes, **settings)
    for store in ("embedded", "tcp"):
        for workers in (1, 2):
            run = squall.Run(workers=workers, store=store)
            model.fit(train, run=run)  # warms functions
            started = time.perf_counter()
            fitted = model.fit(train, run=run)
            took = time.perf_counter() - started
            longer = squall.LatentDirichletAllocation(options.topics, epochs=LONG, **settings)
            times = [record.time_s for record in longer.fit(train, run=run).history_]
            rate = n_tokens * (LONG - 11) / (times[-1] - times[10])
            yield f"squall, {store}, {workers} worker(s)", fitted.components_.copy(), rate, took


def sklearn(X: Any, n_tokens: float, options: argparse.Namespace) -> Iterator[Any]:
    model = LatentDirichletAllocation(
        options.topics, doc_topic_prior=ALPHA, topic_word_prior=ETA, learning_method="online",
        max_iter=options.passes, random_state=0,
    )  # fmt: skip
    started = time.perf_counter()
    model.fit(X)
    took = time.perf_counter() - started
    yield "scikit-learn, online VB", model.components_, n_tokens * options.passes / took, took


def gensim(X: Any, n_tokens: float, options: argparse.Namespace) -> Iterator[Any]:
    try:
        from gensim.models import LdaModel
    except ImportError:
        return
    corpus = [
        list(zip(X.indices[a:b].tolist(), X.data[a:b].astype(int).tolist(), strict=True))
        for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)
    ]
    started = time.perf_counter()
    model = LdaModel(
        corpus, options.topics, dict(enumerate(map(str, range(X.shape[1])))), chunksize=256,
        passes=options.passes, alpha=ALPHA, eta=ETA, random_state=0, eval_every=None,
    )  # fmt: skip
    took = time.perf_counter() - started
    yield "gensim, online VB, chunks of 256", model.get_topics(), n_tokens * options.passes / took, took


def tomotopy(X: Any, n_tokens: float, options: argparse.Namespace) -> Iterator[Any]:
    try:
        import tomotopy
    except ImportError:
        return
    model = tomotopy.LDAModel(k=options.topics, alpha=ALPHA, eta=ETA, seed=0)
    for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        model.add_doc(np.repeat(X.indices[a:b], X.data[a:b].astype(int)).astype(str).tolist())
    started = time.perf_counter()
    model.train(100, workers=1)
    took = time.perf_counter() - started
    known = np.array([int(word) for word in model.used_vocabs])
    topics = np.full((options.topics, X.shape[1]), 1e-9)
    for k in range(options.topics):
        topics[k, known] = model.get_topic_word_dist(k)
    yield "tomotopy, Gibbs, 100 passes", topics, n_tokens * 100 / took, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    if not NEWS.exists():
        print("the articles are missing: python examples/public_sets.py news")
        return
    data = squall.read_text(
        NEWS, column="text", max_features=10_000, stop_words=sorted(ENGLISH_STOP_WORDS), errors="skip"
    )
    train, test = data.split(test=0.1, random_state=0)
    X = train.to_arrays()[0].tocsr()
    n_tokens = float(X.sum())
    print(
        f"{train.n_rows:,} documents, {n_tokens:,.0f} tokens, {X.shape[1]:,} words, {options.topics} topics"
    )
    print(f"{'':34}{'perplexity':>10}{'tokens/s':>11}{'time':>9}")
    for contenders in (squalls(train, n_tokens, options), *(c(X, n_tokens, options) for c in PEERS)):
        for name, topics, rate, took in contenders:
            print(f"{name:34}{perplexity(topics, test):10,.0f}{rate / 1e6:9.2f} M{took:8.2f} s", flush=True)


PEERS = (sklearn, gensim, tomotopy)

if __name__ == "__main__":
    main()
