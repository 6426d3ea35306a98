"""What killed runs leave behind does not stop the next one."""

import os
import time

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


def test_a_lock_that_is_being_released_stays(lock):
    """Between its close and its removal no process has it open: a rank whose lock another had removed there crashed."""
    end = time.monotonic() + 3
    child = os.fork()
    if not child:
        while time.monotonic() < end:
            extensions.remove_stale_locks()
        os._exit(0)
    released = 0
    while time.monotonic() < end:
        baton = FileBaton(str(lock))
        assert baton.try_acquire()
        baton.release()
        released += 1
    os.waitpid(child, 0)
    assert released > 1000
