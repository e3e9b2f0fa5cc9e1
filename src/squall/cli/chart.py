"""Line charts as text: braille dots, eight to a character, or letters where there is no braille."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.text import Text

from squall.estimators.curves import HELD_OUT, Curve, Spent, beginning, is_wide, marks, wide_marks
from squall.records import Float64

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column and row of a character
_STYLES = {HELD_OUT: "bold red"}
_OTHER = "cyan"
_LEAST_WIDTH = 16


class Canvas:
    """Characters of 2 × 4 dots; each dot belongs to the curve that was drawn there last."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._owner = np.full((4 * height, 2 * width), -1)

    def line(self, owner: int, x: Float64, y: Float64, *, dashed: bool) -> None:
        """Draw a line through points in [0, 1]²; a point alone is four dots."""
        rows, columns = self._owner.shape
        across = np.rint(x * (columns - 1)).astype(int)
        down = np.rint((1.0 - y) * (rows - 1)).astype(int)
        if len(x) == 1:
            c, r = min(across[0], columns - 2), min(down[0], rows - 2)
            self._owner[r : r + 2, c : c + 2] = owner
        drawn = 0
        for i in range(len(x) - 1):
            n = max(abs(across[i + 1] - across[i]), abs(down[i + 1] - down[i]), 1)
            for step in range(n + 1):
                c = round(across[i] + (across[i + 1] - across[i]) * step / n)
                r = round(down[i] + (down[i + 1] - down[i]) * step / n)
                if not dashed or drawn % 4 < 2:
                    self._owner[r, c] = owner
                drawn += step < n

    def rows(self, styles: Sequence[str], letters: str | None) -> list[Text]:
        """Its lines; with ``letters``, one for each curve, instead of braille."""
        return [
            Text.assemble(*(self._cell(r, c, styles, letters) for c in range(self.width)))
            for r in range(self.height)
        ]

    def _cell(self, row: int, column: int, styles: Sequence[str], letters: str | None) -> tuple[str, str]:
        owners = self._owner[4 * row : 4 * row + 4, 2 * column : 2 * column + 2]
        top = int(owners.max())
        if top < 0:
            return " ", ""
        if letters is not None:
            return letters[top], styles[top]
        lit = sum(_DOTS[c][r] for c in range(2) for r in range(4) if owners[r, c] >= 0)
        return chr(0x2800 + lit), styles[top]


def chart(
    shown: Sequence[Curve],
    width: int,
    height: int,
    *,
    against: Spent,
    braille: bool = True,
) -> list[Text]:
    """Curves with axes, as ``height`` lines of at most ``width`` characters, and two below them.

    The first curve is dashed if there are several, so that they can be told apart without colours too.
    """
    wide = is_wide(shown)
    scale: Callable[[Float64], Float64] = np.log10 if wide else np.asarray
    low, high = _range(shown, wide=wide)
    ticks = (wide_marks if wide else marks)(low, high, max(2, height // 3))
    texts = _alike(ticks)
    left = max(map(len, texts), default=0)
    ends = [f" {curve.name} {curve.y[-1]:.4g}" for curve in shown]
    canvas = Canvas(max(_LEAST_WIDTH, width - left - 2 - max(map(len, ends))), height)
    bottom, top = float(scale(np.array(low))), float(scale(np.array(high)))
    first = min(beginning(curve.x) for curve in shown)
    last = max(max(float(curve.x[-1]) for curve in shown), first + 1e-9)
    styles = [_STYLES.get(curve.name, _OTHER) for curve in shown]
    heights = []
    for i, curve in enumerate(shown):
        y = (scale(curve.y) - bottom) / (top - bottom)
        canvas.line(i, (curve.x - first) / (last - first), y, dashed=len(shown) > 1 and i == 0)
        heights.append(float(y[-1]))
    beside = _beside(heights, height)
    at = {
        round((1 - (float(scale(np.array(t))) - bottom) / (top - bottom)) * (height - 1)): s
        for t, s in zip(ticks, texts, strict=True)
    }
    wall, tick = ("│", "┤") if braille else ("|", "+")
    lines = []
    for r, row in enumerate(canvas.rows(styles, None if braille else "ox")):
        edge = tick if r in at else wall
        line = Text.assemble((f"{at.get(r, ''):>{left}} {edge}", "dim"), row)
        if r in beside:
            line.append(ends[beside[r]], styles[beside[r]])
        lines.append(line)
    return [*lines, *_below(left, canvas.width, (first, last), against, braille=braille)]


def _range(shown: Sequence[Curve], *, wide: bool) -> tuple[float, float]:
    values = np.concatenate([curve.y for curve in shown])
    low, high = float(values.min()), float(values.max())
    if wide:
        return low / 1.05, high * 1.05
    margin = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _alike(ticks: Sequence[float]) -> list[str]:
    """Numbers with as many digits as tell them apart."""
    for digits in range(3, 16):
        texts = [f"{tick:.{digits}g}" for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    places = max((len(text.partition(".")[2]) for text in texts if "e" not in text), default=0)
    return [text if "e" in text else f"{float(text):.{places}f}" for text in texts]


def _beside(heights: Sequence[float], n_lines: int) -> dict[int, int]:
    """Curves by the line at whose end their names stand: where they end, and no two on one line."""
    beside: dict[int, int] = {}
    for i in sorted(range(len(heights)), key=lambda i: -heights[i]):
        line = round((1 - heights[i]) * (n_lines - 1))
        while line in beside:
            line += 1
        if line >= n_lines:  # those above make room
            beside = {at - 1: name for at, name in beside.items()}
            line = n_lines - 1
        beside[line] = i
    return beside


def _below(
    left: int,
    width: int,
    ends: tuple[float, float],
    against: Spent,
    *,
    braille: bool,
) -> list[Text]:
    """The axis, and what has been spent along it."""
    first, last = ends
    ticks = against.marks(first, last, max(2, width // 14))
    corner, dash, tick = ("└", "─", "┬") if braille else ("+", "-", "+")
    axis, words = [dash] * width, [" "] * (left + width + 24)
    end = 0
    for mark in ticks:
        at = round((mark - first) / (last - first) * (width - 1))
        text = "0" if mark == 0 else against.show(mark)
        start = max(0, left + 2 + at - len(text) // 2)
        if start < end + 2 and end:
            continue
        axis[at] = tick
        words[start : start + len(text)] = text
        end = start + len(text)
    told = "".join(words).rstrip()
    return [Text(f"{'':>{left}} {corner}{''.join(axis)}", "dim"), Text(f"{told}  {against.label}", "dim")]


def fits(encoding: str | None) -> bool:
    """Whether text of this encoding has braille."""
    try:
        "⣿│┤└─┬".encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
