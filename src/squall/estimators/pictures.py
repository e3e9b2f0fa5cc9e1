"""Pictures of a training, by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from squall.config import did_you_mean
from squall.errors import DataError, MissingExtraError, SettingError
from squall.estimators.curves import AGAINST, HELD_OUT, beginning, curves, is_wide, wide_marks
from squall.records import HistoryRecord

_COLORS = {"training": "#8c9db5", HELD_OUT: "#c4441c"}
_PANEL = 3.6  # inches
_FEW = 40  # points that are marked


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


def new_axes(n_panels: int, *, shown: bool) -> list[Any]:
    """Axes side by side with one scale of losses; ``shown`` by whatever shows pyplot's figures.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    size = (_PANEL * n_panels + 0.8, _PANEL)
    try:
        if shown:
            from matplotlib import pyplot

            figure = pyplot.figure(figsize=size, layout="constrained")
        else:
            from matplotlib.figure import Figure

            figure = Figure(figsize=size, layout="constrained")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"pictures need {error.name}, which is not installed",
            where="plot",
            fix="pip install 'squall[plot]', or look at `squall plot JOB` in a terminal",
        ) from error
    return list(figure.subplots(1, n_panels, sharey=True, squeeze=False)[0])


def plot_losses(history: Sequence[HistoryRecord], against: Any, ax: Any) -> Any:
    """See :meth:`squall.estimators.base.BaseModel.plot`."""
    asked = check_against(against)
    if ax is not None and len(asked) > 1:
        raise SettingError(
            f"ax is one place, and against={against!r} are {len(asked)}", where="plot", fix='give "time", say'
        )
    panels = new_axes(len(asked), shown=True) if ax is None else [ax]
    for axes, name in zip(panels, asked, strict=True):
        draw_losses(axes, history, name)
    finish(panels)
    return panels if len(panels) > 1 else panels[0]


def draw_losses(axes: Any, history: Sequence[HistoryRecord], against: str) -> None:
    """Losses of a training, on axes of matplotlib.

    Raises
    ------
    DataError
        If there is no loss to draw.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

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
            markersize=3,
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
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=against == "epochs"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: spent.show(max(value, 0.0))))
    axes.set_xlim(left=beginning(spent.of(history)))
    axes.grid(color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def finish(panels: Sequence[Any]) -> None:
    """What panels beside each other have once: the name of the losses, and which is which."""
    panels[0].set_ylabel("loss")
    panels[-1].legend(frameon=False)
