"""Builds the kernels with sanitizers, and runs each target for some time in a process of its own.

python -m tests.fuzz                              # a minute for each target
python -m tests.fuzz --seconds 300 --only csv,libsvm
python -m tests.fuzz --only csv --seed 7 --iteration 1234     # plays one input again
python -m tests.fuzz --plain ...                  # with the installed kernels: checks answers only
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
_NATIVE = "squall._kernels._native"
_NUMBER = struct.Struct("<q")


def build() -> Path:
    """The extension with sanitizers, made if sources have changed."""
    tools = Path(sys.executable).parent
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    settings = {
        "CMAKE_MAKE_PROGRAM": tools / "ninja",
        "CMAKE_BUILD_TYPE": "None",
        "SQUALL_SANITIZE": "ON",
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind,
    }
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    subprocess.run(
        [tools / "cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *defined], check=True, stdout=sys.stderr
    )
    subprocess.run([tools / "cmake", "--build", BUILD, "--target", "_native"], check=True, stdout=sys.stderr)
    (native,) = BUILD.glob("src/squall/_kernels/_native*.so")
    return native


def environment(native: Path | None) -> dict[str, str]:
    """Of a target's process: the sanitizer is loaded before all else, and Python's memory is its to watch."""
    found = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
    if native is None:
        return found
    compiler = os.environ.get("CXX", "g++")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    return found | {
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "SQUALL_FUZZ_NATIVE": str(native),
    }


def main() -> int:
    """Run the targets that were asked for; 1 if one has found something."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--only", default="", help="targets, with commas between")
    parser.add_argument("--seed", type=int, default=None, help="default: the time")
    parser.add_argument("--iteration", type=int, default=None, help="play this one only")
    parser.add_argument("--plain", action="store_true", help="with the installed kernels, without sanitizers")
    parser.add_argument("--target", default="", help=argparse.SUPPRESS)  # (inside a target's process)
    parser.add_argument("--mark", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        _use_native()
        _run(options)
        return 0
    from tests.fuzz.names import NAMES

    names = options.only.split(",") if options.only else NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"there is no target {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    seed = int(time.time()) if options.seed is None else options.seed
    native = None if options.plain else build()
    BUILD.mkdir(parents=True, exist_ok=True)
    found = [name for name in names if _has_findings(name, seed, options, environment(native))]
    return 1 if found else 0


def _has_findings(name: str, seed: int, options: argparse.Namespace, variables: dict[str, str]) -> bool:
    mark = BUILD / f"{name}.iteration"
    mark.write_bytes(_NUMBER.pack(-1))
    command = [sys.executable, "-m", "tests.fuzz", "--target", name, "--seed", str(seed), "--mark", str(mark)]
    command += ["--seconds", str(options.seconds)]
    if options.iteration is not None:
        command += ["--iteration", str(options.iteration)]
    code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    if code:
        (number,) = _NUMBER.unpack(mark.read_bytes())
        again = f"python -m tests.fuzz --only {name} --seed {seed} --iteration {number}"
        print(f"{name}: ended with code {code}; again: {again}{' --plain' * options.plain}", flush=True)
    return code != 0


def _use_native() -> None:
    """Put the extension with sanitizers where the package expects its own."""
    path = os.environ.get("SQUALL_FUZZ_NATIVE")
    if path is None:
        return
    spec = importlib.util.spec_from_file_location(_NATIVE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NATIVE] = module
    spec.loader.exec_module(module)


def _run(options: argparse.Namespace) -> None:
    from tests.fuzz.names import target

    run, name = target(options.target), options.target
    if options.iteration is not None:
        run(random.Random(f"{name} {options.seed} {options.iteration}"))
        return
    began, number = time.monotonic(), 0
    with options.mark.open("r+b", buffering=0) as mark:
        while time.monotonic() - began < options.seconds:
            mark.seek(0)
            mark.write(_NUMBER.pack(number))  # what a process that dies was doing
            run(random.Random(f"{name} {options.seed} {number}"))
            number += 1
    print(f"{name}: {number:,} inputs in {time.monotonic() - began:.0f} s, nothing found", flush=True)


if __name__ == "__main__":
    sys.exit(main())
