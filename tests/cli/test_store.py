"""What docs/store.md says can be typed, typed: one command after the other."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.conftest import make_certificate

ROOT = Path(__file__).parents[2]


def free_ports(count: int) -> int:
    """The first of some ports in a row that nobody uses."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            first = int(probe.getsockname()[1])
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first


class Shell:
    """Runs commands as a user would, a server in the background until the next one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: subprocess.Popen[str] | None = None
        self.shown: list[str] = []

    def type(self, line: str) -> str:
        words = shlex.split(line)
        program = {"squall": [sys.executable, "-m", "squall"], "python": [sys.executable]}[words[0]]
        if words[:2] in (["squall", "store"],) and words[2] in ("serve", "restore"):
            self.end()
            self.server = subprocess.Popen(
                [*program, *words[1:]], cwd=self.folder, stdout=subprocess.PIPE, text=True
            )
            assert self.server.stdout is not None
            while "end it by Ctrl-C" not in (shown := self.server.stdout.readline()):
                assert shown, f"{line} has ended"
                self.shown.append(shown)
            return "".join(self.shown)
        command, _, target = line.partition(" > ")
        done = subprocess.run(
            [*program, *shlex.split(command)[1:]],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        if target:
            (self.folder / target).write_text(done.stdout)
        return done.stdout

    def end(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.send_signal(signal.SIGINT)
            output, _ = server.communicate(timeout=30)
            assert server.returncode == 0, output


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/store.md").read_text()
    port = free_ports(2)
    text = text.replace("0.0.0.0", "127.0.0.1").replace("s3://bucket/store", "snapshots")
    text = text.replace("7070", str(port))
    make_certificate(tmp_path)
    shell = Shell(tmp_path)
    try:
        for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
            for line in block.splitlines():
                output = shell.type(line)
                if " stat " in line:
                    assert "Shards" in output and "Requests" in output
                    served = json.loads(shell.type(f"{line} --json"))
                    assert [s["shard"] for s in served["shards"]] == [0, 1]
                if " snapshot " in line:
                    assert re.fullmatch(r"snapshot \d+\n", output)
        assert any("2 shards" in line for line in shell.shown)
    finally:
        shell.end()
