"""Pictures of a training, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from squall.config import did_you_mean
from squall.errors import DataError, MissingExtraError, SettingError
from squall.estimators.curves import AGAINST, HELD_OUT, beginning, curves, is_wide, wide_marks
from squall.records import Float64, HistoryRecord

_COLORS = {"training": "#8c9db5", HELD_OUT: "#c4441c"}
_PANEL = 3.6  # inches
_FEW = 40  # points that are marked
_TOPICS, _WORDS, _LONGEST = 12, 8, 20  # topics shown, their words, and the letters of a word


def check_against(against: Any) -> list[str]:
    """What losses are to be drawn against, as a list.

    Raises
    ------
    SettingError
        If that is none of :data:`squall.estimators.curves.AGAINST`.
    """
    asked = [against] if isinstance(against, str) else list(against)
    for name in asked:
        if name not in AGAINST:
            raise SettingError(
                f"against={name!r} is unknown; choose from {', '.join(AGAINST)}{did_you_mean(name, AGAINST)}",
                where="plot",
            )
    if not asked:
        raise SettingError("against=[] leaves nothing to draw", where="plot", fix='give "time", say')
    return asked


def new_axes(n_rows: int, n_columns: int, *, shown: bool, alike: bool = True) -> list[Any]:
    """Axes row by row, if ``alike`` with one scale; ``shown`` by whatever shows pyplot's figures.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    size = (_PANEL * n_columns + 0.8, _PANEL * n_rows)
    try:
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        layout = ConstrainedLayoutEngine(w_pad=0.1)
        if shown:
            from matplotlib import pyplot

            figure = pyplot.figure(figsize=size, layout=layout)
        else:
            from matplotlib.figure import Figure

            figure = Figure(figsize=size, layout=layout)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"pictures need {error.name}, which is not installed",
            where="plot",
            fix="pip install 'squall[plot]', or look at `squall plot JOB` in a terminal",
        ) from error
    return list(figure.subplots(n_rows, n_columns, sharey=alike, squeeze=False).flat)


def plot_losses(history: Sequence[HistoryRecord], against: Any, ax: Any) -> Any:
    """See :meth:`squall.estimators.base.BaseModel.plot`."""
    asked = check_against(against)
    if ax is not None and len(asked) > 1:
        raise SettingError(
            f"ax is one place, and against={against!r} are {len(asked)}", where="plot", fix='give "time", say'
        )
    panels = new_axes(1, len(asked), shown=True) if ax is None else [ax]
    for axes, name in zip(panels, asked, strict=True):
        draw_losses(axes, history, name)
    finish(panels)
    return panels if len(panels) > 1 else panels[0]


def plot_topics(topics: Float64, shares: Float64, words: Sequence[str], ax: Any) -> list[Any]:
    """The likeliest words of the largest topics, a panel each, as bars.

    Parameters
    ----------
    topics : (n_topics, n_words)
        How likely each word is in each topic.
    shares : (n_topics,)
        What part of all tokens is of each.
    words : sequence of str
        Their names; empty for the numbers of columns.
    ax
        Must be None.

    Raises
    ------
    SettingError
        If there is only one place to draw.
    """
    if ax is not None:
        raise SettingError("ax is one place, and each topic has a panel", where="plot", fix="leave ax out")
    largest = np.argsort(-shares, kind="stable")[:_TOPICS]
    n_columns = min(3, len(largest))
    panels = new_axes(-(-len(largest) // n_columns), n_columns, shown=True, alike=False)
    for axes, topic in zip(panels, largest.tolist(), strict=False):
        best = np.argsort(-topics[topic], kind="stable")[:_WORDS]
        names = [words[i] if len(words) else str(i) for i in best]
        axes.barh(range(len(best)), topics[topic][best], color=_COLORS["training"])
        axes.set_yticks(range(len(best)), [_shortened(name) for name in names])
        axes.invert_yaxis()
        axes.locator_params(axis="x", nbins=3)
        axes.set_title(f"topic {topic}, {shares[topic]:.1%} of the tokens", fontsize="medium", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(largest) :]:
        axes.set_axis_off()
    return panels[: len(largest)]


def _shortened(word: str) -> str:
    return word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"


def draw_losses(axes: Any, history: Sequence[HistoryRecord], against: str) -> None:
    """Losses of a training, on axes of matplotlib.

    Raises
    ------
    DataError
        If there is no loss to draw.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

    shown, spent = curves(history, against), AGAINST[against]
    if not shown:
        raise DataError("no epoch has ended with a loss that could be drawn", where="plot")
    for curve in shown:
        few = len(curve.x) <= _FEW
        axes.plot(
            curve.x,
            curve.y,
            color=_COLORS[curve.name],
            label=curve.name,
            marker="o" if few else None,
            markersize=3 if len(curve.x) > 1 else 6,
            linewidth=1.6,
            zorder=3 if curve.name == HELD_OUT else 2,
        )
    if is_wide(shown):
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(FixedLocator(wide_marks(low, high, 8)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(spent.label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: spent.show(max(value, 0.0))))
    first, last = beginning(x := spent.of(history)), float(x[-1])
    if len(x) == 1:  # in the middle, where a point is seen
        last *= 2
        axes.margins(y=0.5)
    if last > first:
        axes.set_xlim(first, last + 0.03 * (last - first))
    ticks = spent.marks(first, last, 3 if against == "cost" else 4)
    if len(ticks) > 1:
        axes.xaxis.set_major_locator(MultipleLocator(ticks[1] - ticks[0]))
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def finish(panels: Sequence[Any]) -> None:
    """What panels beside each other have once: the name of the losses, and which is which."""
    panels[0].set_ylabel("loss")
    panels[-1].legend(frameon=False)
