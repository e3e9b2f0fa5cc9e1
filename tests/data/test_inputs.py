from __future__ import annotations

import pytest

from squall.data.inputs import find_inputs, local_paths
from squall.errors import DataError, SettingError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "a.csv", "deep/c.txt", ".hidden.txt", "_temporary/d.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    return tmp_path


def names(folder, paths, pattern="*"):
    return [str(p.relative_to(folder)) for p in local_paths(find_inputs(paths, pattern))]


def test_files_folders_patterns_lists_and_urls(folder):
    assert names(folder, folder / "a.txt") == ["a.txt"]
    assert names(folder, folder, "*.txt") == ["a.txt", "b.txt", "deep/c.txt"]
    assert names(folder, f"{folder}/*.txt") == ["a.txt", "b.txt"]
    assert names(folder, f"{folder}/d*/*.txt") == ["deep/c.txt"]
    assert names(folder, [folder / "b.txt", f"{folder}/*.csv"]) == ["b.txt", "a.csv"]
    assert names(folder, (folder / "a.txt").as_uri()) == ["a.txt"]


def test_a_name_with_brackets_is_a_name_first(folder):
    (folder / "x[1].txt").write_text("")
    (folder / "x1.txt").write_text("")
    assert names(folder, folder / "x[1].txt") == ["x[1].txt"]


def test_stamps_and_versions_follow_the_content(folder):
    (found,) = find_inputs(folder / "a.txt")
    stamp, version = found.stamp(), found.version()
    with found.open() as file:
        assert file.read() == b"a.txt"
    (folder / "a.txt").write_text("other")
    assert found.stamp() != stamp and found.version() != version


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://user:secret@bucket/a", "holds a user, password or query"),
        ("s3://bucket/a?token=secret", "holds a query"),
        ("https://host/a", "is not a kind of storage"),
    ],
)
def test_urls_that_are_refused(url, message):
    with pytest.raises(SettingError, match=message) as told:
        find_inputs(url)
    assert "user:" not in str(told.value)


def test_what_is_not_there(folder):
    with pytest.raises(DataError, match="there is no such file"):
        find_inputs(folder / "z.txt")
    with pytest.raises(DataError, match="nothing matches"):
        find_inputs(folder / "*.json")
    with pytest.raises(DataError, match=r"the folder holds no file \*.json"):
        find_inputs(folder, "*.json")
    with pytest.raises(SettingError, match="is a URL: download the file first"):
        local_paths(find_inputs("s3://bucket/key"))
