"""The whole way in a bucket of an S3 server on loopback (moto): shards, markers, caches and the merged dataset."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs
from course_lib.scale.run import run
from course_lib.scale.status import status, table
from course_lib.scale.store import Store
from moto.server import ThreadedMotoServer

from tests.scale.corpora import plain, scaled, settings


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("corpus")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_inputs_and_outputs_in_a_bucket(bucket: Any, tmp_path: Path) -> None:
    sizes = {"dump_shard": 100_000, "text_shard": 120_000, "cleaning": {"dedup": {"num_perm": 48, "num_bands": 4}}}
    local = settings(tmp_path / "unused", **sizes)
    for source in (*local.wikipedia, *local.webtext):
        bucket.put_file(source, f"corpus/raw/{Path(source).name}")
    chosen = settings(
        "s3://corpus/run",
        tasks=2,
        **sizes,
        wikipedia=["s3://corpus/raw/jawiki-sample.xml.bz2"],
        webtext=["s3://corpus/raw/webtext-sample.txt.xz"],
    )
    said = run(chosen)
    assert "s3://corpus/run/merged/tokens.bin" in said
    expected = plain(tmp_path / "plain", local)
    assert scaled(chosen.output) == expected
    assert "all stages are done" in table(status(chosen.output))
    # A damaged object is made again.
    store = Store(chosen.output)
    store.folder.pipe_file("tokens/00003.bin", b"short")
    store.remove("merged/done/all.json")
    run(chosen)
    assert scaled(chosen.output) == expected
    # Only the cache of what many tasks read is left on this machine.
    left = {path.relative_to(tmp_path / "tmp").parts[0] for path in (tmp_path / "tmp").rglob("*") if path.is_file()}
    assert left == {f"course-scale-cache-{os.getuid()}"}
    # The cache holds a new version of the same size under another name.
    for content in (b"one", b"two"):
        store.folder.pipe_file("changed", content)
        assert store.cached("changed").read_bytes() == content
