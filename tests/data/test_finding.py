from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import squall
from squall.data.finding import find_below, find_inputs
from squall.errors import DataError, SettingError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "a.csv", "deep/c.txt", ".hidden.txt", "_temporary/d.txt", "deep/_e.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(name)
    return tmp_path / "in"


def names(folder, paths, pattern="*"):
    return [str(Path(found.name).relative_to(folder)) for found in find_inputs(paths, pattern)]


def test_files_folders_patterns_lists_and_urls(folder):
    assert names(folder, folder / "a.txt") == ["a.txt"]
    assert names(folder, folder, "*.txt") == ["a.txt", "b.txt", "deep/c.txt"]
    assert names(folder, folder.as_uri()) == ["a.csv", "a.txt", "b.txt", "deep/c.txt"]
    assert names(folder, f"{folder}/?.txt") == ["a.txt", "b.txt"], "a pattern names files, not folders"
    assert names(folder, f"{folder}/d*/*.txt") == ["deep/_e.txt", "deep/c.txt"]
    assert names(folder, f"{folder}/**/c.txt") == ["deep/c.txt"]
    assert names(folder, [folder / "b.txt", f"{folder}/*.csv"]) == ["b.txt", "a.csv"]
    assert names(folder, (folder / "a.txt").as_uri()) == ["a.txt"]
    assert [name for name, _ in find_below([folder / "deep", folder / "a.txt"])] == ["c.txt", ""]


def test_a_name_with_brackets_is_a_name_first(folder):
    (folder / "x [1].txt").write_text("")
    (folder / "x 1.txt").write_text("")
    assert names(folder, folder / "x [1].txt") == ["x [1].txt"]
    assert names(folder, (folder / "x [1].txt").as_uri()) == ["x [1].txt"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://user:secret@bucket/a", "holds a user or password"),
        ("s3://bucket/a?token=secret", "holds a query"),
        ("https://host/a?secret", "holds a query"),
        ("ftp://host/a", "ftp:// is not read"),
        ("s3://bucket", r"names no object; write s3://bucket/name, or s3://bucket/ for all"),
        ("http://host/", "names no object"),
        ("", "names no file"),
        ([], "names no file"),
        ([1], "path=1 is not a path"),
        (None, "path=None is not a path"),
    ],
)
@pytest.mark.parametrize("read", ["read_csv", "read_libsvm", "read_parquet", "read_ratings", "read_text"])
def test_paths_that_no_reader_takes(read, path, message):
    with pytest.raises(SettingError, match=message) as told:
        getattr(squall, read)(path)
    assert "secret" not in str(told.value)


def test_what_is_not_there(folder):
    with pytest.raises(DataError, match=r"there is no such file\n  fix: did you mean 'a.txt'"):
        find_inputs(folder / "aa.txt")
    with pytest.raises(DataError, match="no file matches the pattern"):
        find_inputs(folder / "*.json")
    with pytest.raises(DataError, match=r"the folder holds no file \*.json"):
        find_inputs(folder, "*.json")
    with pytest.raises(DataError, match="this is a pipe or a device"):
        find_inputs("/dev/null")
    with pytest.raises(SettingError, match="means 2 files: name one"):
        squall.read_bow(folder / "?.txt")


def test_folders_that_cannot_be_looked_into_are_not_left_out(folder, monkeypatch):
    listed = os.scandir

    def scandir(path):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    (folder / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    for path in (folder, folder / "**" / "*.txt", folder / "closed", folder / "closed" / "*.txt"):
        with pytest.raises(
            DataError, match=r"closed: it cannot be read: .*\n  fix: give this user the right"
        ):
            find_inputs(path)
    assert len(find_inputs(folder / "*.txt")) == 2
