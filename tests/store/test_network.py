"""Two hosts with a cable between them, as network namespaces: what a cut link does to a client."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PYTHON = sys.executable
STORE_HOST, CLIENT_HOST = "10.213.77.1", "10.213.77.2"

CLIENT = """
import sys, time
import numpy as np
from squall.errors import StoreLostError
from squall.records import OptimizerSpec, Stamp, TableSpec
from squall.store import connect

address, seconds = sys.argv[1], float(sys.argv[2])
rows, ones = np.arange(10), np.ones((10, 1), dtype=np.float32)
with connect(address, "between us and nobody else", lambda: seconds) as store:
    store.control.open_job("job", 1)
    store.tables.create(TableSpec("job/w", 10, 1, OptimizerSpec("sgd", 1.0), 10))
    store.control.register("job", 0, 0, 1)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        try:
            store.tables.push("job/w", rows, ones, Stamp(0, 0, number, number + 1))
            print("pushed", store.tables.pull("job/w", rows)[0, 0], flush=True)
        except StoreLostError as error:
            print("lost", str(error).partition("\\n")[0], flush=True)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Cable:
    """Two namespaces, ``store`` and ``client``, and a link between them."""

    def __init__(self) -> None:
        tag = f"sq{os.getpid() % 100_000}"
        self.store, self.client = f"{tag}s", f"{tag}c"
        self.undo = contextlib.ExitStack()
        for name in (self.store, self.client):
            ip("netns", "add", name)
            self.undo.callback(ip, "netns", "del", name)
        ip("link", "add", self.store, "netns", self.store, "type", "veth",
           "peer", "name", self.client, "netns", self.client)  # fmt: skip
        for name, address in ((self.store, STORE_HOST), (self.client, CLIENT_HOST)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def cut(self) -> None:
        ip("-n", self.client, "link", "set", self.client, "down")

    def mend(self) -> None:
        ip("-n", self.client, "link", "set", self.client, "up")


@pytest.fixture
def cable() -> Iterator[Cable]:
    try:
        made = Cable()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this machine allows no network namespaces: {error}")
    with made.undo:
        yield made


@contextlib.contextmanager
def process(namespace: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "SQUALL_STORE_TOKEN": "between us and nobody else"}
    with subprocess.Popen(
        ["ip", "netns", "exec", namespace, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as popen:
        try:
            yield popen
        finally:
            popen.terminate()


@pytest.fixture
def address(cable: Cable) -> Iterator[str]:
    squall = str(Path(PYTHON).parent / "squall")
    with process(cable.store, squall, "store", "serve", "--listen", f"tcp://{STORE_HOST}:0") as server:
        assert server.stdout is not None
        found = re.search(rf"tcp://{STORE_HOST}:\d+", server.stdout.readline())
        assert found is not None
        yield found[0]


def say(client: subprocess.Popen[str]) -> None:
    assert client.stdin is not None
    client.stdin.write("push\n")
    client.stdin.flush()


def told(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    return client.stdout.readline().strip()


def test_a_link_that_is_cut_and_mended_loses_and_doubles_nothing(cable: Cable, address: str) -> None:
    with process(cable.client, PYTHON, "-c", CLIENT, address, "30") as client:
        assert told(client) == "ready"
        say(client)
        assert told(client) == "pushed -1.0"
        cable.cut()
        say(client)
        time.sleep(1.0)
        cable.mend()
        assert told(client) == "pushed -2.0"
        say(client)
        assert told(client) == "pushed -3.0"


def test_a_link_that_stays_cut_is_told_in_time_and_forgotten_when_mended(cable: Cable, address: str) -> None:
    with process(cable.client, PYTHON, "-c", CLIENT, address, "1.5") as client:
        assert told(client) == "ready"
        cable.cut()
        say(client)
        assert told(client).startswith(f"lost {address}: ")
        cable.mend()
        say(client)
        assert re.fullmatch(r"pushed -[12]\.0", told(client)), "the first push may have arrived"
