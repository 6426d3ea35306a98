"""What killed runs leave behind does not stop the next one."""

import os

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


def test_only_linux_compiles_the_extension(lock, monkeypatch):
    monkeypatch.setattr("sys.platform", "darwin")
    assert not cpu_extension.needs_compiling()
    monkeypatch.setattr("sys.platform", "linux")
    assert cpu_extension.needs_compiling()
    (lock.parent / "deepspeed_shm_comm.so").touch()
    assert not cpu_extension.needs_compiling()


def test_a_lock_that_a_process_holds_stays(lock):
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    cpu_extension.remove_stale_locks()
    assert lock.exists()
    baton.release()
