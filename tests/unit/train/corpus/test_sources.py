"""Sources by their names: which documents they give, and what is refused."""

from __future__ import annotations

import gzip
import json
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headstart.errors import ConfigError, UnsupportedError
from headstart.train.corpus.sources import parse_sources


def documents(name: str | Path) -> list[bytes]:
    return [document for source in parse_sources([str(name)]) for document in source.documents()]


def test_a_text_file_is_a_document(tmp_path):
    path = tmp_path / "a:b.txt"
    path.write_bytes(b"\n one\r\ntwo \n")
    assert documents(f"text:{path}") == [b"\n one\r\ntwo \n"]


def test_a_line_of_end_of_text_parts_a_file(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_bytes(b"one\ntwo\n<|endoftext|>\nthree <|endoftext|> goes on\n <|endoftext|>\r\nfour")
    assert documents(f"text:{path}") == [b"one\ntwo", b"three <|endoftext|> goes on", b"four"]


def test_the_last_document_of_a_file_is_what_it_would_be_with_another_after_it(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_bytes(b"one\n<|endoftext|>\n\ntwo\n")
    assert documents(f"text:{path}") == [b"one", b"two"]
    path.write_bytes(path.read_bytes() + b"<|endoftext|>\nthree\n")
    assert documents(f"text:{path}") == [b"one", b"two", b"three"]


def test_a_zipped_text_file(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\n<|endoftext|>\ntwo"))
    assert documents(f"text:{path}") == [b"one", b"two"]
    path.write_bytes(gzip.compress(b"one" * 1000)[:-10])
    with pytest.raises(ConfigError, match=r"a\.txt\.gz: the text cannot be read"):
        documents(f"text:{path}")
    path.write_bytes(b"not zipped")
    with pytest.raises(ConfigError, match=r"a\.txt\.gz: the text cannot be read"):
        documents(f"text:{path}")


def test_a_tree_gives_its_files_in_order(tmp_path):
    for name in ("b.py", "a.py", "sub/c.py", "sub/d.PY", "z.txt", "e.py.gz", ".hidden/f.py", "sub/g.pyc"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"zipped") if name.endswith(".gz") else name.encode())
    (tmp_path / "tree" / "link.py").symlink_to(tmp_path / "tree" / "a.py")
    (tmp_path / "tree" / "folder").symlink_to(tmp_path / "tree" / "sub")
    name = f"tree:{tmp_path}/tree"
    assert documents(f"{name}:*.py") == [b"a.py", b"b.py", b"zipped", b"sub/c.py", b"sub/d.PY"]
    assert documents(f"{name}:*.txt,g.*") == [b"z.txt", b"sub/g.pyc"]


def test_a_tree_that_is_a_file(tmp_path):
    (tmp_path / "a.py").write_text("")
    with pytest.raises(ConfigError, match=r"a\.py: the text cannot be read"):
        documents(f"tree:{tmp_path}/a.py:*.py")


def test_records_of_a_jsonl_file(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\\u2028", "more": "x"}\n\n{"text": null, "more": "y"}\n{"text": "", "more": "z"}')
    assert documents(f"jsonl:{path}") == ["one\u2028".encode(), b"", b""]
    assert documents(f"jsonl:{path}:more") == [b"x", b"y", b"z"]
    other = path.rename(tmp_path / "a:b.jsonl")
    assert len(documents(f"jsonl:{other}")) == 3
    assert len(documents(f"jsonl:{other}:more")) == 3


def test_a_zipped_jsonl_file(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n'))
    assert documents(f"jsonl:{path}") == [b"one"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not valid JSON"),
        ("[" * 100_000, "line 2: not valid JSON"),
        ("[]", "line 2: it holds a list"),
        ('{"txt": "a"}', "line 2: there is no 'text', only 'txt'"),
        ('{"text": 5}', "line 2: 'text' is a int"),
    ],
)
def test_a_line_that_is_no_record(tmp_path, line, words):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one"}\n' + line)
    with pytest.raises(ConfigError, match=words):
        documents(f"jsonl:{path}")


def test_columns_of_a_parquet_file(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    texts = [f"text {number}" for number in range(3000)]
    parquet.write_table(pyarrow.table({"text": texts, "number": list(range(3000))}), path)
    assert documents(f"parquet:{path}") == [text.encode() for text in texts]
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes(200) + whole[240:])  # a page of the column, not the footer
    with pytest.raises(ConfigError, match=r"a\.parquet: it cannot be read to its end"):
        documents(f"parquet:{path}")
    path.write_bytes(whole)
    with pytest.raises(ConfigError, match="there is no 'txt', only 'text', 'number'"):
        documents(f"parquet:{path}:txt")
    with pytest.raises(ConfigError, match="'number' is a int"):
        documents(f"parquet:{path}:number")
    path.write_text("no table")
    with pytest.raises(ConfigError, match="no Parquet file"):
        documents(f"parquet:{path}")


class SavedRows(list[Any]):
    split = "train"


class StandInLibrary(ModuleType):
    """`datasets` as far as it is used, without its weight; it notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__("datasets")
        self.asked: list[Any] = []

    def load_dataset(self, name: str, config: str | None, *, split: str, streaming: bool) -> Any:
        self.asked.append((name, config, split, streaming))
        if split == "nothing":
            raise ValueError("unknown split")
        return iter([{"text": "one", "title": "1"}, {"text": "two", "title": "2"}])

    def load_from_disk(self, name: str) -> Any:
        self.asked.append(name)
        rows = SavedRows([{"text": "saved"}])
        return {"train": rows} if Path(name, "dataset_dict.json").exists() else rows


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> StandInLibrary:
    library = StandInLibrary()
    monkeypatch.setitem(sys.modules, "datasets", library)
    return library


def test_a_data_set_of_the_hub_is_streamed(library):
    assert documents("dataset:owner/name:train") == [b"one", b"two"]
    assert documents("dataset:owner/name@raw:test:title") == [b"1", b"2"]
    assert library.asked == [("owner/name", None, "train", True), ("owner/name", "raw", "test", True)]


def test_a_saved_data_set_is_read_from_disk(library, tmp_path):
    for file in ("state.json", "dataset_dict.json"):
        folder = tmp_path / file
        folder.mkdir()
        (folder / file).touch()
        assert documents(f"dataset:{folder}:train") == [b"saved"]
    assert library.asked == [str(tmp_path / "state.json"), str(tmp_path / "dataset_dict.json")]


def test_a_data_set_that_cannot_be_opened(library, tmp_path):
    with pytest.raises(ConfigError, match=r"owner/name, split nothing: it cannot be opened .*unknown split"):
        documents("dataset:owner/name:nothing")
    (tmp_path / "state.json").touch()
    with pytest.raises(ConfigError, match=r"split test: it cannot be opened .*it is the split train"):
        documents(f"dataset:{tmp_path}:test")
    with pytest.raises(ConfigError, match="row 1: there is no 'words', only 'text', 'title'"):
        documents("dataset:owner/name:train:words")


def test_the_real_library_streams_local_files_and_reads_what_it_saved(tmp_path):
    datasets = pytest.importorskip("datasets")
    (tmp_path / "data").mkdir()
    rows = [{"text": f"document {number}", "title": str(number)} for number in range(5)]
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert documents(f"dataset:{tmp_path / 'data'}:train") == [row["text"].encode() for row in rows]
    assert documents(f"dataset:{tmp_path / 'data'}:train:title") == [row["title"].encode() for row in rows]
    loaded = datasets.load_dataset(str(tmp_path / "data"), split="train", cache_dir=str(tmp_path / "cache"))
    loaded.save_to_disk(tmp_path / "saved")
    assert documents(f"dataset:{tmp_path / 'saved'}:train") == [row["text"].encode() for row in rows]
    with pytest.raises(ConfigError, match="split nothing: it cannot be opened"):
        documents(f"dataset:{tmp_path / 'data'}:nothing")


@pytest.mark.parametrize(("package", "name"), [("pyarrow", "parquet:a.parquet"), ("datasets", "dataset:a/b:train")])
def test_what_is_not_installed_is_named(monkeypatch, tmp_path, package, name):
    monkeypatch.chdir(tmp_path)
    Path("a.parquet").touch()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=f"pip install {package}"):
        parse_sources([name])


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "No source of text is named"),
        (["stdlb"], "Did you mean stdlib"),
        (["stdlib:3.11"], "not of a form"),
        (["text"], "text:FILE"),
        (["text:"], "text:FILE"),
        (["tree:here"], "tree:FOLDER:PATTERNS"),
        (["dataset:name"], "dataset:NAME:SPLIT"),
        (["https://example.org"], "Allowed are text:FILE"),
        (["text:/no/such/file"], "/no/such/file does not exist"),
        (["jsonl:/no/such/file:text"], "/no/such/file does not exist"),
        (["tree:/no/such/folder:*.py"], "/no/such/folder does not exist"),
        (["stdlib", "docs", "stdlib"], "stdlib is named twice"),
    ],
)
def test_names_that_are_none(names, words):
    with pytest.raises(ConfigError, match=words):
        parse_sources(names)


def test_the_standard_library_without_its_tests():
    (source,) = parse_sources(["stdlib"])
    assert source.about.endswith("{}.{}.{}".format(*sys.version_info[:3]))
    found = set(source.documents())
    root = Path(sysconfig.get_path("stdlib"))
    for name in ("json/decoder.py", "turtle.py", "asyncio/tasks.py"):
        assert (root / name).read_bytes() in found
    assert len(found) > 500
    for folder in ("test", "site-packages", "pydoc_data"):
        others = [path.read_bytes() for path in sorted((root / folder).rglob("*.py"))[:50]]
        assert not {content for content in others if len(content) > 1000} & found


def test_documentation_is_prose_by_its_origin(monkeypatch, tmp_path):
    for name, content in {
        "doc/tool/README.gz": gzip.compress(b"Read me."),
        "doc/tool/NEWS.Debian": b"What is new.",
        "doc/tool/changelog.gz": b"x",
        "doc/tool/copyright": b"x",
        "doc/tool/manual.txt": b"A manual.",
        "doc/tool/example.c": b"x",
        "licences/GPL": b"A licence.",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    monkeypatch.setattr("headstart.train.corpus.ready._DOCUMENTATION", tmp_path / "doc")
    monkeypatch.setattr("headstart.train.corpus.ready._LICENCES", tmp_path / "licences")
    found = {source.name: list(source.documents()) for source in parse_sources(["docs"])}
    assert list(found) == ["docs/debian", "docs/python-packages", "docs/python-topics"]
    assert found["docs/debian"] == [b"What is new.", b"Read me.", b"A manual.", b"A licence."]
    assert any(b"NumPy" in document for document in found["docs/python-packages"])
    assert any(b'The "if" statement' in document for document in found["docs/python-topics"])


def test_documentation_of_a_machine_that_has_none(monkeypatch, tmp_path):
    for name in ("_DOCUMENTATION", "_LICENCES"):
        monkeypatch.setattr(f"headstart.train.corpus.ready.{name}", tmp_path / "nothing")
    assert list(parse_sources(["docs"])[0].documents()) == []


def test_a_source_can_be_read_again(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "one"}))
    (source,) = parse_sources([f"jsonl:{path}"])
    assert list(source.documents()) == list(source.documents()) == [b"one"]
