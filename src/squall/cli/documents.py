"""Documents for a topic model, from whatever holds them: a data set, texts, a bag of words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

import squall
from squall.cli.ingest import format_by_name, is_stored, open_given
from squall.cli.show import console
from squall.data.dataset import Dataset
from squall.data.sources import MANIFEST
from squall.errors import DataError, SettingError
from squall.estimators.documents import words_of
from squall.paths import user_path

_LEAST, _MOST = 2, 0.5  # documents that a word is in
_TOP_WORDS, _MOST_TOPICS = 8, 30


def read_documents(data: str, vocabulary: Path | Sequence[str] | None, storage: str | None) -> Dataset:
    """A data set; a folder of texts, each a document; a text, of which each line is; or a bag of words.

    A bag of words is told by its name, or by a ``vocabulary`` in a file.  A vocabulary that is given as
    words, as a model has it, says which of a text are counted; otherwise those that are neither in a
    single document nor in more than half of them.

    Raises
    ------
    SettingError
        If the file is of another kind, by its name.
    DataError
        If it cannot be read.
    """
    folder = user_path(data).is_dir() and not (user_path(data) / MANIFEST).exists()
    if is_stored(data) and not folder:
        return open_given(data, vocabulary=vocabulary if isinstance(vocabulary, Path) else None)
    name = Path(data).name.lower()
    if isinstance(vocabulary, Path) or name.startswith("docword") or ".ldac" in name:
        return squall.read_bow(data, vocabulary=vocabulary or None, storage=storage)
    form = None if folder else format_by_name(name)
    if form is not None:
        raise SettingError(
            f"{data} is a {form} file, by its name, and topics are of texts or of counts of words",
            where="DATA",
            fix="give a text, each line a document, a folder of texts, or a bag of words; of a CSV file "
            "ingest the column: squall ingest news.csv --to news --format text --option column=body",
        )
    chosen: dict[str, Any] = {"min_df": _LEAST, "max_df": _MOST}
    if vocabulary:
        chosen = {"vocabulary": list(vocabulary)}
    return squall.read_text(data, documents="file" if folder else "line", storage=storage, **chosen)


def print_documents(path: str, data: Dataset) -> None:
    """What there is to learn topics from."""
    width = sum(column.width for column in data.columns)
    named = "" if words_of(data) else " without names"
    console.print(f"{path}: {data.n_rows:,} documents of {width:,} words{named}\n", soft_wrap=True)


def check_documents(path: str, data: Dataset) -> None:
    """Refuse a data set of something else before there is a job.

    Raises
    ------
    DataError
        If a column is text.
    """
    text = [column.name for column in data.columns if column.kind == "categorical"]
    if text:
        raise DataError(
            f"it has text in column {text[0]!r}, and topics are of counts of words",
            where=path,
            fix="ingest it with --format text or --format bow",
        )


def print_topics(model: squall.LatentDirichletAllocation) -> None:
    """The likeliest words of each topic, and what share of all tokens is of it; the largest first."""
    sizes = model.components_.sum(axis=1)
    words = model.top_words(_TOP_WORDS)
    order = (-sizes).argsort(kind="stable").tolist()
    console.print(Text("Topics, their share of the tokens, and their likeliest words", "bold"))
    table = Table(box=None, show_header=False, pad_edge=False)
    for justify in ("right", "right", "left"):
        table.add_column(justify=justify, no_wrap=justify == "right")
    for topic in order[:_MOST_TOPICS]:
        table.add_row(str(topic), f"{sizes[topic] / sizes.sum():.1%}", Text(" ".join(words[topic])))
    console.print(table)
    if len(order) > _MOST_TOPICS:
        console.print(f"and {len(order) - _MOST_TOPICS} more (model.top_words())", style="dim")
