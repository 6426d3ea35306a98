"""DeepSpeed's C++ extension for CPU ranks, which is compiled when it is first used.

`python -m course_lib.training.cpu_extension` compiles it ahead: the Makefile does so at installation.
"""

import os
import shutil
import sys
from pathlib import Path

from course_lib.training.stale_locks import build_root, no_stale_locks

NAME = "deepspeed_shm_comm"
COMPILERS = ("c++", "g++", "clang++")


def is_compiled() -> bool:
    """Whether the extension is compiled for this Python environment."""
    return (build_root() / NAME / f"{NAME}.so").exists()


def compile_ahead() -> None:
    """Compiles the extension unless that is done or impossible. Says what happens; a failure is no error."""
    if sys.platform != "linux" or is_compiled():
        return
    if not any(map(shutil.which, COMPILERS)):
        print("no C++ compiler: DeepSpeed cannot train on CPU ranks; apt-get install g++")
        return
    print("compiling DeepSpeed's extension for CPU ranks (once; about a minute)", flush=True)
    # The settings of a rank (launch.py): with others DeepSpeed would compile again.
    os.environ |= {
        "DS_ACCELERATOR": "cpu",
        "TORCH_EXTENSIONS_DIR": str(build_root()),
        "PATH": os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")])),
    }
    try:
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        with no_stale_locks():
            ShareMemCommBuilder().load(verbose=False)
    # Whatever stops the compiler, the installation goes on: a run reports it again.
    except Exception as error:
        print(f"not compiled; the first run tries again: {error}")


if __name__ == "__main__":
    compile_ahead()
