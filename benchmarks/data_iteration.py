"""Reading training partitions: bytes a row, MB/s a core, and rows/s where a network is the limit.

Plain and packed partitions of the same synthetic clicks (39 entries of value 1 in 2**20 slots), and
of dense rows, read from a folder by one thread, in turn; rates are of bytes in memory.

    python benchmarks/data_iteration.py
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time

import numpy as np

from squall.data.iterator import MinibatchStream, block_rows
from squall.data.objects import ObjectStore
from squall.data.partitions import read_training
from squall.data.training import write_training
from squall.preprocessing.layout import FeatureLayout
from squall.records import DenseBlock, TrainingManifest
from squall.testing.clicks import clicks

NETWORK = 70e6  # bytes/s that one function gets from S3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = clicks(options.rows)
    layout = FeatureLayout.of(data.columns)
    rng = np.random.default_rng(0)
    dense = [
        DenseBlock(rng.normal(size=(20_000, 100)).astype(np.float32), np.zeros(20_000, np.float32), None)
        for _ in range(options.rows // 100_000)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = ObjectStore(folder)
        encoded = [layout.encode(block) for block in data.blocks()]
        kinds = {}
        for name, blocks, packed in [("clicks, plain", encoded, False), ("clicks, packed", encoded, True),
                                     ("dense", dense, False)]:  # fmt: skip
            began = time.perf_counter()
            kinds[name] = write_training(iter(blocks), store, name.replace(", ", "-"), 0, packed=packed)
            size = kinds[name].memory_bytes
            print(f"{name}: written at {size / (time.perf_counter() - began) / 1e6:,.0f} MB/s")
        best = {name: [0.0, 0.0] for name in kinds}
        for _ in range(options.rounds):  # in turn, so that a slow minute is slow for all
            for name, manifest in kinds.items():
                for i, measure in enumerate((_read, _stream)):
                    best[name][i] = max(best[name][i], manifest.memory_bytes / measure(store, manifest))
        print(f"load {os.getloadavg()[0]:.1f}\n")
        print("| partitions | bytes a row | read, MB/s | as minibatches, MB/s | rows/s at 70 MB/s |")
        print("|---|---|---|---|---|")
        for name, manifest in kinds.items():
            stored = sum(p.bytes for p in manifest.partitions) / manifest.rows
            by_network = NETWORK / stored
            by_reading = best[name][1] / (manifest.memory_bytes / manifest.rows)
            read, stream = (f"{rate / 1e6:,.0f}" for rate in best[name])
            rate = min(by_network, by_reading)
            print(f"| {name} | {stored:.1f} | {read} | {stream} | {rate:,.0f} |")


def _read(store: ObjectStore, manifest: TrainingManifest) -> float:
    """Seconds of CPU to read and verify all partitions."""
    began = time.process_time()
    for info in manifest.partitions:
        read_training(store, info)
    return time.process_time() - began


def _stream(store: ObjectStore, manifest: TrainingManifest) -> float:
    """Seconds of CPU, of all threads, to go through all minibatches of an epoch."""
    height = block_rows(manifest, 1, 256)
    began = time.process_time()
    with MinibatchStream(
        store, manifest, batch_size=256, block_rows=height, n_slots=1, slot=0, epochs=1, seed=0
    ) as stream:
        for _ in stream:
            pass
    return time.process_time() - began


if __name__ == "__main__":
    main()
