"""What killed runs leave behind does not stop the next one."""

import os
import threading

import pytest
from course_lib.training import cpu_extension
from torch.utils.file_baton import FileBaton


@pytest.fixture
def lock(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "deepspeed_shm_comm").mkdir()
    return tmp_path / "deepspeed_shm_comm" / "lock"


def test_a_lock_that_no_process_holds_is_removed(lock):
    if not os.fork():
        FileBaton(str(lock)).try_acquire()
        os._exit(0)  # as if killed: the lock stays
    os.wait()
    assert lock.exists()
    cpu_extension.remove_stale_locks()
    assert not lock.exists()


def test_a_lock_that_is_being_released_stays(lock, monkeypatch):
    """FileBaton closes the file and then removes it; it would fail if somebody else had removed the file in between."""
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    remove = os.remove

    def removed_late(path):
        # What runs here runs between the two, and would see no process that has the file open.
        asked.set()
        looked.wait()
        remove(path)

    def pause(_):
        looked.set()
        release.join()

    asked, looked = threading.Event(), threading.Event()
    monkeypatch.setattr("os.remove", removed_late)
    monkeypatch.setattr("time.sleep", pause)
    release = threading.Thread(target=baton.release, daemon=True)
    release.start()
    asked.wait()
    cpu_extension.remove_stale_locks()
    release.join()
    assert looked.is_set() and not lock.exists()
