"""A run in fp16, which only cards are allowed: one rank computes it on CPU, slowly, with DeepSpeed's own loss scale."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import launch, log, nodes, run_dir

from tests.bench.gpu_pretrain import prepare
from tests.weights import read_tensors

# DeepSpeed refuses fp16 on CPUs without instructions for it. PyTorch can compute it, only slowly, and everything else is
# what runs on a card: dynamic loss scale, skipped steps, casts, checkpoints.
RANK = """
import sys
from pathlib import Path
from course_lib.training import worker
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
CPU_Accelerator.is_fp16_supported = lambda _: True
worker.main(sys.argv[1], Path(sys.argv[2]), 0, 8)
"""


def test_the_loss_scale_falls_until_gradients_fit_and_the_checkpoint_is_exported(tmp_path: Path):
    prepare(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    changes = [f"data.input=[{tmp_path}/tokens]", f"data.tokenizer={tmp_path}/tokenizer", f"engine.output_dir={run}"]
    changes += ["engine.max_steps=8", "engine.logging_freq=1", "engine.eval_freq=0", "engine.test_iters=0"]
    changes += ["engine.tracking=[]", "launch.ranks=1", "data.seq_length=64"]
    changes += ["precision.dtype=fp16", "precision.initial_scale_power=23"]
    task = Gpt2(config.load(PretrainConfig, "gpt2-tiny-text.yaml", changes))
    batch = task.settings.batch.resolve(1)
    run_dir.prepare(task, batch, False, print)
    environment = launch.environment_of_ranks(task.settings, nodes.Nodes({nodes.HERE: 1}))
    environment |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port())}
    command = [sys.executable, "-c", RANK, task.name(), str(run)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

    entries = log.read(run)
    scales = [entry["loss_scale"] for entry in entries]
    skipped = [entry["skipped_steps"] for entry in entries]
    # the first overflow is tolerated (precision.hysteresis 2), each other one halves the scale
    assert scales[0] == 2**23 and skipped[0] == 1
    assert 1 < skipped[-1] < 8 and scales[-1] == 2 ** (24 - skipped[-1])
    # a skipped step has no norm, and the others have
    measured = [step for step, entry in enumerate(entries, 1) if entry.get("grad_norm") is not None]
    assert measured == [*range(skipped[-1] + 1, 9)]
    assert np.isfinite([entry["loss"] for entry in entries]).all()
    # DeepSpeed stored its scaler in the checkpoint
    report = export(run, tmp_path / "model")
    assert (report["weights"], report["dtype"]) == ("fp32 master weights", "fp16")
    assert all(np.isfinite(tensor.float().numpy()).all() for tensor in read_tensors(tmp_path / "model").values())
