from __future__ import annotations

from collections.abc import Iterator

import pytest

from squall.data.objects import ObjectStore
from squall.data.remote import close_connections
from squall.testing.s3 import S3Server, seaweedfs


@pytest.fixture
def store(tmp_path):
    return ObjectStore(tmp_path / "objects")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that runs until the tests of the process have ended."""
    with seaweedfs(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a bucket, and for the time of a test what reaches it."""
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    yield s3_server.url
    close_connections()
