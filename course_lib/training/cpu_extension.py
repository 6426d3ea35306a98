"""The DeepSpeed C++ extension for CPU ranks, compiled on first use, or by this module (see the Makefile)."""

import os
import shutil
import sys

from course_lib.language.words import tr
from course_lib.training.stale_locks import build_environment, build_root, remove_stale_locks

NAME = "deepspeed_shm_comm"
COMPILERS = ("c++", "g++", "clang++")


def is_compiled() -> bool:
    """Return whether the extension is compiled for this Python environment."""
    return (build_root() / NAME / f"{NAME}.so").exists()


def compile_ahead() -> None:
    """Compile the extension if that is needed and possible here. Problems are only printed."""
    if sys.platform != "linux" or is_compiled():
        return
    if not any(map(shutil.which, COMPILERS)):
        print(tr("no C++ compiler: DeepSpeed cannot train on CPU ranks; apt-get install g++"))
        return
    print(tr("compiling DeepSpeed's extension for CPU ranks (once; about a minute)"), flush=True)
    # With other variables than those of a rank, DeepSpeed would compile the extension again.
    os.environ |= {"DS_ACCELERATOR": "cpu"} | build_environment()
    try:
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        remove_stale_locks()
        ShareMemCommBuilder().load(verbose=False)
    # A failed compilation must not stop the installation; a run will try again and report the error.
    except Exception as error:
        print(tr("not compiled; the first run tries again: {error}", error=error))


if __name__ == "__main__":
    compile_ahead()
