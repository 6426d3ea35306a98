"""A rank that trains in fp16 on a CPU: `python -m tests.training.fp16_rank TASK RUN`.

DeepSpeed refuses fp16 on CPUs without instructions for it. PyTorch can compute it, only slowly, and everything else is
what runs on a card: dynamic loss scale, skipped steps, casts, checkpoints.
"""

import sys
from pathlib import Path

from course_lib.training import run_dir, worker
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

if __name__ == "__main__":
    CPU_Accelerator.is_fp16_supported = lambda _: True
    worker.main(sys.argv[1], Path(sys.argv[2]), run_dir.digest(Path(sys.argv[2])), 0)
