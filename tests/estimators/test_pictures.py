"""Curves of a training, and their pictures."""

from __future__ import annotations

import builtins
import math

import numpy as np
import pytest

import squall
from squall.cli.chart import chart, fits
from squall.errors import DataError, MissingExtraError, SettingError
from squall.estimators.curves import AGAINST, Curve, beginning, curves, marks, wide_marks
from squall.estimators.history import History
from squall.estimators.pictures import plot_losses
from squall.records import HistoryRecord, Phases

HISTORY = History(
    HistoryRecord(n, 2.0 + 0.1 * n, 100, 1.0 / n, 0.5 if n % 2 else None, 1e-5 * n, 1, Phases())
    for n in range(1, 31)
)


def test_curves_leave_out_what_was_not_measured():
    training, held_out = curves(HISTORY, "rows")
    assert training.x.tolist() == [100.0 * n for n in range(1, 31)]
    assert held_out.x.tolist() == [100.0 * n for n in range(1, 31, 2)]
    lost = HistoryRecord(1, 1.0, 100, math.nan, None, 0.0, 1, Phases())
    assert curves([lost], "time") == []


@pytest.mark.parametrize(("low", "high", "at_most"), [(0.0, 7.3, 4), (-2e-5, 9e-5, 5), (3.01, 3.02, 3)])
def test_marks_are_round_and_inside(low, high, at_most):
    found = marks(low, high, at_most)
    assert 1 < len(found) <= at_most
    assert all(low <= mark <= high for mark in found)
    assert np.ptp(np.diff(found)) < 1e-9
    assert marks(2.0, 2.0, 3) == [2.0]


@pytest.mark.parametrize(
    ("against", "high", "expected"),
    [
        ("time", 70.0, [0, 20, 40, 60]),
        ("time", 1000.0, [0, 300, 600, 900]),
        ("time", 9000.0, [0, 3600, 7200]),
        ("epochs", 1.0, [0, 1]),
        ("epochs", 8.0, [0, 2, 4, 6, 8]),
    ],
)
def test_marks_are_whole_epochs_and_minutes(against, high, expected):
    assert AGAINST[against].marks(0.0, high, 5) == expected


def test_marks_of_a_wide_axis():
    assert wide_marks(0.04, 2.0, 8) == pytest.approx([0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    assert wide_marks(1e-7, 1.0, 4)[0] >= 1e-7
    assert len(wide_marks(1e-7, 1.0, 4)) <= 4


def test_an_axis_begins_an_epoch_before_the_first():
    assert beginning(np.array([2.1, 2.2, 2.3])) == pytest.approx(2.0)
    assert beginning(np.array([0.1, 2.2])) == 0.0
    assert beginning(np.array([2.1])) == 0.0


def drawn(shown, width=60, height=8, **settings):
    lines = chart(shown, width, height, against=AGAINST["rows"], **settings)
    return [line.plain for line in lines]


def test_a_chart_has_the_size_it_is_given():
    for width in (40, 60, 133):
        lines = drawn(curves(HISTORY, "rows"), width)
        assert len(lines) == 10
        assert max(map(len, lines[:-1])) <= width
    text = "\n".join(lines)
    assert "held-out 0.5" in text
    assert "training 0.03333" in text
    assert lines[-1].endswith("rows")


def test_a_line_that_falls_is_drawn_from_top_left_to_bottom_right():
    falling = Curve("training", np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]))
    lines = drawn([falling], braille=False)
    columns = [line.partition("|")[2].find("o") for line in lines[:8] if "o" in line.partition("|")[2]]
    assert columns == sorted(columns)
    assert columns[-1] > columns[0] + 10
    assert all(ord(c) < 128 for line in lines for c in line)


def test_names_at_one_height_stand_on_lines_of_their_own():
    x = np.array([1.0, 2.0])
    lines = drawn([Curve("training", x, np.array([1.0, 0.0])), Curve("held-out", x, np.array([0.5, 0.0]))])
    assert sum(name in line for line in lines for name in ("training", "held-out")) == 2


def test_a_single_epoch_can_be_seen():
    assert any(0x2800 < ord(c) <= 0x28FF for line in drawn(curves(HISTORY[:1], "rows")) for c in line)


def test_what_a_terminal_can_show():
    assert fits("utf-8")
    assert not fits("ascii")
    assert not fits(None)


# ----------------------------------------------------------------------------------- matplotlib


@pytest.fixture
def agg(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    yield matplotlib
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture
def fitted():
    model = squall.LogisticRegression(epochs=1)
    model.columns_in_, model.history_ = [], HISTORY
    return model


@pytest.mark.usefixtures("agg")
def test_a_model_is_plotted_in_panels(fitted):
    panels = fitted.plot()
    assert [panel.get_xlabel() for panel in panels] == ["time", "rows", "cost"]
    training, held_out = panels[1].get_lines()
    assert training.get_label() == "training"
    np.testing.assert_array_equal(held_out.get_xdata(), [100.0 * n for n in range(1, 31, 2)])
    axes = fitted.plot(against="epochs")
    assert fitted.plot(against="time", ax=axes) is axes


@pytest.mark.usefixtures("agg")
def test_a_single_epoch_is_in_the_middle_of_its_panels(fitted):
    fitted.history_ = HISTORY[:1]
    for panel in fitted.plot():
        (low, high), (x,) = panel.get_xlim(), panel.get_lines()[0].get_xdata()
        assert low + 0.4 * (high - low) < x < low + 0.6 * (high - low)


def test_wrong_settings_of_a_plot_are_told(fitted):
    with pytest.raises(SettingError, match=r"against='tyme' is unknown; .*did you mean \"time\""):
        fitted.plot(against="tyme")
    with pytest.raises(SettingError, match=r"kind='topics' is unknown; choose from loss"):
        fitted.plot("topics")
    with pytest.raises(SettingError, match="ax is one place"):
        fitted.plot(ax=object())
    with pytest.raises(SettingError, match="nothing to draw"):
        fitted.plot(against=[])


@pytest.mark.usefixtures("agg")
def test_topics_are_bars_of_their_likeliest_words_the_largest_topic_first():
    counts = np.array([[1.0, 0, 5, 0], [9.0, 3, 0, 4]])
    model = squall.LatentDirichletAllocation(2)
    model.columns_in_, model.components_, model.words_ = [], counts, ["ape", "b" * 30, "cat", "dog"]
    panels = model.plot("topics")
    assert [panel.get_title(loc="left").split(",")[0] for panel in panels] == ["topic 1", "topic 0"]
    assert [text.get_text() for text in panels[0].get_yticklabels()] == ["ape", "dog", "b" * 19 + "…", "cat"]
    assert [bar.get_width() for bar in panels[0].patches] == pytest.approx([9 / 16, 4 / 16, 3 / 16, 0])
    with pytest.raises(SettingError, match="each topic has a panel"):
        model.plot("topics", ax=panels[0])


@pytest.mark.usefixtures("agg")
def test_nothing_to_draw_is_an_error():
    with pytest.raises(DataError, match="no epoch has ended"):
        plot_losses(History(), "time", None)


def test_without_matplotlib_the_extra_is_named(fitted, monkeypatch):
    load = builtins.__import__

    def fail(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("no", name="matplotlib")
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(MissingExtraError, match=r"squall\[plot\]"):
        fitted.plot()
