"""Strategies beside each other: held-out loss after some epochs, and what travels for it.

The census (26,049 rows to train on) with two workers whose store is reached by TCP, once as 108 one-hot
columns and once hashed into 2**16.  The best of three learning rates is taken for each, by its loss in
the end.  Bytes are those of models and gradients, sent and received, all workers together; what each run
reads of the data is left out.  Runs of one repetition are interleaved.

    python benchmarks/strategies.py --repeat 3
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import squall

CENSUS = Path(__file__).parents[1] / "examples" / "data" / "adult.csv.gz"
EPOCHS = (1, 5, 10)
RATES = (0.3, 1.0, 3.0)


class Ran(NamedTuple):
    """What one run gave."""

    losses: tuple[float, ...]  # after EPOCHS
    megabytes: float  # an epoch
    seconds: float  # an epoch, the first one left out


STRATEGIES: dict[str, tuple[Any, str]] = {
    'ParameterServer("asp")': (squall.ParameterServer("asp"), "tcp"),
    'ParameterServer("bsp")': (squall.ParameterServer("bsp"), "tcp"),
    'ModelAveraging("epoch")': (squall.ModelAveraging("epoch"), "tcp"),
    "ModelAveraging(100)": (squall.ModelAveraging(100), "tcp"),
    "ModelAveraging(20)": (squall.ModelAveraging(20), "tcp"),
    'ModelAveraging("epoch"), object store': (squall.ModelAveraging("epoch"), "folder"),
}


def steps(encoding: str) -> list[Any]:
    """What makes the columns."""
    if encoding == "one-hot":
        return [squall.MinMaxScaler(), squall.OneHotEncoder()]
    return [squall.MinMaxScaler(), squall.FeatureHasher(n_features=2**16)]


def run(strategy: Any, store: str, encoding: str, rate: float, folder: str) -> Ran:
    """One run to the last epoch."""
    train, test = squall.read_csv(CENSUS, label="income-per-year").split(test=0.2, random_state=0)
    final = squall.LogisticRegression(epochs=EPOCHS[-1], batch_size=64, learning_rate=rate, strategy=strategy)
    where = squall.Run(
        workers=2,
        storage=f"{folder}/storage",
        store=f"file://{folder}/store" if store == "folder" else store,
    )
    model = squall.make_pipeline(*steps(encoding), final).fit(train, validation=test, run=where)
    history = model.history_
    data = fetched(encoding, folder)
    moved = sum(r.phases.bytes_in + r.phases.bytes_out for r in history) / len(history) - data
    return Ran(
        tuple(float(history[epoch - 1].validation_loss or "nan") for epoch in EPOCHS),
        moved / 1e6,
        (history[-1].time_s - history[0].time_s) / (len(history) - 1),
    )


_fetched: dict[str, float] = {}


def fetched(encoding: str, folder: str) -> float:
    """Bytes of the data that two workers read an epoch, where nothing else travels: in mapped memory."""
    if encoding not in _fetched:
        train = squall.read_csv(CENSUS, label="income-per-year").split(test=0.2, random_state=0)[0]
        final = squall.LogisticRegression(epochs=EPOCHS[-1], batch_size=64, learning_rate=0.1)
        where = squall.Run(workers=2, storage=f"{folder}/storage")
        history = squall.make_pipeline(*steps(encoding), final).fit(train, run=where).history_
        _fetched[encoding] = sum(r.phases.bytes_in for r in history) / len(history)
    return _fetched[encoding]


def last_loss(runs: list[Ran]) -> float:
    """The loss in the end."""
    return statistics.median(ran.losses[-1] for ran in runs)


def main() -> None:
    """Measure, and print a table for each encoding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    for encoding in ("one-hot", "hashed"):
        with tempfile.TemporaryDirectory() as folder:
            ran: dict[str, dict[float, list[Ran]]] = {}
            for _ in range(repeat):
                for name, (strategy, store) in STRATEGIES.items():
                    for rate in RATES:
                        result = run(strategy, store, encoding, rate, folder)
                        ran.setdefault(name, {}).setdefault(rate, []).append(result)
        print(f"\n{encoding}: held-out loss after {EPOCHS} epochs, medians of {repeat}")
        for name, by_rate in ran.items():
            rate, best = min(
                by_rate.items(), key=lambda item: statistics.median(r.losses[-1] for r in item[1])
            )
            losses = [statistics.median(r.losses[i] for r in best) for i in range(len(EPOCHS))]
            told = "  ".join(f"{loss:.4f}" for loss in losses)
            megabytes = statistics.median(r.megabytes for r in best)
            seconds = statistics.median(r.seconds for r in best)
            print(f"{name:38} rate {rate:<4g} {told}   {megabytes:9.4f} MB/epoch  {seconds:.3f} s/epoch")


if __name__ == "__main__":
    main()
