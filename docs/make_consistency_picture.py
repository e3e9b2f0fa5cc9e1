"""Draw docs/consistency.svg: held-out loss against time in the four consistency modes, as measured here."""

from __future__ import annotations

import sys
from pathlib import Path

import squall

ROOT = Path(__file__).parents[1]
MODES = {"asp": "#c2410c", "ssp": "#7c3aed", "hsp": "#0f766e", "bsp": "#1d4ed8"}
EPOCHS, RUNS = 12, 3
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 400, 70, 48, 150, 52

Curve = list[tuple[float, float]]  # (seconds since training began, held-out loss)


def measure(consistency: str) -> Curve:
    """The curve of the run, out of three, that took the median time."""
    train, test = squall.read_csv(ROOT / "examples" / "data" / "adult.csv.gz", label="income-per-year").split(
        test=0.2, random_state=0
    )
    curves = []
    for seed in range(RUNS):
        model = squall.make_pipeline(
            squall.MinMaxScaler(),
            squall.FeatureHasher(n_features=2**18),
            squall.LogisticRegression(
                epochs=EPOCHS,
                batch_size=64,
                learning_rate=0.1,
                strategy=squall.ParameterServer(consistency),
            ),
        )
        model.fit(train, validation=test, run=squall.Run(workers=2, store="tcp", random_state=seed))
        history = model.history_
        # Time that workers took to start is no matter of consistency.
        began = history[0].time_s - (history[-1].time_s - history[0].time_s) / (EPOCHS - 1)
        curves.append(
            [(r.time_s - began, r.validation_loss) for r in history if r.validation_loss is not None]
        )
    return sorted(curves, key=lambda curve: curve[-1][0])[RUNS // 2]


def draw(curves: dict[str, Curve]) -> str:
    """The picture as SVG."""
    last = max(curve[-1][0] for curve in curves.values())
    losses = [loss for curve in curves.values() for _, loss in curve]
    low, high = min(losses) - 0.001, max(losses) + 0.001

    def x(seconds: float) -> float:
        return LEFT + seconds / last * (WIDTH - LEFT - RIGHT)

    def y(loss: float) -> float:
        return TOP + (high - loss) / (high - low) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="13"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold">Held-out loss on the census, '
        "2 workers, store on TCP</text>",
    ]
    for tick in range(5):
        loss, seconds = low + (high - low) * tick / 4, last * tick / 4
        parts += [
            f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end" fill="#555">{loss:.3f}</text>',
            f'<text x="{x(seconds):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle" '
            f'fill="#555">{seconds:.1f}</text>',
        ]
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle" fill="#555">'
        "seconds of training</text>"
    )
    for number, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{x(seconds):.1f},{y(loss):.1f}" for seconds, loss in curve)
        dots = "".join(f'<circle cx="{x(s):.1f}" cy="{y(v):.1f}" r="3"/>' for s, v in curve)
        at = TOP + 24 + 22 * number
        parts += [
            f'<g stroke="{MODES[name]}" fill="{MODES[name]}">'
            f'<polyline points="{points}" fill="none" stroke-width="2"/>{dots}'
            f'<path d="M{WIDTH - RIGHT + 16} {at - 4}h22" stroke-width="3"/></g>',
            f'<text x="{WIDTH - RIGHT + 46}" y="{at}">{name}, {curve[-1][0]:.1f} s</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Measure and draw."""
    curves = {name: measure(name) for name in MODES}
    squall.shutdown()
    (ROOT / "docs" / "consistency.svg").write_text(draw(curves))


if __name__ == "__main__":
    sys.exit(main())
