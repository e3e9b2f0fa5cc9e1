"""Private memory of a 128 MB function while it trains on more and more rows.

Synthetic clicks are made as they are read, so the client's memory is bounded, too.

    python benchmarks/memory.py --rows 100000,1000000,10000000
"""

from __future__ import annotations

import argparse
import resource
import time

import squall
from squall.testing.clicks import clicks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="100000,1000000,10000000")
    parser.add_argument("--memory", default="128MB", help="of a function")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"| rows | functions of {options.memory} | peak private MB, each | client's peak MB | s | loss |")
    print("|---|---|---|---|---|---|")
    for rows in map(int, options.rows.split(",")):
        run = squall.Run(workers=options.workers, memory=options.memory)
        began = time.perf_counter()
        job = squall.submit(squall.LogisticRegression(epochs=1, random_state=0), clicks(rows), run=run)
        model = job.wait()
        seconds = time.perf_counter() - began
        peaks = [a.outcome.peak_memory / 2**20 for a in job.status().attempts if a.outcome]
        client = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shown = ", ".join(f"{peak:.1f}" for peak in peaks)
        loss = model.history_[-1].loss
        print(
            f"| {rows:,} | {options.workers} | {shown} | {client:.0f} | {seconds:.0f} | {loss:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
