"""What killed runs leave behind does not stop the next one."""

import os

import pytest
from course_lib.training import extensions
from torch.utils.file_baton import FileBaton


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "cpu_adam").mkdir()
    return tmp_path / "cpu_adam" / "lock"


def test_a_lock_that_no_process_holds_is_removed(lock):
    if not os.fork():
        FileBaton(str(lock)).try_acquire()
        os._exit(0)  # as if killed: the lock stays
    os.wait()
    assert lock.exists()
    extensions.remove_stale_locks()
    assert not lock.exists()


def test_a_lock_that_a_process_holds_stays(lock):
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    extensions.remove_stale_locks()
    assert lock.exists()
    baton.release()
