"""The download against a real HTTP server on the loopback that resumes, and misbehaves on demand."""

import hashlib
import lzma
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from course_lib.corpus.config import DownloadConfig
from course_lib.corpus.download import download
from course_lib.errors import CourseError, UsageError

from tests.corpus.mirror import DUMP, Mirror, noise, serving
from tests.waiting import until

DATED = f"jawiki-20261101-{DUMP}"
TIDY = "/jawiki/20261101/"


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("NO_PROXY", "*")
    with serving() as found:
        yield found


def config(mirror: Mirror, retries: int = 2, timeout: float = 5.0) -> DownloadConfig:
    return DownloadConfig(mirror.address, mirror.address + "/cc-100/", retries, timeout, 0.001)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def failure(call: Callable[[], Path], kind: type[CourseError] = CourseError) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_dump_is_downloaded_and_verified_once(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = noise(300_000)
    path = mirror.dump(body)
    found = download("jawiki", tmp_path / "new" / "folder", "20261101", config(mirror))
    assert found == tmp_path / "new" / "folder" / DATED
    assert found.read_bytes() == body
    assert "sha1 verified" in capsys.readouterr().out
    assert files(found.parent) == [DATED]
    assert download("jawiki", found.parent, "20261101", config(mirror)) == found
    assert mirror.sent(path) == len(body)
    assert "already complete (sha1 verified)" in capsys.readouterr().out


def test_latest_is_named_by_its_day_and_fetched_again_only_when_it_moved(mirror: Mirror, tmp_path: Path) -> None:
    old, new = noise(50_000), noise(60_000, seed=1)
    path = mirror.dump(old, "latest")
    target = download("jawiki", tmp_path, settings=config(mirror))
    assert target.name == DATED
    download("jawiki", tmp_path, settings=config(mirror))
    assert len(mirror.of(path)) == 1
    mirror.dump(new, "latest", etag='"two"')
    mirror.tricks[path] = ["flip"]
    message = failure(lambda: download("jawiki", tmp_path, settings=config(mirror)))
    assert "wrong checksum" in message and hashlib.sha1(new).hexdigest() in message
    assert target.read_bytes() == old and not (tmp_path / f"{DATED}.part").exists()
    assert download("jawiki", tmp_path, settings=config(mirror)).read_bytes() == new


def test_cc100_has_no_checksum(mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "/cc-100/ja.txt.xz"
    mirror.put(path, b"<html>Please log in to this network</html>")
    assert "not a sound xz container" in failure(lambda: download("cc100", tmp_path, settings=config(mirror)))
    mirror.put(path, lzma.compress(noise(40_000)), '"two"')
    target = download("cc100", tmp_path, settings=config(mirror))
    assert target == tmp_path / "ja.txt.xz" and target.read_bytes() == mirror.pages[path].body
    assert "no checksum is published" in capsys.readouterr().out
    download("cc100", tmp_path, settings=config(mirror))
    assert len(mirror.of(path)) == 2


@pytest.mark.parametrize("day", ["20261101", "latest"])
def test_one_part_of_a_dump(mirror: Mirror, tmp_path: Path, day: str) -> None:
    mirror.dump(noise(500), day)
    bodies = [noise(50_000, seed) for seed in (1, 2)]
    paths = [
        mirror.dump_part(body, part, pages, day)
        for part, (body, pages) in enumerate(zip(bodies, ("p1p114794", "p114795p390428"), strict=True), 1)
    ]
    target = download("jawiki", tmp_path, day, config(mirror), part=2)
    assert target.name == "jawiki-20261101-pages-articles-multistream2.xml-p114795p390428.bz2"
    assert target.read_bytes() == bodies[1] and mirror.of(paths[0]) == []
    download("jawiki", tmp_path, day, config(mirror), part=2)
    assert len(mirror.of(paths[1])) == 1, "a verified part is not downloaded again"
    assert "part: 9 is not in" in failure(lambda: download("jawiki", tmp_path, day, config(mirror), part=9))


@pytest.mark.parametrize("how", ["cut", "reset"])
def test_a_connection_cut_several_times_is_resumed(mirror: Mirror, tmp_path: Path, how: str) -> None:
    body = noise(400_000)
    path = mirror.dump(body)
    mirror.tricks[path] = [f"{how} {size}" for size in (70_000, 1, 100_000, 90_000, 50_000)]  # more cuts than retries
    target = download("jawiki", tmp_path, "20261101", config(mirror))
    assert target.read_bytes() == body
    requests = mirror.of(path)
    assert [request.range for request in requests[:3]] == [None, "bytes=70000-", "bytes=70001-"]
    assert [request.status for request in requests] == [200, 206, 206, 206, 206, 206]
    assert {request.if_range for request in requests[1:]} == {'"one"'}
    assert mirror.sent(path) == len(body), "no byte was sent twice"


def test_a_killed_process_leaves_a_part_that_is_continued(mirror: Mirror, tmp_path: Path) -> None:
    body = noise(300_000)
    path = mirror.dump(body)
    mirror.tricks[path] = ["stall 200000"]
    program = (
        "import sys; from pathlib import Path; from course_lib.corpus.download import *;"
        "download('jawiki', Path(sys.argv[1]), '20261101', DownloadConfig(wikipedia_mirror=sys.argv[2]))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), mirror.address])
    part = tmp_path / f"{DATED}.part"
    until(lambda: part.exists() and part.stat().st_size > 100_000, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    received = part.stat().st_size
    assert received > 100_000 and body.startswith(part.read_bytes())
    assert not (tmp_path / DATED).exists()
    assert download("jawiki", tmp_path, "20261101", config(mirror)).read_bytes() == body
    assert mirror.of(path)[1].range == f"bytes={received}-"


def test_two_downloads_of_one_file_do_not_meet(mirror: Mirror, tmp_path: Path) -> None:
    path = mirror.dump(noise(100_000))
    mirror.tricks[path] = ["stall 50000"]
    first = threading.Thread(target=download, args=("jawiki", tmp_path, "20261101", config(mirror)))
    first.start()
    while not mirror.sent(path):
        time.sleep(0.01)
    message = failure(lambda: download("jawiki", tmp_path, "20261101", config(mirror)))
    assert "another process is downloading it" in message
    mirror.go_on.set()
    first.join()
    assert (tmp_path / DATED).exists()


@pytest.mark.parametrize("etag", ['"one"', 'W/"one"', ""])
def test_a_file_that_changed_between_attempts_is_begun_anew(mirror: Mirror, tmp_path: Path, etag: str) -> None:
    old, new = noise(100_000), noise(100_000, seed=1)
    path = mirror.dump(old)
    mirror.pages[path].etag = etag
    mirror.tricks[path] = ["cut 40000"]
    failure(lambda: download("jawiki", tmp_path, "20261101", config(mirror, retries=0)))
    mirror.dump(new, etag=etag.replace("one", "two"))
    mirror.pages[path].modified = "Mon, 02 Nov 2026 00:00:00 GMT"
    assert download("jawiki", tmp_path, "20261101", config(mirror)).read_bytes() == new
    validator = '"one"' if etag == '"one"' else "Sun, 01 Nov 2026 00:00:00 GMT"  # a weak ETag does not do
    assert mirror.of(path)[1].if_range == validator


def test_a_complete_part_needs_no_more_bytes(mirror: Mirror, tmp_path: Path) -> None:
    body = noise(100_000)
    path = mirror.dump(body)
    mirror.tricks[path] = ["cut 99999"]
    failure(lambda: download("jawiki", tmp_path, "20261101", config(mirror, retries=0)))
    with (tmp_path / f"{DATED}.part").open("ab") as part:
        part.write(body[-1:])  # as after a kill between the last byte and the rename
    assert download("jawiki", tmp_path, "20261101", config(mirror)).read_bytes() == body
    assert len(mirror.of(path)) == 1
    assert mirror.sent(path) == 99_999


def test_not_found_names_the_address_and_how_to_name_a_date(mirror: Mirror, tmp_path: Path) -> None:
    message = failure(lambda: download("jawiki", tmp_path, "20261102", config(mirror)))
    assert f"{mirror.address}/jawiki/20261102/jawiki-20261102-sha1sums.txt" in message
    assert "`latest`" in message and files(tmp_path) == []


def test_busy_servers_are_asked_again_and_others_not(mirror: Mirror, tmp_path: Path) -> None:
    body = noise(50_000)
    path = mirror.dump(body)
    sums = f"{TIDY}jawiki-20261101-sha1sums.txt"
    mirror.tricks = {path: ["status 500", "status 429"], sums: ["status 503", "status 502"]}
    assert download("jawiki", tmp_path, "20261101", config(mirror)).read_bytes() == body
    assert [request.status for request in mirror.of(path)] == [500, 429, 200]
    mirror.tricks = {path: ["status 403"]}
    message = failure(lambda: download("jawiki", tmp_path / "other", "20261101", config(mirror)))
    assert "403" in message and path in message and len(mirror.of(path)) == 4, "403 is not tried again"


def test_a_silent_server_runs_into_the_timeout(mirror: Mirror, tmp_path: Path) -> None:
    path = mirror.dump(noise(50_000))
    mirror.tricks[path] = ["stall 10000", "silent"]
    message = failure(lambda: download("jawiki", tmp_path, "20261101", config(mirror, retries=1, timeout=0.2)))
    assert "no answer within 0.2 s" in message
    assert (tmp_path / f"{DATED}.part").stat().st_size == 10_000


def test_a_host_that_cannot_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refused
        gone = Mirror(f"http://127.0.0.1:{taken.getsockname()[1]}")
        message = failure(lambda: download("jawiki", tmp_path, "20261101", config(gone)))
    assert "cannot be reached" in message and "again to resume" in message


def test_waits_twice_as_long_each_time(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("course_lib.corpus.download.time.sleep", waits.append)
    path = mirror.dump(noise(1000))
    mirror.tricks[path] = ["status 500"] * 8
    failure(lambda: download("jawiki", tmp_path, "20261101", DownloadConfig(mirror.address, retries=7, backoff=1.5)))
    assert waits == [1.5, 3, 6, 12, 24, 48, 60]


@pytest.mark.parametrize("date", ["2026-11-01", "../../etc"])
def test_a_wrong_date_is_refused_before_any_request(mirror: Mirror, tmp_path: Path, date: str) -> None:
    message = failure(lambda: download("jawiki", tmp_path / "x", date, config(mirror)), UsageError)
    assert message.startswith("date: ") and "20261101" in message
    assert not mirror.requests and not (tmp_path / "x").exists()


def test_a_file_of_the_users_own_is_believed_by_its_checksum(mirror: Mirror, tmp_path: Path) -> None:
    body = noise(50_000)
    path = mirror.dump(body)
    target = tmp_path / DATED
    target.write_bytes(body)
    download("jawiki", tmp_path, "20261101", config(mirror))
    assert not mirror.of(path)
    target.write_bytes(body[:-1] + b"?")
    assert download("jawiki", tmp_path, "20261101", config(mirror)).read_bytes() == body


def test_a_full_disk_is_one_clear_line(mirror: Mirror, tmp_path: Path) -> None:
    mirror.dump(noise(50_000))
    (tmp_path / f"{DATED}.part").symlink_to("/dev/full")  # every write there fails with ENOSPC
    message = failure(lambda: download("jawiki", tmp_path, "20261101", config(mirror)))
    assert "No space left" in message and "again to resume" in message
